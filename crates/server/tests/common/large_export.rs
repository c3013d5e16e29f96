//! The export that kill runs are judged by: 500 chunks (2,000 at full size), small ones and a few that need a
//! multipart upload, each compared with what the source itself gives.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use outhaul_testkit::size::size;
use serde_json::{Value, json};
use sqlx::Connection;

use super::{Client, Kind, Stack, dates, files_below, open_uploads, sha256};

const DAYS: u32 = 100;

fn keys() -> u32 {
    size(5, 20)
}

/// How many chunks it has.
pub fn chunks() -> u32 {
    keys() * DAYS
}

/// How long each chunk takes at least, in seconds: on a fast machine too there is time for kills.
const PAUSE: &str = "0.03";

const QUERY: &str = "select n, md5(n::text || :key || :effective_date::text) as a, \
     repeat('x', case when :key = 'K0' and extract(day from :effective_date) = 1 then 20000 else 20 end) as b \
     from pg_sleep({pause}), generate_series(1, case when :key = 'K0' and extract(day from :effective_date) = 1 then 600 else 40 end) n";

/// The configuration: leases so short, and attempts so many, that workers may be killed all the time.
pub fn sections() -> String {
    let query = QUERY.replace("{pause}", PAUSE);
    format!(
        "[worker]\nconcurrency = 4\nlease = \"3s\"\nheartbeat = \"1s\"\npoll_interval = \"200ms\"\n\n\
         [retry]\nmax_attempts = 40\nbackoff = {{ kind = \"fixed\", base = \"100ms\" }}\n\n\
         [sources.warehouse]\nurl = \"{{postgres}}\"\nmax_concurrent = 8\n\n\
         [datasets.positions]\ndefault = true\nsource = \"warehouse\"\nquery = \"{query}\"\n\n"
    )
}

/// What to submit; any number of times, it is one job.
pub fn request() -> Value {
    let items: Vec<_> =
        (0..keys()).map(|key| json!({ "key": format!("K{key}"), "effectiveDates": dates(DAYS) })).collect();
    json!({ "items": items, "idempotencyKey": "kill-run" })
}

/// Insists that the completed job has one file for every chunk, as the source gives it, and nothing else.
pub async fn is_complete(client: &Client, stack: &Stack, job: &Value) {
    assert_eq!(job["total"], chunks(), "{job}");
    assert_eq!(
        (&job["done"], &job["failed"], &job["pending"], &job["running"]),
        (&json!(chunks()), &json!(0), &json!(0), &json!(0))
    );
    let id = job["jobId"].as_str().expect("a jobId");
    assert_eq!(client.submit(&request()).await, id, "the key still names the job");

    let expected = expected(stack.postgres_url()).await;
    let files = client.files(id).await;
    assert_eq!(files.len(), expected.len());
    let rows: i64 = files.iter().map(|file| file["rows"].as_i64().expect("rows")).sum();
    assert_eq!(job["rows"], rows);
    let mut paths = Vec::new();
    for file in &files {
        let name = format!(
            "{} {}",
            file["key"].as_str().expect("key"),
            file["effectiveDate"].as_str().expect("date")
        );
        let (source_rows, source_sum) = &expected[&name];
        assert_eq!(&file["rows"], source_rows, "{name}");
        assert_eq!(file["sha256"], json!(source_sum), "{name}: recorded");
        let bytes = client.download(file["url"].as_str().expect("url")).await;
        assert_eq!(&sha256(&bytes), source_sum, "{name}: stored");
        paths.push(file["path"].as_str().expect("path").to_owned());
    }
    paths.sort();
    match stack.kind {
        Kind::PostgresS3 => {
            assert_eq!(open_uploads(&stack.prefix), Vec::<String>::new(), "no upload is left open")
        }
        _ => {
            let mut found = files_below(&stack.files());
            found.retain(|path| !path.starts_with(".staging"));
            assert_eq!(found, paths, "published files are those of the manifest");
        }
    }
}

/// What the source itself gives for every key and date: rows and checksum of PostgreSQL's own CSV.
async fn expected(source: &str) -> BTreeMap<String, (i64, String)> {
    let mut source = sqlx::PgConnection::connect(source).await.expect("the source answers");
    let mut expected = BTreeMap::new();
    for key in 0..keys() {
        for date in dates(DAYS) {
            let query = QUERY
                .replace("{pause}", "0")
                .replace(":key", &format!("'K{key}'"))
                .replace(":effective_date", &format!("date '{date}'"));
            let copy = format!("copy ({query}) to stdout (format csv, header)");
            let rows: Vec<_> =
                source.copy_out_raw(&copy).await.expect("copy").try_collect().await.expect("all of it");
            let count = i64::try_from(rows.len()).expect("few") - 1;
            expected.insert(format!("K{key} {date}"), (count, sha256(&rows.concat())));
        }
    }
    expected
}
