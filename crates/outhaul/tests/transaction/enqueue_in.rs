//! Submitting inside the caller's own transaction.

use outhaul::core::job::JobStatus;
use outhaul::core::store::JobFilter;
use outhaul::{Client, EnqueueError, EnqueueOptions, sqlx};
use outhaul_testkit::test_db::TestDb;

use crate::bench::{Bench, transfer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_is_there_if_and_only_if_the_caller_commits() {
    let bench = Bench::new().await;
    let engine = bench.engine().await;
    let options = || EnqueueOptions { idempotency_key: Some("k".to_owned()), ..EnqueueOptions::default() };
    let insert = "insert into effect (account) values (1000)";

    let mut tx = bench.pool.begin().await.unwrap();
    sqlx::query(insert).execute(&mut *tx).await.unwrap();
    let rolled_back = bench.client.enqueue_in(&mut tx, transfer(1, "none"), options()).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(rolled_back.new);
    assert_eq!(bench.store.job_get(&rolled_back.job_id).await.unwrap(), None);

    let mut tx = bench.pool.begin().await.unwrap();
    sqlx::query(insert).execute(&mut *tx).await.unwrap();
    let committed = bench.client.enqueue_in(&mut tx, transfer(1, "none"), options()).await.unwrap();
    let again = bench.client.enqueue_in(&mut tx, transfer(1, "none"), options()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((committed.new, again.new), (true, false));
    assert_eq!(committed.job_id, again.job_id);
    assert_eq!(bench.ended(&committed.job_id).await.status, JobStatus::Completed);
    assert_eq!(bench.effects().await, [1, 1000]);
    let filter = JobFilter { limit: 10, ..JobFilter::default() };
    assert_eq!(bench.store.jobs_list(&filter).await.unwrap().items.len(), 1);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_only_submits_needs_the_url_and_a_schema() {
    let empty = TestDb::create().await;
    let refused = Client::connect(empty.url()).await.err();
    assert!(matches!(refused, Some(EnqueueError::Store(_))), "{refused:?}");

    let bench = Bench::new().await;
    let client = Client::connect(bench.database.url()).await.unwrap();
    let id = client.enqueue(transfer(3, "none")).await.unwrap().job_id;
    let engine = bench.engine().await;
    assert_eq!(bench.ended(&id).await.status, JobStatus::Completed);
    engine.stop().await;
}
