//! The end of a connection whose client is still sending. Closing a socket with unread bytes in it makes the kernel
//! send a reset, and a reset can destroy the answer before the client has read it: a client that sends 3 MiB to a
//! limit of 2 MiB would see a broken pipe instead of 413. So the server sends the answer, shuts down its side of the
//! connection, and for a while discards the bytes that still arrive.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt as _, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The most bytes that are discarded.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How much is read at once.
const PART: usize = 16 * 1024;

/// Whether a client has begun to send something that was not read to its end. Shared by a connection's socket and its
/// requests. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    fn set(&self, unread: bool) {
        self.0.store(unread, Ordering::Release);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The request whose head was read; with a body that notes when it has been read to its end.
    pub(super) fn request(&self, request: Request) -> Request {
        let ended = request.body().is_end_stream();
        self.set(!ended);
        if ended {
            return request;
        }
        let unread = self.clone();
        let end = stream::poll_fn(move |_| {
            unread.set(false);
            Poll::Ready(None)
        });
        request.map(|body| Body::from_stream(body.into_data_stream().chain(end)))
    }
}

/// Wraps every request of connections that carry an [`Unread`].
pub(super) async fn note(request: Request, next: Next) -> Response {
    let unread = request.extensions().get::<Unread>().cloned();
    let request = match unread {
        Some(unread) => unread.request(request),
        None => request,
    };
    next.run(request).await
}

/// A socket that, when it is shut down while its client is sending, reads on for a while.
pub(super) struct Lingering<S> {
    stream: S,
    unread: Unread,
    patience: Duration,
    end: Option<End>,
}

/// What is left of a connection after the answer was sent.
struct End {
    until: Pin<Box<Sleep>>,
    left: usize,
}

impl<S> Lingering<S> {
    /// This socket, which reads on for so long at most.
    pub(super) fn new(stream: S, unread: Unread, patience: Duration) -> Self {
        Self { stream, unread, patience, end: None }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Discards the bytes that arrive until the client is done, or a limit is reached.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        let new = || End { until: Box::pin(tokio::time::sleep(patience)), left: MAX_BYTES };
        let end = self.end.get_or_insert_with(new);
        let mut part = [0; PART];
        while end.left > 0 && end.until.as_mut().poll(cx).is_pending() {
            let mut part = ReadBuf::new(&mut part);
            match Pin::new(&mut self.stream).poll_read(cx, &mut part) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !part.filled().is_empty() => {
                    end.left = end.left.saturating_sub(part.filled().len());
                }
                // The client is done, or gone.
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if into.filled().len() > before {
            // Part of a head, until its request says otherwise.
            self.unread.set(true);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.end.is_none() {
            let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
            match shut {
                Poll::Ready(Ok(())) if self.unread.get() => {}
                other => return other,
            }
        }
        self.poll_rest(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn who_is_sending_is_heard_out_and_who_is_not_is_not_waited_for() {
        let (client, server) = tokio::io::duplex(16);
        let unread = Unread::default();
        let mut server = Lingering::new(server, unread.clone(), LONG);
        server.shutdown().await.unwrap();
        drop(client);

        let (mut client, server) = tokio::io::duplex(16);
        let mut server = Lingering::new(server, unread.clone(), LONG);
        unread.set(true);
        let (sent, shut) = tokio::join!(
            async {
                client.write_all(&[7; 100_000]).await?;
                let mut end = Vec::new();
                client.read_to_end(&mut end).await?;
                drop(client);
                io::Result::Ok(end)
            },
            server.shutdown()
        );
        assert!(sent.unwrap().is_empty(), "the end of our side is seen");
        shut.unwrap();
    }

    #[tokio::test]
    async fn it_ends_with_time_and_with_bytes() {
        let (client, server) = tokio::io::duplex(16);
        let unread = Unread::default();
        unread.set(true);
        let mut server = Lingering::new(server, unread.clone(), Duration::from_millis(10));
        server.shutdown().await.unwrap();
        drop(client);

        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let mut server = Lingering::new(server, unread, LONG);
        let sending = tokio::spawn(async move {
            let part = vec![7; 64 * 1024];
            while client.write_all(&part).await.is_ok() {}
        });
        server.shutdown().await.unwrap();
        drop(server);
        sending.await.unwrap();
    }
}
