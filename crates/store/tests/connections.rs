//! How the PostgreSQL store connects: it uses its own settings whatever the defaults of the database, its statements
//! survive a change of the schema, and it does not dial a server that is down once per call.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::job::{EXPORT, NewChunk, NewJob, OnFailure};
use outhaul_core::queue::QueueSpec;
use outhaul_core::secret::Secret;
use outhaul_core::store::{Store, StoreError, StoreSettings};
use outhaul_core::worker::{Finish, NewWorker, Want};
use outhaul_store::postgres::{
    DEFAULT_SCHEMA, PostgresOptions, PostgresStore, connect, migrate, missing_session_settings,
};
use outhaul_testkit::test_db::TestDb;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

const SETTINGS: StoreSettings = StoreSettings {
    lease: Duration::from_secs(3600),
    fairness_step: Duration::ZERO,
    idempotency_window: Duration::ZERO,
    parking: false,
};

fn store(url: &str, listen: bool) -> PostgresStore {
    let options = PostgresOptions {
        max_connections: 10,
        listen,
        test_before_use: true,
        fixed_plans: false,
        patience: Duration::from_secs(60),
        purpose: "test",
    };
    connect(&Secret::new(url), DEFAULT_SCHEMA, SETTINGS, "here".into(), &options).unwrap()
}

/// A database whose sessions begin with these settings.
async fn database(settings: &[(&str, &str)]) -> (TestDb, PgConnection) {
    let database = TestDb::create().await;
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    for (name, value) in settings {
        let set = format!(
            "do $$ begin execute format('alter database %I set {name} = %L', current_database(), '{value}'); end $$"
        );
        connection.execute(AssertSqlSafe(set)).await.unwrap();
    }
    (database, connection)
}

fn job(chunks: usize) -> NewJob {
    let chunk = |n| NewChunk {
        chunk_key: format!("key=K{n}:date=20250315"),
        queue: "source:warehouse".to_owned(),
        key: Some(format!("K{n}")),
        effective_date: None,
    };
    NewJob {
        job_id: JobId::new(clock::now(), rand::random()),
        job_type: EXPORT.to_owned(),
        dataset: Some("positions".to_owned()),
        owner: "anonymous".to_owned(),
        idempotency: None,
        unique_key: None,
        request: serde_json::json!({}).into(),
        params: serde_json::json!({}).into(),
        priority: 5,
        on_failure: OnFailure::Stop,
        labels: BTreeMap::new(),
        run_at: None,
        parents: Vec::new(),
        on_parent_failure: Default::default(),
        base_path: None,
        identity: None,
        scope: String::new(),
        made_by: None,
        quota: Some(1_000_000),
        chunks: (0..chunks).map(chunk).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_start_at_once_all_start_whatever_the_defaults() {
    let defaults = [("default_transaction_isolation", "serializable"), ("lock_timeout", "1ms")];
    let (database, _) = database(&defaults).await;
    let url = Secret::new(database.url());
    let starts = (0..8).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { migrate(&url, DEFAULT_SCHEMA, true).await.map(|name| name.to_string()) })
    });
    let names: Vec<String> = join_all(starts).await.into_iter().map(|name| name.unwrap().unwrap()).collect();
    assert!(names.iter().all(|name| *name == names[0]), "one installation: {names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_waits_for_a_table_that_others_use() {
    let (database, mut connection) = database(&[("lock_timeout", "1ms")]).await;
    let url = Secret::new(database.url());
    connection.execute("create schema outhaul; create table outhaul.migration (version bigint primary key, name text not null, applied_at timestamptz not null default now())").await.unwrap();
    let mut busy = connection.begin().await.unwrap();
    busy.execute("lock table outhaul.migration").await.unwrap();
    let started = tokio::spawn(async move { migrate(&url, DEFAULT_SCHEMA, true).await });
    let waits = "select count(*) from pg_locks where not granted and locktype = 'relation'
                 and database = (select oid from pg_database where datname = current_database())";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut *busy).await.unwrap() == 0 {
        assert!(!started.is_finished(), "it did not wait: {:?}", started.await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    busy.rollback().await.unwrap();
    started.await.unwrap().unwrap();
}

/// With `listen` on, sessions have the engine's settings; off, the database's own, as behind a pooler.
#[tokio::test(flavor = "multi_thread")]
async fn the_engine_works_at_any_default_isolation_level() {
    for (listen, level) in [
        (true, "serializable"),
        (false, "serializable"),
        (false, "repeatable read"),
        (true, "repeatable read"),
    ] {
        let (database, _) = database(&[("default_transaction_isolation", level)]).await;
        migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, true).await.unwrap();
        let store = store(database.url(), listen);
        let queue = QueueSpec { name: "source:warehouse".to_owned(), max_concurrent: None };
        let queue = store.queues_sync(&[queue]).await.unwrap()["source:warehouse"];
        let submitted = join_all((0..60).map(|_| store.job_submit(job(2)))).await;
        for answer in submitted {
            answer.unwrap_or_else(|error| panic!("{level}, listen = {listen}: {error}"));
        }
        let work = (0..6).map(|_| async {
            let worker = NewWorker { host: String::new(), roles: String::new(), concurrency: 8 };
            let worker = store.worker_register(&worker).await?;
            let mut done = 0;
            loop {
                let claimed = store.chunks_claim(worker, &[Want { queue, limit: 3 }], 3).await?;
                if claimed.is_empty() {
                    return Ok::<_, StoreError>(done);
                }
                let finish = |chunk: &outhaul_core::worker::ClaimedChunk| Finish {
                    lease: chunk.lease,
                    claimed_at: chunk.claimed_at,
                    file: None,
                    reason: String::new(),
                    result: None,
                };
                done += store.chunks_finish(&claimed.iter().map(finish).collect::<Vec<_>>()).await?.len();
            }
        });
        let done: usize = join_all(work).await.into_iter().map(|done| done.unwrap()).sum();
        assert_eq!(done, 120, "{level}, listen = {listen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_was_prepared_before_a_migration_is_prepared_again() {
    let (database, mut connection) = database(&[]).await;
    migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, true).await.unwrap();
    let store = store(database.url(), true);
    let queue = QueueSpec { name: "source:warehouse".to_owned(), max_concurrent: None };
    store.queues_sync(&[queue]).await.unwrap();
    // On several connections.
    for answer in join_all((0..8).map(|_| store.job_submit(job(1)))).await {
        answer.unwrap();
    }
    let known = job(1);
    let job_id = known.job_id.clone();
    store.job_submit(known).await.unwrap();
    store.job_get(&job_id).await.unwrap();
    let mut callers = PgConnection::connect(database.url()).await.unwrap();
    store.job_submit_in(&mut callers, job(1)).await.unwrap();
    // A column of another type changes what the prepared statements return.
    let change = "do $$ declare definition text := pg_get_viewdef('outhaul.job_view'); begin
         drop view outhaul.job_view; alter table outhaul.job alter column base_path type varchar;
         execute 'create view outhaul.job_view as ' || definition; end $$";
    connection.execute(change).await.unwrap();
    assert!(store.job_get(&job_id).await.unwrap().is_some());
    let once = store.job_submit_in(&mut callers, job(1)).await;
    assert!(matches!(once, Err(StoreError::Unavailable(_))), "a transaction of the caller's: {once:?}");
    store.job_submit_in(&mut callers, job(1)).await.unwrap();
    for answer in join_all((0..8).map(|_| store.job_submit(job(1)))).await {
        answer.unwrap();
    }
}

#[tokio::test]
async fn missing_settings_are_told() {
    let told = async |settings: &[(&str, &str)]| {
        let (database, _) = database(settings).await;
        let missing = missing_session_settings(&Secret::new(database.url())).await.unwrap();
        missing.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let limits = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];
    assert_eq!(told(&[("jit", "on")]).await, ["jit"].into_iter().chain(limits).collect::<Vec<_>>());
    let level = ("default_transaction_isolation", "repeatable read");
    let but_one = [level, ("jit", "off"), (limits[0], "5s"), (limits[1], "1min"), (limits[2], "2h")];
    assert_eq!(told(&but_one).await, [level.0]);
    assert!(told(&but_one[1..]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_dead_rows_back_is_told() {
    let (database, mut connection) = database(&[]).await;
    migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, true).await.unwrap();
    let store = store(database.url(), true);
    let mut open = connection.begin().await.unwrap();
    open.execute("create table held (id int)").await.unwrap();
    let lag = async || store.vacuum_lag().await.unwrap().unwrap();
    let first = lag().await.oldest_transaction;
    let (since, longer) = (std::time::Instant::now(), Duration::from_millis(50));
    while since.elapsed() < longer {
        tokio::time::sleep(longer).await;
    }
    let later = lag().await.oldest_transaction;
    assert!(later >= first + longer, "{later:?} after {first:?}");
    open.rollback().await.unwrap();
    assert!(lag().await.oldest_transaction < later, "nothing is open any more");
}

/// In front of a server: counts connections, and drops them at once while the server is away.
async fn door(to: String) -> (u16, Arc<AtomicUsize>, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (dials, away) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (counted, is_away) = (dials.clone(), away.clone());
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            if is_away.load(Ordering::SeqCst) {
                continue;
            }
            let to = to.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (port, dials, away)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_not_dialled_once_per_call() {
    let (database, _) = database(&[]).await;
    migrate(&Secret::new(database.url()), DEFAULT_SCHEMA, true).await.unwrap();
    let url = url::Url::parse(database.url()).unwrap();
    let real = url.port().unwrap();
    let (port, dials, away) = door(format!("127.0.0.1:{real}")).await;
    let store = store(&database.url().replace(&format!(":{real}"), &format!(":{port}")), true);
    let job_id = JobId::new(clock::now(), rand::random());
    for _ in 0..10 {
        for answer in join_all((0..50).map(|_| store.job_get(&job_id))).await {
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        }
    }
    let dialled = dials.load(Ordering::SeqCst);
    assert!((1..=20).contains(&dialled), "500 calls dialled {dialled} times");

    away.store(false, Ordering::SeqCst);
    let back = async {
        while store.job_get(&job_id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("the server is found again");
}
