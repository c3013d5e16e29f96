//! `[auth]`, and what it means to datasets, schedules and the address: what is understood, and that
//! everything wrong is said at once.

use std::path::Path;
use std::time::Duration;

use outhaul_export::settings::ScopeSettings;
use serde_json::json;

use super::*;
use crate::config::{Config, Environment, Load, Problems};

const SECRET: &str = "hunter2-0123456789abcdef0123456789abcdef";

fn load_in<const N: usize>(
    folder: &Path,
    text: &str,
    variables: [(&str, &str); N],
) -> Result<Config, Problems> {
    let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
    Config::parse(text, folder, &load)
}

fn load(text: &str) -> Result<Config, Problems> {
    load_in(Path::new("/etc/outhaul"), text, [("ID_SECRET", SECRET)])
}

fn problems(text: &str) -> Vec<String> {
    let Err(problems) = load(text) else { return Vec::new() };
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(!said.join(" ").contains("hunter2"), "{said:?}");
    said
}

/// The paths of all problems, sorted.
fn paths(text: &str) -> Vec<String> {
    let found = load(text).err();
    let mut paths: Vec<String> =
        found.iter().flat_map(Problems::iter).map(|problem| problem.path.clone()).collect();
    paths.sort();
    paths
}

/// A good `[auth]` with further lines in it.
fn jwt(more: &str) -> String {
    format!(
        "[auth]\nmode = \"jwt\"\nissuer = \"https://id.example.com/\"\naudience = \"outhaul\"\n\
         secret_env = \"ID_SECRET\"\n{more}\n"
    )
}

#[test]
fn little_is_needed_and_the_rest_has_defaults() {
    let config = load(&jwt("")).unwrap();
    let jwt = config.auth.jwt().unwrap();
    let usual = JwtSettings::new(
        "https://id.example.com/",
        vec!["outhaul".into()],
        Keys::Secret(outhaul_core::secret::Secret::new(SECRET)),
    );
    assert_eq!(format!("{jwt:?}"), format!("{usual:?}"));
    assert!(matches!(&jwt.keys, Keys::Secret(secret) if secret.expose() == SECRET));
    assert_eq!(config.export.snapshot_max_age, Some(Duration::from_secs(86_400)));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn everything_can_be_said() {
    let text = r#"
        [auth]
        mode = "jwt"
        issuer = "https://id.example.com/"
        audience = ["outhaul", "exports"]
        algorithms = ["RS256", "ES256"]
        jwks_url = "https://id.example.com/jwks?key=hunter2"
        claims = { subject = "email", roles = "realm_access.roles", department = "org.unit" }
        keep = ["county", "db_role"]
        leeway = "60s"
        jwks_refresh = "1m"
        jwks_cooldown = "10s"
        jwks_max_age = "2h"
        snapshot_max_age = "12h"
        [auth.roles]
        viewer = "auditor"
        operator = ["CN=admins,DC=example", "ops"]
        [auth.identities.nightly]
        department = "sales"
        claims = { county = "Kent", db_role = ["a", 1] }
        [auth.identities.plain]
    "#;
    let config = load(text).unwrap();
    let jwt = config.auth.jwt().unwrap();
    assert_eq!(jwt.audience, ["outhaul", "exports"]);
    assert_eq!(jwt.algorithms, [Algorithm::RS256, Algorithm::ES256]);
    assert!(matches!(&jwt.keys, Keys::Jwks(url) if url.host_str() == Some("id.example.com")));
    let claims = [&jwt.claims.subject, &jwt.claims.roles, &jwt.claims.department].map(ClaimPath::as_str);
    assert_eq!(claims, ["email", "realm_access.roles", "org.unit"]);
    assert_eq!(jwt.keep.iter().map(ClaimPath::as_str).collect::<Vec<_>>(), ["county", "db_role"]);
    let spans = [jwt.leeway, jwt.jwks_refresh, jwt.jwks_cooldown, jwt.jwks_max_age, jwt.snapshot_max_age];
    assert_eq!(spans.map(|span| span.as_secs()), [60, 60, 10, 7200, 43_200]);
    assert_eq!(jwt.roles.submitter, ["submitter"], "the role's own name");
    assert_eq!(jwt.roles.viewer, ["auditor"]);
    assert_eq!(jwt.roles.operator, ["CN=admins,DC=example", "ops"], "names may have commas");
    let nightly = &config.auth.identities["nightly"];
    assert_eq!(nightly.department.as_deref(), Some("sales"));
    assert_eq!(nightly.claims["county"], "Kent");
    assert_eq!(nightly.claims["db_role"], json!(["a", 1]));
    assert_eq!(config.auth.identities["plain"], NamedIdentity::default());
    assert_eq!(config.export.snapshot_max_age, Some(Duration::from_secs(43_200)));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn keys_come_from_the_files_folder_and_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("id.pem"), "no key").unwrap();
    let by_file = jwt("").replace("secret_env = \"ID_SECRET\"", "public_key_file = \"id.pem\"");
    let found = load_in(folder.path(), &by_file, []).unwrap_err();
    let paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["auth.public_key_file"], "it was found and read: {found}");
    assert!(!found.to_string().contains("cannot be read: "), "{found}");
    let gone = by_file.replace("id.pem", "gone.pem");
    let found = load_in(folder.path(), &gone, []).unwrap_err().to_string();
    assert!(found.contains("auth.public_key_file: gone.pem cannot be read"), "{found}");

    let none = "[auth]\nissuer = \"i\"\naudience = \"a\"";
    let variables = [
        ("OUTHAUL__AUTH__MODE", "jwt"),
        ("OUTHAUL__AUTH__SECRET", SECRET),
        ("OUTHAUL__AUTH__KEEP", "county, zip"),
        ("OUTHAUL__AUTH__ROLES__OPERATOR", "CN=admins,DC=example"),
        ("OUTHAUL__AUTH__IDENTITIES__NIGHTLY__CLAIMS__COUNTY", "Kent"),
    ];
    let config = load_in(Path::new("/"), none, variables).unwrap();
    let jwt = config.auth.jwt().unwrap();
    assert_eq!(jwt.keep.len(), 2);
    assert_eq!(jwt.roles.operator, ["CN=admins,DC=example"]);
    assert_eq!(config.auth.identities["nightly"].claims["county"], "Kent");
}

#[test]
fn every_problem_is_listed_at_once() {
    let text = r#"
        [auth]
        mode = "JWT"
        issuer = 5
        algorithms = ["RS256", "none", "HS257"]
        jwks_url = "hunter2"
        claims = { subject = "", role = "x" }
        keep = ["county", "county"]
        leeway = "2m"
        jwks_refresh = 5
        snapshot_max_age = "0s"
        isuer = "x"
        [auth.roles]
        operator = []
        admin = "x"
        [auth.identities."a b"]
        department = ""
        claims = { county = nan, conty = "x" }
        claim = {}
        [auth.identities]
        c = 5
    "#;
    let expected = [
        "auth.algorithms",
        "auth.algorithms",
        "auth.audience",
        "auth.claims.role",
        "auth.claims.subject",
        "auth.identities.a b",
        "auth.identities.a b.claim",
        "auth.identities.a b.claims.conty",
        "auth.identities.a b.claims.county",
        "auth.identities.a b.department",
        "auth.identities.c",
        "auth.issuer",
        "auth.isuer",
        "auth.jwks_refresh",
        "auth.jwks_url",
        "auth.keep",
        "auth.leeway",
        "auth.mode",
        "auth.roles.admin",
        "auth.roles.operator",
        "auth.snapshot_max_age",
    ];
    assert_eq!(paths(text), expected, "{:?}", problems(text));
    assert_eq!(paths("[auth]\nmode = 5\n"), ["auth", "auth.audience", "auth.issuer", "auth.mode"]);
    assert_eq!(
        paths(&jwt("claims = 5\nroles = 5\nidentities = 5")),
        ["auth.claims", "auth.identities", "auth.roles"]
    );
    assert_eq!(paths("auth = 5"), ["auth"]);
}

#[test]
fn somebody_can_be_asked_about_submitters() {
    assert!(load(&jwt("")).unwrap().auth.jwt().unwrap().recheck.is_none());
    let little = load(&jwt("[auth.recheck]\nurl = \"https://id.example.com/still\"")).unwrap();
    let little = little.auth.jwt().unwrap().recheck.clone().unwrap();
    assert_eq!((little.max_age.as_secs(), little.timeout.as_secs(), little.secrets.len()), (60, 5, 0));

    let all = "[auth.recheck]\nurl = \"http://127.0.0.1:9000/still?key=hunter2\"\nsecret = [\"hunter2\", \"whsec_aGk=\"]\n\
               max_age = 0\ntimeout = \"30s\"";
    let config = load(&jwt(all)).unwrap();
    let recheck = config.auth.jwt().unwrap().recheck.clone().unwrap();
    assert_eq!((recheck.max_age.as_secs(), recheck.timeout.as_secs(), recheck.secrets.len()), (0, 30, 2));
    assert_eq!(recheck.url.query(), Some("key=hunter2"));
    assert!(!format!("{config:?}").contains("hunter2"));

    let variables = [
        ("ID_SECRET", SECRET),
        ("OUTHAUL__AUTH__RECHECK__URL", "https://id.example.com/still"),
        ("OUTHAUL__AUTH__RECHECK__SECRET_ENV", "ID_SECRET"),
    ];
    let config = load_in(Path::new("/"), &jwt(""), variables).unwrap();
    assert_eq!(config.auth.jwt().unwrap().recheck.clone().unwrap().secrets[0].expose(), SECRET);
}

#[test]
fn mistakes_about_who_is_asked_are_all_said() {
    let url = "url = \"https://id.example.com/still\"";
    for (section, expected) in [
        ("", vec!["auth.recheck.url"]),
        ("url = 5", vec!["auth.recheck.url"]),
        ("url = \"hunter2\"", vec!["auth.recheck.url"]),
        ("url = \"http://id.example.com/hunter2\"", vec!["auth.recheck.url"]),
        ("url = \"http://10.0.0.1/hunter2\"", vec!["auth.recheck.url"]),
        ("url = \"https://ann:hunter2@id.example.com/\"", vec!["auth.recheck.url"]),
        ("url = \"https://id.example.com/#hunter2\"", vec!["auth.recheck.url"]),
        ("url = \"ftp://id.example.com/hunter2\"", vec!["auth.recheck.url"]),
        (
            "max_age = \"2h\"\ntimeout = \"0s\"\nsecret = \"\"",
            vec!["auth.recheck.max_age", "auth.recheck.secret", "auth.recheck.timeout", "auth.recheck.url"],
        ),
        (
            "url = \"hunter2\"\nmax_age = \"2h\"\ntimeout = \"0s\"",
            vec!["auth.recheck.max_age", "auth.recheck.timeout", "auth.recheck.url"],
        ),
        (
            "url = 5\nmax_age = 5\ntimeout = \"2h\"",
            vec!["auth.recheck.max_age", "auth.recheck.timeout", "auth.recheck.url"],
        ),
        (
            "{url}\nmax_age = \"61m\"\ntimeout = \"61s\"\nretries = 5",
            vec!["auth.recheck.max_age", "auth.recheck.retries", "auth.recheck.timeout"],
        ),
        ("{url}\ntimeout = \"0s\"", vec!["auth.recheck.timeout"]),
        ("{url}\nsecret = \"\"", vec!["auth.recheck.secret"]),
        ("{url}\nsecret = \"whsec_hunter2!\"", vec!["auth.recheck.secret"]),
        ("{url}\nsecret = [\"hunter2\", \"b\", \"c\"]", vec!["auth.recheck.secret"]),
        ("{url}\nsecret = \"hunter2\"\nsecret_env = \"ID_SECRET\"", vec!["auth.recheck.secret"]),
        ("{url}\nsecret_env = \"NOT_SET\"", vec!["auth.recheck.secret_env"]),
        ("{url}\nsecret_file = \"gone\"", vec!["auth.recheck.secret_file"]),
    ] {
        let text = jwt(&format!("[auth.recheck]\n{}", section.replace("{url}", url)));
        assert_eq!(paths(&text), expected, "{section}: {:?}", problems(&text));
        problems(&text);
    }
    assert_eq!(paths(&jwt("recheck = 5")), ["auth.recheck"]);
    let without_tokens = format!("[auth]\nmode = \"none\"\n[auth.recheck]\n{url}\n");
    assert_eq!(paths(&without_tokens), ["auth.recheck"], "nobody is asked where nobody is known");
}

#[test]
fn there_is_exactly_one_key() {
    let without = jwt("").replace("secret_env = \"ID_SECRET\"", "");
    let said = problems(&without);
    assert_eq!(said, ["auth: needs what tokens are verified with: jwks_url, public_key_file or secret"]);
    let said = problems(&jwt("jwks_url = \"https://id.example.com/\""));
    assert_eq!(said, ["auth: give only one of jwks_url, public_key_file and secret"]);
    // What is wrong with each of several is said as well.
    let short = |with: &str| jwt(with).replace("secret_env = \"ID_SECRET\"", "secret = \"hunter2\"");
    let unreadable = "public_key_file = \"gone.pem\"\nalgorithms = []";
    for (text, expected) in [
        (jwt("public_key_file = \"gone.pem\""), vec!["auth", "auth.public_key_file"]),
        (jwt("jwks_url = 5"), vec!["auth", "auth.jwks_url"]),
        (jwt("jwks_url = \"hunter2\""), vec!["auth", "auth.jwks_url"]),
        (
            jwt("secret = \"hunter2\"\njwks_url = \"http://id.example.com/\""),
            vec!["auth", "auth.jwks_url", "auth.secret"],
        ),
        (short("jwks_url = \"http://id.example.com/\""), vec!["auth", "auth.jwks_url", "auth.secret"]),
        (
            short(&format!("jwks_url = \"http://id.example.com/\"\n{unreadable}\nleeway = \"2m\"")),
            vec![
                "auth",
                "auth.algorithms",
                "auth.jwks_url",
                "auth.leeway",
                "auth.public_key_file",
                "auth.secret",
            ],
        ),
    ] {
        assert_eq!(paths(&text), expected, "{:?}", problems(&text));
    }
    let said = problems(&jwt("secret = \"hunter2\""));
    assert_eq!(said, ["auth.secret: give only one of secret, secret_file and secret_env"]);
    let said = problems(&jwt("").replace("ID_SECRET", "NOT_SET"));
    assert_eq!(said, ["auth.secret_env: the environment variable NOT_SET is not set"]);
    let short = jwt("").replace("secret_env = \"ID_SECRET\"", "secret = \"hunter2\"");
    assert_eq!(paths(&short), ["auth.secret"]);
    let mixed = jwt("algorithms = \"RS256, HS256\"");
    assert_eq!(problems(&mixed).len(), 1, "secrets and public keys never share a list");
    let wrong_type = jwt("").replace("secret_env = \"ID_SECRET\"", "jwks_url = 5");
    assert_eq!(paths(&wrong_type), ["auth.jwks_url"], "it is there, and wrong");
}

#[test]
fn nobody_believes_in_tokens_that_are_not_asked_for() {
    let forgotten = jwt("[auth.roles]\nviewer = \"x\"").replace("mode = \"jwt\"\n", "");
    assert_eq!(paths(&forgotten), ["auth.audience", "auth.issuer", "auth.roles", "auth.secret_env"]);
    assert_eq!(paths(&forgotten.replace("[auth]\n", "[auth]\nmode = \"none\"\n")).len(), 4);
    assert!(paths("[auth]\nmode = \"none\"\n[auth.identities.nightly]\nclaims = { any = 1 }").is_empty());
}

#[test]
fn other_machines_may_come_with_tokens() {
    let listen = "[server]\nlisten = \"0.0.0.0:8080\"\n";
    assert!(load(&format!("{listen}{}", jwt(""))).is_ok());
    assert_eq!(paths(listen), ["server.listen"]);
}

fn datasets(auth: &str, dataset: &str) -> String {
    format!(
        "{auth}\n[sources.pg]\nurl = \"postgres://u@h/db\"\n[sources.lite]\nurl = \"sqlite:l.db\"\n\
         [datasets.one]\n{dataset}\n"
    )
}

#[test]
fn rows_depend_on_what_is_kept() {
    let kept = jwt("keep = [\"county\", \"db_role\"]");
    let scope = |dataset: &str| load(&datasets(&kept, dataset)).unwrap().export.datasets["one"].scope.clone();
    let bound = "source = \"lite\"\nrow_scope = [\"county\", \"department\", \"sub\"]\n\
        query = \"select :claims.county, :claims.department, :claims.sub\"";
    assert_eq!(
        scope(bound),
        ScopeSettings {
            row_scope: vec!["county".into(), "department".into(), "sub".into()],
            ..ScopeSettings::default()
        }
    );
    let secured = "source = \"pg\"\nrow_scope = \"county\"\nrow_security = true\nrole_claim = \"db_role\"\n\
        roles = [\"kent\", \"a,b\"]\nunsecured_tables = [\"public.lookup\"]\nquery = \"select 1\"";
    assert_eq!(
        scope(secured),
        ScopeSettings {
            row_scope: vec!["county".into()],
            row_security: true,
            role_claim: Some("db_role".into()),
            roles: vec!["kent".into(), "a,b".into()],
            unsecured_tables: vec!["public.lookup".into()],
        }
    );
}

#[test]
fn a_filter_that_could_not_work_is_refused() {
    let kept = jwt("keep = [\"county\"]");
    let query = "query = \"select :claims.county\"\nsource = \"lite\"\n";
    for (auth, dataset, expected) in [
        (
            "",
            format!("{query}row_scope = \"county\""),
            "datasets.one.row_scope: needs [auth] with mode = \"jwt\"",
        ),
        (
            "",
            "query = \"select 1\"\nsource = \"pg\"\nrow_security = true\nrole_claim = \"r\"\nroles = \"x\""
                .into(),
            "datasets.one.role_claim: needs [auth]",
        ),
        (
            &kept,
            query.to_owned(),
            "datasets.one: its query uses `:claims.county`, but row_scope does not name it",
        ),
        (
            &kept,
            "query = \"select 1\"\nsource = \"lite\"\nrow_scope = \"county\"".into(),
            "datasets.one: its query does not use `:claims.county`",
        ),
        (
            &kept,
            query.replace("county", "city") + "row_scope = \"city\"",
            "datasets.one.row_scope: `city` is not kept of tokens: add it to auth.keep",
        ),
        (
            &kept,
            "query = \"select 1\"\nsource = \"pg\"\nrow_security = true\nrole_claim = \"r\"\nroles = \"x\""
                .into(),
            "datasets.one.role_claim: `r` is not kept of tokens",
        ),
        (
            &kept,
            "query = \"select 1\"\nsource = \"lite\"\nrow_security = true\nrow_scope = \"county\"".into(),
            "datasets.one: row_security needs a PostgreSQL source",
        ),
        (
            &kept,
            "query = \"select 1\"\nsource = \"pg\"\nroles = [\"x\"]".into(),
            "datasets.one: roles needs role_claim",
        ),
        (
            &kept,
            "query = \"select 1\"\nsource = \"pg\"\nunsecured_tables = [\"public.lookup\"]".into(),
            "datasets.one: unsecured_tables needs row_security = true",
        ),
    ] {
        let said = problems(&datasets(auth, &dataset));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with(expected), "{said:?}");
    }
    let broken = "query = \"select ( :claims.county\"\nsource = \"lite\"\nrow_scope = [\"county\", \"city\"]";
    assert_eq!(paths(&datasets(&kept, broken)), ["datasets.one.query", "datasets.one.row_scope"]);
}

#[test]
fn what_needs_no_token_runs_as_somebody_with_a_name() {
    let rules = |run_as: &str| {
        format!(
            "[schedules.a]\ncron = \"@daily\"\njob = {{}}\n{run_as}\n\
             [triggers.b]\nafter = \"job:B\"\njob = {{}}\n{run_as}\n"
        )
    };
    let places = ["schedules.a.run_as", "triggers.b.run_as"];
    let named = "[auth.identities.nightly]\nclaims = { county = \"Kent\" }";
    let with = jwt(&format!("keep = [\"county\"]\n{named}"));
    let run_as = rules("run_as = \"nightly\"");
    let config = load(&format!("{with}\n{run_as}")).unwrap();
    assert_eq!(config.schedules["a"].body().members["runAs"], "nightly");
    assert_eq!(config.triggers["b"].body().members["runAs"], "nightly");
    assert_eq!(paths(&format!("{with}\n{}", rules(""))), [places[0]], "a schedule needs it with tokens");
    let typo = format!("{with}\n{}", rules("run_as = \"nigtly\""));
    assert_eq!(problems(&typo)[0], "schedules.a.run_as: is no identity; there are: nightly");
    assert!(paths(&rules("")).is_empty(), "and not without");
    assert_eq!(paths(&run_as), places);
    assert!(paths(&format!("{run_as}{named}")).is_empty());
}
