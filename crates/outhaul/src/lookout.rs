//! The lookout: one cheap look at the store for all sweeps that move jobs on. A sweep runs when the look finds work for
//! it, so that an idle process asks the database little. The lookout sleeps until the next chunk or schedule is due, or
//! until outcomes were recorded here, which may have ended what other jobs wait for.

use std::sync::Arc;
use std::time::Duration;

use outhaul_core::store::{Store, SweepsDue};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::duty::{Outage, jitter};

/// The time between two looks is at least this: many outcomes are recorded in a moment.
const SHORTEST: Duration = Duration::from_millis(25);
/// The time between two looks is at most this, for work that came from another process.
const LONGEST: Duration = Duration::from_secs(1);

/// What wakes the lookout and the sweeps.
#[derive(Clone, Default)]
pub(crate) struct Wakes {
    pub(crate) lookout: Arc<Notify>,
    pub(crate) stager: Arc<Notify>,
    pub(crate) scheduler: Arc<Notify>,
    pub(crate) triggers: Arc<Notify>,
}

impl Wakes {
    fn rouse(&self, due: &SweepsDue) {
        let sweeps =
            [(due.stage, &self.stager), (due.schedules, &self.scheduler), (due.triggers, &self.triggers)];
        sweeps.into_iter().filter(|(due, _)| *due).for_each(|(_, sweep)| sweep.notify_one());
    }
}

/// Looks until the token is cancelled.
pub(crate) async fn run(store: Arc<dyn Store>, wakes: Wakes, poll: Duration, stop: CancellationToken) {
    let mut outage = Outage::new("the lookout");
    while !stop.is_cancelled() {
        let wait = match store.sweeps_due().await {
            Ok(due) => {
                outage.over();
                wakes.rouse(&due);
                let longest = jitter(poll.min(LONGEST));
                due.next.unwrap_or(longest).clamp(SHORTEST, longest.max(SHORTEST))
            }
            Err(error) => outage.failed(&error),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = wakes.lookout.notified() => tokio::time::sleep(SHORTEST).await,
            () = stop.cancelled() => {}
        }
    }
}
