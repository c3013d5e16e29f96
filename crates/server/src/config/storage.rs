//! Where files go: a folder, or an object store with the options its library knows.

use std::collections::BTreeMap;
use std::path::Path;

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use outhaul_core::secret::Secret;
use outhaul_export::settings::{StorageSettings, StorageTarget};
use url::Url;

use super::env::Environment;
use super::problem::Problems;
use super::raw;
use super::secrets::{Given, Secrets};

pub(super) fn judge(
    raw: raw::Storage,
    data_dir: &Path,
    secrets: &Secrets<'_>,
    problems: &mut Problems,
) -> StorageSettings {
    let id = Given { text: raw.access_key_id, file: raw.access_key_id_file, env: raw.access_key_id_env };
    let key = Given {
        text: raw.secret_access_key,
        file: raw.secret_access_key_file,
        env: raw.secret_access_key_env,
    };
    let mut options = BTreeMap::new();
    let mut set = |name: &str, value: Option<Secret>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    };
    set("aws_access_key_id", secrets.find("storage.access_key_id", id, problems));
    set("aws_secret_access_key", secrets.find("storage.secret_access_key", key, problems));
    set("aws_endpoint", raw.endpoint.map(Secret::new));
    set("aws_region", raw.region.map(Secret::new));
    set("aws_allow_http", raw.allow_http.map(|allow| Secret::new(allow.to_string())));

    let target = match raw.url {
        None => StorageTarget::Local(data_dir.join("files")),
        Some(url) => match target(&url, secrets, options) {
            Ok(target) => target,
            Err(message) => {
                problems.add("storage.url", message);
                StorageTarget::Local(data_dir.join("files"))
            }
        },
    };
    let base_path = base_path(&raw.base_path).unwrap_or_else(|message| {
        problems.add("storage.base_path", message);
        String::new()
    });
    StorageSettings { target, base_path }
}

fn target(
    url: &str,
    secrets: &Secrets<'_>,
    mut options: BTreeMap<String, Secret>,
) -> Result<StorageTarget, String> {
    let right = "write s3://bucket, gs://bucket, az://container or file:/path";
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let prefix = match scheme {
        "file" => {
            let path = &url["file:".len()..];
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err("names no folder; write file:/path".into());
            }
            return Ok(StorageTarget::Local(secrets.folder.join(path)));
        }
        "s3" => "AWS_",
        "gs" => "GOOGLE_",
        "az" => "AZURE_",
        _ => return Err(format!("is not a storage that is known; {right}")),
    };
    let parsed = Url::parse(url).map_err(|error| format!("is not a URL ({error}); {right}"))?;
    if parsed.host_str().is_none_or(str::is_empty) {
        return Err(format!("names no bucket; {right}"));
    }
    if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() || parsed.password().is_some() {
        return Err(format!(
            "must hold nothing but the bucket (folders belong in storage.base_path); {right}"
        ));
    }
    // The usual environment of the cloud's own tools; what the file says goes first.
    for (name, value) in cloud(secrets.environment, prefix) {
        options.entry(name).or_insert(value);
    }
    Ok(StorageTarget::Object { url: url.trim_end_matches('/').to_owned(), options })
}

/// The variables of a cloud that its storage library knows; others are for other tools.
fn cloud<'a>(environment: &'a Environment, prefix: &'a str) -> impl Iterator<Item = (String, Secret)> + 'a {
    let known = move |name: &str| match prefix {
        "AWS_" => name.parse::<AmazonS3ConfigKey>().is_ok(),
        "GOOGLE_" => name.parse::<GoogleConfigKey>().is_ok(),
        _ => name.parse::<AzureConfigKey>().is_ok(),
    };
    let given = environment.starting_with(prefix).filter(|(_, value)| !value.is_empty());
    let named = given.map(|(name, value)| (name.to_lowercase(), Secret::new(value)));
    named.filter(move |(name, _)| known(name))
}

/// Ends with `/` or is empty, and never leads out of the storage or into its staging area.
fn base_path(text: &str) -> Result<String, String> {
    let path = text.trim().trim_matches('/');
    if path.is_empty() {
        return Ok(String::new());
    }
    let wrong = |part: &str| {
        part.is_empty()
            || part.starts_with('.')
            || part.contains(['\\', '%'])
            || part.chars().any(char::is_control)
    };
    if path.split('/').any(wrong) {
        return Err(
            "must be plain folder names, such as \"exports/\"; none may be empty or begin with a dot".into(),
        );
    }
    Ok(format!("{path}/"))
}
