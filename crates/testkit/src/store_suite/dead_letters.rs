//! Dead letters: what is listed, what a filter finds, and what a redrive moves.

use std::time::Duration;

use outhaul_core::audit::{AuditAct, AuditFilter};
use outhaul_core::dead_letter::{DeadLetter, DeadLetterCursor, DeadLetterFilter};
use outhaul_core::id::JobId;
use outhaul_core::job::{EXPORT, JobStatus, NewJob, OnFailure};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Redriven, Redriver};

use super::bench::{Bench, Kit, SETTINGS, at_once, custom, job};

fn all() -> DeadLetterFilter {
    DeadLetterFilter::default()
}

fn text(text: &str) -> DeadLetterFilter {
    DeadLetterFilter { text: Some(text.to_owned()), ..all() }
}

/// What a filter finds.
async fn listed(bench: &Bench, filter: &DeadLetterFilter) -> Vec<DeadLetter> {
    let page = bench.other.dead_letters_list(filter, None, 1000).await.expect("dead_letters_list");
    assert_eq!(page.next, None);
    page.items
}

async fn count(bench: &Bench, filter: &DeadLetterFilter) -> u64 {
    bench.store.dead_letters_count(filter).await.expect("dead_letters_count")
}

/// What a filter finds; its count must agree, where no job was cancelled.
async fn letters(bench: &Bench, filter: &DeadLetterFilter) -> Vec<DeadLetter> {
    let found = listed(bench, filter).await;
    assert_eq!(count(bench, filter).await, found.len() as u64, "{filter:?}");
    found
}

async fn redrive(bench: &Bench, filter: &DeadLetterFilter, limit: u32) -> u64 {
    bench.store.dead_letters_redrive(filter, limit, None).await.expect("dead_letters_redrive")
}

fn by(actor: &str, detail: Option<&str>) -> Redriver {
    Redriver { actor: actor.to_owned(), detail: detail.map(str::to_owned) }
}

/// Who redrove which job, and what was said of it; the first first.
async fn recorded(bench: &Bench) -> Vec<(String, Option<JobId>, Option<String>)> {
    let filter = AuditFilter { act: Some(AuditAct::Redrive), ..AuditFilter::default() };
    let rows = bench.other.audit_list(&filter, None, 1000).await.expect("audit_list").items;
    rows.into_iter().rev().map(|row| (row.entry.actor, row.entry.job_id, row.entry.detail)).collect()
}

/// A job whose one chunk is dead.
async fn dead(bench: &Bench, new: NewJob, step: Option<&str>, cause: &str) -> JobId {
    let (id, chunks) = bench.running_of(new).await;
    assert_eq!(bench.fail_with(&chunks[0], None, step, cause).await, Some(ChunkState::Dead));
    id
}

pub(super) async fn a_dead_chunk_is_a_letter_until_it_is_redriven(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(custom()).await;
    bench.fail_with(&chunks[0], Some(Duration::ZERO), Some("render"), "first").await.expect("still owned");
    assert_eq!(letters(&bench, &all()).await, [], "it is tried again");
    let again = bench.claim_again().await;
    bench.fail_with(&again, None, Some("deliver"), "550 no such user").await.expect("still owned");

    let found = letters(&bench, &all()).await;
    let told = bench.history(&id, None).await;
    let letter = DeadLetter {
        job_id: id.clone(),
        chunk_key: "main".to_owned(),
        job_type: "SEND_EMAIL".to_owned(),
        dataset: None,
        cause: "550 no such user".to_owned(),
        step: Some("deliver".to_owned()),
        attempts: 2,
        first_failed_at: found[0].first_failed_at,
        last_failed_at: found[0].last_failed_at,
    };
    assert_eq!(found, std::slice::from_ref(&letter));
    assert!(letter.first_failed_at < letter.last_failed_at);
    // Between the claim and the failure that history tells of.
    for (claimed, at, failed) in [(1, letter.first_failed_at, 2), (4, letter.last_failed_at, 6)] {
        assert!((told[claimed].at..=told[failed].at).contains(&at), "{at}: {told:#?}");
    }

    assert_eq!(redrive(&bench, &all(), 10).await, 1);
    assert_eq!(letters(&bench, &all()).await, []);
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.error_message, job.counts.failed), (JobStatus::InProgress, None, 0));
    let third = bench.claim_one().await;
    assert_eq!(third.attempt, 1, "attempts start anew");
    bench.fail_with(&third, None, None, "again").await.expect("still owned");
    let found = letters(&bench, &all()).await;
    assert_eq!((found[0].attempts, &found[0].step), (1, &None));
    assert!(found[0].first_failed_at > letter.last_failed_at, "so does the time of the first failure");
    assert!(found[0].first_failed_at <= found[0].last_failed_at);

    redrive(&bench, &all(), 10).await;
    let last = bench.claim_one().await;
    bench.finish(&[last]).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    assert_eq!(redrive(&bench, &all(), 10).await, 0);
    bench.counts_hold().await;
}

/// What only operators may read is in dead letters and history, and in nothing that the job shows.
pub(super) async fn operators_are_told_more(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(custom()).await;
    let failure = |lease, retry_in, detail: Option<&str>| outhaul_core::worker::Failure {
        lease,
        expired: false,
        retry_in,
        cause: "cannot connect".to_owned(),
        step: Some("deliver".to_owned()),
        detail: detail.map(str::to_owned),
    };
    let fail = async |failure| {
        let settled = bench.store.chunks_fail(&[failure]).await.expect("chunks_fail");
        assert_eq!(settled.len(), 1, "still owned");
    };
    let shown = async || {
        let chunk = bench.store.chunks_list(&id, None, None, 10).await.expect("chunks_list").items.remove(0);
        (bench.job(&id).await.error_message, chunk.error_message)
    };
    let whole = "cannot connect to 10.0.0.7:8025: connection refused";
    fail(failure(chunks[0].lease, Some(Duration::ZERO), Some(whole))).await;
    let cause = Some("cannot connect".to_owned());
    assert_eq!(shown().await, (None, cause.clone()));
    let again = bench.claim_again().await;
    fail(failure(again.lease, None, Some(whole))).await;
    let sentence = Some("Chunk failed after retries: step=deliver: cannot connect".to_owned());
    assert_eq!(shown().await, (sentence.clone(), cause.clone()));

    assert_eq!(letters(&bench, &all()).await[0].cause, whole);
    assert_eq!(letters(&bench, &text("10.0.0.7")).await.len(), 1, "they can look for it");
    let told: Vec<_> = bench.history(&id, None).await.into_iter().filter_map(|entry| entry.cause).collect();
    assert_eq!(told, [whole; 3], "of the retry, and twice of the death");

    // A later failure without more to tell leaves nothing of the one before.
    assert_eq!(redrive(&bench, &text("10.0.0.7"), 10).await, 1);
    let last = bench.claim_one().await;
    fail(failure(last.lease, None, None)).await;
    assert_eq!(letters(&bench, &all()).await[0].cause, "cannot connect");
    assert_eq!(letters(&bench, &text("10.0.0.7")).await, []);
    assert_eq!(shown().await, (sentence, cause));
}

pub(super) async fn letters_page_newest_first(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(NewJob { on_failure: OnFailure::Continue, ..job(5) }).await.job_id;
    let chunks = bench.claim(5).await;
    // Some at one moment: only the chunk tells them apart.
    let failure = |n: usize| outhaul_core::worker::Failure {
        lease: chunks[n].lease,
        expired: false,
        retry_in: None,
        cause: format!("cause {n}"),
        step: None,
        detail: None,
    };
    bench.store.chunks_fail(&[failure(1), failure(0), failure(2)]).await.expect("chunks_fail");
    bench.store.chunks_fail(&[failure(4)]).await.expect("chunks_fail");
    bench.store.chunks_fail(&[failure(3)]).await.expect("chunks_fail");
    for n in 0..4 {
        dead(&bench, custom(), None, &format!("other {n}")).await;
    }
    let whole = letters(&bench, &all()).await;
    assert_eq!(whole.len(), 9);
    assert!(whole.is_sorted_by(|a, b| a.last_failed_at >= b.last_failed_at), "{whole:#?}");
    let causes: Vec<_> = whole.iter().map(|letter| letter.cause.as_str()).collect();
    assert_eq!(causes[..6], ["other 3", "other 2", "other 1", "other 0", "cause 3", "cause 4"]);
    assert_eq!(whole.iter().filter(|letter| letter.job_id == id).count(), 5);
    for limit in 1..=10 {
        let (mut read, mut after): (Vec<DeadLetter>, Option<DeadLetterCursor>) = (Vec::new(), None);
        loop {
            let page = bench.store.dead_letters_list(&all(), after, limit).await.expect("dead_letters_list");
            assert!(page.items.len() <= limit as usize);
            read.extend(page.items);
            assert!(read.len() <= whole.len(), "limit {limit} repeats letters");
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(read, whole, "limit {limit}");
    }
}

pub(super) async fn letters_are_filtered(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let a = dead(&bench, custom(), Some("Deliver"), r"100%_done \ 'quoted'").await;
    let b = dead(&bench, job(1), None, "100 done: the Source went away").await;
    let other = NewJob { dataset: Some("trades".to_owned()), ..job(1) };
    let c = dead(&bench, other, None, "timeout").await;
    let mut letters_of: Vec<_> = letters(&bench, &all()).await;
    letters_of.reverse();
    let times: Vec<_> = letters_of.iter().map(|letter| letter.last_failed_at).collect();
    assert!(times.is_sorted_by(|x, y| x < y), "one after the other: {times:?}");

    let by_type = |name: &str| DeadLetterFilter { job_type: Some(name.to_owned()), ..all() };
    let by_dataset = |name: &str| DeadLetterFilter { dataset: Some(name.to_owned()), ..all() };
    let cases: Vec<(DeadLetterFilter, Vec<&JobId>)> = vec![
        (all(), vec![&c, &b, &a]),
        (DeadLetterFilter { job_id: Some(b.clone()), ..all() }, vec![&b]),
        (by_type("SEND_EMAIL"), vec![&a]),
        (by_type(EXPORT), vec![&c, &b]),
        (by_type("send_email"), vec![]),
        (by_dataset("trades"), vec![&c]),
        (by_dataset("positions"), vec![&b]),
        (DeadLetterFilter { job_type: Some("SEND_EMAIL".to_owned()), ..by_dataset("trades") }, vec![]),
        (text("TIMEOUT"), vec![&c]),
        (text("the source"), vec![&b]),
        (text("deliver"), vec![&a]),
        (text("100"), vec![&b, &a]),
        (text("0%"), vec![&a]),
        (text("100%done"), vec![]),
        (text("_done"), vec![&a]),
        (text("%_"), vec![&a]),
        (text(r"\"), vec![&a]),
        (text("'QUOTED'"), vec![&a]),
        (text("main"), vec![&a]),
        (text("KEY=k00000:DATE"), vec![&c, &b]),
        (text(&c.as_str().to_lowercase()), vec![&c]),
        (text("wentaway"), vec![]),
        (text("awaykey"), vec![]),
        (text(""), vec![&c, &b, &a]),
        (DeadLetterFilter { after: Some(times[1]), ..all() }, vec![&c, &b]),
        (DeadLetterFilter { before: Some(times[1]), ..all() }, vec![&a]),
        (DeadLetterFilter { after: Some(times[1]), before: Some(times[2]), ..all() }, vec![&b]),
        (DeadLetterFilter { after: Some(times[1]), before: Some(times[1]), ..all() }, vec![]),
        (DeadLetterFilter { after: Some(times[0]), ..text("100") }, vec![&b, &a]),
    ];
    for (filter, expected) in &cases {
        let found: Vec<JobId> =
            letters(&bench, filter).await.into_iter().map(|letter| letter.job_id).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), *expected, "{filter:?}");
        let page = bench.store.dead_letters_list(filter, None, 1).await.expect("dead_letters_list");
        assert_eq!(page.items.first().map(|letter| &letter.job_id), expected.first().copied(), "{filter:?}");
        assert_eq!(page.next.is_some(), expected.len() > 1, "{filter:?}");
    }
    // A redrive moves what the same filter lists.
    for (filter, expected) in cases.iter().filter(|(_, expected)| expected.len() == 1) {
        assert_eq!(redrive(&bench, filter, 10).await, 1, "{filter:?}");
        let job = bench.job(expected[0]).await;
        assert_eq!(job.status, JobStatus::InProgress, "{filter:?}");
        assert_eq!(letters(&bench, &all()).await.len(), 2, "{filter:?}");
        // Back to where it was, at the time it had.
        let again = bench.claim_one().await;
        let n = [&a, &b, &c].iter().position(|id| *id == expected[0]).expect("one of them");
        let was = &letters_of[n];
        bench.fail_with(&again, None, was.step.as_deref(), &was.cause).await.expect("still owned");
        let micros = was.last_failed_at.timestamp_micros();
        bench
            .probe
            .execute(&format!(
                "update job_chunk set completed_at = {} where id = {}",
                bench.probe.moment(micros),
                again.lease.chunk.0
            ))
            .await;
    }
    bench.counts_hold().await;
}

pub(super) async fn a_redrive_takes_the_oldest_first(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(dead(&bench, custom(), None, &format!("cause {n}")).await);
    }
    assert_eq!(redrive(&bench, &all(), 0).await, 0, "none asked for");
    assert_eq!(redrive(&bench, &text("cause 4"), 10).await, 1, "what the filter says");
    assert_eq!(redrive(&bench, &all(), 2).await, 2);
    let left: Vec<JobId> = letters(&bench, &all()).await.into_iter().map(|letter| letter.job_id).collect();
    assert_eq!(left.iter().collect::<Vec<_>>(), [&ids[5], &ids[3], &ids[2]], "the two oldest went");
    let matched = bench.store.dead_letters_count(&all()).await.expect("dead_letters_count");
    assert_eq!(redrive(&bench, &all(), 1000).await, matched, "what a dry run says is what moves");
    let claimed = bench.claim(10).await;
    assert_eq!(claimed.len(), 6);
    assert_eq!(bench.finish(&claimed).await, 6);
    for id in &ids {
        assert_eq!(bench.job(id).await.status, JobStatus::Completed);
    }
    bench.counts_hold().await;
}

/// Of a job that stopped, one dead chunk is redriven: what was held goes on with it, the other dead one
/// stays, and so does what the job says of it.
pub(super) async fn other_dead_chunks_of_a_job_stay_dead(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(4)).await.job_id;
    let running = bench.claim(2).await;
    bench.fail_with(&running[0], None, None, "first").await.expect("still owned");
    bench.fail_with(&running[1], None, None, "second").await.expect("still owned");
    bench.stage().await;
    use ChunkState::{Created, Dead, Queued, Success};
    assert_eq!(bench.states(&id).await, [Dead, Dead, Created, Created]);

    assert_eq!(redrive(&bench, &text("first"), 10).await, 1);
    assert_eq!(bench.states(&id).await, [Queued, Dead, Queued, Queued]);
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.failed, job.completed_at), (JobStatus::InProgress, 1, None));
    assert!(job.error_message.is_some(), "one is still dead");
    bench.counts_hold().await;
    bench.stage().await;
    for _ in 0..3 {
        let chunk = bench.claim_again().await;
        bench.finish(&[chunk]).await;
    }
    assert_eq!(bench.states(&id).await, [Success, Dead, Success, Success]);
    let job = bench.job(&id).await;
    assert_eq!((job.status, job.counts.done, job.counts.failed), (JobStatus::Failed, 3, 1));
    assert!(job.completed_at.is_some() && job.error_message.is_some());

    assert_eq!(redrive(&bench, &all(), 10).await, 1);
    let chunk = bench.claim_one().await;
    bench.finish(&[chunk]).await;
    assert_eq!(bench.job(&id).await.status, JobStatus::Completed);
    bench.counts_hold().await;
}

/// A cancelled job stays so; its dead chunk is listed, does not move, and stands in nobody's way.
pub(super) async fn letters_of_cancelled_jobs_stay(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (cancelled, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(2) }).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    let failed = dead(&bench, custom(), None, "broken").await;
    assert_eq!(listed(&bench, &all()).await.len(), 2);
    assert_eq!(count(&bench, &all()).await, 1, "those that may move");
    assert_eq!(redrive(&bench, &all(), 1).await, 1, "the oldest that may move");
    assert_eq!(bench.job(&failed).await.status, JobStatus::InProgress);
    assert_eq!(redrive(&bench, &all(), 10).await, 0);
    assert_eq!(count(&bench, &all()).await, 0);
    let left: Vec<JobId> = listed(&bench, &all()).await.into_iter().map(|letter| letter.job_id).collect();
    assert_eq!(left, std::slice::from_ref(&cancelled));
    assert_eq!(bench.job(&cancelled).await.status, JobStatus::Cancelled);
    bench.counts_hold().await;
}

/// One entry for each job, if and only if it was redriven.
pub(super) async fn a_redrive_is_on_record_with_each_of_its_jobs(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (several, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(3) }).await;
    for chunk in &chunks {
        bench.fail_with(chunk, None, None, "broken").await.expect("still owned");
    }
    let one = dead(&bench, custom(), None, "broken, it's \"K\u{f6}ln\"").await;
    let other = dead(&bench, custom(), None, "timeout").await;
    let (cancelled, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(2) }).await;
    bench.fail_with(&chunks[0], None, None, "broken").await.expect("still owned");
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");
    let olga = by("olga", Some("it's \"K\u{f6}ln\" \\"));
    let redrive = async |text: &str, limit: u32, by: Option<&Redriver>| {
        let filter = self::text(text);
        bench.store.dead_letters_redrive(&filter, limit, by).await.expect("dead_letters_redrive")
    };

    assert_eq!(redrive("nothing like it", 10, Some(&olga)).await, 0);
    assert_eq!(redrive("broken", 0, Some(&olga)).await, 0);
    assert_eq!(recorded(&bench).await, [], "what moves nothing is not on record");
    assert_eq!(redrive("timeout", 10, None).await, 1);
    assert_eq!(recorded(&bench).await, [], "nor what nobody is known to have done");
    assert_eq!(redrive("broken", 10, Some(&olga)).await, 4);
    let entry = |id: &JobId| ("olga".to_owned(), Some(id.clone()), olga.detail.clone());
    assert_eq!(recorded(&bench).await, [entry(&several), entry(&one)], "not the job that was cancelled");
    assert_eq!(redrive("broken", 10, Some(&olga)).await, 0);
    assert_eq!(recorded(&bench).await.len(), 2, "once");

    for chunk in bench.claim(10).await {
        bench.fail_with(&chunk, None, None, "again").await.expect("still owned");
    }
    assert_eq!(redrive("again", 1000, Some(&by("pat", None))).await, 5);
    let pats: Vec<_> = recorded(&bench).await.split_off(2);
    let jobs: Vec<&JobId> = pats.iter().filter_map(|(_, id, _)| id.as_ref()).collect();
    assert_eq!(jobs.len(), 3, "{pats:?}");
    assert!([&several, &one, &other].iter().all(|id| jobs.contains(id)), "{pats:?}");
    assert!(pats.iter().all(|(actor, _, detail)| actor == "pat" && detail.is_none()), "{pats:?}");
    bench.counts_hold().await;
}

pub(super) async fn twenty_redrives_at_once_move_each_letter_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    for n in 0..10 {
        let on_failure = if n % 2 == 0 { OnFailure::Stop } else { OnFailure::Continue };
        let (id, chunks) = bench.running_of(NewJob { on_failure, ..job(3) }).await;
        for chunk in &chunks {
            bench.fail(chunk, None).await.expect("still owned");
        }
        ids.push(id);
    }
    bench.stage().await;
    let acts = (0..20)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let (limit, id) = (if n % 4 < 2 { 1000 } else { 4 }, ids[n % 10].clone());
            async move {
                if n >= 18 {
                    // A person redrives one of the jobs at the same time.
                    match store.job_redrive(&id).await.expect("job_redrive") {
                        Redriven::Yes(moved) => moved.unsigned_abs(),
                        _ => 0,
                    }
                } else {
                    let by = by(&n.to_string(), None);
                    let redriven = store.dead_letters_redrive(&all(), limit, Some(&by)).await;
                    redriven.expect("dead_letters_redrive")
                }
            }
        })
        .collect();
    let moved = at_once(acts).await;
    assert_eq!(moved.iter().sum::<u64>(), 30, "each letter is moved, and counted, once");
    assert_eq!(letters(&bench, &all()).await, []);
    for id in &ids {
        let job = bench.job(id).await;
        assert_eq!((job.status, job.counts.failed), (JobStatus::InProgress, 0));
        let told = bench.history(id, None).await;
        assert_eq!(told.iter().filter(|t| t.from == Some(ChunkState::Dead)).count(), 3);
    }
    let recorded = recorded(&bench).await;
    let of = |n: usize| recorded.iter().filter(|(actor, ..)| *actor == n.to_string()).count() as u64;
    for (n, moved) in moved.iter().enumerate().take(18) {
        assert_eq!(of(n) > 0, *moved > 0, "who moved something is on record, and nobody else: {recorded:?}");
        assert!(of(n) <= *moved, "once for each job: {recorded:?}");
    }
    bench.counts_hold().await;
    assert_eq!(bench.claim(100).await.len(), 30);
}
