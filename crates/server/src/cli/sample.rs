//! The demo's sample data: positions of a few accounts on a few days, in a SQLite file.

use std::path::Path;

use chrono::{Days, NaiveDate};
use outhaul_core::clock;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

/// The accounts.
pub(crate) const KEYS: [&str; 6] = ["ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO", "FOXTROT"];

/// Rows of one account on one day.
const ROWS: i64 = 15_000;

const TABLE: &str = "
    create table if not exists positions (
        id integer primary key, account text not null, effective_date text not null, instrument text not null,
        quantity integer not null, price real not null, currency text not null, note text)";

const INDEX: &str = "create index if not exists positions_by_day on positions (effective_date, account)";

/// One account's day; the numbers only have to look alive, and be the same on every run.
const FILL: &str = "
    with recursive n(i) as (select 1 union all select i + 1 from n where i < ?3)
    insert into positions (account, effective_date, instrument, quantity, price, currency, note)
    select ?1, ?2, printf('XS%010d', (i * 7919) % 10000000000), (i * 37) % 10000 - 2500,
           round(1 + ((i * 104729) % 100000) / 250.0, 2),
           case i % 3 when 0 then 'EUR' when 1 then 'USD' else 'CHF' end,
           case i % 50 when 0 then 'pledged, see \"annex ' || i || '\"' when 1 then '' else null end
    from n";

/// Two fixed days, whose files are reused by the next run, and two recent ones, which are made anew.
pub(crate) fn dates() -> Vec<NaiveDate> {
    let today = clock::now().date_naive();
    let fixed = [(2025, 2, 15), (2025, 3, 15)];
    let fixed = fixed.into_iter().filter_map(|(y, m, d)| NaiveDate::from_ymd_opt(y, m, d));
    fixed.chain([2, 1].into_iter().filter_map(|days| today.checked_sub_days(Days::new(days)))).collect()
}

/// Makes sure that the file holds these days, and returns how many rows it has.
pub(crate) async fn fill(file: &Path) -> sqlx::Result<u64> {
    let options =
        SqliteConnectOptions::new().filename(file).create_if_missing(true).disable_statement_logging();
    let mut connection = options.connect().await?;
    sqlx::query(TABLE).execute(&mut connection).await?;
    sqlx::query(INDEX).execute(&mut connection).await?;
    for date in dates() {
        let day = date.format("%Y-%m-%d").to_string();
        let there: bool =
            sqlx::query_scalar("select exists (select 1 from positions where effective_date = ?1)")
                .bind(&day)
                .fetch_one(&mut connection)
                .await?;
        if !there {
            fill_day(&mut connection, &day).await?;
        }
    }
    let rows: i64 = sqlx::query_scalar("select count(*) from positions").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(rows.unsigned_abs())
}

/// A whole day or nothing of it.
async fn fill_day(connection: &mut SqliteConnection, day: &str) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    for key in KEYS {
        sqlx::query(FILL).bind(key).bind(day).bind(ROWS).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
