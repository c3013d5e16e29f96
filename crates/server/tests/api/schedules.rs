//! What clients see of schedules: how they are made, shown, paused, run and deleted, and that they fire.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::Method;
use serde_json::{Value, json};

use super::{LOOKS, Server, header, path_of};

const OFTEN: &str = "\n[limits]\nmin_schedule_interval = \"1s\"\n";
/// Like all that must not fire by itself while its test runs: on the next leap day.
const CONFIGURED: &str = r#"
[schedules.rare]
cron = "0 6 29 2 *"
timezone = "Asia/Tokyo"
catch_up = "none"
job = { items = [{ key = "ABC", effectiveDates = ["20250215"] }] }
"#;

fn nightly() -> Value {
    json!({"cron": "30 2 29 2 *", "timezone": "America/New_York", "overlap": "queue", "catchUp": "all",
        "catchUpLimit": 7, "jitter": "90s",
        "job": {"jobType": "ORDER", "payload": {"order": "{{slot - 1d}}", "card": "canary"}, "labels": {"day": "{{slot}}"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_made_shown_replaced_and_deleted() {
    let server = Server::start().await;
    let call = server.http.put(format!("{}/schedules/nightly", server.base)).json(&nightly());
    let made = call.send().await.unwrap();
    assert_eq!((made.status().as_u16(), header(&made, "location")), (201, "/schedules/nightly"));
    let made: Value = made.json().await.unwrap();
    let shown = server.json("/schedules/nightly").await;
    assert_eq!(made, shown);
    for (name, value) in nightly().as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
    assert_eq!(
        (&shown["origin"], &shown["paused"], &shown["slots"]),
        (&json!("api"), &json!(false), &json!([]))
    );
    let times: Vec<&str> =
        shown["nextTimes"].as_array().unwrap().iter().map(|time| time.as_str().unwrap()).collect();
    assert_eq!(times.len(), 5);
    assert!(times.iter().all(|time| time.ends_with("-02-29T02:30:00-05:00")), "{times:?}");
    let read: Vec<DateTime<Utc>> = times.iter().map(|time| time.parse().unwrap()).collect();
    assert!(read.is_sorted() && read[0] > outhaul_core::clock::now(), "{times:?}");

    let listed = server.json("/schedules").await;
    let mut expected = shown.clone();
    expected["job"] = Value::Null;
    assert_eq!(listed, json!({"items": [expected], "nextCursor": null}), "without the job");

    let (status, same) = server.put("/schedules/nightly", &nightly()).await;
    assert_eq!((status, &same["createdAt"]), (200, &shown["createdAt"]));
    let little = json!({"cron": "0 0 29 2 *", "job": {"jobType": "ORDER"}});
    let (status, replaced) = server.put("/schedules/nightly", &little).await;
    assert_eq!((status, &replaced["timezone"], &replaced["jitter"]), (200, &json!("UTC"), &json!("0s")));
    assert_eq!((&replaced["overlap"], &replaced["catchUp"]), (&json!("skip"), &json!("last")));

    for n in 0..3 {
        assert_eq!(server.put(&format!("/schedules/more.{n}"), &little).await.0, 201);
    }
    let pages = server.pages("/schedules", 2).await;
    let names: Vec<&str> = pages.iter().flatten().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((pages.len(), names), (2, vec!["more.0", "more.1", "more.2", "nightly"]));

    assert_eq!(server.act(Method::DELETE, "/schedules/nightly").await, (204, Value::Null));
    for (method, path) in [
        (Method::DELETE, "/schedules/nightly"),
        (Method::GET, "/schedules/nightly"),
        (Method::POST, "/schedules/nightly/pause"),
        (Method::POST, "/schedules/nightly/resume"),
        (Method::POST, "/schedules/nightly/run"),
        (Method::GET, "/schedules/%00"),
        (Method::GET, "/schedules/a%20b"),
        (Method::DELETE, "/schedules/%ff"),
    ] {
        let (status, problem) = server.act(method.clone(), path).await;
        assert_eq!(
            (status, &problem["detail"]),
            (404, &json!("there is no such schedule")),
            "{method} {path}"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_paused_and_run_by_hand() {
    let server = Server::start().await;
    server.put("/schedules/nightly", &nightly()).await;
    for (act, paused) in
        [("pause", true), ("pause", true), ("resume", false), ("resume", false), ("pause", true)]
    {
        let (status, shown) = server.act(Method::POST, &format!("/schedules/nightly/{act}")).await;
        assert_eq!((status, &shown["paused"]), (200, &json!(paused)), "{act}");
    }
    let answer = server.ask(Method::POST, "/schedules/nightly/run", &[]).await;
    assert_eq!(answer.status(), 202);
    let location = header(&answer, "location").to_owned();
    let job: Value = answer.json().await.unwrap();
    assert_eq!(location, path_of(&job));
    let job = server.until(&location, |job| job["status"] == "COMPLETED").await;
    let (day, order) = (job["labels"]["day"].as_str().unwrap(), job["result"]["shipped"].as_str().unwrap());
    assert!(day.len() == 8 && order.len() == 8 && order < day, "the words were replaced: {job}");

    let shown = server.json("/schedules/nightly").await;
    let slot = &shown["slots"][0];
    assert_eq!(
        (&slot["outcome"], &slot["jobId"], &slot["detail"]),
        (&json!("fired"), &job["jobId"], &Value::Null)
    );
    assert_eq!(shown["slots"].as_array().unwrap().len(), 1);
    assert_eq!(shown["paused"], true, "and it is still paused");

    assert_eq!(
        server.put("/schedules/nightly", &nightly()).await.1["paused"],
        true,
        "a PUT does not resume it"
    );
    assert_eq!(server.act(Method::DELETE, "/schedules/nightly").await.0, 204);
    server.json(&location).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_what_may_be_there_once_shows_the_one_that_is() {
    let server = Server::start().await;
    let once =
        json!({"cron": "0 0 29 2 *", "job": {"jobType": "ONCE", "payload": {"order": 1, "waits": true}}});
    server.put("/schedules/once", &once).await;
    let (status, first) = server.act(Method::POST, "/schedules/once/run").await;
    let (again, second) = server.act(Method::POST, "/schedules/once/run").await;
    assert_eq!((status, again, &first["jobId"]), (202, 202, &second["jobId"]));
    let slots = server.json("/schedules/once").await["slots"].take();
    let outcomes: Vec<&Value> = slots.as_array().unwrap().iter().map(|slot| &slot["outcome"]).collect();
    assert_eq!(outcomes, ["skipped", "fired"], "newest first");
    server.world.released.notify_one();
    server.until(&path_of(&first), |job| job["status"] == "COMPLETED").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_made_is_refused_and_it_is_said_why() {
    let server = Server::start().await;
    let missing = "J20250101_0000000000000";
    let job = json!({"jobType": "ORDER", "payload": "canary", "dependsOn": [missing]});
    let orphan = json!({"cron": "0 0 29 2 *", "overlap": "allow", "job": job});
    assert_eq!(
        server.put("/schedules/orphan", &orphan).await.0,
        201,
        "whether a job is there is known when it runs"
    );
    let (status, problem) = server.act(Method::POST, "/schedules/orphan/run").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 409 && detail.contains(missing) && !detail.contains("canary"), "{problem}");
    let slots = server.json("/schedules/orphan").await["slots"].take();
    assert_eq!((&slots[0]["outcome"], &slots[0]["jobId"]), (&json!("refused"), &Value::Null), "{slots}");
    assert_eq!(server.json("/jobs").await["items"], json!([]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_fires_by_itself() {
    let server = Server::start_with(OFTEN).await;
    let often = json!({"cron": "* * * * * *", "overlap": "allow",
        "job": {"jobType": "ORDER", "payload": {"order": 1}, "labels": {"slot": "{{slot | iso}}"}}});
    assert_eq!(server.put("/schedules/often", &often).await.0, 201);
    let mut fired = Vec::new();
    for _ in 0..LOOKS {
        let slots = server.json("/schedules/often").await["slots"].take();
        fired = slots.as_array().unwrap().iter().filter(|slot| slot["outcome"] == "fired").cloned().collect();
        if fired.len() >= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.act(Method::POST, "/schedules/often/pause").await;
    assert!(fired.len() >= 2 && fired[0]["slot"] != fired[1]["slot"], "{fired:?}");
    for slot in &fired {
        let job = server.json(&path_of(slot)).await;
        assert_eq!(job["labels"]["slot"], slot["slot"]);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_the_configuration_are_changed_there() {
    let server = Server::start_with(CONFIGURED).await;
    let shown = server.json("/schedules/rare").await;
    assert_eq!(
        (&shown["origin"], &shown["timezone"], &shown["catchUp"]),
        (&json!("config"), &json!("Asia/Tokyo"), &json!("none"))
    );
    assert!(shown["nextTimes"][0].as_str().unwrap().ends_with("T06:00:00+09:00"), "{shown}");
    let (status, problem) = server.put("/schedules/rare", &nightly()).await;
    assert!(status == 409 && problem["detail"].as_str().unwrap().contains("configuration"), "{problem}");
    assert_eq!(server.act(Method::DELETE, "/schedules/rare").await.0, 409);
    assert_eq!(server.json("/schedules/rare").await, shown, "nothing changed");

    for (act, paused) in [("pause", true), ("resume", false)] {
        let (status, shown) = server.act(Method::POST, &format!("/schedules/rare/{act}")).await;
        assert_eq!((status, &shown["paused"]), (200, &json!(paused)));
    }
    let (status, job) = server.act(Method::POST, "/schedules/rare/run").await;
    assert_eq!(status, 202);
    server.until(&path_of(&job), |job| job["status"] == "COMPLETED").await;

    let folder = server.stop_and_keep().await;
    let server = Server::start_in(folder, 0).await;
    assert_eq!(server.get("/schedules/rare").await.status(), 404, "what is not configured any more is gone");
    server.stop().await;
}
