//! What is wrong with certificates is said before anything is connected to, and never with a key in it.

use super::*;

#[test]
fn certificates_that_are_none_are_refused() {
    for ca in ["", "not PEM", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
        let settings = TlsSettings { ca: Some(ca.to_owned()), client: None };
        let error = connector(&settings).err().unwrap();
        assert!(error.0.contains("CA file"), "{error}");
    }
}

#[test]
fn a_bad_key_is_refused_without_being_shown() {
    let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----BROKEN";
    let error = client_key(&Secret::new(key)).unwrap_err();
    assert!(error.0.contains("client key") && !error.0.contains("c2VjcmV0"), "{error}");
}

#[test]
fn the_machines_own_certificates_are_found_or_missed_aloud() {
    match connector(&TlsSettings::default()) {
        Ok(_) => {}
        Err(error) => assert!(error.0.contains("install its CA certificates"), "{error}"),
    }
}
