//! Where files of a local folder are until they are published:
//! `.staging/<installation>/<hh>/<target>.<chunk>.<fence>.<random>`. `target` is a hash of the path that the
//! file is for, so that all files that were staged for one path can be found. `hh` are the first two digits of the
//! hash, so that no folder gets long.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use outhaul_core::id::{ChunkId, Lease};
use sha2::{Digest as _, Sha256};

use super::disk;
use crate::settings::FileAccess;

/// The staged files of one installation.
pub(super) struct Staging {
    root: PathBuf,
    top: PathBuf,
    folder: PathBuf,
    access: FileAccess,
}

/// A staged file. Dropping it removes the file, unless it was published. That also holds for a thread that goes on
/// writing after its attempt was stopped.
#[derive(Debug)]
pub(super) struct Staged {
    path: PathBuf,
    published: bool,
}

impl Staged {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn published(mut self) {
        self.published = true;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        match fs::remove_file(&self.path) {
            Err(error) if !disk::is_absent(&error) => {
                tracing::warn!(path = %self.path.display(), %error, "staged file not removed");
            }
            _ => {}
        }
    }
}

impl Staging {
    /// `top` is `.staging` in `root`.
    pub(super) fn new(root: &Path, top: &Path, installation: &str, access: FileAccess) -> Self {
        let (root, top, folder) = (root.to_owned(), top.to_owned(), top.join(installation));
        Self { root, top, folder, access }
    }

    /// Makes an empty staged file for a target, under an unpredictable name.
    pub(super) fn create(&self, target: &str, lease: Lease) -> io::Result<(Staged, File)> {
        let (shard, prefix) = self.place(target);
        let path = shard.join(format!("{prefix}{lease}.{:016x}", rand::random::<u64>()));
        disk::refuse_links(&self.root, &shard)?;
        let file = match disk::create_new(&path, self.access) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk::make_folders(&shard, self.access)?;
                disk::create_new(&path, self.access)
            }
            other => other,
        }?;
        Ok((Staged { path, published: false }, file))
    }

    /// The files that other attempts have staged for a target.
    pub(super) fn others(&self, target: &str, own: &Staged) -> io::Result<Vec<PathBuf>> {
        let (shard, prefix) = self.place(target);
        let mut found = Vec::new();
        for name in names(&shard)? {
            if name.starts_with(&prefix) {
                found.push(shard.join(name));
            }
        }
        found.retain(|path| path != own.path());
        Ok(found)
    }

    /// Removes the files that an attempt staged for a target.
    pub(super) fn remove(&self, target: &str, lease: Lease) -> io::Result<()> {
        let (shard, prefix) = self.place(target);
        for name in names(&shard)?.into_iter().filter(|name| name.starts_with(&prefix)) {
            if attempt(&name) == Some(lease) {
                remove_file(&shard.join(name))?;
            }
        }
        // Earlier versions staged files here, and may still run while they are being replaced.
        remove_file(&self.top.join(lease.to_string()))
    }

    /// The attempts that have staged files.
    pub(super) fn attempts(&self) -> io::Result<HashSet<Lease>> {
        let mut attempts = HashSet::new();
        self.each(|lease, _| {
            attempts.insert(lease);
            Ok(())
        })?;
        Ok(attempts)
    }

    /// Removes the files that these attempts staged; returns how many there were.
    pub(super) fn remove_all(&self, attempts: &HashSet<Lease>) -> io::Result<u64> {
        let mut removed = 0;
        self.each(|lease, path| {
            if attempts.contains(&lease) {
                remove_file(path)?;
                removed += 1;
            }
            Ok(())
        })?;
        Ok(removed)
    }

    fn each(&self, mut act: impl FnMut(Lease, &Path) -> io::Result<()>) -> io::Result<()> {
        for shard in names(&self.folder)? {
            let shard = self.folder.join(shard);
            for name in names(&shard)? {
                if let Some(lease) = attempt(&name) {
                    act(lease, &shard.join(name))?;
                }
            }
        }
        // Of earlier versions.
        for name in names(&self.top)? {
            if let Some(lease) = name.split_once('.').and_then(|(chunk, fence)| lease(chunk, fence)) {
                act(lease, &self.top.join(name))?;
            }
        }
        Ok(())
    }

    /// The folder for a target's staged files, and what their names begin with.
    fn place(&self, target: &str) -> (PathBuf, String) {
        let hash = Sha256::digest(target.as_bytes());
        let hash: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        (self.folder.join(&hash[..2]), format!("{hash}."))
    }
}

/// The attempt in a staged file's name.
fn attempt(name: &str) -> Option<Lease> {
    let mut parts = name.split('.').skip(1);
    lease(parts.next()?, parts.next()?)
}

fn lease(chunk: &str, fence: &str) -> Option<Lease> {
    Some(Lease { chunk: ChunkId(chunk.parse().ok()?), fence: fence.parse().ok()? })
}

/// The names in a folder; none if the folder is missing or is no folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if disk::is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Removes a file. A missing file is no error.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if !disk::is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}
