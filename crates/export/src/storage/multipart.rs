//! Files of object stores while they are written. Up to 8 MiB they stay in memory for one PUT; above,
//! an explicit multipart upload, recorded under the fence before its first part: a new owner aborts
//! it, so that a late completion fails. (Azure has no abort; there whatever is published first
//! discards the other's uncommitted parts, which makes a late completion fail all the same.)

use std::sync::Arc;

use bytes::BytesMut;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{Error, PutMultipartOptions};
use outhaul_core::file::Upload;
use outhaul_core::id::Lease;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::budget::{self, FREE, MAX_PARTS, PARTS_IN_FLIGHT};
use super::checksum::{Tally, Total};
use super::object::{Objects, Service, quoted};
use super::put;
use super::staged::prove;
use super::{Publisher, StorageError};

/// A file on its way to an object store.
pub(super) struct ObjectFile {
    objects: Arc<Objects>,
    lease: Lease,
    path: String,
    recorded: Option<String>,
    tally: Tally,
    buffer: BytesMut,
    /// Memory for `buffer` beyond what is free.
    memory: Option<OwnedSemaphorePermit>,
    uploading: Option<Uploading>,
}

struct Uploading {
    key: Path,
    upload: Upload,
    under_way: JoinSet<(usize, Result<PartId, Error>)>,
    parts: Vec<Option<PartId>>,
}

impl ObjectFile {
    pub(super) fn new(objects: Arc<Objects>, lease: Lease, path: String, recorded: Option<String>) -> Self {
        Self {
            objects,
            lease,
            path,
            recorded,
            tally: Tally::default(),
            buffer: BytesMut::new(),
            memory: None,
            uploading: None,
        }
    }

    pub(super) async fn write(
        &mut self,
        publisher: &dyn Publisher,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        self.tally.add(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = budget::part_size(self.uploading.as_ref().map_or(0, |up| up.parts.len()));
            if self.buffer.len() == size {
                // Only now, with more to come: a file that just fills the buffer is a small one.
                self.send_part(publisher).await?;
                continue;
            }
            let taken = rest.len().min(size - self.buffer.len());
            if self.memory.is_none() && self.buffer.len() + taken > FREE {
                self.memory = Some(budget::take(size).await);
                let small = std::mem::replace(&mut self.buffer, budget::buffer(size));
                self.buffer.extend_from_slice(&small);
            }
            self.buffer.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Sends the buffer as the next part, behind at most one other that is under way.
    async fn send_part(&mut self, publisher: &dyn Publisher) -> Result<(), StorageError> {
        let uploading = match &mut self.uploading {
            Some(uploading) => uploading,
            None => {
                let started = self.start(publisher).await?;
                self.uploading.insert(started)
            }
        };
        while uploading.under_way.len() >= PARTS_IN_FLIGHT {
            uploading.join_one(&self.objects).await?;
        }
        let index = uploading.parts.len();
        if index >= MAX_PARTS {
            let limit = (0..MAX_PARTS).map(budget::part_size).sum::<usize>() >> 30;
            return Err(StorageError::fatal(format!("`{}` is larger than {limit} GiB", self.path)));
        }
        let bytes = std::mem::take(&mut self.buffer).freeze();
        let memory = self.memory.take();
        let (objects, key) = (Arc::clone(&self.objects), uploading.key.clone());
        let id = uploading.upload.upload_id.clone();
        uploading.parts.push(None);
        uploading.under_way.spawn(async move {
            let sent = objects.multipart.put_part(&key, &id, index, bytes.clone().into()).await;
            budget::recycle(bytes);
            drop(memory);
            (index, sent)
        });
        Ok(())
    }

    /// Opens an upload and records it. One that could not be recorded is aborted: nobody else knows it.
    async fn start(&self, publisher: &dyn Publisher) -> Result<Uploading, StorageError> {
        let key = self.objects.key(&self.path)?;
        let attributes = match self.objects.service {
            // It takes them only at the end, and object_store does not pass them on.
            Service::Azure => Default::default(),
            service => service.marks(self.lease.to_string(), None),
        };
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let created = self.objects.multipart.create_multipart_opts(&key, options).await;
        let upload_id = created.map_err(|error| self.failed("start the upload of", error))?;
        let upload = Upload { path: self.path.clone(), upload_id };
        if let Err(failed) = publisher.record_upload(&upload).await {
            if let Err(error) = self.objects.abort(&upload).await {
                tracing::warn!(attempt = %self.lease, path = self.path, %error, "upload not aborted");
            }
            return Err(failed.into());
        }
        Ok(Uploading { key, upload, under_way: JoinSet::new(), parts: Vec::new() })
    }

    fn failed(&self, act: &str, error: Error) -> StorageError {
        self.objects.failed(&format!("{act} `{}`", self.path), error)
    }

    /// Publishes what was written; returns its ETag.
    pub(super) async fn publish(
        mut self,
        publisher: &dyn Publisher,
    ) -> Result<(Total, String), StorageError> {
        let total = std::mem::take(&mut self.tally).total();
        if self.uploading.is_none() {
            let bytes = std::mem::take(&mut self.buffer).freeze();
            let recorded = self.recorded.take();
            let (objects, sent) = (&self.objects, bytes.clone());
            let etag = put::put(objects, publisher, self.lease, &self.path, recorded, sent, &total).await;
            budget::recycle(bytes);
            return etag.map(|etag| (total, etag));
        }
        match self.complete(publisher, &total).await {
            Ok(etag) => Ok((total, etag)),
            Err(error) => {
                let (lease, path) = (self.lease, self.path.clone());
                if let Err(error) = self.abort().await {
                    tracing::warn!(attempt = %lease, path, %error, "upload not aborted");
                }
                Err(error)
            }
        }
    }

    async fn complete(&mut self, publisher: &dyn Publisher, total: &Total) -> Result<String, StorageError> {
        self.send_part(publisher).await?;
        let uploading = self.uploading.as_mut().expect("a part was just sent");
        while !uploading.under_way.is_empty() {
            uploading.join_one(&self.objects).await?;
        }
        let parts: Vec<PartId> = uploading.parts.drain(..).flatten().collect();
        let (key, id) = (uploading.key.clone(), uploading.upload.upload_id.clone());
        prove(publisher, self.lease, &self.path).await?;
        let error = match self.objects.multipart.complete_multipart(&key, &id, parts).await {
            Ok(done) => match done.e_tag {
                Some(etag) => return Ok(quoted(etag)),
                None => Error::Generic { store: "object", source: "the reply has no ETag".into() },
            },
            Err(error) => error,
        };
        // The reply may be lost, and what was completed be there.
        if let Some(etag) = self.adopt(total).await? {
            return Ok(etag);
        }
        if matches!(error, Error::NotFound { .. }) {
            // Aborted by a newer owner, or by someone's clean-up: the lease tells.
            prove(publisher, self.lease, &self.path).await?;
        }
        Err(self.failed("publish", error))
    }

    /// The ETag of what is there, if it is what this attempt uploaded. Read in full: that is slow, rare
    /// and always right.
    async fn adopt(&self, total: &Total) -> Result<Option<String>, StorageError> {
        let Some(head) = self.objects.head(&self.path).await? else { return Ok(None) };
        let marked = self.objects.service == Service::Azure || head.attempt == Some(self.lease.to_string());
        if !marked || head.size != total.bytes {
            return Ok(None);
        }
        let (stored, sha256) = self.objects.sha256(&self.path).await?;
        Ok(stored.etag.filter(|_| sha256 == total.sha256).map(quoted))
    }

    pub(super) async fn abort(mut self) -> Result<(), StorageError> {
        let Some(mut uploading) = self.uploading.take() else { return Ok(()) };
        // A part that arrived after the abort would stay.
        uploading.under_way.shutdown().await;
        self.objects.abort(&uploading.upload).await
    }
}

impl Uploading {
    /// Waits for one part.
    async fn join_one(&mut self, objects: &Objects) -> Result<(), StorageError> {
        match self.under_way.join_next().await {
            None => Ok(()),
            Some(Ok((index, Ok(part)))) => {
                self.parts[index] = Some(part);
                Ok(())
            }
            Some(Ok((index, Err(error)))) => {
                Err(objects.failed(&format!("upload part {} of `{}`", index + 1, self.upload.path), error))
            }
            Some(Err(_)) => {
                Err(StorageError::retryable(format!("upload of `{}`: a part ended", self.upload.path)))
            }
        }
    }
}
