//! Files: one writer per identity, generations, reuse, and what dead writers leave.

use std::time::Duration;

use chrono::{Days, TimeDelta};
use outhaul_core::file::{
    FileBegin, FileBegun, FileIdentity, FileOutcome, FilePlace, FileRecord, Leftover, PublishedFile, Upload,
    WriteGrant,
};
use outhaul_core::id::{JobId, Lease};
use outhaul_core::job::JobStatus;
use outhaul_core::reuse::Reuse;
use outhaul_core::state::ChunkState;
use outhaul_core::worker::{ClaimedChunk, Finish};

use super::bench::{Bench, Kit, SETTINGS, at_once, day, job, plain};

const FRESH: FileBegun = FileBegun::Write(WriteGrant { recorded: None, leftover: None });

/// The identity of a key.
pub(super) fn identity(key: &str) -> FileIdentity {
    FileIdentity {
        dataset: "positions".to_owned(),
        scope: String::new(),
        key: key.to_owned(),
        effective_date: day(),
        variant: String::new(),
    }
}

/// The chunk's wish to answer for the key.
pub(super) fn begin(chunk: &ClaimedChunk, key: &str, reuse: Reuse) -> FileBegin {
    FileBegin {
        lease: chunk.lease,
        identity: identity(key),
        place: place(key),
        definition: "v1".to_owned(),
        reuse,
    }
}

/// Where the file of a key goes.
pub(super) fn place(key: &str) -> FilePlace {
    FilePlace { base_path: "exports/".to_owned(), path: format!("exports/2025/03/15/{key}_20250315.csv") }
}

/// The chunk's success with a new file for the key.
pub(super) fn generated(chunk: &ClaimedChunk, key: &str) -> Finish {
    let file = PublishedFile {
        identity: identity(key),
        path: place(key).path,
        rows: 10,
        bytes: 1000,
        sha256: format!("sha of {}", chunk.lease),
        etag: Some(format!("etag of {}", chunk.lease)),
        format: "CSV".to_owned(),
        definition: "v1".to_owned(),
    };
    Finish { file: Some(FileOutcome::Generated(file)), reason: "generated".to_owned(), ..plain(chunk) }
}

/// The chunk's success with the recorded file of the key.
pub(super) fn reused(chunk: &ClaimedChunk, key: &str, record: FileRecord) -> Finish {
    let file = FileOutcome::Reused { identity: identity(key), record };
    Finish { file: Some(file), reason: "reused".to_owned(), ..plain(chunk) }
}

pub(super) async fn ask(bench: &Bench, chunk: &ClaimedChunk, reuse: Reuse) -> FileBegun {
    let key = chunk.key.as_deref().expect("exports have keys");
    bench.store.file_begin(&begin(chunk, key, reuse)).await.expect("file_begin")
}

/// A job of one chunk for K00000, claimed.
pub(super) async fn one(bench: &Bench) -> (JobId, ClaimedChunk) {
    let (id, mut chunks) = bench.running(1).await;
    (id, chunks.pop().expect("one chunk"))
}

pub(super) async fn publish(bench: &Bench, chunk: &ClaimedChunk) {
    let key = chunk.key.as_deref().expect("exports have keys");
    let done = bench.store.chunks_finish(&[generated(chunk, key)]).await.expect("chunks_finish");
    assert_eq!(done, [chunk.lease], "the writer's file is recorded");
}

pub(super) async fn a_writer_publishes_and_is_recorded(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunk) = one(&bench).await;
    assert_eq!(ask(&bench, &chunk, Reuse::Any).await, FRESH);
    assert_eq!(ask(&bench, &chunk, Reuse::Any).await, FRESH, "asking again changes nothing");
    let upload = Upload { path: "exports/x".to_owned(), upload_id: "u1".to_owned() };
    assert!(bench.store.file_upload(chunk.lease, &identity("K00000"), &upload).await.expect("file_upload"));
    assert!(!bench.store.file_upload(chunk.lease, &identity("other"), &upload).await.expect("file_upload"));
    publish(&bench, &chunk).await;

    let done = bench.job(&id).await;
    assert_eq!((done.status, done.counts.rows, done.counts.bytes), (JobStatus::Completed, 10, 1000));
    assert_eq!((done.counts.done, done.counts.reused), (1, 0));
    let page = bench.store.files_list(&id, None, 10).await.expect("files_list");
    assert_eq!((page.items.len(), page.next), (1, None));
    let row = &page.items[0];
    assert_eq!(
        (row.id, row.key.as_deref(), row.effective_date),
        (chunk.lease.chunk, Some("K00000"), Some(day()))
    );
    assert_eq!((row.current, &row.current_job), (true, &Some(id.clone())));
    assert_eq!((row.file.generation, row.file.reused, row.file.reason.as_str()), (1, false, "generated"));
    assert_eq!((row.file.rows, row.file.bytes), (10, 1000));
    assert_eq!(row.file.sha256, format!("sha of {}", chunk.lease));
    assert_eq!(row.file.etag.as_ref(), Some(&format!("etag of {}", chunk.lease)));
    assert!(row.file.generated_at >= chunk.claimed_at);
    let chunks = bench.store.chunks_list(&id, None, None, 10).await.expect("chunks_list");
    assert_eq!(chunks.items[0].file.as_ref(), Some(&row.file));
    assert_eq!(bench.store.files_leftover(10).await.expect("files_leftover"), [], "nothing is left over");
    bench.counts_hold().await;
}

pub(super) async fn one_writer_at_a_time(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut chunks = Vec::new();
    for _ in 0..8 {
        chunks.push(one(&bench).await.1);
    }
    let acts = chunks
        .iter()
        .enumerate()
        .map(|(n, chunk)| {
            let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
            let begin = begin(chunk, "K00000", Reuse::Never);
            async move { store.file_begin(&begin).await.expect("file_begin") }
        })
        .collect();
    let answers = at_once(acts).await;
    let writers: Vec<usize> = (0..8).filter(|n| answers[*n] == FRESH).collect();
    assert_eq!(writers.len(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| **answer == FileBegun::Busy).count(), 7, "{answers:?}");
    publish(&bench, &chunks[writers[0]]).await;
    let next = &chunks[(writers[0] + 1) % 8];
    assert!(matches!(ask(&bench, next, Reuse::Never).await, FileBegun::Write(_)), "then the next may write");
    let identities = bench.probe.number("select count(*) from file_cache").await;
    assert_eq!(identities, 1);
}

pub(super) async fn what_may_be_reused(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    // Submitted before the first is claimed: a file made by that claim is new enough for it.
    let (first_id, second_id) = (bench.submit(job(1)).await.job_id, bench.submit(job(1)).await.job_id);
    let mut claimed = bench.claim(2).await;
    claimed.sort_by_key(|chunk| chunk.job_id != first_id);
    let (first, second) = (&claimed[0], &claimed[1]);
    assert_eq!(ask(&bench, first, Reuse::ClaimedAfter(first.submitted_at)).await, FRESH);
    assert_eq!(ask(&bench, second, Reuse::ClaimedAfter(second.submitted_at)).await, FileBegun::Busy);
    publish(&bench, first).await;

    let FileBegun::Reusable(record) = ask(&bench, second, Reuse::ClaimedAfter(second.submitted_at)).await
    else {
        panic!("a file generated by a claim made after this job was submitted may be reused");
    };
    assert_eq!((&record.job_id, record.generation, record.rows), (&first_id, 1, 10));
    assert_eq!((record.claimed_at, record.definition.as_str()), (first.claimed_at, "v1"));
    assert_eq!(ask(&bench, second, Reuse::Any).await, FileBegun::Reusable(record.clone()));
    let done =
        bench.store.chunks_finish(&[reused(second, "K00000", record.clone())]).await.expect("chunks_finish");
    assert_eq!(done, [second.lease]);
    let job = bench.job(&second_id).await;
    assert_eq!((job.status, job.counts.reused, job.counts.rows), (JobStatus::Completed, 1, 10));
    let manifest = bench.store.files_list(&second_id, None, 10).await.expect("files_list").items;
    assert_eq!((manifest[0].file.reused, manifest[0].file.generation, manifest[0].current), (true, 1, true));
    assert_eq!(manifest[0].current_job, Some(first_id));
    assert_eq!(manifest[0].file.generated_at, record.generated_at);

    let recorded = FileBegun::Write(WriteGrant { recorded: Some(record.clone()), leftover: None });
    let wish = || begin(second, "K00000", Reuse::Any);
    let elsewhere = FilePlace { path: "exports/elsewhere.csv".to_owned(), ..place("K00000") };
    for refused in [
        FileBegin { reuse: Reuse::ClaimedAfter(first.claimed_at + TimeDelta::hours(1)), ..wish() },
        FileBegin { reuse: Reuse::Never, ..wish() },
        FileBegin { definition: "v2".to_owned(), ..wish() },
        // The configuration has moved the dataset since: the record's path is not where the file belongs now.
        FileBegin { place: elsewhere, ..wish() },
    ] {
        let (_, third) = one(&bench).await;
        let asked = FileBegin { lease: third.lease, ..refused };
        assert_eq!(bench.store.file_begin(&asked).await.expect("file_begin"), recorded, "{asked:?}");
        // It finds the object missing and gives way, as if it had never begun.
        let leftover = match bench.fail(&third, Some(Duration::from_secs(3600))).await {
            Some(ChunkState::Retry) => bench.store.files_leftover(10).await.expect("files_leftover"),
            other => panic!("{other:?}"),
        };
        bench.store.file_leftover_removed(&leftover[0].leftover).await.expect("file_leftover_removed");
    }
    for (scope, variant) in [("scope", ""), ("", "variant")] {
        let (_, third) = one(&bench).await;
        let other =
            FileIdentity { scope: scope.to_owned(), variant: variant.to_owned(), ..identity("K00000") };
        let asked = FileBegin { identity: other, ..begin(&third, "K00000", Reuse::Any) };
        assert_eq!(bench.store.file_begin(&asked).await.expect("file_begin"), FRESH, "another identity");
    }
    bench.counts_hold().await;
}

pub(super) async fn a_newer_generation_supersedes(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    for generation in 1..=3 {
        let (id, chunk) = one(&bench).await;
        let FileBegun::Write(grant) = ask(&bench, &chunk, Reuse::Never).await else {
            panic!("nobody else writes");
        };
        assert_eq!(
            grant.recorded.map(|record| record.generation),
            (generation > 1).then_some(generation - 1)
        );
        assert_eq!(grant.leftover, None);
        publish(&bench, &chunk).await;
        ids.push(id);
    }
    for (n, id) in ids.iter().enumerate() {
        let row = bench.other.files_list(id, None, 10).await.expect("files_list").items.remove(0);
        assert_eq!((row.file.generation, row.current), (n as i64 + 1, n == 2));
        assert_eq!(row.current_job.as_ref(), Some(&ids[2]), "which job made what is there now");
    }
}

pub(super) async fn equal_bytes_of_a_later_generation_are_current(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (mut ids, mut etags) = (Vec::new(), Vec::new());
    for bytes in ["same", "other", "same"] {
        let (id, chunk) = one(&bench).await;
        ask(&bench, &chunk, Reuse::Never).await;
        let mut finish = generated(&chunk, "K00000");
        if let Some(FileOutcome::Generated(file)) = &mut finish.file {
            file.sha256 = bytes.to_owned();
            etags.push(file.etag.clone());
        }
        assert_eq!(bench.store.chunks_finish(&[finish]).await.expect("chunks_finish"), [chunk.lease]);
        ids.push((id, chunk.lease.chunk));
    }
    for (n, (id, file)) in ids.iter().enumerate() {
        let row = bench.store.files_list(id, None, 10).await.expect("files_list").items.remove(0);
        assert_eq!((row.current, row.file.generation), (n != 1, n as i64 + 1));
        // Where the bytes are now, the ETag is that of the generation that is there.
        assert_eq!(row.file.etag, etags[if n == 1 { 1 } else { 2 }]);
        assert_eq!(bench.store.file_get(id, *file).await.expect("file_get"), Some(row));
    }
}

pub(super) async fn a_replaced_record_has_no_file(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (first_id, first) = one(&bench).await;
    ask(&bench, &first, Reuse::Never).await;
    publish(&bench, &first).await;
    let listed =
        async || bench.store.files_list(&first_id, None, 10).await.expect("files_list").items.remove(0);
    let unfinished = async || bench.store.files_leftover(10).await.expect("files_leftover").remove(0);
    let replaced = async |leftover: &Leftover, generation| {
        bench.other.file_leftover_replaced(leftover, generation).await.expect("file_leftover_replaced");
    };

    // Publishes and dies before it is recorded. Then a second one takes over and dies, too.
    let (_, dead) = one(&bench).await;
    ask(&bench, &dead, Reuse::Never).await;
    bench.fail(&dead, None).await.expect("still owned");
    let stale = unfinished().await;
    assert_eq!(stale.recorded.as_ref().map(|record| record.generation), Some(1));
    let (_, next) = one(&bench).await;
    ask(&bench, &next, Reuse::Never).await;
    replaced(&stale.leftover, 1).await;
    assert!(listed().await.current, "the new writer records what it publishes itself");
    bench.fail(&next, None).await.expect("still owned");
    let found = unfinished().await;
    assert_eq!(found.leftover.lease, next.lease);
    replaced(&found.leftover, 2).await;
    assert!(listed().await.current, "another generation than the one that was looked at");
    replaced(&found.leftover, 1).await;

    let row = listed().await;
    assert_eq!((row.current, &row.current_job, row.file.generation), (false, &None, 1));
    assert_eq!(row.file.path, place("K00000").path, "what the job made is still told");
    assert_eq!(bench.store.files_leftover(10).await.expect("files_leftover"), []);
    let wanted = [("K00000".to_owned(), day())];
    let recorded = bench.store.files_recorded("positions", "", "", &wanted).await.expect("files_recorded");
    assert_eq!(recorded, [], "nothing that could be reused");
    let (last_id, last) = one(&bench).await;
    assert_eq!(ask(&bench, &last, Reuse::Any).await, FRESH);
    publish(&bench, &last).await;
    assert_eq!(listed().await.current_job, Some(last_id.clone()));
    let row = bench.store.files_list(&last_id, None, 10).await.expect("files_list").items.remove(0);
    assert_eq!((row.current, row.file.generation), (true, 3), "generations only rise");
}

pub(super) async fn only_the_writer_records_a_file(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunk) = one(&bench).await;
    let unasked = bench.store.chunks_finish(&[generated(&chunk, "K00000")]).await.expect("chunks_finish");
    assert_eq!(unasked, [], "it never became the writer");
    assert_eq!(bench.states(&id).await, [ChunkState::Running]);
    assert_eq!(bench.job(&id).await.counts.done, 0);

    assert_eq!(ask(&bench, &chunk, Reuse::Never).await, FRESH);
    let (other_id, other) = one(&bench).await;
    let mut batch = vec![generated(&other, "K00000"), generated(&chunk, "K00000")];
    let done = bench.store.chunks_finish(&batch).await.expect("chunks_finish");
    assert_eq!(done, [chunk.lease], "the writer's only");
    assert_eq!(bench.states(&other_id).await, [ChunkState::Running]);
    let row = bench.store.files_list(&id, None, 10).await.expect("files_list").items.remove(0);
    assert_eq!(row.file.sha256, format!("sha of {}", chunk.lease));
    batch.truncate(1);
    assert_eq!(bench.store.chunks_finish(&batch).await.expect("chunks_finish"), [], "still not the writer");
    bench.counts_hold().await;
}

pub(super) async fn the_next_writer_gets_the_leftover(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (_, first) = one(&bench).await;
    assert_eq!(ask(&bench, &first, Reuse::Never).await, FRESH);
    let upload = Upload { path: "exports/x".to_owned(), upload_id: "u1".to_owned() };
    assert!(bench.store.file_upload(first.lease, &identity("K00000"), &upload).await.expect("file_upload"));
    bench.fail(&first, Some(Duration::ZERO)).await.expect("still owned");
    bench.stage().await;

    let second = bench.claim_one().await;
    assert_eq!((second.lease.chunk, second.lease.fence), (first.lease.chunk, 2));
    let FileBegun::Write(grant) = ask(&bench, &second, Reuse::Never).await else {
        panic!("the first no longer runs");
    };
    let leftover = grant.leftover.expect("the first staged something");
    assert_eq!((leftover.lease, leftover.upload), (first.lease, Some(upload.clone())));
    assert!(!bench.store.file_upload(first.lease, &identity("K00000"), &upload).await.expect("file_upload"));
    let late = bench.store.chunks_finish(&[generated(&first, "K00000")]).await.expect("chunks_finish");
    assert_eq!(late, [], "a late writer records nothing");
    publish(&bench, &second).await;
    assert_eq!(bench.store.files_leftover(10).await.expect("files_leftover"), []);
}

pub(super) async fn leftovers_are_listed_until_removed(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (_, chunks) = bench.running(4).await;
    for chunk in &chunks {
        assert_eq!(ask(&bench, chunk, Reuse::Never).await, FRESH);
    }
    let upload = Upload { path: "exports/x".to_owned(), upload_id: "u1".to_owned() };
    assert!(
        bench.store.file_upload(chunks[1].lease, &identity("K00001"), &upload).await.expect("file_upload")
    );
    assert_eq!(bench.store.files_leftover(10).await.expect("files_leftover"), [], "all of them run");
    for chunk in &chunks[..3] {
        bench.fail(chunk, Some(Duration::from_secs(3600))).await.expect("still owned");
    }
    let mut found = bench.store.files_leftover(10).await.expect("files_leftover");
    assert!(found.iter().all(|unfinished| unfinished.recorded.is_none()), "{found:?}");
    let mut found: Vec<_> = found.drain(..).map(|unfinished| unfinished.leftover).collect();
    found.sort_by_key(|leftover| leftover.lease);
    let leases: Vec<_> = found.iter().map(|leftover| leftover.lease).collect();
    assert_eq!(leases, [chunks[0].lease, chunks[1].lease, chunks[2].lease]);
    assert_eq!((&found[0].upload, &found[1].upload), (&None, &Some(upload)));
    assert_eq!(bench.store.files_leftover(2).await.expect("files_leftover").len(), 2, "in batches");

    // A new writer takes the place of the third; removing the old one's leftover must not touch it.
    let (_, next) = bench.running_of(job(3)).await;
    let next = &next[2];
    assert!(matches!(ask(&bench, next, Reuse::Never).await, FileBegun::Write(_)));
    for leftover in &found {
        bench.store.file_leftover_removed(leftover).await.expect("file_leftover_removed");
        bench.store.file_leftover_removed(leftover).await.expect("again is harmless");
    }
    assert_eq!(bench.store.files_leftover(10).await.expect("files_leftover"), []);
    publish(&bench, next).await;
    publish(&bench, &chunks[3]).await;
}

pub(super) async fn leases_that_ended_are_told_from_those_that_run(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (_, chunks) = bench.running(4).await;
    let leases: Vec<Lease> = chunks.iter().map(|chunk| chunk.lease).collect();
    let running = async |leases: &[Lease]| {
        let mut running = bench.store.chunks_running(leases).await.expect("chunks_running");
        running.sort();
        running
    };
    assert_eq!(running(&[]).await, []);
    assert_eq!(running(&leases).await, leases);
    ask(&bench, &chunks[0], Reuse::Never).await;
    publish(&bench, &chunks[0]).await;
    bench.fail(&chunks[1], Some(Duration::ZERO)).await.expect("still owned");
    bench.store.chunks_return(&[leases[2]]).await.expect("chunks_return");
    assert_eq!(running(&leases).await, leases[3..]);
    bench.stage().await;
    let next = [bench.claim_one().await.lease, bench.claim_one().await.lease];
    let never = Lease { chunk: leases[3].chunk, fence: leases[3].fence + 1 };
    let all: Vec<Lease> = leases.iter().chain(&next).copied().chain([never]).collect();
    let mut expected = vec![next[0], next[1], leases[3]];
    expected.sort();
    assert_eq!(running(&all).await, expected, "the fence tells an attempt from the one before it");
}

pub(super) async fn recorded_files_are_found_by_key_and_date(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunks) = bench.running(3).await;
    for chunk in &chunks[..2] {
        ask(&bench, chunk, Reuse::Never).await;
        publish(&bench, chunk).await;
    }
    ask(&bench, &chunks[2], Reuse::Never).await;
    let tomorrow = day().checked_add_days(Days::new(1)).expect("a real date");
    let wanted =
        [("K00000", day()), ("K00001", tomorrow), ("K00001", day()), ("K00002", day()), ("none", day())]
            .map(|(key, date)| (key.to_owned(), date));
    let recorded = async |dataset, scope, variant| {
        let found =
            bench.store.files_recorded(dataset, scope, variant, &wanted).await.expect("files_recorded");
        let mut found: Vec<_> = found.into_iter().map(|(identity, record)| (identity.key, record)).collect();
        found.sort_by(|one, two| one.0.cmp(&two.0));
        found
    };
    let found = recorded("positions", "", "").await;
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["K00000", "K00001"], "published ones of these keys and dates only");
    assert!(found.iter().all(|(_, record)| record.job_id == id && record.generation == 1));
    assert_eq!(recorded("trades", "", "").await, []);
    assert_eq!(recorded("positions", "x", "").await, []);
    assert_eq!(recorded("positions", "", "x").await, []);
}

pub(super) async fn a_file_is_got_by_its_own_job_only(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let (id, chunk) = one(&bench).await;
    ask(&bench, &chunk, Reuse::Never).await;
    let file = chunk.lease.chunk;
    assert_eq!(bench.store.file_get(&id, file).await.expect("file_get"), None, "not yet published");
    publish(&bench, &chunk).await;
    let (other_id, other) = one(&bench).await;
    let found = bench.store.file_get(&id, file).await.expect("file_get");
    let listed = bench.store.files_list(&id, None, 10).await.expect("files_list").items.remove(0);
    assert_eq!(found, Some(listed));
    assert_eq!(bench.store.file_get(&other_id, file).await.expect("file_get"), None);
    assert_eq!(bench.store.file_get(&id, other.lease.chunk).await.expect("file_get"), None);
}
