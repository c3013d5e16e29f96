//! What the jobs of a registry share: values by type (clients, pools) and the retry policy of those
//! that have none of their own. Filled while the registry is built, read when jobs run.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use outhaul_core::retry::RetryPolicy;

/// Shared values by type.
pub(crate) type Values = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// One per registry; its jobs hold it too, so that the order of builder calls does not matter.
#[derive(Default)]
pub(crate) struct Shared {
    values: RwLock<Arc<Values>>,
    retry: RwLock<RetryPolicy>,
}

impl Shared {
    pub(crate) fn add<T: Send + Sync + 'static>(&self, value: T) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut values).insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn values(&self) -> Arc<Values> {
        self.values.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_retry(&self, policy: RetryPolicy) {
        *self.retry.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    pub(crate) fn retry(&self) -> RetryPolicy {
        self.retry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
