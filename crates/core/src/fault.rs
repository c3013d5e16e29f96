//! Fault points: named places in the code at which a test makes a part of a running process panic in the middle of
//! its work. Fault points exist only in builds with debug assertions; a release build contains none.

#[cfg(debug_assertions)]
static ARMED: std::sync::Mutex<Option<String>> = std::sync::Mutex::new(None);

/// Arms the fault point of this name: the next thread that reaches it panics, and no other thread does.
pub fn arm(name: &str) {
    #[cfg(debug_assertions)]
    {
        *ARMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(name.to_owned());
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// Marks a fault point.
///
/// # Panics
///
/// If the fault point is armed.
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
