//! A storm of relays, a broker that loses and repeats messages, and workers that claim what the messages
//! name: every chunk is done, once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use outhaul_core::announcement::{ChunkName, NotClaimed};
use outhaul_core::id::{ChunkId, QueueId};
use outhaul_core::job::{JobStatus, NewJob, OnFailure};
use outhaul_core::store::{Store, StoreSettings};
use outhaul_core::worker::{ClaimedChunk, Failure, Finish, Want};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::announcements::name;
use super::bench::{Bench, Kit, LONG, MAIL, SETTINGS, at_once, job, plain, register};

const JOBS: usize = 8;
const CHUNKS: usize = 20;
const WINDOW: u32 = 12;

/// Messages on their way, in the order in which they were sent.
type Broker = Arc<Mutex<Vec<ChunkName>>>;

pub(super) async fn messages_lost_and_repeated_lose_no_chunk(kit: Kit) {
    let seed = kit.seed();
    let bench = kit.bench(StoreSettings { parking: true, ..SETTINGS }).await;
    let mut ids = Vec::new();
    for n in 0..JOBS {
        let mut new = NewJob { on_failure: OnFailure::Continue, priority: (n % 3) as u8, ..job(CHUNKS) };
        new.chunks.iter_mut().skip(CHUNKS / 2).for_each(|chunk| chunk.queue = MAIL.to_owned());
        ids.push(bench.submit(new).await.job_id);
    }
    let broker = Broker::default();
    let queues = [bench.queue, bench.mail];
    let mut acts: Vec<BoxFuture<'static, Vec<ChunkId>>> = Vec::new();
    for n in 0..8_u64 {
        let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        let (broker, random) = (broker.clone(), StdRng::seed_from_u64(seed.wrapping_add(n)));
        acts.push(match n {
            0..3 => Box::pin(relay(store, queues, broker, random)),
            3..7 => Box::pin(work(store, queues, broker, random)),
            _ => Box::pin(sweep(store)),
        });
    }
    let mut finished: Vec<ChunkId> = at_once(acts).await.into_iter().flatten().collect();
    bench.counts_hold().await;
    finished.extend(drain(&bench, queues, &broker).await);
    for id in &ids {
        let job = bench.job(id).await;
        assert_eq!((job.status, job.counts.done), (JobStatus::Completed, CHUNKS as i64), "{job:?}");
    }
    let distinct: HashSet<ChunkId> = finished.iter().copied().collect();
    assert_eq!((finished.len(), distinct.len()), (JOBS * CHUNKS, JOBS * CHUNKS), "each done once");
    bench.counts_hold().await;
    let deaths = bench.probe.number("select count(*) from chunk_history where to_state = 'DEAD'").await;
    let parked = bench.probe.number("select count(*) from outbox").await;
    assert_eq!(parked, deaths, "every death left its message");
}

/// Announces, as a relay does; some of it is refused, lost or doubled.
async fn relay(
    store: Arc<dyn Store>,
    queues: [QueueId; 2],
    broker: Broker,
    mut random: StdRng,
) -> Vec<ChunkId> {
    for _ in 0..60 {
        let limit = random.random_range(1..8);
        let taken = store.announcements_take(&queues, WINDOW, limit).await.expect("announcements_take");
        let (refused, sent): (Vec<_>, Vec<_>) = taken.into_iter().partition(|_| random.random_bool(0.1));
        for announcement in &sent {
            let copies = random.random_range(0..4);
            let mut broker = broker.lock().expect("no holder panics");
            broker.extend(std::iter::repeat_n(name(announcement), copies));
        }
        store.announcements_confirm(&sent, LONG).await.expect("announcements_confirm");
        let refused: Vec<ChunkId> = refused.iter().map(|announcement| announcement.chunk).collect();
        store.announcements_clear(&refused).await.expect("announcements_clear");
        if random.random_bool(0.05) {
            store.announcements_doubt().await.expect("announcements_doubt");
        }
        store.delivery_lag().await.expect("delivery_lag");
    }
    Vec::new()
}

/// Up to so many messages, from anywhere: order is no broker's promise.
fn receive(broker: &Broker, random: &mut StdRng, most: usize) -> Vec<ChunkName> {
    let mut broker = broker.lock().expect("no holder panics");
    let mut received = Vec::new();
    while received.len() < most && !broker.is_empty() {
        let place = random.random_range(0..broker.len());
        received.push(broker.swap_remove(place));
    }
    received
}

/// Works on what the messages name, as a worker does.
async fn work(
    store: Arc<dyn Store>,
    queues: [QueueId; 2],
    broker: Broker,
    mut random: StdRng,
) -> Vec<ChunkId> {
    let worker = register(&*store).await;
    let mut finished = Vec::new();
    for _ in 0..80 {
        let names = receive(&broker, &mut random, 6);
        let wants = queues.map(|queue| Want { queue, limit: random.random_range(0..5) });
        let claims = store.chunks_claim_named(worker, &names, &wants, 4).await.expect("chunks_claim_named");
        let later: Vec<ChunkId> = claims
            .left
            .iter()
            .filter_map(|(_, why)| match why {
                NotClaimed::NotNow { chunk, .. } => Some(*chunk),
                NotClaimed::Over => None,
                NotClaimed::Unknown => panic!("every message names a chunk"),
            })
            .collect();
        store.announcements_defer(&later, Duration::from_millis(1)).await.expect("announcements_defer");
        let (mut done, mut back, mut failed): (Vec<Finish>, Vec<_>, Vec<_>) = Default::default();
        for (_, chunk) in &claims.claimed {
            match random.random_range(0..10) {
                0..6 => done.push(plain(chunk)),
                6..8 => back.push(chunk.lease),
                _ => failed.push(failure(chunk, random.random_bool(0.7))),
            }
        }
        let recorded = store.chunks_finish(&done).await.expect("chunks_finish");
        finished.extend(recorded.into_iter().map(|lease| lease.chunk));
        // Given back too often in a row: it fails then, as an owner's chunk does.
        let given: HashSet<_> =
            store.chunks_return(&back).await.expect("chunks_return").into_iter().collect();
        let kept = claims.claimed.iter().filter(|(_, chunk)| back.contains(&chunk.lease));
        let kept = kept.filter(|(_, chunk)| !given.contains(&chunk.lease));
        failed.extend(kept.map(|(_, chunk)| failure(chunk, true)));
        store.chunks_fail(&failed).await.expect("chunks_fail");
    }
    finished
}

fn failure(chunk: &ClaimedChunk, again: bool) -> Failure {
    Failure {
        lease: chunk.lease,
        expired: false,
        retry_in: again.then_some(Duration::ZERO),
        cause: "broken".to_owned(),
        step: None,
        detail: None,
    }
}

async fn sweep(store: Arc<dyn Store>) -> Vec<ChunkId> {
    for _ in 0..80 {
        store.chunks_stage(20).await.expect("chunks_stage");
        for message in store.outbox_take(3).await.expect("outbox_take") {
            assert!(message.body.contains(&message.message_id), "{message:?}");
        }
    }
    Vec::new()
}

/// Redrives what died and goes on by messages alone until nothing is left; returns what was finished.
async fn drain(bench: &Bench, queues: [QueueId; 2], broker: &Broker) -> Vec<ChunkId> {
    let mut finished = Vec::new();
    bench.store.dead_letters_redrive(&Default::default(), 10_000, None).await.expect("dead_letters_redrive");
    for _ in 0..200 {
        bench.stage().await;
        let taken = bench.store.announcements_take(&queues, WINDOW, 50).await.expect("announcements_take");
        let mut names: Vec<ChunkName> = taken.iter().map(name).collect();
        names.append(&mut broker.lock().expect("no holder panics"));
        let wants = queues.map(|queue| Want { queue, limit: 1000 });
        let claims = bench.store.chunks_claim_named(bench.worker, &names, &wants, 1000).await;
        let finishes: Vec<Finish> =
            claims.expect("chunks_claim_named").claimed.iter().map(|(_, chunk)| plain(chunk)).collect();
        let done = bench.store.chunks_finish(&finishes).await.expect("chunks_finish");
        finished.extend(done.into_iter().map(|lease| lease.chunk));
        if bench.probe.number("select count(*) from job where status <> 'COMPLETED'").await == 0 {
            return finished;
        }
        // What the broker lost is announced again when its time is over.
        let past = bench.probe.moment(0);
        bench.probe.execute(&format!("update announcement set until = {past}")).await;
    }
    panic!("chunks are left that nobody announces");
}
