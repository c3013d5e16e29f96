//! Storage on an S3-compatible server: the suite, and what only networks do (lost replies, refusals).

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod storage_suite;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::multipart::MultipartStore as _;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use outhaul::Failed;
use outhaul_core::file::{Leftover, Upload, WriteGrant};
use outhaul_core::secret::Secret;
use outhaul_export::settings::{FileAccess, StorageSettings, StorageTarget};
use outhaul_export::storage::{Link, Published, Publisher, Storage, StorageError};
use outhaul_testkit::servers::{S3Settings, s3, unique_prefix};
use sha2::{Digest as _, Sha256};
use storage_suite::{Ground, LARGE, Owner, SMALL, content, first, lease, over, publish, read, record, write};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

const SMALL_LIMIT: usize = 8 * 1024 * 1024;

struct Bucket {
    server: S3Settings,
    prefix: String,
    raw: AmazonS3,
    storage: Storage,
}

fn settings(server: &S3Settings, prefix: &str) -> StorageSettings {
    let options = [
        ("aws_endpoint", &*server.endpoint),
        ("aws_access_key_id", &*server.access_key_id),
        ("aws_secret_access_key", &*server.secret_access_key),
        ("aws_region", "us-east-1"),
        ("aws_allow_http", "true"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), Secret::new(value)));
    let url = format!("s3://{}/{prefix}", server.bucket);
    let target = StorageTarget::Object { url, options: options.into() };
    StorageSettings { target, base_path: "exports/".into(), file_access: FileAccess::Owner }
}

async fn bucket() -> Bucket {
    let (server, prefix) = (s3(), unique_prefix());
    let raw = AmazonS3Builder::new()
        .with_endpoint(&server.endpoint)
        .with_access_key_id(&server.access_key_id)
        .with_secret_access_key(&server.secret_access_key)
        .with_bucket_name(&server.bucket)
        .with_allow_http(true)
        .build()
        .unwrap();
    let storage = Storage::open(&settings(&server, &prefix)).unwrap().claim("s3tests", &[]).unwrap();
    Bucket { server, prefix, raw, storage }
}

impl Bucket {
    fn key(&self, path: &str) -> Path {
        Path::parse(format!("{}/{path}", self.prefix)).unwrap()
    }
}

#[async_trait]
impl Ground for Bucket {
    fn storage(&self) -> &Storage {
        &self.storage
    }

    fn has_uploads(&self) -> bool {
        true
    }

    async fn put_raw(&self, path: &str, bytes: &[u8]) {
        self.raw.put(&self.key(path), bytes.to_vec().into()).await.unwrap();
    }

    async fn delete_raw(&self, path: &str) {
        self.raw.delete(&self.key(path)).await.unwrap();
    }

    async fn seen(&self) -> Vec<String> {
        let below = Path::parse(&self.prefix).unwrap();
        let found: Vec<_> = self.raw.list(Some(&below)).try_collect().await.unwrap();
        let strip =
            |path: &Path| path.as_ref().strip_prefix(&format!("{}/", self.prefix)).unwrap().to_owned();
        let mut found: Vec<String> = found.iter().map(|object| strip(&object.location)).collect();
        found.sort();
        found
    }

    async fn unfinished(&self) -> usize {
        let S3Settings { endpoint, access_key_id, secret_access_key, bucket } = &self.server;
        let url = format!("{endpoint}/{bucket}?prefix={}&uploads=", self.prefix);
        let listed = Command::new("curl")
            .args(["-sS", "--fail", "--noproxy", "*", "--aws-sigv4", "aws:amz:us-east-1:s3", "-u"])
            .args([&format!("{access_key_id}:{secret_access_key}"), &url])
            .output()
            .expect("curl");
        let listed = String::from_utf8_lossy(&listed.stdout);
        assert!(listed.contains("ListMultipartUploadsResult"), "{listed}");
        listed.matches("<UploadId>").count()
    }
}

storage_suite!(crate::bucket);

#[tokio::test]
async fn open_uploads_can_be_counted() {
    let ground = bucket().await;
    let owner = Owner::default();
    let mut file = ground.storage.begin(&owner, lease(1, 1), "exports/a.csv".into(), &first()).await.unwrap();
    write(&mut file, &content(1, LARGE)).await.unwrap();
    assert_eq!(ground.unfinished().await, 1, "or the suite's counts say nothing");
    file.abort().await;
    assert_eq!(ground.unfinished().await, 0);
}

#[tokio::test]
async fn eight_mebibytes_are_small_and_one_byte_more_is_not() {
    let ground = bucket().await;
    for (size, uploads) in [(SMALL_LIMIT, 0), (SMALL_LIMIT + 1, 1), (2 * SMALL_LIMIT, 1)] {
        let (owner, path) = (Owner::default(), format!("exports/{size}.csv"));
        let bytes = content(1, size);
        publish(&ground.storage, &owner, lease(1, 1), &path, &first(), &bytes).await.unwrap();
        assert_eq!(owner.uploads.lock().unwrap().len(), uploads);
        assert_eq!(read(&ground.storage, &path).await.unwrap(), bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_files_at_once_share_the_memory_and_all_end() {
    let ground = bucket().await;
    let files = (0..8).map(|n| {
        let storage = ground.storage.clone();
        tokio::spawn(async move {
            let (owner, path, bytes) = (Owner::default(), format!("exports/{n}.csv"), content(n, LARGE));
            publish(&storage, &owner, lease(n as i64, 1), &path, &first(), &bytes).await.unwrap();
            assert_eq!(read(&storage, &path).await.unwrap(), bytes);
        })
    });
    for file in files.collect::<Vec<_>>() {
        file.await.unwrap();
    }
    assert_eq!(ground.unfinished().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_whose_source_hangs_starve_nobody() {
    let ground = bucket().await;
    let (storage, owner) = (&ground.storage, Owner::default());
    let mut hung = Vec::new();
    // Before their upload, at its brink, and in the midst of it.
    for (n, mib) in [3, 5, 7, 8, 12, 17].into_iter().cycle().take(12).enumerate() {
        let path = format!("exports/hung-{n}.csv");
        let mut file = storage.begin(&owner, lease(n as i64, 1), path, &first()).await.unwrap();
        write(&mut file, &content(1, mib * 1024 * 1024)).await.unwrap();
        hung.push(file);
    }
    for n in 0..2 {
        let (path, bytes) = (format!("exports/{n}.csv"), content(n, LARGE));
        let (other, grant) = (Owner::default(), first());
        let published = publish(storage, &other, lease(100, n as i64), &path, &grant, &bytes);
        let published = tokio::time::timeout(Duration::from_secs(120), published).await;
        published.expect("must not wait for the others").unwrap();
        assert_eq!(read(storage, &path).await.unwrap(), bytes);
    }
    for file in hung {
        file.abort().await;
    }
    assert_eq!(ground.unfinished().await, 0);
}

/// An owner whose next requests after a proof are executed, but never answered.
struct CutOff {
    owner: Owner,
    cut: Arc<AtomicUsize>,
    replies: usize,
}

#[async_trait]
impl Publisher for CutOff {
    async fn may_publish(&self) -> Result<(), Failed> {
        self.owner.may_publish().await?;
        self.cut.store(self.replies, Ordering::SeqCst);
        Ok(())
    }

    async fn record_upload(&self, upload: &Upload) -> Result<(), Failed> {
        self.owner.record_upload(upload).await
    }
}

/// A proxy in front of the server that lets every request through and drops the next `cut` replies.
async fn proxy(server: &S3Settings, cut: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let upstream = server.endpoint.strip_prefix("http://").unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (upstream, cut) = (upstream.clone(), Arc::clone(&cut));
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) =
                    TcpStream::connect(upstream).await.unwrap().into_split();
                let requests = tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
                });
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(size @ 1..) = from_server.read(&mut buffer).await {
                    // `100 Continue` is not the reply yet.
                    let interim = buffer.starts_with(b"HTTP/1.1 100");
                    let one_less = |left: usize| left.checked_sub(1);
                    if !interim && cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                        // Only a reply that is whole says that the request was executed to its end.
                        let mut reply = buffer[..size].to_vec();
                        while !is_whole(&reply) {
                            match from_server.read(&mut buffer).await {
                                Ok(size @ 1..) => reply.extend_from_slice(&buffer[..size]),
                                _ => break,
                            }
                        }
                        break;
                    }
                    if to_client.write_all(&buffer[..size]).await.is_err() {
                        break;
                    }
                }
                requests.abort();
            });
        }
    });
    endpoint
}

fn is_whole(reply: &[u8]) -> bool {
    let text = String::from_utf8_lossy(reply).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|length| length.trim().parse().ok()) {
        Some(length) => body.len() >= length,
        None => body.ends_with("0\r\n\r\n"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_settled_by_what_is_there() {
    // The completion of an upload is retried three times below us, and may then be known as done.
    for (size, replies) in [(SMALL, 1), (LARGE, 4)] {
        let ground = bucket().await;
        let cut = Arc::new(AtomicUsize::new(0));
        let server =
            S3Settings { endpoint: proxy(&ground.server, Arc::clone(&cut)).await, ..ground.server.clone() };
        let storage =
            Storage::open(&settings(&server, &ground.prefix)).unwrap().claim("s3tests", &[]).unwrap();
        let path = "exports/a.csv";
        let mut grant = first();
        for fence in 1..=2 {
            let cut_off = CutOff { owner: Owner::default(), cut: Arc::clone(&cut), replies };
            let bytes = content(fence, size);
            let mut file =
                storage.begin(&cut_off, lease(1, fence as i64), path.into(), &grant).await.unwrap();
            write(&mut file, &bytes).await.unwrap();
            let published = file.publish().await.unwrap();
            assert_eq!(cut.load(Ordering::SeqCst), 0, "all of them were dropped");
            assert_eq!(cut_off.owner.proofs.load(Ordering::SeqCst), 1, "adopted, not written twice");
            assert!(ground.storage.is_there(&record(&published)).await.unwrap());
            assert_eq!(read(&ground.storage, path).await.unwrap(), bytes);
            grant = over(&record(&published));
        }
        assert_eq!(ground.unfinished().await, 0);
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_without_secrets() {
    let ground = bucket().await;
    ground.storage.check().await.unwrap();

    let wrong = S3Settings { secret_access_key: "hunter2".into(), ..ground.server.clone() };
    let storage = Storage::open(&settings(&wrong, "p")).unwrap();
    let refused = storage.check().await.unwrap_err();
    assert!(matches!(refused, StorageError::Retryable { .. }), "{refused}");
    let shown = format!("{refused} {refused:?} {storage:?}");
    assert!(refused.to_string().contains("403") && !shown.contains("hunter2"), "{shown}");

    let missing = S3Settings { bucket: "no-such-bucket".into(), ..ground.server.clone() };
    let storage = Storage::open(&settings(&missing, "p")).unwrap();
    let refused = storage.check().await.unwrap_err();
    assert!(refused.to_string().contains("s3://no-such-bucket/p"), "{refused}");

    let away = S3Settings { endpoint: "http://127.0.0.1:9".into(), ..ground.server.clone() };
    let storage = Storage::open(&settings(&away, "p")).unwrap().claim("s3tests", &[]).unwrap();
    let bytes = content(1, SMALL);
    let refused = publish(&storage, &Owner::default(), lease(1, 1), "exports/a", &first(), &bytes).await;
    assert!(matches!(refused, Err(StorageError::Retryable { .. })), "{refused:?}");
}

#[tokio::test]
async fn people_get_urls_that_work() {
    let ground = bucket().await;
    let storage = &ground.storage;
    let base = format!("s3://{}/{}", ground.server.bucket, ground.prefix);
    assert_eq!(storage.display_url(storage.base_path()), format!("{base}/exports/"));
    assert_eq!(storage.local_path("exports/a.csv"), None);

    let path = "exports/2025/02/15/a%20b%2F😀_20250215.csv";
    let bytes = content(1, SMALL);
    let published = publish(storage, &Owner::default(), lease(1, 1), path, &first(), &bytes).await.unwrap();
    let Link::Url(url) = link(storage, &published).await else { panic!("a bucket has links") };
    assert!(url.query().unwrap().contains("X-Amz-Expires=900"), "15 minutes at most");
    assert!(followed(&url) == bytes);
    let other = Published { etag: Some("\"other\"".into()), ..published.clone() };
    assert_eq!(link(storage, &other).await, Link::Differs);
    ground.delete_raw(path).await;
    assert_eq!(link(storage, &published).await, Link::Missing);
}

async fn link(storage: &Storage, published: &Published) -> Link {
    let Published { path, bytes, etag, .. } = published;
    storage.link(path, *bytes, etag.as_deref(), Duration::from_secs(60 * 60)).await.unwrap()
}

/// What a URL leads to.
fn followed(url: &Url) -> Vec<u8> {
    let got = Command::new("curl").args(["-sS", "--fail", "--noproxy", "*", url.as_str()]).output().unwrap();
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    got.stdout
}

/// Makes sure of a bucket that keeps versions. All runs share it: the test server has room for few buckets.
fn versioned_bucket() -> S3Settings {
    let server = S3Settings { bucket: format!("{}-versions", s3().bucket), ..s3() };
    let S3Settings { endpoint, access_key_id, secret_access_key, bucket } = &server;
    let enable = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    for (rest, body) in [("", ""), ("?versioning=", enable)] {
        let sum: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        let made = Command::new("curl")
            .args(["-sS", "--fail-with-body", "--noproxy", "*", "-X", "PUT", "-d", body, "-H"])
            .arg(format!("x-amz-content-sha256: {sum}"))
            .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u"])
            .args([&format!("{access_key_id}:{secret_access_key}"), &format!("{endpoint}/{bucket}{rest}")])
            .output()
            .expect("curl");
        let said = String::from_utf8_lossy(&made.stdout);
        assert!(made.status.success() || said.contains("BucketAlready"), "{said}");
    }
    server
}

#[tokio::test]
async fn a_link_leads_to_the_version_that_was_looked_at() {
    let (server, prefix) = (versioned_bucket(), unique_prefix());
    let storage = Storage::open(&settings(&server, &prefix)).unwrap().claim("s3tests", &[]).unwrap();
    let (path, old, new) = ("exports/a.csv", content(1, SMALL), content(2, SMALL));
    let published = publish(&storage, &Owner::default(), lease(1, 1), path, &first(), &old).await.unwrap();
    let Link::Url(url) = link(&storage, &published).await else { panic!("a bucket has links") };
    let grant = over(&record(&published));
    publish(&storage, &Owner::default(), lease(1, 2), path, &grant, &new).await.unwrap();
    assert!(followed(&url) == old, "a newer generation came before the link was followed");
    assert_eq!(read(&storage, path).await.unwrap(), new);
}

/// A bucket in front of which the late PUT of a dead writer arrives right after the first PUT that it answers.
async fn late(server: &S3Settings, raw: AmazonS3, key: Path, bytes: bytes::Bytes) -> S3Settings {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let upstream = server.endpoint.strip_prefix("http://").unwrap().to_owned();
    let raw = Arc::new((raw, key, bytes, AtomicUsize::new(1)));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (upstream, raw) = (upstream.clone(), Arc::clone(&raw));
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) =
                    TcpStream::connect(upstream).await.unwrap().into_split();
                let requests = tokio::spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(size @ 1..) = from_client.read(&mut buffer).await {
                        let (store, key, bytes, left) = &*raw;
                        // The look at what is there comes after the PUT: the late one lands in between.
                        let one_less = |left: usize| left.checked_sub(1);
                        if buffer.starts_with(b"HEAD")
                            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
                        {
                            store.put(key, bytes.clone().into()).await.unwrap();
                        }
                        if to_server.write_all(&buffer[..size]).await.is_err() {
                            break;
                        }
                    }
                });
                let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                requests.abort();
            });
        }
    });
    S3Settings { endpoint, ..server.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_put_of_a_dead_writer_is_replaced_before_the_file_is_recorded() {
    let ground = bucket().await;
    let (path, same, stale) = ("exports/a.csv", content(1, SMALL), content(2, SMALL));
    let before =
        publish(&ground.storage, &Owner::default(), lease(1, 1), path, &first(), &same).await.unwrap();
    let server = late(&ground.server, ground.raw.clone(), ground.key(path), stale).await;
    let storage = Storage::open(&settings(&server, &ground.prefix)).unwrap().claim("s3tests", &[]).unwrap();
    // The same bytes again, so that the ETag which the late PUT names is there again.
    let leftover = Leftover { file: 1, lease: lease(1, 2), upload: None };
    let grant = WriteGrant { leftover: Some(leftover), ..over(&record(&before)) };
    let published = publish(&storage, &Owner::default(), lease(1, 3), path, &grant, &same).await.unwrap();
    assert!(ground.storage.is_there(&record(&published)).await.unwrap());
    assert_eq!(read(&ground.storage, path).await.unwrap(), same);
}

/// Opens an upload, and is dropped before it could record it.
#[derive(Default)]
struct Dropped {
    reached: tokio::sync::Notify,
}

#[async_trait]
impl Publisher for Dropped {
    async fn may_publish(&self) -> Result<(), Failed> {
        Ok(())
    }

    async fn record_upload(&self, _: &Upload) -> Result<(), Failed> {
        self.reached.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn an_upload_whose_owner_was_dropped_before_recording_it_is_aborted() {
    let ground = bucket().await;
    let owner = Dropped::default();
    let path = "exports/2025/02/15/ABC_20250215.csv".to_owned();
    let mut file = ground.storage().begin(&owner, lease(1, 1), path, &first()).await.unwrap();
    let bytes = content(1, LARGE);
    tokio::select! {
        written = write(&mut file, &bytes) => panic!("it cannot be written: {written:?}"),
        () = owner.reached.notified() => {}
    }
    drop(file);
    // By a task that nobody waits for: look until it is done.
    for _ in 0..600 {
        if ground.unfinished().await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the upload is still open");
}

#[tokio::test]
async fn an_upload_that_its_killed_worker_never_recorded_is_aborted_by_the_next_writer() {
    let ground = bucket().await;
    let path = "exports/2025/02/15/ABC_20250215.csv".to_owned();
    // The longer key has the path as its prefix and is nobody's business here.
    for name in [path.clone(), format!("{path}.gz")] {
        let key = Path::parse(format!("{}/{name}", ground.prefix)).unwrap();
        ground.raw.create_multipart(&key).await.unwrap();
    }
    let grant = WriteGrant { leftover: Some(left_without_upload()), ..first() };
    let owner = Owner::default();
    let mut file = ground.storage.begin(&owner, lease(1, 2), path, &grant).await.unwrap();
    assert_eq!(ground.unfinished().await, 1, "the longer key's is left");
    write(&mut file, &content(1, LARGE)).await.unwrap();
    assert_eq!(ground.unfinished().await, 2, "the next writer's own upload is open");
    file.publish().await.unwrap();
    assert_eq!(ground.unfinished().await, 1);
}

fn left_without_upload() -> Leftover {
    Leftover { file: 1, lease: lease(1, 1), upload: None }
}
