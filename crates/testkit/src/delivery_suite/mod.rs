//! The conformance suite of deliveries: one list of cases (`cases_list.rs`), each a test of its own for every
//! delivery, on a real store and, where there is one, a real broker. Each has a database and queues of its own.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use outhaul_core::delivery::Delivery;
use outhaul_core::store::Store;

mod bench;
mod cases_list;
mod competing;
mod foreign;
mod hints;
mod outages;
mod parking;
mod window;
mod worker;

#[doc(hidden)]
pub use bench::Kit;

/// An empty store on a database of its own, as two processes open it, and what is under test.
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same database, opened by another process.
    pub second: Arc<dyn Store>,
    /// The delivery under test.
    pub under_test: Arc<dyn UnderTest>,
    /// What must live as long as the database.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// How deliveries are started, each as in a process of its own, and what is below them.
pub trait UnderTest: Send + Sync {
    /// Starts one.
    fn start(&self, store: Arc<dyn Store>, wanted: Wanted) -> Process;

    /// The broker's two queues, as another client sees them; `None`: messages name nothing here.
    fn wire(&self) -> Option<&dyn Wire>;
}

/// What a process is to do.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// How many chunks of a queue may be announced and unclaimed.
    pub window: u32,
    /// When announcements are made again.
    pub expiry: Duration,
    /// How often to look without a hint.
    pub poll_interval: Duration,
    /// How many messages to hold; `None`: consume nothing.
    pub prefetch: Option<u16>,
}

/// A started delivery. Dropped, its connections end; nothing is said to the broker.
pub struct Process {
    /// What workers and clients use.
    pub delivery: Arc<dyn Delivery>,
    /// Ends it in good order.
    pub stopping: Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Process {
    async fn stop(self) {
        (self.stopping)().await;
    }
}

/// A broker, seen from beside.
#[async_trait]
pub trait Wire: Send + Sync {
    /// Puts a message on the work queue that no relay of ours made.
    async fn send(&self, body: &str);

    /// Takes all messages that wait on the work queue, oldest first.
    async fn drain_work(&self) -> Vec<String>;

    /// Takes all messages that wait on the parking queue, oldest first.
    async fn drain_parking(&self) -> Vec<String>;

    /// Kills the broker, which the case has for itself.
    async fn kill(&self);

    /// Starts it again, with what it had on disk.
    async fn start(&self);

    /// Kills it and starts it with nothing.
    async fn wipe(&self);
}

/// Whose broker a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Queues of its own on a broker that others use too.
    Queues,
    /// A broker of its own, which it may kill.
    Broker,
}

/// One door to each case, which runs it; for the tests that [`delivery_suite!`](crate::delivery_suite!) makes.
#[doc(hidden)]
pub mod cases {
    /// Those of every delivery.
    pub mod every {
        crate::delivery_cases! { every; crate::suite::doors; delivery_suite }
    }

    /// Those of deliveries with a broker.
    pub mod brokered {
        crate::delivery_cases! { brokered; crate::suite::doors; delivery_suite }
    }
}

/// Makes a test of each case in the module that calls it, with deliveries that `$make` gives a place to:
/// `async fn make(settings: StoreSettings, need: Need) -> Fixture`. Cases that need a broker are made
/// with `delivery_suite!(make, brokered)`.
#[macro_export]
macro_rules! delivery_suite {
    ($make:ident) => {
        mod every {
            use super::$make;
            $crate::delivery_cases! {
                every; $crate::suite_tests; $crate::delivery_suite::cases::every, $crate::delivery_suite::Kit, $make
            }
        }
    };
    ($make:ident, brokered) => {
        $crate::delivery_suite!($make);
        mod brokered {
            use super::$make;
            $crate::delivery_cases! {
                brokered; $crate::suite_tests; $crate::delivery_suite::cases::brokered, $crate::delivery_suite::Kit, $make
            }
        }
    };
}
