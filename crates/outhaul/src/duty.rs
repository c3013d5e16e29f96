//! The shape that every periodic duty shares: run, wait a jittered while, run again, until told to
//! stop. A round is never dropped half-way: stopping waits for the one in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use outhaul_core::retry::Backoff;
use outhaul_core::store::{StoreError, StoreResult};
use outhaul_core::vitals::Vitals;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often a duty that the lookout wakes runs without being woken.
pub(crate) const BACKSTOP: Duration = Duration::from_secs(15);

/// The longest that a duty rests after it was woken.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// When to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once: the last batch was full.
    AtOnce,
    /// After the interval.
    Later,
}

/// One thing that is done again and again, harmless in any number of processes.
#[async_trait]
pub(crate) trait Duty: Send + Sync + 'static {
    /// Its name in logs.
    const NAME: &'static str;

    /// How long to wait between rounds that found little.
    fn interval(&self) -> Duration;

    /// One round.
    async fn run_once(&self) -> StoreResult<Next>;
}

/// Runs a duty until the token is cancelled, as a part that must live as long as the process.
pub(crate) fn start<D: Duty>(duty: D, vitals: &Vitals, stop: CancellationToken) -> JoinHandle<()> {
    let after_failure = duty.interval();
    repeat(duty, Arc::default(), after_failure, vitals, stop)
}

/// The same for a duty that also runs when it is woken. After a failure it does not wait for its interval, which is long.
pub(crate) fn start_woken<D: Duty>(
    duty: D,
    wake: Arc<Notify>,
    vitals: &Vitals,
    stop: CancellationToken,
) -> JoinHandle<()> {
    repeat(duty, wake, Duration::ZERO, vitals, stop)
}

fn repeat<D: Duty>(
    duty: D,
    wake: Arc<Notify>,
    after_failure: Duration,
    vitals: &Vitals,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(vitals.part(D::NAME).run(async move {
        let mut outage = Outage::new(D::NAME);
        while !stop.is_cancelled() {
            let began = Instant::now();
            let wait = match duty.run_once().await {
                Ok(next) => {
                    outage.over();
                    match next {
                        Next::AtOnce => continue,
                        Next::Later => jitter(duty.interval()),
                    }
                }
                Err(error) => {
                    // Nobody wakes a duty that has just failed.
                    let wait = outage.failed(&error).max(jitter(after_failure));
                    stop.run_until_cancelled(tokio::time::sleep(wait)).await;
                    continue;
                }
            };
            let took = began.elapsed();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // A duty that is woken all the time takes about a fifth of it.
                () = wake.notified() => tokio::time::sleep((4 * took).min(LONGEST_REST)).await,
                () = stop.cancelled() => {}
            }
        }
    }))
}

/// The wait, ten per cent more or less, so that processes started together drift apart.
pub(crate) fn jitter(wait: Duration) -> Duration {
    wait.mul_f64(0.9 + 0.2 * rand::random::<f64>())
}

/// A run of failures of one caller of the store: logged when it begins and when it ends, with a
/// capped, jittered wait in between.
pub(crate) struct Outage {
    what: &'static str,
    failures: u32,
}

impl Outage {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, failures: 0 }
    }

    /// Notes a failure and says how long to wait.
    pub(crate) fn failed(&mut self, error: &StoreError) -> Duration {
        if self.failures == 0 {
            warn!(duty = self.what, %error, "{} cannot go on, trying again: {error}", self.what);
        }
        self.failures = self.failures.saturating_add(1);
        let (base, max) = (Duration::from_millis(100), Duration::from_secs(5));
        Backoff::Exponential { base, max, jitter: true }.wait(self.failures, rand::random())
    }

    /// Notes a success.
    pub(crate) fn over(&mut self) {
        if self.failures > 0 {
            info!(duty = self.what, failures = self.failures, "{} goes on", self.what);
            self.failures = 0;
        }
    }
}
