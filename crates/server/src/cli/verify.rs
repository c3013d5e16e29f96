//! `outhaul verify ID|DIR`: checksums against the manifest. A file that a newer generation replaced
//! is `superseded`, which is not `corrupt`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use outhaul_core::id::JobId;
use serde_json::{Value, json};

use super::client::{Client, Target, job_path};
use super::failure::Failure;
use super::hash::{self, Hash};
use super::manifest::{self, Manifest};
use super::table::{self, say, text};

/// How often a file that looks wrong is read again: a newer one may be on its way into the records.
const LOOKS: u32 = 3;
/// The pause between two such looks.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// What to verify.
#[derive(Args, Debug)]
pub(crate) struct Verify {
    #[command(flatten)]
    target: Target,
    /// A job (its files are read through the server), or a folder made by `files --download`.
    #[arg(value_name = "ID|DIR")]
    what: String,
}

/// What was found of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    Superseded,
    Corrupt,
    Missing,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Superseded => "superseded",
            Self::Corrupt => "corrupt",
            Self::Missing => "missing",
        }
    }
}

pub(crate) async fn run(args: Verify) -> Result<ExitCode, Failure> {
    let folder = PathBuf::from(&args.what);
    let found = if JobId::parse(&args.what).is_some() && !folder.is_dir() {
        verify_job(&args.target.client()?, &args.what).await?
    } else {
        verify_folder(&folder)?
    };
    report(&found, args.target.json);
    Ok(verdict(&found))
}

fn verdict(found: &[(String, State)]) -> ExitCode {
    let bad = found.iter().any(|(_, state)| matches!(state, State::Corrupt | State::Missing));
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn report(found: &[(String, State)], json: bool) {
    let count = |state: State| found.iter().filter(|(_, one)| *one == state).count();
    let [ok, superseded, corrupt, missing] =
        [State::Ok, State::Superseded, State::Corrupt, State::Missing].map(count);
    if json {
        let files: Vec<Value> =
            found.iter().map(|(path, state)| json!({ "path": path, "state": state.as_str() })).collect();
        table::json(&json!({
            "total": found.len(), "ok": ok, "superseded": superseded, "corrupt": corrupt, "missing": missing,
            "files": files,
        }));
    } else {
        for (path, state) in found {
            say(format!("{:<10}  {}", state.as_str(), table::plain(path)));
        }
        say(format!("{ok} ok, {superseded} superseded, {corrupt} corrupt, {missing} missing"));
    }
}

fn verify_folder(folder: &Path) -> Result<Vec<(String, State)>, Failure> {
    let Some(manifest) = Manifest::read(folder)? else {
        let message = format!(
            "{} is neither a job id nor a folder with a {} (made by `outhaul files ID --download DIR`)",
            folder.display(),
            manifest::NAME
        );
        return Err(Failure::new(message));
    };
    let mut found = Vec::new();
    for entry in &manifest.files {
        let place = entry.place(folder)?;
        let state = match hash::of_file(&place) {
            Ok(sha256) if sha256 == entry.sha256 => State::Ok,
            Ok(_) => State::Corrupt,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::Missing,
            Err(error) => {
                return Err(Failure::new(format!("{} cannot be read: {error}", place.display())));
            }
        };
        found.push((entry.path.clone(), state));
    }
    Ok(found)
}

async fn verify_job(client: &Client, job_id: &str) -> Result<Vec<(String, State)>, Failure> {
    let mut found = Vec::new();
    for item in client.all(&job_path(job_id, "/files")?, &[]).await? {
        let mut state = look(client, &item).await?;
        for _ in 1..LOOKS {
            if state != State::Corrupt {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            state = look(client, &item).await?;
        }
        found.push((text(&item, "path"), state));
    }
    Ok(found)
}

/// What the status of a refusal says of the file; `None`: nothing.
fn refused(status: u16) -> Option<State> {
    match status {
        404 => Some(State::Missing),
        // The storage holds something that differs from the record.
        409 => Some(State::Corrupt),
        410 => Some(State::Superseded),
        _ => None,
    }
}

async fn look(client: &Client, item: &Value) -> Result<State, Failure> {
    let mut response = match client.download(&text(item, "url")).await {
        Ok(response) => response,
        Err(error) => return error.status().and_then(refused).ok_or_else(|| error.into()),
    };
    let mut hash = Hash::default();
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) => hash.update(&bytes),
            Ok(None) => break,
            Err(_) => return Err(Failure::new("the download broke off; try again")),
        }
    }
    Ok(if hash.hex() == text(item, "sha256") { State::Ok } else { State::Corrupt })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::manifest::Entry;

    fn folder_with(contents: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::new();
        for (path, content) in contents {
            let mut hash = Hash::default();
            hash.update(content.as_bytes());
            std::fs::write(folder.path().join(path), content).unwrap();
            manifest.put(Entry::of("J1", &json!({ "path": path, "sha256": hash.hex() })));
        }
        manifest.write(folder.path()).unwrap();
        folder
    }

    #[test]
    fn a_folder_is_compared_with_its_manifest() {
        let folder = folder_with(&[("a", "1"), ("b", "2"), ("c", "3")]);
        std::fs::write(folder.path().join("b"), "not 2").unwrap();
        std::fs::remove_file(folder.path().join("c")).unwrap();
        let found = verify_folder(folder.path()).unwrap();
        let expected = [("a", State::Ok), ("b", State::Corrupt), ("c", State::Missing)];
        assert_eq!(found, expected.map(|(path, state)| (path.to_owned(), state)));
    }

    #[test]
    fn only_corrupt_and_missing_files_fail() {
        let code = |states: &[State]| {
            let found: Vec<_> = states.iter().map(|state| ("x".to_owned(), *state)).collect();
            format!("{:?}", verdict(&found))
        };
        let (good, bad) = (format!("{:?}", ExitCode::SUCCESS), format!("{:?}", ExitCode::FAILURE));
        assert_eq!(code(&[State::Ok, State::Superseded]), good);
        assert_eq!(code(&[State::Ok, State::Corrupt]), bad);
        assert_eq!(code(&[State::Missing]), bad);
    }

    #[test]
    fn a_damaged_file_is_not_a_missing_one() {
        let found = [404, 409, 410, 500, 503].map(refused);
        let expected = [Some(State::Missing), Some(State::Corrupt), Some(State::Superseded), None, None];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_folder_without_a_manifest_is_an_error() {
        assert!(verify_folder(tempfile::tempdir().unwrap().path()).is_err());
    }
}
