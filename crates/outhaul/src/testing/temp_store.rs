//! A store of a test's own: SQLite in a folder that goes with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outhaul_core::store::{Store, StoreError, StoreResult, StoreSettings};
use outhaul_store::sqlite::SqliteStore;

/// An empty store on disk, removed when dropped.
pub struct TempStore {
    store: Arc<dyn Store>,
    _folder: Folder,
}

impl TempStore {
    /// Makes one in the system's folder for temporary files.
    pub async fn open() -> StoreResult<Self> {
        let settings = StoreSettings {
            lease: Duration::from_secs(3600),
            fairness_step: Duration::from_millis(100),
            idempotency_window: Duration::from_secs(24 * 3600),
            parking: false,
        };
        let name = format!("outhaul-test-{:016x}", rand::random::<u64>());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).map_err(|error| StoreError::Unavailable(error.into()))?;
        let store = Arc::new(SqliteStore::open(&folder.0.join("outhaul.db"), settings).await?);
        Ok(Self { store, _folder: folder })
    }

    /// The database's file.
    #[cfg(test)]
    pub(crate) fn file(&self) -> std::path::PathBuf {
        self._folder.0.join("outhaul.db")
    }

    /// The store, for a [`crate::Client`] or [`super::drain()`].
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is a small folder among temporary files; not worth failing a test for.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
