//! The conformance suite on PostgreSQL, with a second handle as another process would open it.

use outhaul_core::secret::Secret;
use outhaul_core::store::StoreSettings;
use outhaul_store::{OpenOptions, open};
use outhaul_testkit::store_suite::{Fixture, Probe, exercise};
use outhaul_testkit::test_db::TestDb;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_conforms() {
    exercise(|settings: StoreSettings| async move {
        let database = TestDb::migrated().await;
        let url = Secret::new(database.url());
        let store = open(&url, settings, OpenOptions::default()).await.unwrap().engine;
        let second = open(&url, settings, OpenOptions::default()).await.unwrap().engine;
        Fixture {
            store,
            second: Some(second),
            probe: Probe::postgres(database.url()),
            keep: Box::new(database),
        }
    })
    .await;
}
