//! The kill run: two API processes and three workers export many chunks while workers are killed
//! with `kill -9` and restarted at random and PostgreSQL is restarted in immediate mode. Every file
//! is compared with what the source gives.

mod common;

use std::sync::Arc;

use common::killing::{Progress, StopKilling, done};
use common::{Client, Kind, Process, Stack, large_export};
use outhaul_testkit::servers::PrivatePostgres;
use rand::RngExt;
use tokio::task::block_in_place;

#[tokio::test(flavor = "multi_thread")]
async fn a_large_job_survives_kills_on_local_files() {
    kill_run(Kind::PostgresLocal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_job_survives_kills_on_s3() {
    kill_run(Kind::PostgresS3).await;
}

async fn kill_run(kind: Kind) {
    let server = Arc::new(PrivatePostgres::start());
    let stack = Arc::new(Stack::on_server(kind, &server, &large_export::sections()));
    let first = stack.serve("api-1", "api,scheduler").await;
    let second = stack.serve("api-2", "api,scheduler").await;
    let id = first.client().submit(&large_export::request()).await;

    let stop = StopKilling::default();
    let job = (first.client(), id.clone());
    let killer = tokio::spawn(kill_at_random(stack.clone(), server.clone(), job, stop.progress()));
    // The other process answers for the same job.
    let job = second.client().wait_for(&id, "COMPLETED").await;
    drop(stop);
    let (kills, restarts) = killer.await.expect("the killer ends");
    assert!(kills >= 6 && restarts >= 2, "little happened: {kills} kills, {restarts} restarts");
    large_export::is_complete(&second.client(), &stack, &job).await;
}

/// Kills and restarts while the job goes on; returns how often it killed a worker and restarted PostgreSQL.
async fn kill_at_random(
    stack: Arc<Stack>,
    server: Arc<PrivatePostgres>,
    (client, id): (Client, String),
    mut progress: Progress,
) -> (u32, u32) {
    let spawn = |n: usize| stack.spawn(&format!("worker-{n}"), "worker");
    let mut workers: Vec<Process> = (0..3).map(spawn).collect();
    let (mut kills, mut restarts) = (0, 0);
    let look = |workers: &mut [Process]| {
        // One that PostgreSQL left while it started has ended, and nobody else would start it again.
        for (n, worker) in workers.iter_mut().enumerate() {
            if worker.has_ended() {
                *worker = spawn(n);
            }
        }
        done(&client, &id)
    };
    while progress.goes_on(5..40, || look(&mut workers)).await {
        if rand::rng().random_bool(0.2) || kills > 4 * (restarts + 1) {
            block_in_place(|| server.restart_immediate());
            restarts += 1;
        } else {
            let victim = rand::rng().random_range(0..workers.len());
            workers[victim].kill9();
            workers[victim] = spawn(victim);
            kills += 1;
        }
    }
    (kills, restarts)
}
