//! CSV on its way from a source to a sink. Rows are gathered into batches and counted, so that the sink hashes and
//! writes a few hundred KiB at a time. A row that has arrived costs one poll and one copy.

use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt as _, Stream, StreamExt as _};
use outhaul::{Cause, Failed};

use super::{Sink, StopSignal};

/// What is handed on at once. Large enough to make calls cheap, small enough to keep many chunks in memory.
const BATCH_BYTES: usize = 256 * 1024;

/// CSV that was read and not yet handed on, and the count of all that was read.
pub(super) struct Outflow<'a> {
    dataset: &'a str,
    max_row_bytes: usize,
    buffer: BytesMut,
    pub(super) rows: i64,
    pub(super) bytes: i64,
}

impl<'a> Outflow<'a> {
    pub(super) fn new(dataset: &'a str, max_row_bytes: usize) -> Self {
        Self { dataset, max_row_bytes, buffer: BytesMut::new(), rows: 0, bytes: 0 }
    }

    /// Refuses a row that has too many bytes. The failure is fatal: another attempt would meet the same row.
    pub(super) fn admit(&self, bytes: usize) -> Result<(), Failed> {
        if bytes <= self.max_row_bytes {
            return Ok(());
        }
        let Self { dataset, max_row_bytes, rows, .. } = self;
        let text = format!("row {rows} of dataset `{dataset}` is larger than {max_row_bytes} bytes");
        let detail = format!("{text} (limits.max_row_bytes)");
        Err(Failed::Fatal(Cause::with_detail(text, detail)))
    }

    /// Adds a header or a row that is counted already; passes on the buffer when it is full.
    pub(super) async fn push(
        &mut self,
        csv: Bytes,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Failed> {
        self.admit(csv.len())?;
        if self.buffer.len() + csv.len() > BATCH_BYTES {
            self.flush(stop, sink).await?;
            // This is no small export: the next batches are full ones as well.
            self.buffer.reserve(BATCH_BYTES);
        }
        self.bytes += csv.len() as i64;
        if csv.len() >= BATCH_BYTES {
            return self.hand_on(csv, stop, sink).await;
        }
        self.buffer.extend_from_slice(&csv);
        Ok(())
    }

    /// Hands on what is left.
    pub(super) async fn flush(
        &mut self,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Failed> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let full = std::mem::take(&mut self.buffer);
        self.hand_on(full.freeze(), stop, sink).await
    }

    async fn hand_on(
        &mut self,
        csv: Bytes,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Failed> {
        sink.progress(self.rows, self.bytes);
        tokio::select! {
            biased;
            () = stop => Err(Failed::Stopped),
            written = sink.write(csv) => written,
        }
    }

    /// The next row of a stream that still has to be counted and pushed. All rows before it have been added already.
    pub(super) async fn next_row<S, E>(
        &mut self,
        rows: &mut S,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Option<Result<Bytes, E>>, Failed>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin,
    {
        match self.gather(rows) {
            Poll::Ready(item) => Ok(item),
            Poll::Pending => self.wait(rows, stop, sink).await,
        }
    }

    /// Adds and counts the rows that have arrived, as long as the buffer has room for them. Returns the first item
    /// that was not added, if it has arrived: a row that does not fit, an error, or the end.
    fn gather<S, E>(&mut self, rows: &mut S) -> Poll<Option<Result<Bytes, E>>>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin,
    {
        // Nobody is woken by this look: `wait` polls again if nothing is there.
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match rows.poll_next_unpin(&mut context) {
                Poll::Ready(Some(Ok(row))) if self.has_room_for(row.len()) => {
                    self.rows += 1;
                    self.bytes += row.len() as i64;
                    self.buffer.extend_from_slice(&row);
                }
                other => return other,
            }
        }
    }

    fn has_room_for(&self, row: usize) -> bool {
        self.buffer.len() + row <= BATCH_BYTES && row <= self.max_row_bytes
    }

    /// The next item of a source's stream.
    pub(super) async fn next<S: Stream + Unpin>(
        &self,
        stream: &mut S,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Option<S::Item>, Failed> {
        match stream.next().now_or_never() {
            Some(item) => Ok(item),
            None => self.wait(stream, stop, sink).await,
        }
    }

    /// Progress is reported only when we have to wait for the source, so that a fast source pays nothing and a
    /// slow one is not taken for stalled.
    async fn wait<S: Stream + Unpin>(
        &self,
        stream: &mut S,
        stop: &mut StopSignal<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Option<S::Item>, Failed> {
        sink.progress(self.rows, self.bytes);
        tokio::select! {
            biased;
            () = stop => Err(Failed::Stopped),
            item = stream.next() => Ok(item),
        }
    }
}
