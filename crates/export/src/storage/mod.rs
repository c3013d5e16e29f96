//! Storage of published files, on a local folder or an object store. A reader sees the whole old file
//! or the whole new one, and a worker that lost its lease cannot replace a newer file.

mod budget;
mod checksum;
mod disk;
mod error;
mod folder_sync;
mod local;
mod local_file;
mod multipart;
mod object;
mod owner;
mod put;
mod staged;
mod staging;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use outhaul::Failed;
use outhaul_core::file::{FileRecord, Leftover, Upload, WriteGrant};
use outhaul_core::id::Lease;
use url::Url;

use crate::settings::{StorageSettings, StorageTarget};
use local::Local;
use object::Objects;
use put::Before;

pub use error::StorageError;
pub use staged::{Published, StagedFile};

/// Where unfinished files of local storage are; never below the base path.
const STAGING: &str = ".staging";

/// The side of a running chunk that publishing needs: proofs of its lease.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Proves the lease, right before publishing; [`Failed::Stopped`] when it is lost.
    async fn may_publish(&self) -> Result<(), Failed>;

    /// Records a multipart upload under the fence, before its first part is sent.
    async fn record_upload(&self, upload: &Upload) -> Result<(), Failed>;
}

/// What storage knows of a file without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Size in bytes.
    pub size: u64,
    /// The storage's ETag; a folder's is made of time and size.
    pub etag: Option<String>,
}

impl Stored {
    /// Whether this is the file that was recorded. A record without an ETag was made before folders had
    /// them: there the size must do.
    pub fn is(&self, bytes: u64, etag: Option<&str>) -> bool {
        self.size == bytes && etag.is_none_or(|etag| object::same_etag(etag, &self.etag))
    }
}

/// How a client gets a recorded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// From this process: the storage is a folder.
    Local,
    /// By a URL. For a while everybody who has the URL can read the file.
    Url(Url),
    /// Not at all: the storage no longer holds the file.
    Missing,
    /// Not at all: the storage holds another file in its place.
    Differs,
}

/// Bytes of a file, as they come.
pub type ByteStream = BoxStream<'static, Result<Bytes, StorageError>>;

/// Where files are published. Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    place: Place,
    base_path: Arc<str>,
    /// The installation that publishes here, see [`Storage::claim`].
    installation: Option<Arc<str>>,
}

#[derive(Clone)]
enum Place {
    Local(Arc<Local>),
    Objects(Arc<Objects>),
}

impl Storage {
    /// Checks the settings and opens the storage; a local folder is made if it is not there.
    pub fn open(settings: &StorageSettings) -> Result<Self, StorageError> {
        let base = settings.base_path.as_str();
        let folder = base.strip_suffix('/');
        let sound = base.is_empty() || folder.is_some_and(|folder| object::key("", folder).is_ok());
        if !sound || base.split('/').next() == Some(STAGING) {
            return Err(StorageError::fatal(format!(
                "storage.base_path `{base}` cannot be used: it must be empty or a folder such as `exports/`, \
                 without `.`, `..`, empty parts or `{STAGING}`"
            )));
        }
        let place = match &settings.target {
            StorageTarget::Local(root) => Place::Local(Arc::new(Local::open(root, settings.file_access)?)),
            StorageTarget::Object { url, options } => Place::Objects(Arc::new(Objects::open(url, options)?)),
        };
        Ok(Self { place, base_path: base.into(), installation: None })
    }

    /// The same storage, for an installation that publishes below `bases` (and the base path). Without this,
    /// files can only be read. A folder that belongs to another installation is refused. So is a folder
    /// if files cannot be moved from its staging area to `bases`.
    pub fn claim(self, installation: &str, bases: &[String]) -> Result<Self, StorageError> {
        let place = match &self.place {
            Place::Local(local) => Place::Local(Arc::new(local.claim(installation, self.bases(bases))?)),
            objects => objects.clone(),
        };
        Ok(Self { place, installation: Some(installation.into()), ..self })
    }

    /// Refuses a folder that belongs to another installation, without claiming it. An installation whose
    /// database is not made yet has no name.
    pub fn check_owner(&self, installation: Option<&str>) -> Result<(), StorageError> {
        match &self.place {
            Place::Local(local) => local.check_owner(installation),
            Place::Objects(_) => Ok(()),
        }
    }

    /// Refuses folders that files cannot be moved to: `bases` and the base path.
    pub fn check_bases(&self, bases: &[String]) -> Result<(), StorageError> {
        match &self.place {
            Place::Local(local) => local.check_bases(&self.bases(bases)),
            Place::Objects(_) => Ok(()),
        }
    }

    fn bases(&self, bases: &[String]) -> Vec<String> {
        bases.iter().cloned().chain([self.base_path.to_string()]).collect()
    }

    /// Whether the storage can be used now, for readiness.
    pub async fn check(&self) -> Result<(), StorageError> {
        match &self.place {
            Place::Local(local) => local.check().await,
            Place::Objects(objects) => objects.check().await,
        }
    }

    /// Prefix of every path: `exports/`.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// A path as people may see it: `s3://bucket/exports/…`, `file:///data/files/exports/…`.
    pub fn display_url(&self, path: &str) -> String {
        match &self.place {
            Place::Local(local) => local.display_url(path),
            Place::Objects(objects) => format!("{}/{path}", objects.url()),
        }
    }

    /// Whether a recorded file is really there, unchanged as far as ETag or size can tell.
    pub async fn is_there(&self, record: &FileRecord) -> Result<bool, StorageError> {
        let Ok(bytes) = u64::try_from(record.bytes) else { return Ok(false) };
        let (found, etag) = (self.look(&record.path).await?, record.etag.as_deref());
        // Every object store has ETags: a record without one speaks of another storage.
        let known = etag.is_some() || matches!(self.place, Place::Local(_));
        Ok(known && found.is_some_and(|found| found.is(bytes, etag)))
    }

    async fn look(&self, path: &str) -> Result<Option<Stored>, StorageError> {
        match &self.place {
            Place::Local(local) => local.look(path).await,
            Place::Objects(objects) => {
                let head = objects.head(path).await?;
                Ok(head.map(|head| Stored { size: head.size, etag: head.etag }))
            }
        }
    }

    /// Starts a file for the one writer of its identity. What the writer before it left is removed
    /// first, so that its late publish fails.
    pub async fn begin<'a>(
        &self,
        publisher: &'a dyn Publisher,
        lease: Lease,
        path: String,
        grant: &WriteGrant,
    ) -> Result<StagedFile<'a>, StorageError> {
        let Some(installation) = &self.installation else {
            return Err(StorageError::fatal("no installation has claimed the storage"));
        };
        match &self.place {
            Place::Local(local) => {
                local.target(&path)?;
                if let Some(leftover) = &grant.leftover {
                    local.remove_staged(&path, leftover.lease).await?;
                }
                Ok(StagedFile::local(local, publisher, lease, path))
            }
            Place::Objects(objects) => {
                if let Some(leftover) = &grant.leftover {
                    self.remove_leftover(leftover).await?;
                    // The recorded upload may be that of an earlier writer: the last one may have opened another.
                    objects.abort_unrecorded(&path).await?;
                }
                // The ETag counts only where it was recorded: a base path may have been changed since.
                let recorded = grant.recorded.as_ref().filter(|record| record.path == path);
                let etag = recorded.and_then(|record| record.etag.clone());
                let before = Before { etag, taken_over: grant.leftover.is_some() };
                objects.key(&path)?;
                let attempt = (lease, lease.mark(installation));
                Ok(StagedFile::objects(objects, publisher, attempt, path, before))
            }
        }
    }

    /// Removes the open upload of a writer that never finished. A missing upload is no error.
    /// Staged files of a folder are removed by [`Storage::remove_staged`].
    pub async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), StorageError> {
        match (&self.place, &leftover.upload) {
            (Place::Objects(objects), Some(upload)) => objects.abort(upload).await,
            _ => Ok(()),
        }
    }

    /// The attempts that have staged files. An attempt that has ended may still have some, because
    /// its process was killed or one of its threads went on writing.
    pub async fn staged_attempts(&self) -> Result<HashSet<Lease>, StorageError> {
        match &self.place {
            Place::Local(local) => local.staged(|staging| staging.attempts()).await,
            Place::Objects(_) => Ok(HashSet::new()),
        }
    }

    /// Removes the staged files of attempts that have ended; returns how many files there were.
    pub async fn remove_staged(&self, ended: HashSet<Lease>) -> Result<u64, StorageError> {
        match &self.place {
            Place::Local(local) => local.staged(move |staging| staging.remove_all(&ended)).await,
            Place::Objects(_) => Ok(0),
        }
    }

    /// Reads a file, or a range of it (which ends at the file's end at the latest).
    pub async fn read(
        &self,
        path: &str,
        range: Option<Range<u64>>,
    ) -> Result<(Stored, ByteStream), StorageError> {
        match &self.place {
            Place::Local(local) => local.read(path, range).await,
            Place::Objects(objects) => objects.read(path, range).await,
        }
    }

    /// How people get a recorded file.
    pub async fn link(
        &self,
        path: &str,
        bytes: u64,
        etag: Option<&str>,
        ttl: Duration,
    ) -> Result<Link, StorageError> {
        let Place::Objects(objects) = &self.place else { return Ok(Link::Local) };
        let Some(head) = objects.head(path).await? else { return Ok(Link::Missing) };
        let found = Stored { size: head.size, etag: head.etag.clone() };
        if etag.is_none() || !found.is(bytes, etag) {
            return Ok(Link::Differs);
        }
        objects.presign(path, &head, ttl).await.map(Link::Url)
    }

    /// Where a file is on this machine; `None` on object stores.
    pub fn local_path(&self, path: &str) -> Option<PathBuf> {
        match &self.place {
            Place::Local(local) => local.target(path).ok(),
            Place::Objects(_) => None,
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Storage").field(&self.display_url(&self.base_path)).finish()
    }
}
