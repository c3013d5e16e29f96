//! Storage of published files, on a local folder or an object store. A reader sees the whole old file
//! or the whole new one, and a worker that lost its lease cannot replace a newer file.

mod budget;
mod checksum;
mod error;
mod local;
mod local_file;
mod multipart;
mod object;
mod put;
mod staged;

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

/// Bytes of a file, as they come.
pub type ByteStream = BoxStream<'static, Result<Bytes, StorageError>>;

/// Where files are published. Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    place: Place,
    base_path: Arc<str>,
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
            StorageTarget::Local(root) => Place::Local(Arc::new(Local::open(root)?)),
            StorageTarget::Object { url, options } => Place::Objects(Arc::new(Objects::open(url, options)?)),
        };
        Ok(Self { place, base_path: base.into() })
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
        if let Some(leftover) = &grant.leftover {
            self.remove_leftover(leftover).await?;
        }
        if let Place::Local(local) = &self.place {
            local.remove_staged(Lease { fence: lease.fence - 1, ..lease }).await?;
        }
        match &self.place {
            Place::Local(local) => {
                local.target(&path).map(|_| StagedFile::local(local, publisher, lease, path))
            }
            Place::Objects(objects) => {
                // The ETag counts only where it was recorded: a base path may have been changed since.
                let recorded = grant.recorded.as_ref().filter(|record| record.path == path);
                let recorded = recorded.and_then(|record| record.etag.clone());
                objects.key(&path).map(|_| StagedFile::objects(objects, publisher, lease, path, recorded))
            }
        }
    }

    /// Removes what a writer left that never finished: its staged file or open upload. That there is
    /// nothing (any more) is fine.
    pub async fn remove_leftover(&self, leftover: &Leftover) -> Result<(), StorageError> {
        match (&self.place, &leftover.upload) {
            (Place::Local(local), _) => local.remove_staged(leftover.lease).await,
            (Place::Objects(objects), Some(upload)) => objects.abort(upload).await,
            (Place::Objects(_), None) => Ok(()),
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

    /// A URL that lets whoever has it read the file for a while; `None` on local storage.
    pub async fn presign(&self, path: &str, ttl: Duration) -> Result<Option<Url>, StorageError> {
        match &self.place {
            Place::Local(_) => Ok(None),
            Place::Objects(objects) => objects.presign(path, ttl).await.map(Some),
        }
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
