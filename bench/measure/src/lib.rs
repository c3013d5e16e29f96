//! How every Rust job queue is measured, ours and the peers': the same jobs, the same clock, one JSON line
//! on standard output. `../node/measure.mjs` does the same for the queues of Node.
//!
//! `burn` enqueues all jobs first, then starts the workers and stops the clock when the database says that
//! every job is done. `latency` enqueues one job at a time for workers that are idle.

mod latency;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A program that did not get through its jobs by then is stuck.
const LIMIT: Duration = Duration::from_secs(300);
const WAL: &str = "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint";

static BASE: OnceLock<Instant> = OnceLock::new();
static RAN: AtomicUsize = AtomicUsize::new(0);
static STARTED: [AtomicU64; latency::MOST] = [const { AtomicU64::new(0) }; latency::MOST];

/// A job queue on PostgreSQL. Its jobs do nothing but call [`handler_started`] with their number.
pub trait Queue {
    /// The name in the table.
    const NAME: &'static str;
    /// A query that counts the jobs that are recorded as done.
    const DONE: &'static str;

    /// The number that `sql` returns.
    fn number(&self, sql: &'static str) -> impl Future<Output = i64>;

    /// Enqueues the jobs `from` up to, not including, `to` in one batch.
    fn enqueue(&self, from: usize, to: usize) -> impl Future<Output = ()>;

    /// Enqueues one job by the call that is meant for one.
    fn enqueue_one(&self, job: usize) -> impl Future<Output = ()>;

    /// Runs jobs. The future does not end; dropping it may leave workers behind, the process ends then.
    fn work(&self) -> impl Future<Output = ()>;
}

/// Measures what the first argument names, `burn` or `latency`, and prints it.
pub async fn measure(queue: impl Queue) {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let measured = match mode.as_str() {
        "burn" => burn(&queue).await,
        "latency" => latency::latency(&queue).await,
        _ => panic!("name what to measure: burn or latency"),
    };
    println!("{measured}");
}

/// Handlers call this first.
pub fn handler_started(job: i64) {
    if let Some(started) = usize::try_from(job).ok().and_then(|job| STARTED.get(job)) {
        let _ = started.compare_exchange(0, now(), SeqCst, SeqCst);
    }
    RAN.fetch_add(1, SeqCst);
}

/// The environment variable `name` as a number.
pub fn env(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")),
        Err(_) => default,
    }
}

/// The database to work in.
pub fn url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL names the database to measure in")
}

/// Nanoseconds on a clock of this process; never 0, which stands for "not yet".
fn now() -> u64 {
    u64::try_from(BASE.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
}

async fn burn<Q: Queue>(queue: &Q) -> serde_json::Value {
    let (jobs, batch) = (env("JOBS", 20_000), env("ENQUEUE_BATCH", 1_000));
    let before = queue.number(WAL).await;
    let start = Instant::now();
    for from in (0..jobs).step_by(batch) {
        queue.enqueue(from, (from + batch).min(jobs)).await;
    }
    let enqueue = start.elapsed();
    let enqueued = queue.number(WAL).await;
    let start = Instant::now();
    tokio::select! {
        () = queue.work() => panic!("the workers ended"),
        () = all_done(queue, jobs) => {}
    }
    let burn = start.elapsed();
    let after = queue.number(WAL).await;
    let per_job = |bytes: i64| bytes as f64 / jobs as f64;
    serde_json::json!({
        "queue": Q::NAME, "jobs": jobs, "ran": RAN.load(SeqCst),
        "jobs_per_s": jobs as f64 / burn.as_secs_f64(),
        "enqueued_per_s": jobs as f64 / enqueue.as_secs_f64(),
        "wal_enqueue": per_job(enqueued - before), "wal_run": per_job(after - enqueued),
    })
}

/// Asks the database only after every handler ran: the count costs the workers nothing before.
async fn all_done<Q: Queue>(queue: &Q, jobs: usize) {
    let start = Instant::now();
    while RAN.load(SeqCst) < jobs {
        assert!(start.elapsed() < LIMIT, "only {} of {jobs} jobs ran", RAN.load(SeqCst));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while queue.number(Q::DONE).await < jobs as i64 {
        assert!(start.elapsed() < LIMIT, "not all jobs are recorded as done");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
