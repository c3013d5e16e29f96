//! The conformance suite on SQLite, which serves one process: races are between its tasks.

use outhaul_core::store::StoreSettings;
use outhaul_store::sqlite::SqliteStore;
use outhaul_testkit::store_suite::{Fixture, Probe, exercise};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_conforms() {
    exercise(|settings: StoreSettings| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outhaul.db");
        let store = std::sync::Arc::new(SqliteStore::open(&path, settings).await.unwrap());
        Fixture { store, second: None, probe: Probe::sqlite(&path), keep: Box::new(folder) }
    })
    .await;
}
