//! History: every transition of every chunk, in order, each one of those that the contract allows.

use std::time::Duration;

use outhaul_core::clock;
use outhaul_core::history::{HistoryCursor, Transition};
use outhaul_core::id::JobId;
use outhaul_core::job::{NewJob, OnFailure};
use outhaul_core::state::{Chunk, ChunkState, Event, apply};
use outhaul_core::worker::Failure;

use super::bench::{Bench, Kit, LONG, SETTINGS, SHORT_LEASE, custom, job, register};

use ChunkState::{Cancelled, Created, Dead, Queued, Retry, Running, Success};

/// The transitions of the contract, without those of waiting for others.
const ALLOWED: [(Option<ChunkState>, ChunkState); 18] = [
    (None, Created),
    (None, Queued),
    (Some(Created), Queued),
    (Some(Queued), Running),
    (Some(Running), Success),
    (Some(Running), Retry),
    (Some(Running), Queued),
    (Some(Running), Created),
    (Some(Retry), Queued),
    (Some(Retry), Dead),
    (Some(Queued), Created),
    (Some(Retry), Created),
    (Some(Created), Dead),
    (Some(Created), Cancelled),
    (Some(Queued), Cancelled),
    (Some(Retry), Cancelled),
    (Some(Running), Cancelled),
    (Some(Dead), Queued),
];

/// The transitions of one chunk follow from each other, each is allowed, and time does not go back.
pub(super) fn follows(told: &[Transition]) {
    let mut state = None;
    for (n, transition) in told.iter().enumerate() {
        assert_eq!(transition.from, state, "transition {n} of {told:#?}");
        assert!(ALLOWED.contains(&(transition.from, transition.to)), "transition {n} of {told:#?}");
        state = Some(transition.to);
    }
    assert!(told.is_sorted_by_key(|transition| transition.at), "{told:#?}");
}

/// From, to and attempt of each transition.
fn moves(told: &[Transition]) -> Vec<(Option<ChunkState>, ChunkState, u32)> {
    told.iter().map(|transition| (transition.from, transition.to, transition.attempt)).collect()
}

pub(super) async fn a_plain_success_writes_no_history(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(2).await;
    let seen = |told: &[Transition]| told.iter().map(|t| (t.to, t.worker)).collect::<Vec<_>>();
    let me = Some(bench.worker);
    let key = &chunks[1].chunk_key;
    assert_eq!(seen(&bench.history(&id, Some(key)).await), [(Queued, None), (Running, me)]);
    bench.finish(&chunks).await;
    assert_eq!(bench.probe.number("select count(*) from chunk_history").await, 0, "it is read off the chunk");

    let told = bench.history(&id, Some(key)).await;
    assert_eq!(moves(&told), [(None, Queued, 0), (Some(Queued), Running, 1), (Some(Running), Success, 1)]);
    assert_eq!(seen(&told), [(Queued, None), (Running, me), (Success, me)]);
    let row = &bench.store.chunks_list(&id, None, None, 10).await.expect("chunks_list").items[1];
    let times: Vec<_> = told.iter().map(|transition| Some(transition.at)).collect();
    assert_eq!(times, [Some(bench.job(&id).await.created_at), row.started_at, row.completed_at]);
    assert!(told.iter().all(|t| t.chunk_key == *key && t.step.is_none() && t.cause.is_none()));
    let workers = bench.store.workers_list(LONG).await.expect("workers_list");
    assert!(workers.iter().all(|worker| worker.running.is_empty()), "a finished chunk runs nowhere");
}

/// Fail, retry, fail for good, redrive, success; beside it the same on the pure state machine.
pub(super) async fn a_full_life_is_that_of_the_state_machine(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(custom()).await;
    let first = &chunks[0];
    bench.fail_with(first, Some(Duration::ZERO), Some("render"), "no template").await.expect("still owned");
    bench.stage().await;
    let other = register(&*bench.other).await;
    let wants = [outhaul_core::worker::Want { queue: bench.queue, limit: 1 }];
    let second = bench.other.chunks_claim(other, &wants, 1).await.expect("chunks_claim");
    bench.fail_with(&second[0], None, Some("deliver"), "refused").await.expect("still owned");
    bench.store.job_redrive(&id).await.expect("job_redrive");
    let third = bench.claim_one().await;
    bench.finish(&[third]).await;

    let told = bench.history(&id, None).await;
    follows(&told);
    let events = [
        Event::Claim,
        Event::FailRetryable,
        Event::Stage,
        Event::Claim,
        Event::FailFinal,
        Event::Redrive,
        Event::Claim,
        Event::Finish,
    ];
    let mut chunk = Chunk::new(true);
    let mut expected = vec![(None, chunk.state, chunk.attempt)];
    for event in events {
        let after = apply(chunk, event).expect("a possible life");
        expected.extend(machine_moves(chunk, after));
        chunk = after;
    }
    assert_eq!(moves(&told), expected);

    let (me, other) = (Some(bench.worker), Some(other));
    let workers: Vec<_> = told.iter().map(|transition| transition.worker).collect();
    assert_eq!(workers, [None, None, me, None, other, other, other, None, me, None]);
    let why: Vec<_> = told.iter().map(|t| t.step.as_deref().zip(t.cause.as_deref())).collect();
    let (render, deliver) = (Some(("render", "no template")), Some(("deliver", "refused")));
    assert_eq!(why, [None, None, render, None, None, deliver, deliver, None, None, None]);
    assert_eq!(told[5].at, told[6].at, "a final failure is one moment");
}

/// How history tells a change of the machine: a final failure passes RETRY. The attempt is the one that
/// was reached: a claim's own, else that of before.
pub(super) fn machine_moves(before: Chunk, after: Chunk) -> Vec<(Option<ChunkState>, ChunkState, u32)> {
    let attempt = if after.state == Running { after.attempt } else { before.attempt };
    match (before.state, after.state) {
        (from, to) if from == to => vec![],
        (Running, Dead) => vec![(Some(Running), Retry, attempt), (Some(Retry), Dead, attempt)],
        (from, to) => vec![(Some(from), to, attempt)],
    }
}

pub(super) async fn waiting_and_giving_back_are_told(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(NewJob { run_at: Some(clock::now() + LONG), ..custom() }).await.job_id;
    let sooner = format!("update job_chunk set run_at = {}", bench.probe.an_hour_before("run_at"));
    for _ in 0..2 {
        assert_eq!(bench.probe.execute(&sooner).await, 1);
    }
    let first = bench.claim_again().await;
    bench.store.chunks_return(&[first.lease]).await.expect("chunks_return");
    let second = bench.claim_one().await;
    assert!(bench.store.chunk_snooze(second.lease, Duration::ZERO).await.expect("chunk_snooze"));
    let third = bench.claim_again().await;
    bench.finish(&[third]).await;
    let told = bench.history(&id, None).await;
    follows(&told);
    let expected = [
        (None, Created, 0),
        (Some(Created), Queued, 0),
        (Some(Queued), Running, 1),
        (Some(Running), Queued, 1),
        (Some(Queued), Running, 1),
        (Some(Running), Created, 1),
        (Some(Created), Queued, 0),
        (Some(Queued), Running, 1),
        (Some(Running), Success, 1),
    ];
    assert_eq!(moves(&told), expected);
    let me = Some(bench.worker);
    assert_eq!((told[3].worker, told[5].worker), (me, me), "who gave it back, who let it sleep");
}

pub(super) async fn holding_and_redriving_are_told(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(job(4)).await.job_id;
    let running = bench.claim(3).await;
    bench.fail(&running[1], Some(LONG)).await.expect("still owned");
    assert!(bench.store.chunk_snooze(running[2].lease, LONG).await.expect("chunk_snooze"));
    bench.fail(&running[0], None).await.expect("still owned");
    bench.stage().await;
    bench.store.job_redrive(&id).await.expect("job_redrive");
    let all = bench.history(&id, None).await;
    let mut ends = Vec::new();
    for chunk in &job(4).chunks {
        let told = bench.history(&id, Some(&chunk.chunk_key)).await;
        follows(&told);
        let same: Vec<_> = all.iter().filter(|t| t.chunk_key == chunk.chunk_key).cloned().collect();
        assert_eq!(told, same, "one chunk is that part of the whole");
        ends.push(moves(&told[1..]));
    }
    let claim = (Some(Queued), Running, 1);
    assert_eq!(ends[0], [claim, (Some(Running), Retry, 1), (Some(Retry), Dead, 1), (Some(Dead), Queued, 1)]);
    assert_eq!(
        ends[1],
        [claim, (Some(Running), Retry, 1), (Some(Retry), Created, 1), (Some(Created), Queued, 1)]
    );
    assert_eq!(
        ends[2],
        [claim, (Some(Running), Created, 1), (Some(Created), Queued, 0)],
        "held where it was"
    );
    assert_eq!(ends[3], [(Some(Queued), Created, 0), (Some(Created), Queued, 0)]);
}

pub(super) async fn cancelling_is_told(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let id = bench.submit(NewJob { on_failure: OnFailure::Continue, ..job(6) }).await.job_id;
    let running = bench.claim(5).await;
    bench.fail(&running[0], Some(LONG)).await.expect("still owned");
    assert!(bench.store.chunk_snooze(running[1].lease, LONG).await.expect("chunk_snooze"));
    bench.store.job_cancel(&id).await.expect("job_cancel");
    bench.stage().await;
    bench.store.chunks_cancel(&[running[2].lease]).await.expect("chunks_cancel");
    bench.fail(&running[3], Some(LONG)).await.expect("still owned");
    let lost = Failure {
        lease: running[4].lease,
        expired: true,
        retry_in: None,
        cause: "lost".to_owned(),
        step: None,
        detail: None,
    };
    bench.expired(1).await;
    bench.store.chunks_fail(&[lost]).await.expect("chunks_fail");

    let mut ends = Vec::new();
    for chunk in &job(6).chunks {
        let told = bench.history(&id, Some(&chunk.chunk_key)).await;
        follows(&told);
        let last = told.last().expect("it was inserted");
        ends.push((last.from.expect("it moved"), last.to, last.worker.is_some(), last.cause.is_some()));
    }
    assert_eq!(
        ends,
        [
            (Retry, Cancelled, false, false),
            (Created, Cancelled, false, false),
            (Running, Cancelled, true, false),
            (Running, Cancelled, true, true),
            (Running, Cancelled, true, true),
            (Queued, Cancelled, false, false),
        ]
    );
}

pub(super) async fn lost_leases_are_told(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let (id, chunks) = bench.running_of(custom()).await;
    let lost = |lease, retry_in| Failure {
        lease,
        expired: true,
        retry_in,
        cause: "the worker stopped answering".to_owned(),
        step: None,
        detail: None,
    };
    bench.expired(1).await;
    let failure = lost(chunks[0].lease, Some(Duration::ZERO));
    bench.store.chunks_fail(std::slice::from_ref(&failure)).await.expect("chunks_fail");
    bench.store.chunks_fail(&[failure]).await.expect("chunks_fail");
    let again = bench.claim_again().await;
    bench.expired(1).await;
    bench.store.chunks_fail(&[lost(again.lease, None)]).await.expect("chunks_fail");
    let told = bench.history(&id, None).await;
    follows(&told);
    let states: Vec<_> = told.iter().map(|transition| transition.to).collect();
    assert_eq!(
        states,
        [Queued, Running, Retry, Queued, Running, Retry, Dead],
        "what was refused is not told"
    );
    let lost: Vec<_> = told.iter().filter(|t| t.cause.is_some()).map(|t| (t.attempt, t.worker)).collect();
    let me = Some(bench.worker);
    assert_eq!(lost, [(1, me), (2, me), (2, me)], "who lost it");
}

async fn pages(bench: &Bench, id: &JobId, chunk_key: Option<&str>, limit: u32) -> Vec<Transition> {
    let (mut all, mut after): (Vec<Transition>, Option<HistoryCursor>) = (Vec::new(), None);
    for _ in 0..1000 {
        let page = bench.store.history_list(id, chunk_key, after, limit).await.expect("history_list");
        assert!(page.items.len() <= limit as usize);
        all.extend(page.items);
        let Some(next) = page.next else { return all };
        assert!(after.is_none_or(|after| after < next), "pages go on");
        after = Some(next);
    }
    panic!("history never ends");
}

pub(super) async fn history_pages_completely(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(NewJob { on_failure: OnFailure::Continue, ..job(5) }).await.job_id;
    for round in 0..3 {
        let chunks = bench.claim(4).await;
        // Many at one moment: only chunk and sequence tell them apart.
        let failures: Vec<Failure> = chunks
            .iter()
            .map(|chunk| Failure {
                lease: chunk.lease,
                expired: false,
                retry_in: (round < 2).then_some(Duration::ZERO),
                cause: "broken".to_owned(),
                step: None,
                detail: None,
            })
            .collect();
        bench.store.chunks_fail(&failures).await.expect("chunks_fail");
        bench.stage().await;
    }
    let (_, others) = bench.running_of(NewJob { priority: 9, ..job(1) }).await;
    bench.fail(&others[0], None).await.expect("still owned");

    let whole = bench.history(&id, None).await;
    assert!(whole.len() > 25 && whole.is_sorted_by_key(|transition| transition.at), "{whole:#?}");
    for limit in 1..=whole.len() as u32 + 1 {
        assert_eq!(pages(&bench, &id, None, limit).await, whole, "limit {limit}");
    }
    let key = &job(1).chunks[0].chunk_key;
    let one = bench.history(&id, Some(key)).await;
    follows(&one);
    for limit in 1..=one.len() as u32 {
        assert_eq!(pages(&bench, &id, Some(key), limit).await, one, "limit {limit}");
    }
    assert_eq!(bench.history(&id, Some("key=K%")).await, [], "a name, not a pattern");
    assert_eq!(bench.history(&JobId::new(clock::now(), 1), None).await, [], "no such job");
}
