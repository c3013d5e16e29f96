//! Row-level security that does not hold for all that a dataset reads: no process starts that would show rows to
//! all, and one that runs already makes no file of them.

use std::process::{Command, Output};

use outhaul::Registry;
use outhaul_server::config::{Config, Environment, Load};
use outhaul_server::roles::Roles;
use outhaul_server::serve;
use outhaul_testkit::servers::unique_prefix;
use outhaul_testkit::test_db::TestDb;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::people::{AUTH, operator, submitter};
use crate::server::{DAY, Server};

#[tokio::test(flavor = "multi_thread")]
async fn a_source_user_that_bypasses_row_level_security_keeps_a_process_from_starting() {
    let source = TestDb::create().await;
    // The server's own user is a superuser.
    let said = refusal(&dataset(source.url(), "select :key::text, :effective_date::date", "")).await;
    assert!(said.contains("to whom row-level security is nothing"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_does_not_make_up_for_a_source_user_that_bypasses_row_level_security() {
    let source = Source::new().await;
    let role = format!("{}_role", source.reader);
    source.run(&format!("create role {role}; grant {role} to {}", source.reader)).await;
    // `sub` needs no keeping; that it names no role is of no matter here.
    let lines = format!("role_claim = \"sub\"\nroles = [\"{role}\"]");
    let leaves = "select name from a where set_config('role', 'none', true) is not null";
    let root = dataset(source.db.url(), leaves, &lines);
    let (passed, checked) = check(&root);
    assert!(!passed, "{checked}");
    for said in [refusal(&root).await, checked] {
        assert!(said.contains("its source signs in as"), "{said}");
        assert!(said.contains("sign in as another user, one that was granted the roles"), "{said}");
    }
    // The same as an ordinary user, who is a member of the role.
    let ordinary = source.dataset("select name from a", &lines);
    assert!(check(&ordinary).0, "{}", check(&ordinary).1);
}

/// A source whose tables `a` and `b` show each county its own rows, `lookup`, and a user `reader` of it.
struct Source {
    db: TestDb,
    reader: String,
}

impl Source {
    async fn new() -> Self {
        let source =
            Self { db: TestDb::create().await, reader: format!("outhaul_{}_reader", unique_prefix()) };
        source.run(&format!("create user {}", source.reader)).await;
        for table in ["a", "b"] {
            let sql = format!(
                "create table {table} (name text, county text);
                 insert into {table} values ('{table} of Kent', 'Kent'), ('{table} of Essex', 'Essex');
                 alter table {table} enable row level security;
                 create policy c on {table}
                   using (county = current_setting('request.jwt.claims')::json ->> 'county')"
            );
            source.run(&sql).await;
        }
        source
            .run(
                "create table lookup (name text); insert into lookup values ('for all');
                 create function all_b() returns setof b language sql stable security definer as $$ table b $$;
                 grant select on all tables in schema public to public",
            )
            .await;
        source
    }

    async fn run(&self, sql: &str) {
        let mut admin = PgConnection::connect(self.db.url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut admin).await.unwrap();
    }

    /// A dataset `cases` on it, with further lines.
    fn dataset(&self, query: &str, lines: &str) -> String {
        let (_, rest) = self.db.url().split_once('@').unwrap();
        dataset(&format!("postgres://{}@{rest}", self.reader), query, lines)
    }
}

fn dataset(url: &str, query: &str, lines: &str) -> String {
    format!(
        "[sources.crm]\nurl = \"{url}\"\n[datasets.cases]\nsource = \"crm\"\nrow_scope = [\"county\"]\n\
         row_security = true\nquery = \"{query}\"\n{lines}\n"
    )
}

fn config(sections: &str) -> String {
    format!("data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n{AUTH}\n{sections}")
}

/// Why a server with these sections does not start.
async fn refusal(sections: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let load = Load { file: None, insecure: false, environment: Environment::default() };
    let config = Config::parse(&config(sections), folder.path(), &load);
    let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
    let Err(error) = serve::start(config, Roles::ALL, Registry::new()).await else {
        panic!("it must not start")
    };
    let said = error.to_string();
    assert!(said.contains("dataset `cases`"), "{said}");
    assert!(error.0.iter().all(|error| matches!(error, serve::StartError::RowSecurity(_))), "{said}");
    said
}

/// What `outhaul check` says to these sections, and whether it is content with the dataset.
fn check(sections: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("outhaul.toml");
    std::fs::write(&file, config(sections)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
    let Output { status, stdout, stderr } = command.arg("check").arg("--config").arg(file).output().unwrap();
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(said.contains("dataset cases"), "{said}");
    (status.success(), said)
}

fn cases(key: &str) -> Value {
    json!({"dataset": "cases", "items": [{"key": key, "effectiveDates": [DAY]}]})
}

/// Why a job failed, as operators are told.
async fn cause(server: &Server, job: &str) -> String {
    let job_id = job.rsplit('/').next().unwrap();
    let letters = server.at(operator()).items(&format!("/dead-letters?jobId={job_id}")).await;
    letters[0]["cause"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_table_of_two_that_loses_its_policies_while_a_server_runs_ends_the_job() {
    let source = Source::new().await;
    let two = "select name from a union all select name from b order by name";
    let server = Server::start(&source.dataset(two, "")).await;
    let kent = server.at(submitter("ann").county("Kent"));
    let rows = "name\na of Kent\nb of Kent\n";
    let job = kent.complete(&cases("A")).await;
    assert_eq!(kent.text(&job).await, rows);

    source.run("alter table b disable row level security").await;
    let job = kent.submit(&cases("B")).await;
    let failed = kent.until(&job, "FAILED").await;
    let said = failed["errorMessage"].as_str().unwrap();
    assert!(said.ends_with(": row-level security of dataset `cases` does not hold"), "{said}");
    let said = cause(&server, &job).await;
    assert!(said.contains("reads table `public.b` without row-level security"), "{said}");
    assert!(said.contains("unsecured_tables") && !said.contains("union"), "what to do, and no SQL: {said}");
    assert_eq!(kent.items(&format!("{job}/files")).await, Vec::<Value>::new());

    source.run("alter table b enable row level security").await;
    let job = kent.complete(&cases("C")).await;
    assert_eq!(kent.text(&job).await, rows);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_row_level_security_is_refused_unless_it_is_named() {
    let source = Source::new().await;
    let beside = "select name from a union all select name from lookup order by name";
    let bare = source.dataset(beside, "");
    let (passed, checked) = check(&bare);
    assert!(!passed, "{checked}");
    for said in [refusal(&bare).await, checked] {
        assert!(said.contains("reads table `public.lookup` without row-level security"), "{said}");
    }
    let named = source.dataset(beside, "unsecured_tables = [\"public.lookup\"]");
    assert!(check(&named).0, "{}", check(&named).1);
    let server = Server::start(&named).await;
    let kent = server.at(submitter("ann").county("Kent"));
    let job = kent.complete(&cases("A")).await;
    assert_eq!(kent.text(&job).await, "name\na of Kent\nfor all\n");
    server.stop().await;
    // A name that no query uses is no provision for later.
    let (passed, said) =
        check(&source.dataset("select name from a", "unsecured_tables = [\"public.lookup\"]"));
    assert!(!passed && said.contains("unsecured_tables names table `public.lookup`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_with_the_rights_of_its_owner_is_refused() {
    let source = Source::new().await;
    let calls = source.dataset("select name from a union all select name from all_b()", "");
    let (passed, checked) = check(&calls);
    assert!(!passed, "{checked}");
    for said in [refusal(&calls).await, checked] {
        assert!(said.contains("calls function `public.all_b`, which is SECURITY DEFINER"), "{said}");
    }
    source.run("alter function all_b() security invoker").await;
    assert!(check(&calls).0, "{}", check(&calls).1);
    let server = Server::start(&calls).await;
    let kent = server.at(submitter("ann").county("Kent"));
    kent.complete(&cases("A")).await;
    source.run("alter function all_b() security definer").await;
    let job = kent.submit(&cases("B")).await;
    let failed = kent.until(&job, "FAILED").await;
    assert!(failed["errorMessage"].as_str().unwrap().ends_with("does not hold"), "{failed}");
    assert!(cause(&server, &job).await.contains("SECURITY DEFINER"));
    assert_eq!(kent.items(&format!("{job}/files")).await, Vec::<Value>::new());
    server.stop().await;
}
