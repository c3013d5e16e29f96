//! Whom is asked how often, what is recorded of it, and that nothing runs on doubt.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use chrono::{DateTime, TimeDelta, Utc};
use outhaul::testing::TempStore;
use outhaul_core::audit::AuditFilter;
use outhaul_core::clock;
use outhaul_core::id::{ChunkId, Lease, QueueId};
use outhaul_core::job::{NewChunk, NewJob, OnFailure, OnParentFailure};
use outhaul_core::json::Json;
use outhaul_core::queue::QueueSpec;
use outhaul_core::secret::Secret;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::auth::{Keys, RecheckSettings};

/// Answers with a status, and keeps what it was asked.
struct Receiver {
    url: String,
    status: Arc<AtomicU16>,
    asked: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Receiver {
    async fn start() -> Self {
        let (status, asked) = (Arc::new(AtomicU16::new(200)), Arc::<Mutex<Vec<Value>>>::default());
        let (answer, book) = (status.clone(), asked.clone());
        let serve = move |body: Bytes| {
            book.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            let status = StatusCode::from_u16(answer.load(Ordering::SeqCst)).unwrap();
            async move { status }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/still", listener.local_addr().unwrap());
        let app = Router::new().route("/still", post(serve));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, status, asked, task }
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn somebody(county: &str) -> Identity {
    Identity {
        subject: "ann".into(),
        department: Some("sales".into()),
        claims: BTreeMap::from([("county".to_owned(), json!(county))]),
        verified_at: clock::now(),
    }
}

struct Works {
    store: TempStore,
    vouch: Vouch,
}

impl Works {
    async fn new(hook: Option<&Receiver>, max_age: Duration) -> Self {
        let store = TempStore::open().await.unwrap();
        let keys = Keys::Secret(Secret::new("0123456789abcdef0123456789abcdef"));
        let mut jwt = JwtSettings::new("i", vec!["a".into()], keys);
        jwt.recheck =
            hook.map(|hook| RecheckSettings { max_age, ..RecheckSettings::new(hook.url.parse().unwrap()) });
        let mut allow = Allow::default();
        allow.add("localhost").unwrap();
        store.store().queues_sync(&[QueueSpec { name: "q".into(), max_concurrent: None }]).await.unwrap();
        let vouch = Vouch::new(store.store(), &jwt, &allow).unwrap();
        Self { store, vouch }
    }

    /// A chunk of a job that was stored for somebody. An export's rows depend on them.
    async fn chunk(&self, job_type: &str, owner: &str, identity: Option<Identity>) -> ClaimedChunk {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let job_id = JobId::new(clock::now(), NEXT.fetch_add(1, Ordering::Relaxed));
        let params = match &identity {
            Some(identity) if job_type == EXPORT => Json::from(json!({"identity": identity, "scope": "s"})),
            _ => json!({"v": 1, "payload": {"identity": "of somebody else"}}).into(),
        };
        let chunk = NewChunk { chunk_key: "main".into(), queue: "q".into(), key: None, effective_date: None };
        let job = NewJob {
            job_id: job_id.clone(),
            job_type: job_type.to_owned(),
            dataset: None,
            owner: owner.to_owned(),
            idempotency: None,
            unique_key: None,
            request: json!({}).into(),
            params: params.clone(),
            priority: 5,
            on_failure: OnFailure::default(),
            labels: BTreeMap::new(),
            parents: Vec::new(),
            on_parent_failure: OnParentFailure::default(),
            run_at: None,
            base_path: None,
            identity,
            scope: String::new(),
            made_by: None,
            quota: None,
            chunks: vec![chunk],
        };
        self.store.store().job_submit(job).await.unwrap();
        let now = clock::now();
        ClaimedChunk {
            lease: Lease { chunk: ChunkId(1), fence: 1 },
            queue: QueueId(1),
            job_id,
            job_type: job_type.to_owned(),
            dataset: None,
            owner: owner.to_owned(),
            params,
            chunk_key: "main".into(),
            key: None,
            effective_date: None,
            attempt: 1,
            lost: 0,
            submitted_at: now,
            claimed_at: now,
        }
    }

    /// What was decided about a job, the first first.
    async fn recorded(&self, chunk: &ClaimedChunk) -> Vec<String> {
        let filter = AuditFilter { job_id: Some(chunk.job_id.clone()), ..AuditFilter::default() };
        let rows = self.store.store().audit_list(&filter, None, 50).await.unwrap().items;
        let said = |entry: AuditEntry| {
            format!("{} {} {}", entry.actor, entry.act.as_str(), entry.detail.unwrap_or_default())
        };
        let rows = rows.into_iter().rev().map(|row| row.entry);
        rows.filter(|entry| entry.act != AuditAct::Submit).map(said).collect()
    }
}

fn fatal(decided: Result<(), Failed>) -> String {
    match decided {
        Err(Failed::Fatal(cause)) => cause.text,
        other => panic!("{other:?}"),
    }
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn without_a_hook_the_snapshot_decides_and_only_where_rows_depend_on_it() {
    let works = Works::new(None, LONG).await;
    let plain = works.chunk("SEND", "ann", Some(somebody("Kent"))).await;
    assert_eq!(works.vouch.admit(&plain).await, Ok(()));
    assert!(works.recorded(&plain).await.is_empty(), "nothing was decided");

    let export = works.chunk(EXPORT, "ann", Some(somebody("Kent"))).await;
    for _ in 0..3 {
        assert_eq!(works.vouch.admit(&export).await, Ok(()));
    }
    assert_eq!(works.recorded(&export).await, ["ann verified snapshot"], "once");
    let later =
        |hours: i64| ClaimedChunk { claimed_at: clock::now() + TimeDelta::hours(hours), ..export.clone() };
    assert_eq!(works.vouch.admit(&later(23)).await, Ok(()));
    assert!(fatal(works.vouch.admit(&later(25)).await).contains("is older than 24h"));
    assert!(fatal(works.vouch.admit(&later(26)).await).contains("submit it again"));
    assert_eq!(works.recorded(&export).await, ["ann verified snapshot", "ann refused snapshot"]);
    // Also where nobody could be asked: the configuration's own identities.
    let nightly = Identity { subject: "identity:nightly".into(), ..somebody("Kent") };
    let nightly = works.chunk(EXPORT, "identity:nightly", Some(nightly)).await;
    assert_eq!(works.vouch.admit(&nightly).await, Ok(()));
    assert_eq!(works.recorded(&nightly).await, ["identity:nightly verified snapshot"]);
}

#[tokio::test]
async fn the_hook_is_told_what_was_kept_and_asked_about_all_jobs_of_somebody() {
    let hook = Receiver::start().await;
    let works = Works::new(Some(&hook), LONG).await;
    let who = somebody("Kent");
    let job = works.chunk("SEND", "ann", Some(who.clone())).await;
    assert_eq!(works.vouch.admit(&job).await, Ok(()));
    let asked = hook.asked.lock().unwrap()[0].clone();
    let at: DateTime<Utc> = asked["verifiedAt"].as_str().unwrap().parse().unwrap();
    assert!((at - who.verified_at).abs() < TimeDelta::milliseconds(1), "{at}");
    let expected = json!({"jobId": job.job_id.as_str(), "subject": "ann", "department": "sales",
        "claims": {"county": "Kent"}, "verifiedAt": asked["verifiedAt"]});
    assert_eq!(asked, expected, "and nothing else");
    assert_eq!(works.recorded(&job).await, ["ann verified hook"]);

    // Nobody, somebody of the configuration, and what was put there past the API.
    for (owner, identity) in [(ANONYMOUS, None), ("identity:nightly", Some(who.clone())), ("eve", None)] {
        let job = works.chunk("SEND", owner, identity).await;
        assert_eq!(works.vouch.admit(&job).await, Ok(()), "{owner}");
        assert!(works.recorded(&job).await.is_empty(), "{owner}");
    }
    assert_eq!(hook.asked(), 1);
}

#[tokio::test]
async fn a_yes_is_believed_for_a_while_and_of_the_very_same_claims() {
    let hook = Receiver::start().await;
    let works = Works::new(Some(&hook), LONG).await;
    let of = async |county: &str| works.chunk(EXPORT, "ann", Some(somebody(county))).await;
    let (one, two, other) = (of("Kent").await, of("Kent").await, of("Essex").await);
    for (chunk, asked) in [(&one, 1), (&one, 1), (&two, 1), (&other, 2), (&one, 2)] {
        assert_eq!(works.vouch.admit(chunk).await, Ok(()));
        assert_eq!(hook.asked(), asked);
    }
    for chunk in [&one, &two, &other] {
        assert_eq!(works.recorded(chunk).await, ["ann verified hook"], "each job has its own record");
    }
    let works = Works::new(Some(&hook), Duration::ZERO).await;
    let chunk = works.chunk(EXPORT, "ann", Some(somebody("Kent"))).await;
    for asked in 3..6 {
        assert_eq!(works.vouch.admit(&chunk).await, Ok(()));
        assert_eq!(hook.asked(), asked, "every attempt asks");
    }
    assert_eq!(works.recorded(&chunk).await, ["ann verified hook"]);
}

#[tokio::test]
async fn a_no_is_the_end_and_anything_else_is_worth_another_attempt() {
    let hook = Receiver::start().await;
    let works = Works::new(Some(&hook), Duration::ZERO).await;
    let chunk = works.chunk("SEND", "ann", Some(somebody("Kent"))).await;
    for status in [403, 404, 410] {
        hook.answer(status);
        let expected =
            format!("the identity provider no longer vouches for its submitter (answered {status})");
        assert_eq!(fatal(works.vouch.admit(&chunk).await), expected);
    }
    assert_eq!(works.recorded(&chunk).await, ["ann refused hook"]);
    for status in [400, 401, 429, 500, 503] {
        hook.answer(status);
        let Err(Failed::Retryable(cause)) = works.vouch.admit(&chunk).await else { panic!("{status}") };
        assert!(cause.text.starts_with("nobody can vouch for its submitter now: answered "), "{cause}");
    }
    assert_eq!(works.recorded(&chunk).await, ["ann refused hook"], "nothing was decided");
    hook.answer(200);
    assert_eq!(works.vouch.admit(&chunk).await, Ok(()));
    hook.answer(410);
    fatal(works.vouch.admit(&chunk).await);
    let said = ["ann refused hook", "ann verified hook", "ann refused hook"];
    assert_eq!(works.recorded(&chunk).await, said, "every change");
}

#[tokio::test]
async fn a_no_is_never_believed_over_a_later_yes_nor_a_snapshot_that_is_too_old_over_the_hook() {
    let hook = Receiver::start().await;
    let works = Works::new(Some(&hook), LONG).await;
    let old = Identity { verified_at: clock::now() - TimeDelta::hours(25), ..somebody("Kent") };
    let chunk = works.chunk(EXPORT, "ann", Some(old)).await;
    assert!(fatal(works.vouch.admit(&chunk).await).contains("is older than 24h"));
    assert_eq!((hook.asked(), works.recorded(&chunk).await), (0, vec!["ann refused snapshot".to_owned()]));
    hook.answer(403);
    let chunk = works.chunk(EXPORT, "ann", Some(somebody("Kent"))).await;
    fatal(works.vouch.admit(&chunk).await);
    hook.answer(204);
    assert_eq!(works.vouch.admit(&chunk).await, Ok(()), "a no is not kept");
}

#[tokio::test]
async fn a_job_that_cannot_be_found_does_not_run() {
    let hook = Receiver::start().await;
    let works = Works::new(Some(&hook), LONG).await;
    let chunk = works.chunk("SEND", "ann", Some(somebody("Kent"))).await;
    let gone = ClaimedChunk { job_id: JobId::new(clock::now(), u64::MAX), ..chunk };
    assert!(matches!(works.vouch.admit(&gone).await, Err(Failed::Retryable(_))));
    assert_eq!(hook.asked(), 0);
}

#[tokio::test]
async fn what_an_attempt_began_to_record_and_was_stopped_at_is_not_recorded_again() {
    let works = Works::new(None, LONG).await;
    let chunk = works.chunk(EXPORT, "ann", Some(somebody("Kent"))).await;
    let mut stopped = Box::pin(works.vouch.admit(&chunk));
    assert!(futures::poll!(stopped.as_mut()).is_pending(), "the database is being asked");
    drop(stopped);
    assert_eq!(works.vouch.admit(&chunk).await, Ok(()));
    assert_eq!(works.recorded(&chunk).await, ["ann verified snapshot"]);
}

#[test]
fn a_process_does_not_remember_jobs_without_end() {
    let jobs = Jobs::default();
    let id = |n: u64| JobId::new(DateTime::UNIX_EPOCH, n);
    let first = jobs.get(&id(0));
    assert!(Arc::ptr_eq(&first, &jobs.get(&id(0))));
    for n in 1..=JOBS as u64 {
        jobs.get(&id(n));
    }
    let last = jobs.0.lock().unwrap();
    assert_eq!((last.known.len(), last.order.len()), (JOBS, JOBS));
    assert!(!last.known.contains_key(&id(0)) && last.known.contains_key(&id(JOBS as u64)));
}
