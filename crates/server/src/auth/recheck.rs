//! `[auth.recheck]`: whoever is asked, before a job runs, whether its submitter is still to be trusted. They are
//! sent what was kept with the job and nothing else; a yes is believed for a while, anything but yes and no is no
//! answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use outhaul_core::identity::Identity;
use outhaul_core::secret::Secret;
use outhaul_core::worker::ClaimedChunk;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::steps::{Allow, Answer, Client, ClientError, Question};

/// How many identities a yes is remembered of, at most.
const MANY: usize = 10_000;

/// Who is asked, and how.
#[derive(Clone)]
pub struct RecheckSettings {
    /// Where to.
    pub url: Url,
    /// What questions are signed with; two while a secret is rotated.
    pub secrets: Vec<Secret>,
    /// How long a yes is believed; nothing: every attempt asks.
    pub max_age: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl RecheckSettings {
    /// The defaults, around what has none.
    pub fn new(url: Url) -> Self {
        Self { url, secrets: Vec::new(), max_age: Duration::from_secs(60), timeout: Duration::from_secs(5) }
    }
}

impl fmt::Debug for RecheckSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The query may hold a key.
        let mut url = self.url.clone();
        url.set_query(None);
        f.debug_struct("RecheckSettings")
            .field("url", &url.as_str())
            .field("secrets", &self.secrets)
            .field("max_age", &self.max_age)
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Asks, and remembers for a while who was vouched for.
pub(super) struct Hook {
    question: Question,
    max_age: Duration,
    /// When the question was sent that was answered with yes.
    vouched: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Hook {
    pub(super) fn new(settings: &RecheckSettings, allow: Allow) -> Result<Self, ClientError> {
        let RecheckSettings { url, secrets, max_age, timeout } = settings;
        let question = Question::new(Client::new(allow)?, url.clone(), *timeout, secrets);
        if let Some(refusal) = question.refusal() {
            tracing::warn!("auth.recheck_not_possible: no job of anybody will run: {refusal}");
        }
        Ok(Self { question, max_age: *max_age, vouched: Mutex::default() })
    }

    /// Whether somebody is still vouched for, for a chunk of theirs.
    pub(super) async fn ask(&self, chunk: &ClaimedChunk, identity: &Identity) -> Answer {
        let Identity { subject, department, claims, verified_at } = identity;
        let who = json!({ "subject": subject, "department": department, "claims": claims });
        let key: [u8; 32] = Sha256::digest(who.to_string()).into();
        if self.is_vouched(&key) {
            return Answer::Yes;
        }
        let mut body = who;
        body["jobId"] = json!(chunk.job_id.as_str());
        body["verifiedAt"] = json!(verified_at);
        // An answer is as old as its question.
        let asked = Instant::now();
        let id = format!("{}/recheck/{:016x}", chunk.job_id, rand::random::<u64>());
        let answer = self.question.ask(&id, body.to_string()).await;
        if answer == Answer::Yes {
            self.remember(key, asked);
        }
        answer
    }

    fn is_vouched(&self, key: &[u8; 32]) -> bool {
        let vouched = self.vouched.lock().unwrap_or_else(PoisonError::into_inner);
        vouched.get(key).is_some_and(|asked| asked.elapsed() < self.max_age)
    }

    fn remember(&self, key: [u8; 32], asked: Instant) {
        if self.max_age.is_zero() {
            return;
        }
        let mut vouched = self.vouched.lock().unwrap_or_else(PoisonError::into_inner);
        if vouched.len() >= MANY {
            vouched.retain(|_, asked| asked.elapsed() < self.max_age);
        }
        if vouched.len() >= MANY {
            // Rather asked once more than looked through at every answer.
            vouched.clear();
        }
        vouched.insert(key, asked);
    }
}
