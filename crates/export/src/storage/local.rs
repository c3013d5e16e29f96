//! A local folder: files are staged beside the published ones, made durable, and renamed into place.
//! Blocking calls never run on the runtime's own threads.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _};
use outhaul_core::id::Lease;
use outhaul_core::key::MAX_NAME_BYTES;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;
use url::Url;

use super::folder_sync::{FolderSyncs, sync_folder};
use super::staging::{Staged, Staging, remove_file};
use super::{ByteStream, STAGING, StorageError, Stored, disk, object, owner};
use crate::settings::FileAccess;

const READ_BUFFER: usize = 256 * 1024;
/// Folders remembered as durable; forgetting them costs a few calls, remembering all would not end.
const MAX_REMEMBERED: usize = 10_000;
/// How often a file that was replaced while it was being opened is opened again.
const REPLACED: usize = 10;

/// A folder of this machine or a shared mount.
pub(super) struct Local {
    root: PathBuf,
    top: PathBuf,
    url: String,
    access: FileAccess,
    /// Whether names that differ in case only are the same file.
    folds_case: bool,
    /// Set once an installation owns the folder.
    owned: Option<Owned>,
    durable: Mutex<HashSet<PathBuf>>,
    pub(super) syncs: FolderSyncs,
}

struct Owned {
    installation: String,
    /// The base paths below which files will be published.
    bases: Vec<String>,
    staging: Staging,
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
    pub(super) fn open(root: &Path, access: FileAccess) -> Result<Self, StorageError> {
        let root = std::path::absolute(root)
            .map_err(|error| StorageError::fatal(format!("storage folder {}: {error}", root.display())))?;
        let top = root.join(STAGING);
        let url = Url::from_directory_path(&root)
            .map_err(|()| StorageError::fatal(format!("storage folder {} is not usable", root.display())))?;
        let url = url.as_str().trim_end_matches('/').to_owned();
        let failed = |error| StorageError::io("make the folder", &url, error);
        disk::make_folders(&top, access).map_err(failed)?;
        let folds_case = disk::folds_case(&top).map_err(failed)?;
        Ok(Self {
            root,
            top,
            url,
            access,
            folds_case,
            owned: None,
            durable: Mutex::default(),
            syncs: FolderSyncs::default(),
        })
    }

    /// The same folder, owned by an installation that will publish below `bases`.
    pub(super) fn claim(&self, installation: &str, bases: Vec<String>) -> Result<Self, StorageError> {
        let staging = Staging::new(&self.root, &self.top, installation, self.access);
        let owned = Owned { installation: installation.to_owned(), bases, staging };
        let local = Self {
            root: self.root.clone(),
            top: self.top.clone(),
            url: self.url.clone(),
            access: self.access,
            folds_case: self.folds_case,
            owned: Some(owned),
            durable: Mutex::default(),
            syncs: FolderSyncs::default(),
        };
        local.check_owned()?;
        Ok(local)
    }

    /// Refuses an installation that is not the owner. An installation without a name owns no folder.
    pub(super) fn check_owner(&self, installation: Option<&str>) -> Result<(), StorageError> {
        match owner::read(&self.top).map_err(|error| self.failed("read the owner", error))? {
            Some(owner) if Some(&*owner) != installation => {
                Err(owner::refusal(&self.root, &owner, installation))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the folder is (still) ours, and that files can be moved from staging to their final path.
    fn check_owned(&self) -> Result<(), StorageError> {
        let Some(Owned { installation, bases, .. }) = &self.owned else { return Ok(()) };
        let failed = |error| self.failed("use the staging folder", error);
        disk::refuse_links(&self.root, &self.top).map_err(failed)?;
        let owner = owner::claim(&self.top, installation, self.access).map_err(failed)?;
        if owner != *installation {
            return Err(owner::refusal(&self.root, &owner, Some(installation)));
        }
        self.check_bases(bases)
    }

    /// Refuses folders that files cannot be moved to.
    pub(super) fn check_bases(&self, bases: &[String]) -> Result<(), StorageError> {
        for base in bases {
            let folder = self.root.join(base);
            let failed = |error| self.failed(&format!("use the folder `{base}`"), error);
            disk::refuse_links(&self.root, &folder).map_err(failed)?;
            if !disk::can_move(&self.top, &folder).map_err(failed)? {
                return Err(StorageError::fatal(self.crossing(&folder)));
            }
        }
        Ok(())
    }

    fn crossing(&self, folder: &Path) -> String {
        format!(
            "{} and {} are on different file systems, so that a finished file cannot be moved from one to the \
             other: mount the volume at {} instead of below it, or let storage.url name a folder of the volume",
            self.top.display(),
            folder.display(),
            self.root.display()
        )
    }

    pub(super) fn failed(&self, act: &str, error: io::Error) -> StorageError {
        StorageError::io(act, &self.url, error)
    }

    pub(super) fn display_url(&self, path: &str) -> String {
        let full = self.root.join(self.name(path).as_ref());
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
        let name = self.name(path);
        if name.rsplit('/').next().is_some_and(|file| file.len() > MAX_NAME_BYTES) {
            return Err(StorageError::fatal(format!(
                "the name of `{path}` is longer than {MAX_NAME_BYTES} bytes on this disk, which does not tell upper from lower \
                 case: lower-case letters of a key take three bytes there"
            )));
        }
        Ok(self.root.join(name.as_ref()))
    }

    /// A path as it is on the disk. On a case-insensitive disk the lower-case letters of a file's key are
    /// percent-encoded, so that `abc` and `ABC` have two files. The usual paths of keys never encode a letter, so two
    /// encoded paths are never equal.
    fn name<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        match file.rsplit_once('_') {
            Some((key, rest)) if self.folds_case && key.contains(|c: char| c.is_ascii_lowercase()) => {
                let slash = if folder.is_empty() { "" } else { "/" };
                Cow::Owned(format!("{folder}{slash}{}_{rest}", without_lower_case(key)))
            }
            _ => Cow::Borrowed(path),
        }
    }

    /// Where attempts write before they publish.
    pub(super) fn staging(&self) -> io::Result<&Staging> {
        let owned = self.owned.as_ref();
        owned.map(|owned| &owned.staging).ok_or_else(|| io::Error::other("no installation has claimed it"))
    }

    /// Runs work on the staged files on a thread that may wait for the disk.
    pub(super) async fn staged<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Staging) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        let local = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || local.staging().and_then(act)).await;
        done.map_err(io::Error::other).flatten().map_err(|error| self.failed("remove staged files", error))
    }

    /// Removes the files that an attempt staged for a path, which makes room for the next attempt.
    pub(super) async fn remove_staged(
        self: &Arc<Self>,
        path: &str,
        lease: Lease,
    ) -> Result<(), StorageError> {
        let path = path.to_owned();
        self.staged(move |staging| staging.remove(&path, lease)).await
    }

    /// Moves a durable staged file to its place, durably. `earlier` are the files that earlier
    /// attempts staged for this place. They are removed first, so that late renames of those attempts fail. Blocks.
    pub(super) fn publish(&self, staged: Staged, earlier: &[PathBuf], target: &Path) -> io::Result<Renamed> {
        for path in earlier {
            remove_file(path)?;
        }
        let renamed = self.rename(staged.path(), target)?;
        if matches!(renamed, Renamed::Yes(_)) {
            staged.published();
        }
        Ok(renamed)
    }

    fn rename(&self, staged: &Path, target: &Path) -> io::Result<Renamed> {
        let folder = target.parent().unwrap_or(&self.root);
        // Twice: the folder may have been removed since it was remembered.
        for last in [false, true] {
            self.make_durable(folder)?;
            disk::refuse_links(&self.root, folder)?;
            // Before the rename, which keeps both: what is there afterwards may be someone else's.
            let tag = match fs::symlink_metadata(staged).and_then(|found| tag(&found)) {
                Ok(tag) => tag,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Renamed::Refused),
                Err(error) => return Err(error),
            };
            match fs::rename(staged, target) {
                Ok(()) => {
                    self.syncs.sync(folder)?;
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
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                    return Err(io::Error::other(self.crossing(folder)));
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
        disk::make_folders(&self.root, self.access)?;
        disk::refuse_links(&self.root, folder)?;
        while let Some(dir) = chain.pop() {
            disk::make_folder(dir, self.access)?;
            sync_folder(dir.parent().unwrap_or(&self.root))?;
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

    pub(super) async fn check(self: &Arc<Self>) -> Result<(), StorageError> {
        let local = Arc::clone(self);
        let checked = tokio::task::spawn_blocking(move || {
            local.probe().map_err(|error| local.failed("write", error))?;
            local.check_owned()
        });
        checked.await.map_err(|error| self.failed("write", io::Error::other(error)))?
    }

    fn probe(&self) -> io::Result<()> {
        disk::make_folders(&self.top, self.access)?;
        let probe = self.top.join(format!("probe-{}-{:016x}", std::process::id(), rand::random::<u64>()));
        let written = disk::create_new(&probe, self.access).and_then(|mut file| file.write_all(b"."));
        let removed = fs::remove_file(&probe);
        written.and(removed)
    }

    /// What is known of a published file; `None`: there is none.
    pub(super) async fn look(&self, path: &str) -> Result<Option<Stored>, StorageError> {
        let (root, target) = (self.root.clone(), self.target(path)?);
        let looked = tokio::task::spawn_blocking(move || {
            let found = published(&root, &target)?;
            found.map(|found| stored(&found)).transpose()
        });
        let found = looked.await.map_err(io::Error::other).flatten();
        found.map_err(|error| self.failed(&format!("look for `{path}`"), error))
    }

    pub(super) async fn read(
        &self,
        path: &str,
        range: Option<Range<u64>>,
    ) -> Result<(Stored, ByteStream), StorageError> {
        let url = self.url.clone();
        let act = format!("read `{path}`");
        let failed = move |error| StorageError::io(&act, &url, error);
        let (root, target) = (self.root.clone(), self.target(path)?);
        let opened = tokio::task::spawn_blocking(move || open_published(&root, &target));
        let opened = opened.await.map_err(io::Error::other).flatten().map_err(&failed)?;
        let Some((file, found)) = opened else {
            return Err(StorageError::NotFound { path: path.to_owned() });
        };
        let stored = stored(&found).map_err(&failed)?;
        let range = within(range, stored.size);
        let mut file = tokio::fs::File::from_std(file);
        file.seek(io::SeekFrom::Start(range.start)).await.map_err(&failed)?;
        let bytes = ReaderStream::with_capacity(file.take(range.end - range.start), READ_BUFFER);
        Ok((stored, bytes.map_err(failed).boxed()))
    }
}

/// A percent-encoded key without lower-case letters.
fn without_lower_case(key: &str) -> String {
    let mut name = String::with_capacity(key.len() * 3);
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' => name.push_str(&format!("%{byte:02X}")),
            other => name.push(char::from(other)),
        }
    }
    name
}

/// What is known of a published file. A symbolic link in the file's place counts as no file; a link in a parent folder
/// is refused.
fn published(root: &Path, target: &Path) -> io::Result<Option<fs::Metadata>> {
    disk::refuse_links(root, target.parent().unwrap_or(root))?;
    match fs::symlink_metadata(target) {
        Ok(found) => Ok(Some(found).filter(fs::Metadata::is_file)),
        Err(error) if disk::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a published file. Does not follow a symbolic link in its place.
fn open_published(root: &Path, target: &Path) -> io::Result<Option<(File, fs::Metadata)>> {
    for _ in 0..REPLACED {
        if published(root, target)?.is_none() {
            return Ok(None);
        }
        let file = match File::open(target) {
            Err(error) if disk::is_absent(&error) => continue,
            opened => opened?,
        };
        // The metadata of the opened file, which may have been replaced since.
        let opened = file.metadata()?;
        if published(root, target)?.is_some_and(|found| disk::same_file(&found, &opened)) {
            return Ok(Some((file, opened)));
        }
    }
    Err(io::Error::other("it is being replaced again and again"))
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
