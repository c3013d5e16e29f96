//! Steps: recorded once under the fence, found by every later attempt, shown without their results.

use std::time::Duration;

use outhaul_core::clock;
use outhaul_core::id::{ChunkId, JobId, Lease};
use outhaul_core::job::NewJob;
use outhaul_core::json::Json;
use outhaul_core::step::MAX_RESULT_BYTES;
use outhaul_core::store::{Redriven, Store};
use outhaul_core::worker::Failure;

use super::bench::{Bench, Kit, SETTINGS, SHORT_LEASE, custom, job};

async fn record(store: &dyn Store, lease: Lease, name: &str, result: &str) -> bool {
    store.step_record(lease, name, result).await.expect("step_record")
}

/// Name and result of every recorded step; `None`: the lease is lost.
async fn recorded(store: &dyn Store, lease: Lease) -> Option<Vec<(String, String)>> {
    let steps = store.steps_recorded(lease).await.expect("steps_recorded")?;
    Some(steps.into_iter().map(|step| (step.name, step.result)).collect())
}

async fn listed(bench: &Bench, id: &JobId) -> Vec<String> {
    let steps = bench.other.steps_list(id).await.expect("steps_list");
    assert!(steps.is_sorted_by_key(|step| step.completed_at));
    steps.into_iter().map(|step| step.name).collect()
}

fn pairs(steps: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    Some(steps.iter().map(|(name, result)| ((*name).to_owned(), (*result).to_owned())).collect())
}

pub(super) async fn later_attempts_find_what_was_recorded(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(custom()).await;
    let (first, store) = (chunks[0].lease, &*bench.store);
    assert_eq!(recorded(store, first).await, pairs(&[]));
    assert!(record(store, first, "zero", "1").await);
    assert!(record(store, first, "alpha", "{}").await);
    let both = [("zero", "1"), ("alpha", "{}")];
    assert_eq!(recorded(&*bench.other, first).await, pairs(&both), "in their order, not by name");

    bench.fail(&chunks[0], Some(Duration::ZERO)).await.expect("still owned");
    let second = bench.claim_again().await;
    assert_eq!(recorded(store, second.lease).await, pairs(&both));
    assert!(record(store, second.lease, "beta", "[]").await);
    let all = [("zero", "1"), ("alpha", "{}"), ("beta", "[]")];
    bench.fail(&second, None).await.expect("still owned");
    assert_eq!(bench.store.job_redrive(&id).await.expect("job_redrive"), Redriven::Yes(1));
    let third = bench.claim_one().await;
    assert_eq!(recorded(store, third.lease).await, pairs(&all), "a redrive resumes, too");
    assert_eq!(bench.finish(&[third]).await, 1);
    assert_eq!(listed(&bench, &id).await, ["zero", "alpha", "beta"], "and they stay with the job");
}

pub(super) async fn a_result_is_returned_byte_for_byte(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (_, chunks) = bench.running_of(custom()).await;
    let results = [
        "null".to_owned(),
        r#""""#.to_owned(),
        r#"{ "b": 1, "a": 2,  "b" : "\u0000 \u0041 \ud83e\udd80 \/" }"#.to_owned(),
        "123456789012345678901234567890.00000000000000000000001e-7".to_owned(),
        "[1e400, -0, 0.10]".to_owned(),
        "\"'; drop table step; -- %s $1 ?1 🦀 \u{202e} \u{7f}\"".to_owned(),
        " \t\n[\r\n] ".to_owned(),
        format!("\"{}\"", "x".repeat(MAX_RESULT_BYTES - 2)),
    ];
    for (n, result) in results.iter().enumerate() {
        assert!(record(&*bench.store, chunks[0].lease, &format!("step-{n}"), result).await, "{n}");
    }
    let found = recorded(&*bench.other, chunks[0].lease).await.expect("still owned");
    for (n, result) in results.iter().enumerate() {
        assert!(found[n].1 == *result, "{n}: {:.200}", found[n].1);
    }
}

pub(super) async fn a_step_is_recorded_once(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(custom()).await;
    let (first, store) = (chunks[0].lease, &*bench.store);
    assert!(record(store, first, "charge", "1").await);
    assert!(
        record(&*bench.other, first, "charge", "2").await,
        "an answer may get lost: the same again is fine"
    );
    assert_eq!(recorded(store, first).await, pairs(&[("charge", "1")]), "and changes nothing");

    bench.store.chunks_return(&[first]).await.expect("chunks_return");
    let second = bench.claim_one().await.lease;
    assert!(!record(store, first, "stale", "3").await, "the fence moved on");
    assert!(!record(store, first, "charge", "3").await);
    assert_eq!(recorded(store, first).await, None);
    assert!(!record(store, second, "charge", "3").await, "it was done before: nobody does it again");
    assert_eq!(recorded(store, second).await, pairs(&[("charge", "1")]));
    assert_eq!(listed(&bench, &id).await, ["charge"]);
}

pub(super) async fn only_the_owner_records_steps(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let nobody = Lease { chunk: ChunkId(987_654), fence: 1 };
    assert_eq!(recorded(&*bench.store, nobody).await, None);
    assert!(!record(&*bench.store, nobody, "a", "1").await);
    let (id, chunks) = bench.running(3).await;
    bench.finish(&chunks[..1]).await;
    bench.fail(&chunks[1], Some(Duration::ZERO)).await.expect("still owned");
    bench.store.chunk_snooze(chunks[2].lease, Duration::ZERO).await.expect("chunk_snooze");
    let before = bench.job(&id).await;
    for chunk in &chunks {
        assert_eq!(recorded(&*bench.store, chunk.lease).await, None, "{}", chunk.lease);
        assert!(!record(&*bench.store, chunk.lease, "a", "1").await, "{}", chunk.lease);
    }
    assert_eq!(bench.probe.number("select count(*) from step").await, 0);
    assert_eq!(bench.job(&id).await, before, "a refused write leaves no trace");
}

pub(super) async fn a_step_changes_the_jobs_version(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running_of(custom()).await;
    let mut before = bench.job(&id).await;
    for name in ["a", "b", "c"] {
        assert!(record(&*bench.store, chunks[0].lease, name, "1").await);
        let after = bench.job(&id).await;
        assert!(after.version > before.version, "who watches the job must see {name}");
        assert!(after.updated_at >= before.updated_at);
        assert_eq!((after.status, after.counts), (before.status, before.counts));
        before = after;
    }
}

pub(super) async fn internal_steps_are_not_listed(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(3).await;
    let (_, others) = bench.running_of(custom()).await;
    for (chunk, name) in [(2, "late"), (0, "~sleep-1"), (0, "a"), (1, "a"), (1, "~"), (0, "a~b"), (2, "_")] {
        assert!(record(&*bench.store, chunks[chunk].lease, name, "1").await);
    }
    assert!(record(&*bench.store, others[0].lease, "of-another-job", "1").await);
    assert_eq!(listed(&bench, &id).await, ["late", "a", "a", "a~b", "_"]);
    let own = recorded(&*bench.store, chunks[0].lease).await;
    assert_eq!(own, pairs(&[("~sleep-1", "1"), ("a", "1"), ("a~b", "1")]), "its chunk finds all of its own");
    assert_eq!(listed(&bench, &JobId::new(clock::now(), 1)).await, [""; 0]);
    assert_eq!(listed(&bench, &bench.submit(job(1)).await.job_id).await, [""; 0]);
}

/// A step that was recorded before its owner lost the chunk is there for the next one; one that was
/// refused is not.
pub(super) async fn recording_against_reaping(kit: Kit) {
    let bench = kit.bench(SHORT_LEASE).await;
    for _ in 0..20 {
        bench.submit(custom()).await;
        let chunk = bench.claim_one().await;
        bench.expired(1).await;
        let (owner, reaper) = (bench.store.clone(), bench.other.clone());
        let lease = chunk.lease;
        let failure = Failure {
            lease,
            expired: true,
            retry_in: Some(Duration::ZERO),
            cause: "lost".to_owned(),
            step: None,
            detail: None,
        };
        let recording = tokio::spawn(async move { record(&*owner, lease, "step", "1").await });
        let reaping = tokio::spawn(async move { reaper.chunks_fail(&[failure]).await.expect("chunks_fail") });
        let written = recording.await.expect("no panic");
        assert_eq!(reaping.await.expect("no panic").len(), 1);
        let next = bench.claim_again().await;
        let found = recorded(&*bench.store, next.lease).await;
        assert_eq!(found, pairs(if written { &[("step", "1")] } else { &[] }));
        assert_eq!(bench.finish(&[next]).await, 1);
    }
}

/// What a payload may hold: any JSON, as it came.
/// A claim is made before its rows are read: one that cannot be read must not take others with it.
pub(super) async fn params_that_cannot_be_read_fail_alone(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let broken = bench.submit(custom()).await.job_id;
    let sound = bench.submit(custom()).await.job_id;
    let sql = format!("update job set params = 'not JSON' where job_id = '{broken}'");
    assert_eq!(bench.probe.execute(&sql).await, 1);
    let claimed = bench.claim(10).await;
    let params = |id: &JobId| claimed.iter().find(|chunk| chunk.job_id == *id).map(|chunk| &chunk.params);
    assert_eq!(params(&broken), Some(&Json::null()));
    assert_eq!(params(&sound), Some(&custom().params));
}

pub(super) async fn params_are_claimed_intact(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for params in [
        r#"{ "payload": { "a\u0000b": "x\u0000y", "": [null, "\ufeff\udbff\udfff"] } }"#,
        // More digits than any number of the databases has.
        r#"{"payload":[18446744073709551615,-9223372036854775808,0.10,1E300,-0.0,1e-400]}"#,
        r#"{"payload":{"z":123456789012345678901234567890,"a":0.1234567890123456789}}"#,
        "null",
        "\"text\"",
        &format!(r#"{{"payload":"{}"}}"#, "ü".repeat(1_000_000)),
    ] {
        let params = Json::parse(params).expect("JSON");
        bench.submit(NewJob { params: params.clone(), ..custom() }).await;
        let chunk = bench.claim_one().await;
        assert!(chunk.params == params, "{:.300}", chunk.params.as_str());
        assert_eq!(bench.finish(&[chunk]).await, 1);
    }
}
