//! Who shares a sync with whom, decided by the tests: a sync begins and ends when they say so.

use std::sync::mpsc;
use std::time::Duration;

use outhaul_core::id::{ChunkId, Lease};

use super::super::local::Local;
use super::*;
use crate::settings::FileAccess;

const LIMIT: Duration = Duration::from_secs(60);

/// Syncs that tell when they begin, and end as they are told.
struct Scripted {
    syncs: FolderSyncs,
    began: Mutex<mpsc::Receiver<PathBuf>>,
    end: mpsc::Sender<io::Result<()>>,
}

impl Scripted {
    fn new() -> Self {
        let (begin, began) = mpsc::channel();
        let (end, ended) = mpsc::channel::<io::Result<()>>();
        let ended = Mutex::new(ended);
        let sync = move |folder: &Path| {
            begin.send(folder.to_owned()).unwrap();
            ended.lock().unwrap().recv_timeout(LIMIT).unwrap()
        };
        Self { syncs: FolderSyncs::with(Box::new(sync)), began: Mutex::new(began), end }
    }

    /// Waits until the next sync has begun.
    fn began(&self) -> PathBuf {
        self.began.lock().unwrap().recv_timeout(LIMIT).expect("a sync begins")
    }

    /// Waits until so many callers wait for the folder's next sync.
    fn until_waiting(&self, folder: &Path, callers: usize) {
        let deadline = std::time::Instant::now() + LIMIT;
        // The folder holds its next round, too.
        while Arc::strong_count(&self.syncs.lock().get(folder).expect("it is being synced").next)
            < callers + 1
        {
            assert!(std::time::Instant::now() < deadline, "the callers come");
            std::thread::yield_now();
        }
    }
}

#[test]
fn callers_of_one_time_share_the_sync_that_begins_after_them() {
    let (scripted, folder) = (Scripted::new(), Path::new("exports/2025"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| scripted.syncs.sync(folder));
        assert_eq!(scripted.began(), folder);
        let later: Vec<_> = (0..5).map(|_| scope.spawn(|| scripted.syncs.sync(folder))).collect();
        scripted.until_waiting(folder, 5);
        scripted.end.send(Ok(())).unwrap();
        first.join().unwrap().unwrap();
        // The renames of the later ones may have come too late for the first sync: they need one of their own.
        assert_eq!(scripted.began(), folder);
        assert!(later.iter().all(|caller| !caller.is_finished()));
        scripted.end.send(Ok(())).unwrap();
        later.into_iter().for_each(|caller| caller.join().unwrap().unwrap());
    });
    assert!(scripted.began.lock().unwrap().try_recv().is_err(), "two syncs for six callers");
    assert!(scripted.syncs.lock().is_empty(), "nothing is remembered of a folder that nobody waits for");
}

#[test]
fn a_failed_sync_fails_everybody_who_waited_for_it_and_nobody_else() {
    let (scripted, folder) = (Scripted::new(), Path::new("exports/2025"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| scripted.syncs.sync(folder));
        scripted.began();
        let second: Vec<_> = (0..3).map(|_| scope.spawn(|| scripted.syncs.sync(folder))).collect();
        scripted.until_waiting(folder, 3);
        scripted.end.send(Ok(())).unwrap();
        first.join().unwrap().unwrap();
        scripted.began();
        let third = scope.spawn(|| scripted.syncs.sync(folder));
        scripted.until_waiting(folder, 1);
        scripted.end.send(Err(io::Error::from_raw_os_error(28))).unwrap();
        for caller in second {
            assert_eq!(caller.join().unwrap().unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        scripted.began();
        scripted.end.send(Ok(())).unwrap();
        third.join().unwrap().unwrap();
    });
}

#[test]
fn folders_do_not_wait_for_each_other() {
    let scripted = Scripted::new();
    std::thread::scope(|scope| {
        let callers = ["a", "b"].map(|folder| {
            let syncs = &scripted.syncs;
            scope.spawn(move || syncs.sync(Path::new(folder)))
        });
        let mut began = [scripted.began(), scripted.began()];
        began.sort();
        assert_eq!(began, [Path::new("a"), Path::new("b")]);
        callers.iter().for_each(|_| scripted.end.send(Ok(())).unwrap());
        callers.into_iter().for_each(|caller| caller.join().unwrap().unwrap());
    });
}

#[test]
fn a_sync_that_panics_fails_those_who_waited_for_it_and_the_next_one_runs() {
    let panics = std::sync::atomic::AtomicBool::new(true);
    let sync = move |_: &Path| {
        assert!(!panics.swap(false, std::sync::atomic::Ordering::Relaxed), "as the test wants it");
        Ok(())
    };
    let syncs = FolderSyncs::with(Box::new(sync));
    let panicked = std::thread::scope(|scope| scope.spawn(|| syncs.sync(Path::new("a"))).join().is_err());
    assert!(panicked);
    syncs.sync(Path::new("a")).unwrap();
}

#[test]
fn a_folder_that_is_not_there_cannot_be_synced() {
    let folder = tempfile::tempdir().unwrap();
    let syncs = FolderSyncs::default();
    syncs.sync(folder.path()).unwrap();
    let missing = syncs.sync(&folder.path().join("missing")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_file_is_published_when_its_folder_was_synced() {
    let root = tempfile::tempdir().unwrap();
    let local = Local::open(root.path(), FileAccess::Owner).unwrap();
    let mut local = local.claim("0a1b2c3d", Vec::new()).unwrap();
    let target = local.target("exports/a.csv").unwrap();
    let publish = |local: &Local| {
        let lease = Lease { chunk: ChunkId(1), fence: 1 };
        let (staged, _) = local.staging().unwrap().create("exports/a.csv", lease).unwrap();
        local.publish(staged, &[], &target)
    };
    publish(&local).unwrap();
    local.syncs = FolderSyncs::with(Box::new(|_| Err(io::Error::from_raw_os_error(28))));
    assert_eq!(publish(&local).unwrap_err().kind(), io::ErrorKind::StorageFull);
}
