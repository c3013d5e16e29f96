//! One call at a time: what is sent, what an answer means, and where a call may go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outhaul::{Cause, Failed};
use url::Url;

use super::super::Client;
use super::super::allow::Allow;
use super::super::call::Call;
use super::super::dial::Lookup;
use super::{Receiver, Reply, answer, json};

const PATIENT: Duration = Duration::from_secs(60);
const IMPATIENT: Duration = Duration::from_millis(200);
const CAP: usize = 1000;

fn allow(entries: &[&str]) -> Allow {
    let mut allow = Allow::default();
    entries.iter().for_each(|entry| allow.add(entry).unwrap());
    allow
}

fn local() -> Client {
    Client::new(allow(&["localhost"])).unwrap()
}

async fn call_within(client: &Client, url: &str, timeout: Duration) -> Result<String, Failed> {
    let url = Url::parse(url).unwrap();
    let headers = vec![("idempotency-key", "J1/send".to_owned())];
    client
        .call(Call { url: url.clone(), timeout, headers, body: r#"{"a":1}"#.to_owned(), max_bytes: CAP })
        .await
}

async fn call(client: &Client, url: &str) -> Result<String, Failed> {
    call_within(client, url, PATIENT).await
}

/// The cause of a failure that is worth another attempt.
/// What operators are told. Submitters are told no address and no setting.
fn for_operators(cause: &Cause) -> String {
    for place in ["127.", "localhost", "mailer.example", "[http]"] {
        assert!(!cause.text.contains(place), "{cause}");
    }
    cause.for_operators().to_owned()
}

fn retryable(ended: Result<String, Failed>) -> String {
    match ended {
        Err(Failed::Retryable(cause)) => for_operators(&cause),
        other => panic!("{other:?}"),
    }
}

fn fatal(ended: Result<String, Failed>) -> String {
    match ended {
        Err(Failed::Fatal(cause)) => for_operators(&cause),
        other => panic!("{other:?}"),
    }
}

/// The cause that bytes on the wire lead to.
async fn cause_of(bytes: &'static str) -> String {
    let receiver = Receiver::start(|_| Reply::Raw(bytes.into())).await;
    retryable(call(&local(), &receiver.url("/")).await)
}

#[tokio::test]
async fn a_call_is_a_post_of_json_and_its_answer_the_result() {
    let receiver = Receiver::start(|_| json(r#"{"sent": 1.50}"#)).await;
    assert_eq!(call(&local(), &receiver.url("/send?x=1")).await, Ok(r#"{"sent": 1.50}"#.to_owned()));
    let seen = &receiver.seen()[0];
    assert_eq!(seen.line, "POST /send?x=1 HTTP/1.1\r\n");
    assert_eq!(seen.body, r#"{"a":1}"#);
    let expected = [
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("idempotency-key", "J1/send"),
        ("user-agent", concat!("outhaul/", env!("CARGO_PKG_VERSION"))),
    ];
    for (name, value) in expected {
        assert_eq!(seen.headers[name], value, "{name}");
    }
    assert!(!seen.headers.contains_key("accept-encoding"), "{seen:?}");
}

#[tokio::test]
async fn answers_become_results() {
    let receiver = Receiver::start(|seen| match seen.line.split(' ').nth(1) {
        Some("/empty") => answer("204 No Content", "text/plain", ""),
        Some("/text") => answer("200 OK", "text/plain", "done"),
        Some("/full") => json(&format!("\"{}\"", "x".repeat(CAP - 2))),
        Some("/long") => json(&format!("\"{}\"", "x".repeat(CAP - 1))),
        _ => json("{\"a\":"),
    })
    .await;
    let client = local();
    assert_eq!(call(&client, &receiver.url("/empty")).await, Ok("null".into()));
    assert_eq!(call(&client, &receiver.url("/text")).await, Ok("\"done\"".into()));
    assert_eq!(call(&client, &receiver.url("/full")).await.map(|result| result.len()), Ok(CAP));
    assert_eq!(retryable(call(&client, &receiver.url("/long")).await), "answered with more than 1000 bytes");
    assert_eq!(retryable(call(&client, &receiver.url("/broken")).await), "answered with broken JSON");
}

#[tokio::test]
async fn a_busy_receiver_says_when_to_come_back() {
    let busy = "HTTP/1.1 503 x\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(move |_| Reply::Raw(busy.into())).await;
    let Err(Failed::Retryable(cause)) = call(&local(), &receiver.url("/")).await else { panic!() };
    assert_eq!(cause.text, "answered 503 Service Unavailable");
    assert_eq!(cause.retry_in, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = Receiver::start(|_| json("1")).await;
    let to = target.url("/elsewhere");
    let receiver = Receiver::start(move |_| {
        let head = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        Reply::Raw(head.into_bytes())
    })
    .await;
    let cause = fatal(call(&local(), &receiver.url("/")).await);
    assert_eq!(cause, "answered 307 Temporary Redirect; redirects are not followed");
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn silence_is_bounded_before_and_within_an_answer() {
    for begun in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\""] {
        let receiver = Receiver::start(|_| Reply::Hang(begun.into())).await;
        let ended = call_within(&local(), &receiver.url("/"), IMPATIENT).await;
        assert_eq!(retryable(ended), "no answer within 200ms");
    }
}

#[tokio::test]
async fn a_huge_answer_is_refused_by_its_length_before_it_is_read() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10737418240\r\n\r\n";
    let receiver = Receiver::start(move |_| Reply::Hang(head.into())).await;
    assert_eq!(retryable(call(&local(), &receiver.url("/")).await), "answered with more than 1000 bytes");
}

#[tokio::test]
async fn an_endless_answer_is_cut_at_the_cap() {
    for head in [
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7fffffff\r\n",
    ] {
        let receiver = Receiver::start(|_| Reply::Endless(head.into())).await;
        assert_eq!(retryable(call(&local(), &receiver.url("/")).await), "answered with more than 1000 bytes");
    }
}

#[tokio::test]
async fn a_receiver_that_only_hints_is_no_answer() {
    let receiver = Receiver::start(|_| Reply::Again("HTTP/1.1 103 Early Hints\r\n\r\n")).await;
    let limit = Duration::from_millis(100);
    assert_eq!(retryable(call_within(&local(), &receiver.url("/"), limit).await), "no answer within 100ms");
}

#[tokio::test]
async fn lies_about_the_length_are_no_result() {
    let cut = "the answer was cut short";
    assert_eq!(cause_of("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":1}").await, cut);
    assert_eq!(cause_of("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n64\r\n{\"a\":1}").await, cut);
    assert_eq!(
        cause_of("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n").await,
        cut
    );
    let short = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n{\"a\":1}";
    assert_eq!(cause_of(short).await, "answered with broken JSON");
}

#[tokio::test]
async fn what_is_no_answer_is_tried_again() {
    for bytes in ["", "HTTP/1.1 200 OK\r\ncontent-le", "SSH-2.0-hunter2\r\n", "HTTP/1.1 hunter2 OK\r\n\r\n"] {
        let cause = cause_of(bytes).await;
        assert!(cause.starts_with("no answer from 127.0.0.1:"), "{cause}");
        assert!(!cause.contains("hunter2"), "{cause}");
    }
}

#[tokio::test]
async fn nothing_is_decompressed() {
    let receiver = Receiver::start(|_| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n".to_vec();
        bytes.extend([0x1f, 0x8b, 0x08, 0xff]);
        Reply::Raw(bytes)
    })
    .await;
    let cause = retryable(call(&local(), &receiver.url("/")).await);
    assert_eq!(cause, "answered with bytes that are neither JSON nor text");
}

#[tokio::test]
async fn a_receiver_that_is_down_is_tried_again() {
    // The port was free a moment ago, and nobody listens on it now.
    let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cause = retryable(call(&local(), &format!("http://{addr}/?key=hunter2")).await);
    assert_eq!(cause, format!("cannot connect to {addr}: connection refused"));
}

#[tokio::test]
async fn addresses_in_urls_are_refused_unless_named() {
    let receiver = Receiver::start(|_| json("1")).await;
    let closed = Client::new(Allow::default()).unwrap();
    let cause = fatal(call(&closed, &receiver.url("/?key=hunter2")).await);
    assert_eq!(cause, "127.0.0.1 is a loopback address that [http] allow does not name");
    let port = receiver.addr.port();
    for host in ["2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "127.1"] {
        fatal(call(&closed, &format!("http://{host}:{port}/")).await);
    }
    assert!(receiver.seen().is_empty());
    let named = Client::new(allow(&["127.0.0.0/8"])).unwrap();
    assert_eq!(call(&named, &receiver.url("/")).await, Ok("1".into()));
}

#[tokio::test]
async fn localhost_by_its_name() {
    let receiver = Receiver::start(|_| json("1")).await;
    let url = format!("http://localhost:{}/", receiver.addr.port());
    let cause = fatal(call(&Client::new(Allow::default()).unwrap(), &url).await);
    assert!(cause.starts_with("localhost is at "), "{cause}");
    assert!(receiver.seen().is_empty());
    assert_eq!(call(&local(), &url).await, Ok("1".into()));
}

/// A name service that gives one answer after the other.
fn lookup(answers: &'static [&'static [&'static str]]) -> Lookup {
    let asked = Arc::new(AtomicUsize::new(0));
    Arc::new(move |_| {
        let answer = answers[asked.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)];
        let found: Vec<SocketAddr> =
            answer.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect();
        Box::pin(async move { Ok(found) })
    })
}

#[tokio::test]
async fn a_name_that_moves_to_a_private_address_is_refused_when_it_is_dialled() {
    let receiver = Receiver::start(|_| json("1")).await;
    let client =
        Client::with_lookup(allow(&["127.0.0.1"]), lookup(&[&["127.0.0.1"], &["127.0.0.2"]])).unwrap();
    let url = format!("http://mailer.example:{}/", receiver.addr.port());
    assert_eq!(call(&client, &url).await, Ok("1".into()));
    assert_eq!(
        fatal(call(&client, &url).await),
        "mailer.example is at 127.0.0.2, a loopback address, and [http] allow names neither"
    );
}

#[tokio::test]
async fn of_several_addresses_only_those_that_may_be_called_are() {
    let receiver = Receiver::start(|_| json("1")).await;
    let addresses = lookup(&[&["10.255.255.1", "169.254.169.254", "127.0.0.1"]]);
    let client = Client::with_lookup(allow(&["127.0.0.1"]), addresses).unwrap();
    let url = format!("http://mailer.example:{}/", receiver.addr.port());
    assert_eq!(call(&client, &url).await, Ok("1".into()));
}

#[tokio::test]
async fn a_name_without_an_address_is_tried_again() {
    let empty = Client::with_lookup(Allow::default(), lookup(&[&[]])).unwrap();
    let cause = retryable(call(&empty, "http://mailer.example/send").await);
    assert_eq!(cause, "cannot find the address of mailer.example");
    let fails: Lookup = Arc::new(|_| Box::pin(async { Err(std::io::Error::other("no such name")) }));
    let fails = Client::with_lookup(Allow::default(), fails).unwrap();
    assert_eq!(retryable(call(&fails, "http://mailer.example/send").await), cause);
}

#[tokio::test]
async fn what_does_not_speak_tls_is_tried_again() {
    let receiver = Receiver::start(|_| json("1")).await;
    let url = format!("https://{}/?key=hunter2", receiver.addr);
    // It waits for a line that never comes; what it got of the handshake is not HTTP.
    let cause = retryable(call_within(&local(), &url, IMPATIENT).await);
    assert!(!cause.contains("hunter2"), "{cause}");
}
