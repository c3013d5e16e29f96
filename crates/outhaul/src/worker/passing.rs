//! Passes messages on that this process was handed and cannot claim now: their chunks are announced again, for
//! whoever is free.

use outhaul_core::announcement::{ChunkName, NotClaimed};
use outhaul_core::delivery::Message;
use outhaul_core::store::StoreResult;

use super::later::{Later, SOON};
use super::{Worker, park};

impl Worker {
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
