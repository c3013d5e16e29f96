//! PostgreSQL behind a pooler in transaction mode, where a backend serves one client after the other: our
//! transactions end when they must, and those of others never do.

use std::time::Duration;

use futures::FutureExt as _;
use outhaul::Failed;
use outhaul_export::source::params::Template;
use outhaul_export::source::{Dialect, PostgresSource, Query, Source as _};
use outhaul_testkit::servers::PrivatePooler;
use outhaul_testkit::test_db::TestDb;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::oneshot;

use crate::common::{Kept, export, never, postgres, query};

const SLOT: &str = "outhaul:test:source:pooled:0";
/// A query that sends some rows and then stalls.
const SLOW: &str = "select n, repeat('x', 1000), case when n = 100 then pg_sleep(600)::text end \
    from generate_series(1, 100) as n";
const PID: &str = "select pg_backend_pid() as pid";

fn source(url: &str) -> PostgresSource {
    let settings = postgres(url);
    let outhaul_export::settings::SourceUrl::Postgres(url) = &settings.url else { unreachable!() };
    PostgresSource::new(&settings, url).unwrap()
}

/// Sessions of others, each in a transaction through the pooler, as the same user.
struct Others(Vec<(PgConnection, i32)>);

impl Others {
    async fn begin(pooler: &PrivatePooler) -> Self {
        let mut all = Vec::new();
        for _ in 0..3 {
            let mut other = PgConnection::connect(pooler.url()).await.unwrap();
            sqlx::raw_sql("begin").execute(&mut other).await.unwrap();
            let pid = sqlx::query_scalar(PID).persistent(false).fetch_one(&mut other).await.unwrap();
            all.push((other, pid));
        }
        Self(all)
    }

    /// They answer, in the transactions that they began.
    async fn live_on(&mut self) {
        for (other, began) in &mut self.0 {
            let pid: i32 = sqlx::query_scalar(PID).persistent(false).fetch_one(other).await.unwrap();
            assert_eq!(pid, *began);
        }
    }
}

/// Waits until no transaction of ours is left. The slot's own name says nothing: a backend keeps it when the pooler
/// hands it to a client that has none.
async fn until_none_works(admin: &mut PgConnection) {
    let ours = "select count(*) from pg_stat_activity where datname = current_database() \
                and application_name like 'outhaul:test:%#%'";
    let gone = async {
        while sqlx::query_scalar::<_, i64>(ours).fetch_one(&mut *admin).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it ends");
}

#[tokio::test]
async fn what_must_stop_ends_and_nobody_else() {
    let db = TestDb::create().await;
    let pooler = PrivatePooler::start(db.url());
    let mut admin = PgConnection::connect(db.url()).await.unwrap();
    let source = source(pooler.url());
    // The connection to the pooler is kept, and the backend that served it is free for others.
    let (first, _) = export(&source, Dialect::Postgres, PID, "k", Some(SLOT)).await.unwrap();
    let mut others = Others::begin(&pooler).await;
    let first: i32 = first.lines().nth(1).unwrap().parse().unwrap();
    assert!(others.0.iter().any(|(_, pid)| *pid == first), "another has the first one's backend");

    let template = Template::parse(SLOW, Dialect::Postgres).unwrap();
    let slow = Query { slot: Some(SLOT), ..query(&template) };
    // Stopped, as by a cancellation or a stall.
    let (sender, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(sender), ..Kept::default() };
    assert_eq!(source.stream(&slow, begun.map(drop).boxed(), &mut kept).await, Err(Failed::Stopped));
    until_none_works(&mut admin).await;
    others.live_on().await;

    // Dropped, as by the end of its task.
    export(&source, Dialect::Postgres, PID, "k", Some(SLOT)).await.unwrap();
    let mut more = Others::begin(&pooler).await;
    let (sender, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(sender), ..Kept::default() };
    tokio::select! {
        _ = source.stream(&slow, never(), &mut kept) => panic!("it sleeps"),
        _ = begun => {}
    }
    until_none_works(&mut admin).await;
    others.live_on().await;
    more.live_on().await;
}

#[tokio::test]
async fn the_next_holder_of_a_slot_ends_what_is_left_and_nobody_else() {
    let db = TestDb::create().await;
    let pooler = PrivatePooler::start(db.url());
    let mut admin = PgConnection::connect(db.url()).await.unwrap();
    let (one, two) = (source(pooler.url()), source(pooler.url()));
    // Backends that the slot has used, with its name, and that others use now.
    for holder in [&one, &two] {
        export(holder, Dialect::Postgres, PID, "k", Some(SLOT)).await.unwrap();
    }
    let mut others = Others::begin(&pooler).await;
    let template = Template::parse(SLOW, Dialect::Postgres).unwrap();
    let slow = Query { slot: Some(SLOT), ..query(&template) };
    let (sender, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(sender), ..Kept::default() };
    let (stale, fresh) = tokio::join!(one.stream(&slow, never(), &mut kept), async {
        begun.await.unwrap();
        // The shortest time in which a slot of a dead holder becomes free.
        tokio::time::sleep(Duration::from_secs(1)).await;
        export(&two, Dialect::Postgres, PID, "k", Some(SLOT)).await
    });
    assert!(matches!(stale, Err(Failed::Retryable(_))), "{stale:?}");
    assert_eq!(fresh.unwrap().1, 1);
    until_none_works(&mut admin).await;
    others.live_on().await;
}
