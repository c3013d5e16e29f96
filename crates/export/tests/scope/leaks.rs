//! Whatever becomes of one caller's export, the next on the same slot is somebody else.

use futures::FutureExt as _;
use outhaul::Failed;
use outhaul_export::source::{Count, Query};
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
    assert!(cause.text.contains("row-level security is nothing to"), "{cause}");
}
