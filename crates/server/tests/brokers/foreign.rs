//! What others put on the work queue: it is parked with its reason, or dropped where there is nothing to do,
//! and consumers go on.

use outhaul_testkit::servers::BrokerKind;
use serde_json::{Value, json};

use crate::common::{BRISK, dates};
use crate::site::{SOURCES, Site};
use crate::with_both;

with_both!(broken_messages_are_parked_and_others_go_on);

async fn broken_messages_are_parked_and_others_go_on(kind: BrokerKind) {
    let site = Site::shared(kind, "", &format!("{BRISK}{SOURCES}")).await;
    let api = site.stack.serve("api", "api").await;
    let _worker = site.stack.spawn("worker", "worker");
    let client = api.client();
    let export = json!({ "dataset": "free", "items": [{ "key": "ABC", "effectiveDates": dates(10) }] });
    // The first job proves that the queues exist.
    let job = client.complete(&export).await;

    let unknown = json!({ "jobId": "J20250315_0123456789ABC", "chunkKey": "main" }).to_string();
    let large = "large ".repeat(512 * 1024);
    let deep = "[".repeat(100_000);
    let binary = [0xff, 0xfe, 0, 1, 2];
    let sent: [&[u8]; 6] =
        [b"hello", br#"{"chunkKey":"main"}"#, &binary, unknown.as_bytes(), large.as_bytes(), deep.as_bytes()];
    site.send(&sent);
    client.complete(&export).await;

    let parked: Vec<Value> = site.take(&site.parking, sent.len()).iter().map(|read| read.json()).collect();
    let cause = |begins: &str| {
        let found = parked.iter().find(|parked| parked["body"].as_str().expect("text").starts_with(begins));
        let found = found.unwrap_or_else(|| panic!("{begins} is not among {parked:?}"));
        assert!(found["messageId"].as_str().is_some_and(|id| id.starts_with("foreign/")), "{found}");
        found["cause"].as_str().expect("a cause").to_owned()
    };
    assert!(cause("hello").starts_with("it is not JSON"), "{}", cause("hello"));
    assert_eq!(cause(r#"{"chunkKey"#), "`jobId` is missing");
    assert!(cause("\u{fffd}").starts_with("it is not UTF-8"), "{}", cause("\u{fffd}"));
    assert_eq!(
        cause(&unknown),
        "there is no such job or chunk here (does another installation use this queue?)"
    );
    let too_large = |bytes: usize| {
        format!(
            "messages of ours have at most 65536 bytes (it has {bytes} bytes, of which only the beginning \
             is kept)"
        )
    };
    assert_eq!(cause("large large "), too_large(large.len()));
    assert_eq!(cause("[[["), too_large(deep.len()));
    let kept = parked.iter().map(|parked| parked["body"].as_str().expect("text").len()).max();
    assert!(kept < Some(100_000), "{kept:?} bytes of one are kept");
    site.is_empty().await;

    // A chunk that is done has a message once more, which is nobody's mistake.
    let done = json!({ "jobId": job["jobId"], "key": "ABC", "effectiveDate": "20200101" }).to_string();
    site.send(&[done.as_bytes(), b"and this is the last"]);
    let last = site.take(&site.parking, 1);
    assert_eq!(last[0].json()["body"], "and this is the last");
    site.is_empty().await;
    assert_eq!(client.job(job["jobId"].as_str().expect("a jobId")).await, job, "nothing has changed");
}
