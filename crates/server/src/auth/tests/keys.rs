//! Key pairs of every kind, made once per run, so that no private key lies in the repository.

use std::sync::OnceLock;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use serde_json::{Value, json};

/// A key pair in the forms that files and servers have.
pub(in crate::auth) struct Pair {
    pub(in crate::auth) algorithm: Algorithm,
    pub(in crate::auth) private_pem: String,
    pub(in crate::auth) public_pem: String,
    public_der: Vec<u8>,
}

impl Pair {
    fn new(algorithm: Algorithm, private: &[u8], public: &PublicKeyX509Der<'_>) -> Self {
        let public_der = public.as_ref().to_vec();
        let (private_pem, public_pem) = (pem("PRIVATE KEY", private), pem("PUBLIC KEY", &public_der));
        Self { algorithm, private_pem, public_pem, public_der }
    }

    pub(in crate::auth) fn encoding(&self) -> EncodingKey {
        let pem = self.private_pem.as_bytes();
        EncodingKey::from_rsa_pem(pem)
            .or_else(|_| EncodingKey::from_ec_pem(pem))
            .or_else(|_| EncodingKey::from_ed_pem(pem))
            .unwrap()
    }

    /// As a JWKS server shows it.
    pub(in crate::auth) fn jwk(&self, kid: &str) -> Value {
        let pem = self.public_pem.as_bytes();
        let key = DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem))
            .unwrap();
        let mut jwk =
            serde_json::to_value(Jwk::from_decoding_key(&key, Some(self.algorithm)).unwrap()).unwrap();
        jwk["kid"] = json!(kid);
        jwk["use"] = json!("sig");
        jwk
    }

    /// The same point, said to be on another curve.
    pub(in crate::auth) fn public_pem_as_secp256k1(&self) -> String {
        let (head, point) = self.public_der.split_at(23);
        let ec_public_key = &head[4..13];
        let head =
            [&[0x30, 0x56, 0x30, 0x10], ec_public_key, &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a]].concat();
        pem("PUBLIC KEY", &[&head, point].concat())
    }
}

fn pem(name: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", lines.join("\n"))
}

fn new_rsa() -> Pair {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let private: Pkcs8V1Der<'_> = key.as_der().unwrap();
    Pair::new(Algorithm::RS256, private.as_ref(), &key.public_key().as_der().unwrap())
}

pub(in crate::auth) fn rsa() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(new_rsa)
}

/// Somebody else's.
pub(in crate::auth) fn other_rsa() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(new_rsa)
}

fn ecdsa(algorithm: Algorithm, key: &EcdsaKeyPair) -> Pair {
    Pair::new(algorithm, key.to_pkcs8v1().unwrap().as_ref(), &key.public_key().as_der().unwrap())
}

pub(in crate::auth) fn p256() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    let new = || EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    PAIR.get_or_init(|| ecdsa(Algorithm::ES256, &new()))
}

pub(in crate::auth) fn p384() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    let new = || EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
    PAIR.get_or_init(|| ecdsa(Algorithm::ES384, &new()))
}

pub(in crate::auth) fn ed25519() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(|| {
        let key = Ed25519KeyPair::generate().unwrap();
        let public = key.public_key().as_der().unwrap();
        Pair::new(Algorithm::EdDSA, key.to_pkcs8v1().unwrap().as_ref(), &public)
    })
}
