//! A value that may be a few seconds old. Routes that anybody may ask, as often as they like, must not
//! make the database count each time.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// How old it may be.
const AGE: Duration = Duration::from_secs(5);

/// The value of the last look, if there was one.
pub(super) struct Recent<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Recent<T> {
    /// What was seen lately, or what `look` finds. Who asks meanwhile waits for the same look; a look that
    /// fails is forgotten.
    pub(super) async fn get<E>(&self, look: impl AsyncFnOnce() -> Result<T, E>) -> Result<T, E> {
        self.younger_than(AGE, look).await
    }

    /// The same, with an age of its own.
    pub(super) async fn younger_than<E>(
        &self,
        age: Duration,
        look: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut seen = self.0.lock().await;
        if let Some((when, value)) = &*seen
            && when.elapsed() < age
        {
            return Ok(value.clone());
        }
        let value = look().await?;
        *seen = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn looks_again_when_it_is_too_old_and_after_a_failure() {
        let recent = Recent::default();
        let long = Duration::from_secs(86_400);
        assert_eq!(recent.younger_than(long, async || Err::<u8, _>("away")).await, Err("away"));
        assert_eq!(recent.younger_than(long, async || Ok::<_, ()>(1)).await, Ok(1));
        assert_eq!(recent.younger_than(long, async || Ok::<_, ()>(2)).await, Ok(1), "seen a moment ago");
        assert_eq!(recent.younger_than(Duration::ZERO, async || Ok::<_, ()>(3)).await, Ok(3));
    }
}
