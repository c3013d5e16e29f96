//! Keys and which algorithms each may be used with. The kind of a key decides, never the token: a public
//! key is no secret, so it must never become one for an HMAC.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey};
use outhaul_core::secret::Secret;

use super::refusal::Why;

/// The algorithms for public keys, best known first.
pub(super) const SIGNATURES: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// Those for a secret.
pub(super) const MACS: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];

const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// The DER names of the two curves; others have points of the same length.
const P256_OID: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384_OID: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Secret,
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeyKind {
    /// Whether keys of this kind are used with the algorithm.
    pub(super) fn fits(self, algorithm: Algorithm) -> bool {
        use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512};
        match self {
            Self::Secret => matches!(algorithm, HS256 | HS384 | HS512),
            Self::Rsa => matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512),
            Self::P256 => algorithm == ES256,
            Self::P384 => algorithm == ES384,
            Self::Ed25519 => algorithm == EdDSA,
        }
    }

    /// As people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Secret => "a secret",
            Self::Rsa => "an RSA key",
            Self::P256 => "a P-256 key",
            Self::P384 => "a P-384 key",
            Self::Ed25519 => "an Ed25519 key",
        }
    }
}

/// A key that tokens can be verified with.
pub(super) struct Key {
    /// Its name at the issuer.
    pub(super) kid: Option<String>,
    pub(super) kind: KeyKind,
    /// The one algorithm it is for, where the issuer says so.
    pub(super) only: Option<Algorithm>,
    pub(super) decoding: DecodingKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Key {
    /// The secret that we share with the issuer.
    pub(super) fn secret(secret: &Secret) -> Self {
        let decoding = DecodingKey::from_secret(secret.expose().as_bytes());
        Self { kid: None, kind: KeyKind::Secret, only: None, decoding }
    }

    /// The issuer's public key from a PEM file; the error says what would be right.
    pub(super) fn public(pem: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(pem).unwrap_or_default();
        if text.contains("PRIVATE KEY-----") {
            return Err("is a private key, which only the issuer may have; give the public one".into());
        }
        if text.contains("BEGIN CERTIFICATE") {
            return Err(
                "is a certificate; `openssl x509 -pubkey -noout` takes the public key out of it".into()
            );
        }
        if text.matches("-----BEGIN ").count() > 1 {
            return Err("has several keys; give one".into());
        }
        let read = DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem));
        let parts = read.and_then(|key| Ok((Jwk::from_decoding_key(&key, None)?.algorithm, key)));
        let (parts, decoding) = parts.map_err(|_| {
            "is not a public key in PEM form (`-----BEGIN PUBLIC KEY-----`) of kind RSA, P-256, P-384 or Ed25519"
        })?;
        let kind = match parts {
            AlgorithmParameters::RSA(rsa) => {
                let modulus = URL_SAFE_NO_PAD.decode(rsa.n).unwrap_or_default();
                rsa_problem(&modulus).map_or(Ok(KeyKind::Rsa), Err)?
            }
            AlgorithmParameters::EllipticCurve(ec)
                if ec.curve == EllipticCurve::P256 && has(text, P256_OID) =>
            {
                KeyKind::P256
            }
            AlgorithmParameters::EllipticCurve(ec)
                if ec.curve == EllipticCurve::P384 && has(text, P384_OID) =>
            {
                KeyKind::P384
            }
            AlgorithmParameters::OctetKeyPair(_) => KeyKind::Ed25519,
            _ => return Err("is of a curve that is not available; use P-256, P-384 or Ed25519".into()),
        };
        Ok(Self { kid: None, kind, only: None, decoding })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.kind.fits(algorithm) && self.only.is_none_or(|only| only == algorithm)
    }
}

/// What is wrong with an RSA modulus.
pub(super) fn rsa_problem(modulus: &[u8]) -> Option<String> {
    let digits: &[u8] = &modulus[modulus.iter().take_while(|byte| **byte == 0).count()..];
    let bits = digits.first().map_or(0, |first| digits.len() * 8 - first.leading_zeros() as usize);
    let wrong = !RSA_BITS.contains(&bits);
    wrong.then(|| format!("has {bits} bits; RSA keys must have {} to {}", RSA_BITS.start(), RSA_BITS.end()))
}

/// Whether the DER inside a PEM file has these bytes.
fn has(pem: &str, bytes: &[u8]) -> bool {
    let body: String = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).is_ok_and(|der| der.windows(bytes.len()).any(|part| part == bytes))
}

/// The keys that are trusted now.
#[derive(Debug, Default)]
pub(super) struct KeySet(pub(super) Vec<Key>);

impl KeySet {
    /// The keys for a token, at least one: those of its name where the token has one, for nothing keeps an issuer
    /// from giving a name twice; else the only one that fits.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Vec<&Key>, Why> {
        let named = |key: &&Key| kid.is_none() || key.kid.as_deref() == kid;
        let fitting: Vec<&Key> = self.0.iter().filter(|key| key.fits(algorithm)).filter(named).collect();
        match fitting.len() {
            0 => Err(Why::UnknownKey),
            1 => Ok(fitting),
            _ if kid.is_some() => Ok(fitting),
            _ => Err(Why::AmbiguousKey),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::keys;

    #[test]
    fn a_key_is_used_with_its_own_algorithms_only() {
        let kinds = [KeyKind::Secret, KeyKind::Rsa, KeyKind::P256, KeyKind::P384, KeyKind::Ed25519];
        for algorithm in SIGNATURES.into_iter().chain(MACS) {
            let fitting: Vec<KeyKind> = kinds.into_iter().filter(|kind| kind.fits(algorithm)).collect();
            assert_eq!(fitting.len(), 1, "{algorithm:?} fits {fitting:?}");
            assert_eq!(fitting == [KeyKind::Secret], MACS.contains(&algorithm));
        }
    }

    #[test]
    fn public_keys_of_every_kind_are_read() {
        for (pair, kind) in [
            (keys::rsa(), KeyKind::Rsa),
            (keys::p256(), KeyKind::P256),
            (keys::p384(), KeyKind::P384),
            (keys::ed25519(), KeyKind::Ed25519),
        ] {
            assert_eq!(Key::public(pair.public_pem.as_bytes()).unwrap().kind, kind);
        }
    }

    #[test]
    fn what_is_no_public_key_is_refused_with_the_reason() {
        let refused = |pem: &str| Key::public(pem.as_bytes()).unwrap_err();
        assert!(refused(&keys::rsa().private_pem).contains("private key"));
        assert!(refused("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----").contains("x509"));
        assert!(refused(&keys::rsa().public_pem.repeat(2)).contains("several"));
        for nothing in ["", "secret", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"] {
            assert!(refused(nothing).contains("PEM"), "{nothing}");
        }
        assert!(Key::public(&[0xff, 0xfe]).is_err());
        // A curve with points as long as those of P-256.
        let k256 = keys::p256().public_pem_as_secp256k1();
        assert!(refused(&k256).contains("curve"));
    }

    #[test]
    fn short_rsa_keys_are_refused() {
        assert!(rsa_problem(&[0xff; 128]).unwrap().contains("1024"));
        let mut short = [0xff; 256];
        short[0] = 0x7f;
        assert!(rsa_problem(&short).unwrap().contains("2047"));
        assert!(rsa_problem(&[&[0; 128][..], &[0xff; 128]].concat()).is_some(), "zeros count for nothing");
        assert!(rsa_problem(&[0xff; 1025]).is_some());
        assert!(rsa_problem(&[]).is_some());
        assert_eq!(rsa_problem(&[0xff; 256]), None);
    }

    #[test]
    fn without_a_name_exactly_one_key_must_fit() {
        let named = |kid: Option<&str>, kind: &keys::Pair| Key {
            kid: kid.map(str::to_owned),
            ..Key::public(kind.public_pem.as_bytes()).unwrap()
        };
        let set = KeySet(vec![
            named(Some("r"), keys::rsa()),
            named(Some("e"), keys::p256()),
            named(None, keys::ed25519()),
        ]);
        let kid = |kid, algorithm| set.find(kid, algorithm).map(|keys| keys[0].kid.as_deref());
        assert_eq!(kid(None, Algorithm::RS256), Ok(Some("r")));
        assert_eq!(kid(None, Algorithm::EdDSA), Ok(None));
        assert_eq!(kid(None, Algorithm::ES384), Err(Why::UnknownKey));
        assert_eq!(kid(Some("r"), Algorithm::RS256), Ok(Some("r")));
        assert_eq!(kid(Some("r"), Algorithm::ES256), Err(Why::UnknownKey), "right name, wrong kind");
        assert_eq!(kid(Some("x"), Algorithm::EdDSA), Err(Why::UnknownKey), "a nameless key has no name");
        let two = KeySet(vec![named(Some("a"), keys::rsa()), named(Some("b"), keys::rsa())]);
        assert_eq!(two.find(None, Algorithm::RS256).map(|_| ()), Err(Why::AmbiguousKey));
        assert_eq!(two.find(Some("b"), Algorithm::PS512).map(|keys| keys.len()), Ok(1));
    }
}
