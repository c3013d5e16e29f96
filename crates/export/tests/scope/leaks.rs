//! Whatever becomes of one caller's export, the next on the same slot is somebody else.

use std::time::Duration;

use futures::FutureExt as _;
use outhaul::Failed;
use outhaul_export::Dataset;
use outhaul_export::settings::{QuerySettings, ScopeSettings};
use outhaul_export::source::{Count, Query, Source};
use serde_json::json;
use tokio::sync::oneshot;

use crate::common::{Kept, date, never};
use crate::stage::{SLOT, Stage, csv, dataset, export, rights_of, secured};

/// Sends some rows (more than the server gathers before it sends any) and then works on.
const SLOW: &str = "select g, repeat('x', 1000), case when g = 100 then pg_sleep(600)::text end \
    from generate_series(1, 100) as g, (select count(*) from t) as c order by g";

async fn stage() -> Stage {
    Stage::new(
        "create table t (n int, county text);
         insert into t select n, case when n % 2 = 0 then 'kent' else 'essex' end from generate_series(0, 9) as n;
         alter table t enable row level security;
         create policy c on t using (county = current_setting('request.jwt.claims')::json ->> 'county');
         grant select on t to {p}reader",
    )
    .await
}

#[tokio::test]
async fn after_an_error_a_stop_and_a_drop_the_next_caller_sees_its_own_rows() {
    let stage = stage().await;
    let source = stage.source(Some("reader"));
    let good = dataset("select n from t order by n", secured(&["county"]));
    let wrong = dataset("select n / 0 as n from t", secured(&["county"]));
    let slow = dataset(SLOW, secured(&["county"]));
    let kent = rights_of(&good, &[("county", json!("kent"))]).unwrap();
    let essex = rights_of(&good, &[("county", json!("essex"))]).unwrap();
    let of_essex = || csv([1, 3, 5, 7, 9]);
    let query = Query {
        dataset: "positions",
        template: &slow.template,
        key: "k",
        effective_date: date(),
        rights: Some(&kent),
        count: Count::No,
        slot: Some(SLOT),
    };

    let failed = export(&*source, &wrong, "k", Some(&kent)).await;
    assert!(matches!(failed, Err(Failed::Fatal(_))), "{failed:?}");
    assert_eq!(export(&*source, &good, "k", Some(&essex)).await, Ok(of_essex()));

    let (first, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(first), ..Kept::default() };
    let stopped = source.stream(&query, begun.map(drop).boxed(), &mut kept).await;
    assert_eq!(stopped, Err(Failed::Stopped));
    assert_eq!(export(&*source, &good, "k", Some(&essex)).await, Ok(of_essex()));

    let (first, begun) = oneshot::channel();
    let mut kept = Kept { first: Some(first), ..Kept::default() };
    tokio::select! {
        _ = source.stream(&query, never(), &mut kept) => panic!("it sleeps"),
        _ = begun => {}
    }
    assert_eq!(export(&*source, &good, "k", Some(&essex)).await, Ok(of_essex()));
    assert_eq!(export(&*source, &good, "k", Some(&kent)).await, Ok(csv([0, 2, 4, 6, 8])));
}

#[tokio::test]
async fn without_rights_row_security_shows_nothing_of_the_last_caller() {
    let stage = stage().await;
    let source = stage.source(Some("reader"));
    let good = dataset("select n from t order by n", secured(&["county"]));
    let kent = rights_of(&good, &[("county", json!("kent"))]).unwrap();
    assert_eq!(export(&*source, &good, "k", Some(&kent)).await, Ok(csv([0, 2, 4, 6, 8])));
    // What no handler would do: the policy finds no claims, and the query fails rather than show Kent's rows.
    let shown = export(&*source, &good, "k", None).await;
    assert!(matches!(shown, Err(Failed::Fatal(_))), "{shown:?}");
}

#[tokio::test]
async fn rights_that_are_given_while_a_worker_runs_are_noticed() {
    let mut stage = stage().await;
    let source = stage.source(Some("reader"));
    let good = dataset("select n from t order by n", secured(&["county"]));
    assert_eq!(source.check_row_security(&good).await, []);
    let kent = rights_of(&good, &[("county", json!("kent"))]).unwrap();
    assert_eq!(export(&*source, &good, "k", Some(&kent)).await, Ok(csv([0, 2, 4, 6, 8])));
    stage.run("alter role {p}reader bypassrls").await;
    let Err(Failed::Fatal(cause)) = export(&*source, &good, "k", Some(&kent)).await else {
        panic!("everything was shown")
    };
    assert!(cause.for_operators().contains("row-level security is nothing to"), "{cause}");
}

#[tokio::test]
async fn rights_that_are_given_to_whoever_signs_in_are_noticed_under_every_role() {
    let mut stage = stage().await;
    stage.run("create role {p}north; grant {p}north to {p}reader; grant select on t to {p}north").await;
    let source = stage.source(Some("reader"));
    let role = format!("{}north", stage.prefix);
    let scope = ScopeSettings {
        role_claim: Some("db_role".into()),
        roles: vec![role.clone()],
        ..secured(&["county"])
    };
    let good = dataset("select n from t order by n", scope);
    let kent = rights_of(&good, &[("county", json!("kent")), ("db_role", json!(role))]);
    assert_eq!(source.check_row_security(&good).await, []);
    for (given, taken) in [("bypassrls", "nobypassrls"), ("superuser", "nosuperuser")] {
        assert_eq!(export(&*source, &good, "k", kent.as_ref()).await, Ok(csv([0, 2, 4, 6, 8])));
        stage.run(&format!("alter role {{p}}reader {given}")).await;
        let Err(Failed::Fatal(cause)) = export(&*source, &good, "k", kent.as_ref()).await else {
            panic!("a {given} may read")
        };
        let said = format!("row-level security is nothing to `{}reader`", stage.prefix);
        assert!(cause.for_operators().contains(&said), "{cause}");
        stage.run(&format!("alter role {{p}}reader {taken}")).await;
    }
    assert_eq!(export(&*source, &good, "k", kent.as_ref()).await, Ok(csv([0, 2, 4, 6, 8])));
}

/// Exports as kent, and says why it failed.
async fn refused(source: &dyn Source, dataset: &Dataset) -> String {
    let kent = rights_of(dataset, &[("county", json!("kent"))]);
    match export(source, dataset, "k", kent.as_ref()).await {
        Err(Failed::Fatal(cause)) => cause.for_operators().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn row_security_that_is_taken_away_while_a_worker_runs_is_noticed() {
    let mut stage = stage().await;
    let source = stage.source(Some("reader"));
    let good = dataset("select n from t order by n", secured(&["county"]));
    assert_eq!(source.check_row_security(&good).await, []);
    let kent = rights_of(&good, &[("county", json!("kent"))]);
    let of_kent = || Ok(csv([0, 2, 4, 6, 8]));
    assert_eq!(export(&*source, &good, "k", kent.as_ref()).await, of_kent());
    for (change, problem, back) in [
        (
            "alter table t disable row level security",
            "reads no table with row-level security, only public.t",
            "alter table t enable row level security",
        ),
        (
            "alter table t rename to old; create table t as table old; grant select on t to public",
            "reads no table with row-level security, only public.t",
            "drop table t; alter table old rename to t",
        ),
        (
            "alter table t owner to {p}reader",
            "who owns table `public.t`",
            "alter table t force row level security",
        ),
        (
            "alter table t no force row level security",
            "who owns table `public.t`",
            "alter table t owner to current_user; grant select on t to {p}reader",
        ),
    ] {
        stage.run(change).await;
        let cause = refused(&*source, &good).await;
        assert!(cause.contains(problem), "{change}: {cause}");
        stage.run(back).await;
        assert_eq!(export(&*source, &good, "k", kent.as_ref()).await, of_kent(), "{back}");
    }
    // A count is looked at as well: how many rows others have is not to be known either.
    stage
        .run(
            "create table u (n int); alter table u enable row level security; grant select on u to {p}reader",
        )
        .await;
    let query = QuerySettings {
        rows: "select n from t order by n".into(),
        count: Some("select count(*) * 0 + 5 from u".into()),
    };
    let counted = dataset(query, secured(&["county"]));
    assert_eq!(export(&*source, &counted, "k", kent.as_ref()).await, of_kent());
    stage.run("alter table u disable row level security").await;
    assert!(refused(&*source, &counted).await.contains("its count_query reads no table with"));
}

#[tokio::test]
async fn every_table_of_a_query_is_looked_at_in_every_attempt() {
    let mut stage = stage().await;
    stage
        .run(
            "create table u (like t); insert into u values (11, 'essex'), (12, 'kent');
             alter table u enable row level security;
             create policy c on u using (county = current_setting('request.jwt.claims')::json ->> 'county');
             create function more() returns setof u language sql stable as $$ select * from u $$;
             grant select on u to {p}reader",
        )
        .await;
    let source = stage.source(Some("reader"));
    let two =
        dataset("select n from t where n < 3 union all select n from u order by n", secured(&["county"]));
    let more = dataset(
        "select n from t where n < 3 union all select n from more() order by n",
        secured(&["county"]),
    );
    let kent = rights_of(&two, &[("county", json!("kent"))]);
    for (good, change, problem, back) in [
        (
            &two,
            "alter table u disable row level security",
            "its query reads table `public.u` without row-level security",
            "alter table u enable row level security",
        ),
        (
            &more,
            "alter table u disable row level security",
            "its query reads table `public.u` without row-level security",
            "alter table u enable row level security",
        ),
        (
            &more,
            "alter function more() security definer",
            "its query calls function `public.more`, which is SECURITY DEFINER",
            "alter function more() security invoker",
        ),
    ] {
        assert_eq!(source.check_row_security(good).await, []);
        assert_eq!(export(&*source, good, "k", kent.as_ref()).await, Ok(csv([0, 2, 12])));
        stage.run(change).await;
        let cause = refused(&*source, good).await;
        assert!(cause.contains(problem), "{change}: {cause}");
        stage.run(back).await;
        assert_eq!(export(&*source, good, "k", kent.as_ref()).await, Ok(csv([0, 2, 12])), "{back}");
    }
    // Named, and told apart from what is not.
    stage.run("alter table u disable row level security").await;
    let scope = ScopeSettings { unsecured_tables: vec!["public.u".into()], ..secured(&["county"]) };
    let named = dataset("select n from t where n < 3 union all select n from u order by n", scope);
    let kent = rights_of(&named, &[("county", json!("kent"))]);
    assert_eq!(export(&*source, &named, "k", kent.as_ref()).await, Ok(csv([0, 2, 11, 12])));
    stage.run("alter table t disable row level security; alter table u enable row level security").await;
    let cause = refused(&*source, &named).await;
    assert!(cause.contains("its query reads table `public.t` without"), "{cause}");
}

#[tokio::test]
async fn row_security_cannot_be_taken_away_between_the_look_and_the_rows() {
    let mut stage = stage().await;
    stage
        .run(
            "create table u (n int); alter table u enable row level security; grant select on u to {p}reader",
        )
        .await;
    let source = stage.source(Some("reader"));
    // The count comes after the look and before the rows, and reads another table.
    let query = QuerySettings {
        rows: "select n from t order by n".into(),
        count: Some("select (select count(*) from u) + length(pg_sleep(600)::text)".into()),
    };
    let counted = dataset(query, secured(&["county"]));
    let kent = rights_of(&counted, &[("county", json!("kent"))]);
    let change = async {
        let counts = "select count(*) from pg_stat_activity \
                      where split_part(application_name, '#', 1) = $1 and datname = current_database() and wait_event = 'PgSleep'";
        let mut looks = 0;
        while sqlx::query_scalar::<_, i64>(counts).bind(SLOT).fetch_one(&mut stage.admin).await.unwrap() == 0
        {
            looks += 1;
            assert!(looks < 10_000, "the count never began");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let change = "set lock_timeout = '200ms'; alter table t disable row level security";
        sqlx::raw_sql(change).execute(&mut stage.admin).await.unwrap_err()
    };
    let refused = tokio::select! {
        done = export(&*source, &counted, "k", kent.as_ref()) => panic!("it sleeps: {done:?}"),
        refused = change => refused,
    };
    let code = refused.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    assert_eq!(code, "55P03", "whoever would change it waits: {refused}");
}
