//! Settings for this crate's own unit tests.

use std::path::PathBuf;
use std::time::Duration;

use outhaul_core::retry::RetryPolicy;

use crate::settings::{
    DatasetSettings, ExportSettings, SourceSettings, SourceUrl, StorageSettings, StorageTarget,
};

pub(crate) fn dataset(name: &str, default: bool) -> DatasetSettings {
    DatasetSettings {
        name: name.into(),
        default,
        source: "warehouse".into(),
        query: "select 1 where :key = :effective_date".into(),
        retry: RetryPolicy::default(),
        timeout: None,
    }
}

pub(crate) fn settings(datasets: impl IntoIterator<Item = DatasetSettings>) -> ExportSettings {
    let source = SourceSettings {
        name: "warehouse".into(),
        url: SourceUrl::Sqlite(PathBuf::from("warehouse.db")),
        max_concurrent: 2,
        statement_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(60),
    };
    ExportSettings {
        sources: [(source.name.clone(), source)].into(),
        datasets: datasets.into_iter().map(|dataset| (dataset.name.clone(), dataset)).collect(),
        storage: StorageSettings {
            target: StorageTarget::Local(PathBuf::from("files")),
            base_path: "exports/".into(),
        },
        reuse_window_days: 7,
        max_chunks_per_job: 5,
    }
}
