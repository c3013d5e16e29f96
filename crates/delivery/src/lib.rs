//! How workers learn that a chunk is ready. Every delivery here is a source of hints: losing one, or
//! all of them, costs a poll interval and nothing else.

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
pub use settings::{BrokerKind, BrokerSettings, PARKING_QUEUE, TlsSettings, WORK_QUEUE};
