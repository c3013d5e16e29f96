//! Storage on a local folder: the suite, and what only disks do (full, failing, tampered with).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod storage_suite;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use async_trait::async_trait;
use outhaul_export::settings::{StorageSettings, StorageTarget};
use outhaul_export::storage::{Storage, StorageError};
use storage_suite::{Ground, LARGE, Owner, SMALL, content, first, lease, publish, read, record, write};
use tempfile::TempDir;

struct Folder {
    root: TempDir,
    storage: Storage,
}

fn open(root: &Path) -> Storage {
    let target = StorageTarget::Local(root.to_owned());
    Storage::open(&StorageSettings { target, base_path: "exports/".into() }).unwrap()
}

async fn folder() -> Folder {
    let root = tempfile::tempdir().unwrap();
    let storage = open(&root.path().join("a folder/files"));
    Folder { root, storage }
}

impl Folder {
    fn files(&self) -> std::path::PathBuf {
        self.root.path().join("a folder/files")
    }

    fn staging(&self) -> std::path::PathBuf {
        self.files().join(".staging")
    }
}

fn walk(folder: &Path, found: &mut Vec<String>, root: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found, root);
        } else {
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[async_trait]
impl Ground for Folder {
    fn storage(&self) -> &Storage {
        &self.storage
    }

    fn has_uploads(&self) -> bool {
        false
    }

    async fn put_raw(&self, path: &str, bytes: &[u8]) {
        let target = self.files().join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }

    async fn delete_raw(&self, path: &str) {
        fs::remove_file(self.files().join(path)).unwrap();
    }

    async fn seen(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.files().join("exports"), &mut found, &self.files());
        found.sort();
        found
    }

    async fn unfinished(&self) -> usize {
        fs::read_dir(self.staging()).unwrap().count()
    }
}

storage_suite!(crate::folder);

#[tokio::test]
async fn a_full_disk_is_retried_and_publishes_nothing() {
    for size in [SMALL, LARGE] {
        let ground = folder().await;
        symlink("/dev/full", ground.staging().join("1.1")).unwrap();
        let owner = Owner::default();
        let mut file =
            ground.storage.begin(&owner, lease(1, 1), "exports/a.csv".into(), &first()).await.unwrap();
        let failed = match write(&mut file, &content(1, size)).await {
            Ok(()) => file.publish().await.map(drop),
            Err(error) => {
                file.abort().await;
                Err(error)
            }
        };
        let Err(StorageError::Retryable { what, .. }) = failed else { panic!("{failed:?}") };
        assert!(what.contains("it is full") && what.contains("file:///"), "{what}");
        assert_eq!(ground.seen().await, [""; 0]);
        assert_eq!(ground.unfinished().await, 0);
    }
}

#[tokio::test]
async fn a_failed_sync_fails_the_attempt() {
    for size in [SMALL, LARGE] {
        let ground = folder().await;
        // It takes every byte and refuses to sync.
        symlink("/dev/null", ground.staging().join("1.1")).unwrap();
        let owner = Owner::default();
        let failed =
            publish(&ground.storage, &owner, lease(1, 1), "exports/a.csv", &first(), &content(1, size)).await;
        assert!(matches!(failed, Err(StorageError::Retryable { .. })), "{failed:?}");
        assert_eq!(owner.proofs.load(std::sync::atomic::Ordering::SeqCst), 0);
        assert_eq!(ground.seen().await, [""; 0]);
        assert_eq!(ground.unfinished().await, 0);
    }
}

#[tokio::test]
async fn a_replacement_of_the_same_size_is_not_the_recorded_file() {
    for size in [SMALL, LARGE] {
        let ground = folder().await;
        let (storage, path) = (&ground.storage, "exports/a.csv");
        let published = publish(storage, &Owner::default(), lease(1, 1), path, &first(), &content(1, size))
            .await
            .unwrap();
        let recorded = record(&published);
        let etag = recorded.etag.clone().expect("folders have tags too");
        assert!(storage.is_there(&recorded).await.unwrap());
        let (stored, _) = storage.read(path, Some(1..2)).await.unwrap();
        assert!(stored.is(published.bytes, Some(&etag)));

        let file = fs::File::options().append(true).open(ground.files().join(path)).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        ground.put_raw(path, &content(2, size)).await;
        // The clock of a file system may be too coarse to tell two writes of one test apart.
        file.set_modified(time + std::time::Duration::from_nanos(1_000)).unwrap();
        assert!(!storage.is_there(&recorded).await.unwrap());
        let (stored, _) = storage.read(path, None).await.unwrap();
        assert!(!stored.is(published.bytes, Some(&etag)));

        // A copy that kept its time is the file itself; a record of before the tags has but the size.
        ground.put_raw(path, &content(1, size)).await;
        file.set_modified(time).unwrap();
        assert!(storage.is_there(&recorded).await.unwrap());
        ground.put_raw(path, &content(2, size)).await;
        let old = outhaul_core::file::FileRecord { etag: None, ..recorded };
        assert!(storage.is_there(&old).await.unwrap());
        assert!(stored.is(published.bytes, None) && !stored.is(published.bytes + 1, None));
    }
}

#[tokio::test]
async fn folders_removed_while_running_are_made_again() {
    let ground = folder().await;
    for fence in 1..=3 {
        let bytes = content(fence, SMALL);
        let lease = lease(1, fence as i64);
        publish(&ground.storage, &Owner::default(), lease, "exports/x/a.csv", &first(), &bytes)
            .await
            .unwrap();
        assert_eq!(read(&ground.storage, "exports/x/a.csv").await.unwrap(), bytes);
        fs::remove_dir_all(ground.files().join("exports")).unwrap();
        fs::remove_dir(ground.staging()).unwrap();
    }
    ground.storage.check().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_dropped_leaves_no_staged_file() {
    let ground = folder().await;
    let owner = Owner::default();
    let mut file = ground.storage.begin(&owner, lease(1, 1), "exports/a.csv".into(), &first()).await.unwrap();
    write(&mut file, &content(1, LARGE)).await.unwrap();
    assert_eq!(ground.unfinished().await, 1);
    drop(file);
    // Its writer notices on a thread of its own.
    while ground.unfinished().await > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn people_see_urls_and_the_machine_paths() {
    let ground = folder().await;
    let shown = ground.storage.display_url(ground.storage.base_path());
    assert!(shown.starts_with("file:///") && shown.ends_with("/a%20folder/files/exports/"), "{shown}");
    assert!(ground.storage.display_url("exports/%2E_1.csv").ends_with("/files/exports/%252E_1.csv"));
    assert_eq!(ground.storage.local_path("exports/a.csv"), Some(ground.files().join("exports/a.csv")));
    assert_eq!(ground.storage.local_path("../a.csv"), None);
    assert_eq!(ground.storage.local_path(".staging/1.1"), None);
    assert_eq!(
        ground.storage.presign("exports/a.csv", std::time::Duration::from_secs(1)).await.unwrap(),
        None
    );
    ground.storage.check().await.unwrap();
    assert_eq!(ground.unfinished().await, 0);
}

#[test]
fn unusable_settings_are_refused() {
    let root = tempfile::tempdir().unwrap();
    for base in ["exports", "/exports/", "../", "a//b/", ".staging/", ".staging/x/", "/"] {
        let target = StorageTarget::Local(root.path().to_owned());
        let refused = Storage::open(&StorageSettings { target, base_path: base.into() });
        assert!(matches!(refused, Err(StorageError::Fatal { .. })), "{base}");
    }
    fs::write(root.path().join("file"), "").unwrap();
    let target = StorageTarget::Local(root.path().join("file"));
    assert!(Storage::open(&StorageSettings { target, base_path: String::new() }).is_err());
}

#[tokio::test]
async fn what_an_older_claim_staged_is_removed_even_if_the_one_between_never_did() {
    let ground = folder().await;
    let (storage, owner) = (&ground.storage, Owner::default());
    let mut stale = storage.begin(&owner, lease(1, 1), "exports/a.csv".into(), &first()).await.unwrap();
    write(&mut stale, &content(1, LARGE)).await.unwrap();
    // The claim with fence 2 became the writer and died at once: nobody tells of the first one.
    let newest = Owner::default();
    let new =
        publish(storage, &newest, lease(1, 3), "exports/a.csv", &first(), &content(3, LARGE)).await.unwrap();
    let late = stale.publish().await;
    assert!(matches!(late, Err(StorageError::Stopped)), "{late:?}");
    assert!(storage.is_there(&record(&new)).await.unwrap());
}
