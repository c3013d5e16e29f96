//! Brokers that are not there, refuse, die or fall silent: always an error in the end, never a hang.

use std::process::Command;
use std::time::Duration;

use outhaul_core::secret::Secret;
use outhaul_delivery::broker::Broker;
use outhaul_delivery::{BrokerSettings, RabbitMq};
use outhaul_testkit::servers::{BrokerKind, PrivateBroker};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket};

use crate::admin::{Admin, soon, soon_error, work};

async fn refused(settings: BrokerSettings) -> String {
    let broker = RabbitMq::new(settings).unwrap();
    let described = broker.describe();
    let error = match soon(broker.publisher()).await {
        Ok(_) => panic!("{described} was connected to"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(&described) && !error.contains("hunter2"), "{error}");
    let Err(same) = soon(broker.consumer(1)).await else { panic!("{described} was consumed from") };
    assert!(!same.to_string().contains("hunter2"), "{same}");
    error
}

#[tokio::test]
async fn a_broker_that_refuses_says_why_without_the_password() {
    let admin = Admin::new().await;
    let error = refused(BrokerSettings { password: Secret::new("hunter2"), ..admin.settings() }).await;
    assert!(error.contains("refused the user or the password"), "{error}");
    let error = refused(BrokerSettings { virtual_host: "nowhere".to_owned(), ..admin.settings() }).await;
    assert!(error.contains("virtual host") && error.contains("nowhere"), "{error}");
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_an_error() {
    let admin = Admin::new().await;
    // Held, so that nobody else listens there; but it does not listen either.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = closed.local_addr().unwrap().port();
    let error = refused(BrokerSettings { port, ..admin.settings() }).await;
    assert!(error.contains("refused"), "{error}");
    let error = refused(BrokerSettings { host: "broker.invalid".to_owned(), ..admin.settings() }).await;
    assert!(error.contains("host name"), "{error}");
}

#[tokio::test]
async fn a_broker_that_accepts_and_says_nothing_is_given_up_and_cut_off() {
    let admin = Admin::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings = BrokerSettings { port, ..admin.settings() };
    let silent = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        // Ends only when the other side closes: nothing of the attempt may be left behind.
        socket.read_to_end(&mut Vec::new()).await.unwrap()
    });
    let broker = RabbitMq::new(settings).unwrap();
    let Err(error) = soon(broker.publisher()).await else { panic!("connected to a silent broker") };
    assert!(error.to_string().contains("no answer within"), "{error}");
    assert_eq!(soon(silent).await.unwrap(), b"AMQP\x00\x00\x09\x01".len());
}

#[tokio::test]
async fn something_that_is_not_a_broker_is_an_error() {
    let admin = Admin::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
        }
    });
    let error = refused(BrokerSettings { port, ..admin.settings() }).await;
    assert!(error.contains("AMQP 0.9.1 port"), "{error}");
}

#[tokio::test]
async fn a_broker_that_dies_is_noticed_and_keeps_what_it_confirmed() {
    let server = PrivateBroker::start(BrokerKind::RabbitMq);
    let admin = Admin::at(server.url()).await;
    let broker = admin.broker();
    let mut publisher = broker.publisher().await.unwrap();
    let mut consumer = broker.consumer(1).await.unwrap();
    assert_eq!(publisher.publish(&[work("a"), work("b")]).await.unwrap(), [Ok(()), Ok(())]);
    let held = soon(consumer.next()).await.unwrap();

    server.kill9();
    soon_error(consumer.next()).await;
    soon_error(consumer.acknowledge(std::slice::from_ref(&held.tag))).await;
    soon_error(publisher.probe()).await;
    soon_error(publisher.publish(&[work("c")])).await;
    soon(publisher.close()).await;
    soon(consumer.close()).await;

    server.start_again();
    let mut consumer = broker.consumer(10).await.unwrap();
    for _ in 0..2 {
        let message = soon(consumer.next()).await.unwrap();
        consumer.acknowledge(&[message.tag]).await.unwrap();
    }
    let mut publisher = broker.publisher().await.unwrap();
    assert_eq!(publisher.publish(&[work("d")]).await.unwrap(), [Ok(())]);
}

/// Stops the broker's process: it keeps its connections and says nothing. It is killed with the server.
fn stop(server: &PrivateBroker) {
    // The node itself writes its number there; the server's own file has that of the shell around it.
    let files = std::fs::read_dir(server.ca_file().with_file_name("mnesia")).unwrap();
    let mut numbers =
        files.map(|file| file.unwrap().path()).filter(|file| file.extension() == Some("pid".as_ref()));
    let pid = std::fs::read_to_string(numbers.next().unwrap()).unwrap();
    assert!(Command::new("kill").args(["-STOP", pid.trim()]).status().unwrap().success());
}

#[tokio::test]
async fn a_broker_that_falls_silent_is_noticed() {
    let server = PrivateBroker::start(BrokerKind::RabbitMq);
    let admin = Admin::at(server.url()).await;
    // So short only here, where a heartbeat has to be missed.
    let settings = BrokerSettings { heartbeat: Duration::from_secs(5), ..admin.settings() };
    let broker = RabbitMq::new(settings).unwrap();
    let mut publisher = broker.publisher().await.unwrap();
    let mut consumer = broker.consumer(1).await.unwrap();

    stop(&server);
    let error = soon_error(consumer.next()).await;
    assert!(error.contains("heartbeat"), "{error}");
    soon_error(publisher.probe()).await;
    soon_error(publisher.publish(&[work("a")])).await;
    // Goodbyes to the silent take a few seconds at most, not for ever.
    soon(publisher.close()).await;
    soon(consumer.close()).await;
}
