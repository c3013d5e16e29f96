//! A proxy in front of PostgreSQL that loses COMMITs. A connection on which the text `cut before commit` or
//! `cut after commit` was seen is closed at its next COMMIT: before it is passed on, or before its answer is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts one; returns the URL with its address in place of the server's, and how many COMMITs it lost. It
/// ends with the runtime.
pub(crate) async fn start(url: &str) -> (String, Arc<AtomicUsize>) {
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = lost.clone();
    let (before, rest) =
        url.rsplit_once('@').map_or(("postgres://", url.split_once("//").unwrap().1), |(a, b)| (a, b));
    let (server, database) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&server).await else { continue };
            tokio::spawn(pass(client, server, counted.clone()));
        }
    });
    let sign = if url.contains('@') { "@" } else { "" };
    (format!("{before}{sign}127.0.0.1:{port}/{database}"), lost)
}

async fn pass(mut client: TcpStream, mut server: TcpStream, lost: Arc<AtomicUsize>) {
    let (mut asked, mut answered) = ([0; 16 * 1024], [0; 16 * 1024]);
    let (mut cut, mut swallow) = (None, false);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let sent = &asked[..length];
                for when in ["cut before commit", "cut after commit"] {
                    cut = if holds(sent, when) { Some(when) } else { cut };
                }
                if holds(sent, "COMMIT") && cut.is_some() {
                    lost.fetch_add(1, Ordering::SeqCst);
                    if cut == Some("cut before commit") {
                        return;
                    }
                    swallow = true;
                }
                if server.write_all(sent).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                // The server has answered, so it has committed; the client will not know.
                if swallow || client.write_all(&answered[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
