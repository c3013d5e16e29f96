//! The folder of the embedded parts. Only the user that the process runs as may open it, unless `storage.file_access`
//! lets others read the files of a storage inside it.

use std::fs;
use std::io;
use std::path::Path;

use outhaul_export::settings::{FileAccess, StorageTarget};

use crate::config::Config;

/// Makes the folder if the database or the storage is to be in it. A folder that an earlier version left open is closed
/// to other users.
pub(crate) fn prepare(config: &Config) -> io::Result<()> {
    let folder = &config.data_dir;
    let database = config.database.url.expose().strip_prefix("sqlite:").map(Path::new);
    let storage = match &config.export.storage.target {
        StorageTarget::Local(root) => Some(root.as_path()),
        StorageTarget::Object { .. } => None,
    };
    let has = |place: Option<&Path>| place.is_some_and(|place| place.starts_with(folder));
    let access = if has(storage) { config.export.storage.file_access } else { FileAccess::Owner };
    if has(database) || has(storage) {
        make(folder, access)?;
    }
    // The database is in another folder.
    if let Some(parent) = database.and_then(Path::parent).filter(|_| !has(database)) {
        make(parent, FileAccess::Owner)?;
    }
    // The folder of the configuration is the user's own, and so is one that nothing of ours is in.
    let file = config.file.as_deref().and_then(|file| std::path::absolute(file).ok());
    let is_the_configurations = file.as_deref().and_then(Path::parent) == Some(folder);
    let is_ours = (has(database) || has(storage)) && !is_the_configurations;
    if is_ours { close(folder, access) } else { Ok(()) }
}

fn make(folder: &Path, access: FileAccess) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, access.folder_mode());
    builder.create(folder)
}

/// Removes the permissions that other users must not have. A folder with the sticky bit, such as `/tmp`, is open to all
/// on purpose and keeps its mode.
#[cfg(unix)]
fn close(folder: &Path, access: FileAccess) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    const STICKY: u32 = 0o1000;
    let mode = match fs::metadata(folder) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let closed = mode & !(0o777 & !access.folder_mode());
    if closed == mode || mode & STICKY != 0 {
        return Ok(());
    }
    match fs::set_permissions(folder, fs::Permissions::from_mode(closed)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let folder = folder.display();
            tracing::warn!(
                "serve.data_dir_open: other users can look into {folder}, which is not ours to close"
            );
            Ok(())
        }
        done => done,
    }
}

#[cfg(not(unix))]
fn close(_: &Path, _: FileAccess) -> io::Result<()> {
    Ok(())
}
