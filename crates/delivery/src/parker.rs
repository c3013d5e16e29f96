//! Puts messages aside that are not ours: into the outbox first, and only then acknowledged, so that a
//! crash in between loses none. Others do not wait for it, also while the store is away.

use std::sync::Arc;
use std::time::Duration;

use outhaul_core::delivery::Receipt;
use outhaul_core::outbox::NewOutboxMessage;
use outhaul_core::retry::Backoff;
use outhaul_core::store::StoreError;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ledger::Ledger;
use crate::message;

const BACKOFF: Backoff =
    Backoff::Exponential { base: Duration::from_millis(200), max: Duration::from_secs(5), jitter: true };

/// Where messages to be put aside are handed in.
#[derive(Clone)]
pub(crate) struct Parker(mpsc::UnboundedSender<Aside>);

/// A message on its way into the outbox. Never acknowledged by being forgotten.
struct Aside {
    message: NewOutboxMessage,
    cause: String,
    /// More than one, if the broker handed it out again meanwhile.
    receipts: Vec<Receipt>,
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.receipts.drain(..).for_each(Receipt::abandon);
    }
}

impl Parker {
    /// Starts the task, which ends with the token; `sent` is told of every message in the outbox.
    pub(crate) fn new(
        ledger: Arc<dyn Ledger>,
        sent: Arc<Notify>,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()>) {
        let (waiting, handed) = mpsc::unbounded_channel();
        (Self(waiting), run(ledger, handed, sent, stop))
    }

    /// Hands in a message as it came, with the reason for people.
    pub(crate) fn park(&self, body: &[u8], cause: &str, receipt: Receipt) {
        self.hand_in(message::foreign(body, cause), cause, receipt);
    }

    /// The same with what was read of a message of so many bytes.
    pub(crate) fn park_beginning(&self, beginning: &[u8], length: usize, cause: &str, receipt: Receipt) {
        self.hand_in(message::foreign_beginning(beginning, length, cause), cause, receipt);
    }

    fn hand_in(&self, message: NewOutboxMessage, cause: &str, receipt: Receipt) {
        // Nobody takes it: the process stops, and the broker hands the message to another.
        let _ = self.0.send(Aside { message, cause: cause.to_owned(), receipts: vec![receipt] });
    }
}

async fn run(
    ledger: Arc<dyn Ledger>,
    mut handed: mpsc::UnboundedReceiver<Aside>,
    sent: Arc<Notify>,
    stop: CancellationToken,
) {
    let (mut pending, mut failures) = (Vec::new(), 0u32);
    loop {
        // What cannot be put aside now is tried again with what came since, no later than the wait.
        let wait = if failures == 0 { Duration::MAX } else { BACKOFF.wait(failures, rand::random()) };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait), if !pending.is_empty() => {}
            aside = handed.recv() => match aside {
                Some(aside) => add(&mut pending, aside),
                None => return,
            },
        }
        while let Ok(aside) = handed.try_recv() {
            add(&mut pending, aside);
        }
        match put_all(&*ledger, &mut pending).await {
            Ok(()) if failures > 0 => {
                info!(failures, "messages can be put aside again");
                failures = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if failures == 0 {
                    let waiting = pending.len();
                    warn!(waiting, %error, "messages cannot be put aside, trying again: {error}");
                }
                failures = failures.saturating_add(1);
            }
        }
        sent.notify_one();
    }
}

fn add(pending: &mut Vec<Aside>, mut aside: Aside) {
    match pending.iter_mut().find(|known| known.message.message_id == aside.message.message_id) {
        Some(known) => known.receipts.append(&mut aside.receipts),
        None => pending.push(aside),
    }
}

/// One by one, so that a message which the store refuses holds up no other.
async fn put_all(ledger: &dyn Ledger, pending: &mut Vec<Aside>) -> Result<(), StoreError> {
    let mut failed = None;
    let mut left = Vec::new();
    for mut aside in pending.drain(..) {
        if matches!(failed, Some(StoreError::Unavailable(_))) {
            left.push(aside);
            continue;
        }
        match ledger.outbox_put(std::slice::from_ref(&aside.message)).await {
            Ok(()) => {
                let (message_id, cause) = (&aside.message.message_id, &aside.cause);
                warn!(%message_id, "a message of the work queue is parked as {message_id}: {cause}");
                metrics::counter!("outhaul_messages_parked_total").increment(1);
                aside.receipts.clear();
            }
            Err(error) => {
                failed = Some(error);
                left.push(aside);
            }
        }
    }
    *pending = left;
    failed.map_or(Ok(()), Err)
}
