//! The conformance suite of deliveries: one list of cases, run against every delivery by one call, on a
//! real store and, where there is one, a real broker. Each case has a database and queues of its own.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use outhaul_core::delivery::Delivery;
use outhaul_core::store::{Store, StoreSettings};

use crate::suite::{Case, Run, cases};

mod bench;
mod competing;
mod foreign;
mod hints;
mod outages;
mod parking;
mod window;
mod worker;

use bench::Kit;

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

/// What every delivery does.
fn every() -> Vec<Case<Kit>> {
    cases![
        hints::a_waiting_worker_is_woken,
        hints::what_comes_between_arming_and_waiting_is_not_missed,
        hints::what_was_queued_before_anybody_ran_is_found,
        hints::another_process_hears,
        competing::every_chunk_is_claimed_once,
    ]
}

/// What those with a broker do besides.
fn with_broker() -> Vec<Case<Kit>> {
    cases![
        competing::a_message_is_held_until_its_receipt_is_dropped,
        competing::what_is_not_wanted_goes_to_others,
        competing::a_stop_acknowledges_what_is_done_with,
        window::no_more_than_the_window_is_announced,
        window::a_paused_queue_blocks_no_other,
        window::a_relay_that_died_delays_its_batch,
        foreign::what_is_not_ours_is_parked_and_others_go_on,
        foreign::the_short_form_is_understood,
        parking::a_dead_chunk_is_parked_once,
    ]
}

/// Those that kill the broker; one at a time.
fn outage() -> Vec<Case<Kit>> {
    cases![
        outages::a_broker_that_is_killed_and_comes_back,
        outages::a_broker_that_was_away_for_the_whole_submission,
        outages::a_broker_that_lost_everything,
    ]
}

/// Cases at work at one moment: enough to overlap waiting, few enough for a small server.
const AT_ONCE: usize = 3;

/// Runs every case against deliveries that `make` gives a place to, and panics with the names of all that
/// failed. `OUTHAUL_SUITE_ONLY=<part of a name>` picks cases while working on a delivery.
pub async fn exercise<F, Made>(brokered: bool, make: F)
where
    F: Fn(StoreSettings, Need) -> Made + Send + Sync + 'static,
    Made: Future<Output = Fixture> + Send + 'static,
{
    let make: Arc<bench::Make> = Arc::new(move |settings, need| Box::pin(make(settings, need)));
    let mut run = Run::from_environment();
    let mut beside = every();
    if brokered {
        beside.extend(with_broker());
    }
    run.cases(beside, AT_ONCE, |_| Kit::new(make.clone(), Need::Queues)).await;
    if brokered {
        run.cases(outage(), 1, |_| Kit::new(make.clone(), Need::Broker)).await;
    }
    run.end();
}
