//! How the cases of a conformance suite become tests: one `#[test]` each, so that they run in parallel, are picked
//! by name and are named when they fail. Both macros here take the list of a suite, by theme.

use std::time::Duration;

/// A case that runs this long hangs: it fails rather than being waited for.
const PATIENCE: Duration = Duration::from_secs(900);

/// Inside a suite: a public function per case, `theme::case(kit)`, that runs it. The cases themselves stay private,
/// so that the compiler finds those that nobody runs.
macro_rules! doors {
    ($suite:ident; $($theme:ident { $($case:ident,)* })*) => {$(
        #[allow(missing_docs, reason = "the names say it")]
        pub mod $theme {$(
            pub fn $case(kit: $crate::$suite::Kit) {
                $crate::suite::run($crate::$suite::$theme::$case(kit));
            }
        )*}
    )*};
}
pub(crate) use doors;

/// In a test binary: a test per case, `theme::case`, that goes through its door.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ($doors:path, $kit:path, $make:ident; $($theme:ident { $($case:ident,)* })*) => {$(
        mod $theme {
            use $doors as doors;
            use $kit as Kit;

            $(#[test]
            fn $case() {
                doors::$theme::$case(Kit::new(super::$make));
            })*
        }
    )*};
}

/// Runs one case on a runtime of its own.
pub(crate) fn run(case: impl Future<Output = ()>) {
    run_for(PATIENCE, case);
}

fn run_for(patience: Duration, case: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(4).enable_all().build().expect("start a runtime");
    runtime.block_on(async {
        let ended = tokio::time::timeout(patience, case).await;
        assert!(ended.is_ok(), "the case is still running after {patience:?}");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_ends_passes() {
        run(std::future::ready(()));
    }

    #[test]
    #[should_panic(expected = "one is not 2")]
    fn a_case_that_panics_fails_with_its_own_words() {
        run(async { panic!("one is not {}", 2) });
    }

    #[test]
    #[should_panic(expected = "still running after 1ms")]
    fn a_case_that_hangs_fails() {
        run_for(Duration::from_millis(1), std::future::pending());
    }
}
