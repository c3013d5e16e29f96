//! STOMP 1.2 as a client needs it: frames, their bytes, and a connection that keeps itself alive.
//! Nothing here knows about chunks or queues.

mod codec;
mod connection;
#[cfg(test)]
pub(crate) mod fake;
mod frame;

pub(crate) use codec::StompCodec;
pub(crate) use connection::{Connection, Login, encode};
pub(crate) use frame::Frame;
