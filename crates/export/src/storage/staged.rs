//! A file being written, which nobody can see until it is published.

use std::sync::Arc;

use bytes::Bytes;
use outhaul::Failed;
use outhaul_core::id::Lease;

use super::checksum::Total;
use super::local::Local;
use super::local_file::LocalFile;
use super::multipart::ObjectFile;
use super::object::Objects;
use super::put::Before;
use super::{Publisher, StorageError};

/// A file that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Full key in the storage.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Checksum in hex.
    pub sha256: String,
    /// The storage's ETag; a folder's is made of time and size.
    pub etag: Option<String>,
}

/// A file being written. End it with [`StagedFile::publish`] or [`StagedFile::abort`]; what one that
/// is dropped leaves is removed by the next writer or the sweep.
pub struct StagedFile<'a> {
    publisher: &'a dyn Publisher,
    lease: Lease,
    path: String,
    kind: Kind,
}

enum Kind {
    Local(LocalFile),
    Object(Box<ObjectFile>),
}

impl<'a> StagedFile<'a> {
    pub(super) fn local(
        local: &Arc<Local>,
        publisher: &'a dyn Publisher,
        lease: Lease,
        path: String,
    ) -> Self {
        let kind = Kind::Local(LocalFile::new(Arc::clone(local), lease, path.clone()));
        Self { publisher, lease, path, kind }
    }

    pub(super) fn objects(
        objects: &Arc<Objects>,
        publisher: &'a dyn Publisher,
        (lease, mark): (Lease, String),
        path: String,
        before: Before,
    ) -> Self {
        let file = ObjectFile::new(Arc::clone(objects), lease, mark, path.clone(), before);
        let kind = Kind::Object(Box::new(file));
        Self { publisher, lease, path, kind }
    }

    /// Adds bytes. After an error the file can only be aborted.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), StorageError> {
        match &mut self.kind {
            Kind::Local(file) => file.write(bytes).await,
            Kind::Object(file) => file.write(self.publisher, &bytes).await,
        }
    }

    /// Makes the file durable, proves the lease, and puts it in place of the one that was there.
    /// After an error nothing of this attempt is left behind, as far as the storage can be reached.
    pub async fn publish(self) -> Result<Published, StorageError> {
        let Self { publisher, path, kind, .. } = self;
        let published = match kind {
            Kind::Local(file) => file.publish(publisher).await,
            Kind::Object(file) => file.publish(publisher).await,
        };
        let etag_too = |(Total { bytes, sha256 }, etag)| Published { path, bytes, sha256, etag: Some(etag) };
        published.map(etag_too)
    }

    /// Removes what was staged. Best effort: what cannot be removed is logged, and left to the sweep.
    pub async fn abort(self) {
        let removed = match self.kind {
            Kind::Local(file) => {
                file.abort().await;
                Ok(())
            }
            Kind::Object(file) => file.abort().await,
        };
        if let Err(error) = removed {
            tracing::warn!(attempt = %self.lease, path = self.path, %error, "staged file not removed");
        }
    }
}

/// Proves the lease right before publishing; a refusal is logged, here and nowhere else.
pub(super) async fn prove(publisher: &dyn Publisher, lease: Lease, path: &str) -> Result<(), StorageError> {
    publisher.may_publish().await.map_err(|failed| {
        if failed == Failed::Stopped {
            tracing::warn!(attempt = %lease, path, "publish refused: the lease is lost or the job cancelled");
        }
        failed.into()
    })
}
