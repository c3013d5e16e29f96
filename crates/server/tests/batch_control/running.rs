//! What is shown as running: never more than the budget of a source and the places of the workers, also while many
//! tiny chunks come and go.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;

use crate::common::{Kind, STEADY, Stack, dates, eventually};

const SOURCES: &str = "[sources.narrow]\nurl = \"{postgres}\"\nmax_concurrent = 2\n\n\
     [datasets.narrow]\ndefault = true\nsource = \"narrow\"\nquery = \"select :key as key, :effective_date as day\"\n\n\
     [sources.wide]\nurl = \"{postgres}\"\nmax_concurrent = 100\n\n\
     [datasets.wide]\nsource = \"wide\"\nquery = \"select :key as key, :effective_date as day\"\n\n";

#[tokio::test(flavor = "multi_thread")]
async fn no_look_at_the_store_shows_more_running_than_are_allowed() {
    let stack = Stack::new(Kind::PostgresLocal, &format!("{STEADY}{SOURCES}")).await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let client = server.client();
    let export = |dataset: &str| json!({ "dataset": dataset, "items": [{ "key": "ABC", "effectiveDates": dates(150) }] });
    let jobs = [client.submit(&export("narrow")).await, client.submit(&export("wide")).await];
    let (narrow, all) = (AtomicI64::new(0), AtomicI64::new(0));
    let looked = eventually("both jobs are done", || async {
        let counts = "select count(*) filter (where q.name = 'source:narrow'), count(*) \
             from job_chunk c join queue q on q.id = c.queue_id where c.state = 'RUNNING'";
        for _ in 0..20 {
            let found = stack.recorded(counts).await;
            narrow.fetch_max(found[0][0], Ordering::SeqCst);
            all.fetch_max(found[0][1], Ordering::SeqCst);
        }
        let done = "select count(*) from job where status = 'COMPLETED'";
        stack.recorded(done).await == [[2]]
    });
    looked.await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    for id in jobs {
        client.wait_for(&id, "COMPLETED").await;
    }
    let (narrow, all) = (narrow.into_inner(), all.into_inner());
    assert!(narrow <= 2 && all <= 4, "{narrow} of the narrow source and {all} in all were running");
}
