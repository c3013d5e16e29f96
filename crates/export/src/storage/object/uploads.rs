//! Open uploads of a file that nobody recorded. A worker that is killed after S3 opened an upload, and before the
//! upload was recorded, leaves one that only S3 knows. `object_store` cannot list uploads, so the list is asked for
//! with a signed URL.

use std::time::Duration;

use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::{Method, SignedUrlOptions};
use outhaul_core::file::Upload;
use serde::Deserialize;

use super::{Objects, StorageError};

const URL_LIFETIME: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Listed {
    #[serde(default, rename = "Upload")]
    uploads: Vec<OpenUpload>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OpenUpload {
    key: String,
    upload_id: String,
}

impl Objects {
    /// Aborts every open upload of a path. Only the writer of the path may ask for this, before it opens an upload of
    /// its own. A caller without the right to list uploads aborts none.
    pub(in super::super) async fn abort_unrecorded(&self, path: &str) -> Result<(), StorageError> {
        let Some(client) = &self.client else { return Ok(()) };
        for upload in self.open_uploads(client, path).await? {
            self.abort(&upload).await?;
            tracing::info!(path, "aborted an upload that its worker opened and did not record");
        }
        Ok(())
    }

    async fn open_uploads(&self, client: &HttpClient, path: &str) -> Result<Vec<Upload>, StorageError> {
        let key = self.key(path)?;
        let failed = |why: String| {
            StorageError::retryable(format!("cannot list open uploads of `{path}` in {}: {why}", self.url))
        };
        let options = SignedUrlOptions::default().with_query([("uploads", ""), ("prefix", key.as_ref())]);
        let url = self.signer.signed_url_opts(Method::GET, &Path::default(), URL_LIFETIME, &options).await;
        let url = url.map_err(|error| self.failed(&format!("list open uploads of `{path}`"), error))?;
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.as_str().parse().map_err(|_| failed("its URL is not one".to_owned()))?;
        // An error of the client names the URL, and with it the signature.
        let answer = client.execute(request).await.map_err(|_| failed("no answer".to_owned()))?;
        let status = answer.status();
        if status.is_client_error() {
            tracing::warn!(path, %status, "cannot list open uploads ({status}): one that was not recorded stays");
            return Ok(Vec::new());
        }
        if !status.is_success() {
            return Err(failed(format!("the answer is {status}")));
        }
        let body = answer.into_body().bytes().await.map_err(|_| failed("the answer broke off".to_owned()))?;
        let listed: Listed = quick_xml::de::from_reader(&*body)
            .map_err(|error| failed(format!("the answer cannot be read: {error}")))?;
        // The prefix also finds longer keys. Lists are sorted, so the key itself is never beyond the first page.
        let own = listed.uploads.into_iter().filter(|upload| upload.key == key.as_ref());
        Ok(own.map(|upload| Upload { path: path.to_owned(), upload_id: upload.upload_id }).collect())
    }
}
