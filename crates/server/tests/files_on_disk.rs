//! Files of the embedded parts as the machine sees them: who may read them, whose folder it is, and which
//! disk they are on. Against the built binary.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use common::sql::{POSITIONS, warehouse};
use common::{Kind, STEADY, Stack};
use serde_json::json;

const DAYS: [&str; 1] = ["2025-02-15"];

async fn embedded(sections: &str) -> Stack {
    let sections = format!("{STEADY}{}{sections}", warehouse(Kind::Embedded, POSITIONS));
    let stack = Stack::new(Kind::Embedded, &sections).await;
    stack.make_positions(&["ABC"], &DAYS).await;
    stack
}

fn outhaul(stack: &Stack, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outhaul"));
    command.args(arguments).arg("--config").arg(stack.config()).current_dir(stack.dir.path());
    command.env("OUTHAUL__SERVER__LISTEN", "127.0.0.1:0");
    command
}

/// What a command said, and whether it went well.
fn said(output: Output) -> (bool, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn open_to(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("change the mode");
}

/// Everything below a folder, and the folder.
fn below(place: &Path, found: &mut Vec<std::path::PathBuf>) {
    found.push(place.to_owned());
    for entry in fs::read_dir(place).into_iter().flatten() {
        below(&entry.expect("an entry").path(), found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_users_of_the_machine_read_nothing() {
    let stack = embedded("").await;
    // As an earlier version left it.
    let data = stack.dir.path().join("data");
    fs::create_dir(&data).expect("make the folder");
    fs::write(data.join("outhaul.db"), "").expect("make the database");
    open_to(&data, 0o755);
    open_to(&data.join("outhaul.db"), 0o644);
    // Open the folder of the test, which is closed by default: the data must be closed by its own modes.
    open_to(stack.dir.path(), 0o755);

    let server = stack.serve("server", "api,worker,scheduler").await;
    let body = json!({ "items": [{ "key": "ABC", "effectiveDates": ["20250215"] }] });
    server.client().complete(&body).await;

    let mut found = Vec::new();
    below(&data, &mut found);
    let names: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
    for name in ["outhaul.db", "outhaul.db-wal", "outhaul.db-shm", "outhaul.db.lock", "ABC_20250215.csv"] {
        assert!(names.iter().any(|path| path.ends_with(&format!("/{name}"))), "{name} in {names:?}");
    }
    for path in &found {
        assert_eq!(mode(path) & 0o077, 0, "{} is open to others", path.display());
    }
    let whoami = said(Command::new("id").arg("-u").output().expect("run id")).1;
    if whoami.trim() == "0" {
        for path in found {
            let read = ["--reuid=65534", "--regid=65534", "--clear-groups", "head", "-c1"];
            let output = Command::new("setpriv").args(read).arg(&path).output().expect("run setpriv");
            let (_, text) = said(output);
            assert!(text.contains("Permission denied"), "{}: {text}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_group_reads_files_where_the_settings_say_so() {
    let stack = embedded("[storage]\nfile_access = \"group\"\n").await;
    let server = stack.serve("server", "api,worker,scheduler").await;
    let body = json!({ "items": [{ "key": "ABC", "effectiveDates": ["20250215"] }] });
    server.client().complete(&body).await;
    let data = stack.dir.path().join("data");
    assert_eq!(mode(&data), 0o750, "on the way to the files");
    assert_eq!(mode(&data.join("outhaul.db")), 0o600);
    assert_eq!(mode(&stack.files().join("exports/2025/02/15")), 0o750);
    assert_eq!(mode(&stack.files().join("exports/2025/02/15/ABC_20250215.csv")), 0o640);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_installation_is_refused_by_a_folder() {
    let first = embedded("").await;
    let mut server = first.serve("server", "api,worker,scheduler").await;
    let files = first.files().canonicalize().expect("the folder is there");
    let shared = format!("[storage]\nurl = \"file:{}\"\nbase_path = \"other/\"\n", files.display());
    let second = embedded(&shared).await;
    let marker = files.join(".staging/installation");

    let refusal = |(well, text): (bool, String)| {
        assert!(!well, "{text}");
        for part in ["two installations must not share a folder", &marker.display().to_string()] {
            assert!(text.contains(part), "{part} in {text}");
        }
    };
    // Before it has a database, and after.
    refusal(said(outhaul(&second, &["check"]).output().expect("run check")));
    refusal(said(outhaul(&second, &["serve"]).output().expect("run serve")));
    assert!(second.dir.path().join("data/outhaul.db").exists());
    refusal(said(outhaul(&second, &["check"]).output().expect("run check")));
    assert!(server.terminate());
    let (well, text) = said(outhaul(&first, &["check"]).output().expect("run check"));
    assert!(well, "{text}");

    // The other installation is gone for good.
    fs::remove_file(&marker).expect("remove the marker");
    let other = second.serve("server", "api,worker,scheduler").await;
    refusal(said(outhaul(&first, &["serve"]).output().expect("run serve")));
    // A running process notices it, too.
    fs::write(&marker, "somebody").expect("change the marker");
    // An answer is remembered for a second.
    let problem = loop {
        let (status, answer) = other.client().get("/readyz").await.expect("an answer");
        if status == 503 {
            break answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(problem["errors"][0]["pointer"], "storage", "{problem}");
}

/// A volume that is mounted where files are published, and not where they are staged.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_below_the_storage_is_refused() {
    let stack = embedded("").await;
    fs::create_dir_all(stack.files().join("exports")).expect("make the folder");
    for command in ["check", "serve"] {
        let inner = outhaul(&stack, &[command]);
        let mut outer = Command::new("unshare");
        // Mounts of its own; root in a name space of its own where the test is not run by root.
        let is_root = said(Command::new("id").arg("-u").output().expect("run id")).1.trim() == "0";
        outer.args(if is_root { &["--mount"][..] } else { &["--mount", "--map-root-user"] });
        let mounts = "mount -t tmpfs none \"$0\" && exec \"$@\"";
        outer.args(["sh", "-c", mounts]).arg(stack.files().join("exports"));
        outer.arg(inner.get_program()).args(inner.get_args()).current_dir(stack.dir.path());
        outer.env("OUTHAUL__SERVER__LISTEN", "127.0.0.1:0");
        let (well, text) = said(outer.output().expect("run unshare"));
        assert!(!well && text.contains("are on different file systems"), "{command}: {text}");
        assert!(text.contains("/files/.staging") && text.contains("/files/exports"), "{command}: {text}");
    }
    let (well, text) = said(outhaul(&stack, &["check"]).output().expect("run check"));
    assert!(well, "{text}");
}
