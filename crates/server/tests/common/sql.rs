//! SQL behind Outhaul's back: the rows that tests export, and what the engine really recorded. The
//! source is a SQLite file on the embedded default, and the installation's PostgreSQL otherwise.

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};

use super::{Kind, Stack};

/// A query that both kinds of sources take. A number that has no absolute value makes it fail.
pub const POSITIONS: &str = "select key, abs(n) as n, note from positions \
     where key = :key and day = :effective_date order by n";

/// Configures the source `warehouse` and the default dataset `positions` on it.
pub fn warehouse(kind: Kind, query: &str) -> String {
    let url = if kind == Kind::Embedded { "sqlite:source.db" } else { "{postgres}" };
    format!(
        "[sources.warehouse]\nurl = \"{url}\"\n\n\
         [datasets.positions]\ndefault = true\nsource = \"warehouse\"\nquery = \"{query}\"\n\n"
    )
}

impl Stack {
    /// Makes the table that [`POSITIONS`] reads, with three rows for each key and day.
    pub async fn make_positions(&self, keys: &[&str], days: &[&str]) {
        let mut sql = String::from("create table positions (key text, day date, n bigint, note text);");
        for key in keys {
            for day in days {
                for n in 1..=3 {
                    sql += &format!("insert into positions values ('{key}', '{day}', {n}, 'first');");
                }
            }
        }
        self.source(&sql).await;
    }

    /// Runs statements on the source.
    pub async fn source(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        let done = match self.kind {
            Kind::Embedded => {
                let file = self.dir.path().join("source.db");
                let url = format!("sqlite:{}?mode=rwc", file.display());
                let mut source = SqliteConnection::connect(&url).await.expect("open the source");
                let done = sqlx::raw_sql(sql).execute(&mut source).await.map(drop);
                source.close().await.expect("close the source");
                done
            }
            _ => {
                let mut source =
                    PgConnection::connect(self.postgres_url()).await.expect("the source answers");
                sqlx::raw_sql(sql).execute(&mut source).await.map(drop)
            }
        };
        done.expect("the source takes it");
    }

    /// Numbers from the engine's own tables: one row per row, one number per column.
    pub async fn recorded(&self, sql: &str) -> Vec<Vec<i64>> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self.kind {
            Kind::Embedded => {
                let file = self.dir.path().join("data/outhaul.db");
                let url = format!("sqlite:{}?mode=ro", file.display());
                let mut db = SqliteConnection::connect(&url).await.expect("open the engine's file");
                let rows = sqlx::query(sql).fetch_all(&mut db).await.expect("it answers");
                rows.iter().map(|row| (0..row.len()).map(|i| row.get::<i64, _>(i)).collect()).collect()
            }
            _ => {
                let mut db = PgConnection::connect(self.postgres_url()).await.expect("the database answers");
                let rows = sqlx::query(sql).fetch_all(&mut db).await.expect("it answers");
                rows.iter().map(|row| (0..row.len()).map(|i| row.get::<i64, _>(i)).collect()).collect()
            }
        }
    }

    /// Attempt, fence and "is in this state" of a job's chunks, in the order of the request.
    pub async fn chunks(&self, job: &str, state: &str) -> Vec<(i64, i64, bool)> {
        let rows = self
            .recorded(&format!(
                "select cast(c.attempt as bigint), c.fence, cast(case c.state when '{state}' then 1 else 0 end as bigint) \
                 from job_chunk c join job j on j.id = c.job_id where j.job_id = '{job}' order by c.position"
            ))
            .await;
        rows.into_iter().map(|row| (row[0], row[1], row[2] == 1)).collect()
    }
}
