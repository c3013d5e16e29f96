//! Endpoints that misbehave, through the real binary: each job ends as its fault deserves, after as many
//! attempts as it deserves, and says why.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::common::{Client, Kind, STEADY, Stack};
use crate::endpoint::{Call, Endpoint, done, status};

/// What a bare server does with a connection whose request it has read.
#[derive(Clone, Copy)]
enum Habit {
    /// Never answers.
    Silent,
    /// One byte a second, for ever.
    Slow,
    /// Bytes for ever, as fast as they are taken.
    Endless,
    /// Promises more than it sends.
    Short,
    /// Promises less than it sends.
    Long,
    /// Hangs up.
    Rude,
    /// Speaks no HTTP.
    Gibberish,
    /// Sends the client elsewhere.
    Redirect,
}

/// A server of few manners. Returns where it is and how often it was called; it lives as long as the set.
async fn serve(
    servers: &mut JoinSet<()>,
    at: &str,
    habit: Habit,
    elsewhere: &str,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(at).await.expect("a spare port");
    let address = listener.local_addr().expect("its number");
    let calls = Arc::new(AtomicUsize::new(0));
    let (count, elsewhere) = (calls.clone(), elsewhere.to_owned());
    servers.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            connections.spawn(behave(stream, habit, elsewhere.clone()));
        }
    });
    (address, calls)
}

/// Ends when the client has enough.
async fn behave(mut stream: TcpStream, habit: Habit, elsewhere: String) -> std::io::Result<()> {
    let mut request = vec![0; 64 * 1024];
    let _ = stream.read(&mut request).await?;
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{more}\r\n");
    let say = match habit {
        Habit::Silent => String::new(),
        Habit::Slow => head("content-length: 100\r\n"),
        Habit::Endless => head(""),
        Habit::Short => head("content-length: 1000\r\n") + "{\"half\":",
        Habit::Long => head("content-length: 2\r\n") + "{}, and more than was promised",
        Habit::Rude => return Ok(()),
        Habit::Gibberish => "220 mail.example.com ESMTP\r\n".to_owned(),
        Habit::Redirect => {
            format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n")
        }
    };
    stream.write_all(say.as_bytes()).await?;
    match habit {
        Habit::Silent => loop {
            if stream.read(&mut request).await? == 0 {
                return Ok(());
            }
        },
        Habit::Slow => loop {
            stream.write_all(b" ").await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        },
        Habit::Endless => loop {
            stream.write_all(&[b' '; 16 * 1024]).await?;
        },
        _ => stream.shutdown().await,
    }
}

/// Submits, waits for the end, and compares attempts and what is told: to everybody, and to operators.
async fn dies(client: &Client, stack: &Stack, job_type: &str, (cause, detail): (&str, &str), attempts: i64) {
    let id = client.submit(&json!({ "jobType": job_type, "payload": { "n": 1 } })).await;
    let job = client.wait_for(&id, "FAILED").await;
    let expected = format!("Chunk failed after retries: step=go: {cause}");
    let said = job["errorMessage"].as_str().expect("a cause");
    assert!(said.starts_with(&expected), "{job_type}: {said:?}, not {expected:?}");
    // No answer that its submitter may see names a place or a setting of ours.
    for path in
        [format!("/jobs/{id}"), format!("/jobs/{id}/chunks"), format!("/jobs/{id}/events"), "/jobs".into()]
    {
        let answer = client.http.get(format!("{}{path}", client.base)).send().await.expect("the API answers");
        let answer = answer.text().await.expect("text");
        assert!(!answer.contains("127.0.0.") && !answer.contains("[http]"), "{path}: {answer}");
    }
    let (_, letters) = client.get(&format!("/dead-letters?jobId={id}")).await.expect("the API answers");
    let told = letters["items"][0]["cause"].as_str();
    assert!(told.is_some_and(|told| told.starts_with(detail)), "{letters}");
    let chunks = stack.chunks(&id, "DEAD").await;
    assert_eq!((chunks[0].0, chunks[0].2), (attempts, true), "{job_type}: {job}");
    let letters = client.all(&format!("/jobs/{id}/history")).await;
    let runs = letters.iter().filter(|row| row["to"] == "RUNNING").count();
    assert_eq!(runs as i64, attempts, "{job_type}: {letters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_misbehave_end_their_jobs_and_nothing_else() {
    let mut servers = JoinSet::new();
    let good = Endpoint::start(|call: Call| async move {
        match call.body["payload"]["answer"].as_u64().map(u16::try_from) {
            Some(code) => status(code.expect("a status")),
            None => done(&json!("fine")),
        }
    })
    .await;
    let elsewhere = format!("{}/go", good.base);
    let mut types = good.job_type("GOOD", &["go"], "");
    let mut places = Vec::new();
    for (name, habit) in [
        ("SILENT", Habit::Silent),
        ("SLOW", Habit::Slow),
        ("ENDLESS", Habit::Endless),
        ("SHORT", Habit::Short),
        ("LONG", Habit::Long),
        ("RUDE", Habit::Rude),
        ("GIBBERISH", Habit::Gibberish),
        ("REDIRECT", Habit::Redirect),
    ] {
        let (address, calls) = serve(&mut servers, "127.0.0.1:0", habit, &elsewhere).await;
        // Only for those that would keep a call for ever.
        let timeout = if matches!(habit, Habit::Silent | Habit::Slow) { "1s" } else { "30s" };
        types += &bare(name, address, timeout);
        places.push((name, address, calls));
    }
    // Nothing listens there, and nobody else can, for the port is taken.
    let taken = TcpSocket::new_v4().expect("a socket");
    taken.bind("127.0.0.1:0".parse().expect("an address")).expect("a spare port");
    let down = taken.local_addr().expect("its number");
    types += &bare("DOWN", down, "30s");
    // Somebody listens there, and is not on the list.
    let (private, private_calls) = serve(&mut servers, "127.0.0.2:0", Habit::Redirect, &elsewhere).await;
    types += &bare("PRIVATE", private, "30s");

    let steady = STEADY.replace("max_attempts = 3", "max_attempts = 2");
    let sections = format!("{steady}[http]\nallow = [\"127.0.0.1\"]\n\n{types}");
    let stack = Stack::new(Kind::PostgresLocal, &sections).await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = &server.client();

    let same = |cause: &'static str| (cause, cause);
    let (down, private) = (format!("cannot connect to {down}: "), format!("{} is ", private.ip()));
    let gibberish = format!("no answer from {}: ", places[6].1);
    let rude = format!("no answer from {}: ", places[5].1);
    tokio::join!(
        dies(client, &stack, "DOWN", ("cannot connect", &down), 2),
        dies(client, &stack, "SILENT", same("no answer within 1s"), 2),
        dies(client, &stack, "SLOW", same("no answer within 1s"), 2),
        dies(client, &stack, "ENDLESS", same("answered with more than "), 2),
        dies(client, &stack, "SHORT", same("the answer was cut short"), 2),
        dies(client, &stack, "RUDE", ("no answer", &rude), 2),
        dies(client, &stack, "GIBBERISH", ("no answer", &gibberish), 2),
        dies(client, &stack, "REDIRECT", same("answered 307 Temporary Redirect"), 1),
        dies(client, &stack, "PRIVATE", ("the address that it calls is not allowed", &private), 1),
    );
    assert_eq!(good.calls().len(), 0, "no redirect is followed");
    assert_eq!(private_calls.load(Ordering::SeqCst), 0, "an address that is not named is not dialled");
    for (name, _, calls) in &places {
        let expected = match *name {
            "REDIRECT" => 1,
            "LONG" => 0,
            _ => 2,
        };
        assert!(calls.load(Ordering::SeqCst) >= expected, "{name} was called");
    }

    // What lies beyond the promised length is nobody's answer.
    let long = client.complete(&json!({ "jobType": "LONG", "payload": null })).await;
    assert_eq!(long["result"], json!({}));
    for (code, attempts) in [(408, 2), (425, 2), (429, 2), (500, 2), (503, 2), (404, 1), (409, 1), (422, 1)] {
        let id = client.submit(&json!({ "jobType": "GOOD", "payload": { "answer": code } })).await;
        let job = client.wait_for(&id, "FAILED").await;
        let expected = format!("Chunk failed after retries: step=go: answered {code} ");
        assert!(job["errorMessage"].as_str().is_some_and(|text| text.starts_with(&expected)), "{job}");
        assert_eq!(good.counts(&id, &["go"]), [attempts], "{code}");
    }
    // The worker has survived all of it.
    assert_eq!(client.complete(&json!({ "jobType": "GOOD", "payload": null })).await["result"], "fine");
    drop(taken);
}

/// A job type with one step at a bare address.
fn bare(name: &str, address: SocketAddr, timeout: &str) -> String {
    format!(
        "[job_types.{name}]\nsteps = [{{ name = \"go\", http = \"http://{address}/go\", timeout = \"{timeout}\" }}]\n\n"
    )
}
