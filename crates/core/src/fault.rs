//! Fault points: named places at which a test of whole processes makes one of their parts panic, with its
//! work in its hands. They exist in builds with debug assertions only; in a release nothing is left of them.

#[cfg(debug_assertions)]
static ARMED: std::sync::Mutex<Option<String>> = std::sync::Mutex::new(None);

/// Whoever comes to the place of this name next panics there; nobody after him.
pub fn arm(name: &str) {
    #[cfg(debug_assertions)]
    {
        *ARMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(name.to_owned());
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// The place of this name.
///
/// # Panics
///
/// If it was armed.
#[inline]
pub fn point(name: &str) {
    #[cfg(debug_assertions)]
    {
        let mut armed = ARMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let here = armed.take_if(|armed| armed == name).is_some();
        drop(armed);
        assert!(!here, "the fault point `{name}` was armed");
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn an_armed_place_panics_once() {
        arm("here");
        point("elsewhere");
        assert!(std::panic::catch_unwind(|| point("here")).is_err());
        point("here");
    }
}
