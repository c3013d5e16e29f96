//! No token stays anywhere: not in the database, the storage or the logs, good or bad, however it was sent.

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::common::{Kind, STEADY, Stack, files_below, s3};
use crate::on_both;
use crate::people::{AUTH, operator, submitter};

on_both!(no_token_stays_anywhere);

fn config(kind: Kind) -> String {
    let url = if kind == Kind::Embedded { "sqlite:source.db" } else { "{postgres}" };
    format!(
        "{STEADY}{AUTH}\n[sources.warehouse]\nurl = \"{url}\"\n\n\
         [datasets.people]\ndefault = true\nsource = \"warehouse\"\nrow_scope = [\"county\"]\n\
         query = \"select name from people where key = :key and county = :claims.county and :effective_date <> '1999-01-01'\"\n"
    )
}

/// The bytes of everything that the installation keeps.
async fn kept(stack: &Stack) -> Vec<(String, Vec<u8>)> {
    let folder = stack.dir.path();
    let mut kept: Vec<(String, Vec<u8>)> = files_below(folder)
        .into_iter()
        .filter(|path| !path.ends_with("outhaul.toml"))
        .map(|path| {
            let bytes = std::fs::read(folder.join(&path)).unwrap_or_default();
            (path, bytes)
        })
        .collect();
    if stack.kind != Kind::Embedded {
        let mut db = PgConnection::connect(stack.postgres_url()).await.unwrap();
        let tables: Vec<String> = sqlx::query_scalar(
            "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables \
             where schemaname not in ('pg_catalog', 'information_schema')",
        )
        .fetch_all(&mut db)
        .await
        .unwrap();
        assert!(tables.len() > 5, "{tables:?}");
        for table in tables {
            let rows = AssertSqlSafe(format!("select coalesce(string_agg(t::text, ';'), '') from {table} t"));
            let rows: String = sqlx::query_scalar(rows).fetch_one(&mut db).await.unwrap();
            kept.push((table, rows.into_bytes()));
        }
        for path in stack.published() {
            kept.push((
                path.clone(),
                s3::call("GET", &format!("/{}", path.replace('=', "%3D"))).into_bytes(),
            ));
        }
    }
    kept
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

async fn no_token_stays_anywhere(kind: Kind) {
    let mut stack = Stack::new(kind, &config(kind)).await;
    stack.environment.push(("OUTHAUL_LOG", "trace".to_owned()));
    stack
        .source("create table people (key text, county text, name text); insert into people values ('ABC', 'Kent', 'Kay')")
        .await;
    let mut server = stack.serve("server", "api,worker,scheduler").await;
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let (ann, olga) = (submitter("ann").county("Kent").token(), operator().token());
    let call = |token: &str, method: &str, path: &str| {
        http.request(method.parse().unwrap(), format!("{}{path}", server.base)).bearer_auth(token)
    };
    let body =
        json!({"items": [{"key": "ABC", "effectiveDates": ["20250215"]}], "labels": {"seen": "canary"}});
    let job: Value = call(&ann, "POST", "/jobs").json(&body).send().await.unwrap().json().await.unwrap();
    let job = format!("/jobs/{}", job["jobId"].as_str().unwrap_or_else(|| panic!("{job}")));
    let ended = crate::common::eventually("the job completes", || async {
        let now: Value = call(&ann, "GET", &job).send().await.unwrap().json().await.unwrap();
        assert_ne!(now["status"], "FAILED", "{now}");
        now["status"] == "COMPLETED"
    })
    .await;
    ended.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    let files: Value = call(&ann, "GET", &format!("{job}/files")).send().await.unwrap().json().await.unwrap();
    let file = files["items"][0]["url"].as_str().unwrap().to_owned();
    let got = call(&ann, "GET", &file).send().await.unwrap();
    // Whoever has the link has the file.
    let link = got.headers().get("location").map(|link| link.to_str().unwrap().to_owned());
    assert_eq!(
        (got.status().as_u16(), link.is_some()),
        if kind == Kind::PostgresS3 { (307, true) } else { (200, false) }
    );
    let signature =
        link.map(|link| link.split("X-Amz-Signature=").nth(1).unwrap().split('&').next().unwrap().to_owned());
    call(&ann, "GET", &format!("{job}/events")).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(call(&olga, "GET", "/audit").send().await.unwrap().status(), 200);

    // Tokens that are not good, and good ones in the wrong places.
    let broken = format!("{}x", &ann[..ann.len() - 1]);
    let cut = ann.rsplit_once('.').unwrap().0.to_owned() + ".";
    for bad in [&broken, &cut] {
        assert_eq!(call(bad, "GET", &job).send().await.unwrap().status(), 401);
    }
    let plain = |path: &str| http.get(format!("{}{path}", server.base));
    plain("/jobs").header("authorization", &ann).send().await.unwrap();
    plain("/jobs").header("authorization", format!("Basic {ann}")).send().await.unwrap();
    plain("/jobs").header("cookie", format!("token={ann}")).send().await.unwrap();
    plain(&format!("/jobs?access_token={ann}")).send().await.unwrap();
    call(&ann, "GET", &format!("/jobs?access_token={ann}")).send().await.unwrap();
    assert!(server.terminate());

    let kept = kept(&stack).await;
    let parts = |token: &str| token.split('.').skip(1).map(str::to_owned).collect::<Vec<_>>();
    let secret = crate::people::SECRET.to_owned();
    let canaries: Vec<String> = [&ann, &olga, &broken].into_iter().flat_map(|token| parts(token)).collect();
    for (place, bytes) in &kept {
        for canary in canaries.iter().chain([&secret]).chain(&signature) {
            assert!(!has(bytes, canary), "{place} has {canary}");
        }
    }
    // The search finds what is there.
    assert!(kept.iter().any(|(_, bytes)| has(bytes, "canary")), "the label is in the database");
    assert!(kept.iter().any(|(place, bytes)| place == "server.log" && has(bytes, "api.answered")));
    assert!(kept.iter().any(|(_, bytes)| has(bytes, "Kay")), "the file is in the storage");
}
