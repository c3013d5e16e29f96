//! Direct sessions of PostgreSQL: with no pooler in between, a plain chunk is one statement, and what it does to its
//! session is undone before the next one.

use outhaul::Failed;
use outhaul_export::settings::SourceUrl;
use outhaul_export::source::params::Template;
use outhaul_export::source::{Count, Dialect, PostgresSource, Query};
use outhaul_testkit::servers::PrivatePooler;
use outhaul_testkit::test_db::TestDb;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{counted, export, postgres, query};

const SLOT: &str = "outhaul:test:source:direct:0";
/// Whether the query is the only statement of its transaction, and the settings that must hold in it.
const STATE: &str = "select now() = statement_timestamp() as alone, \
    current_setting('transaction_read_only') as ro, current_setting('statement_timeout') as st, \
    current_setting('lock_timeout') as lt, current_setting('timezone') as tz, \
    current_setting('bytea_output') as b, current_setting('client_min_messages') as m";
const SETTINGS: &str = "on,1min,30s,UTC,hex,error\n";

fn source(url: &str) -> PostgresSource {
    let settings = postgres(url);
    let SourceUrl::Postgres(url) = &settings.url else { unreachable!() };
    PostgresSource::new(&settings, url).unwrap()
}

async fn run(source: &PostgresSource, sql: &str) -> Result<String, Failed> {
    let (csv, _) = export(source, Dialect::Postgres, sql, "k", Some(SLOT)).await?;
    Ok(csv.split_once('\n').unwrap().1.to_owned())
}

#[tokio::test]
async fn a_plain_chunk_is_one_statement_with_every_setting() {
    let db = TestDb::create().await;
    let source = source(db.url());
    for _ in 0..3 {
        assert_eq!(run(&source, STATE).await.unwrap(), format!("t,{SETTINGS}"));
    }
    // Counting is a statement of its own, in the same transaction as the query.
    let template = Template::parse(STATE, Dialect::Postgres).unwrap();
    let query = Query { slot: Some(SLOT), count: Count::Estimate, ..query(&template) };
    let kept = counted(&source, &query).await.unwrap();
    let csv = String::from_utf8(kept.csv).unwrap();
    assert!(csv.ends_with(&format!("\nf,{SETTINGS}")), "{csv}");
    assert_eq!(run(&source, STATE).await.unwrap(), format!("t,{SETTINGS}"));
}

#[tokio::test]
async fn what_a_query_sets_is_undone_before_the_next_one() {
    let db = TestDb::create().await;
    let mut admin = PgConnection::connect(db.url()).await.unwrap();
    let role = format!("role_{:016x}", rand::random::<u64>());
    let make = format!("create table t (n int); create role {role}");
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut admin).await.unwrap();
    let source = source(db.url());
    let pid = "select pg_backend_pid()";
    let backend = run(&source, pid).await.unwrap();
    for (name, value) in [
        ("default_transaction_read_only", "off"),
        ("statement_timeout", "0"),
        ("timezone", "Asia/Tokyo"),
        ("bytea_output", "escape"),
        ("client_min_messages", "debug1"),
        ("application_name", "somebody else"),
        ("role", role.as_str()),
    ] {
        let set = format!("select set_config('{name}', '{value}', false)");
        assert_eq!(run(&source, &set).await.unwrap(), format!("{value}\n"));
        let state = run(&source, STATE).await.unwrap();
        assert_eq!(state, format!("t,{SETTINGS}"), "{name}");
        let role = run(&source, "select current_user = session_user").await.unwrap();
        assert_eq!(role, "t\n", "{name}");
        let named = format!("select starts_with(current_setting('application_name'), '{SLOT}#')");
        assert_eq!(run(&source, &named).await.unwrap(), "t\n", "{name}");
    }
    let why = "dataset `positions` does not fit source `warehouse`: the query writes; it must only read";
    let write = run(&source, "insert into t values (1) returning n").await;
    assert_eq!(write, Err(Failed::Fatal(why.into())));
    assert_ne!(run(&source, pid).await.unwrap(), backend, "a session that saw an error is not used again");
    sqlx::raw_sql(AssertSqlSafe(format!("drop role {role}"))).execute(&mut admin).await.unwrap();
}

#[tokio::test]
async fn a_kept_session_that_was_lost_costs_nothing_but_itself() {
    let db = TestDb::create().await;
    let mut admin = PgConnection::connect(db.url()).await.unwrap();
    let source = source(db.url());
    for _ in 0..3 {
        let pid: i32 = run(&source, "select pg_backend_pid()").await.unwrap().trim().parse().unwrap();
        let end = "select pg_terminate_backend($1, 60000)";
        assert!(sqlx::query_scalar::<_, bool>(end).bind(pid).fetch_one(&mut admin).await.unwrap());
        assert_eq!(run(&source, STATE).await.unwrap(), format!("t,{SETTINGS}"));
    }
}

/// PgBouncer refuses startup settings that it does not know.
#[tokio::test]
async fn nothing_is_set_on_the_sessions_of_a_pooler() {
    let db = TestDb::create().await;
    let pooler = PrivatePooler::start(db.url());
    let source = source(pooler.url());
    for _ in 0..3 {
        assert_eq!(run(&source, STATE).await.unwrap(), format!("f,{SETTINGS}"));
    }
    let mut other = PgConnection::connect(pooler.url()).await.unwrap();
    let left = "select concat_ws(',', current_setting('default_transaction_read_only'), \
                current_setting('statement_timeout'), current_setting('client_min_messages'), \
                position('#' in current_setting('application_name')))";
    let left = sqlx::query_scalar::<_, String>(left).persistent(false).fetch_one(&mut other).await;
    assert_eq!(left.unwrap(), "off,0,notice,0");
}

/// Other poolers ignore them, so that a connection succeeds and proves nothing.
#[tokio::test]
async fn a_connection_without_its_startup_settings_is_no_direct_session() {
    let db = TestDb::create().await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (host, server) = (proxy.local_addr().unwrap().to_string(), db.url().to_owned());
    let (before, rest) = server.split_once("127.0.0.1").expect("the server's address");
    let (port, database) = rest.split_once('/').unwrap();
    let (url, server) = (format!("{before}{host}/{database}?sslmode=disable"), format!("127.0.0.1{port}"));
    tokio::spawn(async move {
        loop {
            let (client, _) = proxy.accept().await.unwrap();
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(without_options(client, server));
        }
    });
    let source = source(&url);
    for _ in 0..3 {
        assert_eq!(run(&source, STATE).await.unwrap(), format!("f,{SETTINGS}"));
    }
}

/// Passes a connection on, less the `options` of its startup packet.
async fn without_options(mut client: TcpStream, mut server: TcpStream) -> std::io::Result<()> {
    let mut startup = vec![0; client.read_u32().await? as usize - 4];
    client.read_exact(&mut startup).await?;
    let (version, parameters) = startup.split_at(4);
    let parameters: Vec<&[u8]> = parameters.split(|byte| *byte == 0).collect();
    let mut passed = version.to_vec();
    for pair in parameters.chunks_exact(2).filter(|pair| !pair[0].is_empty() && pair[0] != b"options") {
        pair.iter().for_each(|text| passed.extend([text, &b"\0"[..]].concat()));
    }
    passed.push(0);
    server.write_u32(passed.len() as u32 + 4).await?;
    server.write_all(&passed).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}
