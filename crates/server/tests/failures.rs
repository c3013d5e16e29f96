//! What fails, and how it ends: exactly as many attempts as allowed, a cause that people can act on,
//! no secret anywhere, nothing half-published.

mod common;

use std::fs;

use common::sql::{POSITIONS, warehouse};
use common::{Client, Kind, Process, STEADY, Stack, eventually, files_below};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

on_both!(
    a_source_that_always_fails_is_tried_exactly_as_often_as_allowed,
    a_query_that_does_not_fit_is_not_tried_again,
    the_first_failure_stops_the_rest_unless_told_otherwise,
    a_query_that_writes_is_found_by_the_check,
    a_secret_is_nowhere,
);

const CANARY: &str = "canary-7f3c9d1e5b";

async fn start(stack: &Stack) -> (Process, Client) {
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    (server, client)
}

fn items(keys: &[&str]) -> Value {
    json!({ "items": keys.iter().map(|key| json!({ "key": key, "effectiveDates": ["20250315"] })).collect::<Vec<_>>() })
}

async fn a_source_that_always_fails_is_tried_exactly_as_often_as_allowed(kind: Kind) {
    // PostgreSQL refuses in its own words; the SQLite file is not there at all.
    let query = if kind == Kind::Embedded { POSITIONS } else { "select always_fails(:key, :effective_date)" };
    let stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(kind, query))).await;
    if kind != Kind::Embedded {
        stack
            .source(
                "create function always_fails(text, date) returns int language plpgsql as \
                 $$ begin raise exception 'not today'; end $$",
            )
            .await;
    }
    let (server, client) = start(&stack).await;
    let id = client.submit(&items(&["ABC"])).await;
    let job = client.wait_for(&id, "FAILED").await;
    let error = job["errorMessage"].as_str().expect("an error");
    assert!(
        error.starts_with("Chunk failed after retries: key=ABC date=2025-03-15: source `warehouse` "),
        "{error}"
    );
    assert_eq!((&job["failed"], &job["pending"], &job["running"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(stack.chunks(&id, "DEAD").await, [(3, 3, true)], "max_attempts = 3");
    let chunks = client.all(&format!("/jobs/{id}/chunks")).await;
    assert_eq!(chunks[0]["status"], "FAILED");
    assert!(chunks[0]["errorMessage"].as_str().expect("a cause").contains("warehouse"), "{chunks:?}");
    assert_eq!((stack.published(), stack.staged()), (vec![], vec![]));

    // A person asks for it again: as many attempts anew, and the fence goes on.
    let (status, _) = client.post(&format!("/jobs/{id}/retry"), &json!({})).await.expect("the API answers");
    assert_eq!(status, 202);
    let ended =
        eventually("it has failed again", || async { stack.chunks(&id, "DEAD").await == [(3, 6, true)] });
    ended.await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    client.wait_for(&id, "FAILED").await;
}

async fn a_query_that_does_not_fit_is_not_tried_again(kind: Kind) {
    let query = "select no_such_column from positions where key = :key and day = :effective_date";
    let stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(kind, query))).await;
    stack.make_positions(&["ABC"], &["2025-03-15"]).await;
    let (_server, client) = start(&stack).await;
    let id = client.submit(&items(&["ABC"])).await;
    let job = client.wait_for(&id, "FAILED").await;
    assert_eq!(stack.chunks(&id, "DEAD").await, [(1, 1, true)], "one attempt, no more");
    let error = job["errorMessage"].as_str().expect("an error");
    assert!(
        error.contains("positions") && error.contains("warehouse") && error.contains("no_such_column"),
        "{error}"
    );
    assert!(!error.contains("where key"), "no SQL: {error}");
    assert_eq!((stack.published(), stack.staged()), (vec![], vec![]));
}

async fn the_first_failure_stops_the_rest_unless_told_otherwise(kind: Kind) {
    let steady = STEADY.replace("concurrency = 4", "concurrency = 1");
    let stack = Stack::new(kind, &format!("{steady}{}", warehouse(kind, POSITIONS))).await;
    stack.make_positions(&["B", "C", "D"], &["2025-03-15"]).await;
    stack.source("insert into positions values ('A', '2025-03-15', -9223372036854775808, 'bad')").await;
    let (_server, client) = start(&stack).await;

    let stopped = client.submit(&items(&["A", "B", "C", "D"])).await;
    let job = client.wait_for(&stopped, "FAILED").await;
    assert_eq!((&job["failed"], &job["done"], &job["pending"]), (&json!(1), &json!(0), &json!(3)), "{job}");
    assert_eq!(stack.published(), [""; 0], "those that had not started are held");

    let mut body = items(&["A", "B", "C", "D"]);
    body["onFailure"] = json!("continue");
    let continued = client.submit(&body).await;
    let job = client.wait_for(&continued, "FAILED").await;
    assert_eq!((&job["failed"], &job["done"], &job["pending"]), (&json!(1), &json!(3), &json!(0)), "{job}");
    assert_eq!(stack.published().len(), 3);

    // Once the data is mended, the held ones run with the failed one, and what is there is reused.
    stack.source("update positions set n = 1 where key = 'A'").await;
    let (status, _) =
        client.post(&format!("/jobs/{stopped}/retry"), &json!({})).await.expect("the API answers");
    assert_eq!(status, 202);
    let job = client.wait_for(&stopped, "COMPLETED").await;
    assert_eq!((&job["filesGenerated"], &job["filesReused"]), (&json!(1), &json!(3)), "{job}");
}

/// A query that writes is refused by `check`, as it is by every run; one that only reads is not.
async fn a_query_that_writes_is_found_by_the_check(kind: Kind) {
    let dataset = |name: &str, query: &str| {
        format!("[datasets.{name}]\nsource = \"warehouse\"\nkey = \"none\"\nquery = \"{query}\"\n")
    };
    let sections = format!(
        "{STEADY}{}{}{}{}",
        warehouse(kind, POSITIONS),
        dataset(
            "common",
            "with p as (select * from positions) select *, 1 as one from p order by key; -- the end"
        ),
        dataset("gone", "delete from positions returning *"),
        dataset("kept", "values (1), (2)"),
    );
    let stack = Stack::new(kind, &sections).await;
    stack.make_positions(&["ABC"], &["2025-03-15"]).await;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_outhaul"));
    let check = command.args(["check", "--config"]).arg(stack.config()).output().expect("run the check");
    let said = String::from_utf8(check.stdout).expect("text");
    let lines = |start: &str| said.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
    assert_eq!(
        lines("WRONG   dataset "),
        ["WRONG   dataset gone: its query writes; it must only read"],
        "{said}"
    );
    assert_eq!(lines("ok      dataset ").len(), 3, "{said}");
}

/// The API knows a new dataset before the first worker does: the old one puts the chunk back uncounted, and the
/// new one runs it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_know_a_dataset_leaves_it_for_others() {
    let before = format!("{STEADY}{}", warehouse(Kind::PostgresLocal, POSITIONS));
    let after = format!("{before}[datasets.fresh]\nsource = \"warehouse\"\nquery = \"{POSITIONS}\"\n");
    let stack = Stack::new(Kind::PostgresLocal, &before).await;
    stack.make_positions(&["ABC"], &["2025-03-15"]).await;
    let mut old = stack.spawn_watched("old", "worker");
    // By then the worker has read its configuration.
    old.listens().await;
    stack.configure(&after);
    let mut api = stack.serve("api", "api,scheduler").await;
    let client = api.client();
    let mut body = items(&["ABC"]);
    body["dataset"] = json!("fresh");
    let id = client.submit(&body).await;
    // Claimed more often than the three attempts that it has, and none of them counted.
    let put_back = eventually("it was put back", || async {
        let (attempt, fence, _) = stack.chunks(&id, "DEAD").await[0];
        assert!(attempt <= 1, "no attempt is counted but the one that runs");
        fence > 3
    });
    put_back.await.unwrap_or_else(|error| panic!("{error}\n{}", old.log()));
    assert_eq!(client.job(&id).await["errorMessage"], Value::Null);

    let _new = stack.spawn_watched("new", "worker");
    let job = client.wait_for(&id, "COMPLETED").await;
    assert_eq!((&job["filesGenerated"], &job["failed"]), (&json!(1), &json!(0)), "{job}");
    assert!(api.terminate(), "a clean end");
}

/// A forgotten `:key` would put the rows of all keys into every file: `check` warns and says that nothing is
/// wrong, `serve` warns and starts, and a dataset that says so is left in peace.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_forgets_its_key_is_warned_of() {
    let forgetful = "select * from positions where day = :effective_date";
    let common =
        "[datasets.common]\nsource = \"warehouse\"\nkey = \"none\"\nquery = \"select * from positions\"\n";
    let sections = format!("{STEADY}{}{common}", warehouse(Kind::Embedded, forgetful));
    let stack = Stack::new(Kind::Embedded, &sections).await;
    stack.make_positions(&["ABC"], &["2025-03-15"]).await;
    let check = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_outhaul"));
        let done = command.args(["check", "--config"]).arg(stack.config()).args(more).output();
        let done = done.expect("run the check");
        let said = String::from_utf8(done.stdout).expect("text");
        assert!(done.status.success(), "a warning is no problem: {said}");
        said
    };
    let said = check(&[]);
    let warnings: Vec<&str> = said.lines().filter(|line| line.starts_with("WARN ")).collect();
    let [warning] = warnings[..] else { panic!("one warning in {said}") };
    assert!(warning.contains("dataset positions: ") && warning.contains(":key"), "{said}");
    assert!(said.ends_with("nothing is wrong; 1 warning\n"), "{said}");
    let said: Value = serde_json::from_str(&check(&["--json"])).expect("JSON");
    assert_eq!((&said["ok"], &said["warnings"][0]["what"]), (&json!(true), &json!("dataset positions")));
    assert_eq!(said["warnings"].as_array().map(Vec::len), Some(1), "{said}");

    let (server, _client) = start(&stack).await;
    let log = server.log();
    let warned = |name: &str| log.contains(&format!("serve.warning: dataset {name}: "));
    assert!(warned("positions") && !warned("common"), "{log}");
}

/// A password in a source's URL, and a server that is not there or does not let it in: the cause
/// names the source, and the password is in no answer, log or table.
async fn a_secret_is_nowhere(kind: Kind) {
    let reachable = outhaul_testkit::servers::postgres_url();
    let (address, _) = reachable.rsplit_once('/').expect("a URL with a database");
    let host = address.rsplit('@').next().expect("a host");
    let mut stack = Stack::new(
        kind,
        &format!(
            "{STEADY}[sources.dark]\nurl = \"postgres://reader:{CANARY}@127.0.0.1:1/nowhere\"\n\n\
             [sources.stranger]\nurl = \"postgres://reader:{CANARY}@{host}/no_such_database\"\n\n\
             [datasets.dark]\nsource = \"dark\"\nquery = \"select :key, :effective_date\"\n\n\
             [datasets.stranger]\nsource = \"stranger\"\nquery = \"select :key, :effective_date\"\n"
        ),
    )
    .await;
    // Everything that the processes could say at all.
    stack.environment.push(("OUTHAUL_LOG", "trace".into()));
    let (mut server, client) = start(&stack).await;
    let mut said = String::new();
    for dataset in ["dark", "stranger"] {
        let mut body = items(&["ABC"]);
        body["dataset"] = json!(dataset);
        let id = client.submit(&body).await;
        let job = client.wait_for(&id, "FAILED").await;
        let error = job["errorMessage"].as_str().expect("an error");
        assert!(error.contains(&format!("source `{dataset}`")), "names the source: {error}");
        assert_eq!(stack.chunks(&id, "DEAD").await, [(3, 3, true)], "it was tried again");
        let mut shown = String::new();
        for path in [
            format!("/jobs/{id}"),
            format!("/jobs/{id}/chunks"),
            format!("/jobs/{id}/events"),
            "/jobs".into(),
        ] {
            let answer =
                client.http.get(format!("{}{path}", client.base)).send().await.expect("the API answers");
            shown += &answer.text().await.expect("text");
        }
        // The job shows neither an address nor a database nor a user; operators see them.
        for ours in ["127.0.0.1", "nowhere", "no_such_database", "reader", "refused"] {
            assert!(!shown.contains(ours), "{ours}: {shown}");
        }
        let (_, letters) = client.get(&format!("/dead-letters?jobId={id}")).await.expect("the API answers");
        let history = client.all(&format!("/jobs/{id}/history")).await;
        for told in [&letters["items"][0]["cause"], &history.last().expect("its end")["cause"]] {
            let told = told.as_str().expect("a cause");
            assert!(told.starts_with(&format!("source `{dataset}` is not available: ")), "{told}");
        }
        said += &shown;
        said += &client.get(&format!("/jobs/{id}/files")).await.expect("the API answers").1.to_string();
    }
    for path in
        ["/jobs", "/datasets", "/queues", "/workers", "/readyz", "/healthz", "/metrics", "/openapi.json"]
    {
        let answer = client.http.get(format!("{}{path}", client.base)).send().await.expect("the API answers");
        said += &answer.text().await.expect("text");
    }
    assert!(said.contains("dark"), "the answers are those of this installation");
    assert!(!said.contains(CANARY), "in an answer: {said}");

    let check = std::process::Command::new(env!("CARGO_BIN_EXE_outhaul"))
        .args(["check", "--config"])
        .arg(stack.config())
        .env("OUTHAUL_LOG", "trace")
        .output()
        .expect("run the check");
    let told =
        format!("{}{}", String::from_utf8_lossy(&check.stdout), String::from_utf8_lossy(&check.stderr));
    assert!(!check.status.success() && told.contains("dark"), "{told}");
    assert!(!told.contains(CANARY), "in what the check says: {told}");

    assert!(server.terminate(), "a clean end");
    assert!(server.log().contains("dark"), "the log is that of this run");
    assert!(!server.log().contains(CANARY), "in a log");
    let config = stack.config();
    for name in files_below(stack.dir.path()) {
        let path = stack.dir.path().join(name);
        let bytes = fs::read(&path).expect("readable");
        let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
        assert_eq!(found, path == config, "{}", path.display());
    }
    if kind != Kind::Embedded {
        let dump = dump(stack.postgres_url()).await;
        assert!(dump.contains("dark") && !dump.contains(CANARY), "in the database");
    }
}

/// All rows of all tables as text.
async fn dump(url: &str) -> String {
    let mut db = PgConnection::connect(url).await.expect("the database answers");
    let tables: Vec<String> =
        sqlx::query_scalar("select tablename::text from pg_tables where schemaname = 'outhaul'")
            .fetch_all(&mut db)
            .await
            .expect("its tables");
    let mut text = String::new();
    for table in tables {
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("select t::text from \"{table}\" t")))
                .fetch_all(&mut db)
                .await
                .expect("its rows");
        text += &format!("{table}\n{}\n", rows.join("\n"));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_refuses_is_tried_again() {
    for (kind, blocked) in [(Kind::Embedded, "exports"), (Kind::PostgresLocal, ".staging")] {
        let steady = STEADY.replace("max_attempts = 3", "max_attempts = 100");
        let stack = Stack::new(kind, &format!("{steady}{}", warehouse(kind, POSITIONS))).await;
        stack.make_positions(&["ABC", "XYZ"], &["2025-03-15"]).await;
        let (server, client) = start(&stack).await;
        // A file where a folder must be: root could write into a folder without permissions.
        let place = stack.files().join(blocked);
        let _ = fs::remove_dir_all(&place);
        fs::write(&place, "in the way").expect("write");

        let id = client.submit(&items(&["ABC", "XYZ"])).await;
        let refused = eventually("the storage has refused both twice", || async {
            stack.chunks(&id, "RETRY").await.iter().all(|(attempt, ..)| *attempt >= 2)
        });
        refused.await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        for chunk in client.all(&format!("/jobs/{id}/chunks")).await {
            let cause = chunk["errorMessage"].as_str().expect("a cause");
            assert!(cause.contains("storage"), "names what refused: {cause}");
        }
        let left: Vec<_> = files_below(&stack.files()).into_iter().filter(|path| path != blocked).collect();
        assert!(left.iter().all(|path| path.starts_with(".staging/")), "nothing is published: {left:?}");

        fs::remove_file(&place).expect("clear the way");
        let job = client.wait_for(&id, "COMPLETED").await;
        assert_eq!(job["filesGenerated"], 2);
        assert_eq!(stack.published().len(), 2);
        let clean = eventually("nothing is staged", || async { stack.staged().is_empty() });
        clean.await.unwrap_or_else(|error| panic!("{error}: {:?}", stack.staged()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_refuses_or_is_not_there_is_tried_again() {
    let kind = Kind::PostgresS3;
    // Small for one PUT, and large for a multipart upload.
    let query = "select repeat('x', 10000) as x from generate_series(1, case when :key = 'BIG' then 1000 else 1 end) \
                 where :effective_date is not null";
    let mut stack = Stack::new(kind, &format!("{STEADY}{}", warehouse(kind, query))).await;
    let api = stack.serve("api", "api").await;
    let client = api.client();
    let mut body = items(&["SMALL", "BIG"]);
    body["onFailure"] = json!("continue");
    for (name, value) in [
        ("OUTHAUL__STORAGE__SECRET_ACCESS_KEY", CANARY.to_owned()),
        ("OUTHAUL__STORAGE__ENDPOINT", "http://127.0.0.1:1".to_owned()),
    ] {
        stack.environment = vec![(name, value)];
        let mut worker = stack.spawn("refused", "worker");
        let id = client.submit(&body).await;
        let job = client.wait_for(&id, "FAILED").await;
        assert_eq!((&job["failed"], &job["done"]), (&json!(2), &json!(0)), "{job}");
        let error = job["errorMessage"].as_str().expect("an error");
        assert!(error.contains("storage") && !error.contains(CANARY) && !error.contains('<'), "{error}");
        assert_eq!(stack.chunks(&id, "DEAD").await, [(3, 3, true), (3, 3, true)], "it was tried again");
        assert_eq!((stack.published(), stack.staged()), (vec![], vec![]), "nothing is there");
        assert!(worker.terminate(), "a clean end: {}", worker.log());
        assert!(!worker.log().contains(CANARY), "{}", worker.log());

        stack.environment.clear();
        let mut worker = stack.spawn("trusted", "worker");
        let (status, _) =
            client.post(&format!("/jobs/{id}/retry"), &json!({})).await.expect("the API answers");
        assert_eq!(status, 202);
        client.wait_for(&id, "COMPLETED").await;
        assert_eq!((stack.published().len(), stack.staged()), (2, vec![]));
        assert!(worker.terminate(), "a clean end");
        for path in stack.published() {
            stack.remove(&path);
        }
    }
}
