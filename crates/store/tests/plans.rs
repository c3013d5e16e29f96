//! Hot statements touch rows in proportion to their batch, whatever the planner believes of the tables. Each statement
//! is planned while the tables are empty and analysed, as in a fresh installation. Then the tables grow, nobody analyses
//! them, and the old plans run. No node of a plan may touch more than a small multiple of the batch.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use std::path::Path;

use outhaul_testkit::test_db::TestDb;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

const BATCH: i64 = 500;
/// The most rows that a node may return or throw away.
const BOUND: f64 = 20.0 * 500.0 + 100.0;
/// Chunks of each state, each of a job of its own. More than `BOUND`, so that a walk over any one state is noticed.
const EACH: i64 = 20_000;

/// The settings of the engine's connections.
const SETTINGS: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off;
     alter table outhaul.job set (autovacuum_enabled = false);
     alter table outhaul.job_chunk set (autovacuum_enabled = false);
     alter table outhaul.file_cache set (autovacuum_enabled = false);
     alter table outhaul.announcement set (autovacuum_enabled = false);
     insert into outhaul.queue (name) values ('q'); insert into outhaul.worker (host, roles, concurrency) values ('h', 'worker', 1);
     analyze";

const FILL: &str = "
     insert into outhaul.job (job_id, job_type, owner, request, params, labels, on_failure, total, priority, status)
     select 'j' || n, 'T', 'anonymous', '{}', '{}', '{}', 'stop', 1, 5,
            (array['SUBMITTED', 'SUBMITTED', 'IN_PROGRESS', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELLED'])[1 + (n - 1) / EACH]
     from generate_series(1, 7 * EACH) n;
     insert into outhaul.job_chunk (job_id, position, queue_id, chunk_key, priority, state, turn, run_at, fence, worker_id, lease_until)
     select n, 0, 1, 'k', 5,
            (array['CREATED', 'QUEUED', 'RUNNING', 'RETRY', 'SUCCESS', 'DEAD', 'CANCELLED'])[1 + (n - 1) / EACH],
            now(), now(), 1, 1, now() + interval '1 hour'
     from generate_series(1, 7 * EACH) n;
     insert into outhaul.file_cache (dataset, scope, key, effective_date, variant, writer_chunk, writer_fence)
     select 'd', '', n::text, '2025-01-01', '', n, 1 from generate_series(1, 7 * EACH) n;
     insert into outhaul.announcement (chunk_id, fence, until, queue_id) select n, 1, now(), 1 from generate_series(1, EACH) n";

fn sql(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres/sql").join(format!("{name}.sql"));
    std::fs::read_to_string(file).unwrap()
}

fn finish(head: &str) -> String {
    sql(&format!("parts/{head}")) + &sql("parts/finish_end")
}

/// An array literal with one entry per chunk of the batch.
fn each(entry: impl Fn(i64) -> String) -> String {
    let entries: Vec<String> = (0..BATCH).map(entry).collect();
    format!("'{{{}}}'", entries.join(","))
}

fn same(entry: &str) -> String {
    each(|_| entry.to_owned())
}

/// RUNNING chunks, far from the first ones and in no good order.
fn ids() -> String {
    each(|n| (2 * EACH + 1 + (n * 7919) % EACH).to_string())
}

/// The hot statements with their arguments.
fn statements() -> Vec<(&'static str, String, Vec<String>)> {
    let (fences, texts, nulls) = (same("1"), same("x"), same("NULL"));
    let one = |text: &str| text.to_owned();
    let leases = || vec![ids(), fences.clone()];
    let named = vec![
        one("1"),
        each(|n| format!("j{}", EACH + 1 + n)),
        same("k"),
        one("'{1}'"),
        one("'{500}'"),
        one("500"),
        one("'1 min'"),
        one("'1 min'"),
    ];
    let files = vec![
        ids(),
        fences.clone(),
        nulls.clone(),
        same("2025-01-01"),
        each(|n| one(if n % 2 == 0 { "generated" } else { "none" })),
        texts.clone(),
        same("d"),
        same("\"\""),
        ids(),
        same("2025-01-01"),
        same("\"\""),
        texts.clone(),
        same("1"),
        same("1"),
        texts.clone(),
        nulls.clone(),
        texts.clone(),
        texts.clone(),
        nulls.clone(),
        nulls.clone(),
    ];
    let failures = vec![
        ids(),
        fences.clone(),
        same("false"),
        each(|n| one(if n % 2 == 0 { "NULL" } else { "1 min" })),
        texts.clone(),
        nulls.clone(),
        one("true"),
        nulls.clone(),
    ];
    vec![
        (
            "chunks_claim",
            sql("chunks_claim"),
            vec![one("1"), one("'{1}'"), one("'{500}'"), one("500"), one("'1 min'")],
        ),
        ("chunks_claim_named", sql("chunks_claim_named"), named),
        ("finish_plain", finish("finish_plain"), vec![ids(), fences.clone(), nulls.clone()]),
        ("finish_files", finish("finish_files"), files),
        ("chunks_fail", sql("chunks_fail"), failures),
        ("chunks_return", sql("chunks_return"), vec![ids(), fences.clone(), one("100")]),
        (
            "chunks_heartbeat",
            sql("chunks_heartbeat"),
            vec![one("1"), ids(), fences.clone(), one("'{}'"), one("'{}'"), one("'1 min'")],
        ),
        ("chunks_cancel", sql("chunks_cancel"), leases()),
        ("chunks_cancelled", sql("chunks_cancelled"), leases()),
        ("chunks_running", sql("chunks_running"), leases()),
        (
            "progress_record",
            sql("progress_record"),
            vec![ids(), fences.clone(), fences.clone(), fences.clone(), same("0.5")],
        ),
        ("chunk_snooze", sql("chunk_snooze"), vec![(2 * EACH + 7).to_string(), one("1"), one("'1 min'")]),
        ("chunk_may_publish", sql("chunk_may_publish"), vec![(2 * EACH + 7).to_string(), one("1")]),
        ("chunks_stage_queue", sql("chunks_stage_queue"), vec![one("500"), one("'0'")]),
        ("sweeps_due", sql("sweeps_due"), vec![]),
    ]
}

/// A plan's nodes that touch too many rows.
fn excesses(node: &Value, found: &mut Vec<String>) {
    let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
    let loops = number("Actual Loops");
    let touched = loops
        * (number("Actual Rows")
            + number("Rows Removed by Filter")
            + number("Rows Removed by Join Filter")
            + number("Rows Removed by Index Recheck"));
    if touched > BOUND {
        let over = node["Index Name"].as_str().or(node["CTE Name"].as_str()).unwrap_or_default();
        found.push(format!("{} {over}: {touched} rows", node["Node Type"]));
    }
    for plan in node["Plans"].as_array().into_iter().flatten() {
        excesses(plan, found);
    }
}

/// Plans the statements while the tables are empty, fills the tables, and returns what each statement does too much of.
async fn run(statements: &[(&'static str, String, Vec<String>)]) -> Vec<(&'static str, Vec<String>)> {
    let database = TestDb::migrated().await;
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    let execute = |name: &str, arguments: &[String]| match arguments {
        [] => format!("execute {name}"),
        _ => format!("execute {name} ({})", arguments.join(", ")),
    };
    sqlx::raw_sql(SETTINGS).execute(&mut connection).await.unwrap();
    for (name, text, arguments) in statements {
        let prepare = format!("prepare {name} as {text}");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(prepare))).await.unwrap();
        let plan = format!("explain {}", execute(name, arguments));
        connection.execute(sqlx::raw_sql(AssertSqlSafe(plan))).await.unwrap();
    }
    let fill = FILL.replace("EACH", &EACH.to_string());
    connection.execute(sqlx::raw_sql(AssertSqlSafe(fill))).await.unwrap();
    let mut answers = Vec::new();
    for (name, _, arguments) in statements {
        let mut tx = connection.begin().await.unwrap();
        let explain = format!("explain (analyze, format json) {}", execute(name, arguments));
        let plan: Value =
            sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false).fetch_one(&mut *tx).await.unwrap();
        tx.rollback().await.unwrap();
        let mut found = Vec::new();
        excesses(&plan[0]["Plan"], &mut found);
        answers.push((*name, found));
    }
    answers
}

#[tokio::test]
async fn hot_statements_touch_rows_in_proportion_to_their_batch() {
    let wrong: Vec<_> = run(&statements()).await.into_iter().filter(|(_, found)| !found.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What the statements avoid is noticed: a state that an index can be walked for, and lists that are joined.
#[tokio::test]
async fn a_walk_over_a_state_and_a_join_of_lists_are_noticed() {
    let mut wrong = statements();
    wrong.retain(|(name, ..)| ["chunks_claim", "finish_plain"].contains(name));
    for (name, text, _) in &mut wrong {
        *text = if *name == "chunks_claim" {
            text.replace("c.state || '' = 'QUEUED'", "c.state = 'QUEUED'")
        } else {
            let head = sql("parts/finish_plain");
            let (head, _) = head.split_once("    FROM given g\n").unwrap();
            let joined = "FROM outhaul.job_chunk c JOIN given g ON g.id = c.id AND g.fence = c.fence
                 WHERE c.id = ANY ($1) AND c.state = 'RUNNING' ORDER BY c.id FOR UPDATE OF c\n";
            format!("{head}{joined}{}", sql("parts/finish_end"))
        };
    }
    for (name, found) in run(&wrong).await {
        assert!(!found.is_empty(), "{name} passed");
    }
}
