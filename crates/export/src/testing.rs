//! Settings for this crate's own unit tests.

use std::path::PathBuf;
use std::time::Duration;

use outhaul_core::identity::Identity;
use outhaul_core::retry::RetryPolicy;

use crate::settings::{
    DatasetSettings, ExportSettings, FileAccess, ScopeSettings, SourceSettings, SourceUrl, StorageSettings,
    StorageTarget,
};

pub(crate) fn dataset(name: &str, default: bool) -> DatasetSettings {
    DatasetSettings {
        name: name.into(),
        default,
        source: "warehouse".into(),
        keyless: false,
        query: "select 1 where :key = :effective_date".into(),
        base_path: None,
        scope: ScopeSettings::default(),
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
        max_row_bytes: 64 << 20,
    };
    ExportSettings {
        sources: [(source.name.clone(), source)].into(),
        datasets: datasets.into_iter().map(|dataset| (dataset.name.clone(), dataset)).collect(),
        storage: StorageSettings {
            target: StorageTarget::Local(PathBuf::from("files")),
            base_path: "exports/".into(),
            file_access: FileAccess::Owner,
        },
        reuse_window_days: 7,
        max_chunks_per_job: 5,
        snapshot_max_age: None,
        retry: RetryPolicy::default(),
    }
}

/// A dataset whose rows depend on the caller's county.
pub(crate) fn scoped(name: &str, default: bool) -> DatasetSettings {
    DatasetSettings {
        query: "select 1 where :key = :effective_date and :claims.county = 'x'".into(),
        scope: ScopeSettings { row_scope: vec!["county".into()], ..ScopeSettings::default() },
        ..dataset(name, default)
    }
}

/// A caller with these claims, verified at the beginning of 2026.
pub(crate) fn caller(claims: &[(&str, serde_json::Value)]) -> Identity {
    Identity {
        subject: "ann".into(),
        department: Some("sales".into()),
        claims: claims.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        verified_at: "2026-01-01T00:00:00Z".parse().unwrap(),
    }
}
