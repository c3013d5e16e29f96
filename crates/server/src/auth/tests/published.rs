//! Keys from a JWKS server: rotated, removed, unknown, flooded with, broken and gone.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::server::Server;
use super::*;
use crate::auth::Auth as _;
use crate::auth::tests::keys::{ed25519, other_rsa, p256, rsa};

const COOLDOWN: i64 = 30;
const MAX_AGE: i64 = 24 * 3600;

fn tokens(server: &Server) -> Tokens {
    Tokens::new(settings(Keys::Jwks(server.url.clone()))).unwrap()
}

async fn loaded(keys: Value) -> (Server, Tokens) {
    let server = Server::start(keys).await;
    let tokens = tokens(&server);
    assert!(tokens.refresh(at(NOW)).await);
    (server, tokens)
}

/// A token that is good at any of the moments that are tried here.
fn token(pair: &Pair, kid: &str) -> String {
    by(pair, json!({"kid": kid}), &claims(json!({"exp": NOW + 10 * MAX_AGE})))
}

#[tokio::test]
async fn keys_are_found_by_name_or_because_only_one_fits() {
    let (server, tokens) = loaded(json!([rsa().jwk("a"), p256().jwk("b"), other_rsa().jwk("c")])).await;
    for (pair, kid) in [(rsa(), "a"), (p256(), "b"), (other_rsa(), "c")] {
        assert!(judged(&tokens, &token(pair, kid)).await.is_ok());
    }
    assert_eq!(judged(&tokens, &token(rsa(), "c")).await, Err(Why::Signature));
    let nameless = |pair| by(pair, json!({}), &claims(json!({})));
    assert!(judged(&tokens, &nameless(p256())).await.is_ok());
    assert_eq!(judged(&tokens, &nameless(rsa())).await, Err(Why::AmbiguousKey));
    assert_eq!(server.asked(), 1, "no reason to ask again");
}

#[tokio::test]
async fn secrets_in_a_jwks_verify_nothing() {
    let oct = json!({"kty": "oct", "kid": "s", "k": part(SECRET), "alg": "HS256", "use": "sig"});
    let (server, tokens) = loaded(json!([oct, rsa().jwk("a")])).await;
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let token = signed(&json!({"alg": "HS256", "kid": "s"}), &claims(json!({})), &key, Algorithm::HS256);
    assert_eq!(judged(&tokens, &token).await, Err(Why::Algorithm));
    // Nor does the public key, as a secret.
    let key = EncodingKey::from_secret(rsa().public_pem.as_bytes());
    let token = signed(&json!({"alg": "HS256", "kid": "a"}), &claims(json!({})), &key, Algorithm::HS256);
    assert_eq!(judged(&tokens, &token).await, Err(Why::Algorithm));
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn odd_names_are_only_names() {
    let (server, tokens) = loaded(json!([rsa().jwk("a")])).await;
    let long = "k".repeat(256);
    for kid in ["../../dev/null", "' OR 1=1", "", "a\0", "a\n", "A", "http://127.0.0.1:1/", &long] {
        assert_eq!(judged(&tokens, &token(rsa(), kid)).await, Err(Why::UnknownKey), "{kid:?}");
    }
    let megabyte = token(rsa(), &"k".repeat(1 << 20));
    assert_eq!(judged(&tokens, &megabyte).await, Err(Why::TooLarge));
    assert_eq!(server.asked(), 2, "once at start, once for all of them");
}

#[tokio::test]
async fn names_too_long_to_be_one_are_not_asked_for() {
    let (server, tokens) = loaded(json!([rsa().jwk("a")])).await;
    assert_eq!(judged(&tokens, &token(rsa(), &"k".repeat(256))).await, Err(Why::UnknownKey));
    assert_eq!(server.asked(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_names_make_no_flood() {
    let (server, tokens) = loaded(json!([rsa().jwk("a")])).await;
    let tokens = Arc::new(tokens);
    let callers: Vec<_> = (0..200)
        .map(|i| {
            let tokens = tokens.clone();
            tokio::spawn(async move { judged(&tokens, &token(p256(), &format!("random-{i}"))).await })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Err(Why::UnknownKey));
    }
    assert_eq!(server.asked(), 2);
    // Within the cooldown, which counts from the end of a fetch, nobody asks again; after it one does.
    for (seconds, asked) in [(1, 2), (COOLDOWN, 2), (2 * COOLDOWN, 3), (3 * COOLDOWN, 3), (4 * COOLDOWN, 4)] {
        for i in 0..3 {
            let judged = judged_at(&tokens, &token(p256(), &format!("{seconds}-{i}")), NOW + seconds).await;
            assert_eq!(judged, Err(Why::UnknownKey));
        }
        assert_eq!(server.asked(), asked, "{seconds}");
    }
    assert!(judged(&tokens, &token(rsa(), "a")).await.is_ok(), "all the while known keys work");
}

#[tokio::test]
async fn a_rotated_key_is_accepted_at_its_first_token() {
    let (server, tokens) = loaded(json!([rsa().jwk("old")])).await;
    server.show(json!([rsa().jwk("old"), other_rsa().jwk("new")]));
    assert!(judged(&tokens, &token(other_rsa(), "new")).await.is_ok());
    assert!(judged(&tokens, &token(rsa(), "old")).await.is_ok());
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn a_rotated_key_is_accepted_after_a_refresh_even_if_the_cooldown_was_used_up() {
    let (server, tokens) = loaded(json!([rsa().jwk("old")])).await;
    assert_eq!(judged(&tokens, &token(rsa(), "random")).await, Err(Why::UnknownKey));
    server.show(json!([other_rsa().jwk("new")]));
    assert_eq!(judged(&tokens, &token(other_rsa(), "new")).await, Err(Why::UnknownKey));
    assert!(tokens.refresh(at(NOW + 1)).await);
    assert!(judged(&tokens, &token(other_rsa(), "new")).await.is_ok());
}

#[tokio::test]
async fn whoever_comes_during_a_fetch_gets_its_fruit() {
    let (server, tokens) = loaded(json!([rsa().jwk("old")])).await;
    let tokens = Arc::new(tokens);
    server.show(json!([other_rsa().jwk("new")]));
    let held = server.hold().await;
    let ask = || {
        let tokens = tokens.clone();
        tokio::spawn(async move { judged(&tokens, &token(other_rsa(), "new")).await })
    };
    let first = ask();
    server.until_asked(2).await;
    let others: Vec<_> = (0..10).map(|_| ask()).collect();
    assert!(judged(&tokens, &token(rsa(), "old")).await.is_ok(), "known keys wait for nobody");
    drop(held);
    for asked in others.into_iter().chain([first]) {
        assert!(asked.await.unwrap().is_ok());
    }
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn whoever_waited_for_a_fetch_that_failed_asks_for_no_other() {
    let (server, tokens) = loaded(json!([rsa().jwk("a")])).await;
    server.reply(500, "");
    let held = server.hold().await;
    let unknown = token(p256(), "unknown");
    let mut first = Box::pin(judged(&tokens, &unknown));
    tokio::select! {
        early = &mut first => panic!("{early:?}"),
        () = server.until_asked(2) => {}
    }
    // Each comes when the cooldown of the one before would be over.
    let late = |i: i64| judged_at(&tokens, &unknown, NOW + 2 * i * COOLDOWN);
    let mut others: Vec<_> = (1..=10).map(|i| Box::pin(late(i))).collect();
    for other in &mut others {
        assert!(futures::poll!(other.as_mut()).is_pending(), "waits for the fetch under way");
    }
    drop(held);
    assert_eq!(first.await, Err(Why::UnknownKey));
    for other in others {
        assert_eq!(other.await, Err(Why::UnknownKey));
    }
    assert_eq!(server.asked(), 2, "one fetch answered them all");
}

#[tokio::test]
async fn keys_that_share_a_name_are_all_tried() {
    let (_server, tokens) = loaded(json!([rsa().jwk("a"), other_rsa().jwk("a"), p256().jwk("a")])).await;
    for pair in [rsa(), other_rsa(), p256()] {
        assert!(judged(&tokens, &token(pair, "a")).await.is_ok());
    }
    let expired = by(other_rsa(), json!({"kid": "a"}), &claims(json!({"exp": NOW - 300})));
    assert_eq!(judged(&tokens, &expired).await, Err(Why::Expired));
    let foreign = by(other_rsa(), json!({"kid": "a"}), &claims(json!({"iss": "https://other.example.com/"})));
    assert_eq!(judged(&tokens, &foreign).await, Err(Why::Issuer), "what is wrong, not which key it was not");
    let mut forged = token(rsa(), "a");
    forged.truncate(forged.rfind('.').unwrap() + 1);
    forged.push_str(&part([7; 256]));
    assert_eq!(judged(&tokens, &forged).await, Err(Why::Signature));
}

#[tokio::test]
async fn a_removed_key_is_gone_after_the_next_refresh() {
    let (server, tokens) = loaded(json!([rsa().jwk("a"), p256().jwk("b")])).await;
    server.show(json!([p256().jwk("b")]));
    assert!(judged(&tokens, &token(rsa(), "a")).await.is_ok());
    assert!(tokens.refresh(at(NOW)).await);
    assert_eq!(judged(&tokens, &token(rsa(), "a")).await, Err(Why::UnknownKey));
    assert!(judged(&tokens, &token(p256(), "b")).await.is_ok());
    // The last one too.
    server.show(json!([]));
    assert!(tokens.refresh(at(NOW)).await);
    assert_eq!(judged(&tokens, &token(p256(), "b")).await, Err(Why::UnknownKey));
}

#[tokio::test]
async fn a_key_of_the_same_name_replaces_the_old_one() {
    let (server, tokens) = loaded(json!([rsa().jwk("a")])).await;
    server.show(json!([other_rsa().jwk("a")]));
    assert!(tokens.refresh(at(NOW)).await);
    assert_eq!(judged(&tokens, &token(rsa(), "a")).await, Err(Why::Signature));
    assert!(judged(&tokens, &token(other_rsa(), "a")).await.is_ok());
}

#[tokio::test]
async fn with_the_server_down_known_keys_serve_for_their_time_and_then_nothing_does() {
    let (mut server, tokens) = loaded(json!([rsa().jwk("a")])).await;
    server.stop().await;
    assert!(!tokens.refresh(at(NOW + 300)).await);
    assert_eq!(tokens.ready(at(NOW + 300)), Ok(()));
    let known = token(rsa(), "a");
    assert!(judged_at(&tokens, &known, NOW + MAX_AGE - 1).await.is_ok());
    assert_eq!(judged_at(&tokens, &token(rsa(), "b"), NOW + 300).await, Err(Why::UnknownKey));
    let late = tokens.verify(&known, at(NOW + MAX_AGE)).await;
    assert_eq!(late, Err(Refusal::NoKeys), "fails closed, and does not blame the token");
    assert!(tokens.ready(at(NOW + MAX_AGE)).unwrap_err().contains("too old"));
    // A clock that was set back does not make them young.
    assert_eq!(tokens.verify(&known, at(NOW - MAX_AGE)).await, Err(Refusal::NoKeys));
}

#[tokio::test]
async fn keys_that_never_came_are_no_fault_of_the_token() {
    let server = Server::start(json!([rsa().jwk("a")])).await;
    server.reply(500, "hunter2");
    let tokens = tokens(&server);
    assert!(tokens.ready(at(NOW)).unwrap_err().contains("not loaded yet"));
    for _ in 0..5 {
        assert_eq!(tokens.verify(&token(rsa(), "a"), at(NOW)).await, Err(Refusal::NoKeys));
    }
    assert_eq!(server.asked(), 1, "one try per cooldown here too");
    let said = tokens.ready(at(NOW)).unwrap_err();
    assert!(said.contains("500") && !said.contains("hunter2"), "{said}");
    // What no key could make good needs none.
    assert_eq!(tokens.verify("a.b.c", at(NOW)).await, Err(Refusal::Token(Why::Malformed)));
    server.show(json!([rsa().jwk("a")]));
    assert!(judged_at(&tokens, &token(rsa(), "a"), NOW + 2 * COOLDOWN).await.is_ok());
    assert_eq!(tokens.ready(at(NOW + 2 * COOLDOWN)), Ok(()));
}

#[tokio::test]
async fn answers_that_are_no_jwks_change_nothing() {
    let (server, tokens) = loaded(json!([rsa().jwk("a")])).await;
    let other = Server::start(json!([other_rsa().jwk("a")])).await;
    let large = json!({"keys": [], "x": "x".repeat(1 << 20)}).to_string();
    for (status, body) in [(404, "{\"keys\":[]}"), (204, ""), (200, "<html>"), (200, "{}"), (200, &large)] {
        server.reply(status, body.to_owned());
        assert!(!tokens.refresh(at(NOW)).await, "{status}");
        assert!(judged(&tokens, &token(rsa(), "a")).await.is_ok());
    }
    server.redirect(&other.url);
    assert!(!tokens.refresh(at(NOW)).await);
    assert_eq!(other.asked(), 0, "redirects are not followed");
    assert!(tokens.ready(at(NOW + MAX_AGE)).unwrap_err().contains("302"));
}

#[tokio::test]
async fn one_odd_key_does_not_lock_everybody_out() {
    let odd = json!({"kty": "OKP", "crv": "Ed448", "x": 5, "kid": "odd"});
    let (_server, tokens) = loaded(json!([odd, ed25519().jwk("e")])).await;
    assert!(judged(&tokens, &token(ed25519(), "e")).await.is_ok());
}

#[tokio::test]
async fn the_background_loads_refreshes_and_recovers() {
    let server = Server::start(json!([rsa().jwk("a")])).await;
    server.reply(503, "");
    let mut fast = settings(Keys::Jwks(server.url.clone()));
    fast.jwks_refresh = Duration::from_millis(2);
    fast.jwks_cooldown = SECOND;
    let tokens = Arc::new(Tokens::new(fast).unwrap());
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (tokens, stop) = (tokens.clone(), stop.clone());
        async move { tokens.keep_fresh(stop).await }
    });
    server.until_asked(2).await;
    server.show(json!([rsa().jwk("a")]));
    // The second request from here on began after the keys were there.
    server.until_asked(server.asked() + 3).await;
    assert_eq!(tokens.ready(outhaul_core::clock::now()), Ok(()));
    stop.cancel();
    task.await.unwrap();
}
