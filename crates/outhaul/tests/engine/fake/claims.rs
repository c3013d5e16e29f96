//! How the store in memory claims: whatever is QUEUED, or what is named.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use outhaul::core::announcement::{ANNOUNCEMENT_DEFERRED, ChunkName, NamedClaims, NotClaimed, NotNow};
use outhaul::core::clock;
use outhaul::core::id::{ChunkId, JobId, Lease};
use outhaul::core::state::{self, ChunkState, Event};
use outhaul::core::worker::{ClaimedChunk, Want};
use outhaul_core::json::Json;

use super::rows::{Row, Rows};

fn job_id(id: usize) -> JobId {
    JobId::new(DateTime::<Utc>::UNIX_EPOCH, id as u64)
}

/// What a message says of the chunk that was added as the `id`th.
pub(super) fn name(id: usize, key: &str) -> ChunkName {
    ChunkName { job_id: job_id(id).to_string(), chunk_key: key.to_owned() }
}

fn limits(wants: &[Want]) -> BTreeMap<i64, u32> {
    wants.iter().map(|want| (want.queue.0, want.limit)).collect()
}

impl Row {
    fn is_queued(&self) -> bool {
        self.chunk.state == ChunkState::Queued && !self.job_cancelled
    }

    fn claim(&mut self, id: usize, lease: Duration) -> ClaimedChunk {
        self.chunk = state::apply(self.chunk, Event::Claim).unwrap();
        self.expires = Instant::now() + lease;
        ClaimedChunk {
            lease: Lease { chunk: ChunkId(id as i64), fence: self.chunk.fence },
            queue: self.queue,
            job_id: job_id(id),
            job_type: self.job_type.clone(),
            dataset: None,
            owner: "anonymous".to_owned(),
            params: Json::null(),
            chunk_key: self.key.clone(),
            key: None,
            effective_date: None,
            attempt: self.chunk.attempt,
            lost: self.chunk.lost,
            submitted_at: clock::now(),
            claimed_at: clock::now(),
        }
    }
}

impl Rows {
    pub(super) fn claim(&mut self, wants: &[Want], total: u32, lease: Duration) -> Vec<ClaimedChunk> {
        self.looks += 1;
        let mut left = limits(wants);
        let mut claimed = Vec::new();
        for (id, row) in self.chunks.iter_mut().enumerate() {
            let Some(limit) = left.get_mut(&row.queue.0) else { continue };
            if row.is_queued() && *limit > 0 && claimed.len() < total as usize {
                *limit -= 1;
                claimed.push(row.claim(id, lease));
            }
        }
        if !claimed.is_empty() {
            self.claims.push(claimed.len());
        }
        claimed
    }

    pub(super) fn claim_named(
        &mut self,
        names: &[ChunkName],
        wants: &[Want],
        total: u32,
        lease: Duration,
    ) -> NamedClaims {
        self.named.push(names.iter().map(|name| name.chunk_key.clone()).collect());
        let mut left = limits(wants);
        let mut claims = NamedClaims::default();
        for (place, wanted) in names.iter().enumerate() {
            let mut found = self.chunks.iter_mut().enumerate();
            let Some((id, row)) = found.find(|(id, row)| name(*id, &row.key) == *wanted) else {
                claims.left.push((place, NotClaimed::Unknown));
                continue;
            };
            let limit = left.get_mut(&row.queue.0);
            let because = if self.paused.contains(&row.queue.0) {
                NotNow::Paused
            } else {
                match limit {
                    None => NotNow::UnknownQueue,
                    Some(limit) if row.is_queued() && *limit > 0 && claims.claimed.len() < total as usize => {
                        *limit -= 1;
                        claims.claimed.push((place, row.claim(id, lease)));
                        continue;
                    }
                    Some(_) => NotNow::NoSlot,
                }
            };
            let chunk = ChunkId(id as i64);
            if row.is_queued() && because == NotNow::NoSlot {
                self.deferred.push((chunk, ANNOUNCEMENT_DEFERRED));
            }
            let not_now = NotClaimed::NotNow { chunk, queue: row.queue, because };
            claims.left.push((place, if row.is_queued() { not_now } else { NotClaimed::Over }));
        }
        claims
    }
}
