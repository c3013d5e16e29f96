//! How a conformance suite runs: cases by name, several at once, each on a task of its own. All of them run,
//! whatever fails, and the end names every one that did.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::task::JoinError;

/// A case that runs this long hangs: it is reported rather than waited for.
const PATIENCE: Duration = Duration::from_secs(900);

/// One case, with what it starts from.
pub(crate) struct Case<Kit> {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Kit) -> BoxFuture<'static, ()>,
}

/// Cases by `theme::name`, which is also what failures call them.
macro_rules! cases {
    ($($theme:ident :: $case:ident,)*) => {
        vec![$($crate::suite::Case {
            name: concat!(stringify!($theme), "::", stringify!($case)),
            run: |kit| Box::pin($theme::$case(kit)),
        }),*]
    };
}
pub(crate) use cases;

/// What a case wants told with its failure, such as the seed of its random numbers.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, note: String) {
        self.0.lock().expect("no holder panics").push(note);
    }

    /// In brackets, to stand behind the name of the case.
    fn text(&self) -> String {
        let notes = self.0.lock().expect("no holder panics");
        if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) }
    }
}

/// One run of a suite.
pub(crate) struct Run {
    only: String,
    patience: Duration,
    count: usize,
    failures: Vec<String>,
}

impl Run {
    /// `OUTHAUL_SUITE_ONLY=<part of a name>` picks cases.
    pub(crate) fn from_environment() -> Self {
        Self::of(std::env::var("OUTHAUL_SUITE_ONLY").unwrap_or_default(), PATIENCE)
    }

    fn of(only: String, patience: Duration) -> Self {
        Self { only, patience, count: 0, failures: Vec::new() }
    }

    /// Runs those of the cases that were picked, so many at one moment.
    pub(crate) async fn cases<Kit>(
        &mut self,
        mut cases: Vec<Case<Kit>>,
        at_once: usize,
        kit: impl Fn(Notes) -> Kit,
    ) {
        cases.retain(|case| case.name.contains(&self.only));
        self.count += cases.len();
        let patience = self.patience;
        let failures: Vec<String> = futures::stream::iter(cases)
            .map(|case| {
                let notes = Notes::default();
                let work = (case.run)(kit(notes.clone()));
                async move {
                    let why = failure(work, patience).await?;
                    Some(format!("{}{}: {why}", case.name, notes.text()))
                }
            })
            .buffer_unordered(at_once)
            .filter_map(ready)
            .collect()
            .await;
        self.failures.extend(failures);
    }

    /// Panics with the names of all that failed, or when nothing was run at all.
    pub(crate) fn end(self) {
        let Self { only, count, failures, .. } = self;
        assert!(count > 0, "OUTHAUL_SUITE_ONLY={only} names no case");
        assert!(
            failures.is_empty(),
            "{} of {count} cases failed:\n\n{}\n",
            failures.len(),
            failures.join("\n\n")
        );
        println!("{count} cases passed{}", if only.is_empty() { "" } else { " (OUTHAUL_SUITE_ONLY is set)" });
    }
}

/// `None`: it passed.
async fn failure(work: BoxFuture<'static, ()>, patience: Duration) -> Option<String> {
    let task = tokio::spawn(work);
    let abort = task.abort_handle();
    match tokio::time::timeout(patience, task).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(panic_text(error)),
        Err(_) => {
            abort.abort();
            Some(format!("still running after {patience:?}"))
        }
    }
}

/// What a task said when it panicked.
pub(crate) fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => {
                payload.downcast::<&str>().map_or("a panic without text".to_owned(), |t| (*t).to_owned())
            }
        },
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    mod theme {
        use super::Notes;

        pub(super) async fn passes(_: Notes) {}

        pub(super) async fn fails(notes: Notes) {
            notes.add("SEED=1".to_owned());
            panic!("one is not {}", 2);
        }

        pub(super) async fn fails_in_a_word(_: Notes) {
            panic!("no");
        }

        pub(super) async fn hangs(_: Notes) {
            std::future::pending().await
        }
    }

    async fn ended(only: &str, patience: Duration, cases: Vec<Case<Notes>>) -> Result<(), String> {
        let mut run = Run::of(only.to_owned(), patience);
        run.cases(cases, 2, |notes| notes).await;
        tokio::spawn(async { run.end() }).await.map_err(panic_text)
    }

    #[tokio::test]
    async fn all_that_fail_are_named_with_their_notes() {
        let cases = cases![theme::fails, theme::passes, theme::fails_in_a_word,];
        let text = ended("", PATIENCE, cases).await.expect_err("two fail");
        assert!(text.starts_with("2 of 3 cases failed:\n"), "{text}");
        assert!(text.contains("\ntheme::fails (SEED=1): one is not 2\n"), "{text}");
        assert!(text.contains("\ntheme::fails_in_a_word: no\n"), "{text}");
    }

    #[tokio::test]
    async fn a_case_that_hangs_is_reported() {
        let text = ended("", Duration::from_millis(1), cases![theme::hangs,]).await.expect_err("it hangs");
        assert!(text.contains("theme::hangs: still running after 1ms"), "{text}");
    }

    #[tokio::test]
    async fn only_those_that_were_picked_run() {
        let cases = || cases![theme::passes, theme::fails,];
        assert_eq!(ended("passes", PATIENCE, cases()).await, Ok(()));
        let none = ended("no such", PATIENCE, cases()).await;
        assert_eq!(none, Err("OUTHAUL_SUITE_ONLY=no such names no case".to_owned()));
    }
}
