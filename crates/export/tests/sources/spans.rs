//! What a subscriber of tracing sees of an export. The attempt's span is not entered once more for every row: that
//! cost more than the row.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outhaul_export::settings::SourceUrl;
use outhaul_export::source::{Dialect, PostgresSource};
use outhaul_testkit::test_db::TestDb;
use tracing::instrument::WithSubscriber as _;
use tracing::{Instrument as _, Subscriber, info_span, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry;

use crate::common::{export, postgres};

/// Counts how often any span is entered.
struct Entered(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Entered {
    fn on_enter(&self, _: &span::Id, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_row_enters_no_span() {
    let db = TestDb::create().await;
    let settings = postgres(db.url());
    let SourceUrl::Postgres(url) = &settings.url else { unreachable!() };
    let source = PostgresSource::new(&settings, url).unwrap();
    let entered = Arc::new(AtomicUsize::new(0));
    let subscriber = registry().with(Entered(Arc::clone(&entered)));
    let rows = "select n from generate_series(1, 100000) as n";
    let attempt =
        async { export(&source, Dialect::Postgres, rows, "k", None).instrument(info_span!("attempt")).await };
    let (_, rows) = attempt.with_subscriber(subscriber).await.unwrap();
    let entered = entered.load(Ordering::Relaxed);
    assert_eq!(rows, 100_000);
    assert!(entered > 0, "the attempt itself runs in its span");
    assert!(entered < 20_000, "spans were entered {entered} times");
}
