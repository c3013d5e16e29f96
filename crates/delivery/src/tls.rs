//! The socket under a broker's connection: plain TCP, or TLS on aws-lc-rs, which is named here so that no
//! other crate's choice of a provider matters.

use std::sync::Arc;

use outhaul_core::secret::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::TlsSettings;
use crate::broker::BrokerError;

#[cfg(test)]
mod tests;

/// A socket of either kind.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// Connects; with a connector, through TLS, and only to a server that proves to be `host`.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    tls: Option<&TlsConnector>,
) -> Result<Box<dyn Socket>, BrokerError> {
    let unreachable = |error| BrokerError(format!("cannot reach the broker at {host} port {port}: {error}"));
    let stream = TcpStream::connect((host, port)).await.map_err(unreachable)?;
    // Frames are small and their answers awaited.
    stream.set_nodelay(true).map_err(unreachable)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| BrokerError(format!("{host} is not a name that a certificate could have")))?;
    let stream = tls
        .connect(name, stream)
        .await
        .map_err(|error| BrokerError(format!("no TLS with the broker at {host} port {port}: {error}")))?;
    Ok(Box::new(stream))
}

/// Reads the certificates. Done once: the machine's own are a few hundred.
pub(crate) fn connector(settings: &TlsSettings) -> Result<TlsConnector, BrokerError> {
    let roots = match &settings.ca {
        Some(pem) => given_roots(pem)?,
        None => machine_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| BrokerError(format!("cannot set up TLS: {error}")))?
        .with_root_certificates(roots);
    let config = match &settings.client {
        Some((certificate, key)) => {
            let key = client_key(key)?;
            config.with_client_auth_cert(certificates(certificate, "the client certificate")?, key).map_err(
                |error| BrokerError(format!("the client certificate and its key cannot be used: {error}")),
            )?
        }
        None => config.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn given_roots(pem: &str) -> Result<RootCertStore, BrokerError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "the broker's CA file")? {
        roots
            .add(certificate)
            .map_err(|error| BrokerError(format!("the broker's CA file has a bad certificate: {error}")))?;
    }
    Ok(roots)
}

fn machine_roots() -> Result<RootCertStore, BrokerError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let cause = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    Err(BrokerError(format!(
        "this machine trusts no certificates{cause}: install its CA certificates, or name the broker's own"
    )))
}

fn certificates(pem: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, BrokerError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(BrokerError(format!("{what} has no certificate in PEM form")))
        }
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(BrokerError(format!("{what} is not PEM"))),
    }
}

/// Its errors do not repeat the parser's, which may quote what it read.
fn client_key(pem: &Secret) -> Result<PrivateKeyDer<'static>, BrokerError> {
    PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).map_err(|_| {
        BrokerError("the client key is not a private key in PEM form without a passphrase".to_owned())
    })
}
