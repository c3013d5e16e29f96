//! File operations that differ between systems: the modes of new files and folders, refusing symbolic links, and
//! whether a file can be moved from one folder to another.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use crate::settings::FileAccess;

/// Makes a folder and its missing parent folders.
pub(super) fn make_folders(folder: &Path, access: FileAccess) -> io::Result<()> {
    match make_folder(folder, access) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match folder.parent() {
            Some(above) => {
                make_folders(above, access)?;
                make_folder(folder, access)
            }
            None => Err(error),
        },
        other => other,
    }
}

/// Makes one folder. An existing folder keeps its mode.
pub(super) fn make_folder(folder: &Path, access: FileAccess) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, access.folder_mode());
    match builder.create(folder) {
        Ok(()) => open_to_group(access, access.folder_mode(), |mode| fs::set_permissions(folder, mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a new file. Fails if anything has this name already, also a symbolic link.
pub(super) fn create_new(path: &Path, access: FileAccess) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, access.file_mode());
    let file = options.open(path)?;
    open_to_group(access, access.file_mode(), |mode| file.set_permissions(mode))?;
    Ok(file)
}

/// Lets the group read, whatever the umask of the process says.
#[cfg(unix)]
fn open_to_group(
    access: FileAccess,
    mode: u32,
    set: impl FnOnce(fs::Permissions) -> io::Result<()>,
) -> io::Result<()> {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    if access == FileAccess::Group { set(mode) } else { Ok(()) }
}

#[cfg(not(unix))]
fn open_to_group(_: FileAccess, _: u32, _: impl FnOnce(fs::Permissions) -> io::Result<()>) -> io::Result<()> {
    Ok(())
}

/// Refuses a path that contains a symbolic link below the root. The root itself may be a link. Missing parts of the
/// path are accepted.
pub(super) fn refuse_links(root: &Path, path: &Path) -> io::Result<()> {
    let mut at = root.to_owned();
    for part in path.strip_prefix(root).map_err(io::Error::other)? {
        at.push(part);
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_symlink() => {
                let link = at.strip_prefix(root).unwrap_or(&at).display();
                return Err(io::Error::other(format!(
                    "`{link}` is a symbolic link, which is not followed; put a real folder in its place"
                )));
            }
            Ok(_) => {}
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether nothing has this name.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether both are the same file of the same disk.
#[cfg(unix)]
pub(super) fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
pub(super) fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    (a.len(), a.modified().ok()) == (b.len(), b.modified().ok())
}

/// Whether names that differ in case only are one and the same on the disk of this folder, as on most disks of
/// macOS and Windows.
pub(super) fn folds_case(folder: &Path) -> io::Result<bool> {
    let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { return Ok(false) };
    match fs::metadata(folder.with_file_name(name.to_uppercase())) {
        Ok(twin) => Ok(same_file(&fs::metadata(folder)?, &twin)),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether files can be moved from one folder to the other (or to the nearest one above it that is
/// there) without being copied.
pub(super) fn can_move(from: &Path, to: &Path) -> io::Result<bool> {
    let mut to = to;
    let found = loop {
        match fs::metadata(to) {
            Ok(found) => break found,
            Err(error) if is_absent(&error) => to = to.parent().ok_or(error)?,
            Err(error) => return Err(error),
        }
    };
    // Two mounts of one disk have the same device number, and still files cannot be moved between them. On Linux,
    // renaming a missing file between two mounts fails with `CrossesDevices` and not with `NotFound`.
    let nothing = format!("move-{:016x}", rand::random::<u64>());
    let moved = fs::rename(from.join(&nothing), to.join(&nothing));
    let crosses = moved.is_err_and(|error| error.kind() == io::ErrorKind::CrossesDevices);
    Ok(!crosses && same_disk(&fs::metadata(from)?, &found))
}

#[cfg(unix)]
fn same_disk(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    a.dev() == b.dev()
}

#[cfg(not(unix))]
fn same_disk(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}
