//! The conformance suite on every delivery, with PostgreSQL below it and real brokers.

mod brokered;
mod wire;

use std::any::Any;
use std::sync::Arc;

use futures::FutureExt as _;
use outhaul_core::secret::Secret;
use outhaul_core::store::{Store, StoreSettings};
use outhaul_delivery::{BrokerKind, DatabaseDelivery};
use outhaul_store::{OpenOptions, open};
use outhaul_testkit::delivery_suite::{Fixture, Process, UnderTest, Wanted, Wire, exercise};
use outhaul_testkit::test_db::TestDb;

use brokered::Brokered;

/// The database and its two handles.
async fn fixture(settings: StoreSettings, under_test: Arc<dyn UnderTest>) -> Fixture {
    let database = TestDb::migrated().await;
    let url = Secret::new(database.url());
    let store = open(&url, settings, OpenOptions::default()).await.expect("open the store").engine;
    let second = open(&url, settings, OpenOptions::default()).await.expect("open the store").engine;
    let keep: Box<dyn Any + Send + Sync> = Box::new(database);
    Fixture { store, second, under_test, keep }
}

struct Database;

impl UnderTest for Database {
    fn start(&self, store: Arc<dyn Store>, _: Wanted) -> Process {
        Process {
            delivery: DatabaseDelivery::start(store),
            stopping: Box::new(|| std::future::ready(()).boxed()),
        }
    }

    fn wire(&self) -> Option<&dyn Wire> {
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn database_conforms() {
    exercise(false, |settings, _| fixture(settings, Arc::new(Database))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn activemq_conforms() {
    exercise(true, |settings, need| async move {
        fixture(settings, Arc::new(Brokered::new(BrokerKind::ActiveMq, need).await)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rabbitmq_conforms() {
    exercise(true, |settings, need| async move {
        fixture(settings, Arc::new(Brokered::new(BrokerKind::RabbitMq, need).await)).await
    })
    .await;
}
