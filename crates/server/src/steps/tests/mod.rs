//! Calls and whole jobs against real sockets: receivers that answer, lie, hang, redirect and never end.

mod ask;
mod calls;
mod jobs;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Method, path and version.
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Seen {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What a receiver does with a request.
enum Reply {
    /// Writes these bytes and closes.
    Raw(Vec<u8>),
    /// Writes these bytes and closes; tells when the caller has closed too.
    Watched(Vec<u8>, Arc<Notify>),
    /// Writes these bytes and then nothing, without closing.
    Hang(Vec<u8>),
    /// Writes these bytes and then goes on for ever.
    Endless(Vec<u8>),
    /// Writes these bytes again and again for ever.
    Again(&'static str),
}

/// An answer in good form.
fn answer(status: &str, content_type: &str, body: &str) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n");
    Reply::Raw(format!("{head}connection: close\r\n\r\n{body}").into_bytes())
}

fn json(body: &str) -> Reply {
    answer("200 OK", "application/json", body)
}

type Answer = dyn Fn(Seen) -> BoxFuture<'static, Reply> + Send + Sync;

/// A server of one's own, that remembers what it was asked.
struct Receiver {
    addr: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    arrived: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Answers at once, by what was asked.
    async fn start(reply: impl Fn(Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_async(move |seen| {
            let reply = reply(seen);
            Box::pin(async move { reply })
        })
        .await
    }

    async fn start_async(reply: impl Fn(Seen) -> BoxFuture<'static, Reply> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (seen, arrived, reply) = (Arc::default(), Arc::new(Notify::new()), Arc::new(reply));
        let (all, told) = (Arc::clone(&seen), arrived.clone());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&all), told.clone(), reply.clone() as Arc<Answer>));
            }
        });
        Self { addr, seen, arrived, task }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The last part of the path of every request, in order of arrival.
    fn called(&self) -> Vec<String> {
        let path = |seen: Seen| seen.line.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        self.seen().into_iter().map(path).collect()
    }

    async fn arrived(&self) {
        while self.seen().is_empty() {
            self.arrived.notified().await;
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, all: Arc<Mutex<Vec<Seen>>>, arrived: Arc<Notify>, reply: Arc<Answer>) {
    let mut stream = BufReader::new(stream);
    let Some(seen) = read(&mut stream).await else { return };
    all.lock().unwrap().push(seen.clone());
    arrived.notify_one();
    let mut rest = Vec::new();
    match reply(seen).await {
        Reply::Raw(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut rest).await;
        }
        Reply::Watched(bytes, closed) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut rest).await;
            closed.notify_one();
        }
        Reply::Hang(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.read_to_end(&mut rest).await;
        }
        Reply::Endless(bytes) => {
            let _ = stream.write_all(&bytes).await;
            while stream.write_all(&[b'x'; 1024]).await.is_ok() {}
        }
        Reply::Again(bytes) => while stream.write_all(bytes.as_bytes()).await.is_ok() {},
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut seen = Seen::default();
    stream.read_line(&mut seen.line).await.ok().filter(|length| *length > 0)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        seen.headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = seen.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    seen.body = String::from_utf8(body).unwrap();
    Some(seen)
}
