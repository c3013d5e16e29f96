//! Whether the database, the storage and all else that work needs can be used. Anybody may ask, as often as they like,
//! and a check costs a request to the bucket or a written file. So the check runs at most once a second for all
//! requests together. Only changes are logged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::problem::FieldError;
use super::broker::DeliveryView;

/// How old an answer may be.
pub(super) const AGE: Duration = Duration::from_secs(1);

/// What a look found.
#[derive(Clone, Debug)]
pub(super) struct Readiness {
    /// How work goes through the broker.
    pub(super) delivery: Option<DeliveryView>,
    /// What cannot be used; empty: the process is ready.
    pub(super) errors: Vec<FieldError>,
}

/// Whether a part could be used at the last look, so that only a change is logged.
#[derive(Debug, Default)]
pub(super) struct Part {
    is_down: AtomicBool,
}

impl Part {
    /// Takes what a look found, logs a change, and returns whether the part can be used. `name` is that of the
    /// log's event: `api.store` makes `api.store_not_ready`.
    pub(super) fn saw(&self, name: &str, problem: Option<&str>) -> bool {
        let is_down = problem.is_some();
        if self.changes(is_down) {
            match problem {
                Some(error) => tracing::warn!(error, "{name}_not_ready"),
                None => tracing::info!("{name}_ready again"),
            }
        }
        !is_down
    }

    fn changes(&self, is_down: bool) -> bool {
        self.is_down.swap(is_down, Ordering::Relaxed) != is_down
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_is_told() {
        let part = Part::default();
        let told = [false, false, true, true, true, false, false].map(|is_down| part.changes(is_down));
        assert_eq!(told, [false, false, true, false, false, true, false]);
        assert!(part.saw("api.part", None) && !part.saw("api.part", Some("away")));
    }
}
