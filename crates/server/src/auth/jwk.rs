//! Reads a JWKS document. Keys that we cannot or must not use are left out, so that one odd key does not
//! lock everybody out; `oct` keys are secrets, and a published secret is none.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use super::keys::{Key, KeyKind, KeySet, rsa_problem};

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The usable keys of a document, and how many there are in all; `None`: it is no JWKS.
pub(super) fn read(body: &[u8]) -> Option<(KeySet, usize)> {
    let document: Document = serde_json::from_slice(body).ok()?;
    let all = document.keys.len();
    let usable =
        document.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok().and_then(usable));
    Some((KeySet(usable.collect()), all))
}

fn usable(jwk: Jwk) -> Option<Key> {
    let for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig");
    let verifies = jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !for_signatures || !verifies {
        return None;
    }
    let (kind, decoding) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => {
            let (n, e) = (jwk.n?, jwk.e?);
            if rsa_problem(&bytes(&n)?).is_some() {
                return None;
            }
            (KeyKind::Rsa, DecodingKey::from_rsa_components(&n, &e))
        }
        ("EC", Some("P-256")) => (KeyKind::P256, point(&jwk.x?, &jwk.y?, 32)?),
        ("EC", Some("P-384")) => (KeyKind::P384, point(&jwk.x?, &jwk.y?, 48)?),
        ("OKP", Some("Ed25519")) => {
            let x = jwk.x.filter(|x| bytes(x).is_some_and(|x| x.len() == 32))?;
            (KeyKind::Ed25519, DecodingKey::from_ed_components(&x))
        }
        _ => return None,
    };
    let only = match jwk.alg {
        None => None,
        // A key for another algorithm than ours, such as an encrypting one, is not for us.
        Some(name) => Some(name.parse::<Algorithm>().ok().filter(|algorithm| kind.fits(*algorithm))?),
    };
    Some(Key { kid: jwk.kid, kind, only, decoding: decoding.ok()? })
}

fn point(x: &str, y: &str, length: usize) -> Option<jsonwebtoken::errors::Result<DecodingKey>> {
    let right = |text: &str| bytes(text).is_some_and(|bytes| bytes.len() == length);
    (right(x) && right(y)).then(|| DecodingKey::from_ec_components(x, y))
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::keys;
    use serde_json::json;

    fn kinds(keys: Value) -> Vec<KeyKind> {
        let (set, all) = read(json!({"keys": keys.clone()}).to_string().as_bytes()).unwrap();
        assert_eq!(all, keys.as_array().unwrap().len());
        set.0.iter().map(|key| key.kind).collect()
    }

    fn with(mut jwk: Value, changes: Value) -> Value {
        jwk.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        jwk
    }

    #[test]
    fn keys_of_every_kind_are_read() {
        let all = [keys::rsa(), keys::p256(), keys::p384(), keys::ed25519()].map(|pair| pair.jwk("a"));
        let expected = [KeyKind::Rsa, KeyKind::P256, KeyKind::P384, KeyKind::Ed25519];
        assert_eq!(kinds(json!(all)), expected);
        let plain = with(keys::rsa().jwk("a"), json!({"use": null, "alg": null, "kid": null, "x5c": ["?"]}));
        assert_eq!(kinds(json!([plain])), [KeyKind::Rsa]);
        assert_eq!(kinds(json!([with(plain, json!({"key_ops": ["verify"]}))])), [KeyKind::Rsa]);
    }

    #[test]
    fn keys_that_must_not_be_used_are_left_out_and_the_others_stay() {
        let rsa = || keys::rsa().jwk("a");
        let short = URL_SAFE_NO_PAD.encode([0xff; 128]);
        for bad in [
            json!({"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"}),
            with(rsa(), json!({"use": "enc"})),
            with(rsa(), json!({"use": 5})),
            with(rsa(), json!({"key_ops": ["encrypt"]})),
            with(rsa(), json!({"alg": "HS256"})),
            with(rsa(), json!({"alg": "ES256"})),
            with(rsa(), json!({"alg": "RSA-OAEP"})),
            with(rsa(), json!({"alg": "none"})),
            with(rsa(), json!({"n": short})),
            with(rsa(), json!({"n": "!"})),
            with(rsa(), json!({"e": "!"})),
            with(rsa(), json!({"n": null})),
            with(rsa(), json!({"kid": 7})),
            with(rsa(), json!({"kty": "rsa"})),
            with(keys::p256().jwk("a"), json!({"crv": "P-384", "alg": null})),
            with(keys::p256().jwk("a"), json!({"crv": "secp256k1", "alg": null})),
            with(keys::p256().jwk("a"), json!({"alg": "ES384"})),
            with(keys::p256().jwk("a"), json!({"y": "AA"})),
            with(keys::ed25519().jwk("a"), json!({"crv": "X25519"})),
            with(keys::ed25519().jwk("a"), json!({"x": "AA"})),
            json!({}),
            json!(null),
            json!("key"),
        ] {
            assert_eq!(kinds(json!([bad, keys::p384().jwk("b")])), [KeyKind::P384], "{bad}");
        }
    }

    #[test]
    fn the_algorithm_of_a_key_narrows_it() {
        let jwk = with(keys::rsa().jwk("a"), json!({"alg": "PS256"}));
        let (set, _) = read(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
        assert!(set.find(Some("a"), Algorithm::PS256).is_ok());
        assert!(set.find(Some("a"), Algorithm::RS256).is_err());
    }

    #[test]
    fn what_is_no_jwks_is_not_an_empty_one() {
        assert!(read(b"{\"keys\": []}").is_some_and(|(set, _)| set.0.is_empty()));
        for body in ["", "null", "[]", "{}", "{\"keys\": {}}", "{\"keys\": null}", "<html>", "{\"keys\": ["] {
            assert!(read(body.as_bytes()).is_none(), "{body}");
        }
    }
}
