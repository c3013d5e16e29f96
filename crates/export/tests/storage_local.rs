//! Storage on a local folder: the suite, and what only disks do (full, failing, tampered with).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod storage_suite;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use async_trait::async_trait;
use outhaul_export::settings::{FileAccess, StorageSettings, StorageTarget};
use outhaul_export::storage::{Link, Storage, StorageError};
use storage_suite::{Ground, LARGE, Owner, SMALL, content, first, lease, publish, read, record, write};
use tempfile::TempDir;

/// The installation of these tests.
const OURS: &str = "0a1b2c3d";

struct Folder {
    root: TempDir,
    storage: Storage,
}

fn unclaimed(root: &Path) -> Storage {
    let target = StorageTarget::Local(root.to_owned());
    Storage::open(&StorageSettings { target, base_path: "exports/".into(), file_access: FileAccess::Owner })
        .unwrap()
}

fn open(root: &Path) -> Storage {
    unclaimed(root).claim(OURS, &[]).unwrap()
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

    /// Everything in the staging area but the name of its owner.
    fn staged(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.staging(), &mut found, &self.staging());
        found.retain(|name| name != "installation");
        found
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
        self.staged().len()
    }
}

storage_suite!(crate::folder);

#[tokio::test]
async fn a_staging_area_that_cannot_be_written_is_retried_and_publishes_nothing() {
    for size in [SMALL, LARGE] {
        let ground = folder().await;
        fs::write(ground.staging().join(OURS), "not a folder").unwrap();
        let owner = Owner::default();
        let failed =
            publish(&ground.storage, &owner, lease(1, 1), "exports/a.csv", &first(), &content(1, size)).await;
        let Err(StorageError::Retryable { what, .. }) = failed else { panic!("{failed:?}") };
        assert!(what.starts_with("could not write in the storage file:///"), "{what}");
        assert_eq!(owner.proofs.load(std::sync::atomic::Ordering::SeqCst), 0);
        assert_eq!(ground.seen().await, [""; 0]);
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
        fs::remove_dir_all(ground.staging()).unwrap();
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
    let link = ground.storage.link("exports/a.csv", 1, None, std::time::Duration::from_secs(1)).await;
    assert_eq!(link.unwrap(), Link::Local);
    ground.storage.check().await.unwrap();
    assert_eq!(ground.unfinished().await, 0);
}

#[test]
fn unusable_settings_are_refused() {
    let root = tempfile::tempdir().unwrap();
    for base in ["exports", "/exports/", "../", "a//b/", ".staging/", ".staging/x/", "/"] {
        let target = StorageTarget::Local(root.path().to_owned());
        let refused = Storage::open(&StorageSettings {
            target,
            base_path: base.into(),
            file_access: FileAccess::Owner,
        });
        assert!(matches!(refused, Err(StorageError::Fatal { .. })), "{base}");
    }
    fs::write(root.path().join("file"), "").unwrap();
    let target = StorageTarget::Local(root.path().join("file"));
    assert!(
        Storage::open(&StorageSettings { target, base_path: String::new(), file_access: FileAccess::Owner })
            .is_err()
    );
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

#[tokio::test]
async fn a_folder_belongs_to_one_installation() {
    let ground = folder().await;
    let marker = ground.staging().join("installation");
    assert_eq!(fs::read_to_string(&marker).unwrap(), OURS);
    let other = unclaimed(&ground.files());
    for refused in [other.clone().claim("ffffffff", &[]).map(drop), other.check_owner(None)] {
        let Err(StorageError::Fatal { what, .. }) = refused else { panic!("{refused:?}") };
        assert!(what.contains(OURS) && what.contains(&marker.display().to_string()), "{what}");
    }
    other.check_owner(Some(OURS)).unwrap();
    other.check().await.unwrap();
    // Another process of the same installation.
    open(&ground.files()).check().await.unwrap();

    // The database was made anew.
    fs::remove_file(&marker).unwrap();
    let other = other.claim("ffffffff", &[]).unwrap();
    other.check().await.unwrap();
    let refused = ground.storage.check().await;
    assert!(matches!(refused, Err(StorageError::Fatal { .. })), "{refused:?}");
}

/// Chunks and fences of two installations are equal, and one of them may have gone past the refusal.
#[tokio::test]
async fn equal_attempts_of_two_installations_do_not_mix() {
    let ground = folder().await;
    fs::remove_file(ground.staging().join("installation")).unwrap();
    let other = unclaimed(&ground.files()).claim("ffffffff", &[]).unwrap();
    let (ours, theirs) = (Owner::default(), Owner::default());
    let (a, b) = (content(1, LARGE), content(2, LARGE));
    let mut first_file = ground.storage.begin(&ours, lease(1, 1), "a/x.csv".into(), &first()).await.unwrap();
    let mut second_file = other.begin(&theirs, lease(1, 1), "b/x.csv".into(), &first()).await.unwrap();
    for half in [0..LARGE / 2, LARGE / 2..LARGE] {
        first_file.write(a.slice(half.clone())).await.unwrap();
        second_file.write(b.slice(half)).await.unwrap();
    }
    first_file.publish().await.unwrap();
    second_file.publish().await.unwrap();
    assert_eq!(read(&ground.storage, "a/x.csv").await.unwrap(), a);
    assert_eq!(read(&other, "b/x.csv").await.unwrap(), b);
}

/// A stopped attempt is dropped while its thread has not begun to write.
#[test]
fn a_thread_that_goes_on_after_its_attempt_leaves_no_staged_file() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let ground = folder().await;
        let owner = Owner::default();
        let mut file =
            ground.storage.begin(&owner, lease(1, 1), "exports/a.csv".into(), &first()).await.unwrap();
        write(&mut file, &content(1, SMALL)).await.unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv());
        let mut publishing = Box::pin(file.publish());
        assert!(futures::poll!(&mut publishing).is_pending());
        drop(publishing);
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // The one thread has done what was asked before this.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(ground.staged(), [""; 0]);
    });
}

#[tokio::test]
async fn the_sweep_takes_what_ended_attempts_staged_and_nothing_else() {
    let ground = folder().await;
    let owner = Owner::default();
    let mut live = ground.storage.begin(&owner, lease(1, 2), "exports/a.csv".into(), &first()).await.unwrap();
    write(&mut live, &content(1, LARGE)).await.unwrap();
    let found = ground.staged().remove(0);
    // What a killed process left: of an attempt before, and of an earlier version.
    fs::write(ground.staging().join(found.replace(".1.2.", ".1.1.")), "dead").unwrap();
    fs::write(ground.staging().join("7.3"), "dead").unwrap();
    let staged = ground.storage.staged_attempts().await.unwrap();
    assert_eq!(staged, [lease(1, 1), lease(1, 2), lease(7, 3)].into());
    let removed = ground.storage.remove_staged([lease(1, 1), lease(7, 3)].into()).await.unwrap();
    assert_eq!((removed, ground.staged()), (2, vec![found]));
    live.publish().await.unwrap();
}

#[tokio::test]
async fn links_below_the_root_are_not_followed() {
    let (ground, elsewhere) = (folder().await, tempfile::tempdir().unwrap());
    let storage = &ground.storage;
    let bytes = content(1, SMALL);
    let place = |path: &str| ground.files().join(path);

    // A folder that leads elsewhere is neither written nor read.
    fs::create_dir_all(place("exports")).unwrap();
    symlink(elsewhere.path(), place("exports/2026")).unwrap();
    let path = "exports/2026/a.csv";
    let refused = publish(storage, &Owner::default(), lease(1, 1), path, &first(), &bytes).await;
    let Err(StorageError::Retryable { what, .. }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("`exports/2026` is a symbolic link"), "{what}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    fs::write(elsewhere.path().join("a.csv"), &bytes).unwrap();
    assert!(read(storage, path).await.is_err());

    // A link in a file's place is no file, and is replaced.
    let (path, secret) = ("exports/b.csv", elsewhere.path().join("a.csv"));
    symlink(&secret, place(path)).unwrap();
    let refused = read(storage, path).await;
    assert!(matches!(refused, Err(StorageError::NotFound { .. })), "{refused:?}");
    publish(storage, &Owner::default(), lease(1, 2), path, &first(), &content(2, SMALL)).await.unwrap();
    assert_eq!(read(storage, path).await.unwrap(), content(2, SMALL));
    assert_eq!(fs::read(&secret).unwrap(), bytes);

    // Nor is the staging area.
    fs::remove_dir_all(place(".staging").join(OURS)).unwrap();
    symlink(elsewhere.path(), place(".staging").join(OURS)).unwrap();
    let refused = publish(storage, &Owner::default(), lease(1, 3), path, &first(), &bytes).await;
    assert!(matches!(refused, Err(StorageError::Retryable { .. })), "{refused:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    // The root itself may be one.
    let root = elsewhere.path().join("root");
    symlink(ground.files(), &root).unwrap();
    assert_eq!(read(&unclaimed(&root), path).await.unwrap(), content(2, SMALL));
}

#[tokio::test]
async fn names_of_staged_files_cannot_be_foreseen() {
    let ground = folder().await;
    let owner = Owner::default();
    let mut names = Vec::new();
    for _ in 0..2 {
        let mut file =
            ground.storage.begin(&owner, lease(1, 1), "exports/a.csv".into(), &first()).await.unwrap();
        write(&mut file, &content(1, LARGE)).await.unwrap();
        names.extend(ground.staged());
        file.abort().await;
    }
    assert!(names.len() == 2 && names[0] != names[1], "{names:?}");
}

#[tokio::test]
async fn nobody_else_may_read_unless_the_settings_say_so() {
    for (file_access, folders, files) in
        [(FileAccess::Owner, 0o700, 0o600), (FileAccess::Group, 0o750, 0o640)]
    {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("new/files");
        let target = StorageTarget::Local(top.clone());
        let settings = StorageSettings { target, base_path: "exports/".into(), file_access };
        let storage = Storage::open(&settings).unwrap().claim(OURS, &[]).unwrap();
        let (owner, path) = (Owner::default(), "exports/2025/a.csv");
        publish(&storage, &owner, lease(1, 1), path, &first(), &content(1, SMALL)).await.unwrap();
        let mut staged = storage.begin(&owner, lease(2, 1), "exports/b.csv".into(), &first()).await.unwrap();
        write(&mut staged, &content(1, LARGE)).await.unwrap();
        let mut seen = Vec::new();
        modes(&root.path().join("new"), &mut seen);
        assert!(seen.len() >= 9, "{seen:?}");
        for (path, is_folder, mode) in seen {
            assert_eq!(mode & 0o777, if is_folder { folders } else { files }, "{path}");
        }
        staged.abort().await;
    }
}

/// Everything below a folder and itself: where, whether it is a folder, and its mode.
fn modes(place: &Path, seen: &mut Vec<(String, bool, u32)>) {
    let found = fs::symlink_metadata(place).unwrap();
    seen.push((place.display().to_string(), found.is_dir(), found.permissions().mode()));
    if found.is_dir() {
        for entry in fs::read_dir(place).unwrap() {
            modes(&entry.unwrap().path(), seen);
        }
    }
}

/// A link makes the staging folder answer to its upper-case name, as it would on a disk that is blind to case.
#[tokio::test]
async fn keys_that_differ_in_case_have_files_of_their_own_on_a_disk_that_is_blind_to_case() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(".staging")).unwrap();
    symlink(".staging", root.path().join(".STAGING")).unwrap();
    let folder = Folder { storage: open(root.path()), root };
    let owner = Owner::default();
    let mut names = Vec::new();
    for (chunk, key) in (1..).zip(["abc", "ABC", "Abc", "%2F"]) {
        let path = format!("exports/2025/02/15/{key}_20250215.csv");
        let bytes = bytes::Bytes::from_static(key.as_bytes());
        publish(&folder.storage, &owner, lease(chunk, 1), &path, &first(), &bytes).await.unwrap();
        assert_eq!(read(&folder.storage, &path).await.unwrap(), bytes);
        let name = folder.storage.local_path(&path).unwrap();
        names.push(name.file_name().unwrap().to_str().unwrap().to_lowercase());
    }
    assert_eq!(
        names,
        ["%61%62%63_20250215.csv", "abc_20250215.csv", "a%62%63_20250215.csv", "%2f_20250215.csv"]
    );
    let long = format!("exports/2025/02/15/{}_20250215.csv", "x".repeat(100));
    assert!(folder.storage.local_path(&long).is_none(), "no disk takes its name");
}
