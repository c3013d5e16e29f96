//! `outhaul files ID`: a job's manifest, and its files downloaded and checked.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::client::{Client, Target, job_path};
use super::failure::Failure;
use super::hash::Hash;
use super::manifest::{Entry, Manifest};
use super::table::{self, bytes, count, say, short_hash, text};

/// How many files are downloaded between two writes of the manifest: it is written as a whole, so
/// writing it after each would take longer than the files.
const BETWEEN_WRITES: usize = 100;

/// Which files.
#[derive(Args, Debug)]
pub(crate) struct Files {
    #[command(flatten)]
    target: Target,
    /// The job.
    #[arg(value_name = "ID")]
    job_id: String,
    /// Download them into this folder, check them, and write manifest.json beside them.
    #[arg(long, value_name = "DIR")]
    download: Option<PathBuf>,
}

pub(crate) async fn run(args: Files) -> Result<ExitCode, Failure> {
    let client = args.target.client()?;
    let items = client.all(&job_path(&args.job_id, "/files")?, &[]).await?;
    match &args.download {
        Some(folder) => download(&client, &args, folder, &items).await,
        None => {
            if args.target.json {
                table::json(&json!({ "items": items }));
            } else {
                show(&items);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints files as a table.
pub(crate) fn show(items: &[Value]) {
    if items.is_empty() {
        return say("no files");
    }
    let row = |item: &Value| {
        vec![
            text(item, "key"),
            text(item, "effectiveDate"),
            count(item, "rows"),
            bytes(item, "bytes"),
            short_hash(item),
            text(item, "reused"),
            text(item, "current"),
            text(item, "path"),
        ]
    };
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    say(table::table(&["KEY", "DATE", "ROWS", "BYTES", "SHA256", "REUSED", "CURRENT", "PATH"], &rows));
}

async fn download(
    client: &Client,
    args: &Files,
    folder: &Path,
    items: &[Value],
) -> Result<ExitCode, Failure> {
    let cannot = |error| Failure::new(format!("{} cannot be made: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    // Several jobs may share a folder; each adds what it brought.
    let mut manifest = Manifest::read(folder)?.unwrap_or_else(Manifest::new);
    let mut report = Vec::new();
    let mut failed = 0_usize;
    let mut unwritten = 0_usize;
    for item in items {
        let entry = Entry::of(&args.job_id, item);
        let path = entry.path.clone();
        let state = match fetch(client, &text(item, "url"), &entry, folder).await {
            Ok(()) => {
                manifest.put(entry);
                unwritten += 1;
                if unwritten >= BETWEEN_WRITES {
                    manifest.write(folder)?;
                    unwritten = 0;
                }
                "downloaded".to_owned()
            }
            Err(failure) => {
                failed += 1;
                format!("failed: {}", failure.one_line())
            }
        };
        if !args.target.json {
            say(format!("{}  {}", table::plain(&path), table::plain(&state)));
        }
        report.push(json!({ "path": path, "state": state }));
    }
    manifest.write(folder)?;
    if args.target.json {
        table::json(&json!({ "folder": folder, "files": report }));
    } else {
        say(format!("{} of {} files in {}", items.len() - failed, items.len(), folder.display()));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Brings one file under a temporary name, and gives it its own once its checksum is right.
async fn fetch(client: &Client, url: &str, entry: &Entry, folder: &Path) -> Result<(), Failure> {
    let place = entry.place(folder)?;
    let parent = place.parent().unwrap_or(folder);
    let name = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A hash as the name: the longest file name plus a suffix would be too long.
    let staged = parent.join(format!(".{}.part", &entry.sha256.get(..32).unwrap_or("download")));
    let cannot = |error: std::io::Error| Failure::new(format!("{name} cannot be written: {error}"));
    tokio::fs::create_dir_all(parent).await.map_err(cannot)?;
    let mut response = client.download(url).await?;
    let mut out = tokio::fs::File::create(&staged).await.map_err(cannot)?;
    let mut hash = Hash::default();
    let brought = async {
        while let Some(bytes) =
            response.chunk().await.map_err(|_| Failure::new("the download broke off; try again"))?
        {
            hash.update(&bytes);
            out.write_all(&bytes).await.map_err(cannot)?;
        }
        out.sync_all().await.map_err(cannot)?;
        let found = hash.hex();
        if found != entry.sha256 {
            let message = format!("its sha256 is {found}, the manifest says {}", entry.sha256);
            return Err(Failure::new(message));
        }
        tokio::fs::rename(&staged, &place).await.map_err(cannot)
    };
    let brought = brought.await;
    if brought.is_err() {
        // Best effort: the failure itself is what the caller must hear.
        let _ = tokio::fs::remove_file(&staged).await;
    }
    brought
}

#[cfg(test)]
mod tests {
    use super::super::bearer::BearerFlags;
    use super::*;
    use axum::http::StatusCode;
    use axum::{Router, routing::get};
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn what_was_downloaded_is_in_the_manifest_beside_what_failed() {
        let mut hash = Hash::default();
        hash.update(b"bytes");
        let sha256 = hash.hex();
        let router = Router::new()
            .route("/good", get(async || "bytes"))
            .route("/gone", get(async || (StatusCode::NOT_FOUND, "{\"detail\": \"it is not there\"}")));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let bounds = crate::listen::Bounds::default();
        let task = tokio::spawn(crate::listen::answer(listener, router, bounds, stop.clone()));

        // More than one write of the manifest, and some left over at the end.
        let good = BETWEEN_WRITES + 5;
        let item = |i: usize, url: &str| json!({ "path": format!("x/{i}"), "url": url, "sha256": sha256 });
        let mut items: Vec<Value> = (0..good).map(|i| item(i, "/good")).collect();
        items.push(item(good, "/gone"));
        let folder = tempfile::tempdir().unwrap();
        let target = Target { server, bearer: BearerFlags::default(), json: false };
        let client = target.client().unwrap();
        let args = Files { target, job_id: "J1".into(), download: None };
        let code = download(&client, &args, folder.path(), &items).await.unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        let manifest = Manifest::read(folder.path()).unwrap().unwrap();
        let paths: Vec<String> = manifest.files.into_iter().map(|entry| entry.path).collect();
        assert_eq!(paths, (0..good).map(|i| format!("x/{i}")).collect::<Vec<_>>());
        assert_eq!(std::fs::read(folder.path().join("x/0")).unwrap(), b"bytes");

        let entry = Entry::of("J1", &items[good]);
        let failure = fetch(&client, "/gone", &entry, folder.path()).await.unwrap_err();
        assert_eq!(failure.one_line(), "Not Found (404); it is not there");
        stop.cancel();
        drop(client);
        task.await.unwrap();
    }
}
