//! The sweeper: removes staged files and open uploads of writers that no longer run, and checks whether those writers
//! replaced the recorded file. If a removal or a check fails, the next sweep tries again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outhaul_core::file::{FileRecord, Leftover, Unfinished};
use outhaul_core::id::Lease;
use outhaul_core::store::{Store, StoreResult};
use tracing::{info, warn};

use crate::duty::{Duty, Next};
use crate::registry::Registry;

const BATCH: u32 = 100;
/// How many leases one store call asks about.
const LEASES: usize = 1000;

/// Clears away what unfinished writers left.
pub(crate) struct Sweeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
}

impl Sweeper {
    /// A leftover does not name its job type; removing what is not there is harmless, so all are asked.
    async fn remove(&self, leftover: &Leftover) -> Result<(), String> {
        for handler in self.registry.handlers() {
            handler.remove_leftover(leftover).await?;
        }
        Ok(())
    }

    /// Removes the staged files of attempts that have ended. Such files are left when a process was killed, or when a
    /// thread of an attempt went on writing. The order matters: first list the staged files, then ask which attempts
    /// run. An attempt is RUNNING before it stages anything, and one that has ended never runs again. Returns whether
    /// all those files are gone.
    async fn remove_staged(&self) -> StoreResult<bool> {
        let mut all = true;
        for handler in self.registry.handlers() {
            let staged = match handler.staged_attempts().await {
                Ok(staged) => staged,
                Err(error) => {
                    warn!(%error, "cannot look for staged files: {error}");
                    all = false;
                    continue;
                }
            };
            let mut ended = staged.clone();
            for leases in staged.into_iter().collect::<Vec<Lease>>().chunks(LEASES) {
                let running: HashSet<Lease> = self.store.chunks_running(leases).await?.into_iter().collect();
                ended.retain(|lease| !running.contains(lease));
            }
            if ended.is_empty() {
                continue;
            }
            match handler.remove_staged(ended).await {
                Ok(0) => {}
                Ok(removed) => info!(removed, "removed {removed} staged files of attempts that ended"),
                Err(error) => {
                    warn!(%error, "cannot remove staged files of attempts that ended: {error}");
                    all = false;
                }
            }
        }
        Ok(all)
    }

    async fn is_published(&self, record: &FileRecord) -> Result<bool, String> {
        for handler in self.registry.handlers() {
            if !handler.is_published(record).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the leftover first, then checks the recorded file. After the removal a late publish of the dead writer
    /// fails, so the check sees everything that the writer has published. Returns the generation that the storage no
    /// longer holds, if any.
    async fn settle(&self, unfinished: &Unfinished) -> Result<Option<i64>, String> {
        self.remove(&unfinished.leftover).await?;
        match &unfinished.recorded {
            Some(record) if !self.is_published(record).await? => Ok(Some(record.generation)),
            _ => Ok(None),
        }
    }
}

#[async_trait]
impl Duty for Sweeper {
    const NAME: &'static str = "the sweeper";

    fn interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn run_once(&self) -> StoreResult<Next> {
        let leftovers = self.store.files_leftover(BATCH).await?;
        // Must come after the list: the listed writers have ended, so their staged files are gone before `settle`
        // checks what they published.
        if !self.remove_staged().await? {
            return Ok(Next::Later);
        }
        let mut removed = 0;
        for unfinished in &leftovers {
            let leftover = &unfinished.leftover;
            let attempt = leftover.lease;
            match self.settle(unfinished).await {
                Ok(None) => {
                    self.store.file_leftover_removed(leftover).await?;
                    info!(%attempt, "removed what attempt {attempt} left behind");
                    removed += 1;
                }
                Ok(Some(generation)) => {
                    self.store.file_leftover_replaced(leftover, generation).await?;
                    warn!(%attempt, "attempt {attempt} ended without a record, and the file before it is gone");
                    removed += 1;
                }
                Err(error) => warn!(%attempt, %error, "cannot remove what attempt {attempt} left: {error}"),
            }
        }
        let more = removed > 0 && leftovers.len() >= BATCH as usize;
        Ok(if more { Next::AtOnce } else { Next::Later })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use outhaul_core::id::ChunkId;
    use outhaul_core::queue::QueueSpec;
    use outhaul_core::retry::RetryPolicy;

    use super::*;
    use crate::testing::TempStore;
    use crate::{ChunkContext, Failed, Handler, Outcome};

    /// Has staged something for each of these attempts.
    #[derive(Clone, Default)]
    struct Stager {
        staged: Arc<Mutex<HashSet<Lease>>>,
        /// Whether the storage refuses to remove anything.
        stuck: bool,
    }

    #[async_trait]
    impl Handler for Stager {
        fn job_type(&self) -> &str {
            "STAGE"
        }

        fn queues(&self) -> Vec<QueueSpec> {
            Vec::new()
        }

        fn retry(&self, _: Option<&str>) -> RetryPolicy {
            RetryPolicy::default()
        }

        fn timeout(&self, _: Option<&str>) -> Option<Duration> {
            None
        }

        fn stall_timeout(&self, _: Option<&str>) -> Option<Duration> {
            None
        }

        async fn run(&self, _: &ChunkContext) -> Result<Outcome, Failed> {
            unreachable!("nothing is submitted")
        }

        async fn staged_attempts(&self) -> Result<HashSet<Lease>, String> {
            Ok(self.staged.lock().unwrap().clone())
        }

        async fn remove_staged(&self, ended: HashSet<Lease>) -> Result<u64, String> {
            if self.stuck {
                return Err("the disk is away".to_owned());
            }
            self.staged.lock().unwrap().retain(|lease| !ended.contains(lease));
            Ok(ended.len() as u64)
        }
    }

    #[tokio::test]
    async fn what_ended_attempts_staged_is_removed_without_any_record_of_it() {
        let temporary = TempStore::open().await.unwrap();
        let staged: HashSet<Lease> =
            (1..=2500).map(|chunk| Lease { chunk: ChunkId(chunk), fence: 1 }).collect();
        let mut stager = Stager { staged: Arc::new(Mutex::new(staged)), stuck: true };
        let sweeper = |stager: &Stager| Sweeper {
            store: temporary.store(),
            registry: Registry::new().with(stager.clone()),
        };
        assert!(!sweeper(&stager).remove_staged().await.unwrap(), "nothing may be settled yet");
        stager.stuck = false;
        sweeper(&stager).run_once().await.unwrap();
        assert_eq!(stager.staged.lock().unwrap().len(), 0, "none of them runs");
    }
}
