//! Hostile text: stored as it is, or refused; never understood as anything but text.

use std::time::Duration;

use outhaul_core::file::{FileBegin, FileBegun, FileOutcome, FilePlace, PublishedFile};
use outhaul_core::job::{NewJob, OnFailure};
use outhaul_core::reuse::Reuse;
use outhaul_core::state::ChunkState;
use outhaul_core::store::{JobFilter, Submitted};
use outhaul_core::worker::{Failure, Finish};
use serde_json::json;

use super::bench::{Kit, QUEUE, SETTINGS, chunk, job, keyed, plain};
use super::files::{begin, generated, identity};

/// What clients may send where text is asked for.
pub(super) const HOSTILE: [&str; 9] = [
    "'; drop table job; --",
    r#"a "quoted" \ back\\slash \0 \n %s $1 ?1 :key"#,
    "tab\tnew\nline\r\n",
    "🦀🏴‍☠️ e\u{301} \u{202e}desrever",
    "{\"json\": [1, null]}",
    "{}",
    "{NULL,\"a,b\"}",
    "NULL",
    "\u{1}\u{7f}\u{feff}\u{fffd}\u{10ffff}",
];

pub(super) async fn hostile_text_is_stored_and_read_back(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    for (n, text) in HOSTILE.into_iter().chain([&*"long ".repeat(20_000)]).enumerate() {
        let text = text.to_owned();
        let short: String = text.chars().take(100).collect();
        let new = NewJob {
            job_type: short.clone(),
            dataset: Some(short.clone()),
            owner: short.clone(),
            request: json!({ &short: text }).into(),
            params: json!({ "text": text, &short: [null, 1.5, true, { "n": i64::MAX }] }).into(),
            labels: [(short.clone(), text.clone()), ("b".to_owned(), "ü".repeat(50_000))].into(),
            base_path: Some(text.clone()),
            on_failure: OnFailure::Continue,
            chunks: vec![chunk(&format!("{short}1")), chunk(&format!("{short}2"))],
            ..keyed(job(0), &short, &short)
        };
        let created = bench.submit(new.clone()).await;
        assert_eq!((&created.labels, &created.base_path), (&new.labels, &new.base_path), "{n}");
        assert_eq!(
            (&created.owner, &created.job_type, &created.dataset),
            (&short, &short, &new.dataset),
            "{n}"
        );
        let again = bench.store.job_submit(keyed(new.clone(), &short, &short)).await.expect("job_submit");
        assert_eq!(again, Submitted::Existing(created.clone()), "{n}");
        let filter = JobFilter {
            owner: Some(short.clone()),
            dataset: Some(short.clone()),
            job_type: Some(short.clone()),
            limit: 10,
            ..JobFilter::default()
        };
        assert_eq!(bench.store.jobs_list(&filter).await.expect("jobs_list").items, [created], "{n}");

        let claimed = bench.claim(2).await;
        assert_eq!((&claimed[0].params, &claimed[0].owner), (&new.params, &short), "{n}");
        assert_eq!(claimed[0].chunk_key, new.chunks[0].chunk_key, "{n}");
        let mut who = identity(&format!("{short}1"));
        (who.dataset, who.scope, who.variant) = (short.clone(), short.clone(), short.clone());
        // A base path belongs to one dataset.
        let place = FilePlace { base_path: format!("{short}/"), path: text.clone() };
        let wish = FileBegin { identity: who.clone(), place, ..begin(&claimed[0], "", Reuse::Any) };
        assert!(
            matches!(bench.store.file_begin(&wish).await.expect("file_begin"), FileBegun::Write(_)),
            "{n}"
        );
        let Finish { file: Some(FileOutcome::Generated(file)), .. } = generated(&claimed[0], "") else {
            unreachable!("`generated` makes a file");
        };
        let file =
            PublishedFile { identity: who.clone(), path: text.clone(), etag: Some(text.clone()), ..file };
        let finish = Finish {
            file: Some(FileOutcome::Generated(file.clone())),
            reason: text.clone(),
            ..plain(&claimed[0])
        };
        assert_eq!(bench.store.chunks_finish(&[finish]).await.expect("chunks_finish").len(), 1, "{n}");
        let cause = text.clone();
        let failure = Failure {
            lease: claimed[1].lease,
            expired: false,
            retry_in: None,
            cause,
            step: None,
            detail: None,
        };
        assert_eq!(bench.store.chunks_fail(&[failure]).await.expect("chunks_fail").len(), 1, "{n}");

        let rows = bench.store.chunks_list(&new.job_id, None, None, 10).await.expect("chunks_list").items;
        let stored = rows[0].file.as_ref().expect("it has a file");
        assert_eq!((&stored.path, &stored.etag, &stored.reason), (&text, &Some(text.clone()), &text), "{n}");
        assert_eq!(rows[1].error_message.as_ref(), Some(&text), "{n}");
        assert_eq!(rows[0].key.as_ref(), new.chunks[0].key.as_ref(), "{n}");
        let message = bench.job(&new.job_id).await.error_message.expect("it failed");
        assert_eq!(
            message,
            format!("Chunk failed after retries: key={short}2 date=2025-03-15: {text}"),
            "{n}"
        );
        let wanted = [(who.key.clone(), who.effective_date)];
        let found =
            bench.store.files_recorded(&short, &short, &short, &wanted).await.expect("files_recorded");
        assert_eq!(found.len(), 1, "{n}");
        assert_eq!((&found[0].0, &found[0].1.path), (&who, &text), "{n}");
    }
    assert_eq!(bench.probe.number("select count(*) from job").await, HOSTILE.len() as i64 + 1);
    bench.counts_hold().await;
}

/// PostgreSQL holds no NUL: a store may refuse it, but then nothing of it is stored and it goes on.
pub(super) async fn nul_breaks_nothing(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let nul = || "a\0b".to_owned();
    let with = |change: fn(&mut NewJob, String)| {
        let mut new = job(2);
        change(&mut new, nul());
        new
    };
    for new in [
        with(|job, nul| job.owner = nul),
        with(|job, nul| job.labels = [("a".to_owned(), nul)].into()),
        with(|job, nul| job.params = json!({ "a": nul }).into()),
        with(|job, nul| job.request = json!({ nul: 1 }).into()),
        with(|job, nul| job.chunks[1].key = Some(nul)),
        with(|job, nul| job.chunks[1].chunk_key = nul),
        keyed(job(2), &nul(), "hash"),
    ] {
        let id = new.job_id.clone();
        let stored = bench.store.job_submit(new).await.is_ok();
        let found = bench.store.job_get(&id).await.expect("job_get");
        assert_eq!(found.is_some(), stored, "all of it or nothing");
        if stored {
            assert_eq!(bench.states(&id).await.len(), 2);
            bench.store.job_cancel(&id).await.expect("job_cancel");
        }
    }
    bench.stage().await;
    let jobs = bench.probe.number("select count(*) from job").await;
    assert_eq!(bench.probe.number("select count(*) from job_chunk").await, 2 * jobs);

    let id = bench.submit(job(2)).await.job_id;
    let claimed = bench.claim(2).await;
    assert_eq!(claimed.len(), 2, "the connection is clean");
    let failure = |cause| Failure {
        lease: claimed[0].lease,
        expired: false,
        retry_in: Some(Duration::ZERO),
        cause,
        step: None,
        detail: None,
    };
    if bench.store.chunks_fail(&[failure(nul())]).await.is_err() {
        let settled = bench.store.chunks_fail(&[failure("a b".to_owned())]).await.expect("chunks_fail");
        assert_eq!(settled.len(), 1, "the refusal changed nothing");
    }
    assert_eq!(bench.states(&id).await, [ChunkState::Retry, ChunkState::Running]);
    bench.store.queue_pause(&nul(), true).await.ok();
    bench.store.job_get(&outhaul_core::id::JobId::from_store(nul())).await.ok();
    bench.store.chunks_list(&id, None, Some(&nul()), 10).await.ok();
    assert_eq!(bench.finish(&claimed[1..]).await, 1, "and the store goes on");
    assert!(bench.store.queues_list().await.expect("queues_list").iter().any(|queue| queue.name == QUEUE));
    bench.counts_hold().await;
}
