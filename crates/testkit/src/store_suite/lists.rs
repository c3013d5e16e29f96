//! Lists: every row once, whatever the size of the page.

use std::collections::HashSet;
use std::slice;

use chrono::TimeDelta;
use outhaul_core::id::JobId;
use outhaul_core::job::{JobStatus, NewJob};
use outhaul_core::reuse::Reuse;
use outhaul_core::state::ChunkStatus;
use outhaul_core::store::JobFilter;
use outhaul_core::worker::Finish;

use super::bench::{Bench, Kit, SETTINGS, chunk, custom, job, plain};
use super::files::{begin, generated};

/// All pages of a filter; fails if they do not end.
async fn jobs(bench: &Bench, filter: JobFilter) -> Vec<JobId> {
    let mut found = Vec::new();
    let mut filter = filter;
    for _ in 0..100 {
        let page = bench.store.jobs_list(&filter).await.expect("jobs_list");
        assert!(page.items.len() <= filter.limit as usize);
        found.extend(page.items.into_iter().map(|job| job.job_id));
        match page.next {
            None => return found,
            next => filter.before = next,
        }
    }
    panic!("the pages never end");
}

fn limit(limit: u32) -> JobFilter {
    JobFilter { limit, ..JobFilter::default() }
}

pub(super) async fn jobs_page_newest_first(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    for _ in 0..25 {
        ids.push(bench.submit(job(1)).await.job_id);
    }
    ids.reverse();
    for size in [1, 7, 25, 200] {
        assert_eq!(jobs(&bench, limit(size)).await, ids, "in pages of {size}");
    }
    // A job that arrives while a client pages neither repeats nor hides one.
    let first = bench.store.jobs_list(&limit(10)).await.expect("jobs_list");
    bench.submit(job(1)).await;
    let rest = jobs(&bench, JobFilter { before: first.next, ..limit(10) }).await;
    assert_eq!(rest, ids[10..]);
}

pub(super) async fn jobs_are_filtered(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (done, chunks) = bench.running(1).await;
    bench.finish(&chunks).await;
    let (running, _) = bench.running(1).await;
    let (failed, chunks) = bench.running(1).await;
    bench.fail(&chunks[0], None).await.expect("still owned");
    let waiting = bench.submit(NewJob { owner: "bob".to_owned(), ..job(1) }).await;
    let other = NewJob { dataset: Some("trades".to_owned()), job_type: "REPORT".to_owned(), ..job(1) };
    let cancelled = bench.submit(other).await.job_id;
    bench.store.job_cancel(&cancelled).await.expect("job_cancel");

    for (status, id) in [
        (JobStatus::Completed, &done),
        (JobStatus::InProgress, &running),
        (JobStatus::Failed, &failed),
        (JobStatus::Submitted, &waiting.job_id),
        (JobStatus::Cancelled, &cancelled),
    ] {
        let found = jobs(&bench, JobFilter { status: Some(status), ..limit(10) }).await;
        assert_eq!(found, slice::from_ref(id), "{status:?}, as it is shown");
    }
    let by_owner = JobFilter { owner: Some("bob".to_owned()), ..limit(10) };
    assert_eq!(jobs(&bench, by_owner).await, slice::from_ref(&waiting.job_id));
    let by_type = JobFilter { job_type: Some("REPORT".to_owned()), ..limit(10) };
    assert_eq!(jobs(&bench, by_type).await, slice::from_ref(&cancelled));
    let by_dataset = JobFilter { dataset: Some("trades".to_owned()), ..limit(10) };
    assert_eq!(jobs(&bench, by_dataset).await, slice::from_ref(&cancelled));
    let both =
        JobFilter { dataset: Some("trades".to_owned()), status: Some(JobStatus::Completed), ..limit(10) };
    assert_eq!(jobs(&bench, both).await, []);

    let edge = waiting.created_at;
    let after = jobs(&bench, JobFilter { created_after: Some(edge), ..limit(2) }).await;
    assert!(after.contains(&waiting.job_id) && !after.contains(&done), "at or after");
    let before = jobs(&bench, JobFilter { created_before: Some(edge), ..limit(2) }).await;
    assert!(before.contains(&done) && !before.contains(&waiting.job_id), "before");
    assert_eq!(after.len() + before.len(), 5);
    let future = Some(edge + TimeDelta::hours(1));
    assert_eq!(jobs(&bench, JobFilter { created_after: future, ..limit(10) }).await, []);
}

pub(super) async fn jobs_are_got_by_their_ids(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (done, chunks) = bench.running_of(custom()).await;
    let finish = Finish { result: Some("[1]".to_owned()), ..plain(&chunks[0]) };
    bench.store.chunks_finish(&[finish]).await.expect("chunks_finish");
    let (running, _) = bench.running(2).await;
    let waiting = bench.submit(job(1)).await.job_id;
    bench.submit(job(1)).await;
    let nobody = JobId::parse("J20260101_0000000000000").expect("well formed");
    let asked = [running.clone(), nobody.clone(), done.clone(), waiting.clone(), running.clone()];
    let mut got = bench.store.jobs_get(&asked).await.expect("jobs_get");
    got.sort_by_key(|job| job.job_id.as_str().to_owned());
    let mut expected = Vec::new();
    for id in [&done, &running, &waiting] {
        expected.push(bench.job(id).await);
    }
    expected.sort_by_key(|job| job.job_id.as_str().to_owned());
    assert_eq!(got, expected, "each once, as one of them is read");
    assert_eq!(got.iter().filter(|job| job.result.is_some()).count(), 1);
    assert_eq!(bench.store.jobs_get(&[nobody]).await.expect("jobs_get"), []);
    assert_eq!(bench.store.jobs_get(&[]).await.expect("jobs_get"), []);
}

pub(super) async fn chunks_page_completely(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let keys = [
        "b", "B", "a", "A", "ä", "Z", "z", "_", "-", "a b", "ab", "10", "9", "é", "e\u{301}", "%", "日本",
        "🦀",
    ];
    let chunks = keys.map(chunk).to_vec();
    let id = bench.submit(NewJob { chunks, ..job(0) }).await.job_id;
    let whole = bench.store.chunks_list(&id, None, None, 1000).await.expect("chunks_list");
    assert_eq!((whole.items.len(), &whole.next), (keys.len(), &None));
    let pages = async |status, size: u32| {
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..100 {
            let page =
                bench.store.chunks_list(&id, status, after.as_deref(), size).await.expect("chunks_list");
            assert!(page.items.len() <= size as usize);
            found.extend(page.items);
            match page.next {
                None => return found,
                next => after = next,
            }
        }
        panic!("the pages never end");
    };
    for size in [1, 5, 18, 19] {
        assert_eq!(pages(None, size).await, whole.items, "in pages of {size}");
    }
    let running = bench.claim(7).await;
    bench.finish(&running[..3]).await;
    for (status, count) in [
        (ChunkStatus::Pending, 11),
        (ChunkStatus::Running, 4),
        (ChunkStatus::Done, 3),
        (ChunkStatus::Failed, 0),
        (ChunkStatus::Cancelled, 0),
    ] {
        let found = pages(Some(status), 2).await;
        assert_eq!(found.len(), count, "{status:?}");
        assert!(found.iter().all(|row| row.state.status() == status));
        assert_eq!(found.iter().map(|row| row.id).collect::<HashSet<_>>().len(), count);
    }
    let nobody = JobId::parse("J20260101_0000000000000").expect("well formed");
    let none = bench.store.chunks_list(&nobody, None, None, 10).await.expect("chunks_list");
    assert_eq!((none.items, none.next), (vec![], None));
}

pub(super) async fn files_page_completely(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(12).await;
    for chunk in &chunks[..9] {
        let key = chunk.key.as_deref().expect("exports have keys");
        bench.store.file_begin(&begin(chunk, key, Reuse::Never)).await.expect("file_begin");
        bench.store.chunks_finish(&[generated(chunk, key)]).await.expect("chunks_finish");
    }
    bench.finish(&chunks[9..]).await;
    for size in [1, 4, 9, 100] {
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = bench.store.files_list(&id, after.as_deref(), size).await.expect("files_list");
            found.extend(page.items.into_iter().map(|row| row.key.expect("exports have keys")));
            assert!(found.len() <= 12, "the pages never end");
            match page.next {
                None => break,
                next => after = next,
            }
        }
        let expected: Vec<String> = (0..9).map(|n| format!("K{n:05}")).collect();
        assert_eq!(found, expected, "in pages of {size}; chunks without a file are not in the manifest");
    }
}
