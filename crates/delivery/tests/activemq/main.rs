//! The ActiveMQ broker against a real one: what it promises of receipts, acknowledgements and failures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod consume;
mod failures;
mod foreign;
mod publish;
mod support;
