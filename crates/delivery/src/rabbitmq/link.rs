//! One connection to RabbitMQ. Every question to the broker has a time limit, and a connection that is
//! dropped is cut at once: the client library would otherwise keep a thread for each broker that hangs.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_rs::Tokio;
use lapin::options::QueueDeclareOptions;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::tcp::{AsyncTcpStream, RustlsConnector};
use lapin::types::FieldTable;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, ConnectionProperties, Error, ErrorKind, Queue};
use tokio::net::lookup_host;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use super::socket::{self, FilteredSocket};
use crate::broker::BrokerError;
use crate::settings::BrokerSettings;

/// From the name's lookup to an open AMQP connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// For an answer, and between two signs of progress.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// For a goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// An open connection.
pub(super) struct Link {
    connection: Connection,
    address: String,
    _cut: CutOnDrop,
}

impl Link {
    /// Connects and signs in.
    pub(super) async fn open(
        settings: &BrokerSettings,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, BrokerError> {
        let address = settings.describe();
        match timeout(CONNECT_LIMIT, connect(settings, tls)).await {
            Ok(Ok((connection, cut))) => Ok(Self { connection, address, _cut: cut }),
            Ok(Err(cause)) => Err(BrokerError(format!("cannot connect to {address}: {cause}"))),
            Err(_) => Err(BrokerError(format!(
                "cannot connect to {address}: no answer within {} s",
                CONNECT_LIMIT.as_secs()
            ))),
        }
    }

    /// Where the broker is, for messages.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// A new channel. An error of AMQP ends a channel, not the connection.
    pub(super) async fn channel(&self) -> Result<Channel, BrokerError> {
        self.ask("a channel", self.connection.create_channel()).await
    }

    /// Waits for the broker's answer, within the time limit.
    pub(super) async fn ask<T>(
        &self,
        what: &str,
        answer: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, BrokerError> {
        self.limit(what, answer).await?.map_err(|error| self.failed(what, &error))
    }

    /// Makes sure that a queue exists: declares it durable, and else takes the one that is there.
    pub(super) async fn ensure_queue(&self, name: &str) -> Result<(), BrokerError> {
        let Err(refusal) = self.declare(name, false).await? else { return Ok(()) };
        // It exists with other arguments, or this user may not create queues: both are the team's choice.
        if !matches!(refusal.soft(), Some(AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::ACCESSREFUSED)) {
            return Err(self.failed(&format!("the queue {name}"), &refusal));
        }
        match self.declare(name, true).await? {
            Ok(_) => Ok(()),
            Err(_) => Err(self.failed(&format!("the queue {name}"), &refusal)),
        }
    }

    /// How many messages of a queue wait for a consumer; `None`: there is no such queue. Any answer proves that
    /// the broker is there.
    pub(super) async fn queue_length(&self, name: &str) -> Result<Option<u32>, BrokerError> {
        match self.declare(name, true).await? {
            Ok(queue) => Ok(Some(queue.message_count())),
            Err(error) if error.soft() == Some(AMQPSoftError::NOTFOUND) => Ok(None),
            Err(error) => Err(self.failed(&format!("the queue {name}"), &error)),
        }
    }

    /// Declares a queue on a channel of its own, because a refusal ends the channel.
    async fn declare(&self, name: &str, passive: bool) -> Result<lapin::Result<Queue>, BrokerError> {
        let channel = self.channel().await?;
        let options = QueueDeclareOptions { passive, durable: true, ..QueueDeclareOptions::default() };
        let declared = channel.queue_declare(name.into(), options, FieldTable::default());
        self.limit(&format!("the queue {name}"), declared).await
    }

    /// What a failure on this connection is called. It never quotes a message.
    pub(super) fn failed(&self, what: &str, error: &Error) -> BrokerError {
        BrokerError(format!("{}: {what}: {}", self.address, explain(error)))
    }

    /// Says goodbye. Whatever happens, the connection is gone afterwards.
    pub(super) async fn close(self) {
        let goodbye = timeout(CLOSE_LIMIT, self.connection.close(200, "closing".into())).await;
        if !matches!(goodbye, Ok(Ok(()))) {
            tracing::debug!(broker = self.address, "the broker did not answer the goodbye");
        }
    }

    /// The same as `ask`, for one who tells the broker's refusals apart.
    async fn limit<T>(&self, what: &str, answer: impl Future<Output = T>) -> Result<T, BrokerError> {
        timeout(ANSWER_LIMIT, answer).await.map_err(|_| {
            let reason = if self.connection.status().blocked() {
                "the broker takes no messages (its alarm for memory or disk is on)".to_owned()
            } else {
                format!("no answer within {} s", ANSWER_LIMIT.as_secs())
            };
            BrokerError(format!("{}: {what}: {reason}", self.address))
        })
    }
}

async fn connect(
    settings: &BrokerSettings,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<(Connection, CutOnDrop), String> {
    let tokio = Tokio::current();
    let addresses: Vec<_> = lookup_host((settings.host.as_str(), settings.port))
        .await
        .map_err(|error| format!("the host name cannot be resolved: {error}"))?
        .collect();
    let plain = AsyncTcpStream::connect(&tokio, addresses).await.map_err(|error| error.to_string())?;
    let AsyncTcpStream::Plain(socket) = &plain else {
        return Err("the socket is not a plain one".to_owned());
    };
    socket.get_ref().set_nodelay(true).map_err(|error| error.to_string())?;
    // Held from here on: when the time limit drops this function half-way, the socket is cut.
    let cut = CutOnDrop(second_handle(socket.get_ref()).map_err(|error| error.to_string())?);

    let stream = match tls {
        None => plain,
        Some(tls) => plain
            .into_rustls(&RustlsConnector::from(Arc::clone(tls)), &settings.host)
            .await
            .map_err(|error| format!("TLS failed: {error}"))?,
    };
    // Handed out once: the library must not connect again by itself.
    let stream = Mutex::new(Some(AsyncTcpStream::Plain(FilteredSocket::new(stream))));
    let hand_over = async move |_, _| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.ok_or_else(|| Error::from(io::Error::from(io::ErrorKind::NotConnected)))
    };
    let connection = Connection::connector(uri(settings), socket::runtime(&tokio), hand_over, properties())
        .await
        .map_err(|error| explain_sign_in(&error))?;
    Ok((connection, cut))
}

fn uri(settings: &BrokerSettings) -> AMQPUri {
    let heartbeat = u16::try_from(settings.heartbeat.as_secs()).unwrap_or(u16::MAX).max(1);
    AMQPUri {
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo {
                username: settings.user.clone(),
                password: settings.password.expose().to_owned(),
            },
            host: settings.host.clone(),
            port: settings.port,
        },
        vhost: settings.virtual_host.clone(),
        query: AMQPQueryString { heartbeat: Some(heartbeat), ..AMQPQueryString::default() },
        ..AMQPUri::default()
    }
}

fn properties() -> ConnectionProperties {
    ConnectionProperties::default()
        .with_connection_name("outhaul".into())
        .with_client_property("product".into(), "outhaul".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into())
}

/// Why signing in failed, with what to look at.
fn explain_sign_in(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(protocol) => match protocol.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                "the broker refused the user or the password".to_owned()
            }
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
                format!("the broker refused the virtual host: {}", protocol.get_message())
            }
            _ => explain(error),
        },
        ErrorKind::IOError(_) | ErrorKind::InvalidProtocolVersion(_) | ErrorKind::ParsingError(_) => {
            format!("{}; is this the broker's AMQP 0.9.1 port, and does it speak TLS or not?", explain(error))
        }
        _ => explain(error),
    }
}

fn explain(error: &Error) -> String {
    match error.kind() {
        // The broker's own words, such as `NOT_FOUND - no queue 'q' in vhost '/'`.
        ErrorKind::ProtocolError(protocol) => protocol.get_message().to_string(),
        ErrorKind::MissingHeartbeatError => "no heartbeat from the broker for too long".to_owned(),
        ErrorKind::InvalidChannelState(..)
        | ErrorKind::InvalidChannel(_)
        | ErrorKind::InvalidConnectionState(_) => "the connection is closed".to_owned(),
        ErrorKind::ParsingError(_) => "the broker sent something that is not AMQP 0.9.1".to_owned(),
        ErrorKind::IOError(error) => format!("the connection broke: {error}"),
        _ => error.to_string(),
    }
}

/// The soft error that a broker answered with, if it was one.
trait SoftError {
    fn soft(&self) -> Option<AMQPSoftError>;
}

impl SoftError for Error {
    fn soft(&self) -> Option<AMQPSoftError> {
        match self.kind() {
            ErrorKind::ProtocolError(protocol) => match protocol.kind() {
                AMQPErrorKind::Soft(soft) => Some(soft.clone()),
                AMQPErrorKind::Hard(_) => None,
            },
            _ => None,
        }
    }
}

/// A second handle to the connection's socket, to end it from outside the library.
struct CutOnDrop(TcpStream);

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        // An error: it is cut already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[cfg(unix)]
fn second_handle(socket: &tokio::net::TcpStream) -> io::Result<TcpStream> {
    use std::os::fd::AsFd;
    Ok(socket.as_fd().try_clone_to_owned()?.into())
}

#[cfg(windows)]
fn second_handle(socket: &tokio::net::TcpStream) -> io::Result<TcpStream> {
    use std::os::windows::io::AsSocket;
    Ok(socket.as_socket().try_clone_to_owned()?.into())
}
