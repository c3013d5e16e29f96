//! Who serves and who works: separate processes, but one that is both on the embedded default.

use crate::common::{Client, Kind, Process, Stack};

/// The processes of one installation.
pub(crate) struct Site<'s> {
    stack: &'s Stack,
    pub(crate) api: Process,
    /// None where the API process works too.
    worker: Option<Process>,
    started: usize,
}

impl<'s> Site<'s> {
    pub(crate) async fn start(stack: &'s Stack) -> Self {
        let api = serve(stack, 0).await;
        let worker = is_apart(stack).then(|| stack.spawn("worker-0", "worker"));
        Self { stack, api, worker, started: 1 }
    }

    pub(crate) fn client(&self) -> Client {
        self.api.client()
    }

    /// The process that works.
    pub(crate) fn worker(&self) -> &Process {
        self.worker.as_ref().unwrap_or(&self.api)
    }

    /// `kill -9` of the process that works.
    pub(crate) fn kill_worker(&mut self) {
        self.worker.as_mut().unwrap_or(&mut self.api).kill9();
    }

    /// The same, and another takes its place.
    pub(crate) async fn replace_worker(&mut self) {
        self.kill_worker();
        let Some(worker) = &mut self.worker else { return self.replace_api().await };
        *worker = self.stack.spawn(&format!("worker-{}", self.started), "worker");
        self.started += 1;
    }

    /// `kill -9` of the process that serves; another takes its place, at another address.
    pub(crate) async fn replace_api(&mut self) {
        self.api.kill9();
        self.api = serve(self.stack, self.started).await;
        self.started += 1;
    }
}

async fn serve(stack: &Stack, number: usize) -> Process {
    let roles = if is_apart(stack) { "api" } else { "api,worker,scheduler" };
    stack.serve(&format!("api-{number}"), roles).await
}

fn is_apart(stack: &Stack) -> bool {
    stack.kind != Kind::Embedded
}
