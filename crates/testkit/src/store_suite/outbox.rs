//! The outbox: a death leaves its parking message in the same transaction, once; relays take messages in
//! order, each one at a time, until they delete them.

use std::collections::HashSet;
use std::time::Duration;

use outhaul_core::announcement::DeliveryLag;
use outhaul_core::id::JobId;
use outhaul_core::job::{NewJob, OnFailure, OnParentFailure};
use outhaul_core::outbox::{NewOutboxMessage, OutboxMessage};
use outhaul_core::state::ChunkState;
use outhaul_core::store::StoreSettings;
use outhaul_core::worker::{ClaimedChunk, Failure};
use serde_json::{Value, json};

use super::bench::{Bench, Kit, SETTINGS, SHORT_LEASE, at_once, custom, job};
use super::text::HOSTILE;

const PARKING: StoreSettings = StoreSettings { parking: true, ..SETTINGS };

fn message(id: &str) -> NewOutboxMessage {
    NewOutboxMessage { message_id: id.to_owned(), body: format!("{{\"messageId\":\"{id}\"}}") }
}

async fn put(bench: &Bench, ids: &[&str]) {
    let messages: Vec<_> = ids.iter().map(|id| message(id)).collect();
    bench.store.outbox_put(&messages).await.expect("outbox_put");
}

async fn take(bench: &Bench, limit: u32) -> Vec<OutboxMessage> {
    bench.store.outbox_take(limit).await.expect("outbox_take")
}

fn ids(messages: &[OutboxMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.message_id.as_str()).collect()
}

/// What was parked since the last time; gone then.
async fn parked(bench: &Bench) -> Vec<Value> {
    let taken = take(bench, 1000).await;
    let places: Vec<i64> = taken.iter().map(|message| message.id).collect();
    bench.other.outbox_delete(&places).await.expect("outbox_delete");
    let read = |message: OutboxMessage| {
        let body: Value = serde_json::from_str(&message.body).expect("JSON text");
        assert_eq!(body["messageId"], message.message_id);
        in_order(&message.body);
        body
    };
    taken.into_iter().map(read).collect()
}

/// The members stand in the order in which people read them.
fn in_order(body: &str) {
    let members = ["messageId", "jobId", "chunkKey", "key", "effectiveDate", "attempts", "cause"];
    let places = members.map(|member| body.find(&format!("\"{member}\"")).expect(member));
    assert!(places.is_sorted(), "{body}");
}

fn expected(chunk: &ClaimedChunk, attempts: u32, cause: &str) -> Value {
    let (job_id, chunk_key) = (chunk.job_id.as_str(), chunk.chunk_key.as_str());
    json!({
        "messageId": format!("{job_id}/{chunk_key}/{}", chunk.lease.fence),
        "jobId": job_id,
        "chunkKey": chunk_key,
        "key": chunk.key,
        "effectiveDate": chunk.effective_date.map(|date| date.format("%Y%m%d").to_string()),
        "attempts": attempts,
        "cause": cause,
    })
}

pub(super) async fn a_death_leaves_one_message(kit: Kit) {
    let bench = kit.bench(PARKING).await;
    let (_, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(3) }).await;
    bench.fail(&chunks[0], Some(Duration::ZERO)).await.expect("still owned");
    assert_eq!(parked(&bench).await, Vec::<Value>::new(), "one that is tried again is not dead");
    let again = bench.claim_again().await;
    assert_eq!(bench.fail(&chunks[0], None).await, None, "its lease is lost");
    assert_eq!(parked(&bench).await, Vec::<Value>::new(), "who lost it parks nothing");
    assert_eq!(bench.fail_with(&again, None, None, "no such table").await, Some(ChunkState::Dead));
    assert_eq!(parked(&bench).await, [expected(&again, 2, "no such table")]);
    bench.fail_with(&again, None, None, "no such table").await;
    assert_eq!(parked(&bench).await, Vec::<Value>::new());

    // Several in one batch, one of which is tried again.
    let fail = |chunk: &ClaimedChunk, retry_in| Failure {
        lease: chunk.lease,
        expired: false,
        retry_in,
        cause: "broken".to_owned(),
        step: None,
        detail: None,
    };
    let (_, more) = bench.running(2).await;
    let batch = [
        fail(&chunks[1], None),
        fail(&more[0], Some(Duration::ZERO)),
        fail(&chunks[2], None),
        fail(&more[1], None),
    ];
    assert_eq!(bench.store.chunks_fail(&batch).await.expect("chunks_fail").len(), 4);
    let mut found = parked(&bench).await;
    found.sort_by_key(|body| body["messageId"].to_string());
    let mut dead = [&chunks[1], &chunks[2], &more[1]].map(|chunk| expected(chunk, 1, "broken"));
    dead.sort_by_key(|body| body["messageId"].to_string());
    assert_eq!(found, dead);

    let (_, mail) = bench.running_of(custom()).await;
    // Only operators read the parking queue.
    let whole = Some("no such user at 10.0.0.7:25".to_owned());
    let told = Failure { cause: "no such user".to_owned(), detail: whole, ..fail(&mail[0], None) };
    assert_eq!(bench.store.chunks_fail(&[told]).await.expect("chunks_fail").len(), 1);
    let found = parked(&bench).await;
    assert_eq!(found, [expected(&mail[0], 1, "no such user at 10.0.0.7:25")]);
    assert_eq!((&found[0]["key"], &found[0]["effectiveDate"]), (&Value::Null, &Value::Null));
}

pub(super) async fn only_a_death_is_parked(kit: Kit) {
    let bench = kit.bench(PARKING).await;
    let (id, chunks) = bench.running(4).await;
    bench.finish(&chunks[..1]).await;
    bench.store.chunks_return(&[chunks[1].lease]).await.expect("chunks_return");
    bench.store.job_cancel(&id).await.expect("job_cancel");
    assert_eq!(bench.fail(&chunks[2], None).await, Some(ChunkState::Cancelled));
    bench.store.chunks_cancel(&[chunks[3].lease]).await.expect("chunks_cancel");
    bench.stage().await;
    assert_eq!(take(&bench, 10).await, []);

    let bench = kit.bench(SETTINGS).await;
    let (parent, chunks) = bench.running(1).await;
    let child = NewJob { parents: vec![parent], on_parent_failure: OnParentFailure::Fail, ..job(1) };
    let child = bench.submit(child).await.job_id;
    assert_eq!(bench.fail(&chunks[0], None).await, Some(ChunkState::Dead));
    bench.stage().await;
    assert_eq!(bench.states(&child).await, [ChunkState::Dead]);
    assert_eq!(take(&bench, 10).await, [], "without a broker nothing is parked");
}

pub(super) async fn a_lease_lost_for_good_is_parked(kit: Kit) {
    let bench = kit.bench(StoreSettings { parking: true, ..SHORT_LEASE }).await;
    let (_, chunks) = bench.running(1).await;
    let expired = bench.expired(1).await;
    let failure = Failure {
        lease: expired[0].lease,
        expired: true,
        retry_in: None,
        cause: "its worker went away".to_owned(),
        step: None,
        detail: None,
    };
    let reap = || bench.store.chunks_fail(std::slice::from_ref(&failure));
    assert_eq!(reap().await.expect("chunks_fail").len(), 1);
    assert_eq!(reap().await.expect("chunks_fail").len(), 0);
    assert_eq!(parked(&bench).await, [expected(&chunks[0], 1, "its worker went away")]);
}

pub(super) async fn chunks_that_die_with_a_parent_are_parked(kit: Kit) {
    let bench = kit.bench(PARKING).await;
    let (parent, chunks) = bench.running(1).await;
    let child = NewJob { parents: vec![parent.clone()], on_parent_failure: OnParentFailure::Fail, ..job(3) };
    bench.submit(child.clone()).await;
    // One is in the outbox already, as after a redrive that came to nothing.
    let id = |n: usize| format!("{}/{}/0", child.job_id, child.chunks[n].chunk_key);
    put(&bench, &[&id(1)]).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    bench.stage().await;
    assert_eq!(bench.states(&child.job_id).await, [ChunkState::Dead; 3]);
    let taken = take(&bench, 10).await;
    let mut found = ids(&taken);
    found.sort_unstable();
    let parent_id = format!("{parent}/{}/1", chunks[0].chunk_key);
    let mut wanted = vec![id(0), id(1), id(2), parent_id];
    wanted.sort_unstable();
    assert_eq!(found, wanted, "each once");
    let of = |n: usize| &taken.iter().find(|message| message.message_id == id(n)).expect("found above").body;
    assert_eq!(of(1), &message(&id(1)).body, "the first of a message id stays");
    let body: Value = serde_json::from_str(of(2)).expect("JSON text");
    in_order(of(2));
    let cause = format!("The job it depends on, {parent}, is FAILED");
    let expected = json!({
        "messageId": id(2), "jobId": child.job_id.as_str(), "chunkKey": child.chunks[2].chunk_key,
        "key": "K00002", "effectiveDate": "20250315", "attempts": 0, "cause": cause,
    });
    assert_eq!(body, expected);
}

/// The fence goes on rising, so that every death after a claim has a name of its own.
pub(super) async fn a_chunk_that_dies_again_is_parked_again(kit: Kit) {
    let bench = kit.bench(PARKING).await;
    let (id, mut chunks) = bench.running(1).await;
    let chunk = chunks.remove(0);
    bench.fail(&chunk, None).await.expect("still owned");
    bench.store.job_redrive(&id).await.expect("job_redrive");
    let again = bench.claim_one().await;
    bench.fail(&again, None).await.expect("still owned");
    let bodies = parked(&bench).await;
    let cause = "the source went away";
    assert_eq!(bodies, [expected(&chunk, 1, cause), expected(&again, 1, cause)]);
    assert_ne!(bodies[0]["messageId"], bodies[1]["messageId"]);

    // Whatever else took the name: the death is recorded.
    bench.store.job_redrive(&id).await.expect("job_redrive");
    let last = bench.claim_one().await;
    put(&bench, &[&format!("{id}/{}/{}", last.chunk_key, last.lease.fence)]).await;
    assert_eq!(bench.fail(&last, None).await, Some(ChunkState::Dead));
    assert_eq!(take(&bench, 10).await.len(), 1);
}

/// Neither is there without the other, whatever fails.
pub(super) async fn a_death_and_its_message_are_one(kit: Kit) {
    let bench = kit.bench(PARKING).await;
    let (id, chunks) = bench.running(1).await;
    let failure = Failure {
        lease: chunks[0].lease,
        expired: false,
        retry_in: None,
        cause: "broken".to_owned(),
        step: None,
        detail: None,
    };
    for table in ["outbox", "chunk_history"] {
        bench.probe.execute(&format!("alter table {table} rename to away")).await;
        let refused = bench.store.chunks_fail(std::slice::from_ref(&failure)).await;
        assert!(refused.is_err(), "without {table}: {refused:?}");
        bench.probe.execute(&format!("alter table away rename to {table}")).await;
        assert_eq!(bench.states(&id).await, [ChunkState::Running], "without {table}");
        assert_eq!(bench.probe.number("select count(*) from outbox").await, 0, "without {table}");
    }
    assert_eq!(bench.store.chunks_fail(&[failure]).await.expect("chunks_fail").len(), 1);
    assert_eq!(parked(&bench).await.len(), 1);
    bench.counts_hold().await;
}

pub(super) async fn hostile_text_is_parked_as_it_is(kit: Kit) {
    let bench = kit.bench(PARKING).await;
    for text in HOSTILE {
        let mut new = job(1);
        new.chunks[0].chunk_key = text.to_owned();
        new.chunks[0].key = Some(text.to_owned());
        let (_, chunks) = bench.running_of(new).await;
        bench.fail_with(&chunks[0], None, None, text).await.expect("still owned");
        let taken = take(&bench, 10).await;
        let body: Value = serde_json::from_str(&taken[0].body).expect("JSON text");
        assert_eq!((taken.len(), body), (1, expected(&chunks[0], 1, text)));

        let own = NewOutboxMessage { message_id: text.to_owned(), body: json!({ "body": text }).to_string() };
        bench.store.outbox_put(std::slice::from_ref(&own)).await.expect("outbox_put");
        let taken = take(&bench, 10).await;
        assert_eq!((taken.len(), &taken[0].message_id, &taken[0].body), (1, &own.message_id, &own.body));
    }
}

pub(super) async fn messages_are_taken_in_order_by_one_at_a_time(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    bench.store.outbox_put(&[]).await.expect("outbox_put");
    bench.store.outbox_delete(&[]).await.expect("outbox_delete");
    assert_eq!(take(&bench, 10).await, []);
    for id in ["b", "a", "c", "e"] {
        put(&bench, &[id]).await;
    }
    put(&bench, &["d", "a", "d"]).await;
    let other = NewOutboxMessage { body: "{}".to_owned(), ..message("a") };
    bench.other.outbox_put(&[other]).await.expect("outbox_put");
    assert_eq!(take(&bench, 0).await, []);
    let first = take(&bench, 2).await;
    assert_eq!(ids(&first), ["b", "a"], "the oldest first");
    assert_eq!(first[1].body, message("a").body, "the first of a message id stays");
    let rest = bench.other.outbox_take(10).await.expect("outbox_take");
    assert_eq!(ids(&rest), ["c", "e", "d"], "each is there once");
    assert_eq!(take(&bench, 10).await, [], "all are in someone's hands");

    // The first relay never came back.
    let sql = format!(
        "update outbox set taken_until = {} where id in ({}, {})",
        bench.probe.moment(0),
        first[0].id,
        first[1].id
    );
    assert_eq!(bench.probe.execute(&sql).await, 2);
    put(&bench, &["f"]).await;
    assert_eq!(ids(&take(&bench, 1).await), ["b"]);
    assert_eq!(ids(&take(&bench, 10).await), ["a", "f"]);
    let done = [first[0].id, rest[0].id, i64::MAX];
    bench.store.outbox_delete(&done).await.expect("outbox_delete");
    let left = bench.probe.texts("select message_id from outbox order by id").await;
    assert_eq!(left, ["a", "e", "d", "f"]);
    put(&bench, &["b"]).await;
    let again = take(&bench, 10).await;
    assert_eq!(ids(&again), ["b"], "a message id is free again when its message is gone");
    assert!(again[0].id > first[0].id);
}

pub(super) async fn the_lag_tells_what_waits(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let lag = async || bench.other.delivery_lag().await.expect("delivery_lag");
    assert_eq!(lag().await, DeliveryLag::default());
    put(&bench, &["a", "b", "c"]).await;
    let since = bench.probe.now().await;
    let taken = take(&bench, 1).await;
    let column = bench.probe.micros("taken_until");
    let until = bench.probe.number(&format!("select {column} from outbox where id = {}", taken[0].id)).await;
    let held = outhaul_core::announcement::ANNOUNCEMENT_HELD.as_micros() as i64;
    assert!((since + held - 1000..=bench.probe.now().await + held + 1000).contains(&until));

    let column = bench.probe.an_hour_before("created_at");
    let sql = format!("update outbox set created_at = {column} where message_id = 'a'");
    assert_eq!(bench.probe.execute(&sql).await, 1);
    let found = lag().await;
    assert_eq!((found.announced, found.outbox), (0, 3), "also what is in someone's hands");
    let hour = Duration::from_secs(3600);
    assert!((hour..2 * hour).contains(&found.outbox_oldest), "{found:?}");
    bench.store.outbox_delete(&[taken[0].id]).await.expect("outbox_delete");
    let found = lag().await;
    assert_eq!(found.outbox, 2);
    assert!(found.outbox_oldest < hour, "{found:?}");
}

pub(super) async fn relays_at_once_share_no_message(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let all: Vec<String> = (0..300).map(|n| format!("m{n:03}")).collect();
    put(&bench, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let relays = (0..8)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            async move {
                let (mut mine, mut empty) = (Vec::new(), 0);
                // One may miss what another is taking, so one empty answer proves nothing.
                while empty < 20 {
                    let taken = store.outbox_take(7).await.expect("outbox_take");
                    assert!(taken.len() <= 7 && taken.is_sorted_by_key(|message| message.id), "{taken:?}");
                    empty = if taken.is_empty() { empty + 1 } else { 0 };
                    let done: Vec<i64> = taken.iter().map(|message| message.id).collect();
                    store.outbox_delete(&done).await.expect("outbox_delete");
                    mine.extend(taken.into_iter().map(|message| message.message_id));
                }
                mine
            }
        })
        .collect();
    let mut sent: Vec<String> = at_once(relays).await.into_iter().flatten().collect();
    sent.extend(take(&bench, 1000).await.into_iter().map(|message| message.message_id));
    let distinct: HashSet<&String> = sent.iter().collect();
    assert_eq!((sent.len(), distinct.len()), (300, 300), "each message once");
}

/// Chunks that die at the same instant, while others say the same of them.
pub(super) async fn deaths_at_once_are_parked_once_each(kit: Kit) {
    let bench = kit.bench(StoreSettings { parking: true, ..SHORT_LEASE }).await;
    let (_, chunks) = bench.running_of(NewJob { on_failure: OnFailure::Continue, ..job(30) }).await;
    bench.expired(30).await;
    let acts = (0..6)
        .map(|n| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let mut failures: Vec<Failure> = chunks
                .iter()
                .map(|chunk| Failure {
                    lease: chunk.lease,
                    expired: n % 2 == 0,
                    retry_in: None,
                    cause: "broken".to_owned(),
                    step: None,
                    detail: None,
                })
                .collect();
            if n > 2 {
                failures.reverse();
            }
            async move {
                let mut died = 0;
                for batch in failures.chunks(5) {
                    died += store.chunks_fail(batch).await.expect("chunks_fail").len();
                }
                died
            }
        })
        .collect();
    assert_eq!(at_once(acts).await.into_iter().sum::<usize>(), 30, "each dies once");
    let found: HashSet<String> =
        parked(&bench).await.iter().map(|body| body["messageId"].to_string()).collect();
    assert_eq!(found.len(), 30);
    let of_job = |id: &JobId| found.iter().filter(|text| text.contains(id.as_str())).count();
    assert_eq!(of_job(&chunks[0].job_id), 30);
}
