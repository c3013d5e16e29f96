//! The conformance suite on SQLite, which serves one process: races are between its tasks.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use std::sync::Arc;

use outhaul_core::store::StoreSettings;
use outhaul_store::sqlite::SqliteStore;
use outhaul_testkit::store_suite::{Fixture, Probe};

outhaul_testkit::store_suite!(sqlite);

async fn sqlite(settings: StoreSettings) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outhaul.db");
    let store = Arc::new(SqliteStore::open(&path, settings).await.unwrap());
    Fixture { store, second: None, probe: Probe::sqlite(&path), keep: Box::new(folder) }
}
