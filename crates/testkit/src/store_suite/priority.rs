//! Priority: a person moves a job forward or back while it waits or runs; all that can still start follows.

use std::collections::HashSet;
use std::time::Duration;

use chrono::TimeDelta;
use futures::future::BoxFuture;
use outhaul_core::clock;
use outhaul_core::id::{ChunkId, JobId};
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Prioritised, StoreSettings};
use outhaul_core::worker::Want;

use super::bench::{Bench, Kit, LONG, SETTINGS, at_once, job, register};

async fn prioritise(bench: &Bench, id: &JobId, priority: u8) -> Prioritised {
    bench.store.job_prioritise(id, priority).await.expect("job_prioritise")
}

/// Whose chunks are claimed, one by one.
async fn order(bench: &Bench, at_most: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    while ids.len() < at_most {
        let Some(chunk) = bench.claim(1).await.pop() else { break };
        ids.push(chunk.job_id);
    }
    ids
}

/// Chunks that may still start, or start again, with another priority than their job.
async fn stray(bench: &Bench) -> i64 {
    let sql = "select count(*) from job_chunk c join job j on j.id = c.job_id where c.priority <> j.priority
               and c.state in ('CREATED', 'QUEUED', 'RETRY', 'RUNNING')";
    bench.probe.number(sql).await
}

pub(super) async fn a_raised_job_is_claimed_first(kit: Kit) {
    let bench = kit.bench(StoreSettings { fairness_step: LONG, ..SETTINGS }).await;
    let first = bench.submit(job(3)).await.job_id;
    let second = bench.submit(job(3)).await;
    assert_eq!(order(&bench, 1).await, std::slice::from_ref(&first));
    let second_id = second.job_id.clone();
    assert_eq!(prioritise(&bench, &second_id, 9).await, Prioritised::Yes);
    let raised = bench.job(&second_id).await;
    assert_eq!((raised.priority, raised.version), (9, second.version + 1));
    assert!(raised.updated_at >= second.updated_at);
    assert_eq!(bench.job(&first).await.priority, 5, "the other has its own");
    let rest = [&second_id, &second_id, &second_id, &first, &first];
    assert_eq!(order(&bench, 10).await.iter().collect::<Vec<_>>(), rest);

    // And back behind the others.
    let third = bench.submit(job(2)).await.job_id;
    let last = bench.submit(job(1)).await.job_id;
    assert_eq!(prioritise(&bench, &third, 0).await, Prioritised::Yes);
    assert_eq!(order(&bench, 10).await, [last, third.clone(), third]);
    assert_eq!(stray(&bench).await, 0);
}

pub(super) async fn what_waits_has_it_when_it_is_staged(kit: Kit) {
    let bench = kit.bench(StoreSettings { fairness_step: LONG, ..SETTINGS }).await;
    // One that waits for its time, one that waits to be tried again, and one that runs.
    let soon = clock::now() + TimeDelta::milliseconds(500);
    let created = bench.submit(NewJob { run_at: Some(soon), ..job(1) }).await.job_id;
    let (retried, mut chunks) = bench.running(1).await;
    bench.fail(&chunks.remove(0), Some(Duration::ZERO)).await.expect("still owned");
    let (running, runs) = bench.running(1).await;
    for (id, priority) in [(&created, 6), (&retried, 7), (&running, 8)] {
        assert_eq!(prioritise(&bench, id, priority).await, Prioritised::Yes, "{id}");
    }
    assert_eq!(bench.job(&running).await.status, JobStatus::InProgress, "what runs keeps going");
    assert_eq!(stray(&bench).await, 0);
    let between = bench.submit(job(1)).await.job_id;
    bench.fail(&runs[0], Some(Duration::ZERO)).await.expect("it is still owned");
    let all_wait = || async {
        bench.stage().await;
        for id in [&running, &retried, &created] {
            if bench.states(id).await != [ChunkState::Queued] {
                return None;
            }
        }
        Some(())
    };
    super::bench::eventually("their time has come", all_wait).await;
    assert_eq!(order(&bench, 10).await, [running, retried, created, between]);
}

pub(super) async fn ended_jobs_keep_their_priority(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (done, chunks) = bench.running(1).await;
    bench.finish(&chunks).await;
    // One of two is dead: FAILED, though the other still waits.
    let failed = bench.submit(job(2)).await.job_id;
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");
    let cancelled = bench.submit(job(2)).await.job_id;
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    for (id, status) in
        [(done, JobStatus::Completed), (failed, JobStatus::Failed), (cancelled, JobStatus::Cancelled)]
    {
        let before = bench.job(&id).await;
        assert_eq!(prioritise(&bench, &id, 9).await, Prioritised::TooLate(status));
        assert_eq!(bench.job(&id).await, before, "nothing was written");
    }
    assert_eq!(bench.probe.number("select count(*) from job_chunk where priority <> 5").await, 0);
    let nobody = JobId::parse("J20260101_0000000000000").expect("well formed");
    assert_eq!(prioritise(&bench, &nobody, 9).await, Prioritised::Unknown);
}

/// Claims and finishes go on while a person cannot make up their mind: each chunk is claimed once, and
/// what is left agrees with its job.
pub(super) async fn prioritising_against_claims(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(bench.submit(job(60)).await.job_id);
    }
    let mut acts: Vec<BoxFuture<'static, Vec<ChunkId>>> = Vec::new();
    for n in 0..4 {
        let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        let queue = bench.queue;
        acts.push(Box::pin(async move {
            let worker = register(&*store).await;
            let mut claimed = Vec::new();
            for round in 0..10 {
                let wants = [Want { queue, limit: 3 }];
                let got = store.chunks_claim(worker, &wants, 3).await.expect("chunks_claim");
                claimed.extend(got.iter().map(|chunk| chunk.lease.chunk));
                if round % 2 == 0 {
                    let finishes: Vec<_> = got.iter().map(super::bench::plain).collect();
                    let done = store.chunks_finish(&finishes).await.expect("chunks_finish");
                    assert_eq!(done.len(), got.len(), "what is owned stays owned");
                }
            }
            claimed
        }));
    }
    for priority in [1, 2, 3, 6, 7, 8] {
        let store = if priority % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        let ids = ids.clone();
        acts.push(Box::pin(async move {
            for id in &ids {
                let answer = store.job_prioritise(id, priority).await.expect("job_prioritise");
                assert_eq!(answer, Prioritised::Yes);
            }
            Vec::new()
        }));
    }
    let mut claimed: Vec<ChunkId> = at_once(acts).await.into_iter().flatten().collect();
    assert_eq!(stray(&bench).await, 0, "the last word holds for the job and for all of its chunks");
    for id in &ids {
        assert_ne!(bench.job(id).await.priority, 5);
    }
    claimed.extend(bench.claim(1000).await.iter().map(|chunk| chunk.lease.chunk));
    assert_eq!(claimed.len(), 180, "none is lost");
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 180, "none is claimed twice");
    bench.counts_hold().await;
}
