//! What the tests of sources share: a sink that remembers, and queries without ceremony.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::NaiveDate;
use futures::FutureExt as _;
use outhaul::Failed;
use outhaul_core::progress::Total;
use outhaul_core::secret::Secret;
use outhaul_export::settings::{SourceSettings, SourceUrl};
use outhaul_export::source::params::Template;
use outhaul_export::source::{Count, Dialect, Query, Sink, Source, StopSignal};
use tokio::sync::oneshot;

/// Keeps what it gets; says when it was first waited for the query.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) csv: Vec<u8>,
    pub(crate) largest: usize,
    pub(crate) moved: (i64, i64),
    pub(crate) total: Option<Total>,
    pub(crate) begun: bool,
    pub(crate) first: Option<oneshot::Sender<()>>,
    pub(crate) fail: bool,
}

#[async_trait]
impl Sink for Kept {
    async fn write(&mut self, csv: Bytes) -> Result<(), Failed> {
        if self.fail {
            return Err(Failed::Retryable("the sink is full".into()));
        }
        self.largest = self.largest.max(csv.len());
        self.csv.extend_from_slice(&csv);
        Ok(())
    }

    fn expect(&mut self, total: Total) {
        assert!(!self.begun && self.total.is_none(), "once, and before the rows");
        self.total = Some(total);
    }

    fn progress(&mut self, rows: i64, bytes: i64) {
        assert!(rows >= self.moved.0 && bytes >= self.moved.1, "never backwards");
        self.moved = (rows, bytes);
        if !std::mem::replace(&mut self.begun, true) {
            assert_eq!((rows, bytes), (0, 0), "the query begins");
            return;
        }
        if let Some(first) = self.first.take() {
            let _ = first.send(());
        }
    }
}

pub(crate) fn settings(url: SourceUrl) -> SourceSettings {
    SourceSettings {
        name: "warehouse".into(),
        url,
        max_concurrent: 4,
        statement_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(60),
        max_row_bytes: 64 << 20,
    }
}

pub(crate) fn postgres(url: &str) -> SourceSettings {
    settings(SourceUrl::Postgres(Secret::new(url)))
}

pub(crate) fn sqlite(path: PathBuf) -> SourceSettings {
    settings(SourceUrl::Sqlite(path))
}

pub(crate) fn never<'a>() -> StopSignal<'a> {
    futures::future::pending().boxed()
}

pub(crate) fn date() -> NaiveDate {
    NaiveDate::from_ymd_opt(2025, 2, 15).unwrap()
}

/// Runs a query with a key to its end.
pub(crate) async fn export(
    source: &dyn Source,
    dialect: Dialect,
    sql: &str,
    key: &str,
    slot: Option<&str>,
) -> Result<(String, i64), Failed> {
    let template = Template::parse(sql, dialect).unwrap();
    let kept = counted(source, &Query { key, slot, ..query(&template) }).await?;
    assert_eq!(kept.total, None, "it was not asked for");
    Ok((String::from_utf8(kept.csv).unwrap(), kept.moved.0))
}

/// Runs a query to its end.
pub(crate) async fn counted(source: &dyn Source, query: &Query<'_>) -> Result<Kept, Failed> {
    let mut kept = Kept::default();
    let rows = source.stream(query, never(), &mut kept).await?;
    assert_eq!(kept.moved, (rows, kept.csv.len() as i64), "the last progress is the whole");
    Ok(kept)
}

/// A query without anything special.
pub(crate) fn query(template: &Template) -> Query<'_> {
    Query {
        dataset: "positions",
        template,
        key: "k",
        effective_date: date(),
        rights: None,
        count: Count::No,
        slot: None,
    }
}

/// Keys that would change a careless query's meaning.
pub(crate) const HOSTILE: &[&str] = &[
    "'; DROP TABLE t; --",
    "1 OR 1=1",
    "' OR '1'='1",
    "'",
    "''",
    "\\",
    "\\'",
    "\\\\'; select 1; --",
    "\"",
    "%",
    "_",
    "$$",
    "$1",
    ":key",
    "::text",
    "?1",
    "-- ",
    "/*",
    "*/",
    "E'\\''",
    "😀",
    "ünïcödé",
    "\u{feff}",
    "\u{2019}",
    "\u{a0}",
    "a,b",
    "a\"b",
    "NULL",
    "\\.",
    "\u{1}",
];
