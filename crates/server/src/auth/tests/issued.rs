//! Tokens that we make ourselves are accepted by the server they are made for.

use serde_json::Map;

use super::*;
use crate::auth::tests::keys::{ed25519, other_rsa, p256, p384, rsa};
use crate::auth::{ClaimPath, IssueError, Role, Wanted, issue};

fn wanted() -> Wanted {
    Wanted {
        subject: "dev".into(),
        roles: vec![Role::Submitter, Role::Viewer],
        department: Some("sales".into()),
        claims: json!({"county": "Kent"}).as_object().unwrap().clone(),
        ttl: Duration::from_secs(3600),
        kid: None,
    }
}

fn odd(keys: Keys) -> JwtSettings {
    let mut settings = settings(keys);
    settings.keep = vec![ClaimPath::new("county")];
    settings.claims.subject = ClaimPath::new("preferred.name");
    settings.claims.roles = ClaimPath::new("realm_access.roles");
    settings.claims.department = ClaimPath::new("https://example.com/department");
    settings.roles.viewer = vec!["auditor".into(), "boss".into()];
    settings
}

#[tokio::test]
async fn every_kind_of_key_makes_good_tokens() {
    let private = |pair: &Pair| Some(pair.private_pem.clone());
    for (keys, private) in [
        (secret(), None),
        (pem(rsa()), private(rsa())),
        (pem(p256()), private(p256())),
        (pem(p384()), private(p384())),
        (pem(ed25519()), private(ed25519())),
    ] {
        for settings in
            [JwtSettings { keep: vec![ClaimPath::new("county")], ..settings(keys.clone()) }, odd(keys)]
        {
            let token = issue(&settings, private.as_deref().map(str::as_bytes), &wanted(), at(NOW)).unwrap();
            let tokens = Tokens::new(settings).unwrap();
            let caller = judged(&tokens, &token).await.unwrap();
            assert_eq!(caller.subject(), "dev");
            assert_eq!(caller.identity.department.as_deref(), Some("sales"));
            assert_eq!(caller.identity.claims["county"], "Kent");
            assert_eq!(format!("{:?}", caller.roles), "{Submitter, Viewer}");
            assert_eq!(judged_at(&tokens, &token, NOW + 3630).await, Err(Why::Expired));
        }
    }
}

#[test]
fn keys_that_the_server_would_not_accept_are_refused() {
    let with = |keys: Keys, private: Option<&str>| {
        issue(&settings(keys), private.map(str::as_bytes), &wanted(), at(NOW)).unwrap_err()
    };
    assert!(matches!(with(pem(rsa()), None), IssueError::NoKey));
    assert!(matches!(with(secret(), Some(&rsa().private_pem)), IssueError::KeyBesideSecret));
    assert!(matches!(with(pem(rsa()), Some(&other_rsa().private_pem)), IssueError::OtherKey));
    assert!(matches!(with(pem(rsa()), Some(&p256().private_pem)), IssueError::WrongKey));
    assert!(matches!(with(pem(p384()), Some(&p256().private_pem)), IssueError::WrongKey));
    assert!(matches!(with(pem(rsa()), Some(&rsa().public_pem)), IssueError::WrongKey));
    assert!(matches!(with(pem(rsa()), Some("hunter2")), IssueError::WrongKey));
    let said = format!("{:?} {}", with(pem(rsa()), Some("hunter2")), with(pem(rsa()), Some("hunter2")));
    assert!(!said.contains("hunter2"));
}

#[test]
fn claims_that_are_set_otherwise_are_refused() {
    for name in
        ["iss", "aud", "exp", "iat", "nbf", "preferred", "realm_access", "https://example.com/department"]
    {
        let mut wanted = wanted();
        wanted.claims = Map::from_iter([(name.to_owned(), json!("x"))]);
        let refused = issue(&odd(secret()), None, &wanted, at(NOW)).unwrap_err();
        assert!(matches!(refused, IssueError::Reserved(claim) if claim == name), "{name}");
    }
    let long = Wanted { ttl: Duration::MAX, ..wanted() };
    assert!(matches!(issue(&odd(secret()), None, &long, at(NOW)), Err(IssueError::TooLong)));
}

#[test]
fn the_name_of_the_key_is_in_the_header() {
    let token = issue(
        &settings(Keys::Jwks("https://id.example.com".parse().unwrap())),
        Some(rsa().private_pem.as_bytes()),
        &Wanted { kid: Some("dev-1".into()), ..wanted() },
        at(NOW),
    );
    let header = jsonwebtoken::decode_header(token.unwrap()).unwrap();
    assert_eq!((header.kid.as_deref(), header.alg), (Some("dev-1"), Algorithm::RS256));
}
