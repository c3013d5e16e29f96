//! What is put aside is acknowledged after that, and never without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use outhaul_core::delivery::Receipt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::MemoryLedger;
use crate::parker::Parker;

/// Counts what is acknowledged.
#[derive(Clone, Default)]
struct Acknowledged(Arc<AtomicUsize>);

impl Acknowledged {
    fn receipt(&self) -> Receipt {
        let count = self.0.clone();
        Receipt::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn what_is_not_in_the_outbox_is_never_acknowledged() {
    let (ledger, acknowledged) = (MemoryLedger::new(), Acknowledged::default());
    ledger.0.change(|state| state.away = true);
    let (parker, running) = Parker::new(ledger, Arc::default(), CancellationToken::new());
    parker.park(b"taken up", "why", acknowledged.receipt());
    let mut running = Box::pin(running);
    assert!((&mut running).now_or_never().is_none(), "it waits for the store");
    parker.park(b"not taken up", "why", acknowledged.receipt());
    drop(running);
    parker.park(b"too late", "why", acknowledged.receipt());
    assert_eq!(acknowledged.count(), 0);
}

#[tokio::test]
async fn a_message_handed_out_again_is_put_once_and_one_that_is_refused_holds_up_no_other() {
    let (ledger, acknowledged, sent) =
        (MemoryLedger::new(), Acknowledged::default(), Arc::new(Notify::new()));
    ledger.0.change(|state| state.refuse = Some("first"));
    let (parker, running) = Parker::new(ledger.clone(), sent.clone(), CancellationToken::new());
    for body in ["first", "second", "second", "third"] {
        parker.park(body.as_bytes(), "why", acknowledged.receipt());
    }
    let running = tokio::spawn(running);
    sent.notified().await;
    assert_eq!((ledger.0.read(|state| state.puts), acknowledged.count()), (2, 3));
    ledger.0.change(|state| state.refuse = None);
    ledger.0.until("the first is tried again", |state| state.puts == 3).await;
    sent.notified().await;
    assert_eq!(acknowledged.count(), 4);
    running.abort();
}
