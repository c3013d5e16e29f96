//! Placeholders where they are meant, and nowhere else.

use proptest::prelude::*;

use super::*;

fn numbered(query: &str, dialect: Dialect) -> Result<String, TemplateError> {
    Template::parse(query, dialect).map(|template| template.with_numbers())
}

#[test]
fn placeholders_are_found_in_code_only() {
    for (query, expected) in [
        ("select :key, :effective_date", "select ?1, ?2"),
        ("select :key::int, a::text, b:=1", "select ?1::int, a::text, b:=1"),
        ("select 1::date::text,:key", "select 1::date::text,?1"),
        ("select ':key', 'it''s :key', :key", "select ':key', 'it''s :key', ?1"),
        ("select '\\', :key", "select '\\', ?1"),
        (r"select E'\':key', e'\\', :key", r"select E'\':key', e'\\', ?1"),
        ("select E'a'\n'\\':key', :key", "select E'a'\n'\\':key', ?1"),
        ("select E'a' -- x\n  '\\':key', :key", "select E'a' -- x\n  '\\':key', ?1"),
        ("select E'a', '\\', :key", "select E'a', '\\', ?1"),
        (r#"select ":key", "a"":key", :key"#, r#"select ":key", "a"":key", ?1"#),
        ("select $$:key$$, $a$ $$ :key $b$ $a$, :key", "select $$:key$$, $a$ $$ :key $b$ $a$, ?1"),
        ("select a$b$, :key, c$b$", "select a$b$, ?1, c$b$"),
        ("select $1, :key", "select $1, ?1"),
        ("select 1 -- :key ' \n, :key", "select 1 -- :key ' \n, ?1"),
        ("select /* :key /* :key */ ' */ :key", "select /* :key /* :key */ ' */ ?1"),
        ("select name'x', U&'\\0041:key', :key", "select name'x', U&'\\0041:key', ?1"),
        ("select a[1: 2], :key", "select a[1: 2], ?1"),
        ("select 'größe', größe, :key", "select 'größe', größe, ?1"),
        ("select :claims.b, :claims.a.c::int, :claims.b", "select ?3, ?4::int, ?3"),
        ("select ':claims.a', :claims.größe-:claims.x2., :key", "select ':claims.a', ?3-?4., ?1"),
        ("select (:key.claims.a)", "select (?1.claims.a)"),
    ] {
        assert_eq!(numbered(query, Dialect::Postgres).as_deref(), Ok(expected));
    }
}

#[test]
fn sqlite_has_its_own_quotes_and_placeholders() {
    for (query, expected) in [
        ("select `:key`, [:key], \":key\", ':key', :key", "select `:key`, [:key], \":key\", ':key', ?1"),
        ("select /* /* :key */ :key", "select /* /* :key */ ?1"),
        (r"select e'\', :key", r"select e'\', ?1"),
    ] {
        assert_eq!(numbered(query, Dialect::Sqlite).as_deref(), Ok(expected));
    }
    for foreign in ["?", "@key", "$key"] {
        let found = numbered(&format!("select {foreign}"), Dialect::Sqlite);
        assert_eq!(found, Err(TemplateError::Foreign(foreign.to_owned())));
    }
}

#[test]
fn what_cannot_be_one_query_is_refused() {
    use TemplateError::*;
    for (query, problem) in [
        ("select :kee", Unknown("kee".into())),
        ("select :KEY", Unknown("KEY".into())),
        ("select :key_2", Unknown("key_2".into())),
        ("select :claims", Unknown("claims".into())),
        ("select :claims.", Unknown("claims".into())),
        ("select :claims.1", Unknown("claims".into())),
        ("select :claims . county", Unknown("claims".into())),
        ("select :claims_county", Unknown("claims_county".into())),
        ("select :Claims.county", Unknown("Claims".into())),
        ("select a[lo:hi]", Unknown("hi".into())),
        ("select 1; drop table t", SeveralStatements),
        ("select 1;;", SeveralStatements),
        ("select 'a", Unterminated("string literal")),
        (r"select E'a\'", Unterminated("string literal")),
        ("select \"a", Unterminated("quoted identifier")),
        ("select $x$ $y$", Unterminated("dollar-quoted string")),
        ("select 1 /* /* */", Unterminated("comment")),
        ("select 1) to stdout --", Unbalanced),
        ("select (1", Unbalanced),
        (" -- nothing\n;", Empty),
        ("", Empty),
    ] {
        assert_eq!(numbered(query, Dialect::Postgres), Err(problem), "{query}");
    }
}

#[test]
fn a_last_semicolon_is_dropped() {
    assert_eq!(numbered("select ';', :key ; -- done\n", Dialect::Postgres).unwrap(), "select ';', ?1 ");
}

#[test]
fn claims_are_values_and_never_left_out() {
    let query = "select :claims.b, :claims.a, :key, :claims.b, :effective_date";
    let template = Template::parse(query, Dialect::Postgres).unwrap();
    assert_eq!(template.claims(), ["b", "a"]);
    let date = NaiveDate::from_ymd_opt(2025, 2, 15).unwrap();
    let mut claims = BTreeMap::from([("a".to_owned(), "'; drop".to_owned())]);
    let missing = || LiteralError::NoClaim("b".into());
    assert_eq!(template.with_claims("k", date, Some(&claims)), Err(missing()));
    assert_eq!(template.with_literals("k", date), Err(missing()));
    assert_eq!(template.arguments("k", date, None), Err(missing()));
    claims.insert("b".into(), ":key".into());
    assert_eq!(
        template.with_claims("k", date, Some(&claims)).unwrap(),
        "select (':key'::text), ('''; drop'::text), ('k'::text), (':key'::text), (DATE '2025-02-15')"
    );
    assert_eq!(template.with_numbers(), "select ?3, ?4, ?1, ?3, ?2");
    let arguments = template.arguments("k", date, Some(&claims)).unwrap();
    assert_eq!(arguments, ["k", "2025-02-15", ":key", "'; drop"]);
    assert_eq!(
        template.with_nulls(),
        "select (NULL::text), (NULL::text), (NULL::text), (NULL::text), (NULL::date)"
    );
    claims.insert("b".into(), "a\0b".into());
    assert_eq!(template.with_claims("k", date, Some(&claims)), Err(LiteralError::Nul));
}

#[test]
fn literals_hold_quotes_and_backslashes_and_no_nul() {
    assert_eq!(text_literal("a'b").unwrap(), "('a''b'::text)");
    assert_eq!(text_literal(r"a\'b").unwrap(), r"(E'a\\''b'::text)");
    assert_eq!(text_literal("a\0b"), Err(LiteralError::Nul));
    let date = NaiveDate::from_ymd_opt(33, 2, 1).unwrap();
    assert_eq!(date_literal(date).unwrap(), "(DATE '0033-02-01')");
    assert_eq!(date_literal(NaiveDate::from_ymd_opt(0, 2, 1).unwrap()), Err(LiteralError::Year));
}

#[test]
fn the_name_of_a_claim_may_be_quoted() {
    for (query, expected, claims) in [
        (
            r#"select :claims."https://ex.com/county", :claims.county, :claims."custom:county""#,
            "select ?3, ?4, ?5",
            vec!["https://ex.com/county", "county", "custom:county"],
        ),
        // With and without quotes it is the same claim.
        (r#"select :claims."a.b", :claims.a.b, :claims."a.b"::int"#, "select ?3, ?3, ?3::int", vec!["a.b"]),
        (r#"select :claims."a""b"||:claims."'""#, "select ?3||?4", vec!["a\"b", "'"]),
        (r#"select :claims."""", x"#, "select ?3, x", vec!["\""]),
        (r#"select :claims."größe -- /* $$ ;)("where"#, "select ?3where", vec!["größe -- /* $$ ;)("]),
        // The quotes are right behind the dot, and end the name.
        (
            r#"select :claims.a."b", :claims."c".d, :key."e""#,
            r#"select ?3."b", ?4.d, ?1."e""#,
            vec!["a", "c"],
        ),
        // A text, an identifier, a cast and comments are none.
        (
            r#"select ':claims."a"', ":claims.""a""", x::claims."a", y:=claims."a" -- :claims."a"
            /* :claims."a */"#,
            r#"select ':claims."a"', ":claims.""a""", x::claims."a", y:=claims."a" -- :claims."a"
            /* :claims."a */"#,
            vec![],
        ),
    ] {
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            let template = Template::parse(query, dialect).unwrap();
            assert_eq!(
                (template.with_numbers().as_str(), template.claims()),
                (expected, &*to_owned(&claims))
            );
        }
    }
}

fn to_owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn quotes_that_make_no_name_of_a_claim_are_refused() {
    use TemplateError::*;
    for (query, problem) in [
        (r#"select :claims."a"#, Unterminated("quoted claim (`:claims.\"NAME\"`)")),
        (r#"select :claims.""#, Unterminated("quoted claim (`:claims.\"NAME\"`)")),
        (r#"select :claims."a"" from t"#, Unterminated("quoted claim (`:claims.\"NAME\"`)")),
        (r#"select :claims."" from t"#, Unknown("claims.\"\"".into())),
        ("select :claims.\"a\0b\" from t", NulInClaim),
        (r#"select :claims ."a""#, Unknown("claims".into())),
        (r#"select :claims. "a""#, Unknown("claims".into())),
        (r#"select :claims/**/."a""#, Unknown("claims".into())),
        (r#"select :claims"a""#, Unknown("claims".into())),
        (r#"select :claims.'a'"#, Unknown("claims".into())),
        (r#"select :Claims."a""#, Unknown("Claims".into())),
        (r#"select :claims_."a""#, Unknown("claims_".into())),
    ] {
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            assert_eq!(numbered(query, dialect), Err(problem.clone()), "{query}");
        }
    }
}

/// Names as tokens may have them, made of what has a meaning in SQL.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        r#"[a-c.:/"'\\$;()\[\]`?@ \n-]{1,12}"#,
        "[^\0]{1,12}",
        "[a-z_]{1,4}(\\.[a-z_é][a-z0-9_]{0,3}){0,2}"
    ]
}

proptest! {
    #[test]
    fn every_name_can_be_asked_for(name in name(), before in "[ ,(=|]", after in "[ ,)=|-]") {
        let asked = claim_placeholder(&name);
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            let balanced = |text: &str| text.replace(['(', ')'], " ");
            let query = format!("select {}{asked}{} x", balanced(&before), balanced(&after));
            let template = Template::parse(&query, dialect).unwrap();
            prop_assert_eq!(template.claims(), &[name.clone()][..], "{}", query);
            prop_assert_eq!(template.with_numbers(), query.replacen(&asked, "?3", 1));
        }
    }

    #[test]
    fn what_is_asked_for_in_a_text_or_an_identifier_is_not(name in name()) {
        let quoted = format!(":claims.\"{}\"", name.replace('"', "\"\""));
        let text = quoted.replace('\'', "''");
        let identifier = quoted.replace('"', "\"\"");
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            let query = format!("select '{text}', \"{identifier}\", {quoted}");
            let template = Template::parse(&query, dialect).unwrap();
            prop_assert_eq!(template.claims(), &[name.clone()][..]);
            prop_assert_eq!(template.with_numbers(), format!("select '{text}', \"{identifier}\", ?3"));
        }
        let escaped = text.replace('\\', "\\\\");
        let query = format!("select E'{escaped}', $claims${quoted}$claims$");
        prop_assert_eq!(numbered(&query, Dialect::Postgres).unwrap(), query);
    }

    #[test]
    fn no_text_breaks_the_search(query in r#"(:claims|\."|"|'|[ -~é\n]|\$\$|/\*|--){0,20}"#) {
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            if let Ok(template) = Template::parse(&query, dialect) {
                prop_assert!(template.claims().is_empty() || query.contains(":claims."));
            }
        }
    }
}
