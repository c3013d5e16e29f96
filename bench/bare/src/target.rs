//! Where a bare loop puts its chunks.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use tokio::task::JoinSet;

type Problem = Box<dyn Error + Send + Sync>;

pub(crate) enum Target {
    Folder { root: PathBuf, sync: bool },
    S3 { store: Arc<AmazonS3>, most: usize, puts: JoinSet<Result<(), object_store::Error>> },
}

impl Target {
    pub(crate) fn open(words: &str, puts: usize) -> Result<Self, Problem> {
        match words.split_once(':') {
            Some(("plain", root)) => Ok(Self::Folder { root: root.into(), sync: false }),
            Some(("fsync", root)) => Ok(Self::Folder { root: root.into(), sync: true }),
            Some(("s3", _)) => {
                let variable = |name: &str| std::env::var(format!("OUTHAUL_TEST_S3_{name}"));
                let store = AmazonS3Builder::new()
                    .with_endpoint(variable("ENDPOINT")?)
                    .with_bucket_name(variable("BUCKET")?)
                    .with_access_key_id(variable("ACCESS_KEY_ID")?)
                    .with_secret_access_key(variable("SECRET_ACCESS_KEY")?)
                    .with_region("us-east-1")
                    .with_allow_http(true)
                    .build()?;
                Ok(Self::S3 { store: Arc::new(store), most: puts.max(1), puts: JoinSet::new() })
            }
            _ => Err(format!("{words} is no target: plain:FOLDER, fsync:FOLDER or s3:").into()),
        }
    }

    pub(crate) async fn store(&mut self, folder: &str, name: &str, rows: Bytes) -> Result<(), Problem> {
        match self {
            Self::Folder { root, sync } => {
                let folder = root.join(folder);
                fs::create_dir_all(&folder)?;
                let mut file = File::create(folder.join(name))?;
                file.write_all(&rows)?;
                if *sync {
                    file.sync_all()?;
                    File::open(&folder)?.sync_all()?;
                }
            }
            Self::S3 { store, most, puts } => {
                while puts.len() >= *most {
                    if let Some(done) = puts.join_next().await {
                        done??;
                    }
                }
                let (store, path) = (store.clone(), Path::from(format!("bare/{folder}/{name}")));
                puts.spawn(async move { store.put(&path, PutPayload::from(rows)).await.map(drop) });
            }
        }
        Ok(())
    }

    pub(crate) async fn finish(self) -> Result<(), Problem> {
        if let Self::S3 { mut puts, .. } = self {
            while let Some(done) = puts.join_next().await {
                done??;
            }
        }
        Ok(())
    }
}
