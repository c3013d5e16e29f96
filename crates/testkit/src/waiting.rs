//! Waits that end, with a name for what did not come.

use std::future::Future;
use std::time::Duration;

/// Long on any machine; less than a case is given as a whole, so that the failure says what was waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits for this, and says what it was if it never comes.
pub(crate) async fn in_time<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, awaited).await {
        Ok(answer) => answer,
        Err(_) => panic!("this never came: {what}"),
    }
}

/// Looks again and again until there is an answer; for what gives no signal, as the passing of time.
pub(crate) async fn eventually<T, F, Look>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Look,
    Look: Future<Output = Option<T>>,
{
    in_time(what, async {
        loop {
            if let Some(answer) = look().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}
