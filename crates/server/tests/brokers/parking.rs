//! A chunk that dies is told of on the parking queue, once for every death.

use std::collections::BTreeSet;

use outhaul_testkit::servers::BrokerKind;
use serde_json::json;

use crate::common::{Client, STEADY, eventually};
use crate::site::Site;
use crate::with_both;

with_both!(every_death_of_a_chunk_has_one_message);

/// Fails for one of the keys, however often it is tried.
const QUERY: &str = "select 1 / (case when :key = 'BAD' then 0 else 1 end) as n, :effective_date as day";

async fn every_death_of_a_chunk_has_one_message(kind: BrokerKind) {
    let source = format!(
        "[sources.warehouse]\nurl = \"{{postgres}}\"\n\n\
         [datasets.positions]\ndefault = true\nsource = \"warehouse\"\nquery = \"{QUERY}\"\n\n"
    );
    let site = Site::shared(kind, "", &format!("{STEADY}{source}")).await;
    let api = site.stack.serve("api", "api").await;
    let _others =
        [("worker", "worker"), ("scheduler", "scheduler")].map(|(name, roles)| site.stack.spawn(name, roles));
    let client = api.client();
    let items = ["GOOD", "BAD"].map(|key| json!({ "key": key, "effectiveDates": ["20250215"] }));
    let id = client.submit(&json!({ "items": items })).await;
    client.wait_for(&id, "FAILED").await;
    let first = parked(&site, &client, &id, None).await;

    let redrive = json!({ "filter": { "jobId": id } });
    let (status, answer) = client.post("/dead-letters/redrive", &redrive).await.expect("the API answers");
    assert_eq!((status, &answer["redriven"]), (200, &json!(1)), "{answer}");
    let dead = eventually("the chunk has died again", || async { deaths(&client, &id).await == 2 });
    dead.await.unwrap_or_else(|error| panic!("{error}"));
    parked(&site, &client, &id, Some(&first)).await;
    site.is_empty().await;
}

/// How often chunks of a job have died.
async fn deaths(client: &Client, id: &str) -> usize {
    let history = client.all(&format!("/jobs/{id}/history")).await;
    history.iter().filter(|row| row["to"] == "DEAD").count()
}

/// Takes the message of the last death from the parking queue, compares it with the dead letter, and returns its
/// id, which is another than `before`. It may be there twice, if the broker was slow to confirm it, under one id.
async fn parked(site: &Site, client: &Client, id: &str, before: Option<&str>) -> String {
    site.outbox_is_empty().await;
    let mut messages = Vec::new();
    while messages.is_empty() {
        site.holds_at_least(&site.parking, (1, 0)).await;
        let (there, _) = site.counts(&site.parking).await;
        messages = site.take(&site.parking, usize::try_from(there).expect("few"));
        messages.retain(|message| before.is_none() || message.message_id.as_deref() != before);
    }
    let message = messages.remove(0);
    let body = message.json();
    for other in &messages {
        assert_eq!(
            (&other.message_id, other.json()),
            (&message.message_id, body.clone()),
            "one for each death"
        );
    }
    let members: BTreeSet<&str> = body.as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = ["attempts", "cause", "chunkKey", "effectiveDate", "jobId", "key", "messageId"];
    assert_eq!(members, BTreeSet::from(expected), "{body}");
    let letters = client.all("/dead-letters").await;
    let letter = letters.iter().find(|letter| letter["jobId"] == id).expect("it is dead");
    for member in ["jobId", "chunkKey", "attempts", "cause"] {
        assert_eq!(body[member], letter[member], "{member}: {body} {letter}");
    }
    assert_eq!((&body["key"], &body["effectiveDate"]), (&json!("BAD"), &json!("20250215")));
    assert!(body["attempts"].as_i64() >= Some(1) && body["cause"].is_string(), "{body}");
    let message_id = message.message_id.as_deref().expect("a message id");
    assert_eq!(body["messageId"], message_id, "one id, in the header and in the body");
    let chunk = format!("{id}/{}/", body["chunkKey"].as_str().expect("a chunk key"));
    assert!(message_id.starts_with(&chunk) && message.persistent, "{message:?}");
    message_id.to_owned()
}
