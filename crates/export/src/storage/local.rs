//! A local folder: files are staged beside the published ones, made durable, and renamed into place.
//! Blocking calls never run on the runtime's own threads.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _};
use outhaul_core::id::Lease;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;
use url::Url;

use super::{ByteStream, STAGING, StorageError, Stored, object};

const READ_BUFFER: usize = 256 * 1024;
/// Folders remembered as durable; forgetting them costs a few calls, remembering all would not end.
const MAX_REMEMBERED: usize = 10_000;

/// A folder of this machine or a shared mount.
pub(super) struct Local {
    root: PathBuf,
    staging: PathBuf,
    url: String,
    durable: Mutex<HashSet<PathBuf>>,
}

/// How a rename ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Renamed {
    /// With the published file's tag.
    Yes(String),
    /// The staged file is gone: a newer owner removed it.
    Refused,
}

impl Local {
    pub(super) fn open(root: &Path) -> Result<Self, StorageError> {
        let root = std::path::absolute(root)
            .map_err(|error| StorageError::fatal(format!("storage folder {}: {error}", root.display())))?;
        let staging = root.join(STAGING);
        let url = Url::from_directory_path(&root)
            .map_err(|()| StorageError::fatal(format!("storage folder {} is not usable", root.display())))?;
        let url = url.as_str().trim_end_matches('/').to_owned();
        fs::create_dir_all(&staging).map_err(|error| StorageError::io("make the folder", &url, error))?;
        Ok(Self { root, staging, url, durable: Mutex::default() })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn display_url(&self, path: &str) -> String {
        let full = self.root.join(path);
        let url = if path.is_empty() || path.ends_with('/') {
            Url::from_directory_path(full)
        } else {
            Url::from_file_path(full)
        };
        url.map_or_else(|()| format!("{}/{path}", self.url), String::from)
    }

    /// Where a path is on this machine. Only paths that stay below the root have a place.
    pub(super) fn target(&self, path: &str) -> Result<PathBuf, StorageError> {
        object::key("", path)?;
        if path.split('/').next() == Some(STAGING) {
            return Err(StorageError::fatal(format!("`{path}` is not a place for published files")));
        }
        Ok(self.root.join(path))
    }

    /// Where an attempt writes before it publishes.
    pub(super) fn staged(&self, lease: Lease) -> PathBuf {
        self.staging.join(lease.to_string())
    }

    /// Opens an attempt's staged file, empty.
    pub(super) fn create_staged(&self, staged: &Path) -> io::Result<File> {
        match File::create(staged) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.staging)?;
                File::create(staged)
            }
            other => other,
        }
    }

    /// Removes what the chunk's claims up to this one staged. All of them: a claim in between may have
    /// been the writer for too short a time to remove its predecessor's.
    pub(super) async fn remove_staged(&self, last: Lease) -> Result<(), StorageError> {
        for fence in 1..=last.fence {
            match tokio::fs::remove_file(self.staged(Lease { fence, ..last })).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StorageError::io("remove a staged file", &self.url, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Moves a durable staged file to its place, durably. Blocks.
    pub(super) fn rename(&self, staged: &Path, target: &Path) -> io::Result<Renamed> {
        let folder = target.parent().unwrap_or(&self.root);
        // Twice: the folder may have been removed since it was remembered.
        for last in [false, true] {
            self.make_durable(folder)?;
            // Before the rename, which keeps both: what is there afterwards may be someone else's.
            let tag = match fs::metadata(staged).and_then(|found| tag(&found)) {
                Ok(tag) => tag,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Renamed::Refused),
                Err(error) => return Err(error),
            };
            match fs::rename(staged, target) {
                Ok(()) => {
                    sync_folder(folder)?;
                    return Ok(Renamed::Yes(tag));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if !staged.try_exists()? {
                        return Ok(Renamed::Refused);
                    }
                    self.remembered().clear();
                    if last {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Makes a folder and syncs every folder above it up to the root: another process may have made
    /// some of them and died before it did.
    fn make_durable(&self, folder: &Path) -> io::Result<()> {
        if self.remembered().contains(folder) {
            return Ok(());
        }
        let mut chain: Vec<&Path> = folder.ancestors().take_while(|dir| *dir != self.root).collect();
        fs::create_dir_all(&self.root)?;
        while let Some(dir) = chain.pop() {
            match fs::create_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => sync_folder(dir.parent().unwrap_or(&self.root))?,
            }
        }
        let mut remembered = self.remembered();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(folder.to_owned());
        Ok(())
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        // What it holds is valid at every moment, also after a panic.
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn check(&self) -> Result<(), StorageError> {
        let probe = self.staging.join(format!("probe-{}-{:x}", std::process::id(), rand::random::<u32>()));
        let staging = self.staging.clone();
        let tried = tokio::task::spawn_blocking(move || {
            fs::create_dir_all(&staging)?;
            let written = File::create(&probe).and_then(|mut file| file.write_all(b"."));
            let removed = fs::remove_file(&probe);
            written.and(removed)
        });
        tried.await.map_err(io::Error::other).flatten().map_err(|e| StorageError::io("write", &self.url, e))
    }

    /// What is known of a published file; `None`: there is none.
    pub(super) async fn look(&self, path: &str) -> Result<Option<Stored>, StorageError> {
        let found = match tokio::fs::metadata(self.target(path)?).await {
            Ok(found) if found.is_file() => stored(&found).map(Some),
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        };
        found.map_err(|error| StorageError::io(&format!("look for `{path}`"), &self.url, error))
    }

    pub(super) async fn read(
        &self,
        path: &str,
        range: Option<Range<u64>>,
    ) -> Result<(Stored, ByteStream), StorageError> {
        if self.look(path).await?.is_none() {
            return Err(StorageError::NotFound { path: path.to_owned() });
        }
        let url = self.url.clone();
        let act = format!("read `{path}`");
        let failed = move |error| StorageError::io(&act, &url, error);
        let mut file = tokio::fs::File::open(self.target(path)?).await.map_err(&failed)?;
        // Of the file that is read, which may have been replaced since.
        let stored = file.metadata().await.and_then(|found| stored(&found)).map_err(&failed)?;
        let range = within(range, stored.size);
        file.seek(io::SeekFrom::Start(range.start)).await.map_err(&failed)?;
        let bytes = ReaderStream::with_capacity(file.take(range.end - range.start), READ_BUFFER);
        Ok((stored, bytes.map_err(failed).boxed()))
    }
}

fn stored(found: &fs::Metadata) -> io::Result<Stored> {
    Ok(Stored { size: found.len(), etag: Some(tag(found)?) })
}

/// A folder's stand-in for an ETag: a file of the same size that replaced the published one has another
/// time. No inode number, which neither a restored copy nor every network mount keeps.
fn tag(found: &fs::Metadata) -> io::Result<String> {
    let modified = found.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("\"{:x}-{:x}\"", modified.as_nanos(), found.len()))
}

/// The part of a range that a file of this size has.
pub(super) fn within(range: Option<Range<u64>>, size: u64) -> Range<u64> {
    let range = range.unwrap_or(0..size);
    let end = range.end.min(size);
    range.start.min(end)..end
}

/// A folder's entries survive a crash only after its own sync.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
