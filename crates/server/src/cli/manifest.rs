//! `manifest.json` beside downloaded files: what each should be, so that `verify` can tell later.

use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::Failure;
use super::table::text;

/// The manifest's name in its folder.
pub(crate) const NAME: &str = "manifest.json";
/// Raised when the format changes in a way old readers cannot understand.
const VERSION: u32 = 1;

/// Everything that was downloaded into a folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    manifest_version: u32,
    pub(crate) files: Vec<Entry>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// Below the manifest's folder.
    pub(crate) path: String,
    /// The job it was downloaded for.
    pub(crate) job_id: String,
    pub(crate) key: Option<String>,
    pub(crate) effective_date: Option<String>,
    pub(crate) format: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl Entry {
    /// From an item of `GET /jobs/{jobId}/files`.
    pub(crate) fn of(job_id: &str, item: &Value) -> Self {
        Self {
            path: text(item, "path"),
            job_id: job_id.to_owned(),
            key: item["key"].as_str().map(str::to_owned),
            effective_date: item["effectiveDate"].as_str().map(str::to_owned),
            format: text(item, "format"),
            rows: item["rows"].as_u64().unwrap_or(0),
            bytes: item["bytes"].as_u64().unwrap_or(0),
            sha256: text(item, "sha256"),
        }
    }

    /// Where it belongs below `folder`; refuses what would lead out of it.
    pub(crate) fn place(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let path = Path::new(&self.path);
        let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || self.path.is_empty() || self.path == NAME {
            let shown = super::table::plain(&self.path);
            return Err(Failure::new(format!("`{shown}` is not a path below the folder; refused")));
        }
        Ok(folder.join(path))
    }
}

impl Manifest {
    /// Nothing downloaded yet.
    pub(crate) fn new() -> Self {
        Self { manifest_version: VERSION, files: Vec::new() }
    }

    /// The manifest of a folder, if it has one.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, Failure> {
        let file = folder.join(NAME);
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::new(format!("{} cannot be read: {error}", file.display()))),
        };
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|error| Failure::new(format!("{} is not a manifest: {error}", file.display())))?;
        if manifest.manifest_version > VERSION {
            let message = format!("{} was written by a newer outhaul; use that one", file.display());
            return Err(Failure::new(message));
        }
        Ok(Some(manifest))
    }

    /// Puts an entry in, in place of an older one of the same path.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.files.retain(|file| file.path != entry.path);
        self.files.push(entry);
    }

    /// Writes it as a whole or not at all.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let file = folder.join(NAME);
        let staged = folder.join(format!(".{NAME}.part"));
        let write = || -> std::io::Result<()> {
            let mut out = std::fs::File::create(&staged)?;
            serde_json::to_writer_pretty(&mut out, self)?;
            out.write_all(b"\n")?;
            out.sync_all()?;
            std::fs::rename(&staged, &file)
        };
        write().map_err(|error| Failure::new(format!("{} cannot be written: {error}", file.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(path: &str, sha256: &str) -> Entry {
        Entry::of("J1", &json!({ "path": path, "rows": 1, "bytes": 2, "sha256": sha256, "format": "CSV" }))
    }

    #[test]
    fn nothing_leaves_the_folder() {
        let folder = Path::new("out");
        assert_eq!(
            entry("exports/2025/A.csv", "").place(folder).unwrap(),
            Path::new("out/exports/2025/A.csv")
        );
        for path in ["", "../x", "a/../../x", "/etc/passwd", "manifest.json", "./x"] {
            assert!(entry(path, "").place(folder).is_err(), "{path}");
        }
    }

    #[test]
    fn it_is_read_as_it_was_written_and_newer_entries_win() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Manifest::read(folder.path()).unwrap().is_none());
        let mut manifest = Manifest::new();
        manifest.put(entry("a", "old"));
        manifest.put(entry("b", "b"));
        manifest.put(entry("a", "new"));
        manifest.write(folder.path()).unwrap();
        let found = Manifest::read(folder.path()).unwrap().unwrap();
        assert_eq!(found.files, [entry("b", "b"), entry("a", "new")]);
    }

    #[test]
    fn what_is_no_manifest_or_a_newer_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["{", "{\"manifestVersion\": 2, \"files\": []}"] {
            std::fs::write(folder.path().join(NAME), text).unwrap();
            assert!(Manifest::read(folder.path()).is_err(), "{text}");
        }
    }
}
