//! The socket that the client library reads, with the filter in front of it. The library takes only sockets
//! of its runtime's own kind, so there is a runtime here too, which is Tokio's with this kind of socket.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use bytes::{Buf, BytesMut};
use futures::Stream;
use futures::io::{AsyncRead, AsyncWrite};
use lapin::tcp::AsyncTcpStream;

use super::filter::Filter;

/// Read from the socket at once.
const READ: usize = 16 * 1024;

/// A runtime whose sockets are filtered.
pub(super) fn runtime(tokio: &Tokio) -> Runtime<RuntimeParts<Tokio, Sockets>> {
    Runtime::new(RuntimeParts::new(tokio.clone(), Sockets(tokio.clone())))
}

/// A connection, plain or through TLS.
pub(super) type Connected = AsyncTcpStream<<Tokio as Reactor>::TcpStream>;

/// A socket of which the library reads only what the filter lets through.
pub(super) struct FilteredSocket {
    socket: Connected,
    read: Box<[u8]>,
    filter: Filter,
    passed: BytesMut,
}

impl FilteredSocket {
    pub(super) fn new(socket: Connected) -> Self {
        let read = vec![0; READ].into_boxed_slice();
        Self { socket, read, filter: Filter::default(), passed: BytesMut::new() }
    }
}

impl AsyncRead for FilteredSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        while this.passed.is_empty() {
            let count = ready!(Pin::new(&mut this.socket).poll_read(context, &mut this.read))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            this.filter.pass(&this.read[..count], &mut this.passed);
        }
        let count = to.len().min(this.passed.len());
        this.passed.copy_to_slice(&mut to[..count]);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for FilteredSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(context)
    }
}

/// Tokio, with filtered sockets.
#[derive(Clone, Debug)]
pub(super) struct Sockets(Tokio);

impl Reactor for Sockets {
    type TcpStream = FilteredSocket;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// Nobody asks for it: we hand the library a socket that is connected.
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<FilteredSocket, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, time: Duration) -> Self::Sleep {
        self.0.sleep(time)
    }

    fn interval(&self, time: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(time)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<FilteredSocket>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async move { Ok(FilteredSocket::new(AsyncTcpStream::Plain(connecting.await?))) }
    }
}
