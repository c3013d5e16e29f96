//! A file being written, which nobody can see until it is published. On a local folder a thread of
//! its own writes and hashes; for object stores bytes are buffered and sent in parts.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use outhaul_core::id::Lease;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::checksum::{Tally, Total};
use super::local::{Local, Renamed};
use super::multipart::ObjectFile;
use super::object::Objects;
use super::{Publisher, StorageError};

/// What is handed to the writing thread at once.
const BLOCK: usize = 512 * 1024;
/// Blocks that wait for it.
const BLOCKS_AHEAD: usize = 2;

/// A file that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Full key in the storage.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Checksum in hex.
    pub sha256: String,
    /// The storage's ETag, where it has one.
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
    Object(ObjectFile),
}

impl<'a> StagedFile<'a> {
    pub(super) fn local(local: &Arc<Local>, publisher: &'a dyn Publisher, lease: Lease, path: String) -> Self {
        let kind = Kind::Local(LocalFile::new(Arc::clone(local), lease));
        Self { publisher, lease, path, kind }
    }

    pub(super) fn objects(
        objects: &Arc<Objects>,
        publisher: &'a dyn Publisher,
        lease: Lease,
        path: String,
        recorded: Option<String>,
    ) -> Self {
        let kind = Kind::Object(ObjectFile::new(Arc::clone(objects), lease, path.clone(), recorded));
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
        let Self { publisher, lease, path, kind } = self;
        let published = match kind {
            Kind::Local(file) => file.publish(publisher, &path).await.map(|total| (total, None)),
            Kind::Object(file) => file.publish(publisher).await.map(|(total, etag)| (total, Some(etag))),
        };
        match published {
            Ok((Total { bytes, sha256 }, etag)) => Ok(Published { path, bytes, sha256, etag }),
            Err(error) => {
                if matches!(error, StorageError::Stopped) {
                    tracing::warn!(attempt = %lease, path, "publish refused: the chunk has a newer owner");
                }
                Err(error)
            }
        }
    }

    /// Removes what was staged. Best effort: what cannot be removed is logged, and left to the sweep.
    pub async fn abort(self) {
        let removed = match self.kind {
            Kind::Local(file) => file.abort().await,
            Kind::Object(file) => file.abort().await,
        };
        if let Err(error) = removed {
            tracing::warn!(attempt = %self.lease, path = self.path, %error, "staged file not removed");
        }
    }
}

enum Message {
    Block(Bytes),
    End,
}

/// The writing thread. It removes the staged file itself unless it was told [`Message::End`].
struct Writer {
    messages: mpsc::Sender<Message>,
    thread: JoinHandle<io::Result<Total>>,
}

/// A staged file of local storage. Small ones are kept in memory and written in one go.
struct LocalFile {
    local: Arc<Local>,
    lease: Lease,
    buffer: Vec<u8>,
    writer: Option<Writer>,
}

impl LocalFile {
    fn new(local: Arc<Local>, lease: Lease) -> Self {
        Self { local, lease, buffer: Vec::new(), writer: None }
    }

    async fn write(&mut self, bytes: Bytes) -> Result<(), StorageError> {
        if self.buffer.len() + bytes.len() > BLOCK {
            if !self.buffer.is_empty() {
                let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(BLOCK));
                self.send(Message::Block(full.into())).await?;
            }
            // Large pieces are passed on as they are.
            if bytes.len() >= BLOCK / 4 {
                return self.send(Message::Block(bytes)).await;
            }
        }
        self.buffer.extend_from_slice(&bytes);
        Ok(())
    }

    async fn send(&mut self, message: Message) -> Result<(), StorageError> {
        let writer = self.writer.get_or_insert_with(|| Writer::start(&self.local, self.lease));
        if writer.messages.send(message).await.is_ok() {
            return Ok(());
        }
        // The thread ended early, so it has the reason.
        Err(self.join().await.err().unwrap_or_else(|| StorageError::retryable("a writer ended early")))
    }

    async fn join(&mut self) -> Result<Total, StorageError> {
        let Some(Writer { messages, thread }) = self.writer.take() else {
            return Err(StorageError::retryable("the file failed before"));
        };
        drop(messages);
        thread.await.map_err(io::Error::other).flatten().map_err(|error| self.failed("write", error))
    }

    fn failed(&self, act: &str, error: io::Error) -> StorageError {
        StorageError::io(act, self.local.url(), error)
    }

    /// Everything is in the staged file, and the staged file is durable.
    async fn finish(&mut self) -> Result<Total, StorageError> {
        let rest = std::mem::take(&mut self.buffer);
        if self.writer.is_some() {
            self.send(Message::Block(rest.into())).await?;
            self.send(Message::End).await?;
            return self.join().await;
        }
        let (local, staged) = (Arc::clone(&self.local), self.local.staged(self.lease));
        let written = tokio::task::spawn_blocking(move || {
            let mut pieces = [Message::Block(rest.into()), Message::End].into_iter();
            write_staged(&local, &staged, || pieces.next())
        });
        written.await.map_err(io::Error::other).flatten().map_err(|error| self.failed("write", error))
    }

    async fn publish(mut self, publisher: &dyn Publisher, path: &str) -> Result<Total, StorageError> {
        let total = self.finish().await?;
        let published = self.rename(publisher, path).await;
        if published.is_err()
            && let Err(error) = self.local.remove_staged(self.lease).await
        {
            tracing::warn!(attempt = %self.lease, path, %error, "staged file not removed");
        }
        published.map(|()| total)
    }

    async fn rename(&self, publisher: &dyn Publisher, path: &str) -> Result<(), StorageError> {
        let (local, staged) = (Arc::clone(&self.local), self.local.staged(self.lease));
        let target = local.target(path)?;
        publisher.may_publish().await?;
        let renamed = tokio::task::spawn_blocking(move || local.rename(&staged, &target)).await;
        match renamed.map_err(io::Error::other).flatten() {
            Ok(Renamed::Yes) => Ok(()),
            Ok(Renamed::Refused) => {
                tracing::warn!(
                    attempt = %self.lease,
                    path,
                    "publish refused: the staged file was removed by a newer owner"
                );
                Err(StorageError::Stopped)
            }
            Err(error) => Err(self.failed(&format!("publish `{path}`"), error)),
        }
    }

    async fn abort(mut self) -> Result<(), StorageError> {
        if self.writer.is_some() {
            // It was not told to end, so it removes its file; that it "failed" is what was asked for.
            let _ = self.join().await;
        }
        self.local.remove_staged(self.lease).await
    }
}

impl Writer {
    fn start(local: &Arc<Local>, lease: Lease) -> Self {
        let (messages, mut received) = mpsc::channel(BLOCKS_AHEAD);
        let (local, staged) = (Arc::clone(local), local.staged(lease));
        let thread =
            tokio::task::spawn_blocking(move || write_staged(&local, &staged, || received.blocking_recv()));
        Self { messages, thread }
    }
}

/// Writes, counts and hashes blocks until the end, then syncs. Anything else than a proper end
/// removes the file: a full disk gets its room back at once.
fn write_staged(
    local: &Local,
    staged: &PathBuf,
    mut next: impl FnMut() -> Option<Message>,
) -> io::Result<Total> {
    let mut write = || {
        let mut file = local.create_staged(staged)?;
        let mut tally = Tally::default();
        loop {
            match next() {
                Some(Message::Block(bytes)) => {
                    file.write_all(&bytes)?;
                    tally.add(&bytes);
                }
                Some(Message::End) => {
                    file.sync_all()?;
                    return Ok(tally.total());
                }
                None => return Err(io::Error::other("the file was given up")),
            }
        }
    };
    let written = write();
    if written.is_err() {
        // Best effort: the next writer and the sweep remove it too.
        let _ = std::fs::remove_file(staged);
    }
    written
}
