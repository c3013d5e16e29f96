//! A staged file on a local folder. A thread of its own writes and hashes, fed by a short queue, so
//! that the runtime never waits for a disk; small files are kept in memory and written in one go.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use outhaul_core::id::Lease;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::checksum::{Tally, Total};
use super::local::{Local, Renamed};
use super::staged::prove;
use super::staging::Staged;
use super::{Publisher, StorageError};

/// What is handed to the writing thread at once; a file of less never has one.
const BLOCK: usize = 512 * 1024;
/// Blocks that wait for it.
const BLOCKS_AHEAD: usize = 2;

enum Message {
    Block(Bytes),
    End,
}

/// The writing thread. If the thread ends before [`Message::End`], the staged file is removed.
struct Writer {
    messages: mpsc::Sender<Message>,
    thread: JoinHandle<io::Result<Durable>>,
}

/// A staged file with everything in it.
struct Durable {
    staged: Staged,
    /// The files that other attempts had staged for the same place when this file was durable.
    others: Vec<PathBuf>,
    total: Total,
}

/// A staged file of local storage.
pub(super) struct LocalFile {
    local: Arc<Local>,
    lease: Lease,
    path: String,
    buffer: Vec<u8>,
    writer: Option<Writer>,
}

impl LocalFile {
    pub(super) fn new(local: Arc<Local>, lease: Lease, path: String) -> Self {
        Self { local, lease, path, buffer: Vec::new(), writer: None }
    }

    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), StorageError> {
        if self.buffer.len() + bytes.len() > BLOCK && !self.buffer.is_empty() {
            let full = std::mem::take(&mut self.buffer);
            self.send(Message::Block(full.into())).await?;
        }
        // Large pieces of a file that has a writing thread, or gets one now, are passed on as they are.
        let is_large = self.writer.is_some() || bytes.len() > BLOCK;
        if is_large && self.buffer.is_empty() && bytes.len() >= BLOCK / 4 {
            return self.send(Message::Block(bytes)).await;
        }
        self.buffer.extend_from_slice(&bytes);
        Ok(())
    }

    async fn send(&mut self, message: Message) -> Result<(), StorageError> {
        let writer = self.writer.get_or_insert_with(|| Writer::start(&self.local, self.lease, &self.path));
        if writer.messages.send(message).await.is_ok() {
            return Ok(());
        }
        // The thread ended early, so it has the reason.
        Err(self.join().await.err().unwrap_or_else(|| StorageError::retryable("a writer ended early")))
    }

    async fn join(&mut self) -> Result<Durable, StorageError> {
        let Some(Writer { messages, thread }) = self.writer.take() else {
            return Err(StorageError::retryable("the file failed before"));
        };
        drop(messages);
        thread.await.map_err(io::Error::other).flatten().map_err(|error| self.local.failed("write", error))
    }

    /// Everything is in the staged file, and the staged file is durable.
    async fn finish(&mut self) -> Result<Durable, StorageError> {
        let rest = std::mem::take(&mut self.buffer);
        if self.writer.is_some() {
            self.send(Message::Block(rest.into())).await?;
            self.send(Message::End).await?;
            return self.join().await;
        }
        let (local, lease, path) = (Arc::clone(&self.local), self.lease, self.path.clone());
        let written = tokio::task::spawn_blocking(move || {
            let mut pieces = [Message::Block(rest.into()), Message::End].into_iter();
            write_staged(&local, lease, &path, || pieces.next())
        });
        written.await.map_err(io::Error::other).flatten().map_err(|error| self.local.failed("write", error))
    }

    /// Publishes what was written; returns its tag.
    ///
    /// The order matters: stage, list, prove, remove, rename. An attempt that proves its lease after it listed the
    /// staged files was the only writer of this place when it listed them. So all other listed files belong to its
    /// predecessors, whichever chunk they ran. Once those files are removed, the renames of the predecessors fail,
    /// however late they come. A predecessor that stages later has to prove its lease after that, and cannot.
    pub(super) async fn publish(
        mut self,
        publisher: &dyn Publisher,
    ) -> Result<(Total, String), StorageError> {
        let target = self.local.target(&self.path)?;
        let Durable { staged, others, total } = self.finish().await?;
        let Self { local, lease, path, .. } = self;
        if let Err(error) = prove(publisher, lease, &path).await {
            remove(staged).await;
            return Err(error);
        }
        let at = Arc::clone(&local);
        let renamed = tokio::task::spawn_blocking(move || at.publish(staged, &others, &target)).await;
        match renamed.map_err(io::Error::other).flatten() {
            Ok(Renamed::Yes(tag)) => Ok((total, tag)),
            Ok(Renamed::Refused) => {
                tracing::warn!(
                    attempt = %lease,
                    path,
                    "publish refused: the staged file was removed by a newer owner"
                );
                Err(StorageError::Stopped)
            }
            Err(error) => Err(local.failed(&format!("publish `{path}`"), error)),
        }
    }

    pub(super) async fn abort(mut self) {
        if self.writer.is_some() {
            // It was not told to end, so it removes its file; that it "failed" is what was asked for.
            if let Ok(Durable { staged, .. }) = self.join().await {
                remove(staged).await;
            }
        }
    }
}

/// Removes a staged file on a thread that may wait for the disk.
async fn remove(staged: Staged) {
    let _ = tokio::task::spawn_blocking(move || drop(staged)).await;
}

impl Writer {
    fn start(local: &Arc<Local>, lease: Lease, path: &str) -> Self {
        let (messages, mut received) = mpsc::channel(BLOCKS_AHEAD);
        let (local, path) = (Arc::clone(local), path.to_owned());
        let thread = tokio::task::spawn_blocking(move || {
            write_staged(&local, lease, &path, || received.blocking_recv())
        });
        Self { messages, thread }
    }
}

/// Writes a staged file. An incomplete file is removed, so that a full disk gets its space back at once.
fn write_staged(
    local: &Local,
    lease: Lease,
    path: &str,
    next: impl FnMut() -> Option<Message>,
) -> io::Result<Durable> {
    let staging = local.staging()?;
    let (staged, file) = staging.create(path, lease)?;
    let total = fill(file, next)?;
    let others = staging.others(path, &staged)?;
    Ok(Durable { staged, others, total })
}

/// Writes, counts and hashes blocks until the end, then syncs.
fn fill(mut file: File, mut next: impl FnMut() -> Option<Message>) -> io::Result<Total> {
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
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn filled(device: &str) -> io::Error {
        let file = File::options().write(true).open(device).unwrap();
        let mut pieces = [Message::Block(Bytes::from_static(b"a")), Message::End].into_iter();
        let Err(error) = fill(file, || pieces.next()) else { panic!("{device} took it") };
        error
    }

    #[test]
    fn a_full_disk_and_a_failed_sync_fail_the_attempt() {
        let full = StorageError::io("write", "file:///data", filled("/dev/full"));
        assert!(matches!(&full, StorageError::Retryable { what, .. } if what.contains("it is full")));
        // This file accepts every byte and refuses to sync.
        let _: io::Error = filled("/dev/null");
    }
}
