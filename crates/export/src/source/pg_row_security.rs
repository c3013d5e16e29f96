//! Whether row-level security holds for whoever a dataset's queries run as, asked of the server itself. Every
//! query is planned, not run, as each role it may run as; the locks that planning took say which relations it
//! reads, also through views, policies and functions that the planner can look into.

use std::sync::Arc;

use outhaul::Failed;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::params::Template;
use super::pg_rights::{Acting, assume};
use super::pg_session::{Sessions, answer};
use crate::dataset::Dataset;
use crate::rights::Assumed;

/// The relations that this transaction has planned to read, and what is wrong with each.
///
/// `kind` is `guarded` for a table whose row-level security is active for the current user, `bare` for one
/// without any, `open` for one whose row-level security is not active (the current user owns it), `child` for
/// one that has it but is read through a parent without (a child's policies are not looked at then), `view`
/// for a view that reads a table with it as somebody else, whose policies are others or none, and `stored` for
/// a materialized view, which keeps such a table's rows without any policies. The tables that a materialized
/// view was made from are not planned to be read, so that they have to be looked for.
const RELATIONS: &str = "\
with recursive seen as materialized (
  select distinct c.oid, c.relkind, c.relowner, c.relrowsecurity, c.relforcerowsecurity, c.reloptions,
         pg_catalog.format('%I.%I', n.nspname, c.relname) as name
  from pg_catalog.pg_locks as l
  join pg_catalog.pg_class as c on c.oid = l.relation
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  where l.locktype = 'relation' and l.pid = pg_catalog.pg_backend_pid()
    and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = pg_catalog.current_database())
    and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and n.nspname <> 'pg_catalog' and n.nspname <> 'information_schema'
), parents as (
  select i.inhrelid as child, p.relrowsecurity, p.name
  from pg_catalog.pg_inherits as i join seen as p on p.oid = i.inhparent
), stored as (
  select v.oid as made, v.oid as source from seen as v where v.relkind = 'm'
  union
  select s.made, d.refobjid
  from stored as s
  join pg_catalog.pg_rewrite as r on r.ev_class = s.source
  join pg_catalog.pg_depend as d
    on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = r.oid
   and d.refclassid = 'pg_catalog.pg_class'::regclass
)
select case when not t.relrowsecurity then 'bare'
            when pg_catalog.row_security_active(t.oid) then 'guarded'
            else 'open' end as kind, t.name, null as other, null as owner
from seen as t
where t.relkind <> 'v' and not exists (select from parents as p where p.child = t.oid)
union all
select 'child', t.name, p.name, null
from seen as t join parents as p on p.child = t.oid
where t.relrowsecurity and not p.relrowsecurity
union all
select distinct 'view', v.name, t.name, o.rolname::text
from seen as v
join pg_catalog.pg_roles as o on o.oid = v.relowner
join pg_catalog.pg_rewrite as r on r.ev_class = v.oid
join pg_catalog.pg_depend as d
  on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = r.oid
 and d.refclassid = 'pg_catalog.pg_class'::regclass
join seen as t on t.oid = d.refobjid and t.relrowsecurity
where v.relkind = 'v'
  and not exists (
    select from pg_catalog.pg_options_to_table(v.reloptions) as x
    where x.option_name = 'security_invoker' and x.option_value::boolean)
  and (o.rolname <> current_user or o.rolsuper or o.rolbypassrls
    or (pg_catalog.pg_has_role(o.oid, t.relowner, 'USAGE') and not t.relforcerowsecurity))
union all
select distinct 'stored', v.name, pg_catalog.format('%I.%I', n.nspname, t.relname), null
from stored as s
join seen as v on v.oid = s.made
join pg_catalog.pg_class as t on t.oid = s.source and t.relrowsecurity
join pg_catalog.pg_namespace as n on n.oid = t.relnamespace
order by 1, 2, 3";

/// What is wrong for one role. `None`: the source's own user.
pub(super) async fn problems(
    sessions: &Arc<Sessions>,
    dataset: &Dataset,
    role: Option<&str>,
    failed: &(dyn Fn(&sqlx::Error) -> Failed + Sync),
) -> Result<Vec<String>, Failed> {
    let mut session = sessions.begin(None).await.map_err(|error| failed(&error))?;
    let found = look(session.connection(), dataset, role).await;
    // Nothing runs in it any more, whatever went wrong.
    session.discard();
    found.map_err(|error| failed(&error))
}

async fn look(
    connection: &mut PgConnection,
    dataset: &Dataset,
    role: Option<&str>,
) -> sqlx::Result<Vec<String>> {
    let assumed = Assumed { role: role.map(str::to_owned), claims: "{}".to_owned() };
    let acting = assume(connection, &assumed).await?;
    if acting.bypasses {
        let name = &acting.name;
        return Ok(vec![format!(
            "its queries run as `{name}`, to whom row-level security is nothing (a superuser, or BYPASSRLS); sign in as another user, or name roles without these rights"
        )]);
    }
    let mut problems = Vec::new();
    let count = dataset.count.as_ref().map(|count| ("count_query", count));
    for (which, template) in [("query", &dataset.template)].into_iter().chain(count) {
        let rows = relations(connection, template).await?;
        problems.extend(judge(which, &acting, &rows)?);
    }
    Ok(problems)
}

/// What a query reads. Planned inside a savepoint, so that the locks of one query are not taken for the next's.
async fn relations(connection: &mut PgConnection, template: &Template) -> sqlx::Result<Vec<PgRow>> {
    answer(sqlx::raw_sql("savepoint outhaul_look").execute(&mut *connection)).await?;
    let plan = format!("explain\n{}", template.with_nulls());
    answer(sqlx::raw_sql(AssertSqlSafe(plan)).execute(&mut *connection)).await?;
    let rows = answer(sqlx::query(RELATIONS).persistent(false).fetch_all(&mut *connection)).await?;
    answer(sqlx::raw_sql("rollback to savepoint outhaul_look").execute(connection)).await?;
    Ok(rows)
}

fn judge(which: &str, acting: &Acting, rows: &[PgRow]) -> sqlx::Result<Vec<String>> {
    let (mut problems, mut bare, mut guarded) = (Vec::new(), Vec::new(), false);
    let name = &acting.name;
    for row in rows {
        let kind: &str = row.try_get("kind")?;
        let table: &str = row.try_get("name")?;
        let other: &str = row.try_get::<Option<&str>, _>("other")?.unwrap_or_default();
        match kind {
            "guarded" => guarded = true,
            "bare" => bare.push(table),
            "child" => problems.push(format!(
                "its {which} reads table `{table}` through `{other}`, which has no row-level security; enable it there"
            )),
            "view" => {
                let owner: &str = row.try_get::<Option<&str>, _>("owner")?.unwrap_or_default();
                problems.push(format!(
                    "its {which} reads table `{other}` through view `{table}` with the rights of the view's owner `{owner}`, under the policies for `{owner}` or none; make it `with (security_invoker)`"
                ));
            }
            "stored" => problems.push(format!(
                "its {which} reads materialized view `{table}`, which keeps rows of table `{other}` without the table's row-level security; read the table itself, or a view `with (security_invoker)`"
            )),
            _ => problems.push(format!(
                "its {which} runs as `{name}`, who owns table `{table}`, so that the table's row-level security is nothing to it; FORCE it, or run as another user"
            )),
        }
    }
    if !guarded && problems.is_empty() {
        let read = if bare.is_empty() {
            "reads no table that the planner can see (what a function reads is hidden from it)".to_owned()
        } else {
            format!("reads no table with row-level security, only {}", bare.join(", "))
        };
        problems.push(format!("its {which} {read}; enable row-level security on what it reads"));
    }
    Ok(problems)
}
