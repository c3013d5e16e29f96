//! Upkeep: the sweeps, count repair, pruning, and hints to other processes.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use outhaul_core::file::FileBegun;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::progress::Progress;
use outhaul_core::reuse::Reuse;
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Staged, SweepsDue};

use super::bench::{Bench, Kit, LONG, SETTINGS, eventually, job, keyed};
use super::files::{begin, generated};

pub(super) async fn the_store_is_ready_and_has_a_name(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.store.ready().await.expect("ready");
    assert!(!bench.store.installation().is_empty());
    assert_eq!(bench.store.installation(), bench.other.installation(), "the same for every process");
    let another = kit.bench(SETTINGS).await;
    assert_ne!(bench.store.installation(), another.store.installation());
}

pub(super) async fn wakeups_reach_other_processes(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let alone = Arc::ptr_eq(&bench.store, &bench.other);
    let Some(mut hints) = bench.other.wakeups().await.expect("wakeups") else {
        assert!(alone, "a store that other processes share hints to them");
        bench.store.wake_others().await.expect("harmless where there are no others");
        return;
    };
    // Said again and again, for the listener may not be listening yet when it is said first.
    let say = async {
        loop {
            bench.store.wake_others().await.expect("wake_others");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        hint = hints.next() => assert_eq!(hint, Some(())),
        () = say => {}
    }
}

pub(super) async fn staging_holds_and_cancels_in_batches(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let failed = bench.submit(job(7)).await.job_id;
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");
    let cancelled = bench.submit(job(7)).await.job_id;
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    let first = bench.store.chunks_stage(2).await.expect("chunks_stage");
    assert!(first.held <= 2 && first.cancelled <= 2, "{first:?}");
    let rest = bench.stage().await;
    let sum = (first.held + rest.held, first.cancelled + rest.cancelled, first.settled + rest.settled);
    assert_eq!(sum, (6, 7, 2));
    assert_eq!(bench.states(&failed).await[1..], [ChunkState::Created; 6]);
    assert_eq!(bench.states(&cancelled).await, [ChunkState::Cancelled; 7]);
    assert_eq!(bench.stage().await, Staged::default());
    bench.counts_hold().await;
}

pub(super) async fn what_sweeps_have_to_do_is_told(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let due = async || bench.store.sweeps_due().await.expect("sweeps_due");
    assert_eq!(due().await, SweepsDue::default(), "nothing is there");
    let (_, chunks) = bench.running(2).await;
    assert_eq!(due().await, SweepsDue::default(), "what runs or waits to be claimed is nobody's business");
    bench.fail(&chunks[0], Some(LONG)).await.expect("still owned");
    let later = due().await;
    assert!(!later.stage && later.next.is_some_and(|next| next <= LONG && next > LONG / 2), "{later:?}");
    bench.fail(&chunks[1], Some(Duration::ZERO)).await.expect("still owned");
    assert!(due().await.stage, "a retry is due");
    bench.stage().await;
    assert!(!due().await.stage, "it is queued");
    let cancelled = bench.submit(job(1)).await.job_id;
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    assert!(due().await.stage, "a cancelled job has chunks left");
    bench.stage().await;
    assert!(!due().await.stage);
    let parent = bench.submit(job(1)).await.job_id;
    bench.submit(NewJob { parents: vec![parent], ..job(1) }).await;
    assert!(due().await.stage, "a job waits for another");
}

/// Repairs wrong counts, of which there must be some: they are left alone while their job still moves.
pub(super) async fn repair(bench: &Bench) {
    eventually("quiet for long enough", || async {
        (bench.store.counts_repair(Duration::ZERO, 10).await.expect("counts_repair") > 0).then_some(())
    })
    .await;
}

pub(super) async fn counts_are_repaired(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(6).await;
    let key = chunks[0].key.as_deref().expect("exports have keys");
    bench.store.file_begin(&begin(&chunks[0], key, Reuse::Never)).await.expect("file_begin");
    bench.store.chunks_finish(&[generated(&chunks[0], key)]).await.expect("chunks_finish");
    bench.finish(&chunks[1..3]).await;
    let right = bench.job(&id).await.counts;
    for wrong in ["done = 5", "failed = 1, cancelled = 2", "reused = 3, rows = 7, bytes = 0"] {
        assert_eq!(bench.probe.execute(&format!("update job set {wrong}")).await, 1);
        assert_ne!(bench.job(&id).await.counts, right);
        repair(&bench).await;
        let job = bench.job(&id).await;
        assert_eq!((job.counts, job.status), (right, JobStatus::InProgress), "{wrong}");
        bench.counts_hold().await;
    }
    assert_eq!(
        bench.store.counts_repair(Duration::ZERO, 10).await.expect("counts_repair"),
        0,
        "all are right"
    );
    assert_eq!(bench.finish(&chunks[3..]).await, 3);
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
}

/// Counts that were too low when the last chunk finished would leave a job open for ever.
pub(super) async fn a_job_stuck_by_wrong_counts_ends(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(2).await;
    bench.finish(&chunks[..1]).await;
    bench.probe.execute("update job set done = 0").await;
    bench.finish(&chunks[1..]).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::InProgress, "stuck, as intended");
    repair(&bench).await;
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.done), (JobStatus::Completed, 2));
    assert!(job.completed_at.is_some());
}

pub(super) async fn busy_jobs_are_left_alone_by_repair(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (busy, chunks) = bench.running(2).await;
    bench.finish(&chunks[..1]).await;
    bench.probe.execute("update job set done = 2").await;
    assert_eq!(bench.store.counts_repair(LONG, 10).await.expect("counts_repair"), 0, "it moved just now");
    assert_eq!(bench.job(&busy).await.counts.done, 2);
    assert_eq!(
        bench.store.counts_repair(Duration::ZERO, 0).await.expect("counts_repair"),
        0,
        "none asked for"
    );
}

/// Prunes until nothing is left to do.
async fn prune(bench: &Bench, keep: Duration, limit: u32) -> u64 {
    let mut rows = 0;
    for _ in 0..1000 {
        let round = bench.store.jobs_prune(keep, limit).await.expect("jobs_prune");
        if round == 0 {
            return rows;
        }
        rows += round;
    }
    panic!("pruning never ends");
}

/// Prunes all that is finished, this job too; a job that has just ended is not old yet.
async fn prune_with(bench: &Bench, id: &JobId, limit: u32) {
    eventually("the job is old enough", || async {
        bench.store.jobs_prune(Duration::ZERO, limit).await.expect("jobs_prune");
        bench.store.job_get(id).await.expect("job_get").is_none().then_some(())
    })
    .await;
    prune(bench, Duration::ZERO, limit).await;
}

pub(super) async fn pruning_takes_old_finished_jobs_only(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut old = Vec::new();
    for n in 0..5 {
        let (id, chunks) = bench.running_of(keyed(job(4), &format!("key {n}"), "hash")).await;
        bench.finish(&chunks).await;
        old.push(id);
    }
    let failed = bench.submit(job(3)).await.job_id;
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");
    bench.stage().await;
    old.push(failed);
    let an_hour = Duration::from_secs(3600);
    let moved = format!("update job set completed_at = {}", bench.probe.an_hour_before("completed_at"));
    assert_eq!(bench.probe.execute(&moved).await, 6);

    let (new, chunks) = bench.running(2).await;
    bench.finish(&chunks).await;
    let (open, _) = bench.running(2).await;
    let stopping = bench.submit(job(2)).await.job_id;
    let dead = bench.claim_one().await;
    let running = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");

    assert_eq!(prune(&bench, 2 * an_hour, 3).await, 0, "nothing is that old");
    assert!(prune(&bench, an_hour / 2, 3).await >= 6);
    for id in &old {
        assert_eq!(bench.store.job_get(id).await.expect("job_get"), None, "{id} is gone");
        assert!(bench.store.chunks_list(id, None, None, 10).await.expect("chunks_list").items.is_empty());
    }
    assert_eq!(bench.probe.number("select count(*) from job").await, 3);
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 6, "their chunks went with them");
    for id in [&new, &open, &stopping] {
        assert_eq!(bench.states(id).await.len(), 2, "{id} stays whole");
    }
    bench.submit(keyed(job(1), "key 0", "another")).await;

    prune_with(&bench, &new, 3).await;
    assert_eq!(bench.states(&open).await, [ChunkState::Running; 2], "a job that runs is never old");
    assert_eq!(bench.finish(&[running]).await, 1, "nor is a failed one with a running chunk");
    assert_eq!(bench.job(&stopping).await.counts.done, 1);
}

pub(super) async fn pruning_keeps_files_and_leftovers(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) =
        bench.running_of(NewJob { on_failure: outhaul_core::job::OnFailure::Continue, ..job(2) }).await;
    for chunk in &chunks {
        let key = chunk.key.as_deref().expect("exports have keys");
        bench.store.file_begin(&begin(chunk, key, Reuse::Never)).await.expect("file_begin");
    }
    bench.store.chunks_finish(&[generated(&chunks[0], "K00000")]).await.expect("chunks_finish");
    bench.fail(&chunks[1], None).await.expect("still owned");
    prune_with(&bench, &id, 10).await;
    assert_eq!(
        bench.probe.number("select count(*) from chunk_file").await,
        0,
        "the manifest goes with the job"
    );
    let leftover = bench.store.files_leftover(10).await.expect("files_leftover");
    assert_eq!(leftover.iter().map(|left| left.leftover.lease).collect::<Vec<_>>(), [chunks[1].lease]);
    let (_, next) = bench.running(1).await;
    match bench.store.file_begin(&begin(&next[0], "K00000", Reuse::Any)).await.expect("file_begin") {
        FileBegun::Reusable(record) => assert_eq!((record.job_id, record.generation), (id, 1)),
        other => panic!("a published file outlives its job's record: {other:?}"),
    }
}

pub(super) async fn pruning_takes_steps_and_history_along(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (id, chunks) = bench.running(3).await;
        for chunk in &chunks {
            for step in ["a", "b"] {
                assert!(bench.store.step_record(chunk.lease, step, "1").await.expect("step_record"));
            }
            bench.fail(chunk, Some(Duration::ZERO)).await.expect("still owned");
        }
        bench.stage().await;
        let again = bench.claim(3).await;
        bench.fail(&again[0], None).await.expect("still owned");
        bench.finish(&again[1..]).await;
        ids.push(id);
    }
    let (rows, steps) = ("select count(*) from chunk_history", "select count(*) from step");
    let before = (bench.probe.number(rows).await, bench.probe.number(steps).await);
    assert!(before.0 > 0 && before.0 % 2 == 0 && before.1 == 12, "{before:?}");
    let old = format!(
        "update job set completed_at = {} where job_id = '{}'",
        bench.probe.an_hour_before("completed_at"),
        ids[0]
    );
    assert_eq!(bench.probe.execute(&old).await, 1);
    prune(&bench, Duration::from_secs(1800), 2).await;

    assert_eq!(bench.store.job_get(&ids[0]).await.expect("job_get"), None);
    assert_eq!(bench.history(&ids[0], None).await, []);
    assert_eq!(bench.store.steps_list(&ids[0]).await.expect("steps_list"), []);
    assert_eq!(bench.store.dead_letters_count(&Default::default()).await.expect("dead_letters_count"), 1);
    let after = (bench.probe.number(rows).await, bench.probe.number(steps).await);
    assert_eq!(after, (before.0 / 2, before.1 / 2), "half of it went, half of it stays");
    assert_eq!(bench.store.steps_list(&ids[1]).await.expect("steps_list").len(), 6);
}

/// What a failed job holds is not settled, and keeps its progress as long as the job is there.
pub(super) async fn pruning_leaves_no_progress(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(3).await;
    let (other, others) = bench.running(1).await;
    let all: Vec<Progress> = chunks
        .iter()
        .chain(&others)
        .map(|chunk| Progress { lease: chunk.lease, rows: 4, bytes: 4, fraction: 0.25 })
        .collect();
    bench.store.progress_record(&all).await.expect("progress_record");
    bench.fail(&chunks[0], Some(Duration::ZERO)).await.expect("still owned");
    bench.finish(&chunks[1..2]).await;
    bench.fail(&chunks[2], None).await.expect("still owned");
    assert_eq!(bench.stage().await.held, 1);
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.moving.rows), (JobStatus::Failed, 4));
    let rows = "select count(*) from chunk_progress";
    assert_eq!(bench.probe.number(rows).await, 2);

    prune_with(&bench, &id, 10).await;
    assert_eq!(bench.probe.number(rows).await, 1, "only that of the job that runs");
    assert_eq!(bench.job(&other).await.moving.rows, 4);
}

pub(super) async fn workers_that_are_gone_are_pruned(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    assert_eq!(bench.store.workers_prune().await.expect("workers_prune"), 0, "it has just been heard of");
    let long_ago = bench.probe.moment(bench.probe.now().await - 2 * 24 * 3600 * 1_000_000);
    bench.probe.execute(&format!("update worker set last_seen_at = {long_ago}")).await;
    assert_eq!(bench.store.workers_prune().await.expect("workers_prune"), 1);
}
