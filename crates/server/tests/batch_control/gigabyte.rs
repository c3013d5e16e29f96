//! The progress of an export of a gigabyte: it moves for as long as the export runs, never backwards, and
//! ends at 1.

use std::collections::BTreeSet;

use chrono::{DateTime, FixedOffset};
use serde_json::{Value, json};

use crate::common::sql::warehouse;
use crate::common::{BRISK, Kind, Stack};
use crate::follower::{Follower, goes_on};
use crate::progress::{large, part};
use crate::site::Site;

const ROWS: i64 = 100_000;
/// Rows of ten thousand characters and a few. They come in forty parts, so that it takes its seconds on a
/// fast machine too.
const QUERY: &str = "select n, :key as key, repeat('x', 10000) as x, \
     case when n % 2500 = 0 then pg_sleep(0.2)::text end as rest from generate_series(1, 100000) n";

#[tokio::test(flavor = "multi_thread")]
async fn it_moves_every_second_of_a_gigabyte() {
    let kind = Kind::PostgresLocal;
    // Nobody is killed, so nobody needs to be found dead soon.
    let brisk = BRISK.replace("lease = \"3s\"", "lease = \"60s\"");
    let count = format!("count_query = \"select cast({ROWS} as bigint)\"\n\n");
    let stack = Stack::new(kind, &format!("{brisk}{}\n{count}", warehouse(kind, QUERY).trim_end())).await;
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

    // Both ends are seconds that may be cut short.
    let parts: BTreeSet<u64> = seen.iter().map(|job| part(job).to_bits()).collect();
    let ran = time(&last["completedAt"]) - time(&last["startedAt"]);
    let seconds = usize::try_from(ran.num_seconds()).expect("it ends after it began");
    assert!(parts.len() + 2 >= seconds, "{} values in {seconds} seconds: {}", parts.len(), told(&seen));
}

fn time(value: &Value) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(value.as_str().expect("a time")).expect("RFC 3339")
}

fn told(seen: &[Value]) -> String {
    seen.iter().map(|job| format!("{} {} ", job["updatedAt"], job["progress"])).collect()
}
