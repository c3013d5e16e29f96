//! What every storage must keep, whatever it stands on. `storage_suite!(make)` runs every case with
//! small and with multipart sizes; adding a storage means writing its `Ground`.

use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use outhaul::Failed;
use outhaul_core::file::{FileRecord, Leftover, Upload, WriteGrant};
use outhaul_core::id::{ChunkId, JobId, Lease};
use outhaul_export::storage::{Published, Publisher, StagedFile, Storage, StorageError};
use tokio::sync::Notify;

/// Published by one PUT.
pub(crate) const SMALL: usize = 300_000;
/// Published by a multipart upload of four parts.
pub(crate) const LARGE: usize = 17 * 1024 * 1024 + 3;

/// A storage, and a way past it.
#[async_trait]
pub(crate) trait Ground: Send + Sync {
    fn storage(&self) -> &Storage;
    /// Whether large files are uploaded in parts.
    fn has_uploads(&self) -> bool;
    async fn put_raw(&self, path: &str, bytes: &[u8]);
    async fn delete_raw(&self, path: &str);
    /// Paths of everything that can be seen.
    async fn seen(&self) -> Vec<String>;
    /// Staged files and open uploads.
    async fn unfinished(&self) -> usize;
}

/// Bytes that differ by seed.
pub(crate) fn content(seed: u64, size: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

pub(crate) fn lease(chunk: i64, fence: i64) -> Lease {
    Lease { chunk: ChunkId(chunk), fence }
}

/// An owner of a chunk, whose lease the test takes away.
#[derive(Default)]
pub(crate) struct Owner {
    lost: AtomicBool,
    pub(crate) proofs: AtomicUsize,
    pub(crate) uploads: Mutex<Vec<Upload>>,
    /// Set: the next proof succeeds, but its owner hears of it only when told to go on.
    pauses: AtomicBool,
    reached: Notify,
    go: Notify,
    /// Proofs after this many fail.
    proofs_allowed: Option<usize>,
    refuses_uploads: bool,
}

impl Owner {
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    fn upload(&self) -> Option<Upload> {
        self.uploads.lock().unwrap().last().cloned()
    }
}

#[async_trait]
impl Publisher for Owner {
    async fn may_publish(&self) -> Result<(), Failed> {
        let proofs = self.proofs.fetch_add(1, Ordering::SeqCst) + 1;
        let lost = self.lost.load(Ordering::SeqCst);
        if self.pauses.swap(false, Ordering::SeqCst) {
            self.reached.notify_one();
            self.go.notified().await;
        }
        if lost || self.proofs_allowed.is_some_and(|allowed| proofs > allowed) {
            return Err(Failed::Stopped);
        }
        Ok(())
    }

    async fn record_upload(&self, upload: &Upload) -> Result<(), Failed> {
        if self.refuses_uploads {
            return Err(Failed::Stopped);
        }
        self.uploads.lock().unwrap().push(upload.clone());
        Ok(())
    }
}

pub(crate) fn first() -> WriteGrant {
    WriteGrant { recorded: None, leftover: None }
}

pub(crate) fn over(recorded: &FileRecord) -> WriteGrant {
    WriteGrant { recorded: Some(recorded.clone()), leftover: None }
}

pub(crate) fn record(published: &Published) -> FileRecord {
    let now = outhaul_core::clock::now();
    FileRecord {
        path: published.path.clone(),
        rows: 0,
        bytes: i64::try_from(published.bytes).unwrap(),
        sha256: published.sha256.clone(),
        etag: published.etag.clone(),
        format: "CSV".into(),
        definition: String::new(),
        generation: 1,
        generated_at: now,
        claimed_at: now,
        job_id: JobId::new(now, 1),
    }
}

/// Writes in uneven pieces, tiny and large ones.
pub(crate) async fn write(file: &mut StagedFile<'_>, bytes: &Bytes) -> Result<(), StorageError> {
    let mut at = 0;
    for size in [1, 70, 0, 4_000, 200_000, 1_500_000].into_iter().cycle() {
        let end = bytes.len().min(at + size);
        file.write(bytes.slice(at..end)).await?;
        at = end;
        if at == bytes.len() {
            break;
        }
    }
    Ok(())
}

pub(crate) async fn publish(
    storage: &Storage,
    owner: &Owner,
    lease: Lease,
    path: &str,
    grant: &WriteGrant,
    bytes: &Bytes,
) -> Result<Published, StorageError> {
    let mut file = storage.begin(owner, lease, path.to_owned(), grant).await?;
    write(&mut file, bytes).await?;
    file.publish().await
}

pub(crate) async fn read(storage: &Storage, path: &str) -> Result<Bytes, StorageError> {
    let (stored, bytes) = storage.read(path, None).await?;
    let bytes: Vec<Bytes> = bytes.try_collect().await?;
    let bytes = Bytes::from(bytes.concat());
    assert_eq!(stored.size, bytes.len() as u64);
    Ok(bytes)
}

/// Runs `publish` up to its proof of the lease, then `meanwhile`, then the rest.
async fn paused_at_proof<T>(
    owner: &Owner,
    publish: impl Future<Output = T>,
    meanwhile: impl Future<Output = ()>,
) -> T {
    owner.pauses.store(true, Ordering::SeqCst);
    let meanwhile = async {
        owner.reached.notified().await;
        meanwhile.await;
        owner.go.notify_one();
    };
    tokio::join!(publish, meanwhile).0
}

pub(crate) async fn a_file_is_whole_and_as_counted(ground: &dyn Ground, size: usize) {
    let storage = ground.storage();
    for size in [0, 1, size] {
        let path = format!("exports/2025/02/15/A{size}_20250215.csv");
        let bytes = content(1, size);
        let owner = Owner::default();
        let published = publish(storage, &owner, lease(1, 1), &path, &first(), &bytes).await.unwrap();
        assert_eq!((published.bytes, &published.path), (size as u64, &path));
        assert_eq!(read(storage, &path).await.unwrap(), bytes);
        assert!(storage.is_there(&record(&published)).await.unwrap());
        assert!(owner.proofs.load(Ordering::SeqCst) >= 1);
        assert_eq!(!owner.uploads.lock().unwrap().is_empty(), ground.has_uploads() && size == LARGE);
    }
    assert_eq!(ground.seen().await.len(), 3);
    assert_eq!(ground.unfinished().await, 0);
}

pub(crate) async fn readers_see_the_old_file_or_the_new_one(ground: &dyn Ground, size: usize) {
    let (storage, path) = (ground.storage(), "exports/2025/02/15/ABC_20250215.csv");
    let versions: Vec<Bytes> = (0..6).map(|seed| content(seed, size + seed as usize)).collect();
    let mut last =
        publish(storage, &Owner::default(), lease(1, 1), path, &first(), &versions[0]).await.unwrap();
    let done = AtomicBool::new(false);
    let reader = async {
        let mut whole = 0;
        while !done.load(Ordering::SeqCst) {
            match read(storage, path).await {
                Ok(bytes) => {
                    assert!(versions.contains(&bytes), "a mixture of {} bytes", bytes.len());
                    whole += 1;
                }
                // A read that spans a replacement ends in an error, never in a mixture.
                Err(StorageError::Retryable { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        whole
    };
    let writer = async {
        for (fence, bytes) in versions.iter().enumerate().skip(1) {
            let owner = Owner::default();
            let (grant, lease) = (over(&record(&last)), lease(1, fence as i64 + 1));
            let mut file = storage.begin(&owner, lease, path.to_owned(), &grant).await.unwrap();
            write(&mut file, bytes).await.unwrap();
            assert_eq!(
                read(storage, path).await.unwrap(),
                versions[fence - 1],
                "nothing shows before publish"
            );
            last = file.publish().await.unwrap();
            assert_eq!(read(storage, path).await.unwrap(), *bytes);
        }
        done.store(true, Ordering::SeqCst);
    };
    let (whole, ()) = tokio::join!(reader, writer);
    assert!(whole > 0);
    assert_eq!(ground.seen().await, [path]);
}

pub(crate) async fn a_stale_owner_changes_nothing(ground: &dyn Ground, size: usize) {
    let storage = ground.storage();
    let (old, stale_bytes, new_bytes) = (content(1, size), content(2, size), content(3, size));
    for published_before in [false, true] {
        let path = format!("exports/2025/02/15/{published_before}_20250215.csv");
        let mut grant = first();
        if published_before {
            let published = publish(storage, &Owner::default(), lease(1, 1), &path, &first(), &old).await;
            grant = over(&record(&published.unwrap()));
        }
        let (stale, new) = (Owner::default(), Owner::default());
        let mut published = None;
        let takeover = async {
            stale.lose();
            let leftover = Leftover { file: 1, lease: lease(1, 2), upload: stale.upload() };
            let grant = WriteGrant { leftover: Some(leftover), ..grant.clone() };
            published = Some(publish(storage, &new, lease(1, 3), &path, &grant, &new_bytes).await.unwrap());
        };
        let late = publish(storage, &stale, lease(1, 2), &path, &grant, &stale_bytes);
        let late = paused_at_proof(&stale, late, takeover).await;
        assert!(matches!(late, Err(StorageError::Stopped)), "{late:?}");
        assert_eq!(read(storage, &path).await.unwrap(), new_bytes);
        assert!(storage.is_there(&record(&published.unwrap())).await.unwrap());
    }
    assert_eq!(ground.unfinished().await, 0);
}

/// The second owner dies before it has removed anything of the first, and a third one takes over.
pub(crate) async fn an_owner_before_the_last_changes_nothing(ground: &dyn Ground, size: usize) {
    let (storage, path) = (ground.storage(), "exports/2025/02/15/ABC_20250215.csv");
    let (stale, new) = (Owner::default(), Owner::default());
    let mut published = None;
    let takeover = async {
        stale.lose();
        // An upload stays recorded until it is aborted, whoever became the writer since.
        let leftover = Leftover { file: 1, lease: lease(2, 1), upload: stale.upload() };
        let grant = WriteGrant { leftover: Some(leftover), ..first() };
        published = Some(publish(storage, &new, lease(3, 1), path, &grant, &content(3, size)).await.unwrap());
    };
    let grant = first();
    let bytes = content(1, size);
    let late = publish(storage, &stale, lease(1, 1), path, &grant, &bytes);
    let late = paused_at_proof(&stale, late, takeover).await;
    assert!(matches!(late, Err(StorageError::Stopped)), "{late:?}");
    assert_eq!(read(storage, path).await.unwrap(), content(3, size));
    assert!(storage.is_there(&record(&published.unwrap())).await.unwrap());
    assert_eq!(ground.unfinished().await, 0);
}

pub(crate) async fn the_new_owner_wins_whoever_publishes_first(ground: &dyn Ground, size: usize) {
    let (storage, path) = (ground.storage(), "exports/2025/02/15/ABC_20250215.csv");
    let (stale_bytes, new_bytes) = (content(2, size), content(3, size));
    let old =
        publish(storage, &Owner::default(), lease(1, 1), path, &first(), &content(1, size)).await.unwrap();
    let old = record(&old);
    let (stale, new) = (Owner::default(), Owner::default());
    let begun = Mutex::new(None);
    let takeover = async {
        stale.lose();
        let leftover = Leftover { file: 1, lease: lease(1, 2), upload: stale.upload() };
        let grant = WriteGrant { recorded: Some(old.clone()), leftover: Some(leftover) };
        *begun.lock().unwrap() =
            Some(storage.begin(&new, lease(1, 3), path.to_owned(), &grant).await.unwrap());
    };
    let grant = over(&old);
    let late = publish(storage, &stale, lease(1, 2), path, &grant, &stale_bytes);
    // On object stores a small late PUT may still replace the old file, but never the new one.
    let _ = paused_at_proof(&stale, late, takeover).await;
    let mut file = begun.into_inner().unwrap().unwrap();
    write(&mut file, &new_bytes).await.unwrap();
    let published = file.publish().await.unwrap();
    assert_eq!(read(storage, path).await.unwrap(), new_bytes);
    assert!(storage.is_there(&record(&published)).await.unwrap());
    assert_eq!(ground.unfinished().await, 0);
}

pub(crate) async fn a_file_deleted_behind_our_back_is_written_again(ground: &dyn Ground, size: usize) {
    let (storage, path) = (ground.storage(), "exports/2025/02/15/ABC_20250215.csv");
    let bytes = content(1, size);
    let recorded = publish(storage, &Owner::default(), lease(1, 1), path, &first(), &bytes).await.unwrap();
    let recorded = record(&recorded);
    ground.delete_raw(path).await;
    assert!(!storage.is_there(&recorded).await.unwrap());
    assert!(matches!(read(storage, path).await, Err(StorageError::NotFound { .. })));
    let again =
        publish(storage, &Owner::default(), lease(2, 1), path, &over(&recorded), &bytes).await.unwrap();
    assert!(storage.is_there(&record(&again)).await.unwrap());
    assert_eq!(read(storage, path).await.unwrap(), bytes);
}

pub(crate) async fn a_file_changed_behind_our_back_is_noticed(ground: &dyn Ground, size: usize) {
    let (storage, path) = (ground.storage(), "exports/2025/02/15/ABC_20250215.csv");
    let published = publish(storage, &Owner::default(), lease(1, 1), path, &first(), &content(1, size)).await;
    let recorded = record(&published.unwrap());
    ground.put_raw(path, b"something else").await;
    assert!(!storage.is_there(&recorded).await.unwrap());
    let bytes = content(2, size);
    publish(storage, &Owner::default(), lease(2, 1), path, &over(&recorded), &bytes).await.unwrap();
    assert_eq!(read(storage, path).await.unwrap(), bytes);
}

pub(crate) async fn a_foreign_file_is_replaced_only_with_a_proof(ground: &dyn Ground, size: usize) {
    let (storage, path) = (ground.storage(), "exports/2025/02/15/ABC_20250215.csv");
    ground.put_raw(path, b"foreign").await;
    let bytes = content(1, size);

    let lost = Owner::default();
    lost.lose();
    let refused = publish(storage, &lost, lease(1, 1), path, &first(), &bytes).await;
    assert!(matches!(refused, Err(StorageError::Stopped)), "{refused:?}");
    assert_eq!(read(storage, path).await.unwrap(), "foreign");
    assert_eq!(ground.unfinished().await, 0);

    if ground.has_uploads() && size == SMALL {
        // The first proof was for an empty place: replacing something takes another.
        let one_proof = Owner { proofs_allowed: Some(1), ..Owner::default() };
        let refused = publish(storage, &one_proof, lease(1, 2), path, &first(), &bytes).await;
        assert!(matches!(refused, Err(StorageError::Stopped)), "{refused:?}");
        assert_eq!(read(storage, path).await.unwrap(), "foreign");
    }

    publish(storage, &Owner::default(), lease(1, 3), path, &first(), &bytes).await.unwrap();
    assert_eq!(read(storage, path).await.unwrap(), bytes);
}

pub(crate) async fn an_abort_leaves_nothing(ground: &dyn Ground, size: usize) {
    let storage = ground.storage();
    for written in [0, size] {
        let owner = Owner::default();
        let mut file =
            storage.begin(&owner, lease(1, 1), "exports/a.csv".to_owned(), &first()).await.unwrap();
        write(&mut file, &content(1, written)).await.unwrap();
        file.abort().await;
        assert_eq!(ground.unfinished().await, 0);
        assert_eq!(ground.seen().await, [""; 0]);
    }
}

pub(crate) async fn only_a_recorded_upload_goes_on(ground: &dyn Ground, size: usize) {
    let storage = ground.storage();
    let owner = Owner { refuses_uploads: true, ..Owner::default() };
    let mut file = storage.begin(&owner, lease(1, 1), "exports/a.csv".to_owned(), &first()).await.unwrap();
    let written = write(&mut file, &content(1, size)).await;
    if ground.has_uploads() && size == LARGE {
        assert!(matches!(written, Err(StorageError::Stopped)), "{written:?}");
    } else {
        written.unwrap();
    }
    file.abort().await;
    assert_eq!(ground.unfinished().await, 0);
}

pub(crate) async fn what_a_dead_owner_left_is_removed(ground: &dyn Ground, size: usize) {
    let (storage, path) = (ground.storage(), "exports/a.csv");
    let dead = Owner::default();
    let mut file = storage.begin(&dead, lease(1, 1), path.to_owned(), &first()).await.unwrap();
    write(&mut file, &content(1, size)).await.unwrap();
    let leftover = Leftover { file: 1, lease: lease(1, 1), upload: dead.upload() };
    // Twice: the sweep may have been there before.
    for _ in 0..2 {
        storage.remove_leftover(&leftover).await.unwrap();
        let ended = storage.staged_attempts().await.unwrap();
        storage.remove_staged(ended).await.unwrap();
    }
    drop(file);
    assert_eq!(ground.unfinished().await, 0);
    let bytes = content(2, size);
    let grant = WriteGrant { recorded: None, leftover: Some(leftover) };
    publish(storage, &Owner::default(), lease(1, 2), path, &grant, &bytes).await.unwrap();
    assert_eq!(read(storage, path).await.unwrap(), bytes);
    assert_eq!(ground.unfinished().await, 0);
}

pub(crate) async fn odd_names_and_ranges_read_back(ground: &dyn Ground, size: usize) {
    let storage = ground.storage();
    let mut paths = Vec::new();
    for name in ["%2E.%2Fx", "100%25", "a b+c&d=e", "ü😀", "%F0%9F%98%80", "q?#[x]~'\"<>|*"] {
        let path = format!("exports/2025/02/15/{name}_20250215.csv");
        let bytes = Bytes::from(format!("this is {name}"));
        let published =
            publish(storage, &Owner::default(), lease(1, 1), &path, &first(), &bytes).await.unwrap();
        assert_eq!(read(storage, &path).await.unwrap(), bytes);
        assert!(storage.is_there(&record(&published)).await.unwrap(), "{name}");
        paths.push(path);
    }
    paths.sort();
    assert_eq!(ground.seen().await, paths, "one file for each name, under its own name");

    let bytes = content(1, size);
    publish(storage, &Owner::default(), lease(2, 1), &paths[0], &first(), &bytes).await.unwrap();
    let end = size as u64;
    for range in [0..1, 5..70_000, end - 3..end, end - 3..end + 100, 0..end] {
        let (stored, part) = storage.read(&paths[0], Some(range.clone())).await.unwrap();
        let part: Vec<Bytes> = part.try_collect().await.unwrap();
        let expected = &bytes[range.start as usize..(range.end as usize).min(size)];
        assert_eq!((stored.size, part.concat().as_slice()), (end, expected), "{range:?}");
    }
}

pub(crate) async fn paths_that_lead_elsewhere_are_refused(ground: &dyn Ground, _size: usize) {
    let storage = ground.storage();
    for path in ["", "/etc/x", "../x", "exports/../../x", "exports//x", "exports/./x", "exports/"] {
        let owner = Owner::default();
        let refused = storage.begin(&owner, lease(1, 1), path.to_owned(), &first()).await.err();
        assert!(matches!(refused, Some(StorageError::Fatal { .. })), "{path}: {refused:?}");
        assert!(read(storage, path).await.is_err(), "{path}");
    }
}

/// One test for each case and size on the storage that `$make` makes.
#[macro_export]
macro_rules! storage_suite {
    ($make:path: $($case:ident),* $(,)?) => {
        mod small {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::storage_suite::$case(&$make().await, $crate::storage_suite::SMALL).await;
            })*
        }
        mod large {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::storage_suite::$case(&$make().await, $crate::storage_suite::LARGE).await;
            })*
        }
    };
    ($make:path) => {
        $crate::storage_suite!($make:
            a_file_is_whole_and_as_counted,
            readers_see_the_old_file_or_the_new_one,
            a_stale_owner_changes_nothing,
            an_owner_before_the_last_changes_nothing,
            the_new_owner_wins_whoever_publishes_first,
            a_file_deleted_behind_our_back_is_written_again,
            a_file_changed_behind_our_back_is_noticed,
            a_foreign_file_is_replaced_only_with_a_proof,
            an_abort_leaves_nothing,
            only_a_recorded_upload_goes_on,
            what_a_dead_owner_left_is_removed,
            odd_names_and_ranges_read_back,
            paths_that_lead_elsewhere_are_refused,
        );
    };
}
