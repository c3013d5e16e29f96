//! An object store and the calls that every kind of publishing shares. Keys are taken as they are:
//! `Path::parse`, never `Path::from`, which would encode `%` again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::client::HttpClient;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::{Method, SignedUrlOptions, Signer};
use object_store::{Attribute, Attributes, Error, GetOptions, GetRange, GetResult, ObjectStore};
use outhaul_core::file::Upload;
use tokio::sync::Semaphore;
use url::Url;

use super::checksum::Tally;
use super::local::within;
use super::{ByteStream, STAGING, StorageError, Stored};

mod open;
mod uploads;

/// Files are read in requests of this size, so that none runs into a request timeout.
const SEGMENT: u64 = 8 * 1024 * 1024;
/// The longest that a presigned URL may live.
const MAX_PRESIGNED: Duration = Duration::from_secs(15 * 60);

/// The services differ in what a condition names and what metadata may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    S3,
    Gcs,
    Azure,
}

/// A bucket, or a prefix in one.
pub(super) struct Objects {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) multipart: Arc<dyn MultipartStore>,
    signer: Arc<dyn Signer>,
    /// For requests that `object_store` does not make. S3 only.
    client: Option<HttpClient>,
    /// Memory that uploads share.
    pub(super) reserve: Arc<Semaphore>,
    pub(super) service: Service,
    prefix: String,
    url: String,
}

/// What HEAD says of an object.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) size: u64,
    pub(super) etag: Option<String>,
    pub(super) version: Option<String>,
    /// `outhaul-attempt`: who wrote it.
    pub(super) attempt: Option<String>,
    /// `outhaul-sha256`: what was written, where it was known beforehand.
    pub(super) sha256: Option<String>,
}

/// The key of a path. Only what needs no encoding or resolving is one.
pub(super) fn key(prefix: &str, path: &str) -> Result<Path, StorageError> {
    let unusable = |why: &str| StorageError::fatal(format!("`{path}` cannot be a file's path: {why}"));
    if path.is_empty() || path.starts_with('/') || path.ends_with('/') {
        return Err(unusable("it is empty, or starts or ends with `/`"));
    }
    let full = if prefix.is_empty() { path.to_owned() } else { format!("{prefix}/{path}") };
    Path::parse(full).map_err(|error| unusable(&error.to_string()))
}

/// Some servers quote ETags in headers but not in bodies.
pub(super) fn quoted(etag: String) -> String {
    if etag.starts_with('"') || etag.starts_with("W/") { etag } else { format!("\"{etag}\"") }
}

pub(super) fn same_etag(recorded: &str, found: &Option<String>) -> bool {
    found.as_deref().is_some_and(|found| found.trim_matches('"') == recorded.trim_matches('"'))
}

impl Service {
    /// Azure takes only names that could be identifiers.
    fn attempt_name(self) -> &'static str {
        if self == Self::Azure { "outhaul_attempt" } else { "outhaul-attempt" }
    }

    fn sha256_name(self) -> &'static str {
        if self == Self::Azure { "outhaul_sha256" } else { "outhaul-sha256" }
    }

    /// The metadata that an attempt's object carries.
    pub(super) fn marks(self, attempt: String, sha256: Option<String>) -> Attributes {
        let mut marks = Attributes::new();
        marks.insert(Attribute::Metadata(self.attempt_name().into()), attempt.into());
        if let Some(sha256) = sha256 {
            marks.insert(Attribute::Metadata(self.sha256_name().into()), sha256.into());
        }
        marks
    }
}

impl Objects {
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn key(&self, path: &str) -> Result<Path, StorageError> {
        key(&self.prefix, path)
    }

    pub(super) fn failed(&self, act: &str, error: Error) -> StorageError {
        StorageError::object(act, &self.url, error)
    }

    /// Lists a place that is always empty: cheap, and fails when bucket or credentials are wrong.
    pub(super) async fn check(&self) -> Result<(), StorageError> {
        let place = self.key(STAGING)?;
        match self.store.list(Some(&place)).next().await {
            Some(Err(error)) => Err(self.failed("list files", error)),
            _ => Ok(()),
        }
    }

    pub(super) async fn head(&self, path: &str) -> Result<Option<Head>, StorageError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = match self.store.get_opts(&self.key(path)?, options).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failed(&format!("look for `{path}`"), error)),
        };
        let mark = |name: &'static str| {
            found.attributes.get(&Attribute::Metadata(name.into())).map(|v| v.to_string())
        };
        Ok(Some(Head {
            attempt: mark(self.service.attempt_name()),
            sha256: mark(self.service.sha256_name()),
            size: found.meta.size,
            etag: found.meta.e_tag,
            version: found.meta.version,
        }))
    }

    /// Aborts an upload; one that is gone already is fine.
    pub(super) async fn abort(&self, upload: &Upload) -> Result<(), StorageError> {
        match self.multipart.abort_multipart(&self.key(&upload.path)?, &upload.upload_id).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&format!("abort the upload of `{}`", upload.path), error)),
        }
    }

    pub(super) async fn read(
        &self,
        path: &str,
        range: Option<Range<u64>>,
    ) -> Result<(Stored, ByteStream), StorageError> {
        let Some(head) = self.head(path).await? else {
            return Err(StorageError::NotFound { path: path.to_owned() });
        };
        let range = within(range, head.size);
        let (store, key) = (Arc::clone(&self.store), self.key(path)?);
        let (url, act, etag) = (self.url.clone(), format!("read `{path}`"), head.etag.clone());
        let starts = (range.start..range.end).step_by(usize::try_from(SEGMENT).unwrap_or(usize::MAX));
        let bytes = stream::iter(starts)
            .then(move |start| {
                let options = GetOptions {
                    range: Some(GetRange::Bounded(start..range.end.min(start + SEGMENT))),
                    // All segments are of one and the same object.
                    if_match: etag.clone(),
                    ..GetOptions::default()
                };
                let (store, key) = (Arc::clone(&store), key.clone());
                async move { store.get_opts(&key, options).await.map(GetResult::into_stream) }
            })
            .try_flatten()
            .map_err(move |error| StorageError::object(&act, &url, error));
        Ok((Stored { size: head.size, etag: head.etag }, bytes.boxed()))
    }

    /// The checksum of what is really there.
    pub(super) async fn sha256(&self, path: &str) -> Result<(Stored, String), StorageError> {
        let (stored, mut bytes) = self.read(path, None).await?;
        let mut tally = Tally::default();
        while let Some(piece) = bytes.try_next().await? {
            tally.add(&piece);
        }
        Ok((stored, tally.total().sha256))
    }

    /// Signs a URL of the object that was looked at. If the bucket keeps versions, the URL names the version, so that
    /// the URL never leads to a newer object.
    pub(super) async fn presign(&self, path: &str, head: &Head, ttl: Duration) -> Result<Url, StorageError> {
        let mut options = SignedUrlOptions::default();
        // S3 gives the version "null" to objects from before versioning was turned on.
        let version = head.version.as_deref().filter(|version| *version != "null");
        if let (Service::S3, Some(version)) = (self.service, version) {
            options = options.with_query([("versionId", version)]);
        }
        let (key, ttl) = (self.key(path)?, ttl.min(MAX_PRESIGNED));
        let signed = self.signer.signed_url_opts(Method::GET, &key, ttl, &options).await;
        signed.map_err(|error| self.failed(&format!("sign a URL of `{path}`"), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_as_they_are() {
        for path in ["a/b", "a/%2E.%2Fx_20250215.csv", "a b/ü/😀.csv", "a/%25.csv"] {
            assert_eq!(key("", path).unwrap().as_ref(), path);
            assert_eq!(key("p/q", path).unwrap().as_ref(), format!("p/q/{path}"));
        }
    }

    #[test]
    fn paths_that_would_lead_elsewhere_are_refused() {
        for path in ["", "/", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a/\n", "a\0"] {
            assert!(key("", path).is_err(), "{path:?}");
            assert!(key("p", path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn etags_are_compared_without_their_quotes() {
        assert!(same_etag("\"a-2\"", &Some("a-2".into())));
        assert!(!same_etag("\"a\"", &Some("\"b\"".into())));
        assert!(!same_etag("\"a\"", &None));
        assert_eq!(quoted("a".into()), "\"a\"");
        assert_eq!(quoted("\"a\"".into()), "\"a\"");
    }
}
