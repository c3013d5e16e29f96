//! One token after another that must not be accepted, and beside each the one that must.

use super::*;
use crate::auth::ClaimPath;
use crate::auth::tests::keys::{ed25519, other_rsa, p256, p384, rsa};

fn tokens(keys: Keys) -> Tokens {
    Tokens::new(settings(keys)).unwrap()
}

/// What becomes of good claims with these changes.
async fn with(changes: Value) -> Result<Caller, Why> {
    judged(&tokens(pem(p256())), &by(p256(), json!({}), &claims(changes))).await
}

#[tokio::test]
async fn good_tokens_of_every_kind_are_accepted() {
    for pair in [rsa(), p256(), p384(), ed25519()] {
        let token = by(pair, json!({"typ": "at+jwt", "kid": "whatever"}), &claims(json!({})));
        let caller = judged(&tokens(pem(pair)), &token).await.unwrap();
        assert_eq!(caller.subject(), "ann");
        assert_eq!(caller.identity.verified_at, at(NOW));
    }
    for algorithm in
        [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512]
    {
        let token = signed(&json!({"alg": algorithm}), &claims(json!({})), &rsa().encoding(), algorithm);
        assert!(judged(&tokens(pem(rsa())), &token).await.is_ok(), "{algorithm:?}");
    }
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let token = signed(&json!({"alg": "HS256"}), &claims(json!({})), &key, Algorithm::HS256);
    assert!(judged(&tokens(secret()), &token).await.is_ok());
}

#[tokio::test]
async fn a_claim_that_stands_twice_is_refused_whatever_it_is() {
    let good = claims(json!({"realm_access": {"roles": ["submitter"]}})).to_string();
    let twice = [
        (r#""sub":"ann""#, r#""sub":"bob","sub":"ann""#),
        (r#""roles":["submitter"]}"#, r#""roles":["admin"],"roles":["submitter"]}"#),
        (r#""sub":"ann""#, r#""sub":"ann","nonce":1,"nonce":1"#),
        (r#""sub":"ann""#, r#""sub":"ann","deep":[{"a":{"b":1,"b":1}}]"#),
    ];
    let pair = p256();
    let token = |body: &str| {
        let message = format!("{}.{}", part(json!({"alg": pair.algorithm}).to_string()), part(body));
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &pair.encoding(), pair.algorithm).unwrap();
        format!("{message}.{signature}")
    };
    assert!(judged(&tokens(pem(pair)), &token(&good)).await.is_ok());
    for (once, twice) in twice {
        let bad = good.replacen(once, twice, 1);
        assert_ne!(bad, good);
        // The library finds duplicates among the claims that it reads itself.
        let refused = judged(&tokens(pem(pair)), &token(&bad)).await;
        assert!(matches!(refused, Err(Why::Twice | Why::Malformed)), "{bad}: {refused:?}");
    }
}

#[tokio::test]
async fn unsigned_tokens_are_refused_however_none_is_written() {
    for none in ["none", "None", "NONE", "nOnE", "", "null", "hs256", "RS256 ", "ES512", "ES256K"] {
        let head = part(json!({"alg": none, "typ": "JWT"}).to_string());
        let body = part(claims(json!({})).to_string());
        for keys in [pem(rsa()), secret()] {
            for signature in ["", "AAAA"] {
                let token = format!("{head}.{body}.{signature}");
                assert_eq!(judged(&tokens(keys.clone()), &token).await, Err(Why::Algorithm), "{none}");
            }
        }
    }
    // A true algorithm and no signature.
    let head = part(json!({"alg": "RS256"}).to_string());
    let token = format!("{head}.{}.", part(claims(json!({})).to_string()));
    assert_eq!(judged(&tokens(pem(rsa())), &token).await, Err(Why::Signature));
}

#[tokio::test]
async fn our_public_key_is_nobodys_secret() {
    for public in [rsa().public_pem.clone(), rsa().public_pem.trim().to_owned()] {
        let key = EncodingKey::from_secret(public.as_bytes());
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let token = signed(&json!({"alg": algorithm}), &claims(json!({})), &key, algorithm);
            assert_eq!(judged(&tokens(pem(rsa())), &token).await, Err(Why::Algorithm));
            // Not even where the list was mixed up: the kind of the key decides as well.
            let mixed = JwtSettings { algorithms: vec![Algorithm::RS256, algorithm], ..settings(pem(rsa())) };
            let mixed = Tokens::new(mixed).unwrap();
            assert_eq!(judged(&mixed, &token).await, Err(Why::UnknownKey));
        }
    }
}

#[tokio::test]
async fn the_list_of_algorithms_holds() {
    let only = JwtSettings { algorithms: vec![Algorithm::PS256], ..settings(pem(rsa())) };
    let token = by(rsa(), json!({}), &claims(json!({})));
    assert_eq!(judged(&Tokens::new(only).unwrap(), &token).await, Err(Why::Algorithm));
    // HS512 with a secret for HS256.
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let token = signed(&json!({"alg": "HS512"}), &claims(json!({})), &key, Algorithm::HS512);
    assert_eq!(judged(&tokens(secret()), &token).await, Err(Why::Algorithm));
}

#[tokio::test]
async fn signatures_of_others_and_changed_claims_are_refused() {
    let good = by(rsa(), json!({}), &claims(json!({})));
    let foreign = by(other_rsa(), json!({}), &claims(json!({})));
    assert_eq!(judged(&tokens(pem(rsa())), &foreign).await, Err(Why::Signature));
    let [head, _, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let body = part(claims(json!({"sub": "bob"})).to_string());
    assert_eq!(judged(&tokens(pem(rsa())), &format!("{head}.{body}.{signature}")).await, Err(Why::Signature));
    let guessed = EncodingKey::from_secret(b"secret");
    let token = signed(&json!({"alg": "HS256"}), &claims(json!({})), &guessed, Algorithm::HS256);
    assert_eq!(judged(&tokens(secret()), &token).await, Err(Why::Signature));
}

#[tokio::test]
async fn keys_in_the_header_are_ignored() {
    let brought = json!({
        "jwk": other_rsa().jwk("mine"), "jku": "http://127.0.0.1:1/jwks", "x5u": "http://127.0.0.1:1/x",
        "x5c": ["MIIB"], "x5t": "x", "kid": "mine",
    });
    let theirs = by(other_rsa(), brought.clone(), &claims(json!({})));
    assert_eq!(judged(&tokens(pem(rsa())), &theirs).await, Err(Why::Signature));
    let ours = by(rsa(), brought, &claims(json!({})));
    assert!(judged(&tokens(pem(rsa())), &ours).await.is_ok(), "ignored, not forbidden");
}

#[tokio::test]
async fn times_are_judged_by_the_given_clock_within_the_leeway() {
    let tokens = tokens(pem(p256()));
    let token = |changes: Value| by(p256(), json!({}), &claims(changes));
    let expires = token(json!({"exp": NOW}));
    for (now, expected) in [(NOW - 1, true), (NOW + 29, true), (NOW + 30, false), (NOW + 90, false)] {
        let judged = judged_at(&tokens, &expires, now).await.map(|_| ());
        assert_eq!(judged, if expected { Ok(()) } else { Err(Why::Expired) }, "{now}");
    }
    for name in ["nbf", "iat"] {
        let begins = token(json!({name: NOW}));
        for (now, expected) in [(NOW, true), (NOW - 30, true), (NOW - 31, false), (NOW - 90, false)] {
            let judged = judged_at(&tokens, &begins, now).await.map(|_| ());
            assert_eq!(judged, if expected { Ok(()) } else { Err(Why::NotYet) }, "{name} {now}");
        }
    }
    let strict = JwtSettings { leeway: Duration::ZERO, ..settings(pem(p256())) };
    assert_eq!(judged_at(&Tokens::new(strict).unwrap(), &expires, NOW).await, Err(Why::Expired));
    assert!(judged(&tokens, &token(json!({"exp": NOW as f64 + 0.5, "nbf": NOW as f64 - 0.5}))).await.is_ok());
}

#[tokio::test]
async fn what_must_be_there_must_be_there() {
    assert_eq!(with(json!({"exp": null})).await, Err(Why::Missing("exp")));
    assert_eq!(with(json!({"iss": null})).await, Err(Why::Missing("iss")));
    assert_eq!(with(json!({"aud": null})).await, Err(Why::Missing("aud")));
    assert_eq!(with(json!({"sub": null})).await, Err(Why::Missing("sub")));
    for exp in [json!("1900000000"), json!(-1), json!({}), json!([NOW + 300]), json!(true), json!(1e300)] {
        let judged = with(json!({"exp": exp})).await;
        assert!(matches!(judged, Err(Why::Missing("exp") | Why::Malformed)), "{exp}: {judged:?}");
    }
    for name in ["nbf", "iat"] {
        assert_eq!(with(json!({name: "soon"})).await, Err(Why::Malformed));
        assert_eq!(with(json!({name: [1]})).await, Err(Why::Malformed));
    }
}

#[tokio::test]
async fn issuer_and_audience_must_be_ours() {
    for issuer in ["https://evil.example/", "https://id.example.com", "HTTPS://id.example.com/", ""] {
        assert_eq!(with(json!({"iss": issuer})).await, Err(Why::Issuer), "{issuer}");
    }
    assert_eq!(with(json!({"iss": [ISSUER, "https://evil.example/"]})).await, Err(Why::Issuer));
    assert_eq!(with(json!({"iss": 5})).await, Err(Why::Missing("iss")));
    for audience in [json!("other"), json!("Outhaul"), json!(""), json!([]), json!(["a", "b"])] {
        assert_eq!(with(json!({"aud": audience})).await, Err(Why::Audience), "{audience}");
    }
    for audience in [json!(7), json!({"outhaul": true}), json!([["outhaul"]]), json!([AUDIENCE, 7])] {
        assert_eq!(with(json!({"aud": audience})).await, Err(Why::Missing("aud")), "{audience}");
    }
    assert!(with(json!({"aud": ["account", AUDIENCE]})).await.is_ok());
    let two = JwtSettings { audience: vec!["a".into(), "b".into()], ..settings(pem(p256())) };
    let token = by(p256(), json!({}), &claims(json!({"aud": "b"})));
    assert!(judged(&Tokens::new(two).unwrap(), &token).await.is_ok());
}

#[tokio::test]
async fn subjects_are_names_and_never_ours() {
    let long = "x".repeat(256);
    for subject in [
        "",
        " ",
        " \u{a0}\u{3000}",
        "a\nb",
        "a\0b",
        "\u{7f}",
        &long,
        "anonymous",
        "identity:nightly",
        "identity:",
    ] {
        assert_eq!(with(json!({"sub": subject})).await, Err(Why::Subject), "{subject:?}");
    }
    for subject in [json!(5), json!(["ann"]), json!({"name": "ann"}), json!(true)] {
        let judged = with(json!({"sub": subject})).await;
        assert!(matches!(judged, Err(Why::Subject | Why::Malformed)), "{subject}: {judged:?}");
    }
    for subject in ["a", &"é".repeat(255), "auth0|5f7", "Ann Å. O'Neill", "' OR 1=1", "../../x"] {
        assert_eq!(with(json!({"sub": subject})).await.unwrap().subject(), subject);
    }
}

#[tokio::test]
async fn departments_are_names_or_nothing() {
    for department in [json!(null), json!("")] {
        assert_eq!(with(json!({"department": department})).await.unwrap().identity.department, None);
    }
    let sales = with(json!({"department": "sales"})).await.unwrap();
    assert_eq!(sales.identity.department.as_deref(), Some("sales"));
    for department in [json!(5), json!(["sales"]), json!("  "), json!("a\0"), json!("x".repeat(256))] {
        assert_eq!(with(json!({"department": department})).await, Err(Why::Department));
    }
}

#[tokio::test]
async fn named_claims_are_kept_and_no_others() {
    let mut settings = settings(pem(p256()));
    settings.keep = ["county", "address.region", "absent"].map(ClaimPath::new).into();
    settings.claims.roles = ClaimPath::new("realm_access.roles");
    let tokens = Tokens::new(settings).unwrap();
    let given = json!({
        "county": "Kent", "address": {"region": 7, "street": "x"}, "email": "ann@example.com",
        "realm_access": {"roles": ["viewer"]}, "roles": ["operator"],
    });
    let caller = judged(&tokens, &by(p256(), json!({}), &claims(given))).await.unwrap();
    assert_eq!(
        serde_json::to_value(&caller.identity.claims).unwrap(),
        json!({"county": "Kent", "address.region": 7})
    );
    assert_eq!(format!("{:?}", caller.roles), "{Viewer}");
    let nul = by(p256(), json!({}), &claims(json!({"county": "a\0b"})));
    assert_eq!(judged(&tokens, &nul).await, Err(Why::Unkeepable));
}

#[tokio::test]
async fn numbers_that_reading_may_round_are_refused() {
    let mut settings = settings(pem(p256()));
    settings.keep = vec![ClaimPath::new("county")];
    let tokens = Tokens::new(settings).unwrap();
    // As text, for a number in Rust would be rounded already.
    let judge = async |county: &str| {
        let text = claims(json!({"county": "?"})).to_string().replace("\"?\"", county);
        let message = format!("{}.{}", part(json!({"alg": "ES256"}).to_string()), part(text));
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &p256().encoding(), Algorithm::ES256).unwrap();
        judged(&tokens, &format!("{message}.{signature}")).await
    };
    for county in [
        "1.12345678901234567",
        "1.12345678901234568",
        "[0.5]",
        r#"{"of": 7.0}"#,
        "1e3",
        "-0",
        "18446744073709551616",
    ] {
        assert_eq!(judge(county).await, Err(Why::Unkeepable), "{county}");
    }
    for county in ["18446744073709551615", "-9223372036854775808", r#""1.12345678901234567""#] {
        let caller = judge(county).await.unwrap();
        assert_eq!(caller.identity.claims["county"].to_string(), county);
    }
}

#[tokio::test]
async fn broken_tokens_are_refused() {
    let tokens = tokens(pem(p256()));
    let good = by(p256(), json!({}), &claims(json!({})));
    let [head, body, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let twice = part(r#"{"alg":"none","alg":"ES256"}"#);
    let listed = signed(&json!({"alg": "ES256"}), &json!([1]), &p256().encoding(), Algorithm::ES256);
    let double = {
        let text = claims(json!({})).to_string().replacen('{', r#"{"exp":9999999999,"#, 1);
        let message = format!("{head}.{}", part(text));
        let key = p256().encoding();
        format!(
            "{message}.{}",
            jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::ES256).unwrap()
        )
    };
    for token in [
        String::new(),
        ".".into(),
        "..".into(),
        "a.b.c".into(),
        head.into(),
        format!("{head}.{body}"),
        format!("{good}.{signature}"),
        format!(".{body}.{signature}"),
        format!("{head}=.{body}.{signature}"),
        format!("{head}.{body}.{signature}="),
        format!("{head}.{body}.!"),
        format!("{twice}.{body}.{signature}"),
        format!("{}.{body}.{signature}", part("[]")),
        format!("{}.{body}.{signature}", part("{}")),
        format!("{}.{body}.{signature}", part([0xff, 0xfe])),
        by(p256(), json!({"kid": 5}), &claims(json!({}))),
        listed,
        double,
    ] {
        assert_eq!(judged(&tokens, &token).await, Err(Why::Malformed), "{token}");
    }
    assert!(judged(&tokens, &good).await.is_ok());
}

#[tokio::test]
async fn large_tokens_are_not_looked_into() {
    let tokens = tokens(pem(p256()));
    let large = by(p256(), json!({}), &claims(json!({"x": "x".repeat(16 * 1024)})));
    assert_eq!(judged(&tokens, &large).await, Err(Why::TooLarge));
    let megabyte = by(p256(), json!({"kid": "k".repeat(1 << 20)}), &claims(json!({})));
    assert_eq!(judged(&tokens, &megabyte).await, Err(Why::TooLarge));
    let large = by(p256(), json!({}), &claims(json!({"x": "x".repeat(11 * 1024)})));
    assert!(judged(&tokens, &large).await.is_ok());
}

#[tokio::test]
async fn other_things_that_the_issuer_signs_are_no_access_tokens() {
    let tokens = tokens(pem(p256()));
    for header in [
        json!({"typ": "logout+jwt"}),
        json!({"typ": "dpop+jwt"}),
        json!({"typ": ""}),
        json!({"crit": ["b64"], "b64": false}),
        json!({"crit": []}),
    ] {
        let token = by(p256(), header.clone(), &claims(json!({})));
        assert_eq!(judged(&tokens, &token).await, Err(Why::Kind), "{header}");
    }
    for typ in ["JWT", "jwt", "at+jwt", "application/at+JWT"] {
        assert!(judged(&tokens, &by(p256(), json!({"typ": typ}), &claims(json!({})))).await.is_ok(), "{typ}");
    }
}

#[tokio::test]
async fn a_token_without_a_role_is_good_and_gives_none() {
    for roles in [json!(null), json!([]), json!("other"), json!({"submitter": true})] {
        assert!(with(json!({"roles": roles})).await.unwrap().roles.is_empty());
    }
}

#[tokio::test]
async fn a_caller_holds_no_token() {
    let token = by(p256(), json!({}), &claims(json!({})));
    let caller = judged(&tokens(pem(p256())), &token).await.unwrap();
    let said = format!("{caller:?}{}", serde_json::to_string(&caller.identity).unwrap());
    for piece in token.split('.') {
        assert!(!said.contains(piece));
    }
}
