//! The check at start, against real roles: whoever row-level security is nothing to is refused.

use outhaul_export::Dataset;
use outhaul_export::settings::{QuerySettings, ScopeSettings};
use outhaul_export::source::{RowSecurityProblem, open};

use crate::common::postgres;
use crate::stage::{Stage, by, csv, dataset, export, rights_of, secured};

/// `guarded` has row-level security and belongs to `{p}owner`; `plain` has none; views of all kinds.
async fn stage() -> Stage {
    Stage::new(
        "create user {p}owner; create user {p}member; grant {p}owner to {p}member; create user {p}bypass bypassrls;
         create user {p}root superuser; grant create on schema public to {p}owner;
         create table plain (n int); create table guarded (n int, c text); create table forced (n int, c text);
         alter table guarded enable row level security; alter table guarded owner to {p}owner;
         alter table forced enable row level security; alter table forced force row level security;
         alter table forced owner to {p}owner;
         create policy c on guarded using (c = current_setting('request.jwt.claims')::json ->> 'county');
         create policy c on forced using (c = current_setting('request.jwt.claims')::json ->> 'county');
         create view by_owner as table guarded; alter view by_owner owner to {p}owner;
         create view forced_by_owner as table forced; alter view forced_by_owner owner to {p}owner;
         create view by_root as table forced;
         create view by_invoker with (security_invoker = on) as table guarded;
         create view nested as select * from by_invoker; alter view nested owner to {p}owner;
         create view nested_open with (security_invoker) as select * from by_owner;
         create view of_plain as table plain; alter view of_plain owner to {p}owner;
         create materialized view stored as table guarded;
         create materialized view stored_deep as select * from by_invoker;
         create materialized view stored_plain as table plain;
         create view of_stored with (security_invoker) as table stored;
         create table parent (n int, c text) partition by list (n);
         create table child partition of parent for values in (1);
         alter table child enable row level security;
         create table good_parent (n int, c text) partition by list (n);
         create table good_child partition of good_parent for values in (1);
         alter table good_parent enable row level security;
         create function opaque() returns setof guarded language plpgsql stable as $$ begin return query table guarded; end $$;
         create function clear() returns setof guarded language sql stable as $$ select * from guarded $$;
         create function clear_plain() returns setof plain language sql stable as $$ select * from plain $$;
         create table grants (c text); create table by_grants (n int, c text);
         alter table by_grants enable row level security;
         create policy c on by_grants using (c in (select g.c from grants as g));
         create schema other; grant usage on schema other to public;
         create function all_rows() returns setof guarded language sql stable security definer as $$ select * from guarded $$;
         create function n(text) returns int language sql immutable security definer as $$ select 1 $$;
         create function half(int) returns int language sql immutable security definer as $$ select 1 $$;
         create function \"Whole Row\"(guarded) returns int language sql stable security definer as $$ select count(*)::int from guarded $$;
         create function other.all_rows() returns int language sql stable as $$ select 1 $$;
         create function other.secret() returns int language sql stable security definer as $$ select count(*)::int from guarded $$;
         create view of_secret with (security_invoker) as select n, other.secret() as all_of_them from guarded;
         create function my_county() returns text language sql stable security definer as $$ select 'kent' $$;
         create table by_definer (n int, c text); alter table by_definer enable row level security;
         create policy c on by_definer using (c = my_county());
         grant select on all tables in schema public to public",
    )
    .await
}

fn roles(stage: &Stage, roles: &[&str]) -> ScopeSettings {
    let roles = roles.iter().map(|role| format!("{}{role}", stage.prefix)).collect();
    ScopeSettings { role_claim: Some("db_role".into()), roles, ..secured(&[]) }
}

async fn look(stage: &Stage, user: Option<&str>, dataset: &Dataset) -> Vec<RowSecurityProblem> {
    let problems = stage.source(user).check_row_security(dataset).await;
    assert!(problems.iter().all(|problem| problem.is_certain && problem.dataset == "positions"));
    problems
}

#[tokio::test]
async fn users_to_whom_row_security_is_nothing_are_refused() {
    let stage = stage().await;
    for (user, query, problem) in [
        (Some("reader"), "select * from guarded where c = :key", None),
        (
            None,
            "select * from guarded",
            Some("to whom row-level security is nothing (a superuser, or BYPASSRLS)"),
        ),
        (Some("root"), "select * from forced", Some("to whom row-level security is nothing")),
        (Some("bypass"), "select * from forced", Some("to whom row-level security is nothing")),
        (Some("owner"), "select * from guarded", Some("who owns table `public.guarded`")),
        (Some("owner"), "select * from forced, guarded", Some("who owns table `public.guarded`")),
        (Some("owner"), "select * from forced", None),
        (Some("owner"), "select * from forced_by_owner", None),
        (Some("member"), "select * from forced_by_owner", Some("through view `public.forced_by_owner`")),
        (Some("member"), "select * from guarded", Some("who owns table `public.guarded`")),
    ] {
        let problems = look(&stage, user, &dataset(query, secured(&["county"]))).await;
        match problem {
            None => assert_eq!(problems, [], "{user:?} {query}"),
            Some(text) => assert!(problems[0].to_string().contains(text), "{user:?} {query}: {problems:?}"),
        }
    }
}

#[tokio::test]
async fn what_a_query_reads_is_found_however_it_reads_it() {
    let stage = stage().await;
    for (query, problem) in [
        ("select * from plain", Some("reads no table with row-level security, only public.plain")),
        ("select 1", Some("reads no table that the planner can see")),
        ("select * from pg_class", Some("reads no table that the planner can see")),
        (
            "select * from by_owner",
            Some("through view `public.by_owner` with the rights of the view's owner"),
        ),
        ("select * from by_owner, forced", Some("through view `public.by_owner`")),
        ("select * from by_root", Some("through view `public.by_root`")),
        ("select * from nested_open", Some("through view `public.by_owner`")),
        // Its owner is held to policies too, but these need not be the reader's.
        ("select * from forced_by_owner", Some("through view `public.forced_by_owner`")),
        ("select * from by_invoker", None),
        ("select * from nested", None),
        ("select * from guarded, of_plain", Some("reads table `public.plain` without row-level security")),
        (
            "select * from stored",
            Some("reads materialized view `public.stored`, which keeps rows of table `public.guarded`"),
        ),
        ("select * from guarded, stored", Some("reads materialized view `public.stored`")),
        ("select * from guarded, stored_deep", Some("reads materialized view `public.stored_deep`")),
        ("select * from guarded, of_stored", Some("reads materialized view `public.stored`")),
        ("select * from guarded, stored_plain", Some("reads table `public.stored_plain` without")),
        ("select * from stored_plain", Some("only public.stored_plain")),
        ("select * from parent", Some("through `public.parent`, which has no row-level security")),
        ("select * from parent, guarded", Some("through `public.parent`")),
        ("select * from child", None),
        ("select * from good_parent", None),
        // Its parent's policies are for what is read through the parent.
        (
            "select * from good_parent union all select * from good_child",
            Some("table `public.good_child` without"),
        ),
        ("select g.* from good_parent as g join child using (n)", None),
        ("select * from opaque()", Some("what a function reads is hidden")),
        ("select * from clear()", None),
        ("with g as materialized (select * from guarded) select count(*) from g", None),
        ("select * from guarded where c in (select c from guarded where c = :key::bigint::text)", None),
        // Nothing of it is left in the plan, but all of it was looked at.
        ("select * from guarded where c = :key and :effective_date > date '2025-01-01' and false", None),
        ("select * from guarded where n = :claims.county::int", None),
        ("select * from nowhere", Some("relation \"nowhere\" does not exist")),
        ("select from where", Some("syntax error")),
    ] {
        let problems = look(&stage, Some("reader"), &dataset(query, secured(&["county"]))).await;
        match problem {
            None => assert_eq!(problems, [], "{query}"),
            Some(text) => {
                let first = problems.first().map(ToString::to_string).unwrap_or_default();
                assert!(first.contains(text), "{query}: {problems:?}");
            }
        }
    }
}

fn unsecured(tables: &[&str]) -> ScopeSettings {
    let unsecured_tables = tables.iter().map(|table| (*table).to_owned()).collect();
    ScopeSettings { unsecured_tables, ..secured(&["county"]) }
}

#[tokio::test]
async fn tables_without_row_security_are_refused_unless_they_are_named() {
    let stage = stage().await;
    let plain: &[&str] = &["public.plain"];
    for (query, named, problem) in [
        (
            "select n from guarded union all select n from plain",
            &[][..],
            Some(
                "its query reads table `public.plain` without row-level security; enable it there, or, if every caller may see all rows of it, name it in unsecured_tables",
            ),
        ),
        ("select n from guarded union all select n from plain", plain, None),
        ("select * from guarded where n in (select n from plain)", &[], Some("table `public.plain` without")),
        ("with p as (select * from plain) select * from guarded, p", &[], Some("`public.plain` without")),
        ("select *, (select count(*) from plain) from guarded", &[], Some("`public.plain` without")),
        ("select g.n from guarded as g, of_plain", plain, None),
        ("select g.n from guarded as g, clear_plain()", &[], Some("`public.plain` without")),
        ("select g.n from guarded as g, clear_plain()", plain, None),
        ("select g.n from guarded as g, stored_plain", &["public.stored_plain"], None),
        ("select g.n from guarded as g, pg_class, information_schema.tables", &[], None),
        (
            "select 1 from guarded, plain, stored_plain",
            &[],
            Some("tables `public.plain`, `public.stored_plain`"),
        ),
        // What only policies read is read as well.
        ("select * from by_grants", &[], Some("table `public.grants` without")),
        ("select * from by_grants", &["public.grants"], None),
        // To name it is not to secure it.
        ("select * from plain", plain, Some("reads no table with row-level security, only public.plain")),
        (
            "select * from guarded, stored",
            &["public.stored"],
            Some("reads materialized view `public.stored`"),
        ),
        ("select * from parent, guarded", &["public.parent"], Some("reads table `public.child` through")),
        // A name that means nothing now could mean something later.
        (
            "select * from guarded",
            plain,
            Some("unsecured_tables names table `public.plain`, which its queries do not"),
        ),
        (
            "select * from guarded, plain",
            &["public.plain", "public.guarded"],
            Some("names table `public.guarded`"),
        ),
        (
            "select * from guarded, plain",
            &["public.plain", "public.Plain"],
            Some("names table `public.Plain`"),
        ),
    ] {
        let problems = look(&stage, Some("reader"), &dataset(query, unsecured(named))).await;
        match problem {
            None => assert_eq!(problems, [], "{query} {named:?}"),
            Some(text) => {
                assert!(problems.len() == 1 && problems[0].problem.contains(text), "{query}: {problems:?}");
            }
        }
    }
    // One that only the count reads is read.
    let rows = "select * from guarded".to_owned();
    let count = Some("select count(*) from guarded, plain".to_owned());
    let counted =
        |named| dataset(QuerySettings { rows: rows.clone(), count: count.clone() }, unsecured(named));
    assert_eq!(look(&stage, Some("reader"), &counted(plain)).await, []);
    let problems = look(&stage, Some("reader"), &counted(&[])).await;
    assert!(problems[0].problem.contains("its count_query reads table `public.plain`"), "{problems:?}");
}

#[tokio::test]
async fn what_only_the_policies_of_one_role_read_is_read() {
    let mut stage = stage().await;
    stage
        .run(
            "create role {p}north; create role {p}south; grant {p}north, {p}south to {p}reader;
             create table t (n int, c text); alter table t enable row level security; grant select on t to public;
             create policy north on t to {p}north using (true);
             create policy south on t to {p}south using (c in (select g.c from grants as g))",
        )
        .await;
    let both = roles(&stage, &["north", "south"]);
    let named = ScopeSettings { unsecured_tables: vec!["public.grants".into()], ..both.clone() };
    assert_eq!(look(&stage, Some("reader"), &dataset("select n from t", named)).await, []);
    assert_eq!(look(&stage, Some("reader"), &dataset("select n from t", both)).await.len(), 1);
}

#[tokio::test]
async fn functions_with_the_rights_of_their_owners_are_refused() {
    let stage = stage().await;
    for (query, function) in [
        ("select n from guarded union all select n from all_rows()", Some("`public.all_rows`")),
        (
            "select n from guarded union all select n from PUBLIC . ALL_ROWS /* ( */ ()",
            Some("`public.all_rows`"),
        ),
        ("select n, (select count(*) from \"all_rows\"()) from guarded", Some("`public.all_rows`")),
        ("select n from guarded, lateral (select all_rows()) as x", Some("`public.all_rows`")),
        // Nothing of it is left in the plan.
        ("select n from guarded where half(4) = 1", Some("`public.half`")),
        ("select n, (2 * 2).half from guarded", Some("`public.half`")),
        ("select g.n, x.half from guarded as g, generate_series(1, 3) as x", Some("`public.half`")),
        ("select n, \"Whole Row\"(guarded) from guarded", Some("`public.\"Whole Row\"`")),
        ("select g.n, g.\"Whole Row\" from guarded as g", Some("`public.\"Whole Row\"`")),
        ("select n, other.secret() from guarded", Some("`other.secret`")),
        ("select n from of_secret", Some("`other.secret` through view `public.of_secret`")),
        // Another of that name, a column of that name, and a text.
        ("select n, other.all_rows() from guarded", None),
        ("select g.n, 'all_rows()' from guarded as g -- all_rows()", None),
        // Policies decide who sees what, with whatever rights they need.
        ("select n from by_definer", None),
        ("select upper(c), count(*) from guarded group by c", None),
    ] {
        let problems = look(&stage, Some("reader"), &dataset(query, secured(&["county"]))).await;
        match function {
            None => assert_eq!(problems, [], "{query}"),
            Some(function) => {
                let text = format!("its query calls function {function}, which is SECURITY DEFINER");
                assert!(problems.len() == 1 && problems[0].problem.contains(&text), "{query}: {problems:?}");
            }
        }
    }
    let hidden = dataset("select n, other.U&\"secre\\0074\"() from guarded", secured(&["county"]));
    let problems = look(&stage, Some("reader"), &hidden).await;
    assert!(problems[0].problem.contains("has a name written as U&"), "{problems:?}");
}

#[tokio::test]
async fn a_count_is_looked_at_like_the_rows() {
    let stage = stage().await;
    for (count, good) in [("select count(*) from guarded", true), ("select count(*) from plain", false)] {
        let query = QuerySettings { rows: "select * from guarded".into(), count: Some(count.into()) };
        let problems = look(&stage, Some("reader"), &dataset(query, secured(&["county"]))).await;
        assert_eq!(problems.is_empty(), good, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.problem.contains("count_query reads no table")));
    }
}

#[tokio::test]
async fn every_role_of_the_list_is_looked_at() {
    let mut stage = stage().await;
    stage.run("create role {p}north; create role {p}south; grant {p}north, {p}bypass, {p}root, {p}owner to {p}reader").await;
    let query = "select * from guarded";
    let reader = Some("reader");
    assert_eq!(look(&stage, reader, &dataset(query, roles(&stage, &["north"]))).await, []);
    for (list, problem) in [
        (vec!["north", "bypass"], "bypass`, to whom row-level security is nothing"),
        (vec!["root"], "root`, to whom row-level security is nothing"),
        (vec!["owner"], "owner`, who owns table `public.guarded`"),
        (vec!["south"], "permission denied to set role"),
        (vec!["nobody"], "does not exist"),
    ] {
        let problems = look(&stage, reader, &dataset(query, roles(&stage, &list))).await;
        assert_eq!(problems.len(), 1, "{list:?}: {problems:?}");
        assert!(problems[0].problem.contains(problem), "{list:?}: {problems:?}");
        assert!(problems[0].problem.contains(list.last().unwrap()), "named: {problems:?}");
    }
}

#[tokio::test]
async fn whoever_signs_in_is_held_to_row_security_whatever_role_its_queries_run_as() {
    let mut stage = stage().await;
    stage
        .run("create role {p}north; create role {p}south; grant {p}north, {p}south to {p}bypass, {p}owner")
        .await;
    // A query can go back to who signed in, and would then see everything.
    let query = "select n from guarded where set_config('role', 'none', true) is not null";
    let both = roles(&stage, &["north", "south"]);
    for user in [None, Some("root"), Some("bypass")] {
        let problems = look(&stage, user, &dataset(query, both.clone())).await;
        assert_eq!(problems.len(), 1, "said once: {problems:?}");
        assert!(problems[0].problem.contains("its source signs in as `"), "{problems:?}");
        assert!(problems[0].problem.contains(user.unwrap_or_default()), "{problems:?}");
        assert!(problems[0].problem.contains("one that was granted the roles"), "{problems:?}");
    }
    // What it owns matters only for the role that reads.
    assert_eq!(look(&stage, Some("owner"), &dataset("select n from guarded", both)).await, []);
    let problems =
        look(&stage, Some("bypass"), &dataset(query, roles(&stage, &["north", "bypass", "nobody"]))).await;
    assert_eq!(problems.len(), 3, "beside what is wrong with roles: {problems:?}");
}

#[tokio::test]
async fn a_view_that_shows_every_role_what_its_owner_may_see_is_refused() {
    let mut stage = Stage::new(
        "create role {p}kent; create role {p}surrey; create role {p}app; grant {p}kent, {p}surrey to {p}reader;
         create table t (n int, county text); insert into t values (1, 'Kent'), (2, 'Surrey');
         alter table t enable row level security;
         create policy kent on t to {p}kent using (county = 'Kent');
         create policy surrey on t to {p}surrey using (county = 'Surrey');
         create policy app on t to {p}app using (true);
         create view shown as table t; alter view shown owner to {p}app;
         create view over as table shown; alter view over owner to {p}app;
         grant select on t, shown, over to public",
    )
    .await;
    let source = stage.source(Some("reader"));
    let both = roles(&stage, &["kent", "surrey"]);
    for view in ["shown", "over"] {
        let dataset = dataset(format!("select n from {view} order by n").as_str(), both.clone());
        let problems = look(&stage, Some("reader"), &dataset).await;
        assert_eq!(problems.len(), 1, "for either role, and said once: {problems:?}");
        let text =
            format!("through view `public.shown` with the rights of the view's owner `{}app`", stage.prefix);
        assert!(problems.iter().all(|problem| problem.problem.contains(&text)), "{problems:?}");
    }
    stage.run("alter view shown set (security_invoker = true)").await;
    for view in ["shown", "over"] {
        let dataset = dataset(format!("select n from {view} order by n").as_str(), both.clone());
        assert_eq!(look(&stage, Some("reader"), &dataset).await, []);
        for (role, n) in [("kent", 1), ("surrey", 2)] {
            let role = format!("{}{role}", stage.prefix);
            let rights = rights_of(&dataset, &[("db_role", role.into())]);
            assert_eq!(export(&*source, &dataset, "k", rights.as_ref()).await, Ok(csv([n])), "{view}");
        }
    }
}

#[tokio::test]
async fn a_source_that_is_away_proves_nothing_and_others_are_not_asked() {
    let away = open(&postgres("postgres://user:hunter2@127.0.0.1:1/db")).unwrap();
    let problems = away.check_row_security(&dataset("select 1", secured(&["county"]))).await;
    assert!(problems.len() == 1 && !problems[0].is_certain, "{problems:?}");
    assert!(!problems[0].to_string().contains("hunter2"));
    let parameters = dataset("select :claims.county", by(&["county"]));
    assert_eq!(away.check_row_security(&parameters).await, []);
    assert_eq!(away.check_row_security(&dataset("select 1", ScopeSettings::default())).await, []);
}
