//! Races: two acts on the same rows at the same moment, of which exactly one may win.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::id::Lease;
use outhaul_core::job::{JobStatus, NewJob, OnFailure};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Cancelled, Redriven, Store};
use outhaul_core::worker::{ClaimedChunk, Failure, Want};

use super::bench::{Bench, Kit, LONG, SETTINGS, SHORT_LEASE, at_once, job, plain, register};

fn reap(chunk: &ClaimedChunk) -> Failure {
    Failure {
        lease: chunk.lease,
        expired: true,
        retry_in: Some(LONG),
        cause: "lost".to_owned(),
        step: None,
        detail: None,
    }
}

/// The store itself and, where there may be one, another process's.
fn both(bench: &Bench) -> [Arc<dyn Store>; 2] {
    [bench.store.clone(), bench.other.clone()]
}

pub(super) async fn claimers_share_no_chunk(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(500)).await.job_id;
    let queue = bench.queue;
    let claimers = (0..8)
        .map(|n| {
            let store = both(&bench)[n % 2].clone();
            async move {
                let worker = register(&*store).await;
                let mut mine = Vec::new();
                let mut empty = 0;
                // A claim may miss rows that another is claiming, so one empty answer proves nothing.
                while empty < 20 {
                    let want = [Want { queue, limit: 7 }];
                    let claimed = store.chunks_claim(worker, &want, 7).await.expect("chunks_claim");
                    assert!(claimed.len() <= 7);
                    empty = if claimed.is_empty() { empty + 1 } else { 0 };
                    mine.extend(claimed);
                }
                mine
            }
        })
        .collect();
    let mut all: Vec<ClaimedChunk> = at_once(claimers).await.into_iter().flatten().collect();
    all.extend(bench.claim(500).await);
    let distinct: HashSet<_> = all.iter().map(|chunk| chunk.lease.chunk).collect();
    assert_eq!((all.len(), distinct.len()), (500, 500), "each chunk exactly once");
    assert!(all.iter().all(|chunk| (chunk.lease.fence, chunk.attempt) == (1, 1)));
    assert_eq!(bench.job(&id).await.counts.running, 500);
}

/// While chunks are reaped and staged, claimers take them again: never one without a new fence.
pub(super) async fn claim_against_reap(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let id = bench.submit(job(30)).await.job_id;
    let queue = bench.queue;
    let mut acts: Vec<BoxFuture<'static, Vec<Lease>>> = Vec::new();
    for n in 0..4 {
        let store = both(&bench)[n % 2].clone();
        let worker = bench.worker;
        acts.push(Box::pin(async move {
            let mut mine = Vec::new();
            for _ in 0..30 {
                let want = [Want { queue, limit: 5 }];
                let claimed = store.chunks_claim(worker, &want, 5).await.expect("chunks_claim");
                mine.extend(claimed.iter().map(|chunk| chunk.lease));
            }
            mine
        }));
        let store = both(&bench)[n % 2].clone();
        acts.push(Box::pin(async move {
            for _ in 0..30 {
                let expired = store.chunks_expired(&[], Duration::ZERO, 10).await.expect("chunks_expired");
                let failures: Vec<Failure> = expired
                    .iter()
                    .map(|found| Failure {
                        lease: found.lease,
                        expired: true,
                        retry_in: Some(Duration::ZERO),
                        cause: "lost".to_owned(),
                        step: None,
                        detail: None,
                    })
                    .collect();
                store.chunks_fail(&failures).await.expect("chunks_fail");
                store.chunks_stage(10).await.expect("chunks_stage");
            }
            Vec::new()
        }));
    }
    let claims: Vec<Lease> = at_once(acts).await.into_iter().flatten().collect();
    let distinct: HashSet<_> = claims.iter().collect();
    assert_eq!(claims.len(), distinct.len(), "no claim was given twice");
    let fences = bench.probe.number("select cast(sum(fence) as bigint) from job_chunk").await;
    assert_eq!(fences, claims.len() as i64, "every claim raised one fence by one");
    assert_eq!(bench.states(&id).await.len(), 30);
    bench.counts_hold().await;
}

pub(super) async fn finish_against_reap(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let (id, chunks) = bench.running(40).await;
    bench.expired(40).await;
    let mut acts: Vec<BoxFuture<'static, bool>> = Vec::new();
    for chunk in &chunks {
        let (store, finish) = (bench.store.clone(), plain(chunk));
        acts.push(Box::pin(async move { !store.chunks_finish(&[finish]).await.expect("finish").is_empty() }));
        let (store, failure) = (bench.other.clone(), reap(chunk));
        acts.push(Box::pin(async move { !store.chunks_fail(&[failure]).await.expect("fail").is_empty() }));
    }
    let answers = at_once(acts).await;
    let mut done = 0;
    for pair in answers.chunks(2) {
        assert!(pair[0] ^ pair[1], "exactly one wins");
        done += i64::from(pair[0]);
    }
    let job = bench.job(&id).await;
    assert_eq!((job.counts.done, job.counts.pending(), job.counts.running), (done, 40 - done, 0));
    let success = bench.probe.number("select count(*) from job_chunk where state = 'SUCCESS'").await;
    assert_eq!(success, done);
    bench.counts_hold().await;
}

/// A lease that was renewed in time is not reaped, whatever the reaper saw before.
pub(super) async fn heartbeat_against_reap(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let (id, chunks) = bench.running(20).await;
    let worker = bench.worker;
    bench.expired(20).await;
    let mut acts: Vec<BoxFuture<'static, bool>> = Vec::new();
    for chunk in &chunks {
        let (store, lease) = (bench.store.clone(), chunk.lease);
        acts.push(Box::pin(async move {
            !store.chunks_heartbeat(worker, &[lease], &[]).await.expect("heartbeat").renewed.is_empty()
        }));
        let (store, failure) = (bench.other.clone(), reap(chunk));
        acts.push(Box::pin(async move { !store.chunks_fail(&[failure]).await.expect("fail").is_empty() }));
    }
    let reaped = at_once(acts).await.chunks(2).filter(|pair| pair[1]).count();
    let states = bench.states(&id).await;
    assert_eq!(states.iter().filter(|state| **state == ChunkState::Retry).count(), reaped);
    assert_eq!(states.iter().filter(|state| **state == ChunkState::Running).count(), 20 - reaped);
    bench.counts_hold().await;
}

pub(super) async fn cancel_against_finish(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for _ in 0..25 {
        let (id, chunks) = bench.running(1).await;
        let (store, cancelled) = (bench.other.clone(), id.clone());
        let cancel: BoxFuture<'static, Option<Cancelled>> =
            Box::pin(async move { Some(store.job_cancel(&cancelled).await.expect("job_cancel")) });
        let (store, one) = (bench.store.clone(), plain(&chunks[0]));
        let finish: BoxFuture<'static, Option<Cancelled>> = Box::pin(async move {
            assert_eq!(store.chunks_finish(&[one]).await.expect("chunks_finish").len(), 1, "it was owned");
            None
        });
        let answer = at_once(vec![cancel, finish]).await[0].expect("the first is the cancellation");
        bench.stage().await;
        let job = bench.job(&id).await;
        let expected = match answer {
            Cancelled::Yes => JobStatus::Cancelled,
            Cancelled::TooLate(JobStatus::Completed) => JobStatus::Completed,
            other => panic!("cancelling a running job answered {other:?}"),
        };
        assert_eq!((job.status, job.counts.done, job.counts.cancelled), (expected, 1, 0));
        assert!(job.completed_at.is_some(), "it has ended either way");
    }
    bench.counts_hold().await;
}

pub(super) async fn two_last_finishes_complete_the_job_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for _ in 0..25 {
        let (id, chunks) = bench.running(4).await;
        bench.finish(&chunks[..2]).await;
        let before = bench.job(&id).await.version;
        let acts = chunks[2..]
            .iter()
            .zip(both(&bench))
            .map(|(chunk, store)| {
                let finish = plain(chunk);
                async move { store.chunks_finish(&[finish]).await.expect("chunks_finish").len() }
            })
            .collect();
        assert_eq!(at_once(acts).await, [1, 1]);
        let job = bench.job(&id).await;
        assert_eq!((job.status, job.counts.done), (JobStatus::Completed, 4));
        assert!(job.completed_at.is_some());
        assert_eq!(job.version, before + 2, "each finish is one change");
    }
    bench.counts_hold().await;
}

pub(super) async fn two_last_failures_end_the_job_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for round in 0..20 {
        let on_failure = if round % 2 == 0 { OnFailure::Continue } else { OnFailure::Stop };
        let (id, chunks) = bench.running_of(NewJob { on_failure, ..job(2) }).await;
        let acts = chunks
            .iter()
            .zip(both(&bench))
            .map(|(chunk, store)| {
                let failure = Failure {
                    lease: chunk.lease,
                    expired: false,
                    retry_in: None,
                    cause: "broken".to_owned(),
                    step: None,
                    detail: None,
                };
                async move { store.chunks_fail(&[failure]).await.expect("chunks_fail").len() }
            })
            .collect();
        assert_eq!(at_once(acts).await, [1, 1]);
        bench.stage().await;
        let job = bench.job(&id).await;
        assert_eq!((job.status, job.counts.failed), (JobStatus::Failed, 2));
        assert!(job.completed_at.is_some() && job.error_message.is_some());
    }
    bench.counts_hold().await;
}

/// Batches over the same jobs in opposite orders, which would deadlock if locks followed the batch.
pub(super) async fn batches_that_cross_do_not_deadlock(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for _ in 0..8 {
        let mut batches: Vec<Vec<ClaimedChunk>> = vec![Vec::new(); 4];
        let mut ids = Vec::new();
        for _ in 0..6 {
            let (id, claimed) = bench.running(4).await;
            ids.push(id);
            for (batch, chunk) in batches.iter_mut().zip(claimed) {
                batch.push(chunk);
            }
        }
        let acts = batches
            .into_iter()
            .enumerate()
            .map(|(n, mut batch)| {
                if n % 2 == 1 {
                    batch.reverse();
                }
                let store = both(&bench)[n / 2].clone();
                async move {
                    if n == 0 {
                        let fail = |chunk: &ClaimedChunk| Failure {
                            lease: chunk.lease,
                            expired: false,
                            retry_in: None,
                            cause: "broken".to_owned(),
                            step: None,
                            detail: None,
                        };
                        let failures: Vec<_> = batch.iter().map(fail).collect();
                        store.chunks_fail(&failures).await.expect("chunks_fail").len()
                    } else {
                        let finishes: Vec<_> = batch.iter().map(plain).collect();
                        store.chunks_finish(&finishes).await.expect("chunks_finish").len()
                    }
                }
            })
            .collect();
        assert_eq!(at_once(acts).await, [6; 4]);
        bench.stage().await;
        for id in ids {
            let job = bench.job(&id).await;
            assert_eq!((job.status, job.counts.done, job.counts.failed), (JobStatus::Failed, 3, 1));
            assert!(job.completed_at.is_some());
        }
    }
    bench.counts_hold().await;
}

pub(super) async fn fifty_redrives_redrive_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(5)).await.job_id;
    for round in 0..3 {
        let running = bench.claim(2).await;
        bench.fail(&running[0], None).await.expect("still owned");
        bench.finish(&running[1..]).await;
        bench.stage().await;
        let acts = (0..50)
            .map(|n| {
                let (store, id) = (both(&bench)[n % 2].clone(), id.clone());
                async move { store.job_redrive(&id).await.expect("job_redrive") }
            })
            .collect();
        let answers = at_once(acts).await;
        let mut won: Vec<_> = answers.into_iter().filter(|answer| *answer != Redriven::Nothing).collect();
        assert_eq!(won.pop(), Some(Redriven::Yes(4 - round)));
        assert_eq!(won, []);
        let job = bench.job(&id).await;
        assert_eq!((job.status, job.counts.failed), (JobStatus::InProgress, 0));
        bench.counts_hold().await;
    }
}

/// Whatever a stager saw before the redrive, it must not hold a chunk of a job that runs again: nobody
/// would ever look at that chunk.
pub(super) async fn redrive_against_stage(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for _ in 0..40 {
        let id = bench.submit(job(12)).await.job_id;
        let dead = bench.claim_one().await;
        bench.fail(&dead, None).await.expect("still owned");
        let mut acts: Vec<BoxFuture<'static, ()>> = Vec::new();
        for store in both(&bench) {
            acts.push(Box::pin(async move {
                for _ in 0..4 {
                    store.chunks_stage(2).await.expect("chunks_stage");
                }
            }));
        }
        let (store, redriven) = (bench.store.clone(), id.clone());
        acts.push(Box::pin(async move {
            assert!(matches!(store.job_redrive(&redriven).await.expect("job_redrive"), Redriven::Yes(_)));
        }));
        at_once(acts).await;
        bench.stage().await;
        let claimed = bench.claim(20).await;
        assert_eq!(claimed.len(), 12, "{:?}", bench.states(&id).await);
        bench.finish(&claimed).await;
        assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    }
    bench.counts_hold().await;
}
