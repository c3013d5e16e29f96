//! How many rows a query on PostgreSQL will have: counted by the dataset's own query, or estimated by the
//! planner. Asked inside a savepoint, so that whatever goes wrong is undone before the rows are read.

use std::time::Duration;

use outhaul_core::progress::Total;
use serde_json::Value;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row as _};
use tracing::debug;

use super::params::LiteralError;
use super::pg_session::answer;
use super::{Count, Query};

/// Also takes the time limit back.
const UNDO: &str = "rollback to savepoint outhaul_total";

/// Asks, for so long at most. An error means that the session is of no more use; all else that goes wrong is
/// no total.
pub(super) async fn total(
    connection: &mut PgConnection,
    query: &Query<'_>,
    limit: Duration,
) -> sqlx::Result<Option<Total>> {
    // A value that no literal can hold is reported by whoever reads the rows.
    let Ok(Some(sql)) = question(query) else { return Ok(None) };
    let limit = limit.as_millis().clamp(1, i32::MAX as u128);
    let begin = format!("savepoint outhaul_total; set local statement_timeout = {limit}");
    answer(sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection)).await?;
    let row = match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut *connection).await {
        Ok(row) => Ok(row),
        Err(error @ (sqlx::Error::Database(_) | sqlx::Error::RowNotFound)) => Err(error),
        Err(error) => return Err(error),
    };
    answer(sqlx::raw_sql(UNDO).execute(connection)).await?;
    let total = row.and_then(|row| match query.count {
        Count::Exact(_) => {
            let count: Option<i64> = row.try_get(0)?;
            Ok(count.filter(|count| *count >= 0).map(Total::Exact))
        }
        // Its type is json, which is text as it comes.
        _ => Ok(estimate(row.try_get_unchecked(0)?).map(Total::Estimate)),
    });
    Ok(total.unwrap_or_else(|error| {
        let error = match &error {
            sqlx::Error::Database(answer) => query.words().of_state(&**answer),
            other => query.words().of_other(other),
        };
        debug!(
            dataset = query.dataset,
            error, "dataset {}: how many rows there are is not known", query.dataset
        );
        None
    }))
}

fn question(query: &Query<'_>) -> Result<Option<String>, LiteralError> {
    let filled =
        |template: &super::Template| template.with_claims(query.key, query.effective_date, query.claims());
    Ok(match query.count {
        Count::No => None,
        Count::Estimate => Some(format!("explain (format json)\n{}", filled(query.template)?)),
        // As one value: the server itself refuses two columns, two rows, and what is no number.
        Count::Exact(template) => Some(format!("select (\n{}\n)::bigint", filled(template)?)),
    })
}

/// The planner's estimate from its plan, unless it says nothing.
fn estimate(plan: &str) -> Option<i64> {
    let plan: Value = serde_json::from_str(plan).ok()?;
    let plan = plan.get(0)?.get("Plan")?;
    let rows = plan.get("Plan Rows")?.as_f64().filter(|rows| (1.0..1e18).contains(rows))?;
    let mut leaf = plan;
    while let Some([only]) = leaf.get("Plans").and_then(Value::as_array).map(Vec::as_slice) {
        leaf = only;
    }
    // The planner cannot look into a function: what it says is a constant of the function's definition.
    let is_function = leaf.get("Node Type").and_then(Value::as_str) == Some("Function Scan");
    (!is_function).then_some(rows as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_that_say_nothing_are_not_believed() {
        let plan = |plan: &str| estimate(&format!("[{{\"Plan\": {plan}}}]"));
        assert_eq!(plan(r#"{"Node Type": "Seq Scan", "Plan Rows": 41234}"#), Some(41_234));
        let sorted = |node: &str| {
            plan(&format!(
                r#"{{"Node Type": "Sort", "Plan Rows": 1000, "Plans": [{{"Node Type": "{node}", "Plan Rows": 1000}}]}}"#
            ))
        };
        assert_eq!(sorted("Index Scan"), Some(1000));
        assert_eq!(sorted("Function Scan"), None);
        for nonsense in [r#"{"Plan Rows": -1}"#, r#"{"Plan Rows": 0}"#, r#"{"Plan Rows": 1e300}"#, "{}", "7"]
        {
            assert_eq!(plan(nonsense), None, "{nonsense}");
        }
        assert_eq!((estimate(""), estimate("{}"), estimate("[]")), (None, None, None));
    }
}
