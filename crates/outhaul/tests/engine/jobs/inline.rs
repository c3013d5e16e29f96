//! What the crate offers to users' own tests.

use std::time::Duration;

use chrono::TimeDelta;
use outhaul::core::clock;
use outhaul::core::job::JobStatus;
use outhaul::testing::{self, Drained};
use outhaul::{EnqueueOptions, JobError};
use serde_json::json;

use super::{Stage, error, play};

#[tokio::test]
async fn one_job_runs_where_it_stands_without_sleeping() {
    let stage = Stage::new().await;
    let result = testing::run_inline_with(play("long-nap"), &stage.registry()).await.unwrap();
    assert_eq!(result, json!(1));
    assert_eq!(stage.seen.events(), ["before", "awake", "after"]);
    let failed: JobError = testing::run_inline_with(play("fail"), &stage.registry()).await.unwrap_err();
    assert_eq!(failed.to_string(), "step=two: not yet");
    let failed = testing::run_inline(play("end")).await.unwrap_err();
    assert!(failed.to_string().contains("there is no state"), "{failed}");
}

#[tokio::test]
async fn everything_that_waits_is_run_until_nothing_is_left() {
    let stage = Stage::new().await;
    let mut ids = Vec::new();
    for act in ["end", "fail", "panic", "fatal", "huge", "long-nap", "child"] {
        ids.push(stage.client.enqueue(play(act)).await.unwrap().job_id);
    }
    let later = Some(clock::now() + TimeDelta::from_std(Duration::from_secs(3600)).unwrap());
    let options = EnqueueOptions { run_at: later, ..EnqueueOptions::default() };
    let later = stage.client.enqueue_with(play("end"), options).await.unwrap().job_id;
    let drained = testing::drain(&stage.store, &stage.registry()).await.unwrap();
    // fail: 2 of 3; panic: 1 of 2; huge: 2 of 3, then dead; the child's own job is one more.
    assert_eq!(drained, Drained { done: 6, retried: 5, dead: 2 });
    let mut failed = 0;
    for id in ids {
        let job = stage.store.job_get(&id).await.unwrap().unwrap();
        assert!(job.status.is_final(), "{job:?}");
        failed += usize::from(job.status == JobStatus::Failed && !error(&job).is_empty());
    }
    assert_eq!(failed, 2);
    assert_eq!(stage.store.job_get(&later).await.unwrap().unwrap().status, JobStatus::Submitted);
    assert_eq!(testing::drain(&stage.store, &stage.registry()).await.unwrap(), Drained::default());
    assert!(stage.store.workers_list(Duration::from_secs(60)).await.unwrap().is_empty());
}
