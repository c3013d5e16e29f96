//! The whole router against a store that remembers nothing: routing, refusals and the description.

use std::collections::BTreeMap;
use std::time::Duration;

use outhaul_core::retry::RetryPolicy;
use outhaul_export::Exports;
use outhaul_export::settings::{
    DatasetSettings, ExportSettings, SourceSettings, SourceUrl, StorageSettings, StorageTarget,
};

fn settings() -> ExportSettings {
    let source = SourceSettings {
        name: "warehouse".into(),
        url: SourceUrl::Sqlite("warehouse.db".into()),
        max_concurrent: 2,
        statement_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(60),
    };
    let dataset = DatasetSettings {
        name: "positions".into(),
        default: true,
        source: "warehouse".into(),
        query: "select * from positions where key = :key and day = :effective_date".into(),
        retry: RetryPolicy::default(),
        timeout: None,
    };
    ExportSettings {
        sources: BTreeMap::from([(source.name.clone(), source)]),
        datasets: BTreeMap::from([(dataset.name.clone(), dataset)]),
        storage: StorageSettings { target: StorageTarget::Local("files".into()), base_path: "exports/".into() },
        reuse_window_days: 7,
        max_chunks_per_job: 10,
    }
}

/// One dataset, `positions`, the default one.
pub fn exports() -> Exports {
    Exports::new(&settings()).unwrap()
}
