//! A staged file on a local folder. A thread of its own writes and hashes, fed by a short queue, so
//! that the runtime never waits for a disk; small files are kept in memory and written in one go.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use outhaul_core::id::Lease;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::checksum::{Tally, Total};
use super::local::{Local, Renamed};
use super::staged::prove;
use super::{Publisher, StorageError};

/// What is handed to the writing thread at once; a file of less never has one.
const BLOCK: usize = 512 * 1024;
/// Blocks that wait for it.
const BLOCKS_AHEAD: usize = 2;

enum Message {
    Block(Bytes),
    End,
}

/// The writing thread. It removes the staged file itself unless it was told [`Message::End`].
struct Writer {
    messages: mpsc::Sender<Message>,
    thread: JoinHandle<io::Result<Total>>,
}

/// A staged file of local storage.
pub(super) struct LocalFile {
    local: Arc<Local>,
    lease: Lease,
    buffer: Vec<u8>,
    writer: Option<Writer>,
}

impl LocalFile {
    pub(super) fn new(local: Arc<Local>, lease: Lease) -> Self {
        Self { local, lease, buffer: Vec::new(), writer: None }
    }

    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), StorageError> {
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

    /// Publishes what was written; returns its tag.
    pub(super) async fn publish(
        mut self,
        publisher: &dyn Publisher,
        path: &str,
    ) -> Result<(Total, String), StorageError> {
        let total = self.finish().await?;
        let published = self.rename(publisher, path).await;
        if published.is_err()
            && let Err(error) = self.local.remove_staged(self.lease).await
        {
            tracing::warn!(attempt = %self.lease, path, %error, "staged file not removed");
        }
        published.map(|tag| (total, tag))
    }

    async fn rename(&self, publisher: &dyn Publisher, path: &str) -> Result<String, StorageError> {
        let (local, staged) = (Arc::clone(&self.local), self.local.staged(self.lease));
        let target = local.target(path)?;
        prove(publisher, self.lease, path).await?;
        let renamed = tokio::task::spawn_blocking(move || local.rename(&staged, &target)).await;
        match renamed.map_err(io::Error::other).flatten() {
            Ok(Renamed::Yes(tag)) => Ok(tag),
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

    pub(super) async fn abort(mut self) -> Result<(), StorageError> {
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
    staged: &Path,
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
