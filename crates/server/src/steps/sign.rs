//! Signatures on calls, as Standard Webhooks has them, so that a receiver can check them with any of its
//! libraries. While a secret is rotated there are two.

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use outhaul_core::secret::Secret;
use sha2::Sha256;

/// What marks a secret that is base64, as Standard Webhooks writes them.
const ENCODED: &str = "whsec_";

/// Padded when written; read with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The key that a secret stands for; the error says what is wrong, and nothing of the secret.
pub(crate) fn key(secret: &Secret) -> Result<Vec<u8>, &'static str> {
    let text = secret.expose();
    let key = match text.strip_prefix(ENCODED) {
        Some(encoded) => {
            BASE64.decode(encoded).map_err(|_| "begins with whsec_, but the rest is not base64")?
        }
        None => text.as_bytes().to_vec(),
    };
    if key.is_empty() { Err("is empty") } else { Ok(key) }
}

/// Signs calls. No `Debug`: it holds the keys.
#[derive(Clone, Default)]
pub(super) struct Signer(Vec<Vec<u8>>);

impl Signer {
    /// A signer with every secret that is in use; without one, calls are not signed.
    pub(super) fn new(secrets: &[Secret]) -> Self {
        // The configuration was refused if one of them is no key.
        Self(secrets.iter().filter_map(|secret| key(secret).ok()).collect())
    }

    /// The headers of one call.
    pub(super) fn headers(&self, id: &str, timestamp: i64, body: &str) -> Vec<(&'static str, String)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let signatures: Vec<String> = self.0.iter().map(|key| sign(key, id, timestamp, body)).collect();
        vec![
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", timestamp.to_string()),
            ("webhook-signature", signatures.join(" ")),
        ]
    }
}

fn sign(key: &[u8], id: &str, timestamp: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is a key");
    for part in [id, ".", &timestamp.to_string(), ".", body] {
        mac.update(part.as_bytes());
    }
    format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &str = r#"{"test": 2432232314}"#;

    fn signature(secrets: &[&str]) -> String {
        let secrets: Vec<Secret> = secrets.iter().map(|text| Secret::new(*text)).collect();
        let headers = Signer::new(&secrets).headers(ID, 1_614_265_330, BODY);
        assert_eq!(headers[0], ("webhook-id", ID.to_owned()));
        assert_eq!(headers[1], ("webhook-timestamp", "1614265330".to_owned()));
        assert_eq!(headers[2].0, "webhook-signature");
        headers[2].1.clone()
    }

    #[test]
    fn the_published_example_is_signed_as_published() {
        assert_eq!(signature(&[SECRET]), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_give_two_signatures() {
        let (old, new) = (signature(&[SECRET]), signature(&["plain text"]));
        assert_ne!(old, new);
        assert_eq!(signature(&[SECRET, "plain text"]), format!("{old} {new}"));
    }

    #[test]
    fn without_a_secret_nothing_is_signed() {
        assert!(Signer::default().headers("id", 1, "{}").is_empty());
    }

    #[test]
    fn secrets_are_base64_only_where_they_say_so() {
        assert_eq!(key(&Secret::new("whsec_aGk=")).unwrap(), b"hi");
        assert_eq!(key(&Secret::new("whsec_aGk")).unwrap(), b"hi");
        assert_eq!(key(&Secret::new("aGk=")).unwrap(), b"aGk=");
        for bad in ["", "whsec_", "whsec_hunter2!"] {
            let problem = key(&Secret::new(bad)).unwrap_err();
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }
}
