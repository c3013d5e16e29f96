//! Whether row-level security holds for whoever a dataset's queries run as, asked of the server itself. Every
//! query is planned, not run, as each role it may run as; the locks that planning took say which relations it
//! reads, also through views, policies and functions that the planner can look into. All of them must have
//! row-level security, but those that the configuration names.

mod called;

use std::collections::BTreeSet;
use std::sync::Arc;

use outhaul::Failed;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::params::Template;
use super::pg_rights::{Acting, assume};
use super::pg_session::{Scope, Sessions, answer};
use super::{Count, Query};
use crate::dataset::Dataset;
use crate::rights::Assumed;
use crate::scope::Security;
use called::{Called, called};

/// The relations that this transaction has locked.
const LOCKED: &str = "select l.relation from pg_catalog.pg_locks as l \
    where l.locktype = 'relation' and l.pid = pg_catalog.pg_backend_pid() and l.database = \
      (select d.oid from pg_catalog.pg_database as d where d.datname = pg_catalog.current_database())";

/// The relations that this transaction has planned to read, and what is wrong with each.
const RELATIONS: &str = include_str!("pg_row_security/relations.sql");

/// What was found out about a dataset's queries, or one of them.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What is wrong and what to do, for people.
    pub(super) problems: Vec<String>,
    /// The tables without row-level security that are read.
    bare: BTreeSet<String>,
}

impl Found {
    fn extend(&mut self, more: Self) {
        self.problems.extend(more.problems);
        self.bare.extend(more.bare);
    }
}

/// What is wrong with the tables that need no row-level security, given what was found for every role. A name
/// that means nothing today would keep silent about the table that it means tomorrow.
pub(super) fn stale(security: &Security, found: &[Found]) -> Option<String> {
    let is_read = |table: &str| found.iter().any(|found| found.bare.contains(table));
    let stale: Vec<&str> =
        security.unsecured.iter().map(String::as_str).filter(|table| !is_read(table)).collect();
    (!stale.is_empty()).then(|| {
        format!(
            "unsecured_tables names {}, which its queries do not read, or which has row-level security; take it out, or write it as `schema.table` (quoted as in SQL where that needs quotes)",
            listed(&stale)
        )
    })
}

/// What is wrong for one role. `None`: the source's own user.
pub(super) async fn look(
    sessions: &Arc<Sessions>,
    dataset: &Dataset,
    security: &Security,
    role: Option<&str>,
    failed: &(dyn Fn(&sqlx::Error) -> Failed + Sync),
) -> Result<Found, Failed> {
    let mut session = sessions.begin(None, Scope::Transaction).await.map_err(|error| failed(&error))?;
    let found = look_as(session.connection(), dataset, security, role).await;
    // Nothing runs in it any more, whatever went wrong.
    session.discard();
    found.map_err(|error| failed(&error))
}

/// What is wrong now, in a transaction that has taken on a caller's rights and is about to read the rows. The
/// locks of planning them are kept: from here to the end of the transaction nobody can take row-level security
/// off what the query reads.
pub(super) async fn look_now(
    connection: &mut PgConnection,
    acting: &Acting,
    unsecured: &BTreeSet<String>,
    query: &Query<'_>,
) -> sqlx::Result<Vec<String>> {
    let mut found = Found::default();
    if let Count::Exact(template) = query.count {
        found.extend(count_alone(connection, acting, unsecured, template).await?);
    }
    found.extend(one(connection, "query", acting, unsecured, query.template).await?);
    Ok(found.problems)
}

async fn look_as(
    connection: &mut PgConnection,
    dataset: &Dataset,
    security: &Security,
    role: Option<&str>,
) -> sqlx::Result<Found> {
    let (role, unsecured) = (role.map(str::to_owned), security.unsecured.clone());
    let assumed = Assumed { role, claims: "{}".to_owned(), unsecured };
    let acting = assume(connection, &assumed).await?;
    let mut found = Found::default();
    if let Some(name) = &acting.unbound {
        found.problems.push(if *name == acting.name {
            format!(
                "its queries run as `{name}`, to whom row-level security is nothing (a superuser, or BYPASSRLS); sign in as another user, or name roles without these rights"
            )
        } else {
            format!(
                "its source signs in as `{name}`, to whom row-level security is nothing (a superuser, or BYPASSRLS) and to whom a query can return from its role; sign in as another user, one that was granted the roles"
            )
        });
        return Ok(found);
    }
    if let Some(template) = &dataset.count {
        found.extend(count_alone(connection, &acting, &assumed.unsecured, template).await?);
    }
    found.extend(one(connection, "query", &acting, &assumed.unsecured, &dataset.template).await?);
    Ok(found)
}

/// Looks at a count inside a savepoint, so that its locks are not taken for those of the rows.
async fn count_alone(
    connection: &mut PgConnection,
    acting: &Acting,
    unsecured: &BTreeSet<String>,
    template: &Template,
) -> sqlx::Result<Found> {
    answer(sqlx::raw_sql("savepoint outhaul_look").execute(&mut *connection)).await?;
    let found = one(connection, "count_query", acting, unsecured, template).await?;
    answer(sqlx::raw_sql("rollback to savepoint outhaul_look").execute(connection)).await?;
    Ok(found)
}

/// Looks at one query; the locks of planning it are kept.
async fn one(
    connection: &mut PgConnection,
    which: &str,
    acting: &Acting,
    unsecured: &BTreeSet<String>,
    template: &Template,
) -> sqlx::Result<Found> {
    let sql = template.with_nulls();
    let names = match called(&sql) {
        Ok(names) => names,
        Err(problem) => {
            let problems = vec![format!("its {which} {problem}")];
            return Ok(Found { problems, ..Found::default() });
        }
    };
    let rows = planned(connection, &sql, &names).await?;
    judge(which, acting, unsecured, &rows)
}

/// Plans a query, and says what it reads and which functions it calls with the rights of others.
async fn planned(connection: &mut PgConnection, sql: &str, names: &[Called]) -> sqlx::Result<Vec<PgRow>> {
    // To prepare is to rewrite but not to plan: what is locked then is named by the query, a view or a policy,
    // and not only reached through a parent.
    let prepare = format!("prepare outhaul_look as\n{sql}\n; deallocate outhaul_look");
    answer(sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection)).await?;
    let locked = sqlx::query_scalar::<_, Oid>(LOCKED).persistent(false);
    let named: Vec<Oid> = answer(locked.fetch_all(&mut *connection)).await?;
    let plan = format!("explain\n{sql}");
    answer(sqlx::raw_sql(AssertSqlSafe(plan)).execute(&mut *connection)).await?;
    let schemas: Vec<Option<&str>> = names.iter().map(|called| called.schema.as_deref()).collect();
    let texts: Vec<&str> = names.iter().map(|called| called.name.as_str()).collect();
    let manners: Vec<&str> = names.iter().map(|called| called.manner.as_str()).collect();
    let ask = sqlx::query(RELATIONS).persistent(false).bind(named).bind(schemas).bind(texts).bind(manners);
    answer(ask.fetch_all(connection)).await
}

fn judge(which: &str, acting: &Acting, unsecured: &BTreeSet<String>, rows: &[PgRow]) -> sqlx::Result<Found> {
    let (mut problems, mut bare, mut stored) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut guarded = false;
    let name = &acting.name;
    for row in rows {
        let kind: &str = row.try_get("kind")?;
        let table: &str = row.try_get("name")?;
        let other: Option<&str> = row.try_get("other")?;
        let through = other.unwrap_or_default();
        match kind {
            "guarded" => guarded = true,
            "bare" => drop(bare.insert(table.to_owned())),
            "child" => problems.push(format!(
                "its {which} reads table `{table}` through `{through}`, which has no row-level security; enable it there"
            )),
            "view" => {
                let owner: &str = row.try_get::<Option<&str>, _>("owner")?.unwrap_or_default();
                problems.push(format!(
                    "its {which} reads table `{through}` through view `{table}` with the rights of the view's owner `{owner}`, under the policies for `{owner}` or none; make it `with (security_invoker)`"
                ));
            }
            "stored" => {
                stored.insert(table);
                problems.push(format!(
                    "its {which} reads materialized view `{table}`, which keeps rows of table `{through}` without the table's row-level security; read the table itself, or a view `with (security_invoker)`"
                ));
            }
            "definer" => {
                let view = other.map(|view| format!(" through view `{view}`")).unwrap_or_default();
                problems.push(format!(
                    "its {which} calls function `{table}`{view}, which is SECURITY DEFINER and reads with the rights of its owner, not under the caller's policies; make it SECURITY INVOKER, or do without it"
                ));
            }
            _ => problems.push(format!(
                "its {which} runs as `{name}`, who owns table `{table}`, so that the table's row-level security is nothing to it; FORCE it, or run as another user"
            )),
        }
    }
    let loose: Vec<&str> = bare
        .iter()
        .map(String::as_str)
        .filter(|table| !unsecured.contains(*table) && !stored.contains(table))
        .collect();
    if guarded && !loose.is_empty() {
        problems.push(format!(
            "its {which} reads {} without row-level security; enable it there, or, if every caller may see all rows of it, name it in unsecured_tables",
            listed(&loose)
        ));
    }
    if !guarded && problems.is_empty() {
        let read = if bare.is_empty() {
            "reads no table that the planner can see (what a function reads is hidden from it)".to_owned()
        } else {
            let bare: Vec<&str> = bare.iter().map(String::as_str).collect();
            format!("reads no table with row-level security, only {}", bare.join(", "))
        };
        problems.push(format!("its {which} {read}; enable row-level security on what it reads"));
    }
    Ok(Found { problems, bare })
}

/// `table `a``, or `tables `a`, `b``.
fn listed(tables: &[&str]) -> String {
    let names: Vec<String> = tables.iter().map(|table| format!("`{table}`")).collect();
    format!("{} {}", if tables.len() == 1 { "table" } else { "tables" }, names.join(", "))
}
