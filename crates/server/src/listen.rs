//! Answering connections. Like `axum::serve`, but a client that sends nothing, or its headers a byte at
//! a time, or does not take its answer, is hung up on; there is room for so many connections and no more;
//! and one that is idle does not hold up a stop.

mod lingering;
mod taken;

use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Layer as _;

use self::lingering::{Lingering, Unread, note};
use self::taken::Taken;

/// How long to wait after a connection could not be accepted: most likely there are too many.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// The most bytes of a request's line and headers: a token has 16 KiB at most. More are answered with 431.
const MAX_HEAD: usize = 64 * 1024;
/// How long a client that was answered before it was done may go on sending.
const TO_FINISH: Duration = Duration::from_secs(5);

/// What clients may take of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How long a client may take to send the headers of a request: the first from when it connected,
    /// the next from the answer before.
    pub(crate) headers: Duration,
    /// How long a client may leave an answer untaken. An answer that has nothing to say for longer, such
    /// as a stream of events, is not cut.
    pub(crate) taking: Duration,
    /// How many connections may be open; further ones wait until one is closed. See `descriptors.rs`.
    pub(crate) connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { headers: Duration::from_secs(15), taking: Duration::from_secs(600), connections: 4096 }
    }
}

/// Answers until told to stop, then lets open requests end.
pub(crate) async fn answer(listener: TcpListener, router: Router, bounds: Bounds, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let router = router.layer(from_fn(note));
    let room = Arc::new(Semaphore::new(bounds.connections));
    let accept = async || {
        // The semaphore is never closed; without a permit nothing could be accepted anyway.
        let place = Arc::clone(&room).acquire_owned().await.map_err(std::io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        std::io::Result::Ok((stream, place))
    };
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, place)) => {
                let talk = talk(stream, router.clone(), bounds, stop.clone());
                connections.spawn(async move {
                    talk.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "serve.accept_failed");
                tokio::time::sleep(AFTER_REFUSAL).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn talk(stream: TcpStream, router: Router, bounds: Bounds, stop: CancellationToken) {
    // Only a matter of speed: answers are small.
    let _ = stream.set_nodelay(true);
    // HTTP/1 alone: to find out which version a client speaks takes a first byte, and the wait for
    // that byte has no limit.
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(bounds.headers).max_buf_size(MAX_HEAD);
    let unread = Unread::default();
    let stream = Lingering::new(stream, unread.clone(), TO_FINISH);
    let stream = TokioIo::new(Taken::new(stream, bounds.taking));
    let service = TowerToHyperService::new(Extension(unread).layer(router));
    let connection = builder.serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "serve.connection_ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use futures::{StreamExt as _, stream};
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    struct Server {
        addr: SocketAddr,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    impl Server {
        async fn start(headers: Duration, connections: usize) -> Self {
            let router = Router::new().route("/", get(async || "hello"));
            let taking = Duration::from_secs(600);
            Self::with(router, Bounds { headers, taking, connections }).await
        }

        async fn with(router: Router, bounds: Bounds) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let stop = CancellationToken::new();
            Self { addr, task: tokio::spawn(answer(listener, router, bounds, stop.clone())), stop }
        }

        async fn send(&self, bytes: &[u8]) -> TcpStream {
            let mut stream = TcpStream::connect(self.addr).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream
        }

        async fn stop(self) {
            self.stop.cancel();
            self.task.await.unwrap();
        }
    }

    async fn read_answer(stream: &mut TcpStream) {
        let mut seen = Vec::new();
        while !seen.ends_with(b"hello") {
            assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "the answer came whole");
        }
    }

    #[tokio::test]
    async fn who_does_not_ask_is_hung_up_on() {
        let server = Server::start(Duration::from_millis(50), 10).await;
        for sent in [&b""[..], b"G", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n", ASK] {
            let mut stream = server.send(sent).await;
            // The end of the stream, or a reset where something of ours was left unread.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        server.stop().await;
    }

    /// Sends a head and all of a body before it reads, as many clients do.
    async fn sends_all_then_reads(server: &Server, head: &str, body: &[u8]) -> String {
        let mut stream = server.send(head.as_bytes()).await;
        stream.write_all(body).await.unwrap();
        let mut answer = Vec::new();
        while !answer.windows(4).any(|part| part == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "the answer came whole");
        }
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn who_sends_more_than_is_read_gets_the_answer() {
        let refuse = async || axum::http::StatusCode::PAYLOAD_TOO_LARGE;
        let router = Router::new().route("/", axum::routing::post(refuse));
        let server = Server::with(router, Bounds::default()).await;
        let body = vec![b'x'; 5_000_000];
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        for _ in 0..20 {
            let answer = sends_all_then_reads(&server, &head, &body).await;
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        }
        server.stop().await;
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_431() {
        let server = Server::start(Duration::from_secs(600), 10).await;
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-A: {}", "a".repeat(200_000));
        for _ in 0..20 {
            let answer = sends_all_then_reads(&server, &head, b"").await;
            assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        }
        let small = format!("GET / HTTP/1.1\r\nHost: x\r\nX-A: {}\r\n\r\n", "a".repeat(50_000));
        read_answer(&mut server.send(small.as_bytes()).await).await;
        server.stop().await;
    }

    #[tokio::test]
    async fn who_finds_no_room_waits_for_it() {
        let server = Server::start(Duration::from_secs(600), 1).await;
        let mut first = server.send(ASK).await;
        read_answer(&mut first).await;
        let mut second = server.send(ASK).await;
        drop(first);
        read_answer(&mut second).await;
        server.stop().await;
    }

    #[tokio::test]
    async fn a_silent_client_does_not_hold_up_a_stop() {
        let server = Server::start(Duration::from_secs(600), 1).await;
        let mut idle = server.send(ASK).await;
        read_answer(&mut idle).await;
        // There is no room for this one.
        let waiting = server.send(b"").await;
        server.stop().await;
        drop((idle, waiting));
    }

    /// Says something, and ends with `hello` when told to.
    fn quiet(go_on: &Arc<tokio::sync::Notify>) -> Router {
        let go_on = go_on.clone();
        let answer = async move || {
            let last = async move {
                go_on.notified().await;
                "hello"
            };
            let parts = stream::once(async { "first " }).chain(stream::once(last));
            Body::from_stream(parts.map(Ok::<_, std::io::Error>))
        };
        Router::new().route("/", get(answer))
    }

    #[tokio::test]
    async fn an_answer_that_has_nothing_to_say_for_a_while_is_not_cut() {
        let go_on = Arc::new(tokio::sync::Notify::new());
        let brief = Duration::from_millis(50);
        let bounds = Bounds { headers: brief, taking: brief, connections: 10 };
        let server = Server::with(quiet(&go_on), bounds).await;
        let mut open = server.send(ASK).await;
        let mut seen = Vec::new();
        while !seen.windows(6).any(|part| part == b"first ") {
            assert_ne!(open.read_buf(&mut seen).await.unwrap(), 0);
        }
        // All limits are over: a client that asks for nothing was hung up on twice since.
        for _ in 0..2 {
            let _ = server.send(b"G").await.read_to_end(&mut Vec::new()).await;
        }
        go_on.notify_one();
        while !seen.windows(5).any(|part| part == b"hello") {
            assert_ne!(open.read_buf(&mut seen).await.unwrap(), 0, "the answer came whole");
        }
        server.stop().await;
    }

    #[tokio::test]
    async fn who_does_not_take_the_answer_is_hung_up_on() {
        let over = CancellationToken::new();
        let guard = Arc::new(std::sync::Mutex::new(Some(over.clone().drop_guard())));
        let answer = async move || {
            let guard = guard.lock().unwrap().take();
            Body::from_stream(stream::repeat_with(move || {
                let _held = &guard;
                Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b'x'; 65536]))
            }))
        };
        let bounds =
            Bounds { headers: Duration::from_secs(600), taking: Duration::from_millis(50), connections: 10 };
        let server = Server::with(Router::new().route("/", get(answer)), bounds).await;
        let never_reads = server.send(ASK).await;
        over.cancelled().await;
        drop(never_reads);
        server.stop().await;
    }
}
