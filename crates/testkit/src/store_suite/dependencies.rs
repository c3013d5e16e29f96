//! Jobs that wait for others: they start once, when the last of their parents has ended, and a bad end
//! does what their policy says.

use std::time::Duration;

use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob, OnParentFailure};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Cancelled, Redriven, Submitted};

use super::bench::{Bench, Kit, LONG, SETTINGS, at_once, job, keyed};

fn child(parents: &[&JobId], on_parent_failure: OnParentFailure) -> NewJob {
    NewJob { parents: parents.iter().copied().cloned().collect(), on_parent_failure, ..job(2) }
}

async fn is_waiting(bench: &Bench, id: &JobId) {
    bench.stage().await;
    assert_eq!(bench.states(id).await, [ChunkState::Created; 2]);
    assert_eq!(bench.job(id).await.status, JobStatus::Submitted);
}

async fn is_queued(bench: &Bench, id: &JobId) {
    bench.stage().await;
    assert_eq!(bench.states(id).await, [ChunkState::Queued; 2]);
}

pub(super) async fn a_job_waits_for_the_last_of_its_parents(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (one, first) = bench.running(1).await;
    let (two, second) = bench.running(1).await;
    let id = bench.submit(child(&[&one, &two], OnParentFailure::Hold)).await.job_id;
    is_waiting(&bench, &id).await;
    bench.finish(&first).await;
    is_waiting(&bench, &id).await;
    bench.finish(&second).await;
    is_queued(&bench, &id).await;
    let claimed = bench.claim(10).await;
    assert_eq!(claimed.len(), 2, "by turn, as any other job");
    bench.finish(&claimed).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    let told: Vec<_> = bench.history(&id, None).await.iter().map(|step| (step.from, step.to)).collect();
    let inserted = told.iter().filter(|step| **step == (None, ChunkState::Created)).count();
    let queued = told.iter().filter(|step| **step == (Some(ChunkState::Created), ChunkState::Queued)).count();
    assert_eq!((inserted, queued), (2, 2), "{told:?}");
    bench.counts_hold().await;
}

pub(super) async fn a_parent_that_has_ended_holds_nobody_up(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (done, chunks) = bench.running(1).await;
    bench.finish(&chunks).await;
    let id = bench.submit(child(&[&done], OnParentFailure::Hold)).await.job_id;
    is_queued(&bench, &id).await;
}

pub(super) async fn a_bad_end_does_what_the_policy_says(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for cancel in [false, true] {
        let (parent, chunks) = bench.running(1).await;
        let mut ids = Vec::new();
        for policy in OnParentFailure::ALL {
            ids.push(bench.submit(child(&[&parent], policy)).await.job_id);
        }
        if cancel {
            assert_eq!(bench.store.job_cancel(&parent).await.expect("job_cancel"), Cancelled::Yes);
            bench.store.chunks_cancel(&[chunks[0].lease]).await.expect("chunks_cancel");
        } else {
            bench.fail(&chunks[0], None).await;
        }
        bench.stage().await;
        let [hold, cancelled, run, fail] = &ids[..] else { panic!("one for each policy") };
        is_waiting(&bench, hold).await;
        is_queued(&bench, run).await;
        let cancelled = bench.job(cancelled).await;
        assert_eq!(cancelled.status, JobStatus::Cancelled);
        assert!(cancelled.completed_at.is_some() && cancelled.counts.cancelled == 2);
        let failed = bench.job(fail).await;
        assert_eq!((failed.status, failed.counts.failed), (JobStatus::Failed, 2));
        assert!(failed.completed_at.is_some());
        let word = if cancel { "CANCELLED" } else { "FAILED" };
        let reason = format!("The job it depends on, {parent}, is {word}");
        assert_eq!(failed.error_message.as_deref(), Some(reason.as_str()));
        assert_eq!(cancelled.error_message.as_deref(), Some(reason.as_str()));
        let told = bench.history(fail, None).await;
        let dead = told.iter().filter(|step| step.to == ChunkState::Dead);
        assert!(dead.clone().all(|step| step.from == Some(ChunkState::Created)));
        assert_eq!(dead.count(), 2);
        // Cleared away for the next round.
        let claimed = bench.claim(10).await;
        bench.finish(&claimed).await;
    }
    bench.counts_hold().await;
}

pub(super) async fn a_parent_that_completes_after_all_releases_its_child(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (parent, chunks) = bench.running(1).await;
    let id = bench.submit(child(&[&parent], OnParentFailure::Hold)).await.job_id;
    bench.fail(&chunks[0], None).await;
    is_waiting(&bench, &id).await;
    assert_eq!(bench.store.job_redrive(&parent).await.expect("job_redrive"), Redriven::Yes(1));
    is_waiting(&bench, &id).await;
    let again = bench.claim(10).await;
    bench.finish(&again).await;
    is_queued(&bench, &id).await;
}

pub(super) async fn a_child_that_ran_all_the_same_is_not_released_twice(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (one, first) = bench.running(1).await;
    let (two, second) = bench.running(1).await;
    let id = bench.submit(child(&[&one, &two], OnParentFailure::Run)).await.job_id;
    bench.fail(&first[0], None).await;
    is_waiting(&bench, &id).await;
    bench.store.job_redrive(&one).await.expect("job_redrive");
    let again = bench.claim(10).await;
    bench.finish(&again).await;
    is_waiting(&bench, &id).await;
    bench.finish(&second).await;
    is_queued(&bench, &id).await;
}

pub(super) async fn after_a_bad_end_nothing_is_waited_for(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (one, first) = bench.running(1).await;
    let (two, second) = bench.running(1).await;
    let id = bench.submit(child(&[&one, &two], OnParentFailure::Fail)).await.job_id;
    let gone = bench.submit(child(&[&one, &two], OnParentFailure::Cancel)).await.job_id;
    bench.fail(&first[0], None).await;
    bench.stage().await;
    let cancelled = bench.job(&gone).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Failed);
    // A person wants it all the same: the parent that still runs has no say any more.
    assert_eq!(bench.store.job_redrive(&id).await.expect("job_redrive"), Redriven::Yes(2));
    is_queued(&bench, &id).await;
    let chunks = bench.claim(10).await;
    assert_eq!(chunks.len(), 2);
    bench.fail(&second[0], None).await;
    bench.stage().await;
    assert_eq!(bench.job(&id).await.status, JobStatus::InProgress);
    bench.finish(&chunks).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    assert_eq!(bench.job(&gone).await, cancelled, "what has ended is not written again");
    bench.counts_hold().await;
}

pub(super) async fn a_parent_is_kept_while_another_waits_for_it(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (parent, chunks) = bench.running(1).await;
    let id = bench.submit(child(&[&parent], OnParentFailure::Hold)).await.job_id;
    bench.fail(&chunks[0], None).await;
    bench.stage().await;
    let prune = || async {
        for _ in 0..5 {
            bench.store.jobs_prune(Duration::ZERO, 100).await.expect("jobs_prune");
        }
        bench.store.job_get(&parent).await.expect("job_get").is_some()
    };
    assert!(prune().await, "its child would wait for ever");
    bench.store.job_cancel(&id).await.expect("job_cancel");
    bench.stage().await;
    assert!(!prune().await);
    assert_eq!(bench.probe.number("select count(*) from job_parent").await, 0);
}

/// A parent may be marked for pruning in the very moment in which a child of it is stored.
pub(super) async fn a_parent_that_was_pruned_meanwhile_releases_its_child(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (parent, chunks) = bench.running(1).await;
    bench.finish(&chunks).await;
    let id = bench.submit(child(&[&parent], OnParentFailure::Fail)).await.job_id;
    let now = bench.probe.moment(bench.probe.now().await);
    bench.probe.execute(&format!("update job set pruned_at = {now} where job_id = '{parent}'")).await;
    for _ in 0..3 {
        bench.store.jobs_prune(LONG, 100).await.expect("jobs_prune");
    }
    is_queued(&bench, &id).await;
    for _ in 0..3 {
        bench.store.jobs_prune(LONG, 100).await.expect("jobs_prune");
    }
    let left = format!("select count(*) from job where job_id = '{parent}'");
    assert_eq!(bench.probe.number(&left).await, 0, "nobody waits for it any more");
}

pub(super) async fn a_large_child_is_released_in_batches(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for policy in [OnParentFailure::Run, OnParentFailure::Fail] {
        let (parent, chunks) = bench.running(1).await;
        let large = NewJob { parents: vec![parent], on_parent_failure: policy, ..job(2500) };
        let id = bench.submit(large).await.job_id;
        bench.fail(&chunks[0], None).await;
        bench.stage().await;
        let wanted = if policy == OnParentFailure::Run { ChunkState::Queued } else { ChunkState::Dead };
        let count = format!(
            "select count(*) from job_chunk c join job j on j.id = c.job_id
            where j.job_id = '{id}' and c.state = '{wanted}'"
        );
        assert_eq!(bench.probe.number(&count).await, 2500);
        bench.store.job_cancel(&id).await.expect("job_cancel");
        bench.stage().await;
    }
    bench.counts_hold().await;
}

pub(super) async fn unknown_parents_store_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (mine, _) = bench.running(1).await;
    let theirs = bench.submit(NewJob { owner: "bob".to_owned(), ..job(1) }).await.job_id;
    let nowhere = job(1).job_id;
    let asked = child(&[&mine, &theirs, &nowhere], OnParentFailure::Hold);
    let answer = bench.store.job_submit(asked.clone()).await.expect("job_submit");
    let Submitted::NoSuchParents(missing) = answer else { panic!("{answer:?}") };
    assert_eq!(missing, [theirs.clone(), nowhere.clone()], "another's job is none");
    assert_eq!(bench.store.job_get(&asked.job_id).await.expect("job_get"), None);
    let batch = vec![asked, child(&[&mine], OnParentFailure::Hold)];
    let answers = bench.store.jobs_submit(batch).await.expect("jobs_submit");
    assert!(matches!(&answers[..], [Submitted::NoSuchParents(_), Submitted::Created(_)]), "{answers:?}");
    // A repeated request finds its job whatever became of the parents it names.
    let stored = bench.submit(keyed(job(1), "k", "hash")).await.job_id;
    let repeated = keyed(child(&[&nowhere], OnParentFailure::Hold), "k", "hash");
    let found = bench.store.job_submit(repeated).await.expect("job_submit");
    assert!(matches!(&found, Submitted::Existing(job) if job.job_id == stored), "{found:?}");
}

pub(super) async fn cancelling_what_waits_ends_it(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (parent, chunks) = bench.running(1).await;
    let id = bench.submit(child(&[&parent], OnParentFailure::Hold)).await.job_id;
    assert_eq!(bench.store.job_cancel(&id).await.expect("job_cancel"), Cancelled::Yes);
    bench.finish(&chunks).await;
    bench.stage().await;
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.cancelled), (JobStatus::Cancelled, 2));
    assert_eq!(bench.claim(10).await, []);
}

/// Both parents of a diamond end at the same instant in different processes, while others sweep.
pub(super) async fn a_diamond_closes_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for _ in 0..10 {
        let (top, chunks) = bench.running(1).await;
        let left = bench.submit(NewJob { parents: vec![top.clone()], ..job(1) }).await.job_id;
        let right = bench.submit(NewJob { parents: vec![top], ..job(1) }).await.job_id;
        let bottom = bench.submit(child(&[&left, &right], OnParentFailure::Hold)).await.job_id;
        bench.finish(&chunks).await;
        bench.stage().await;
        let sides = bench.claim(10).await;
        assert_eq!(sides.len(), 2, "both sides, and not the bottom");
        let mut acts: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
        for (number, side) in sides.into_iter().enumerate() {
            let store = if number == 0 { bench.store.clone() } else { bench.other.clone() };
            let finish = super::bench::plain(&side);
            acts.push(Box::pin(async move {
                assert_eq!(store.chunks_finish(&[finish]).await.expect("chunks_finish").len(), 1);
            }));
        }
        for number in 0..6 {
            let store = if number % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            acts.push(Box::pin(async move {
                for _ in 0..3 {
                    store.chunks_stage(100).await.expect("chunks_stage");
                }
            }));
        }
        at_once(acts).await;
        is_queued(&bench, &bottom).await;
        let told = bench.history(&bottom, None).await;
        assert_eq!(told.iter().filter(|step| step.to == ChunkState::Queued).count(), 2, "each chunk once");
        let last = bench.claim(10).await;
        assert_eq!(last.len(), 2);
        bench.finish(&last).await;
    }
    bench.counts_hold().await;
}

/// Children that are submitted while their parent ends are all released.
pub(super) async fn submitting_against_the_parents_end(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for _ in 0..10 {
        let (parent, chunks) = bench.running(1).await;
        let children: Vec<NewJob> = (0..8).map(|_| child(&[&parent], OnParentFailure::Hold)).collect();
        let ids: Vec<_> = children.iter().map(|job| job.job_id.clone()).collect();
        let mut acts: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
        for job in children {
            let store = bench.other.clone();
            acts.push(Box::pin(async move {
                let answer = store.job_submit(job).await.expect("job_submit");
                assert!(matches!(answer, Submitted::Created(_)), "{answer:?}");
            }));
        }
        let (store, finish) = (bench.store.clone(), super::bench::plain(&chunks[0]));
        acts.push(Box::pin(async move {
            assert_eq!(store.chunks_finish(&[finish]).await.expect("chunks_finish").len(), 1);
        }));
        at_once(acts).await;
        for id in &ids {
            is_queued(&bench, id).await;
        }
        let claimed = bench.claim(100).await;
        assert_eq!(claimed.len(), 16);
        bench.finish(&claimed).await;
    }
}
