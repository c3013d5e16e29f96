//! A connection that is made again whenever it ends: how long to wait in between, and one line in the log
//! for each end of an outage, however long it lasts.

use std::time::{Duration, Instant};

use outhaul_core::retry::Backoff;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::broker::BrokerError;
use crate::health::{Health, Part};

const BACKOFF: Backoff =
    Backoff::Exponential { base: Duration::from_millis(500), max: Duration::from_secs(30), jitter: true };

/// A connection that lived so long was a good one: the next wait is short again. One that a broker takes
/// and ends at once must not be made 50 times a second, nor one that is let in and never answered, so this
/// is longer than any answer is waited for.
const STEADY: Duration = Duration::from_secs(60);

/// How long we wait for a broker to let us in, to confirm a batch, or to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same when the process stops, and to say goodbye.
pub(crate) const GOODBYE: Duration = Duration::from_secs(1);

/// The connection of one part of the delivery, as it comes and goes.
pub(crate) struct Link {
    part: Part,
    broker: String,
    failures: u32,
    since: Option<Instant>,
}

impl Link {
    pub(crate) fn new(part: Part, broker: String) -> Self {
        Self { part, broker, failures: 0, since: None }
    }

    /// Makes a connection, within a time.
    pub(crate) async fn connect<T>(
        connecting: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        match tokio::time::timeout(PATIENCE, connecting).await {
            Ok(answer) => answer,
            Err(_) => Err(BrokerError(format!("it did not let us in within {PATIENCE:?}"))),
        }
    }

    /// Notes that the connection is made. Whether that is all it takes to be well, its user says.
    pub(crate) fn up(&mut self) {
        let (part, broker) = (self.part.as_str(), &self.broker);
        if self.failures > 0 {
            info!(part, broker, failures = self.failures, "the {part} is connected to {broker} again");
        } else {
            info!(part, broker, "the {part} is connected to {broker}");
        }
        self.since = Some(Instant::now());
    }

    /// Notes that it failed or was lost, and says how long to wait before the next.
    pub(crate) fn down(&mut self, error: &BrokerError, health: &Health) -> Duration {
        let (part, broker) = (self.part.as_str(), &self.broker);
        let lived = self.since.take().map(|since| since.elapsed());
        if lived.is_some() || self.failures == 0 {
            warn!(part, broker, %error, "the {part} has no connection to {broker}, trying again: {error}");
        }
        if lived.is_some_and(|lived| lived >= STEADY) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        health.failed(self.part, error);
        BACKOFF.wait(self.failures, rand::random())
    }
}

/// The answer of a broker that has some patience, and less of it once the process stops.
pub(crate) async fn within<T>(
    stop: &CancellationToken,
    answer: impl Future<Output = Result<T, BrokerError>>,
) -> Result<T, BrokerError> {
    let stopped = async {
        stop.cancelled().await;
        tokio::time::sleep(GOODBYE).await;
    };
    tokio::select! {
        answer = tokio::time::timeout(PATIENCE, answer) => match answer {
            Ok(answer) => answer,
            Err(_) => Err(BrokerError(format!("it did not answer within {PATIENCE:?}"))),
        },
        () = stopped => Err(BrokerError("it did not answer before the process stopped".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_half_a_minute_and_start_anew_after_a_good_connection() {
        let health = Health::new(true);
        let mut link = Link::new(Part::Relay, "amqp://broker:5672".to_owned());
        link.up();
        let gone = BrokerError("it went away".to_owned());
        for failure in 1..20u32 {
            let most = Duration::from_millis(500 << (failure - 1).min(10)).min(Duration::from_secs(30));
            let wait = link.down(&gone, &health);
            assert!(wait <= most && wait >= most / 2, "{wait:?} after {failure} failures");
        }
        link.up();
        assert!(link.down(&gone, &health) >= Duration::from_secs(15), "it ended at once");
        link.up();
        link.since = Instant::now().checked_sub(STEADY);
        assert!(link.down(&gone, &health) <= Duration::from_millis(500));
    }
}
