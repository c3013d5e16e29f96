//! A worker is killed with `kill -9` at every boundary of a three-step job: when a step is asked for,
//! and when it is recorded. Whoever goes on repeats no recorded step.

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::common::{BRISK, Kind, Process, Stack, eventually};
use crate::endpoint::{ALLOW, Call, Endpoint, done};
use crate::lock::Lock;

const STEPS: [&str; 3] = ["one", "two", "three"];

/// When the worker dies; steps count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The endpoint has the request, and has not answered.
    Asked(usize),
    /// The endpoint is answering; whether that is recorded, nobody knows.
    Answering(usize),
    /// The answer is recorded, and what comes next has no effect yet.
    Recorded(usize),
}

impl Moment {
    /// How many steps are recorded then, for sure.
    fn recorded(self) -> usize {
        match self {
            Self::Asked(step) | Self::Answering(step) => step,
            Self::Recorded(step) => step + 1,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_recorded_step_is_repeated_after_a_kill() {
    let moments = (0..STEPS.len()).flat_map(|step| [Moment::Asked(step), Moment::Recorded(step)]);
    let moments = moments.chain([Moment::Answering(1)]);
    // Each waits for a lease to run out, so they wait together.
    join_all(moments.map(|moment| killed_at(Kind::PostgresLocal, moment))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_recorded_step_is_repeated_after_a_kill_of_an_embedded_server() {
    for moment in [Moment::Recorded(0), Moment::Asked(2)] {
        killed_at(Kind::Embedded, moment).await;
    }
}

async fn killed_at(kind: Kind, moment: Moment) {
    let (asked, mut arrivals) = mpsc::unbounded_channel();
    let (open, gate) = watch::channel(matches!(moment, Moment::Answering(_)));
    // The step that is not answered before the test says so.
    let held = STEPS[moment.recorded().min(STEPS.len() - 1)];
    let endpoint = Endpoint::start(move |call: Call| {
        let (asked, mut gate) = (asked.clone(), gate.clone());
        async move {
            if call.step == held {
                let _ = asked.send(());
                let _ = gate.wait_for(|open| *open).await;
            }
            done(&json!({ "did": call.step }))
        }
    })
    .await;
    let mut brisk = BRISK.replace("max_attempts = 3", "max_attempts = 20");
    if moment == Moment::Recorded(2) {
        // The lease is not renewed while the test holds the chunk's row, and has to last until then.
        brisk = brisk.replace("lease = \"3s\"", "lease = \"20s\"");
    }
    let types = endpoint.job_type("PARCEL", &STEPS, "");
    let stack = Stack::new(kind, &format!("{brisk}{ALLOW}{types}")).await;
    let (api, mut victim) = match kind {
        Kind::Embedded => (None, stack.serve("victim", "api,worker,scheduler").await),
        _ => (Some(stack.serve("api", "api").await), stack.spawn("victim", "worker")),
    };
    let client = api.as_ref().unwrap_or(&victim).client();
    let id = client.submit(&json!({ "jobType": "PARCEL", "payload": { "n": 1 } })).await;

    match moment {
        Moment::Asked(_) | Moment::Answering(_) => {
            arrivals.recv().await.expect("the step is asked for");
            victim.kill9();
        }
        Moment::Recorded(2) => {
            arrivals.recv().await.expect("the last step is asked for");
            // A shared lock on the chunk: its steps can be recorded, and its end cannot.
            let sql = format!(
                "select 1 from job_chunk c join job j on j.id = c.job_id where j.job_id = '{id}' for share of c"
            );
            let mut lock = Lock::take(&stack, &sql).await;
            open.send_replace(true);
            wait_until_recorded(&stack, &id, "three", &victim).await;
            lock.wanted_by(1, &victim).await;
            victim.kill9();
            lock.cut_off_who_waits().await;
            lock.release().await;
        }
        Moment::Recorded(step) => {
            wait_until_recorded(&stack, &id, STEPS[step], &victim).await;
            victim.kill9();
        }
    }
    let mut recorded = Vec::new();
    for step in STEPS {
        if is_recorded(&stack, &id, step).await {
            recorded.push(step);
        }
    }
    let sure = &STEPS[..moment.recorded()];
    match moment {
        Moment::Answering(_) => assert!(recorded.starts_with(sure), "{moment:?}: {recorded:?}"),
        _ => assert_eq!(recorded, sure, "{moment:?}"),
    }
    let before = endpoint.counts(&id, &recorded);
    open.send_replace(true);

    let successor = match kind {
        Kind::Embedded => stack.serve("successor", "api,worker,scheduler").await,
        _ => stack.spawn("successor", "worker"),
    };
    let client = api.as_ref().unwrap_or(&successor).client();
    let job = client.wait_for(&id, "COMPLETED").await;
    assert_eq!(endpoint.counts(&id, &recorded), before, "{moment:?}: a recorded step was called again");
    if let Moment::Asked(step) = moment {
        let calls = endpoint.calls_of(&id, STEPS[step]);
        let [first, last] = [calls.first(), calls.last()].map(|call| call.expect("called").attempt);
        assert!(first < last, "{moment:?}: the step that was cut off is called again");
    }
    for call in endpoint.calls() {
        assert_eq!(call.key(), format!("{id}/{}", call.step), "{moment:?}");
    }
    let steps: Vec<&Value> =
        job["steps"].as_array().expect("steps").iter().map(|step| &step["name"]).collect();
    assert_eq!(steps, STEPS, "{moment:?}: {job}");
    assert_eq!(job["result"], json!({ "did": "three" }), "{moment:?}: {job}");
}

async fn is_recorded(stack: &Stack, job: &str, step: &str) -> bool {
    let sql = format!(
        "select count(*) from step s join job_chunk c on c.id = s.chunk_id join job j on j.id = c.job_id \
         where j.job_id = '{job}' and s.name = '{step}'"
    );
    stack.recorded(&sql).await == [[1]]
}

async fn wait_until_recorded(stack: &Stack, job: &str, step: &str, worker: &Process) {
    let recorded = eventually("the step is recorded", || is_recorded(stack, job, step));
    recorded.await.unwrap_or_else(|error| panic!("{error}\n{}", worker.log()));
}
