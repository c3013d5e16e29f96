//! The RabbitMQ broker against a real one: what it promises of confirms, acknowledgements and failures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod consume;
mod failures;
mod foreign;
mod publish;
mod tls;
