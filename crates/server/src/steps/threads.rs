//! Threads for the calls of steps. What a receiver sends is read there and nowhere else: one that sends
//! without end keeps its own connection busy, never heartbeats, claims or the API.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// As many as calls need that mostly wait.
const THREADS: usize = 2;

/// A small runtime of its own. Clones share it.
#[derive(Clone)]
pub(super) struct Threads(Arc<Owned>);

struct Owned(Option<Runtime>);

impl Threads {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("outhaul-steps")
            .enable_all()
            .build()?;
        Ok(Self(Arc::new(Owned(Some(runtime)))))
    }

    /// Runs work there; dropping what this gives ends it.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> AbortOnDropHandle<T> {
        let runtime = self.0.0.as_ref().expect("there until it is dropped");
        AbortOnDropHandle::new(runtime.spawn(work))
    }
}

impl Drop for Owned {
    /// A runtime must not be waited for where others run.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_elsewhere_and_ends_when_nobody_waits_for_it() {
        let threads = Threads::start().unwrap();
        let name = threads.spawn(async { std::thread::current().name().map(str::to_owned) }).await.unwrap();
        assert_eq!(name.as_deref(), Some("outhaul-steps"));
        let (held, released) = tokio::sync::oneshot::channel::<()>();
        let work = threads.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(work);
        assert!(released.await.is_err(), "what the work held is let go");
        // Not a panic, as dropping a runtime among others would be.
        drop(threads);
    }
}
