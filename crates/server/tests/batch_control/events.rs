//! The event stream when processes come and go: who comes back gets what is there now, every API process
//! shows what workers do, and a stream ends after its job.

use serde_json::Value;

use crate::common::{Client, Kind, STEADY, Stack, eventually};
use crate::follower::Follower;
use crate::gates::{Gates, ON_THE_WAY};
use crate::progress::{is_at, large};
use crate::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_a_job_through_a_restart() {
    a_client_follows_a_job_through_a_restart_of_the_api(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_a_job_through_a_restart_embedded() {
    a_client_follows_a_job_through_a_restart_of_the_api(Kind::Embedded).await;
}

async fn a_client_follows_a_job_through_a_restart_of_the_api(kind: Kind) {
    let mut gates = Gates::new().await;
    // Only the API is killed; where that works too, the next one knows at its start that it is dead.
    let steady = STEADY.replace("max_attempts = 3", "max_attempts = 20");
    let stack = Stack::new(kind, &format!("{steady}{}", gates.source("warehouse", ""))).await;
    let mut site = Site::start(&stack).await;
    // One that stays, where there may be two.
    let other = match kind {
        Kind::Embedded => None,
        _ => Some(stack.serve("other-api", "api").await),
    };
    for gate in ON_THE_WAY {
        gates.shut(gate).await;
    }
    let [first, second, third] = ON_THE_WAY;
    let id = site.client().submit(&large("warehouse_counted")).await;
    let mut follower = Follower::connect(&site.client(), &id).await;
    let mut stays = match &other {
        Some(other) => Some(Follower::connect(&other.client(), &id).await),
        None => None,
    };
    follower.until("it has begun", is_at(first)).await;
    if let Some(stays) = &mut stays {
        stays.until("the other API shows it too", is_at(first)).await;
    }

    site.api.kill9();
    follower.is_cut_off().await;
    gates.open(first).await;
    if let Some(stays) = &mut stays {
        stays.until("it went on meanwhile", is_at(second)).await;
    }
    site.replace_api().await;
    let client = site.client();
    let moved = eventually("it went on", || async { is_at(second)(&client.job(&id).await) });
    moved.await.unwrap_or_else(|error| panic!("{error}\n{}", site.worker().log()));
    comes_back(&client, &mut follower, &id).await;
    gates.open(second).await;
    follower.until("changes come again", is_at(third)).await;
    gates.open(third).await;

    let seen = follower.end().await;
    let job = client.wait_for(&id, "COMPLETED").await;
    assert_eq!(seen.last(), Some(&job));
    if let Some(stays) = stays {
        assert_eq!(stays.end().await.last(), Some(&job), "also where nothing was restarted");
    }
    let late = Follower::connect(&client, &id).await;
    assert_eq!(late.end().await, [job], "one event for whoever comes late, and the end");
}

/// Connects again while the job rests: what is there now comes first.
async fn comes_back(client: &Client, follower: &mut Follower, id: &str) {
    let apart_from_the_guess = |mut job: Value| {
        job["etaSeconds"] = Value::Null;
        job
    };
    let follower = tokio::sync::Mutex::new(follower);
    let came = eventually("the job rests while a client comes back", || async {
        let mut follower = follower.lock().await;
        let before = apart_from_the_guess(client.job(id).await);
        follower.reconnect(client).await;
        let first = follower.next().await.expect("it is not cut off").expect("the present state");
        let after = apart_from_the_guess(client.job(id).await);
        let rests = before == after;
        assert!(!rests || apart_from_the_guess(first.clone()) == after, "{first} is not {after}");
        rests
    });
    came.await.unwrap_or_else(|error| panic!("{error}"));
}
