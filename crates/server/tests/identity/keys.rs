//! Tokens that are verified with the keys that an issuer publishes: a key that comes is taken, one that goes is
//! refused, and a server that is down changes nothing for a while.

use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use outhaul_core::clock;
use outhaul_server::auth::{JwtSettings, Keys, issue};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::common::{PATIENCE, eventually};
use crate::people::{AUDIENCE, ISSUER, submitter};
use crate::server::Server;

/// An RSA key of the issuer.
struct Pair {
    kid: &'static str,
    pem: String,
    jwk: Value,
}

fn pair(kid: &'static str) -> Pair {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let private: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(private.as_ref())
    );
    let public = key.public_key();
    let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (n, e) = (public.modulus(), public.exponent());
    let n = number(n.big_endian_without_leading_zero());
    let e = number(e.big_endian_without_leading_zero());
    Pair { kid, pem, jwk: json!({"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid, "n": n, "e": e}) }
}

impl Pair {
    fn token(&self) -> String {
        let url = "https://id.example.com/jwks".parse().unwrap();
        let settings = JwtSettings::new(ISSUER, vec![AUDIENCE.into()], Keys::Jwks(url));
        let mut wanted = submitter("ann").wanted();
        wanted.kid = Some(self.kid.to_owned());
        issue(&settings, Some(self.pem.as_bytes()), &wanted, clock::now()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_taken_and_refused_as_the_issuer_publishes_them() {
    let (old, new) = (pair("old"), pair("new"));
    let shown: Arc<Mutex<Vec<Value>>> = Arc::new(Mutex::new(vec![old.jwk.clone()]));
    let keys = shown.clone();
    let answer = move || {
        let keys = keys.lock().unwrap().clone();
        async move { axum::Json(json!({ "keys": keys })) }
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    // Once more, for when the issuer is gone.
    let port = listener.try_clone().unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let app = Router::new().route("/jwks", get(answer));
    let issuer = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let server = Server::start_with_auth(&format!(
        "[auth]\nmode = \"jwt\"\nissuer = \"{ISSUER}\"\naudience = \"{AUDIENCE}\"\nkeep = [\"county\"]\n\
         jwks_url = \"http://{address}/jwks\"\njwks_refresh = \"1s\"\njwks_cooldown = \"1s\"\n"
    ))
    .await;
    let asked = async |pair: &Pair| server.call(Some(&pair.token()), "GET", "/jobs", None).await.status;
    let until = async |pair: &Pair, status: u16| {
        let what = format!("{} is {status}", pair.kid);
        let answered = eventually(&what, || async { asked(pair).await == status });
        answered.await.unwrap_or_else(|error| panic!("{error}"));
    };
    until(&old, 200).await;
    assert_eq!(server.call(None, "GET", "/readyz", None).await.status, 200);
    assert_eq!(asked(&new).await, 401);
    shown.lock().unwrap().push(new.jwk.clone());
    until(&new, 200).await;
    assert_eq!(asked(&old).await, 200);
    shown.lock().unwrap().remove(0);
    until(&old, 401).await;
    issuer.abort();
    let _ = issuer.await;
    // Down: whoever asks is cut off. Who asks a second time has been refused once, and what is known goes on.
    let down = TcpListener::from_std(port).unwrap();
    for _ in 0..2 {
        let asked = tokio::time::timeout(PATIENCE, down.accept()).await.expect("somebody asks for keys");
        drop(asked.unwrap());
    }
    assert_eq!(asked(&new).await, 200);
    assert_eq!(server.call(None, "GET", "/readyz", None).await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_nobody_is_let_in_and_the_server_is_not_ready() {
    // Nothing listens there, and nobody else can, for the port is taken.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = taken.local_addr().unwrap();
    let server = Server::start_with_auth(&format!(
        "[auth]\nmode = \"jwt\"\nissuer = \"{ISSUER}\"\naudience = \"{AUDIENCE}\"\nkeep = [\"county\"]\n\
         jwks_url = \"http://{nobody}/jwks?key=hunter2\"\n"
    ))
    .await;
    let answer = server.call(Some(&pair("any").token()), "GET", "/jobs", None).await;
    assert_eq!(answer.status, 503, "{}", answer.json());
    assert!(answer.header("retry-after").is_some());
    let ready = server.call(None, "GET", "/readyz", None).await;
    assert_eq!((ready.status, &ready.json()["errors"][0]["pointer"]), (503, &json!("auth")));
    assert!(!String::from_utf8(ready.body).unwrap().contains("hunter2"));
    assert_eq!(server.call(None, "GET", "/healthz", None).await.status, 200);
    server.stop().await;
}
