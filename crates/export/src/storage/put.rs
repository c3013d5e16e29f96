//! Small files: one conditional PUT, marked with the attempt that made it. A refusal or a lost reply
//! is settled by looking at what is there.

use object_store::{Error, PutMode, PutOptions, PutPayload, UpdateVersion};
use outhaul_core::id::Lease;

use super::checksum::Total;
use super::object::{Head, Objects, Service, quoted, same_etag};
use super::staged::prove;
use super::{Publisher, StorageError};

/// The file that is replaced.
#[derive(Clone, Debug)]
pub(super) struct Before {
    /// The recorded ETag, where a file is recorded.
    pub(super) etag: Option<String>,
    /// A writer of the same file ended without a record. One of its requests may still be on its way.
    pub(super) taken_over: bool,
}

/// Publishes `bytes` and returns the ETag. `attempt` is the lease and the mark that the object carries;
/// `before` is the file to replace.
pub(super) async fn put(
    objects: &Objects,
    publisher: &dyn Publisher,
    attempt: (Lease, &str),
    path: &str,
    before: Before,
    bytes: PutPayload,
    total: &Total,
) -> Result<String, StorageError> {
    let key = objects.key(path)?;
    let (lease, attempt) = attempt;
    let mut mode = first_mode(objects, path, before.etag).await?;
    let mut tries_left = 2;
    loop {
        // In this order, look, prove, put: what was looked at before the proof can only be replaced
        // by us, and whoever replaced it since makes the condition fail.
        prove(publisher, lease, path).await?;
        let options = PutOptions {
            mode,
            attributes: objects.service.marks(attempt.to_owned(), Some(total.sha256.clone())),
            ..PutOptions::default()
        };
        tries_left -= 1;
        let error = match objects.store.put_opts(&key, bytes.clone(), options).await {
            Ok(done) => match done.e_tag {
                Some(etag) if !before.taken_over => return Ok(quoted(etag)),
                // A late PUT of the previous writer is conditional on the recorded ETag. If our bytes equal the
                // recorded ones, that condition is true again, and the late PUT replaces our file.
                Some(_) => Error::Generic {
                    store: "object",
                    source: "an earlier attempt may have replaced it".into(),
                },
                None => Error::Generic { store: "object", source: "the reply has no ETag".into() },
            },
            Err(error) => error,
        };
        let refused = objects.failed(&format!("publish `{path}`"), error);
        let Ok(found) = objects.head(path).await else { return Err(refused) };
        if let Some(etag) = found.as_ref().and_then(|head| mine(head, attempt, total)) {
            return Ok(etag);
        }
        if tries_left == 0 || matches!(refused, StorageError::Fatal { .. }) {
            return Err(refused);
        }
        tracing::info!(attempt, path, error = %refused, "publishing again over what is there now");
        mode = replacing(found);
    }
}

/// The condition on what was recorded. Google's conditions name a version, which is not recorded.
async fn first_mode(
    objects: &Objects,
    path: &str,
    recorded: Option<String>,
) -> Result<PutMode, StorageError> {
    match (objects.service, recorded) {
        (_, None) => Ok(PutMode::Create),
        (Service::Gcs, Some(etag)) => {
            let found = objects.head(path).await?;
            Ok(replacing(found.filter(|head| same_etag(&etag, &head.etag))))
        }
        (_, Some(etag)) => Ok(PutMode::Update(UpdateVersion { e_tag: Some(etag), version: None })),
    }
}

/// The condition that nothing changed since this was seen.
fn replacing(found: Option<Head>) -> PutMode {
    match found {
        None => PutMode::Create,
        Some(head) => PutMode::Update(UpdateVersion { e_tag: head.etag, version: head.version }),
    }
}

/// The ETag, if the object is the one this attempt sent.
fn mine(head: &Head, attempt: &str, total: &Total) -> Option<String> {
    let same = head.attempt.as_deref() == Some(attempt)
        && head.sha256.as_deref() == Some(&*total.sha256)
        && head.size == total.bytes;
    head.etag.clone().filter(|_| same).map(quoted)
}
