//! Schedules and triggers on the command line: the built binary against a server in this process, and what
//! `serve` and `check` say of a file.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use super::custom::outhaul;
use super::{LOOKS, Server};

impl Server {
    /// Looks at a trigger until its last firing is through.
    async fn until_fired(&self, path: &str) {
        for _ in 0..LOOKS {
            if self.json(path).await["fired"][0]["state"] == "fired" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", self.json(path).await);
    }
}

fn has_line(said: &str, words: &[&str]) {
    let found = said.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(words));
    assert!(found, "{words:?} is in\n{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_made_shown_paused_run_and_deleted() {
    let server = Server::start().await;
    let job = server.folder.path().join("job.toml");
    std::fs::write(&job, "jobType = \"ORDER\"\npayload = { order = \"{{slot}}\" }").unwrap();
    let job = job.to_str().unwrap();
    let run = async |words: &[&str]| outhaul(&server, &[&["schedules"], words].concat()).await;
    assert_eq!(run(&[]).await, (0, "no schedules\n".to_owned(), String::new()));

    let put = ["put", "yearly", "--cron", "0 6 1 1 *", "--timezone", "Asia/Tokyo", "--job", job];
    let (code, said, errors) = run(&put).await;
    assert_eq!(code, 0, "{errors}");
    has_line(&said, &["timezone", "Asia/Tokyo"]);
    let (_, said, _) = run(&["list"]).await;
    let row = said.lines().nth(1).unwrap();
    assert!(row.starts_with("yearly  0 6 1 1 *  Asia/Tokyo  "), "{said}");
    assert!(row.contains("-01-01T06:00:00+09:00  no"), "on its own clocks: {said}");

    has_line(&run(&["pause", "yearly"]).await.1, &["paused", "yes"]);
    let (code, said, errors) = run(&["run", "yearly", "--watch"]).await;
    assert_eq!(code, 0, "COMPLETED, although it is paused: {said}{errors}");
    let (_, said, _) = run(&["show", "yearly"]).await;
    let slot = said.lines().find(|line| line.contains("fired")).unwrap();
    assert!(slot.split_whitespace().next().unwrap().ends_with("+09:00"), "{said}");
    has_line(&run(&["resume", "yearly"]).await.1, &["paused", "no"]);
    let (_, said, _) = run(&["show", "yearly", "--json"]).await;
    let shown: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&shown["cron"], shown["nextTimes"].as_array().unwrap().len()), (&json!("0 6 1 1 *"), 5));
    let (_, said, _) = run(&["--json"]).await;
    let listed: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(listed["items"][0]["name"], "yearly");

    let (code, _, errors) =
        run(&["put", "bad", "--cron", "0 0 31 2 *", "--timezone", "X", "--job", job]).await;
    assert!(code == 1 && errors.contains("/cron: ") && errors.contains("/timezone: "), "{errors}");
    assert_eq!(run(&["put", "bad"]).await.0, 2, "what it says must be said");
    assert_eq!(run(&["delete", "yearly"]).await, (0, "deleted yearly\n".to_owned(), String::new()));
    for words in [&["delete", "yearly"][..], &["show", "yearly"], &["run", "yearly"], &["show", "no/name"]] {
        let (code, _, errors) = run(words).await;
        assert!(code == 1 && errors.starts_with("error: "), "{words:?}: {errors}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn triggers_are_made_shown_and_deleted() {
    let server = Server::start().await;
    let file = server.folder.path().join("trigger");
    let job = r#"{"jobType": "ORDER", "payload": {"order": "{{parents.0.jobId}}"}}"#;
    std::fs::write(&file, format!(r#"{{"after": ["job:ORDER"], "job": {job}}}"#)).unwrap();
    let file = file.to_str().unwrap();
    let run = async |words: &[&str]| outhaul(&server, &[&["triggers"], words].concat()).await;
    assert_eq!(run(&[]).await.1, "no triggers\n");
    let (code, _, errors) = run(&["put", "round", "--file", file]).await;
    assert!(code == 1 && errors.contains("round"), "it would trigger itself: {errors}");
    let (code, said, errors) = run(&["put", "next", "--file", file, "--after", "dataset:positions"]).await;
    assert_eq!(code, 0, "{errors}");
    has_line(&said, &["after", "dataset:positions"]);
    has_line(&run(&["list"]).await.1, &["next", "dataset:positions", "0", "api"]);
    server.complete(&super::one_file()).await;
    server.until_fired("/triggers/next").await;
    assert!(run(&["show", "next"]).await.1.contains("  fired  J"));
    assert_eq!(run(&["delete", "next"]).await.0, 0);
    assert_eq!(run(&["delete", "next"]).await.0, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_names_the_server_for_every_command() {
    let server = Server::start().await;
    for words in [&["schedules"][..], &["schedules", "list"], &["triggers"], &["triggers", "list"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
        command.args(words).env("OUTHAUL_SERVER", &server.base);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(done.status.success(), "{words:?}: {done:?}");
    }
    server.stop().await;
}

async fn on_file(folder: &Path, command: &'static str, text: &str) -> (i32, String) {
    let file = folder.join("outhaul.toml");
    std::fs::write(&file, text).unwrap();
    let run =
        move || Command::new(env!("CARGO_BIN_EXE_outhaul")).arg(command).arg("--config").arg(file).output();
    let Output { status, stdout, stderr } = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_wrong_is_refused_as_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[schedules.nightly]\ncron = \"0 2 * * *\"\n";
    // What can be seen in the file alone, and what only a process with its datasets and job types sees.
    let unreadable = format!("{text}timezone = \"Mars/Olympus\"\njob = {{ jobType = \"{{{{slto}}}}\" }}");
    let unknown = format!("{text}job = {{ jobType = \"NONE\" }}");
    for (text, places) in [
        (&unreadable, &["schedules.nightly.timezone: ", "schedules.nightly.job.jobType: "][..]),
        (&unknown, &["schedules.nightly.job.jobType: "]),
    ] {
        for command in ["serve", "check"] {
            let (code, said) = on_file(folder.path(), command, text).await;
            let expected = if command == "check" && text == &unknown { 1 } else { 2 };
            assert_eq!(code, expected, "{command}: {said}");
            for place in places {
                assert!(said.contains(place), "{command}: {said}");
            }
        }
    }
}
