//! Job types whose steps are HTTP calls, for services in any language. A step's answer is recorded before
//! the next one begins, so a step is called at least once and, once recorded, never again.

mod address;
mod allow;
mod answer;
mod ask;
mod call;
mod client;
mod dial;
pub(crate) mod graph;
mod handler;
pub(crate) mod sign;
#[cfg(test)]
mod tests;
mod threads;
mod trace;

pub use self::allow::Allow;
pub(crate) use self::ask::{Answer, Question};
pub use self::client::{Client, ClientError};
pub use self::handler::HttpJob;
