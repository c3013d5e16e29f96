//! A source with gates: an export that comes to a shut one waits inside its query until the test has seen
//! what it wants to see. So nothing here depends on how fast a machine is.

use outhaul_testkit::test_db::TestDb;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinHandle;

use crate::common::eventually;

/// The rows of a large export.
pub(crate) const ROWS: i64 = 2000;
/// The rows of it at which there is a gate.
pub(crate) const ON_THE_WAY: [i64; 3] = [500, 1000, 1500];
/// The gate of a small export.
pub(crate) const SMALL: i64 = 7;

// Nobody loses patience at a gate.
const LARGE_QUERY: &str = "with free as materialized (select set_config('lock_timeout', '0', true)) \
     select n, :key as key, repeat('x', 10000) as x, \
     case when n in (500, 1000, 1500) then pg_advisory_xact_lock_shared(n)::text end as gate from free, large";
const SMALL_QUERY: &str = "with free as materialized (select set_config('lock_timeout', '0', true)) \
     select pg_advisory_xact_lock_shared(7)::text as gate, :key as key from free";

/// The source, whatever the installation's own database is.
pub(crate) struct Gates {
    connection: PgConnection,
    // Dropped last: the database goes with it.
    db: TestDb,
}

impl Gates {
    /// A new source; all gates are open.
    pub(crate) async fn new() -> Self {
        let db = TestDb::create().await;
        let mut connection = PgConnection::connect(db.url()).await.expect("the source answers");
        let sql =
            format!("create table large as select generate_series(1, {ROWS}) as n; vacuum analyze large");
        for statement in sql.split(';') {
            let statement = AssertSqlSafe(statement.to_owned());
            sqlx::raw_sql(statement).execute(&mut connection).await.expect("the source takes it");
        }
        Self { connection, db }
    }

    /// The configuration of a source of this name, with the datasets `NAME_counted`, `NAME_estimated`
    /// (both large; the planner's estimate is too low) and `NAME_small`.
    pub(crate) fn source(&self, name: &str, more: &str) -> String {
        let dataset = |kind: &str, query: &str, more: &str| {
            format!("[datasets.{name}_{kind}]\nsource = \"{name}\"\nquery = \"{query}\"\n{more}\n\n")
        };
        let source = format!("[sources.{name}]\nurl = \"{}\"\n{more}\n\n", self.db.url());
        [
            source,
            dataset("counted", LARGE_QUERY, "count_query = \"select count(*) from large\""),
            dataset("estimated", &format!("{LARGE_QUERY} where n % 2 >= 0"), ""),
            dataset("small", SMALL_QUERY, ""),
        ]
        .concat()
    }

    pub(crate) async fn shut(&mut self, gate: i64) {
        shut(&mut self.connection, gate).await;
    }

    pub(crate) async fn open(&mut self, gate: i64) {
        let was_shut: bool = sqlx::query_scalar("select pg_advisory_unlock($1)")
            .bind(gate)
            .fetch_one(&mut self.connection)
            .await
            .expect("the source answers");
        assert!(was_shut, "gate {gate}");
    }

    /// Shuts a gate behind the exports that have passed it, as soon as they are over; whoever comes from
    /// now on waits at it. It opens when the connection is closed.
    pub(crate) async fn shut_behind(&mut self, gate: i64) -> JoinHandle<PgConnection> {
        let mut connection = PgConnection::connect(self.db.url()).await.expect("the source answers");
        let shut = tokio::spawn(async move {
            shut(&mut connection, gate).await;
            connection
        });
        self.has(gate, "ExclusiveLock").await;
        shut
    }

    /// Waits until an export is at the gate.
    pub(crate) async fn reached(&mut self, gate: i64) {
        self.has(gate, "ShareLock").await;
    }

    /// Waits until no export is at the gate any more.
    pub(crate) async fn nobody_waits(&mut self, gate: i64) {
        self.is(gate, "ShareLock", false).await;
    }

    async fn has(&mut self, gate: i64, mode: &str) {
        self.is(gate, mode, true).await;
    }

    async fn is(&mut self, gate: i64, mode: &str, wanted: bool) {
        let connection = tokio::sync::Mutex::new(&mut self.connection);
        let what = format!("somebody waits at gate {gate}: {wanted}");
        let reached = eventually(&what, || async {
            let count: i64 = sqlx::query_scalar(
                "select count(*) from pg_locks l join pg_database d on d.oid = l.database \
                 where l.locktype = 'advisory' and not l.granted and d.datname = current_database() \
                 and l.objid = $1::bigint::oid and l.mode = $2",
            )
            .bind(gate)
            .bind(mode)
            .fetch_one(&mut **connection.lock().await)
            .await
            .expect("the source answers");
            (count > 0) == wanted
        });
        reached.await.unwrap_or_else(|error| panic!("{error}"));
    }
}

async fn shut(connection: &mut PgConnection, gate: i64) {
    let lock = sqlx::query("select pg_advisory_lock($1)").bind(gate).execute(connection);
    lock.await.expect("the source answers");
}
