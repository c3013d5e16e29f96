//! The poller and its clients, with a database that says what the test wants. Rounds are run by hand, so
//! that nothing here depends on the time they take.

use std::sync::atomic::{AtomicUsize, Ordering};

use outhaul_core::job::JobStatus;
use outhaul_core::store::StoreError;

use super::super::job_view::tests::half_done;
use super::*;

/// Jobs that the test changes, and how often they were asked for.
#[derive(Default)]
struct Told {
    jobs: Mutex<HashMap<JobId, Job>>,
    away: std::sync::atomic::AtomicBool,
    steps_read: AtomicUsize,
    largest_batch: AtomicUsize,
    /// Run once, in the middle of the next look.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

#[async_trait]
impl Source for Arc<Told> {
    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Job>> {
        self.largest_batch.fetch_max(ids.len(), Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("it is away".into()));
        }
        let found = ids.iter().filter_map(|id| self.jobs.lock().unwrap().get(id).cloned()).collect();
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        Ok(found)
    }

    async fn steps(&self, _: &Job) -> StoreResult<Known> {
        self.steps_read.fetch_add(1, Ordering::SeqCst);
        Ok(Known::default())
    }
}

struct World {
    told: Arc<Told>,
    watch: Watch,
}

impl World {
    fn new() -> Self {
        let told = Arc::new(Told::default());
        let watch = Watch::of(Box::new(told.clone()), 600, CancellationToken::new());
        Self { told, watch }
    }

    fn set(&self, job: &Job) {
        self.told.jobs.lock().unwrap().insert(job.job_id.clone(), job.clone());
    }

    /// A client that has just read the job.
    fn follow(&self, job: &Job) -> Watcher {
        self.watch.follow(self.watch.place(ANONYMOUS).unwrap(), job.clone(), vec![])
    }

    async fn round(&self) -> bool {
        self.watch.0.round().await.unwrap()
    }
}

fn done(job: &Job, done: i64) -> Job {
    let mut next = job.clone();
    next.counts.done = done;
    next.version += 1;
    next.shown_version += 1;
    next
}

fn over(job: &Job) -> Job {
    Job { status: JobStatus::Completed, completed_at: Some(job.created_at), ..done(job, 4) }
}

/// What the client has to take right now, if anything; never waits for news.
async fn waiting(watcher: &mut Watcher) -> Option<Arc<Seen>> {
    watcher.due = Instant::now();
    // Without it the runtime would, now and then, ask for a pause before it tells what is there.
    tokio::task::unconstrained(watcher.next()).now_or_never().flatten()
}

fn done_of(seen: Option<Arc<Seen>>) -> i64 {
    let json: serde_json::Value = serde_json::from_str(&seen.expect("a state").json).unwrap();
    json["done"].as_i64().unwrap()
}

#[tokio::test]
async fn the_present_state_comes_first_then_changes_and_nothing_else() {
    let (world, job) = (World::new(), half_done());
    world.set(&job);
    let mut client = world.follow(&job);
    let first = client.next().await.unwrap();
    assert_eq!(first.version, 3);
    let shown: serde_json::Value = serde_json::from_str(&first.json).unwrap();
    assert_eq!(first.json, shown.to_string(), "one line of JSON");
    assert!(world.round().await);
    assert!(waiting(&mut client).await.is_none(), "the same once more is no news");
    world.set(&done(&job, 3));
    world.round().await;
    world.round().await;
    let second = waiting(&mut client).await.unwrap();
    assert_eq!((second.version, done_of(Some(second))), (4, 3));
    assert!(waiting(&mut client).await.is_none());
}

#[tokio::test]
async fn two_states_are_never_closer_than_a_quarter_of_a_second() {
    let (world, job) = (World::new(), half_done());
    let mut client = world.follow(&job);
    let before = Instant::now();
    client.next().await.unwrap();
    assert!(client.due >= before + LOOK);
    world.set(&done(&job, 3));
    world.round().await;
    client.due = Instant::now() + Duration::from_secs(600);
    assert!(client.next().now_or_never().is_none(), "not yet");
    assert_eq!(done_of(waiting(&mut client).await), 3);
}

#[tokio::test]
async fn a_slow_client_skips_states_and_gets_the_last() {
    let (world, job) = (World::new(), half_done());
    let mut slow = world.follow(&job);
    slow.next().await.unwrap();
    world.set(&done(&job, 3));
    world.round().await;
    world.set(&over(&job));
    world.round().await;
    let last = waiting(&mut slow).await.unwrap();
    assert!(last.over);
    assert!(slow.next().await.is_none(), "and then the end");
}

#[tokio::test]
async fn the_end_is_told_to_everyone_and_nobody_is_looked_for_any_more() {
    let (world, job) = (World::new(), half_done());
    world.set(&job);
    let mut clients = [world.follow(&job), world.follow(&job)];
    for client in &mut clients {
        client.next().await.unwrap();
    }
    // A final status alone is no end: chunks may still run.
    let failed = Job { status: JobStatus::Failed, ..done(&job, 3) };
    world.set(&failed);
    world.round().await;
    for client in &mut clients {
        assert_eq!(done_of(waiting(client).await), 3);
        assert!(client.next().now_or_never().is_none(), "it goes on");
    }
    world.set(&over(&job));
    world.round().await;
    for client in &mut clients {
        assert_eq!(done_of(waiting(client).await), 4);
        assert!(client.next().await.is_none());
    }
    assert!(!world.round().await);
}

#[tokio::test]
async fn a_job_that_is_over_is_told_once_and_not_watched() {
    let (world, job) = (World::new(), over(&half_done()));
    let mut client = world.follow(&job);
    assert_eq!(done_of(client.next().await), 4);
    assert!(client.next().await.is_none());
    assert!(!world.round().await);
}

#[tokio::test]
async fn a_job_that_vanishes_ends_its_streams_and_no_others() {
    let world = World::new();
    let (gone, stays) = (half_done(), Job { job_id: JobId::new(half_done().created_at, 8), ..half_done() });
    world.set(&stays);
    let mut clients = [world.follow(&gone), world.follow(&stays)];
    for client in &mut clients {
        client.next().await.unwrap();
    }
    world.round().await;
    let [mut of_gone, mut of_stays] = clients;
    assert!(of_gone.next().await.is_none());
    assert!(waiting(&mut of_stays).await.is_none());
    world.set(&over(&stays));
    world.round().await;
    assert_eq!(done_of(of_stays.next().await), 4);
}

#[tokio::test]
async fn a_client_that_has_left_is_not_looked_for() {
    let (world, job) = (World::new(), half_done());
    world.set(&job);
    let client = world.follow(&job);
    assert!(world.round().await);
    drop(client);
    assert!(!world.round().await);
    assert_eq!(world.watch.0.room.available_permits(), 600, "and its place is free");
}

#[tokio::test]
async fn whoever_comes_during_a_look_is_told_nothing_older_than_it_has_read() {
    let (world, job) = (World::new(), half_done());
    world.set(&job);
    let mut first = world.follow(&job);
    first.next().await.unwrap();
    // The look has read that 2 are done; meanwhile 3 are, and a client comes that has read so.
    let (newer, late) = (done(&job, 3), Arc::new(Mutex::new(None)));
    let (watch, told, came) = (world.watch.clone(), world.told.clone(), late.clone());
    *world.told.meanwhile.lock().unwrap() = Some(Box::new(move || {
        told.jobs.lock().unwrap().insert(newer.job_id.clone(), newer.clone());
        *came.lock().unwrap() = Some(watch.follow(watch.place(ANONYMOUS).unwrap(), newer, vec![]));
    }));
    world.round().await;
    let mut late = late.lock().unwrap().take().unwrap();
    assert_eq!(done_of(late.next().await), 3);
    assert!(waiting(&mut late).await.is_none(), "not what was read before it came");
    world.round().await;
    assert!(waiting(&mut late).await.is_none(), "nor what it has");
    assert_eq!(done_of(waiting(&mut first).await), 3);
}

#[tokio::test]
async fn a_change_between_reading_and_following_is_not_missed() {
    let (world, job) = (World::new(), half_done());
    world.set(&job);
    let mut first = world.follow(&job);
    first.next().await.unwrap();
    // The poller has told of 3 already when a client comes that has read 2.
    world.set(&done(&job, 3));
    world.round().await;
    let mut late = world.follow(&job);
    assert_eq!(done_of(late.next().await), 2);
    world.round().await;
    assert_eq!(done_of(waiting(&mut late).await), 3);
}

#[tokio::test]
async fn an_end_that_was_read_before_a_redrive_does_not_end_the_streams_after_it() {
    let (world, job) = (World::new(), half_done());
    world.set(&Job { status: JobStatus::Failed, ..over(&job) });
    let mut first = world.follow(&job);
    first.next().await.unwrap();
    let again = Job { version: 9, ..done(&job, 3) };
    let late = Arc::new(Mutex::new(None));
    let (watch, told, came) = (world.watch.clone(), world.told.clone(), late.clone());
    *world.told.meanwhile.lock().unwrap() = Some(Box::new(move || {
        told.jobs.lock().unwrap().insert(again.job_id.clone(), again.clone());
        *came.lock().unwrap() = Some(watch.follow(watch.place(ANONYMOUS).unwrap(), again, vec![]));
    }));
    world.round().await;
    let mut late = late.lock().unwrap().take().unwrap();
    assert_eq!(done_of(late.next().await), 3);
    world.set(&Job { version: 10, ..over(&job) });
    world.round().await;
    assert_eq!(done_of(waiting(&mut late).await), 4);
    assert!(late.next().await.is_none());
}

#[tokio::test]
async fn a_database_that_is_away_changes_nothing_and_is_ridden_out() {
    let (world, job) = (World::new(), half_done());
    world.set(&job);
    let mut client = world.follow(&job);
    client.next().await.unwrap();
    world.told.away.store(true, Ordering::SeqCst);
    assert!(world.watch.0.round().await.is_err());
    assert!(waiting(&mut client).await.is_none());
    world.set(&done(&job, 3));
    world.told.away.store(false, Ordering::SeqCst);
    world.round().await;
    assert_eq!(done_of(waiting(&mut client).await), 3);
}

#[tokio::test]
async fn steps_are_read_again_only_when_the_version_changed() {
    let (world, job) = (World::new(), half_done());
    world.set(&job);
    let _client = world.follow(&job);
    for (job, reads) in [(job.clone(), 1), (job.clone(), 1), (done(&job, 3), 2), (done(&job, 3), 2)] {
        world.set(&job);
        world.round().await;
        assert_eq!(world.told.steps_read.load(Ordering::SeqCst), reads);
    }
}

#[tokio::test]
async fn many_jobs_are_asked_for_in_batches_and_there_is_an_end_to_them() {
    let world = World::new();
    let jobs: Vec<Job> =
        (0..600).map(|n| Job { job_id: JobId::new(half_done().created_at, n), ..half_done() }).collect();
    let mut clients: Vec<Watcher> = jobs.iter().map(|job| world.follow(job)).collect();
    assert_eq!(world.watch.place(ANONYMOUS).err(), Some(Full::All), "there is room for so many and no more");
    for (job, client) in jobs.iter().zip(&mut clients) {
        client.next().await.unwrap();
        world.set(&done(job, 3));
    }
    world.round().await;
    assert_eq!(world.told.largest_batch.load(Ordering::SeqCst), BATCH);
    for client in &mut clients {
        assert_eq!(done_of(waiting(client).await), 3);
    }
    clients.pop();
    assert!(world.watch.place(ANONYMOUS).is_ok());
}

#[tokio::test]
async fn the_poller_looks_by_itself_and_stops_with_all_streams_when_told_to() {
    let (world, job) = (World::new(), half_done());
    let stop = world.watch.0.stop.clone();
    let poller = tokio::spawn(world.watch.clone().run());
    world.set(&done(&job, 3));
    let mut client = world.follow(&job);
    assert_eq!(done_of(client.next().await), 2);
    assert_eq!(done_of(client.next().await), 3);
    stop.cancel();
    assert!(client.next().await.is_none());
    poller.await.unwrap();
}

#[test]
fn no_caller_takes_the_places_of_all() {
    let world = World::new();
    let mut places: Vec<Place> = (0..MOST_OF_ONE).map(|_| world.watch.place("mallory").unwrap()).collect();
    assert_eq!(
        world.watch.place("mallory").err(),
        Some(Full::Callers),
        "so many are one caller's, and no more"
    );
    assert!(world.watch.place("ann").is_ok());
    places.pop();
    assert!(world.watch.place("mallory").is_ok(), "a place that is left is free");
    drop(places);
    assert!(world.watch.0.taken.lock().unwrap().is_empty(), "nobody is remembered");
}
