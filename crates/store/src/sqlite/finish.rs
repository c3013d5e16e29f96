//! SUCCESS: chunks, their files, the manifest and the jobs' counts, in one transaction for many.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use outhaul_core::file::{FileIdentity, FileOutcome};
use outhaul_core::id::Lease;
use outhaul_core::store::StoreResult;
use outhaul_core::worker::Finish;
use serde::Serialize;

use super::SqliteStore;
use super::convert::{json, leases as leases_json};
use super::counts::{Changes, Moved};
use super::progress;
use super::transaction::Write;
use crate::error::from_sqlx;

/// What `chunks_finish_held.sql` asks about a finish.
#[derive(Serialize)]
struct Asked<'a> {
    chunk: i64,
    fence: i64,
    generated: bool,
    identity: Option<&'a FileIdentity>,
}

/// A finish whose lease holds, and where its file is recorded.
#[derive(sqlx::FromRow)]
struct Held {
    at: i64,
    job_id: String,
    file_id: Option<i64>,
    generation: Option<i64>,
}

/// A newly published file, for `file_cache`.
#[derive(Serialize)]
struct NewFile<'a> {
    file: Option<i64>,
    chunk: i64,
    fence: i64,
    path: &'a str,
    rows: i64,
    bytes: i64,
    sha256: &'a str,
    etag: Option<&'a str>,
    format: &'a str,
    definition: &'a str,
    claimed_at: i64,
    job_id: &'a str,
}

/// A file of a finished chunk, for `chunk_file`.
#[derive(Serialize)]
struct NewManifestRow<'a> {
    chunk: i64,
    file: Option<i64>,
    path: &'a str,
    rows: i64,
    bytes: i64,
    sha256: &'a str,
    etag: Option<&'a str>,
    format: &'a str,
    reused: bool,
    reason: &'a str,
    generated_at: i64,
    generation: i64,
}

pub(super) async fn finish(store: &SqliteStore, finishes: &[Finish]) -> StoreResult<Vec<Lease>> {
    let mut seen = BTreeSet::new();
    let finishes: Vec<Finish> = finishes.iter().filter(|finish| seen.insert(finish.lease)).cloned().collect();
    store.write(move |write| Box::pin(async move { finish_in(write, &finishes).await })).await
}

async fn finish_in(write: &mut Write, finishes: &[Finish]) -> StoreResult<Vec<Lease>> {
    let held = held(write, finishes).await?;
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let now = write.now;
    let leases: Vec<Lease> = held.iter().map(|(finish, _)| finish.lease).collect();
    let moved: Vec<Moved> = sqlx::query_as(include_str!("sql/chunks_finish.sql"))
        .bind(leases_json(&leases))
        .bind(now)
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    progress::forget(write, moved.iter().map(|chunk| chunk.id)).await?;

    let files: Vec<NewFile<'_>> = held.iter().filter_map(|(finish, held)| new_file(finish, held)).collect();
    if !files.is_empty() {
        sqlx::query(include_str!("sql/chunks_finish_file.sql"))
            .bind(json(&files))
            .bind(now)
            .execute(write.connection())
            .await
            .map_err(from_sqlx)?;
    }
    let manifest: Vec<NewManifestRow<'_>> =
        held.iter().filter_map(|(finish, held)| new_manifest_row(finish, held, now)).collect();
    if !manifest.is_empty() {
        sqlx::query(include_str!("sql/chunks_finish_manifest.sql"))
            .bind(json(&manifest))
            .execute(write.connection())
            .await
            .map_err(from_sqlx)?;
    }

    let files: BTreeMap<i64, &NewManifestRow<'_>> = manifest.iter().map(|file| (file.chunk, file)).collect();
    let results: BTreeMap<i64, &String> =
        held.iter().filter_map(|(finish, _)| Some((finish.lease.chunk.0, finish.result.as_ref()?))).collect();
    let mut changes = Changes::default();
    for chunk in &moved {
        let change = changes.of(chunk);
        change.done += 1;
        if let Some(result) = results.get(&chunk.id) {
            change.result = Some((*result).clone());
        }
        if let Some(file) = files.get(&chunk.id) {
            change.rows += file.rows;
            change.bytes += file.bytes;
            change.reused += i64::from(file.reused);
        }
    }
    changes.record(write).await?;
    Ok(moved.iter().map(Moved::lease).collect())
}

/// The finishes that still count, each with where its file is recorded.
async fn held<'a>(write: &mut Write, finishes: &'a [Finish]) -> StoreResult<Vec<(&'a Finish, Held)>> {
    let asked: Vec<Asked<'_>> = finishes
        .iter()
        .map(|finish| {
            let (generated, identity) = match &finish.file {
                Some(FileOutcome::Generated(file)) => (true, Some(&file.identity)),
                Some(FileOutcome::Reused { identity, .. }) => (false, Some(identity)),
                None => (false, None),
            };
            Asked { chunk: finish.lease.chunk.0, fence: finish.lease.fence, generated, identity }
        })
        .collect();
    let rows: Vec<Held> = sqlx::query_as(include_str!("sql/chunks_finish_held.sql"))
        .bind(json(&asked))
        .fetch_all(write.connection())
        .await
        .map_err(from_sqlx)?;
    let mut seen = BTreeSet::new();
    Ok(rows
        .into_iter()
        .filter(|held| seen.insert(held.at))
        .map(|held| (&finishes[held.at as usize], held))
        .collect())
}

fn new_file<'a>(finish: &'a Finish, held: &'a Held) -> Option<NewFile<'a>> {
    let Some(FileOutcome::Generated(file)) = &finish.file else { return None };
    Some(NewFile {
        file: held.file_id,
        chunk: finish.lease.chunk.0,
        fence: finish.lease.fence,
        path: &file.path,
        rows: file.rows,
        bytes: file.bytes,
        sha256: &file.sha256,
        etag: file.etag.as_deref(),
        format: &file.format,
        definition: &file.definition,
        claimed_at: micros_of(finish.claimed_at),
        job_id: &held.job_id,
    })
}

fn new_manifest_row<'a>(finish: &'a Finish, held: &Held, now: i64) -> Option<NewManifestRow<'a>> {
    let (chunk, file, reason) = (finish.lease.chunk.0, held.file_id, finish.reason.as_str());
    Some(match finish.file.as_ref()? {
        FileOutcome::Generated(made) => NewManifestRow {
            chunk,
            file,
            path: &made.path,
            rows: made.rows,
            bytes: made.bytes,
            sha256: &made.sha256,
            etag: made.etag.as_deref(),
            format: &made.format,
            reused: false,
            reason,
            generated_at: now,
            generation: held.generation.unwrap_or(0) + 1,
        },
        FileOutcome::Reused { record: kept, .. } => NewManifestRow {
            chunk,
            file,
            path: &kept.path,
            rows: kept.rows,
            bytes: kept.bytes,
            sha256: &kept.sha256,
            etag: kept.etag.as_deref(),
            format: &kept.format,
            reused: true,
            reason,
            generated_at: micros_of(kept.generated_at),
            generation: kept.generation,
        },
    })
}

fn micros_of(at: DateTime<Utc>) -> i64 {
    at.timestamp_micros()
}
