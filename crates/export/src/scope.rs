//! Row filtering as a dataset is configured: which claims its rows depend on, and how they reach its query.
//! Checked whole at start, so that no dataset promises a filter that is not there.

use std::collections::BTreeSet;

use crate::settings::ScopeSettings;
use crate::source::Dialect;
use crate::source::params::{Template, claim_placeholder};

/// PostgreSQL cuts longer names, and a cut name could be another role's.
const MAX_ROLE_BYTES: usize = 63;

/// What the rows of a dataset depend on besides key and date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowScope {
    claims: BTreeSet<String>,
    security: Option<Security>,
}

/// How a dataset relies on its source's row-level security.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Which role its queries run as; none: the source's own user.
    pub role: Option<RoleRule>,
    /// The tables that its queries may read without any, as `schema.table`, quoted as in SQL.
    pub unsecured: BTreeSet<String>,
}

/// The role that a caller's queries run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRule {
    /// The claim that names it.
    pub claim: String,
    /// The names it may have.
    pub allowed: BTreeSet<String>,
}

impl RowScope {
    /// Checks a dataset's settings against its queries, each with its name in the configuration. `None`: its
    /// rows are the same for everybody.
    pub(crate) fn check(
        settings: &ScopeSettings,
        dialect: Dialect,
        queries: &[(&str, &Template)],
    ) -> Result<Option<Self>, Vec<String>> {
        let mut problems = Vec::new();
        let mut claims = BTreeSet::new();
        for name in &settings.row_scope {
            if name.trim().is_empty() {
                problems.push("row_scope has a claim without a name".to_owned());
            } else if !claims.insert(name.clone()) {
                problems.push(format!("row_scope names claim `{name}` twice"));
            }
        }
        let role = role_rule(settings, &mut problems);
        let unsecured = unsecured(settings, &mut problems);
        if settings.row_security {
            if dialect != Dialect::Postgres {
                problems.push("row_security needs a PostgreSQL source".to_owned());
            }
            if claims.is_empty() && role.is_none() {
                let why = "row_security needs row_scope or role_claim, else all callers would share one file";
                problems.push(why.to_owned());
            }
        }
        let filtered = if settings.row_security { BTreeSet::new() } else { claims.clone() };
        claims.extend(role.as_ref().map(|role| role.claim.clone()));
        for (which, template) in queries {
            for name in template.claims().iter().filter(|name| !claims.contains(*name)) {
                let asked = claim_placeholder(name);
                problems.push(format!("its {which} uses `{asked}`, but row_scope does not name it"));
            }
            for name in filtered.iter().filter(|name| !template.claims().contains(name)) {
                let asked = claim_placeholder(name);
                problems.push(format!(
                    "its {which} does not use `{asked}`, so that row_scope promises a filter that is not there"
                ));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let security = settings.row_security.then_some(Security { role, unsecured });
        Ok((!claims.is_empty()).then_some(Self { claims, security }))
    }

    /// The claims that rows may depend on, that of the role among them.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().map(String::as_str)
    }

    /// How it relies on the source's row-level security, if it does.
    pub fn security(&self) -> Option<&Security> {
        self.security.as_ref()
    }

    /// What of it decides the content of files, in an order that is always the same.
    pub(crate) fn definition(&self) -> Vec<String> {
        let role = self.security.as_ref().and_then(|security| security.role.as_ref());
        let parts = ["row_scope".to_owned(), format!("row_security={}", self.security.is_some())];
        let role = role.map(|role| format!("role_claim={}", role.claim));
        parts.into_iter().chain(role).chain(self.claims.iter().cloned()).collect()
    }
}

fn role_rule(settings: &ScopeSettings, problems: &mut Vec<String>) -> Option<RoleRule> {
    let Some(claim) = &settings.role_claim else {
        if !settings.roles.is_empty() {
            problems.push("roles needs role_claim, the claim that names one of them".to_owned());
        }
        return None;
    };
    if claim.trim().is_empty() {
        problems.push("role_claim has no name".to_owned());
    }
    if !settings.row_security {
        problems.push("role_claim needs row_security = true".to_owned());
    }
    if settings.roles.is_empty() {
        problems.push("role_claim needs roles, the names that it may have".to_owned());
    }
    for role in &settings.roles {
        // `none` would take the role back, also in quotes.
        if role.is_empty() || role == "none" || role.len() > MAX_ROLE_BYTES || role.contains('\0') {
            problems.push(format!("roles: `{}` is not the name of a role", role.escape_debug()));
        }
    }
    Some(RoleRule { claim: claim.clone(), allowed: settings.roles.iter().cloned().collect() })
}

/// Whether a query reads them shows only at the source.
fn unsecured(settings: &ScopeSettings, problems: &mut Vec<String>) -> BTreeSet<String> {
    if !settings.row_security && !settings.unsecured_tables.is_empty() {
        problems.push("unsecured_tables needs row_security = true".to_owned());
    }
    let mut tables = BTreeSet::new();
    for table in &settings.unsecured_tables {
        let name = table.escape_debug();
        if table.split_once('.').is_none_or(|(schema, table)| schema.is_empty() || table.is_empty()) {
            problems.push(format!("unsecured_tables: `{name}` is not written as `schema.table`"));
        } else if !tables.insert(table.clone()) {
            problems.push(format!("unsecured_tables names `{name}` twice"));
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &ScopeSettings, dialect: Dialect, query: &str) -> Result<Option<RowScope>, String> {
        let template = Template::parse(query, dialect).unwrap();
        RowScope::check(settings, dialect, &[("query", &template)]).map_err(|problems| problems.join("; "))
    }

    fn scope(claims: &[&str]) -> ScopeSettings {
        let row_scope = claims.iter().map(|claim| (*claim).to_owned()).collect();
        ScopeSettings { row_scope, ..ScopeSettings::default() }
    }

    fn secured(claims: &[&str]) -> ScopeSettings {
        ScopeSettings { row_security: true, ..scope(claims) }
    }

    #[test]
    fn rows_for_everybody_have_no_scope() {
        assert_eq!(check(&ScopeSettings::default(), Dialect::Sqlite, "select :key"), Ok(None));
    }

    #[test]
    fn claims_of_query_and_scope_are_the_same() {
        let good = check(&scope(&["county"]), Dialect::Sqlite, "select :claims.county").unwrap().unwrap();
        assert_eq!(good.claims().collect::<Vec<_>>(), ["county"]);
        assert_eq!(good.security(), None);
        for (settings, query, problem) in [
            (
                ScopeSettings::default(),
                "select :claims.county",
                "uses `:claims.county`, but row_scope does not",
            ),
            (
                scope(&["county"]),
                "select :claims.county, :claims.x",
                "uses `:claims.x`, but row_scope does not",
            ),
            (scope(&["county"]), "select 1", "query does not use `:claims.county`"),
            (
                scope(&["county"]),
                "select ':claims.county' -- :claims.county",
                "does not use `:claims.county`",
            ),
            (scope(&["county", "county"]), "select :claims.county", "names claim `county` twice"),
            (scope(&[" "]), "select 1", "a claim without a name"),
            // Whoever forgets the quotes sees how it is written.
            (scope(&["home-county"]), "select :claims.home-county", "uses `:claims.home`, but row_scope"),
            (
                scope(&["home-county"]),
                "select :claims.home-county",
                "does not use `:claims.\"home-county\"`, so that",
            ),
            (
                scope(&["a"]),
                "select :claims.a, :claims.\"https://ex.com/a\"",
                "uses `:claims.\"https://ex.com/a\"`, but row_scope does not",
            ),
        ] {
            let problems = check(&settings, Dialect::Postgres, query).unwrap_err();
            assert!(problems.contains(problem), "{problem} in {problems}");
        }
    }

    #[test]
    fn a_count_is_filtered_like_the_rows() {
        let parse = |sql| Template::parse(sql, Dialect::Sqlite).unwrap();
        let (rows, count) =
            (parse("select * from t where c = :claims.county"), parse("select count(*) from t"));
        let queries = [("query", &rows), ("count_query", &count)];
        let problems = RowScope::check(&scope(&["county"]), Dialect::Sqlite, &queries).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("count_query does not use `:claims.county`"), "{problems:?}");
        assert!(RowScope::check(&secured(&["county"]), Dialect::Postgres, &queries).is_ok());
    }

    #[test]
    fn row_security_is_for_postgresql_and_depends_on_somebody() {
        assert!(
            check(&secured(&["county"]), Dialect::Postgres, "select 1")
                .unwrap()
                .unwrap()
                .security()
                .is_some()
        );
        for (settings, dialect, problem) in [
            (secured(&["county"]), Dialect::Sqlite, "needs a PostgreSQL source"),
            (secured(&[]), Dialect::Postgres, "needs row_scope or role_claim"),
        ] {
            let problems = check(&settings, dialect, "select 1").unwrap_err();
            assert!(problems.contains(problem), "{problem} in {problems}");
        }
    }

    #[test]
    fn tables_without_row_security_are_named_in_full() {
        let with = |tables: &[&str]| ScopeSettings {
            unsecured_tables: tables.iter().map(|table| (*table).to_owned()).collect(),
            ..secured(&["county"])
        };
        let good = check(&with(&["public.lookup", "\"My\".t"]), Dialect::Postgres, "select 1");
        assert_eq!(good.unwrap().unwrap().security().unwrap().unsecured.len(), 2);
        for (settings, problem) in [
            (with(&["lookup"]), "`lookup` is not written as `schema.table`"),
            (with(&["public."]), "`public.` is not written as `schema.table`"),
            (with(&[".lookup"]), "`.lookup` is not written as `schema.table`"),
            (with(&["a.b", "a.b"]), "unsecured_tables names `a.b` twice"),
            (
                ScopeSettings { row_security: false, ..with(&["a.b"]) },
                "unsecured_tables needs row_security = true",
            ),
        ] {
            let problems = check(&settings, Dialect::Postgres, "select :claims.county").unwrap_err();
            assert!(problems.contains(problem), "{problem} in {problems}");
        }
    }

    #[test]
    fn roles_come_from_a_list_of_possible_names() {
        let with = |claim: Option<&str>, roles: &[&str]| ScopeSettings {
            role_claim: claim.map(str::to_owned),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..secured(&[])
        };
        let good = check(&with(Some("db_role"), &["north", "So\"uth"]), Dialect::Postgres, "select 1");
        let good = good.unwrap().unwrap();
        assert_eq!(good.claims().collect::<Vec<_>>(), ["db_role"]);
        assert_eq!(good.security().unwrap().role.as_ref().unwrap().allowed.len(), 2);
        let long = "x".repeat(64);
        for (settings, problem) in [
            (with(Some("db_role"), &[]), "role_claim needs roles"),
            (with(None, &["north"]), "roles needs role_claim"),
            (with(Some(""), &["north"]), "role_claim has no name"),
            (with(Some("db_role"), &["none"]), "`none` is not the name of a role"),
            (with(Some("db_role"), &[""]), "`` is not the name of a role"),
            (with(Some("db_role"), &["a\0b"]), "`a\\0b` is not the name of a role"),
            (with(Some("db_role"), &[&long]), "is not the name of a role"),
            (
                ScopeSettings { row_security: false, ..with(Some("db_role"), &["north"]) },
                "role_claim needs row_security = true",
            ),
        ] {
            let problems = check(&settings, Dialect::Postgres, "select 1").unwrap_err();
            assert!(problems.contains(problem), "{problem} in {problems}");
        }
    }
}
