//! The outbox: messages written in the same transaction as what they tell of, sent afterwards by a
//! relay, and deleted when the broker has confirmed them. Duplicates carry the same message id.

/// A message to be sent, written by itself; those that tell of a death are written with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOutboxMessage {
    /// The same for every time that it is sent; one that is in the outbox already is not added again.
    pub message_id: String,
    /// JSON text.
    pub body: String,
}

/// A message of the outbox that is to be sent to the parking queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxMessage {
    /// Its place in the outbox.
    pub id: i64,
    /// The same for every time that it is sent.
    pub message_id: String,
    /// JSON text.
    pub body: String,
}
