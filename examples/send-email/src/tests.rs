//! How a job of one's own is tested: no server, no worker, no waiting.

use outhaul::{Client, Registry, testing};

use super::SendEmail;

#[tokio::test]
async fn an_address_is_greeted() {
    let sent = testing::run_inline(SendEmail { to: "ann@example.com".into() }).await.unwrap();
    assert!(sent.starts_with("sent "));
    let refused = testing::run_inline(SendEmail { to: "ann".into() }).await.unwrap_err();
    assert!(refused.is_fatal());
}

#[tokio::test]
async fn all_of_them_are_sent() {
    let temporary = testing::TempStore::open().await.unwrap();
    let client = Client::new(temporary.store());
    let jobs = ["ann@example.com", "bob@example.com", "nobody"];
    client.enqueue_many(jobs.map(|to| SendEmail { to: to.into() })).await.unwrap();
    let drained = testing::drain(&temporary.store(), &Registry::new().job::<SendEmail>()).await.unwrap();
    assert_eq!((drained.done, drained.dead), (2, 1));
}
