//! The conformance suite of [`Store`]: one list of cases (`cases_list.rs`), each a test of its own for every store.
//! A case that is in the list runs on all of them, on a fresh database of its own.

use std::any::Any;
use std::sync::Arc;

use outhaul_core::store::Store;

mod announcement_times;
mod announcements;
mod base_paths;
mod bench;
mod budget;
mod cases_list;
mod claim;
mod dead_letters;
mod delivery_storm;
mod dependencies;
mod ending;
mod files;
mod finish;
mod history;
mod identity;
mod leases;
mod lists;
mod model;
mod named_claims;
mod outbox;
mod priority;
mod probe;
mod progress;
mod races;
mod schedule_fires;
mod schedules;
mod shown_version;
mod steps;
mod storm;
mod submit;
mod text;
mod trigger_fires;
mod trigger_sets;
mod triggers;
mod unique;
mod upkeep;

#[doc(hidden)]
pub use bench::Kit;
pub use probe::Probe;

/// A fresh, empty store on a database of its own, and what the suite may do with it.
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same database as another process would open it; `None`: the store serves one process only,
    /// and races are between tasks of that one.
    pub second: Option<Arc<dyn Store>>,
    /// A way past the store, to compare what it says with what the rows say.
    pub probe: Probe,
    /// What must live as long as the database: a folder, a database that is dropped with it.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// One door to each case, which runs it; for the tests that [`store_suite!`](crate::store_suite!) makes.
#[doc(hidden)]
pub mod cases {
    crate::store_cases! { crate::suite::doors; store_suite }
}

/// Makes a test of each case in the module that calls it, with stores that `$make` opens:
/// `async fn make(settings: StoreSettings) -> Fixture`, each on an empty database of its own.
/// `OUTHAUL_SUITE_SEED` repeats the random cases.
#[macro_export]
macro_rules! store_suite {
    ($make:ident) => {
        $crate::store_cases! { $crate::suite_tests; $crate::store_suite::cases, $crate::store_suite::Kit, $make }
    };
}
