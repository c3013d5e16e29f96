//! How long an enqueued job waits for an idle worker.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::{Queue, STARTED, env, now};

/// The most jobs that the start of is noted of.
pub(crate) const MOST: usize = 4096;
/// Until the workers have started and found nothing.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn latency<Q: Queue>(queue: &Q) -> serde_json::Value {
    let picked = tokio::select! {
        () = queue.work() => panic!("the workers ended"),
        picked = pick_ups(queue, env("PICK_UPS", 300).min(MOST)) => picked,
    };
    let (after, call): (Vec<_>, Vec<_>) = picked.into_iter().unzip();
    let (after, call) = (sorted(after), sorted(call));
    serde_json::json!({
        "queue": Q::NAME, "pick_ups": after.len(),
        "p50_ms": quantile(&after, 0.5), "p99_ms": quantile(&after, 0.99),
        "call_p50_ms": quantile(&call, 0.5), "call_p99_ms": quantile(&call, 0.99),
    })
}

/// Milliseconds from the end and from the begin of each enqueuing call to the start of its job.
async fn pick_ups(queue: &impl Queue, jobs: usize) -> Vec<(f64, f64)> {
    tokio::time::sleep(SETTLE).await;
    let mut picked = Vec::new();
    for job in 0..jobs {
        let called = now();
        queue.enqueue_one(job).await;
        let enqueued = now();
        let started = started(job).await;
        let since = |then: u64| (started as f64 - then as f64) / 1e6;
        picked.push((since(enqueued), since(called)));
        // Another pause each time, or a worker that polls would meet the same moment over and over.
        let gap = env("GAP_MS", 100) + job * 37 % 41;
        tokio::time::sleep(Duration::from_millis(gap as u64)).await;
    }
    picked
}

async fn started(job: usize) -> u64 {
    let start = Instant::now();
    loop {
        match STARTED[job].load(SeqCst) {
            0 => assert!(start.elapsed() < Duration::from_secs(60), "job {job} did not start"),
            started => return started,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted[place.clamp(1, sorted.len()) - 1]
}
