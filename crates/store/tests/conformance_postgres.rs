//! The conformance suite on PostgreSQL, with a second handle as another process would open it.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use outhaul_core::secret::Secret;
use outhaul_core::store::StoreSettings;
use outhaul_store::{OpenOptions, open};
use outhaul_testkit::store_suite::{Fixture, Probe};
use outhaul_testkit::test_db::TestDb;

outhaul_testkit::store_suite!(postgres);

async fn postgres(settings: StoreSettings) -> Fixture {
    let database = TestDb::migrated().await;
    let url = Secret::new(database.url());
    let store = open(&url, settings, OpenOptions::default()).await.unwrap().engine;
    let second = open(&url, settings, OpenOptions::default()).await.unwrap().engine;
    Fixture { store, second: Some(second), probe: Probe::postgres(database.url()), keep: Box::new(database) }
}
