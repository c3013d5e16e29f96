//! Brokers as installations have them: processes of the built binary beside a real RabbitMQ or ActiveMQ,
//! `kill -9` of any of them, and Python clients that read and write the same queues.

#[path = "../common/mod.rs"]
mod common;

mod broken_relay;
mod foreign;
mod kill_run;
mod order;
mod other_languages;
mod outages;
mod parking;
mod roles;
mod secrets;
mod site;
mod sockets;
mod turns;
mod wire;

/// Makes two tests of each function: one with RabbitMQ, one with ActiveMQ.
macro_rules! with_both {
    ($($name:ident),* $(,)?) => {
        mod activemq {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(outhaul_testkit::servers::BrokerKind::ActiveMq).await;
            })*
        }
        mod rabbitmq {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(outhaul_testkit::servers::BrokerKind::RabbitMq).await;
            })*
        }
    };
}
pub(crate) use with_both;
