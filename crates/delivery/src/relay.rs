//! The relay: tells the broker which chunks are QUEUED, within the window, and sends what waits in the
//! outbox. Any number of them may run; a message sent twice costs a look at the store and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use outhaul_core::announcement::Announcement;
use outhaul_core::delivery::Delivery as _;
use outhaul_core::fault;
use outhaul_core::id::{ChunkId, QueueId};
use outhaul_core::retry::Backoff;
use outhaul_core::store::StoreError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::broker::{Broker, BrokerError, Destination, Outgoing, Publisher};
use crate::database::DatabaseDelivery;
use crate::health::{Health, Part};
use crate::ledger::Ledger;
use crate::message;
use crate::nudges::Nudges;
use crate::reconnect::{GOODBYE, Link, within};

/// Chunks announced with one statement, at most.
const BATCH: u32 = 500;
/// Messages of the outbox sent at once, at most.
const OUTBOX_BATCH: u32 = 100;
/// The shortest time between two rounds that are not full, so that batches form.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(25);
/// How long claims are gathered, for each place of the window: other processes may have claimed the rest
/// of it meanwhile, so this is what limits how many chunks a second can be announced (4,000).
const GATHER_CLAIMS: Duration = Duration::from_micros(250);
const GATHER_CLAIMS_MOST: Duration = Duration::from_millis(250);
/// One in so many places of the window is enough: claimed here, they are not waited with.
const ENOUGH_CLAIMS: u32 = 4;
/// How long a refused message waits, the first time.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// How often the broker is asked whether it is still there, and how much it holds.
const BETWEEN_PROBES: Duration = Duration::from_secs(5);
/// Refusals are told, and the connection made anew for them, this often at most; the metrics count all.
const BETWEEN_ALARMS: Duration = Duration::from_secs(30);

const STORE_BACKOFF: Backoff =
    Backoff::Exponential { base: Duration::from_millis(100), max: Duration::from_secs(5), jitter: true };

/// How a relay announces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelaySettings {
    /// How many chunks of a queue may be announced and unclaimed.
    pub window: u32,
    /// After how long a chunk that nobody claimed is announced again, the first time.
    pub expiry: Duration,
    /// How often to look for chunks that no hint told of.
    pub poll_interval: Duration,
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// There was nothing to announce.
    Empty,
    /// Something was announced.
    Some,
    /// There is more.
    Full,
}

/// Why a round did not come to its end.
enum Trouble {
    Broker(BrokerError),
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The publishing side of one process.
pub(crate) struct Relay {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) settings: RelaySettings,
    pub(crate) queues: watch::Receiver<Vec<(QueueId, String)>>,
    pub(crate) nudges: Arc<Nudges>,
    pub(crate) health: Arc<Health>,
    pub(crate) stop: CancellationToken,
}

impl Relay {
    /// Announces until the token is cancelled.
    pub(crate) async fn run(self, hints: Arc<DatabaseDelivery>) {
        Running::new(self).run(hints).await;
    }
}

/// A relay and what it knows of its broker.
struct Running {
    relay: Relay,
    link: Link,
    publisher: Option<Box<dyn Publisher>>,
    /// The broker may have lost what it was told, and nobody has acted on that yet.
    doubtful: bool,
    /// When the broker was last asked.
    probed: Instant,
    /// It had nothing then, although something was announced.
    missing: bool,
    /// When to look at the outbox again.
    outbox_at: Instant,
    alarmed: Option<Instant>,
    /// A queue may be gone; a new connection makes it again.
    renew: bool,
    /// It took no message when one was last sent. A broker short of memory lets everybody in, and answers whatever
    /// it is asked, so that only a message that it takes shows that this is over.
    unproven: bool,
}

impl Running {
    fn new(relay: Relay) -> Self {
        let now = Instant::now();
        Self {
            link: Link::new(Part::Relay, relay.broker.describe()),
            relay,
            publisher: None,
            // Nobody knows what this broker holds of what was announced before.
            doubtful: true,
            probed: now,
            missing: false,
            outbox_at: now,
            alarmed: None,
            renew: false,
            unproven: false,
        }
    }

    async fn run(mut self, hints: Arc<DatabaseDelivery>) {
        let mut failures = 0u32;
        while !self.relay.stop.is_cancelled() {
            // Before the look, so that what is queued during it is not missed.
            let hint = hints.arm();
            match self.round().await {
                Ok(round) => {
                    if std::mem::take(&mut failures) > 0 {
                        info!("the relay goes on");
                    }
                    self.wait(round, hint).await;
                }
                Err(Trouble::Broker(_)) if self.relay.stop.is_cancelled() => self.publisher = None,
                Err(Trouble::Broker(error)) => {
                    self.publisher = None;
                    self.doubtful = true;
                    let wait = self.link.down(&error, &self.relay.health);
                    self.pause(wait).await;
                }
                Err(Trouble::Store(error)) => {
                    if failures == 0 {
                        warn!(%error, "the relay cannot go on, trying again: {error}");
                    }
                    failures = failures.saturating_add(1);
                    self.pause(STORE_BACKOFF.wait(failures, rand::random())).await;
                }
            }
        }
        self.close().await;
        self.relay.health.closed(Part::Relay);
    }

    async fn close(&mut self) {
        if let Some(publisher) = self.publisher.take() {
            // A goodbye that fails changes nothing.
            let _ = tokio::time::timeout(GOODBYE, publisher.close()).await;
        }
    }

    /// One round: the connection first, so that nothing is marked that cannot be sent.
    async fn round(&mut self) -> Result<Round, Trouble> {
        if std::mem::take(&mut self.renew) {
            self.close().await;
        }
        if self.publisher.is_none() {
            let Some(publisher) = self.connect().await? else { return Ok(Round::Empty) };
            self.publisher = Some(publisher);
            self.link.up();
            if !self.unproven {
                self.relay.health.connected(Part::Relay);
            }
            self.probed = Instant::now();
        }
        self.doubtful |= self.relay.nudges.doubt.swap(false, Ordering::AcqRel);
        if self.doubtful {
            self.relay.ledger.announcements_doubt().await?;
            self.doubtful = false;
        }
        let announced = self.announce().await?;
        let outbox_full = self.send_outbox().await?;
        if self.probed.elapsed() >= BETWEEN_PROBES {
            self.probe().await?;
        }
        Ok(match announced {
            count if count >= BATCH as usize => Round::Full,
            _ if outbox_full => Round::Full,
            0 => Round::Empty,
            _ => Round::Some,
        })
    }

    /// `None`: the process stops.
    async fn connect(&mut self) -> Result<Option<Box<dyn Publisher>>, Trouble> {
        tokio::select! {
            connected = Link::connect(self.relay.broker.publisher()) => connected.map(Some).map_err(Trouble::Broker),
            () = self.relay.stop.cancelled() => Ok(None),
        }
    }

    /// Announces a batch; returns how many.
    async fn announce(&mut self) -> Result<usize, Trouble> {
        let known: HashMap<QueueId, String> = self.relay.queues.borrow_and_update().iter().cloned().collect();
        if known.is_empty() {
            return Ok(0);
        }
        let ids: Vec<QueueId> = known.keys().copied().collect();
        self.relay.nudges.claims.seen();
        let taken = self.relay.ledger.announcements_take(&ids, self.relay.settings.window, BATCH).await?;
        if taken.is_empty() {
            return Ok(0);
        }
        fault::point("relay");
        let count = taken.len();
        let messages: Vec<Outgoing> = taken
            .iter()
            .map(|announcement| {
                message::work(announcement, known.get(&announcement.queue).map(String::as_str))
            })
            .collect();
        let answers = match self.publish(&messages).await {
            Ok(answers) => answers,
            Err(error) => {
                // Some may have arrived. All of them are sent again soon, by another relay or this one; later
                // and later, for a broker that is merely slow gets every batch in the end.
                self.defer(&ids_of(&taken)).await;
                return Err(Trouble::Broker(error));
            }
        };
        let (mut confirmed, mut refused, mut reason) = (Vec::with_capacity(count), Vec::new(), None);
        for (announcement, answer) in taken.into_iter().zip(answers) {
            match answer {
                Ok(()) => confirmed.push(announcement),
                Err(why) => {
                    refused.push(announcement.chunk);
                    reason = Some(why);
                }
            }
        }
        if let Some(reason) = reason {
            self.alarm(Destination::Work, refused.len(), &reason);
            self.defer(&refused).await;
        }
        if !confirmed.is_empty() {
            metrics::counter!("outhaul_announcements_total").increment(confirmed.len() as u64);
            self.relay.ledger.announcements_confirm(&confirmed, self.relay.settings.expiry).await?;
        }
        Ok(count)
    }

    /// Sends what waits in the outbox, if it is time to; `true`: there is more.
    async fn send_outbox(&mut self) -> Result<bool, Trouble> {
        if Instant::now() < self.outbox_at {
            return Ok(false);
        }
        self.outbox_at = Instant::now() + self.relay.settings.poll_interval;
        let taken = self.relay.ledger.outbox_take(OUTBOX_BATCH).await?;
        if taken.is_empty() {
            return Ok(false);
        }
        let messages: Vec<Outgoing> = taken
            .iter()
            .map(|message| Outgoing {
                to: Destination::Parking,
                message_id: message.message_id.clone(),
                queue: None,
                body: message.body.clone(),
            })
            .collect();
        // What is not confirmed stays, and is handed to a relay again after a while.
        let answers = self.publish(&messages).await.map_err(Trouble::Broker)?;
        let (mut sent, mut refused) = (Vec::with_capacity(taken.len()), Vec::new());
        for (message, answer) in taken.iter().zip(answers) {
            match answer {
                Ok(()) => sent.push(message.id),
                Err(why) => refused.push(why),
            }
        }
        if let Some(reason) = refused.last() {
            self.alarm(Destination::Parking, refused.len(), reason);
        }
        if !sent.is_empty() {
            self.relay.ledger.outbox_delete(&sent).await?;
            metrics::counter!("outhaul_outbox_sent_total").increment(sent.len() as u64);
        }
        // What is refused now would be refused again at once.
        let full = refused.is_empty() && taken.len() == OUTBOX_BATCH as usize;
        if full {
            self.outbox_at = Instant::now();
        }
        Ok(full)
    }

    async fn publish(&mut self, messages: &[Outgoing]) -> Result<Vec<Result<(), String>>, BrokerError> {
        let stop = self.relay.stop.clone();
        let Some(publisher) = self.publisher.as_mut() else {
            return Err(BrokerError("there is no connection".to_owned()));
        };
        let answers = within(&stop, publisher.publish(messages)).await;
        let answers = answers.inspect_err(|_| self.unproven = true)?;
        self.proved();
        if answers.len() != messages.len() {
            let (asked, told) = (messages.len(), answers.len());
            return Err(BrokerError(format!("it was sent {asked} messages and answered for {told}")));
        }
        Ok(answers)
    }

    /// Hears from the broker. Where its queue is empty, and was before, what counts as announced was purged.
    async fn probe(&mut self) -> Result<(), Trouble> {
        let stop = self.relay.stop.clone();
        let Some(publisher) = self.publisher.as_mut() else { return Ok(()) };
        let waiting = within(&stop, publisher.probe()).await.map_err(Trouble::Broker)?;
        self.probed = Instant::now();
        if waiting != Some(0) && !self.unproven {
            self.missing = false;
            return Ok(());
        }
        let lag = self.relay.ledger.delivery_lag().await?;
        if lag.announced == 0 && lag.outbox == 0 {
            // Nothing is left that it could refuse.
            self.proved();
        }
        let missing = waiting == Some(0) && lag.announced > 0;
        self.doubtful |= missing && self.missing;
        self.missing = missing && !self.missing;
        Ok(())
    }

    /// The broker is as it should be.
    fn proved(&mut self) {
        if std::mem::take(&mut self.unproven) {
            self.relay.health.connected(Part::Relay);
        }
    }

    /// Lets chunks be announced again soon; if that fails, they are when their announcement runs out.
    async fn defer(&mut self, chunks: &[ChunkId]) {
        if let Err(error) = self.relay.ledger.announcements_defer(chunks, REFUSED_WAIT).await {
            debug!(%error, "announcements could not be deferred; they run out");
        }
    }

    /// A message that no queue takes is one that nobody will see: somebody has to look.
    fn alarm(&mut self, to: Destination, count: usize, reason: &str) {
        let queue = match to {
            Destination::Work => "work",
            Destination::Parking => "parking",
        };
        metrics::counter!("outhaul_announcements_refused_total", "queue" => queue).increment(count as u64);
        if self.alarmed.is_none_or(|alarmed| alarmed.elapsed() >= BETWEEN_ALARMS) {
            self.alarmed = Some(Instant::now());
            self.renew = true;
            error!(queue, count, reason, "the broker refuses messages for the {queue} queue: {reason}");
        }
    }

    /// Waits for a reason to look again.
    async fn wait(&mut self, round: Round, hint: BoxFuture<'_, ()>) {
        if round == Round::Full {
            return;
        }
        self.pause(BETWEEN_ROUNDS).await;
        let RelaySettings { window, poll_interval: poll, .. } = self.relay.settings;
        let nudges = self.relay.nudges.clone();
        let patience = match round {
            // Most likely the queues are empty.
            Round::Empty => GATHER_CLAIMS_MOST,
            Round::Some | Round::Full => GATHER_CLAIMS.saturating_mul(window).min(GATHER_CLAIMS_MOST),
        };
        let enough = window.div_ceil(ENOUGH_CLAIMS) as usize;
        tokio::select! {
            () = hint => {}
            () = nudges.claims.gathered(enough, patience) => {}
            () = nudges.outbox.notified() => self.outbox_at = Instant::now(),
            Ok(()) = self.relay.queues.changed() => {}
            () = tokio::time::sleep(poll.mul_f64(0.9 + 0.2 * rand::random::<f64>())) => {}
            () = self.relay.stop.cancelled() => {}
        }
    }

    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.relay.stop.cancelled() => {}
        }
    }
}

fn ids_of(announcements: &[Announcement]) -> Vec<ChunkId> {
    announcements.iter().map(|announcement| announcement.chunk).collect()
}
