//! The progress of an export of a gigabyte: it moves for as long as the export runs, never backwards, and
//! ends at 1.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::sql::warehouse;
use crate::common::{Kind, STEADY, Stack};
use crate::follower::{Follower, goes_on};
use crate::progress::{large, part};
use crate::site::Site;

const ROWS: i64 = 100_000;
/// Rows of ten thousand characters and a few. They come in forty parts, and there is a rest after each: eight
/// seconds of rest, on a fast machine too.
const QUERY: &str = "select n, :key as key, repeat('x', 10000) as x, \
     case when n % 2500 = 0 then pg_sleep(0.2)::text end as rest from generate_series(1, 100000) n";

#[tokio::test(flavor = "multi_thread")]
async fn it_moves_all_along_a_gigabyte() {
    let kind = Kind::PostgresLocal;
    let count = format!("count_query = \"select cast({ROWS} as bigint)\"\n\n");
    let stack = Stack::new(kind, &format!("{STEADY}{}\n{count}", warehouse(kind, QUERY).trim_end())).await;
    let site = Site::start(&stack).await;
    let client = site.client();
    let id = client.submit(&large("positions")).await;
    let seen = Follower::connect(&client, &id).await.end().await;

    goes_on(&seen);
    let last = seen.last().expect("something was seen");
    assert_eq!(
        (&last["status"], &last["rows"], part(last)),
        (&json!("COMPLETED"), &json!(ROWS), 1.0),
        "{last}"
    );
    assert!(last["bytes"].as_i64() > Some(1_000_000_000), "{last}");
    let file = client.files(&id).await.remove(0);
    let path = stack.files().join(file["path"].as_str().expect("a path"));
    let bytes = std::fs::metadata(path).expect("it is there").len();
    assert_eq!((&last["bytes"], &file["bytes"]), (&json!(bytes), &json!(bytes)));

    // A value for each second of rest, of which both ends may be cut short; whatever the machine takes for
    // the rows comes on top of it. None of them is where it began or ended.
    let parts: BTreeSet<u64> =
        seen.iter().map(part).filter(|part| 0.0 < *part && *part < 1.0).map(f64::to_bits).collect();
    assert!(parts.len() >= 5, "{} values on the way: {}", parts.len(), told(&seen));
}

fn told(seen: &[Value]) -> String {
    seen.iter().map(|job| format!("{} {} ", job["updatedAt"], job["progress"])).collect()
}
