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
use outhaul_testkit::delivery_suite::{Fixture, Need, Process, UnderTest, Wanted, Wire};
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

mod database {
    use super::*;

    outhaul_testkit::delivery_suite!(make);

    async fn make(settings: StoreSettings, _: Need) -> Fixture {
        fixture(settings, Arc::new(Database)).await
    }
}

mod activemq {
    use super::*;

    outhaul_testkit::delivery_suite!(make, brokered);

    async fn make(settings: StoreSettings, need: Need) -> Fixture {
        fixture(settings, Arc::new(Brokered::new(BrokerKind::ActiveMq, need).await)).await
    }
}

mod rabbitmq {
    use super::*;

    outhaul_testkit::delivery_suite!(make, brokered);

    async fn make(settings: StoreSettings, need: Need) -> Fixture {
        fixture(settings, Arc::new(Brokered::new(BrokerKind::RabbitMq, need).await)).await
    }
}
