//! Kills that go by how far the work is: a slow machine does not kill faster than it works, and a fast one has
//! not finished before the first kill.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::RngExt;

use super::Client;

/// Tells killers to stop, also when the test fails before its end: they would go on for ever.
#[derive(Default)]
pub struct StopKilling(Arc<AtomicBool>);

impl StopKilling {
    /// What a killer goes by.
    pub fn progress(&self) -> Progress {
        Progress { over: self.0.clone(), done: 0 }
    }
}

impl Drop for StopKilling {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How far the work is, as one killer has seen it last.
pub struct Progress {
    over: Arc<AtomicBool>,
    done: u64,
}

impl Progress {
    /// Waits until some more is done, at random; `false`: there is nothing more to wait for. `look` says how much
    /// is done, and `None` while nobody can tell.
    pub async fn goes_on<F: Future<Output = Option<u64>>>(
        &mut self,
        more: Range<u64>,
        mut look: impl FnMut() -> F,
    ) -> bool {
        let wanted = self.done + rand::rng().random_range(more);
        loop {
            self.done = look().await.unwrap_or(self.done);
            if self.over.load(Ordering::Relaxed) {
                return false;
            }
            if self.done >= wanted {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// How many chunks of a job are done; `None` while the API cannot tell.
pub async fn done(client: &Client, job: &str) -> Option<u64> {
    match client.get(&format!("/jobs/{job}")).await {
        Ok((200, job)) => job["done"].as_u64(),
        _ => None,
    }
}
