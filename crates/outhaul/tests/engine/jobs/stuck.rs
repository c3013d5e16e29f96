//! Jobs that block their threads: they fail like others, their neighbours go on, and the process says
//! when it should be started anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outhaul::core::job::JobStatus;
use outhaul::core::vitals::Broken;
use outhaul::{Context, Job, JobError, JobOptions};
use serde::{Deserialize, Serialize};

use super::{Stage, error, tries};

/// Never awaits, until the test lets it.
#[derive(Serialize, Deserialize)]
struct Loop;

/// Does the same after a nap, so that it blocks the very thread that watches timers and sockets.
#[derive(Serialize, Deserialize)]
struct NapAndLoop;

#[derive(Default)]
struct Release(AtomicBool);

impl Release {
    fn block(&self) {
        while !self.0.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Job for Loop {
    const TYPE: &'static str = "LOOP";
    type Output = ();
    fn options() -> JobOptions {
        JobOptions::default().timeout(Duration::from_millis(50)).retry(tries(1))
    }
    async fn run(&self, ctx: &Context) -> Result<(), JobError> {
        ctx.state::<Arc<Release>>()?.block();
        Ok(())
    }
}

impl Job for NapAndLoop {
    const TYPE: &'static str = "NAP_AND_LOOP";
    type Output = ();
    async fn run(&self, ctx: &Context) -> Result<(), JobError> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        ctx.state::<Arc<Release>>()?.block();
        Ok(())
    }
}

/// Waits for timers, as its neighbours would for sockets.
#[derive(Serialize, Deserialize)]
struct Tick {
    millis: u64,
}

impl Job for Tick {
    const TYPE: &'static str = "TICK";
    type Output = ();
    async fn run(&self, _: &Context) -> Result<(), JobError> {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(self.millis)).await;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_never_yields_is_recorded_neighbours_go_on_and_the_process_is_wedged() {
    let stage = Stage::new().await;
    let release = Arc::new(Release::default());
    let registry = stage.registry().job::<Loop>().job::<Tick>().state(release.clone());
    // 2 + 2 threads; wedged at 2.
    let engine = Arc::new(stage.engine(registry, 2).await);
    let broken = tokio::spawn({
        let engine = engine.clone();
        async move { engine.broken().await }
    });
    let loops = stage.client.enqueue_many([Loop, Loop]).await.unwrap();
    for id in &loops {
        let job = stage.ended(&id.job_id).await;
        assert_eq!(error(&job), "Chunk failed after retries: chunk=main: timed out after 50ms");
    }
    for id in stage.client.enqueue_many((0..20).map(|_| Tick { millis: 2 })).await.unwrap() {
        assert_eq!(stage.ended(&id.job_id).await.status, JobStatus::Completed);
    }
    let stuck = tokio::time::timeout(Duration::from_secs(60), broken).await.unwrap().unwrap();
    assert_eq!(stuck, Broken::Wedged(2));
    // A stop is not held up by them.
    engine.stop().await;
    release.0.store(true, Ordering::Release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_and_sockets_are_watched_although_their_thread_is_blocked() {
    let stage = Stage::new().await;
    let release = Arc::new(Release::default());
    let registry = stage.registry().job::<NapAndLoop>().job::<Tick>().state(release.clone());
    let engine = stage.engine(registry, 4).await;
    let blocked = stage.client.enqueue(NapAndLoop).await.unwrap().job_id;
    let waiting = stage.client.enqueue(Tick { millis: 200 }).await.unwrap().job_id;
    assert_eq!(stage.ended(&waiting).await.status, JobStatus::Completed);
    release.0.store(true, Ordering::Release);
    assert_eq!(stage.ended(&blocked).await.status, JobStatus::Completed);
    engine.stop().await;
}
