//! Files of object stores while they are written. Up to 8 MiB they stay in memory for one PUT; above,
//! an explicit multipart upload, recorded under the fence before its first part: a new owner aborts
//! it, so that a late completion fails. (Azure has no abort; there whatever is published first
//! discards the other's uncommitted parts, which makes a late completion fail all the same.)

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{Error, PutMultipartOptions, PutPayload};
use outhaul_core::file::Upload;
use outhaul_core::id::Lease;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::budget::{self, FREE, MAX_PARTS, PART, SMALL, TAIL};
use super::checksum::{Tally, Total};
use super::object::{Objects, Service, quoted};
use super::put::{self, Before};
use super::staged::prove;
use super::{Publisher, StorageError};

/// A file on its way to an object store.
pub(super) struct ObjectFile {
    objects: Arc<Objects>,
    lease: Lease,
    /// The mark that the object carries, see [`Lease::mark`].
    mark: String,
    path: String,
    before: Before,
    tally: Tally,
    /// What would be the first part, while the file may still turn out to be a small one.
    head: Option<Part>,
    buffer: BytesMut,
    /// Memory for `buffer` beyond what is free.
    memory: Option<OwnedSemaphorePermit>,
    /// Memory for one part, which no other file can take.
    own: Arc<Semaphore>,
    uploading: Option<Uploading>,
}

/// A full buffer, and the memory for it.
struct Part {
    bytes: Bytes,
    memory: Option<OwnedSemaphorePermit>,
}

/// The number of a part, and how sending it ended.
type Sent = (usize, Result<PartId, Error>);

struct Uploading {
    key: Path,
    upload: Upload,
    under_way: JoinSet<Sent>,
    parts: Vec<Option<PartId>>,
}

/// An upload that is open and that nobody else knows of yet. If whoever opened it is dropped before it
/// was recorded (told to stop, for example), it is aborted.
struct Unrecorded {
    objects: Arc<Objects>,
    upload: Upload,
    settled: bool,
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        // Without a runtime the process ends, and so does everything that could abort it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (objects, upload) = (Arc::clone(&self.objects), self.upload.clone());
        runtime.spawn(async move {
            if let Err(error) = objects.abort(&upload).await {
                tracing::warn!(path = upload.path, %error, "upload not aborted");
            }
        });
    }
}

impl ObjectFile {
    pub(super) fn new(
        objects: Arc<Objects>,
        lease: Lease,
        mark: String,
        path: String,
        before: Before,
    ) -> Self {
        Self {
            objects,
            lease,
            mark,
            path,
            before,
            tally: Tally::default(),
            head: None,
            buffer: BytesMut::new(),
            memory: None,
            own: Arc::new(Semaphore::new(1)),
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
            // A buffer is passed on only now, with more to come: a file that just fills it is a small one.
            let size = budget::part_size(self.uploading.as_ref().map_or(0, |up| up.parts.len()));
            let limit = if self.head.is_some() { TAIL } else { size };
            if self.buffer.len() == limit {
                self.pass_on(publisher).await?;
                continue;
            }
            let taken = rest.len().min(limit - self.buffer.len());
            if self.buffer.len() + taken > FREE && self.buffer.capacity() < limit {
                self.memory = self.memory_for(size).await?;
                let small = std::mem::replace(&mut self.buffer, budget::buffer(size));
                self.buffer.extend_from_slice(&small);
            }
            self.buffer.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Makes room for more: sends a part, or turns from a small file into an upload.
    async fn pass_on(&mut self, publisher: &dyn Publisher) -> Result<(), StorageError> {
        if let Some(uploading) = &mut self.uploading {
            let part = Part { bytes: std::mem::take(&mut self.buffer).freeze(), memory: self.memory.take() };
            return uploading.send(&self.objects, part);
        }
        let head = match self.head.take() {
            Some(head) => head,
            None => {
                let part =
                    Part { bytes: std::mem::take(&mut self.buffer).freeze(), memory: self.memory.take() };
                if let Some(memory) = budget::spare(&self.objects.reserve, PART) {
                    (self.memory, self.buffer) = (Some(memory), budget::buffer(PART));
                    self.head = Some(part);
                    return Ok(());
                }
                // Memory is short: an upload needs less of it than one PUT of up to 8 MiB.
                part
            }
        };
        let started = self.start(publisher).await?;
        self.uploading.insert(started).send(&self.objects, head)
    }

    /// Memory for the next part: the file's own, else spare one, else its own when that was sent.
    async fn memory_for(&mut self, size: usize) -> Result<Option<OwnedSemaphorePermit>, StorageError> {
        loop {
            if let Ok(own) = Arc::clone(&self.own).try_acquire_owned() {
                return Ok(Some(own));
            }
            // Of parts that have grown large, a file has one in memory.
            let spare = if size <= SMALL { budget::spare(&self.objects.reserve, size) } else { None };
            match &mut self.uploading {
                Some(uploading) if spare.is_none() && !uploading.under_way.is_empty() => {
                    uploading.join_one(&self.objects).await?;
                }
                _ => return Ok(spare),
            }
        }
    }

    /// Opens an upload and records it. One that could not be recorded is aborted: nobody else knows it.
    async fn start(&self, publisher: &dyn Publisher) -> Result<Uploading, StorageError> {
        let key = self.objects.key(&self.path)?;
        let attributes = match self.objects.service {
            // It takes them only at the end, and object_store does not pass them on.
            Service::Azure => Default::default(),
            service => service.marks(self.mark.clone(), None),
        };
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let (objects, path, at) = (Arc::clone(&self.objects), self.path.clone(), key.clone());
        // In a task of its own: if this future is dropped meanwhile, the upload is still heard of, and aborted.
        let created = tokio::spawn(async move {
            let upload_id = objects.multipart.create_multipart_opts(&at, options).await?;
            Ok(Unrecorded { objects, upload: Upload { path, upload_id }, settled: false })
        });
        let created = created
            .await
            .map_err(|_| StorageError::retryable(format!("upload of `{}`: its start ended", self.path)))?;
        let mut unrecorded = created.map_err(|error| self.failed("start the upload of", error))?;
        let upload = unrecorded.upload.clone();
        if let Err(failed) = publisher.record_upload(&upload).await {
            if let Err(error) = self.objects.abort(&upload).await {
                tracing::warn!(attempt = %self.lease, path = self.path, %error, "upload not aborted");
            }
            unrecorded.settled = true;
            return Err(failed.into());
        }
        unrecorded.settled = true;
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
            let rest = std::mem::take(&mut self.buffer).freeze();
            let (head, _memory) = self.head.take().map(|head| (head.bytes, head.memory)).unzip();
            let pieces: Vec<Bytes> = head.into_iter().chain([rest]).collect();
            let (objects, before) = (&self.objects, self.before.clone());
            let sent = PutPayload::from_iter(pieces.iter().cloned());
            let attempt = (self.lease, &*self.mark);
            let etag = put::put(objects, publisher, attempt, &self.path, before, sent, &total).await;
            pieces.into_iter().for_each(budget::recycle);
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
        let uploading = self.uploading.as_mut().expect("only uploads are completed");
        let part = Part { bytes: std::mem::take(&mut self.buffer).freeze(), memory: self.memory.take() };
        uploading.send(&self.objects, part)?;
        uploading.join_all(&self.objects).await?;
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
        let marked = self.objects.service == Service::Azure || head.attempt.as_ref() == Some(&self.mark);
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
    /// Starts to send the next part; how many are under way is a matter of memory.
    fn send(&mut self, objects: &Arc<Objects>, part: Part) -> Result<(), StorageError> {
        // A part that failed ends the file now, not after all the others.
        while let Some(ended) = self.under_way.try_join_next() {
            self.note(ended, objects)?;
        }
        let index = self.parts.len();
        if index >= MAX_PARTS {
            let limit = (0..MAX_PARTS).map(budget::part_size).sum::<usize>() >> 30;
            return Err(StorageError::fatal(format!("`{}` is larger than {limit} GiB", self.upload.path)));
        }
        let Part { bytes, memory } = part;
        let (objects, key) = (Arc::clone(objects), self.key.clone());
        let id = self.upload.upload_id.clone();
        self.parts.push(None);
        self.under_way.spawn(async move {
            let sent = objects.multipart.put_part(&key, &id, index, bytes.clone().into()).await;
            budget::recycle(bytes);
            drop(memory);
            (index, sent)
        });
        Ok(())
    }

    /// Waits for every part.
    async fn join_all(&mut self, objects: &Objects) -> Result<(), StorageError> {
        while !self.under_way.is_empty() {
            self.join_one(objects).await?;
        }
        Ok(())
    }

    /// Waits for one part.
    async fn join_one(&mut self, objects: &Objects) -> Result<(), StorageError> {
        match self.under_way.join_next().await {
            Some(ended) => self.note(ended, objects),
            None => Ok(()),
        }
    }

    fn note(&mut self, ended: Result<Sent, JoinError>, objects: &Objects) -> Result<(), StorageError> {
        match ended {
            Ok((index, Ok(part))) => {
                self.parts[index] = Some(part);
                Ok(())
            }
            Ok((index, Err(error))) => {
                Err(objects.failed(&format!("upload part {} of `{}`", index + 1, self.upload.path), error))
            }
            Err(_) => Err(StorageError::retryable(format!("upload of `{}`: a part ended", self.upload.path))),
        }
    }
}
