//! How workers learn that a chunk is ready. The store is the truth: losing what a delivery carries loses no
//! chunk, only time. By the database that is a poll interval; by a broker a lost message is sent again after
//! 10 seconds to 32 times `expiry`, and while the broker is away no chunk starts.

mod activemq;
pub mod broker;
mod brokered;
mod database;
mod feed;
mod health;
mod inbox;
mod ledger;
mod message;
mod nudges;
mod parker;
mod rabbitmq;
mod reconnect;
mod relay;
mod settings;
mod stomp;
#[cfg(test)]
mod tests;
mod tls;

pub use activemq::ActiveMq;
pub use brokered::BrokerDelivery;
pub use database::DatabaseDelivery;
pub use health::DeliveryHealth;
pub use rabbitmq::RabbitMq;
pub use relay::RelaySettings;
pub use settings::{
    BrokerKind, BrokerSettings, HEARTBEATS, PARKING_QUEUE, QueueProblem, TlsSettings, WORK_QUEUE,
};
