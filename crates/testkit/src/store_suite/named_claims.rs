//! Claims of chunks by name, as a broker's messages name them: the same chunks as by any claim, with the
//! same effects; and of every other name, why not.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::announcement::{ChunkName, NamedClaims, NotClaimed, NotNow};
use outhaul_core::id::{ChunkId, JobId, QueueId, WorkerId};
use outhaul_core::job::{JobStatus, NewJob, OnFailure};
use outhaul_core::state::ChunkState;
use outhaul_core::store::{Cancelled, Store};
use outhaul_core::worker::{Beat, ClaimedChunk, Want};

use super::bench::{Bench, Kit, LONG, MAIL, QUEUE, SETTINGS, SHORT_LEASE, at_once, job, register};
use super::text::HOSTILE;

fn name(job_id: &JobId, chunk_key: &str) -> ChunkName {
    ChunkName { job_id: job_id.to_string(), chunk_key: chunk_key.to_owned() }
}

/// The names of a job's chunks, in their order.
pub(super) fn names(job: &NewJob) -> Vec<ChunkName> {
    job.chunks.iter().map(|chunk| name(&job.job_id, &chunk.chunk_key)).collect()
}

async fn claim(bench: &Bench, names: &[ChunkName], wants: &[Want], total: u32) -> NamedClaims {
    let claims = bench.store.chunks_claim_named(bench.worker, names, wants, total).await;
    let claims = claims.expect("chunks_claim_named");
    each_has_an_answer(&claims, names.len());
    claims
}

/// Every name has one answer.
fn each_has_an_answer(claims: &NamedClaims, names: usize) {
    let claimed = claims.claimed.iter().map(|(place, _)| *place);
    let mut places: Vec<usize> = claimed.chain(claims.left.iter().map(|(place, _)| *place)).collect();
    places.sort_unstable();
    assert_eq!(places, (0..names).collect::<Vec<_>>(), "{claims:?}");
}

fn want(queue: QueueId, limit: u32) -> Want {
    Want { queue, limit }
}

/// Where the claimed ones stood.
fn places(claims: &NamedClaims) -> Vec<usize> {
    let mut places: Vec<usize> = claims.claimed.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    places
}

/// Why the name at this place was left.
fn why(claims: &NamedClaims, place: usize) -> Option<NotClaimed> {
    claims.left.iter().find(|(at, _)| *at == place).map(|(_, why)| *why)
}

fn not_now(claims: &NamedClaims, place: usize) -> Option<NotNow> {
    match why(claims, place) {
        Some(NotClaimed::NotNow { because, .. }) => Some(because),
        _ => None,
    }
}

async fn chunk_id(bench: &Bench, name: &ChunkName) -> ChunkId {
    let sql = format!(
        "select c.id from job_chunk c join job j on j.id = c.job_id
         where j.job_id = '{}' and c.chunk_key = '{}'",
        name.job_id, name.chunk_key
    );
    ChunkId(bench.probe.number(&sql).await)
}

pub(super) async fn a_named_claim_is_like_any_other(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = job(3);
    let created = bench.submit(new.clone()).await;
    let claims = claim(&bench, &names(&new)[1..2], &[want(bench.queue, 5)], 5).await;
    assert_eq!((claims.claimed.len(), claims.left.len()), (1, 0));
    let (place, named) = &claims.claimed[0];
    let other = bench.claim_one().await;
    // What any claim tells, but for which chunk it is.
    let expected = ClaimedChunk {
        lease: named.lease,
        chunk_key: new.chunks[1].chunk_key.clone(),
        key: new.chunks[1].key.clone(),
        claimed_at: named.claimed_at,
        ..other.clone()
    };
    assert_eq!((*place, named), (0, &expected));
    assert_eq!((named.lease.fence, named.attempt, named.params.clone()), (1, 1, new.params.clone()));
    assert_eq!(named.lease.chunk, chunk_id(&bench, &names(&new)[1]).await);
    assert!(named.claimed_at >= named.submitted_at && named.claimed_at <= other.claimed_at);

    assert!(bench.store.chunk_may_publish(named.lease).await.expect("chunk_may_publish"));
    let beat = bench.store.chunks_heartbeat(bench.worker, &[named.lease], &[]).await.expect("heartbeat");
    assert_eq!(beat, Beat { renewed: vec![named.lease], ..Beat::default() }, "the worker owns it");
    let shown = bench.job(&new.job_id).await;
    assert_eq!((shown.status, shown.counts.running), (JobStatus::InProgress, 2));
    assert_eq!(shown.version, created.version, "claims never touch the job row");
    let rows = bench.store.chunks_list(&new.job_id, None, None, 10).await.expect("chunks_list").items;
    let started = rows[1].started_at.expect("it has started");
    assert_eq!(started, named.claimed_at);
    assert_eq!(bench.finish(&[named.clone(), other]).await, 2);
    bench.counts_hold().await;
}

/// A claim under a fence above 1 is told by the history, the first one by the chunk itself.
pub(super) async fn a_named_claim_is_told(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = job(1);
    bench.submit(new.clone()).await;
    let wants = [want(bench.queue, 1)];
    let (_, first) = claim(&bench, &names(&new), &wants, 1).await.claimed.remove(0);
    bench.fail(&first, Some(Duration::ZERO)).await.expect("still owned");
    bench.stage().await;
    let (_, second) = claim(&bench, &names(&new), &wants, 1).await.claimed.remove(0);
    assert_eq!((second.lease.fence, second.attempt), (2, 2));
    let told = bench.history(&new.job_id, None).await;
    let claims: Vec<_> = told
        .iter()
        .filter(|step| step.to == ChunkState::Running)
        .map(|step| (step.from, step.attempt, step.worker))
        .collect();
    // Whose the first claim was is known no longer: the row has its last owner.
    let queued = Some(ChunkState::Queued);
    assert_eq!(claims, [(queued, 1, claims[0].2), (queued, 2, Some(bench.worker))]);
    assert_eq!(bench.finish(&[second]).await, 1);
    super::history::follows(&bench.history(&new.job_id, None).await);
}

/// Its lease runs out like any other.
pub(super) async fn a_named_claim_expires(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    let new = job(1);
    bench.submit(new.clone()).await;
    let claims = claim(&bench, &names(&new), &[want(bench.queue, 1)], 1).await;
    let expired = bench.expired(1).await;
    assert_eq!(expired[0].lease, claims.claimed[0].1.lease);
    assert!(!bench.store.chunk_may_publish(expired[0].lease).await.expect("chunk_may_publish"));
}

pub(super) async fn what_is_left_is_told_why(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let wants = [want(bench.queue, 100)];
    let over = async |names: &[ChunkName], what: &str| {
        let claims = claim(&bench, names, &wants, 100).await;
        let left: Vec<NotClaimed> = claims.left.iter().map(|(_, why)| *why).collect();
        assert_eq!(left, vec![NotClaimed::Over; names.len()], "{what}");
    };
    let stopped = NewJob { on_failure: OnFailure::Stop, ..job(2) };
    bench.submit(stopped.clone()).await;
    let dead = bench.claim_one().await;
    bench.fail(&dead, None).await.expect("still owned");
    over(&names(&stopped), "a dead chunk, and one of its FAILED job before any sweep").await;
    bench.stage().await;
    over(&names(&stopped), "a held chunk").await;

    let cancelled = job(2);
    bench.submit(cancelled.clone()).await;
    assert_eq!(bench.store.job_cancel(&cancelled.job_id).await.expect("job_cancel"), Cancelled::Yes);
    over(&names(&cancelled), "a CANCELLED job before any sweep").await;
    bench.stage().await;
    over(&names(&cancelled), "cancelled chunks").await;

    let several = job(4);
    bench.submit(several.clone()).await;
    let running = bench.claim(3).await;
    bench.fail(&running[1], Some(LONG)).await.expect("still owned");
    bench.finish(&running[2..]).await;
    over(&names(&several)[..3], "one that runs, one that waits for its next attempt, one that is done").await;
    let later = NewJob { run_at: Some(outhaul_core::clock::now() + LONG), ..job(1) };
    bench.submit(later.clone()).await;
    over(&names(&later), "one whose time has not come").await;
    assert_eq!(
        bench.states(&several.job_id).await,
        [ChunkState::Running, ChunkState::Retry, ChunkState::Success, ChunkState::Queued]
    );

    let gone = job(1);
    let (_, claimed) = bench.running_of(gone.clone()).await;
    bench.finish(&claimed).await;
    bench.probe.execute(&format!("update job set completed_at = {}", bench.probe.moment(0))).await;
    while bench.store.jobs_prune(LONG, 100).await.expect("jobs_prune") > 0 {}
    assert_eq!(bench.store.job_get(&gone.job_id).await.expect("job_get"), None);
    let claims = claim(&bench, &names(&gone), &wants, 100).await;
    assert_eq!(claims.left, [(0, NotClaimed::Unknown)], "a job that was pruned");
}

/// QUEUED chunks that this worker cannot have at this moment.
pub(super) async fn what_must_wait_is_told_why(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut new = job(2);
    new.chunks[1].queue = MAIL.to_owned();
    bench.submit(new.clone()).await;
    let names = names(&new);
    let because = async |wants: &[Want], total: u32| {
        let claims = claim(&bench, &names, wants, total).await;
        for (place, why) in &claims.left {
            let NotClaimed::NotNow { chunk, queue, .. } = why else { panic!("{claims:?}") };
            assert_eq!(*chunk, chunk_id(&bench, &names[*place]).await);
            assert_eq!(*queue, [bench.queue, bench.mail][*place]);
        }
        [not_now(&claims, 0), not_now(&claims, 1)]
    };
    let (nothing, unknown) = (Some(NotNow::NoSlot), Some(NotNow::UnknownQueue));
    assert_eq!(because(&[], 10).await, [unknown, unknown]);
    assert_eq!(because(&[want(bench.queue, 0)], 10).await, [nothing, unknown]);
    assert_eq!(because(&[want(bench.mail, 0), want(bench.queue, 0)], 10).await, [nothing, nothing]);
    assert_eq!(because(&[want(bench.mail, 5), want(bench.queue, 5)], 0).await, [nothing, nothing]);
    bench.store.queue_pause(QUEUE, true).await.expect("queue_pause");
    let paused = Some(NotNow::Paused);
    assert_eq!(because(&[want(bench.mail, 0), want(bench.queue, 0)], 10).await, [paused, nothing]);
    assert_eq!(because(&[want(bench.mail, 0), want(bench.queue, 5)], 10).await, [paused, nothing]);
    assert_eq!(because(&[want(bench.mail, 0), want(bench.queue, 5)], 0).await, [paused, nothing]);
    assert_eq!(bench.states(&new.job_id).await, [ChunkState::Queued; 2], "nothing was touched");
    bench.store.queue_pause(QUEUE, false).await.expect("queue_pause");
    assert_eq!(because(&[want(bench.mail, 1), want(bench.queue, 1)], 2).await, [None, None]);
    assert_eq!(bench.states(&new.job_id).await, [ChunkState::Running; 2]);
}

pub(super) async fn limits_hold_in_the_order_of_the_names(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut new = job(12);
    for chunk in &mut new.chunks[6..] {
        chunk.queue = MAIL.to_owned();
    }
    bench.submit(new.clone()).await;
    let names = names(&new);
    let order = |places: &[usize]| places.iter().map(|place| names[*place].clone()).collect::<Vec<_>>();
    let (queue, mail) = (bench.queue, bench.mail);

    // The last of its queue first: names decide, not turns.
    let claims = claim(&bench, &order(&[5, 4, 3, 11]), &[want(queue, 2), want(mail, 2)], 10).await;
    assert_eq!((places(&claims), not_now(&claims, 2)), (vec![0, 1, 3], Some(NotNow::NoSlot)));
    for (place, chunk) in &claims.claimed {
        assert_eq!(chunk.chunk_key, order(&[5, 4, 3, 11])[*place].chunk_key, "each at its own place");
    }
    let claims = claim(&bench, &order(&[10, 0, 9, 1]), &[want(queue, 9), want(mail, 9)], 3).await;
    assert_eq!((places(&claims), not_now(&claims, 3)), (vec![0, 1, 2], Some(NotNow::NoSlot)));

    // What cannot be claimed uses up nothing, and neither does a name that was there before.
    let mut mixed = order(&[0, 1, 1, 2]);
    mixed.insert(0, name(&new.job_id, "nothing"));
    let claims = claim(&bench, &mixed, &[want(queue, 2)], 2).await;
    assert_eq!(places(&claims), [2, 4]);
    assert_eq!((why(&claims, 0), why(&claims, 1)), (Some(NotClaimed::Unknown), Some(NotClaimed::Over)));
    assert_eq!(why(&claims, 3), Some(NotClaimed::Over), "a name given twice is claimed once");
    let claims = claim(&bench, &order(&[3, 6, 7, 8]), &[want(queue, 0), want(mail, 3)], 2).await;
    assert_eq!(places(&claims), [1, 2], "no slot in one queue is none the less for the other");
    assert_eq!(claim(&bench, &[], &[want(queue, 9)], 9).await, NamedClaims::default());
    assert_eq!(bench.job(&new.job_id).await.counts.running, 10);
}

/// Names are others' text: they name a chunk to the letter, or nothing.
pub(super) async fn foreign_text_names_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (new, other) = (job(1), job(2));
    bench.submit(new.clone()).await;
    bench.submit(other.clone()).await;
    let (id, key) = (new.job_id.to_string(), new.chunks[0].chunk_key.clone());
    let long = "x".repeat(3_000_000);
    let mut foreign: Vec<(String, String)> = [
        (String::new(), String::new()),
        (id.clone(), String::new()),
        (String::new(), key.clone()),
        (id.clone(), other.chunks[1].chunk_key.clone()),
        (id.clone(), key.to_lowercase()),
        (id.to_lowercase(), key.clone()),
        (id.clone(), format!("{key} ")),
        (format!(" {id}"), key.clone()),
        (id.clone(), format!("{key}\0")),
        (id.clone(), format!("{key}\0more")),
        (format!("{id}\0"), key.clone()),
        (id.clone(), "\0".to_owned()),
        (id.clone(), key.replace('K', "%")),
        (id.clone(), key.replace('K', "_")),
        (JobId::new(outhaul_core::clock::now(), 1).to_string(), key.clone()),
        ("J20260101_1".to_owned(), key.clone()),
        (long.clone(), long.clone()),
        (id.clone(), long),
    ]
    .into();
    for text in HOSTILE {
        foreign.push((id.clone(), text.to_owned()));
        foreign.push((text.to_owned(), key.clone()));
    }
    let mut names: Vec<ChunkName> =
        foreign.into_iter().map(|(job_id, chunk_key)| ChunkName { job_id, chunk_key }).collect();
    names.push(name(&new.job_id, &key));
    let claims = claim(&bench, &names, &[want(bench.queue, 100)], 100).await;
    for (place, why) in &claims.left {
        let text: String = names[*place].chunk_key.chars().take(60).collect();
        assert_eq!(*why, NotClaimed::Unknown, "{:.60} {text}", names[*place].job_id);
    }
    assert_eq!(places(&claims), [names.len() - 1], "the one real name among them is claimed");
    assert_eq!(bench.states(&other.job_id).await, [ChunkState::Queued; 2]);

    // Text that a chunk may really be called by.
    let mut hostile = job(HOSTILE.len());
    for (chunk, text) in hostile.chunks.iter_mut().zip(HOSTILE) {
        chunk.chunk_key = text.to_owned();
    }
    bench.submit(hostile.clone()).await;
    let names = self::names(&hostile);
    let claims = claim(&bench, &names, &[want(bench.queue, 100)], 100).await;
    assert_eq!(claims.claimed.len(), HOSTILE.len(), "{:?}", claims.left);
    for (place, claimed) in &claims.claimed {
        assert_eq!(claimed.chunk_key, names[*place].chunk_key);
    }
}

/// The same messages in every worker's hands, as after a broker that repeats itself; and others that claim
/// without them.
pub(super) async fn named_claimers_share_no_chunk(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = job(300);
    bench.submit(new.clone()).await;
    let queue = bench.queue;
    let mut acts: Vec<BoxFuture<'static, Vec<ClaimedChunk>>> = Vec::new();
    for n in 0..8 {
        let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        let mut open = names(&new);
        if n % 4 > 1 {
            open.reverse();
        }
        acts.push(Box::pin(async move {
            let worker = register(&*store).await;
            if n == 7 {
                return claim_unnamed(&*store, worker, queue).await;
            }
            let mut mine = Vec::new();
            while !open.is_empty() {
                let batch: Vec<ChunkName> = open.iter().take(20).cloned().collect();
                let wants = [want(queue, 7)];
                let claims = store.chunks_claim_named(worker, &batch, &wants, 9).await;
                let claims = claims.expect("chunks_claim_named");
                each_has_an_answer(&claims, batch.len());
                assert!(claims.claimed.len() <= 7, "{}", claims.claimed.len());
                // What another owns is over; the rest is asked for again.
                let mut again = HashSet::new();
                for (place, why) in &claims.left {
                    match why {
                        NotClaimed::Over => {}
                        NotClaimed::NotNow { because: NotNow::NoSlot | NotNow::Busy, .. } => {
                            again.insert(*place);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                let rest = open.split_off(batch.len());
                let kept = batch.into_iter().enumerate().filter(|(place, _)| again.contains(place));
                open = kept.map(|(_, name)| name).chain(rest).collect();
                mine.extend(claims.claimed.into_iter().map(|(_, chunk)| chunk));
            }
            mine
        }));
    }
    let all: Vec<ClaimedChunk> = at_once(acts).await.into_iter().flatten().collect();
    let distinct: HashSet<_> = all.iter().map(|chunk| chunk.lease.chunk).collect();
    assert_eq!((all.len(), distinct.len()), (300, 300), "each chunk once");
    assert!(all.iter().all(|chunk| (chunk.lease.fence, chunk.attempt) == (1, 1)));
    assert_eq!(bench.job(&new.job_id).await.counts.running, 300);
}

/// Some by turn, as a worker without a broker does.
async fn claim_unnamed(store: &dyn Store, worker: WorkerId, queue: QueueId) -> Vec<ClaimedChunk> {
    let mut mine = Vec::new();
    for _ in 0..20 {
        mine.extend(store.chunks_claim(worker, &[want(queue, 3)], 3).await.expect("chunks_claim"));
    }
    mine
}
