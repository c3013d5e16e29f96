//! From a URL and options to a bucket. For S3 the options are all there is (the configuration adds the
//! environment to them by its own rule); credentials never go into a URL or an error.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpClient, HttpConnector as _, ReqwestConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::signer::Signer;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use outhaul_core::secret::Secret;

use super::super::budget;
use super::{Objects, Service, StorageError, key};

type Options = BTreeMap<String, Secret>;

impl Objects {
    pub(in super::super) fn open(url: &str, options: &Options) -> Result<Self, StorageError> {
        let place = Place::parse(url)?;
        check_http(options)?;
        match place.service {
            Service::S3 => {
                let options_read = read(options, AmazonS3ConfigKey::from_str)?;
                let client = client(&options_read).map_err(|error| refused(url, options, &error))?;
                // Not `from_env`: an endpoint there would go before the one that is given.
                let built = options_read
                    .into_iter()
                    .fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value))
                    .with_bucket_name(&place.bucket)
                    .with_conditional_put(S3ConditionalPut::ETagMatch)
                    .with_retry(retry())
                    .build();
                let built = built.map_err(|error| refused(url, options, &error))?;
                Ok(Objects { client: Some(client), ..place.with(built) })
            }
            Service::Gcs => {
                let built = read(options, GoogleConfigKey::from_str)?
                    .into_iter()
                    .fold(GoogleCloudStorageBuilder::from_env(), |builder, (key, value)| {
                        builder.with_config(key, value)
                    })
                    .with_bucket_name(&place.bucket)
                    .with_retry(retry())
                    .build();
                Ok(place.with(built.map_err(|error| refused(url, options, &error))?))
            }
            Service::Azure => {
                let built = read(options, AzureConfigKey::from_str)?
                    .into_iter()
                    .fold(MicrosoftAzureBuilder::from_env(), |builder, (key, value)| {
                        builder.with_config(key, value)
                    })
                    .with_container_name(&place.bucket)
                    .with_retry(retry())
                    .build();
                Ok(place.with(built.map_err(|error| refused(url, options, &error))?))
            }
        }
    }
}

/// A client with the same certificates, proxy and timeouts as the bucket's own.
fn client(options: &[(AmazonS3ConfigKey, String)]) -> object_store::Result<HttpClient> {
    let client = options.iter().fold(ClientOptions::new(), |client, (key, value)| match key {
        AmazonS3ConfigKey::Client(key) => client.with_config(*key, value),
        _ => client,
    });
    ReqwestConnector::default().connect(&client)
}

/// Few and short: a failed attempt is tried again by the engine, with its own backoff.
fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 3,
        retry_timeout: Duration::from_secs(30),
    }
}

struct Place {
    service: Service,
    bucket: String,
    prefix: String,
    url: String,
}

impl Place {
    fn parse(url: &str) -> Result<Self, StorageError> {
        // The URL is not repeated: it may hold what it must not.
        let unusable = || {
            StorageError::fatal(
                "storage.url cannot be used: it must be s3://bucket, gs://bucket or az://container, \
                 may add /a/prefix, and holds no user, password or query (give those as options)",
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(unusable)?;
        let service = match scheme {
            "s3" => Service::S3,
            "gs" => Service::Gcs,
            "az" => Service::Azure,
            _ => return Err(unusable()),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let sound = !bucket.is_empty()
            && bucket.bytes().all(plain)
            && !prefix.contains(['?', '#'])
            && (prefix.is_empty() || key("", prefix).is_ok());
        if !sound {
            return Err(unusable());
        }
        let slash = if prefix.is_empty() { "" } else { "/" };
        Ok(Self {
            service,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            url: format!("{scheme}://{bucket}{slash}{prefix}"),
        })
    }

    fn with<S: ObjectStore + MultipartStore + Signer>(self, store: S) -> Objects {
        let store = Arc::new(store);
        Objects {
            store: Arc::clone(&store) as Arc<dyn ObjectStore>,
            multipart: Arc::clone(&store) as Arc<dyn MultipartStore>,
            signer: store,
            client: None,
            reserve: budget::reserve(),
            service: self.service,
            prefix: self.prefix,
            url: self.url,
        }
    }
}

/// Options by their names; an unknown one is refused, not dropped.
fn read<K>(
    options: &Options,
    parse: impl Fn(&str) -> Result<K, object_store::Error>,
) -> Result<Vec<(K, String)>, StorageError> {
    let known = options.iter().map(|(name, value)| {
        let key = parse(&name.to_ascii_lowercase())
            .map_err(|_| StorageError::fatal(format!("storage: there is no option `{name}`")))?;
        Ok((key, value.expose().to_owned()))
    });
    known.collect()
}

/// Says at once what would otherwise fail at the first request.
fn check_http(options: &Options) -> Result<(), StorageError> {
    let allowed = options
        .iter()
        .any(|(name, value)| name.ends_with("allow_http") && value.expose().eq_ignore_ascii_case("true"));
    let plain = |(name, value): (&String, &Secret)| {
        name.contains("endpoint") && value.expose().to_ascii_lowercase().starts_with("http://")
    };
    if !allowed && options.iter().any(plain) {
        return Err(StorageError::fatal(
            "storage: the endpoint is http://: set allow_http = true if that is meant",
        ));
    }
    Ok(())
}

/// Why the options were refused, with every value that may be secret taken out.
fn refused(url: &str, options: &Options, error: &object_store::Error) -> StorageError {
    let harmless = |name: &str| {
        ["endpoint", "region", "bucket", "allow", "timeout"].iter().any(|word| name.contains(word))
    };
    let mut why = error.to_string();
    for (_, value) in options.iter().filter(|(name, value)| !harmless(name) && !value.expose().is_empty()) {
        why = why.replace(value.expose(), "[secret]");
    }
    StorageError::fatal(format!("storage {url}: the options were refused: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect()
    }

    fn error(url: &str, pairs: &[(&str, &str)]) -> String {
        Objects::open(url, &options(pairs)).err().expect("must be refused").to_string()
    }

    #[test]
    fn urls_name_a_bucket_and_perhaps_a_prefix() {
        for (url, bucket, prefix, shown) in [
            ("s3://b", "b", "", "s3://b"),
            ("s3://b/", "b", "", "s3://b"),
            ("gs://my-b.x/p/q/", "my-b.x", "p/q", "gs://my-b.x/p/q"),
            ("az://c/a b%20", "c", "a b%20", "az://c/a b%20"),
        ] {
            let place = Place::parse(url).unwrap();
            assert_eq!((&*place.bucket, &*place.prefix, &*place.url), (bucket, prefix, shown));
        }
    }

    #[test]
    fn other_urls_are_refused_and_not_repeated() {
        for url in [
            "",
            "b",
            "http://b",
            "s3://",
            "s3:///p",
            "s3://user:hunter2@b",
            "s3://b?key=hunter2",
            "s3://b/../c",
            "s3://b//c",
            "s3://b/p?hunter2",
        ] {
            let text = error(url, &[]);
            assert!(text.contains("storage.url") && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn options_are_known_or_refused_without_their_values() {
        let text = error("s3://b", &[("aws_acess_key_id", "hunter2")]);
        assert!(text.contains("aws_acess_key_id") && !text.contains("hunter2"), "{text}");
        let text = error("s3://b", &[("endpoint", "http://127.0.0.1:1")]);
        assert!(text.contains("allow_http"), "{text}");
        let text = error("gs://b", &[("service_account_key", "{\"hunter2\": 1}")]);
        assert!(!text.contains("hunter2"), "{text}");
        let text = error("s3://b", &[("aws_skip_signature", "hunter2")]);
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn every_service_opens() {
        let key = [("access_key_id", "AK"), ("secret_access_key", "SK"), ("region", "us-east-1")];
        assert_eq!(Objects::open("s3://b/p", &options(&key)).unwrap().service, Service::S3);
        let key = [("google_skip_signature", "true")];
        assert_eq!(Objects::open("gs://b", &options(&key)).unwrap().service, Service::Gcs);
        let key = [("account_name", "a"), ("account_key", "c2VjcmV0")];
        assert_eq!(Objects::open("az://c", &options(&key)).unwrap().service, Service::Azure);
    }
}
