//! AMQP through TLS, to the shared broker itself and to a proxy before it that asks for a certificate. The
//! files in `tls/` are the proxy's: good for a hundred years and for nothing else, all signed by `ca.pem`.

use std::sync::Arc;

use outhaul_core::secret::Secret;
use outhaul_delivery::broker::Broker;
use outhaul_delivery::{BrokerKind, BrokerSettings, RabbitMq, TlsSettings};
use outhaul_testkit::servers;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::admin::{Admin, body, soon, work};

const CA: &str = include_str!("tls/ca.pem");
const SERVER: (&str, &str) = (include_str!("tls/server.pem"), include_str!("tls/server.key"));
const CLIENT: (&str, &str) = (include_str!("tls/client.pem"), include_str!("tls/client.key"));

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Listens with the server's certificate, and asks for a client's.
async fn proxy(broker: (String, u16)) -> u16 {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate(CA)).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let key = PrivateKeyDer::from_pem_slice(SERVER.1.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![certificate(SERVER.0)], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    // On every address: 127.0.0.2 must reach it too.
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (acceptor, broker) = (acceptor.clone(), broker.clone());
            tokio::spawn(async move {
                // Clients that are refused, or leave, are what these tests are about.
                let Ok(mut client) = acceptor.accept(socket).await else { return };
                let mut broker = TcpStream::connect(broker).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut broker).await;
            });
        }
    });
    port
}

fn settings(admin: &Admin, port: u16, host: &str, ca: Option<&str>, client: bool) -> BrokerSettings {
    let client = client.then(|| (CLIENT.0.to_owned(), Secret::new(CLIENT.1)));
    let tls = Some(TlsSettings { ca: ca.map(str::to_owned), client });
    BrokerSettings { host: host.to_owned(), port, tls, ..admin.settings() }
}

#[tokio::test]
async fn the_brokers_own_certificate_is_checked() {
    let admin = Admin::new().await;
    let shared = servers::BrokerKind::RabbitMq;
    let url = Secret::new(shared.shared_tls_url());
    let read = |ca: String| {
        let tls = TlsSettings { ca: Some(ca), client: None };
        let settings = BrokerSettings::read(BrokerKind::RabbitMq, &url, tls)
            .unwrap()
            .with_queues(&admin.work, &admin.parking);
        RabbitMq::new(settings.unwrap()).unwrap()
    };
    let broker = read(std::fs::read_to_string(shared.shared_ca_file()).unwrap());
    assert!(broker.describe().starts_with("amqps://"), "{}", broker.describe());
    let mut publisher = soon(broker.publisher()).await.unwrap();
    assert_eq!(publisher.publish(&[work("a")]).await.unwrap(), [Ok(())]);
    let mut consumer = soon(broker.consumer(1)).await.unwrap();
    assert_eq!(body(&soon(consumer.next()).await.unwrap()), work("a").body);

    let Err(error) = soon(read(CA.to_owned()).publisher()).await else { panic!("any certificate will do") };
    assert!(error.to_string().contains("TLS failed"), "{error}");
}

#[tokio::test]
async fn messages_go_through_tls_with_certificates_on_both_sides() {
    let admin = Admin::new().await;
    let plain = admin.settings();
    let port = proxy((plain.host, plain.port)).await;
    for host in ["localhost", "127.0.0.1"] {
        let broker = RabbitMq::new(settings(&admin, port, host, Some(CA), true)).unwrap();
        let mut publisher = soon(broker.publisher()).await.unwrap();
        // More than one TLS record, many of them.
        let batch: Vec<_> = (0..500).map(|n| work(&format!("{host}{n}"))).collect();
        assert!(soon(publisher.publish(&batch)).await.unwrap().iter().all(Result::is_ok));
        let mut consumer = soon(broker.consumer(500)).await.unwrap();
        for message in &batch {
            let received = soon(consumer.next()).await.unwrap();
            assert_eq!(body(&received), message.body);
            consumer.acknowledge(&[received.tag]).await.unwrap();
        }
        soon(publisher.close()).await;
        soon(consumer.close()).await;
    }
    admin.wait_for_messages(&admin.work, 0).await;
}

#[tokio::test]
async fn a_broker_that_cannot_prove_itself_is_not_spoken_to() {
    let admin = Admin::new().await;
    let plain = admin.settings();
    let port = proxy((plain.host, plain.port)).await;
    for (case, settings) in [
        ("another CA", settings(&admin, port, "localhost", Some(CLIENT.0), true)),
        ("another host", settings(&admin, port, "127.0.0.2", Some(CA), true)),
        ("no client certificate", settings(&admin, port, "localhost", Some(CA), false)),
        ("a broker without TLS", settings(&admin, plain.port, "127.0.0.1", Some(CA), true)),
    ] {
        let broker = RabbitMq::new(settings).unwrap();
        let Err(error) = soon(broker.publisher()).await else { panic!("{case}: connected") };
        assert!(error.to_string().contains("TLS"), "{case}: {error}");
    }
    let bad = TlsSettings { ca: Some("not PEM".to_owned()), client: None };
    assert!(RabbitMq::new(BrokerSettings { tls: Some(bad), ..admin.settings() }).is_err());
}
