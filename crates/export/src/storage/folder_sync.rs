//! Syncs of folders, shared by the files that are ready at the same time. A rename survives a crash only after its
//! folder was synced, and a sync costs the same for one rename as for many.
//!
//! A sync counts only for renames that were done before it began. So a caller that arrives while a sync runs waits
//! for the next one, together with everybody else who arrives in that time.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Makes the entries of a folder durable.
type SyncFolder = Box<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;

/// The folders that are being synced, and who waits for that.
pub(super) struct FolderSyncs {
    sync: SyncFolder,
    folders: Mutex<HashMap<PathBuf, Folder>>,
    /// A sync of any folder has ended.
    ended: Condvar,
}

/// A folder with callers that wait for a sync.
#[derive(Default)]
struct Folder {
    is_running: bool,
    /// The sync that begins when the running one has ended.
    next: Arc<Round>,
}

/// One sync, and what its callers hear.
#[derive(Default)]
struct Round {
    outcome: OnceLock<Result<(), Failure>>,
}

/// An error for several callers: [`io::Error`] cannot be cloned.
#[derive(Clone)]
enum Failure {
    Os(i32),
    Other(io::ErrorKind, String),
}

impl Default for FolderSyncs {
    fn default() -> Self {
        Self::with(Box::new(sync_folder))
    }
}

impl FolderSyncs {
    fn with(sync: SyncFolder) -> Self {
        Self { sync, folders: Mutex::default(), ended: Condvar::new() }
    }

    /// Returns when a sync that began after this call has ended. Blocks: the first caller syncs on its own thread.
    pub(super) fn sync(&self, folder: &Path) -> io::Result<()> {
        let mut folders = self.lock();
        let round = Arc::clone(&folders.entry(folder.to_owned()).or_default().next);
        loop {
            if let Some(outcome) = round.outcome.get() {
                return outcome.clone().map_err(io::Error::from);
            }
            let entry = folders.entry(folder.to_owned()).or_default();
            if !entry.is_running {
                // No sync runs and this round has not ended, so this round is the next one.
                entry.is_running = true;
                entry.next = Arc::default();
                drop(folders);
                let running = Running { syncs: self, folder, round: &round };
                let outcome = (self.sync)(folder);
                let _ = round.outcome.set(outcome.as_ref().copied().map_err(Failure::from));
                drop(running);
                return outcome;
            }
            folders = self.ended.wait(folders).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Folder>> {
        // The map is valid at every moment, also after a panic.
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sync that is under way. Dropping it lets the next one begin, also after a panic.
struct Running<'a> {
    syncs: &'a FolderSyncs,
    folder: &'a Path,
    round: &'a Round,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let ended_early = || Err(Failure::Other(io::ErrorKind::Other, "the sync ended early".to_owned()));
        self.round.outcome.get_or_init(ended_early);
        let mut folders = self.syncs.lock();
        if let Some(entry) = folders.get_mut(self.folder) {
            entry.is_running = false;
            // A round that nobody waits for is held by its folder alone.
            if Arc::strong_count(&entry.next) == 1 {
                folders.remove(self.folder);
            }
        }
        self.syncs.ended.notify_all();
    }
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::Other(error.kind(), error.to_string()), Self::Os)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Os(code) => Self::from_raw_os_error(code),
            Failure::Other(kind, text) => Self::new(kind, text),
        }
    }
}

/// A folder's entries survive a crash only after its own sync.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
