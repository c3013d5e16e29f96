//! Yes, no, and everything that is neither.

use std::time::Duration;

use outhaul::Cause;
use outhaul_core::secret::Secret;
use url::Url;

use super::super::allow::Allow;
use super::super::ask::{Answer, Question};
use super::super::sign::Signer;
use super::super::{Client, sign};
use super::{Receiver, Reply, answer};

const PATIENT: Duration = Duration::from_secs(60);
const SECRETS: [&str; 2] = ["a secret", "its successor"];

fn question(url: &str, timeout: Duration, allow: &[&str]) -> Question {
    let mut allowed = Allow::default();
    allow.iter().for_each(|entry| allowed.add(entry).unwrap());
    let secrets = SECRETS.map(Secret::new);
    Question::new(Client::new(allowed).unwrap(), Url::parse(url).unwrap(), timeout, &secrets)
}

async fn asked(receiver: &Receiver) -> Answer {
    question(&receiver.url("/still"), PATIENT, &["localhost"]).ask("J1/recheck/1", "{}".to_owned()).await
}

async fn to(reply: &'static str) -> Answer {
    asked(&Receiver::start(move |_| answer(reply, "application/json", "{\"no\":true}")).await).await
}

fn cause(answer: Answer) -> Cause {
    match answer {
        Answer::Unknown(cause) => cause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_status_is_the_answer() {
    for yes in ["200 OK", "201 Created", "204 No Content", "299 Fine"] {
        assert_eq!(to(yes).await, Answer::Yes, "{yes}");
    }
    for (no, status) in [("403 Forbidden", 403), ("404 Not Found", 404), ("410 Gone", 410)] {
        assert_eq!(to(no).await, Answer::No(status));
    }
    for neither in
        ["302 Found", "304 Not Modified", "400 Bad Request", "401 Unauthorized", "405 No", "409 No"]
    {
        assert!(matches!(to(neither).await, Answer::Unknown(_)), "{neither}");
    }
    for neither in ["407 No", "418 No", "422 No", "429 Too Many", "500 Oh", "502 Bad", "503 Busy", "999 Odd"]
    {
        assert!(matches!(to(neither).await, Answer::Unknown(_)), "{neither}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let elsewhere = Receiver::start(|_| answer("200 OK", "text/plain", "")).await;
    let target = elsewhere.url("/yes");
    let head = format!("HTTP/1.1 307 Away\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
    let receiver = Receiver::start(move |_| Reply::Raw(head.clone().into_bytes())).await;
    assert!(cause(asked(&receiver).await).text.contains("redirects are not followed"));
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn nothing_of_a_body_is_waited_for() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n";
    let receiver = Receiver::start(move |_| Reply::Endless(head.into())).await;
    assert_eq!(asked(&receiver).await, Answer::Yes);
    let head = "HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n";
    let receiver = Receiver::start(move |_| Reply::Hang(head.into())).await;
    assert_eq!(asked(&receiver).await, Answer::No(403));
}

#[tokio::test]
async fn no_answer_is_neither() {
    let silent = Receiver::start(|_| Reply::Hang(Vec::new())).await;
    let ask = question(&silent.url("/"), Duration::from_millis(200), &["localhost"]);
    assert_eq!(cause(ask.ask("id", "{}".into()).await).text, "no answer within 200ms");
    for broken in ["", "HTTP/1.1 2", "not HTTP at all\r\n\r\n"] {
        let receiver = Receiver::start(move |_| Reply::Raw(broken.into())).await;
        let said = cause(asked(&receiver).await);
        assert!(said.for_operators().contains("no answer from 127.0.0.1"), "{broken}: {said}");
    }
    let ask = question("http://127.0.0.1:1/?key=hunter2", PATIENT, &["localhost"]);
    let said = cause(ask.ask("id", "{}".into()).await);
    assert_eq!(said.text, "cannot connect");
    let said = said.for_operators();
    assert!(said.contains("cannot connect to 127.0.0.1:1") && !said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn where_steps_may_not_go_nobody_is_asked() {
    let receiver = Receiver::start(|_| answer("200 OK", "text/plain", "")).await;
    for url in [receiver.url("/still"), format!("http://localhost:{}/still", receiver.addr.port())] {
        let said = cause(question(&url, PATIENT, &[]).ask("id", "{}".into()).await);
        assert_eq!(said.text, "the address that it calls is not allowed");
        assert!(said.for_operators().contains("[http] allow"), "{said}");
    }
    assert!(receiver.seen().is_empty());
}

#[tokio::test]
async fn a_wait_that_is_asked_for_is_passed_on() {
    let busy = "HTTP/1.1 503 Busy\r\nretry-after: 120\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(move |_| Reply::Raw(busy.into())).await;
    assert_eq!(cause(asked(&receiver).await).retry_in, Some(Duration::from_secs(120)));
}

#[tokio::test]
async fn questions_are_signed_as_steps_are() {
    let receiver = Receiver::start(|_| answer("200 OK", "text/plain", "")).await;
    assert_eq!(asked(&receiver).await, Answer::Yes);
    let seen = receiver.seen().remove(0);
    assert!(seen.line.starts_with("POST /still "), "{}", seen.line);
    assert_eq!(seen.headers["content-type"], "application/json");
    let at: i64 = seen.headers["webhook-timestamp"].parse().unwrap();
    let expected = Signer::new(&SECRETS.map(Secret::new)).headers("J1/recheck/1", at, &seen.body);
    for (name, value) in expected {
        assert_eq!(seen.headers[name], value, "{name}");
    }
    assert!(sign::key(&Secret::new(SECRETS[0])).is_ok());
}
