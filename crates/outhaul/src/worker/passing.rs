//! Passes messages on to other processes while this one may not claim: it runs a chunk alone, or stops.
//! Nothing is claimed here; the chunks are announced again, for whoever is free.

use std::sync::Arc;

use outhaul_core::announcement::{ChunkName, NotClaimed};
use outhaul_core::delivery::{Delivery, Message};
use outhaul_core::id::WorkerId;
use outhaul_core::store::{Store, StoreResult};
use tokio_util::sync::CancellationToken;

use super::later::{Later, SOON};
use super::park;
use crate::duty::Outage;

/// The most messages in one look.
const BATCH: usize = 1000;

/// What passes the messages of one process on.
#[derive(Clone)]
pub(crate) struct Passing {
    pub(crate) id: WorkerId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) delivery: Arc<dyn Delivery>,
}

impl Passing {
    /// Passes on what arrives until the token is cancelled, and returns what could not be; ends at once
    /// without a broker.
    pub(crate) async fn run(&self, over: &CancellationToken) -> Vec<Message> {
        let mut outage = Outage::new("passing on messages");
        while !over.is_cancelled() {
            let hint = self.delivery.arm();
            let Some(mut messages) = self.delivery.take(BATCH) else { break };
            let more = messages.len() == BATCH;
            while let Err(error) = self.pass_on(&mut messages).await {
                tokio::select! {
                    () = tokio::time::sleep(outage.failed(&error)) => {}
                    () = over.cancelled() => return messages,
                }
            }
            outage.over();
            if more {
                continue;
            }
            tokio::select! {
                () = hint => {}
                () = over.cancelled() => {}
            }
        }
        Vec::new()
    }

    /// Passes these on; after an error they are all still there.
    pub(super) async fn pass_on(&self, messages: &mut Vec<Message>) -> StoreResult<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let names: Vec<ChunkName> = messages.iter().map(|message| message.name.clone()).collect();
        // Nothing is wanted, so nothing is claimed: the answer says which chunks these are.
        let looked_up = self.store.chunks_claim_named(self.id, &names, &[], 0).await?;
        let mut named: Vec<_> = messages.drain(..).map(Some).collect();
        let mut later = Later::default();
        for (place, why) in looked_up.left {
            let message = named.get_mut(place).and_then(Option::take);
            match why {
                NotClaimed::Unknown => park(self.delivery.as_ref(), message),
                NotClaimed::Over => drop(message),
                NotClaimed::NotNow { chunk, .. } => later.add(chunk, SOON, message),
            }
        }
        let told = later.tell(self.store.as_ref()).await;
        if told.is_err() {
            messages.extend(later.into_messages());
        }
        told
    }
}
