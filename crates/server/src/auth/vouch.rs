//! Whether a job may still run for whoever submitted it. Decided before every attempt, by the age of what was kept
//! of them and by the hook of `[auth.recheck]`; what decided is recorded before anything runs. Whatever cannot be
//! found out or recorded is no leave.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outhaul::{Cause, Failed};
use outhaul_core::audit::{AuditAct, AuditEntry};
use outhaul_core::id::JobId;
use outhaul_core::identity::{ANONYMOUS, Identity};
use outhaul_core::job::EXPORT;
use outhaul_core::store::{Store, StoreError, StoreResult};
use outhaul_core::worker::ClaimedChunk;
use outhaul_export::request::Params;
use outhaul_export::rights::too_old;
use tokio::sync::OnceCell;

use super::recheck::Hook;
use super::settings::{JwtSettings, named};
use crate::steps::{Allow, Answer, ClientError};

/// What was kept with the job decided.
const SNAPSHOT: &str = "snapshot";
/// The answer of the hook did.
const HOOK: &str = "hook";

/// How many jobs a process remembers the decisions of; of one that was forgotten it is recorded once more.
const JOBS: usize = 4096;
/// How long to wait for a database that is away, at first and at most.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Decides for all jobs of a process.
pub(super) struct Vouch {
    store: Arc<dyn Store>,
    snapshot_max_age: Duration,
    hook: Option<Hook>,
    jobs: Jobs,
}

type Decision = (AuditAct, &'static str);

/// What is known of one job.
#[derive(Default)]
struct Known {
    /// Who submitted it; never changes.
    identity: OnceCell<Option<Identity>>,
    /// What was decided and recorded last.
    recorded: tokio::sync::Mutex<Option<Decision>>,
}

impl Vouch {
    pub(super) fn new(store: Arc<dyn Store>, jwt: &JwtSettings, allow: &Allow) -> Result<Self, ClientError> {
        let hook = jwt.recheck.as_ref().map(|recheck| Hook::new(recheck, allow.clone())).transpose()?;
        Ok(Self { store, snapshot_max_age: jwt.snapshot_max_age, hook, jobs: Jobs::default() })
    }

    /// Leave to run an attempt; else how it ends.
    pub(super) async fn admit(&self, chunk: &ClaimedChunk) -> Result<(), Failed> {
        let snapshot = snapshot(chunk);
        // Nobody but the configuration knows its identities, so there is nobody to ask about them.
        let is_somebody = chunk.owner != ANONYMOUS && named(&chunk.owner).is_none();
        let hook = self.hook.as_ref().filter(|_| is_somebody);
        if snapshot.is_none() && hook.is_none() {
            return Ok(());
        }
        let job = self.jobs.get(&chunk.job_id);
        let old = snapshot.as_ref().and_then(|kept| too_old(kept, chunk.claimed_at, self.snapshot_max_age));
        if let Some(cause) = old {
            self.record(&job, chunk, (AuditAct::Refused, SNAPSHOT)).await?;
            return Err(Failed::Fatal(cause.into()));
        }
        let Some(hook) = hook else { return self.record(&job, chunk, (AuditAct::Verified, SNAPSHOT)).await };
        let identity = job.identity.get_or_try_init(|| self.identity(&chunk.job_id)).await?;
        // Nothing is known of whoever put it there, past the API; no rows can depend on them.
        let Some(identity) = identity.as_ref().or(snapshot.as_ref()) else { return Ok(()) };
        match hook.ask(chunk, identity).await {
            Answer::Yes => self.record(&job, chunk, (AuditAct::Verified, HOOK)).await,
            Answer::No(status) => {
                self.record(&job, chunk, (AuditAct::Refused, HOOK)).await?;
                let cause =
                    format!("the identity provider no longer vouches for its submitter (answered {status})");
                Err(Failed::Fatal(cause.into()))
            }
            Answer::Unknown(cause) => {
                let said = |why: &str| format!("nobody can vouch for its submitter now: {why}");
                let (text, detail) = (said(&cause.text), cause.detail.as_deref().map(said));
                Err(Failed::Retryable(Cause { text, detail, ..cause }))
            }
        }
    }

    async fn identity(&self, job_id: &JobId) -> Result<Option<Identity>, Failed> {
        let ask = |store: Arc<dyn Store>| {
            let job_id = job_id.clone();
            async move { store.job_get(&job_id).await }
        };
        let job = self.ask(ask).await?;
        job.map(|job| job.identity).ok_or_else(|| Failed::Retryable("its job cannot be found".into()))
    }

    /// Records what decided, once as long as it stays the same. That it is recorded is noted by the call itself,
    /// which goes on where the attempt is stopped meanwhile: the next one would record it again.
    async fn record(&self, job: &Arc<Known>, chunk: &ClaimedChunk, decision: Decision) -> Result<(), Failed> {
        let (act, by) = decision;
        let entry = AuditEntry {
            actor: chunk.owner.clone(),
            act,
            job_id: Some(chunk.job_id.clone()),
            detail: Some(by.to_owned()),
        };
        let ask = |store: Arc<dyn Store>| {
            let (job, entry) = (job.clone(), entry.clone());
            async move {
                let mut recorded = job.recorded.lock().await;
                if *recorded != Some(decision) {
                    store.audit_record(&[entry]).await?;
                    *recorded = Some(decision);
                }
                Ok(())
            }
        };
        self.ask(ask).await
    }

    /// Asks the store until it answers, or until whoever waits for it stops: a database that is away for a while
    /// costs no attempt. A call is never cut off half-way.
    async fn ask<T, F>(&self, call: impl Fn(Arc<dyn Store>) -> F) -> Result<T, Failed>
    where
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        let mut wait = FIRST_WAIT;
        loop {
            match tokio::spawn(call(self.store.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(StoreError::Unavailable(_))) => {}
                Ok(Err(error)) => {
                    let text = "the engine's database refused a call";
                    return Err(Failed::Retryable(Cause::with_detail(text, error.to_string())));
                }
                Err(_) => return Err(Failed::Retryable("a database call broke off".into())),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

/// What was kept of whoever a chunk's rows depend on; `None`: they depend on nobody. What cannot be read is the
/// handler's to report.
fn snapshot(chunk: &ClaimedChunk) -> Option<Identity> {
    if chunk.job_type != EXPORT {
        return None;
    }
    Params::from_json(&chunk.params).ok()?.identity
}

/// The jobs that ran last.
#[derive(Default)]
struct Jobs(Mutex<Last>);

#[derive(Default)]
struct Last {
    known: HashMap<JobId, Arc<Known>>,
    /// The oldest first.
    order: VecDeque<JobId>,
}

impl Jobs {
    fn get(&self, job_id: &JobId) -> Arc<Known> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.known.get(job_id) {
            return known.clone();
        }
        if last.order.len() >= JOBS
            && let Some(oldest) = last.order.pop_front()
        {
            last.known.remove(&oldest);
        }
        let known = Arc::<Known>::default();
        last.order.push_back(job_id.clone());
        last.known.insert(job_id.clone(), known.clone());
        known
    }
}

#[cfg(test)]
mod tests;
