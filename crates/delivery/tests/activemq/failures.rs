//! Brokers that are not there, refuse, die or fall silent: always an error in the end, never a hang.

use std::process::Command;
use std::time::Duration;

use outhaul_core::secret::Secret;
use outhaul_delivery::broker::Broker;
use outhaul_delivery::{ActiveMq, BrokerSettings, TlsSettings};
use outhaul_testkit::servers::{BrokerKind, PrivateBroker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::support::{bodies, break_of, broker, drain, settings, shared, soon, work};

async fn refused(settings: &BrokerSettings) -> String {
    let broker = broker(settings);
    let Err(error) = soon(broker.publisher()).await else { panic!("publishes to {}", broker.describe()) };
    let Err(same) = soon(broker.consumer(1)).await else { panic!("consumes from {}", broker.describe()) };
    assert_eq!(error.0, same.0);
    error.0
}

#[tokio::test]
async fn a_wrong_password_is_said_so_without_it() {
    let settings = BrokerSettings { password: Secret::new("hunter2"), ..shared() };
    let error = refused(&settings).await;
    assert!(error.contains("password is invalid") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_an_error() {
    // Held, so that nobody else listens there; but it does not listen either.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let settings = BrokerSettings { port: closed.local_addr().unwrap().port(), ..shared() };
    let error = refused(&settings).await;
    assert!(error.contains("cannot reach the broker"), "{error}");
}

#[tokio::test]
async fn a_server_of_another_protocol_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = BrokerSettings { port: listener.local_addr().unwrap().port(), ..shared() };
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    let error = refused(&settings).await;
    assert!(error.contains("not STOMP"), "{error}");
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_given_up_and_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = BrokerSettings { port: listener.local_addr().unwrap().port(), ..shared() };
    let silent = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        // Ends only when the other side closes: nothing of the attempt may be left behind.
        socket.read_to_end(&mut Vec::new()).await.unwrap()
    });
    let Err(error) = soon(broker(&settings).publisher()).await else {
        panic!("connected to a silent server")
    };
    assert!(error.0.contains("does not answer"), "{error}");
    assert!(soon(silent).await.unwrap() > 0);
}

#[tokio::test]
async fn a_killed_broker_is_an_error_and_keeps_what_it_confirmed() {
    let server = PrivateBroker::start(BrokerKind::ActiveMq);
    let settings = settings(server.url(), TlsSettings::default());
    let broker = broker(&settings);
    let mut publisher = soon(broker.publisher()).await.unwrap();
    let mut consumer = soon(broker.consumer(1)).await.unwrap();
    let batch: Vec<_> = (0..100).map(work).collect();
    assert_eq!(soon(publisher.publish(&batch)).await.unwrap(), vec![Ok(()); 100]);

    server.kill9();
    break_of(consumer.as_mut()).await;
    assert!(consumer.acknowledge(&[]).await.is_err());
    assert!(soon(publisher.publish(&batch)).await.is_err());
    assert!(soon(publisher.probe()).await.is_err());
    soon(publisher.close()).await;
    soon(consumer.close()).await;

    server.start_again();
    let mut consumer = soon(broker.consumer(100)).await.unwrap();
    assert!(drain(consumer.as_mut(), 100).await == bodies(&batch));
}

/// SIGSTOP: its connections stay, and nothing answers on them. Its end is the end of the test.
fn stop_answering(server: &PrivateBroker) {
    let pid = std::fs::read_to_string(server.ca_file().with_file_name("activemq.pid")).unwrap();
    assert!(Command::new("kill").args(["-STOP", pid.trim()]).status().unwrap().success());
}

#[tokio::test]
async fn a_broker_that_hangs_silently_is_noticed_on_both_sides() {
    let server = PrivateBroker::start(BrokerKind::ActiveMq);
    let settings = BrokerSettings {
        heartbeat: Duration::from_secs(5),
        ..settings(server.url(), TlsSettings::default())
    };
    let broker = broker(&settings);
    let mut publisher = soon(broker.publisher()).await.unwrap();
    let mut consumer = soon(broker.consumer(1)).await.unwrap();

    stop_answering(&server);
    let error = break_of(consumer.as_mut()).await;
    assert!(error.0.contains("said nothing for 10 s"), "{error}");
    let error = soon(publisher.publish(&[work(0), work(1)])).await.unwrap_err();
    assert!(error.0.contains("said nothing for 10 s"), "{error}");
    soon(publisher.close()).await;
    soon(consumer.close()).await;
}

#[tokio::test]
async fn tls_is_spoken_with_a_broker_that_proves_who_it_is_and_with_no_other() {
    let ca = std::fs::read_to_string(BrokerKind::ActiveMq.shared_ca_file()).unwrap();
    let url = BrokerKind::ActiveMq.shared_tls_url();
    let trusting = settings(&url, TlsSettings { ca: Some(ca), client: None });
    let trusted = broker(&trusting);
    assert!(trusted.describe().starts_with("stomps://"));
    let mut publisher = soon(trusted.publisher()).await.unwrap();
    let batch: Vec<_> = (0..1000).map(work).collect();
    assert_eq!(soon(publisher.publish(&batch)).await.unwrap(), vec![Ok(()); 1000]);
    soon(publisher.probe()).await.unwrap();
    soon(publisher.close()).await;
    let mut consumer = soon(trusted.consumer(100)).await.unwrap();
    assert!(drain(consumer.as_mut(), 1000).await == bodies(&batch));
    soon(consumer.close()).await;

    let distrusting = BrokerSettings { tls: Some(TlsSettings::default()), ..trusting };
    let error = match ActiveMq::new(distrusting) {
        Ok(broker) => soon(broker.publisher()).await.err().unwrap(),
        // A machine that trusts nobody.
        Err(error) => error,
    };
    assert!(error.0.contains("certificate"), "{error}");
}
