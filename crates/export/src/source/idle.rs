//! Connections between two chunks, by the slot they run under: one each at most, and none for long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What waits to be used again.
#[derive(Debug)]
pub(super) struct Idle<T> {
    shelf: Mutex<Shelf<T>>,
    keep_for: Duration,
}

#[derive(Debug)]
struct Shelf<T> {
    kept: HashMap<String, (Instant, T)>,
    watched: bool,
}

impl<T: Send + 'static> Idle<T> {
    pub(super) fn new(keep_for: Duration) -> Arc<Self> {
        Arc::new(Self { shelf: Mutex::new(Shelf { kept: HashMap::new(), watched: false }), keep_for })
    }

    /// Takes the value that is kept under a name, with the time for which it was kept.
    pub(super) fn take(&self, name: &str) -> Option<(T, Duration)> {
        self.lock().kept.remove(name).map(|(since, item)| (item, since.elapsed()))
    }

    pub(super) fn keep(self: &Arc<Self>, name: String, item: T) {
        let mut shelf = self.lock();
        // Two of one name cannot be: the slot is held by one chunk at a time. If they are, the older goes.
        shelf.kept.insert(name, (Instant::now(), item));
        if !std::mem::replace(&mut shelf.watched, true) {
            tokio::spawn(Arc::clone(self).watch());
        }
    }

    /// Runs while anything is kept.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.keep_for / 2).await;
            let mut shelf = self.lock();
            shelf.kept.retain(|_, (since, _)| since.elapsed() < self.keep_for);
            if shelf.kept.is_empty() {
                shelf.watched = false;
                return;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shelf<T>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_not_used_again_soon_is_dropped() {
        let idle = Idle::new(Duration::from_millis(2));
        let item = Arc::new(());
        let weak = Arc::downgrade(&item);
        idle.keep("slot".into(), item);
        assert!(idle.take("other").is_none());
        let gone = async {
            while weak.upgrade().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone).await.expect("dropped by the watch");
        assert!(idle.take("slot").is_none());
        let item = Arc::new(());
        idle.keep("slot".into(), Arc::clone(&item));
        assert!(idle.lock().watched, "watched again after it was empty");
    }
}
