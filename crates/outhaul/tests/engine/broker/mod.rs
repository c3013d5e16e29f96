//! The worker with a broker: it claims what messages name, and acknowledges each when it has nothing
//! more to say.

use std::sync::Arc;
use std::time::Duration;

use outhaul::core::announcement::ANNOUNCEMENT_DEFERRED;
use outhaul::core::id::{ChunkId, QueueId};
use outhaul::core::queue::QueueSpec;
use outhaul::core::state::ChunkState;
use outhaul::{Engine, EngineSettings};

use crate::fake::{Fake, Mailbox, Post, TestHandler, settings, start, start_on};

mod left;
mod passing;
mod receipts;
mod slots;

const LEASE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(250);
/// What waits for a slot, should its process die.
const AGAIN: Duration = ANNOUNCEMENT_DEFERRED;

/// An engine that is fed by messages.
struct Stage {
    store: Arc<Fake>,
    handler: TestHandler,
    mailbox: Arc<Mailbox>,
    engine: Engine,
}

impl Stage {
    /// With prefetch = concurrency, as servers set it.
    async fn new(store: Arc<Fake>, handler: TestHandler, concurrency: u32) -> Self {
        let mailbox = Mailbox::new(concurrency as usize);
        Self::with(store, handler, mailbox, beating(concurrency)).await
    }

    async fn with(
        store: Arc<Fake>,
        handler: TestHandler,
        mailbox: Arc<Mailbox>,
        settings: EngineSettings,
    ) -> Self {
        let engine = start_on(mailbox.clone(), store.clone(), &handler, settings).await;
        Self { store, handler, mailbox, engine }
    }

    async fn until_running(&self, keys: &[&str]) {
        let all = |started: &[String]| keys.iter().all(|key| started.iter().any(|started| started == key));
        self.handler.until("these run", |seen| all(&seen.started.lock().unwrap())).await;
    }

    async fn until_state(&self, key: &str, state: ChunkState) {
        self.store.until("it came to its end", |rows| rows.state(key) == state).await;
    }

    /// Sends a message again and again, as a relay does, until its chunk ran.
    async fn send_until_done(&self, id: usize, key: &str) {
        let answers = |post: &Post| post.acknowledged.iter().filter(|answered| *answered == key).count();
        while self.store.rows().state(key) != ChunkState::Success {
            let before = answers(&self.mailbox.post());
            self.mailbox.send_of("", id, key);
            self.mailbox.until("answered", |post| answers(post) > before).await;
        }
    }

    fn started(&self) -> Vec<String> {
        self.handler.seen.started.lock().unwrap().clone()
    }

    fn deferred(&self) -> Vec<(ChunkId, Duration)> {
        self.store.rows().deferred.clone()
    }

    /// Every test ends here: whatever happened, the queues themselves were never looked at.
    async fn stop(self) {
        self.engine.stop().await;
        assert_eq!(self.store.rows().looks, 0, "only named chunks are claimed");
        assert_eq!(self.mailbox.post().open, Vec::<String>::new(), "no message is left unacknowledged");
    }
}

fn beating(concurrency: u32) -> EngineSettings {
    let mut settings = settings(concurrency, LEASE);
    settings.worker.heartbeat = Duration::from_millis(20);
    settings
}

/// Looks only when there is a reason to.
fn without_polls(concurrency: u32) -> EngineSettings {
    let mut settings = beating(concurrency);
    settings.worker.poll_interval = LEASE * 60;
    settings
}

/// Lets many heartbeats go by.
async fn beats(store: &Fake) {
    let later = *store.changed.borrow() + 20;
    store.changed.subscribe().wait_for(|count| *count > later).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delivery_is_told_which_queues_are_known() {
    let zebra = QueueSpec { name: "job:ZEBRA".to_owned(), max_concurrent: None };
    let handler = TestHandler { others: vec![zebra], ..TestHandler::new() };
    let stage = Stage::new(Fake::new(LEASE), handler, 1).await;
    let known = [(QueueId(0), "job:TEST".to_owned()), (QueueId(1), "job:ZEBRA".to_owned())];
    assert_eq!(stage.mailbox.post().known, known);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_duties_tells_the_delivery_nothing() {
    let (store, handler, mailbox) = (Fake::new(LEASE), TestHandler::new(), Mailbox::new(1));
    let mut settings = settings(1, LEASE);
    (settings.worker_role, settings.scheduler_role) = (false, false);
    let stage = Stage::with(store, handler, mailbox, settings).await;
    assert_eq!(stage.mailbox.post().known, []);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_messages_the_worker_looks_at_its_queues() {
    let (store, handler) = (Fake::new(LEASE), TestHandler::new());
    (0..20).for_each(|n| store.add("TEST", &format!("ok-{n}")));
    let engine = start(store.clone(), &handler, settings(2, LEASE)).await;
    store
        .until("all done", |rows| rows.chunks.iter().all(|row| row.chunk.state == ChunkState::Success))
        .await;
    engine.stop().await;
    let rows = store.rows();
    assert!(rows.looks > 0 && rows.named.is_empty() && rows.deferred.is_empty());
}
