//! Rows that depend on who asks: files of two counties never meet, and nobody reaches another county's by any
//! route, whatever else they may see.

use outhaul_core::clock;
use outhaul_core::secret::Secret;
use outhaul_server::auth::{JwtSettings, Keys, Role, Wanted, issue};
use serde_json::{Value, json};

use crate::people::{AUDIENCE, AUTH, ISSUER, Person, SECRET, operator, submitter};
use crate::server::{At, DAY, Server, people};

const KENT: &str = "name,county\nKay,Kent\n";
const ESSEX: &str = "name,county\nEsther,Essex\n";

fn kent(subject: &'static str) -> Person {
    submitter(subject).department("sales").county("Kent")
}

fn essex(subject: &'static str) -> Person {
    submitter(subject).department("sales").county("Essex")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_and_date_are_two_files_for_two_counties() {
    let server = Server::start("").await;
    let (ann, bob) = (server.at(kent("ann")), server.at(essex("bob")));
    let dry =
        async |who: &At<'_>| who.send("POST", "/jobs?dryRun=true", &people()).await.json()["reuse"].clone();
    let (of_ann, of_bob) = (ann.complete(&people()).await, bob.submit(&people()).await);
    bob.until(&of_bob, "COMPLETED").await;
    assert_eq!((ann.text(&of_ann).await.as_str(), bob.text(&of_bob).await.as_str()), (KENT, ESSEX));
    let (one, two) = (ann.file(&of_ann).await, bob.file(&of_bob).await);
    assert_ne!((&one["path"], &one["sha256"]), (&two["path"], &two["sha256"]));
    assert_eq!((&one["reused"], &two["reused"]), (&json!(false), &json!(false)));
    for file in [&one, &two] {
        assert!(file["path"].as_str().unwrap().contains("/scope="), "{file}");
    }
    // Of one county, whoever asks, it is one file; a dry run knows.
    let carl = server.at(kent("carl"));
    assert_eq!((dry(&carl).await, dry(&server.at(kent("dan").county("Devon"))).await), (json!(1), json!(0)));
    let of_carl = carl.complete(&people()).await;
    let again = carl.file(&of_carl).await;
    assert_eq!((&again["reused"], &again["path"]), (&json!(true), &one["path"]));
    assert_eq!(carl.text(&of_carl).await, KENT);
    server.stop().await;
}

/// What is answered to somebody who asks for a job's files by every way there is.
async fn ways(who: &At<'_>, job: &str, url: &str) -> [u16; 3] {
    let head = who.act("HEAD", url).await.status;
    [who.get(&format!("{job}/files")).await.status, who.get(url).await.status, head]
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_for_those_who_would_be_shown_the_same_rows() {
    let server = Server::start("").await;
    let ann = server.at(kent("ann"));
    let job = ann.complete(&people()).await;
    let file = ann.file(&job).await;
    let (url, path, sha256) = (file["url"].as_str().unwrap(), &file["path"], &file["sha256"]);
    let viewer = |county| Person { roles: vec![Role::Viewer], ..kent("vic") }.county(county);
    let nowhere = Person { county: None, ..operator() };
    for (who, sees_files) in [
        (kent("ann"), true),
        (essex("ann"), false),
        (submitter("ann"), false),
        (viewer("Kent"), true),
        (viewer("Essex"), false),
        (viewer("kent"), false),
        (operator().county("Kent"), true),
        (operator().county("Essex"), false),
        (nowhere, false),
    ] {
        let said = format!("{} of {:?}", who.subject, who.county);
        let who = server.at(who);
        let expected = if sees_files { [200; 3] } else { [404; 3] };
        assert_eq!(ways(&who, &job, url).await, expected, "{said}");
        // They see the job, and nothing in it that leads to the file or tells of it.
        let shown = who.json(&job).await;
        assert_eq!(shown["status"], "COMPLETED");
        let chunk = who.items(&format!("{job}/chunks")).await.remove(0);
        let expected = if sees_files { (path, sha256) } else { (&Value::Null, &Value::Null) };
        assert_eq!((&chunk["path"], &chunk["sha256"]), expected, "{said}");
        for text in [shown.to_string(), who.json("/jobs").await.to_string()] {
            assert!(!text.contains("scope=") && !text.contains(sha256.as_str().unwrap()), "{text}");
        }
        // A part of it, or a look whether it changed, is no way round.
        let call = server.http.get(format!("{}{url}", server.base)).bearer_auth(&who.token);
        let tag = format!("\"{}\"", sha256.as_str().unwrap());
        let part = call.header("range", "bytes=0-2").header("if-none-match", tag).send().await.unwrap();
        assert_eq!(part.status(), if sees_files { 304 } else { 404 }, "{said}");
    }
    // Another's file under one's own job: the name of a file means nothing without its job.
    let bob = server.at(essex("bob"));
    let own = bob.complete(&people()).await;
    let foreign = format!("{own}/files/{}", file["fileId"].as_str().unwrap());
    assert_eq!(bob.get(&foreign).await.status, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_claim_is_403_and_named() {
    let server = Server::start("").await;
    let nobody = server.at(submitter("ann"));
    for path in ["/jobs", "/jobs?dryRun=true"] {
        let refused = nobody.send("POST", path, &people()).await;
        let said = refused.json();
        assert_eq!(refused.status, 403, "{said}");
        assert!(said["detail"].as_str().unwrap().contains("`county` is missing"), "{said}");
        // What is wrong with the request itself goes first.
        let mut wrong = people();
        wrong["priority"] = json!(10);
        assert_eq!(nobody.send("POST", path, &wrong).await.status, 400);
    }
    assert_eq!(nobody.json("/jobs").await["items"], json!([]));
    // Operators get no rows that are not theirs either.
    assert_eq!(server.at(operator()).send("POST", "/jobs", &people()).await.status, 403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_does_not_bring_back_the_rows_of_a_former_county() {
    let server = Server::start("").await;
    let mut body = people();
    body["idempotencyKey"] = json!("k");
    let job = server.at(kent("ann")).complete(&body).await;
    let moved = server.at(essex("ann"));
    assert_eq!(moved.send("POST", "/jobs", &body).await.status, 422, "another request under the same key");
    assert_eq!(moved.get(&format!("{job}/files")).await.status, 404);
    assert_eq!(server.at(kent("ann")).submit(&body).await, job);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_under_a_name_space_decide_like_others() {
    let keep = r#"keep = ["county", "https://ex.com/county", "custom:county"]"#;
    let auth = AUTH.replace(r#"keep = ["county"]"#, keep);
    assert_ne!(auth, AUTH);
    let mut sections = auth;
    for (dataset, claim) in [("auth0", "https://ex.com/county"), ("cognito", "custom:county")] {
        sections += &format!(
            "[datasets.{dataset}]\nsource = \"warehouse\"\nrow_scope = [\"{claim}\"]\n\
             query = 'select name, county from people where key = :key and day = :effective_date \
             and county = :claims.\"{claim}\"'\n"
        );
    }
    let server = Server::start_with_auth(&sections).await;
    let settings = JwtSettings::new(ISSUER, vec![AUDIENCE.into()], Keys::Secret(Secret::new(SECRET)));
    for (dataset, claim) in [("auth0", "https://ex.com/county"), ("cognito", "custom:county")] {
        let at = |claims: Value| {
            let claims = claims.as_object().unwrap().clone();
            let wanted = Wanted { claims, ..submitter("ann").wanted() };
            let token = issue(&settings, None, &wanted, clock::now()).unwrap();
            At { token, ..server.at(submitter("ann")) }
        };
        let body = json!({"dataset": dataset, "items": [{"key": "ABC", "effectiveDates": [DAY]}]});
        let (kent, essex) = (at(json!({claim: "Kent"})), at(json!({claim: "Essex"})));
        let (of_kent, of_essex) = (kent.complete(&body).await, essex.complete(&body).await);
        assert_eq!((kent.text(&of_kent).await.as_str(), essex.text(&of_essex).await.as_str()), (KENT, ESSEX));
        assert_eq!(essex.get(&format!("{of_kent}/files")).await.status, 404);
        let refused = at(json!({"county": "Kent"})).send("POST", "/jobs", &body).await;
        assert_eq!(refused.status, 403, "{}", refused.json());
        assert!(refused.json()["detail"].as_str().unwrap().contains(&format!("`{claim}` is missing")));
    }
    server.stop().await;
}
