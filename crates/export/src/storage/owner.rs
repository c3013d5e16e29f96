//! Which installation a folder belongs to: `.staging/installation` names it. Two installations use the same chunk
//! numbers and would overwrite each other's files, so the second one is refused.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::StorageError;
use super::disk;
use super::folder_sync::sync_folder;
use crate::settings::FileAccess;

const MARKER: &str = "installation";

/// The installation that a staging folder belongs to; `None`: the folder has no owner yet.
pub(super) fn read(staging: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(staging.join(MARKER)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if disk::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes an installation the owner of a folder that has none; returns the owner. If several installations try at
/// once, one succeeds.
pub(super) fn claim(staging: &Path, installation: &str, access: FileAccess) -> io::Result<String> {
    if let Some(owner) = read(staging)? {
        return Ok(owner);
    }
    let written = staging.join(format!("{MARKER}-{:016x}", rand::random::<u64>()));
    let mut file = disk::create_new(&written, access)?;
    file.write_all(installation.as_bytes())?;
    file.sync_all()?;
    let marker = staging.join(MARKER);
    match fs::hard_link(&written, &marker) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            // A disk without hard links. An installation that is overwritten here notices at its next check.
            fs::rename(&written, &marker)?;
        }
        _ => fs::remove_file(&written)?,
    }
    sync_folder(staging)?;
    read(staging)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Why an installation must not use a folder that belongs to another one. `None` is an installation that
/// has no database yet, and so no name.
pub(super) fn refusal(root: &Path, owner: &str, installation: Option<&str>) -> StorageError {
    let this = installation.map_or("this one is new".to_owned(), |name| format!("this one is `{name}`"));
    StorageError::fatal(format!(
        "the folder {} belongs to installation `{owner}`, and {this}: two installations must not share a \
         folder. Give this one its own (storage.url). If the other one is gone for good (its database was \
         made anew, for example), remove the file {}",
        root.display(),
        root.join(super::STAGING).join(MARKER).display(),
    ))
}
