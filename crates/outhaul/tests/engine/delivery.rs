//! The `database` delivery: no hint is lost between arming and waiting, and hints to others are few.

use std::time::Duration;

use futures::FutureExt;
use outhaul::core::delivery::Delivery;
use outhaul_delivery::DatabaseDelivery;

use crate::fake::Fake;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_announcement_between_arming_and_waiting_is_not_lost() {
    let delivery = DatabaseDelivery::start(Fake::new(SOON));
    let (one, two) = (delivery.arm(), delivery.arm());
    delivery.announce();
    tokio::time::timeout(SOON, async { tokio::join!(one, two) }).await.expect("both are woken");
}

#[tokio::test]
async fn old_announcements_wake_nobody() {
    let delivery = DatabaseDelivery::start(Fake::new(SOON));
    // The listener's own first hint.
    delivery.ready().await;
    delivery.announce();
    assert!(delivery.arm().now_or_never().is_none());
}

#[tokio::test]
async fn hints_to_others_are_debounced_and_theirs_are_heard() {
    let store = Fake::new(SOON);
    let delivery = DatabaseDelivery::start(store.clone());
    delivery.ready().await;
    for _ in 0..1000 {
        delivery.announce();
    }
    store.until("the first is passed on at once", |rows| rows.hints == 1).await;
    delivery.announce();
    store.until("a later one after a pause", |rows| rows.hints == 2).await;

    let armed = delivery.arm();
    store.others.send_modify(|count| *count += 1);
    tokio::time::timeout(SOON, armed).await.expect("a hint of another process");
    assert_eq!(store.rows().hints, 2, "which is not passed on again");
}

#[tokio::test]
async fn listening_is_taken_up_again() {
    let store = Fake::new(SOON);
    let mut left = 1;
    store.fail(move |verb, _| {
        let fails = verb == "wakeups" && left > 0;
        left -= i32::from(fails);
        fails.then(crate::fake::unavailable)
    });
    let delivery = DatabaseDelivery::start(store);
    tokio::time::timeout(SOON, delivery.ready()).await.expect("a look after connecting at last");
}
