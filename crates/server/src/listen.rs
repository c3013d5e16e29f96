//! Answering connections. Like `axum::serve`, but a client that sends its headers a byte at a time is
//! hung up on, and one that keeps an idle connection does not hold up a stop.

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take to send the headers of a request.
const HEADERS: Duration = Duration::from_secs(15);
/// How long to wait after a connection could not be accepted: most likely there are too many.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// Answers until told to stop, then lets open requests end.
pub(crate) async fn answer(listener: TcpListener, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => drop(connections.spawn(talk(stream, router.clone(), stop.clone()))),
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

async fn talk(stream: TcpStream, router: Router, stop: CancellationToken) {
    // Only a matter of speed: answers are small.
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
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
