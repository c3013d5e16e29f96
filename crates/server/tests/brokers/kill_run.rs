//! The kill run with a broker: two API processes, three workers and a scheduler export many chunks while
//! workers, relays (every worker and scheduler has one) and the broker are killed with `kill -9`.

use std::sync::Arc;
use std::time::Duration;

use outhaul_testkit::servers::BrokerKind;
use rand::RngExt;
use tokio::sync::Mutex;
use tokio::task::block_in_place;

use crate::common::killing::{Progress, StopKilling, done};
use crate::common::{Client, Process, history, large_export};
use crate::site::Site;
use crate::with_both;

with_both!(a_large_job_survives_kills);

/// One run has a dozen processes, which is enough for a machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

async fn a_large_job_survives_kills(kind: BrokerKind) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let site = Arc::new(Site::own(kind, "", &large_export::sections()).await);
    let first = site.stack.serve("api-1", "api").await;
    let second = site.stack.serve("api-2", "api").await;
    let id = first.client().submit(&large_export::request()).await;

    let stop = StopKilling::default();
    let job = Watched { client: first.client(), id: id.clone() };
    let killer = tokio::spawn(kill_processes(site.clone(), job.clone(), stop.progress()));
    let broker_killer = tokio::spawn(kill_broker(site.clone(), job, stop.progress()));
    // The other process answers for the same job.
    let client = second.client();
    let job = client.wait_for(&id, "COMPLETED").await;
    drop(stop);
    let broker_kills = broker_killer.await.expect("the killer of the broker ends");
    let killed = killer.await.expect("the killer ends");
    assert!(
        killed.worker_kills >= 6 && killed.scheduler_kills >= 2 && broker_kills >= 2,
        "little happened: {} workers, {} schedulers, {broker_kills} brokers killed",
        killed.worker_kills,
        killed.scheduler_kills
    );

    // Those who live deal with what is left on the queues.
    site.is_empty().await;
    history::all_succeeded(&client, &id, large_export::chunks() as usize).await;
    large_export::is_complete(&client, &site.stack, &job).await;
}

/// The job that kills go by.
#[derive(Clone)]
struct Watched {
    client: Client,
    id: String,
}

struct Killed {
    worker_kills: u32,
    scheduler_kills: u32,
    /// Those that took the places of the killed.
    _alive: Vec<Process>,
}

/// Kills workers and schedulers, and starts others in their places, until the job is over.
async fn kill_processes(site: Arc<Site>, job: Watched, mut progress: Progress) -> Killed {
    const NAMES: [(&str, &str); 4] =
        [("worker-0", "worker"), ("worker-1", "worker"), ("worker-2", "worker"), ("scheduler", "scheduler")];
    let spawn = |place: usize| {
        let (name, roles) = NAMES[place];
        site.stack.spawn(name, roles)
    };
    let mut alive: Vec<Process> = (0..NAMES.len()).map(spawn).collect();
    let (mut worker_kills, mut scheduler_kills) = (0, 0);
    while progress.goes_on(5..40, || done(&job.client, &job.id)).await {
        // The scheduler after every three workers.
        let victim = if worker_kills < 3 * (scheduler_kills + 1) {
            worker_kills += 1;
            rand::rng().random_range(0..3)
        } else {
            scheduler_kills += 1;
            3
        };
        alive[victim].kill9();
        alive[victim] = spawn(victim);
    }
    Killed { worker_kills, scheduler_kills, _alive: alive }
}

/// Kills the broker three times on the way, and starts it again.
async fn kill_broker(site: Arc<Site>, job: Watched, mut progress: Progress) -> u32 {
    let mut kills = 0;
    let all = u64::from(large_export::chunks());
    while kills < 3 && progress.goes_on(all / 20..all * 3 / 10, || done(&job.client, &job.id)).await {
        block_in_place(|| {
            site.own_broker().kill9();
            std::thread::sleep(Duration::from_millis(rand::rng().random_range(0..1500)));
            site.own_broker().start_again();
        });
        kills += 1;
    }
    kills
}
