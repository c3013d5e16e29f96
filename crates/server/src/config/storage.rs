//! Where files go: a folder, or an object store with the options its library knows.

use std::collections::BTreeMap;
use std::path::Path;

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use outhaul_core::secret::Secret;
use outhaul_export::base_path;
use outhaul_export::settings::{FileAccess, StorageSettings, StorageTarget};
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
    only_for_s3(
        &raw.url,
        [
            ("storage.endpoint", raw.endpoint.is_some()),
            ("storage.region", raw.region.is_some()),
            ("storage.allow_http", raw.allow_http.is_some()),
            ("storage.access_key_id", given(&id)),
            ("storage.secret_access_key", given(&key)),
        ],
        problems,
    );
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
    let base_path = base_path::normal(&raw.base_path).unwrap_or_else(|message| {
        problems.add("storage.base_path", message);
        String::new()
    });
    let file_access = file_access(raw.file_access.as_deref(), &target).unwrap_or_else(|message| {
        problems.add("storage.file_access", message);
        FileAccess::default()
    });
    StorageSettings { target, base_path, file_access }
}

/// `storage.file_access`, which only a `file:` storage may have.
fn file_access(text: Option<&str>, target: &StorageTarget) -> Result<FileAccess, String> {
    if text.is_some() && !matches!(target, StorageTarget::Local(_)) {
        return Err("is only for folders; leave it out, or change storage.url".into());
    }
    match text {
        None | Some("owner") => Ok(FileAccess::Owner),
        Some("group") => Ok(FileAccess::Group),
        Some("umask") => Ok(FileAccess::Umask),
        Some(_) => Err("must be \"owner\", \"group\" or \"umask\"".into()),
    }
}

fn given(secret: &Given) -> bool {
    secret.text.is_some() || secret.file.is_some() || secret.env.is_some()
}

/// The other clouds' libraries know no such settings: theirs come from the environment.
fn only_for_s3<const N: usize>(url: &Option<String>, settings: [(&str, bool); N], problems: &mut Problems) {
    if url.as_deref().is_some_and(|url| url.starts_with("gs:") || url.starts_with("az:")) {
        for (name, _) in settings.into_iter().filter(|(_, given)| *given) {
            problems.add(name, "is only for s3://; leave it out, or change storage.url");
        }
    }
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
    // The usual environment of the cloud's own tools; what the file says goes first, by any name.
    let given: Vec<AmazonS3ConfigKey> = options.keys().filter_map(|name| name.parse().ok()).collect();
    let settled = |name: &str| name.parse().is_ok_and(|key| is_settled(&key, &given));
    let more = cloud(secrets.environment, prefix).filter(|(name, _)| prefix != "AWS_" || !settled(name));
    options.extend(more);
    Ok(StorageTarget::Object { url: url.trim_end_matches('/').to_owned(), options })
}

/// Whether the file's settings leave an S3 option of the environment no say. One key has several names,
/// and one matter several keys.
fn is_settled(key: &AmazonS3ConfigKey, given: &[AmazonS3ConfigKey]) -> bool {
    use AmazonS3ConfigKey as K;
    match key {
        K::Endpoint | K::S3Endpoint => given.contains(&K::Endpoint),
        K::Region | K::DefaultRegion => given.contains(&K::Region),
        // Half of one identity and half of another is none.
        K::AccessKeyId
        | K::SecretAccessKey
        | K::Token
        | K::ContainerCredentialsRelativeUri
        | K::ContainerCredentialsFullUri
        | K::ContainerAuthorizationTokenFile
        | K::WebIdentityTokenFile
        | K::RoleArn
        | K::RoleSessionName
        | K::StsEndpoint
        | K::SkipSignature => given.contains(&K::AccessKeyId) || given.contains(&K::SecretAccessKey),
        other => given.contains(other),
    }
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

#[cfg(test)]
mod tests {
    use super::super::{Config, Load};
    use super::*;

    fn load<const N: usize>(text: &str, variables: [(&str, &str); N]) -> Result<Config, Problems> {
        let load = Load { file: None, insecure: false, environment: Environment::from(variables) };
        Config::parse(text, Path::new("/etc/outhaul"), &load)
    }

    /// The options of an S3 storage, as the library will read them.
    fn options<const N: usize>(text: &str, variables: [(&str, &str); N]) -> BTreeMap<String, String> {
        let config = load(text, variables).expect("sound");
        let StorageTarget::Object { options, .. } = config.export.storage.target else {
            panic!("not an object store")
        };
        options.into_iter().map(|(name, value)| (name, value.expose().to_owned())).collect()
    }

    const CREDENTIALS: [(&str, &str); 11] = [
        ("AWS_ACCESS_KEY_ID", "other"),
        ("AWS_SECRET_ACCESS_KEY", "other"),
        ("AWS_SESSION_TOKEN", "other"),
        ("AWS_TOKEN", "other"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/other"),
        ("AWS_ROLE_ARN", "other"),
        ("AWS_ROLE_SESSION_NAME", "other"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/other"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://other"),
        ("AWS_SKIP_SIGNATURE", "true"),
        ("AWS_PROFILE", "other"),
    ];

    #[test]
    fn the_files_endpoint_and_region_win_over_every_spelling_of_the_environment() {
        let text =
            "[storage]\nurl = \"s3://b\"\nendpoint = \"https://mine\"\nregion = \"here\"\nallow_http = false";
        let variables = [
            ("AWS_ENDPOINT", "https://other"),
            ("AWS_ENDPOINT_URL", "https://other"),
            ("AWS_ENDPOINT_URL_S3", "https://other"),
            ("AWS_REGION", "there"),
            ("AWS_DEFAULT_REGION", "there"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REQUEST_PAYER", "true"),
        ];
        let expected = [
            ("aws_allow_http", "false"),
            ("aws_endpoint", "https://mine"),
            ("aws_region", "here"),
            ("aws_request_payer", "true"),
        ];
        assert_eq!(options(text, variables), expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        let free = options("[storage]\nurl = \"s3://b\"", variables);
        assert_eq!(free["aws_endpoint_url_s3"], "https://other", "where the file is silent");
    }

    #[test]
    fn the_files_keys_are_never_mixed_with_an_identity_of_the_environment() {
        let text = "[storage]\nurl = \"s3://b\"\naccess_key_id = \"mine\"\nsecret_access_key = \"mine\"";
        let found = options(text, CREDENTIALS);
        assert!(found.values().all(|value| value == "mine") && found.len() == 2, "{found:?}");
        // All of them but the profile, which the library does not know.
        assert_eq!(options("[storage]\nurl = \"s3://b\"", CREDENTIALS).len(), CREDENTIALS.len() - 1);
    }

    #[test]
    fn settings_of_s3_are_refused_elsewhere() {
        for url in ["gs://b", "az://c"] {
            let text = format!(
                "[storage]\nurl = \"{url}\"\nendpoint = \"https://x\"\nregion = \"x\"\nallow_http = true\n\
                 access_key_id = \"x\"\nsecret_access_key = \"x\""
            );
            let problems = load(&text, []).expect_err("must be refused");
            let mut found: Vec<String> = problems.iter().map(ToString::to_string).collect();
            found.sort();
            let names = ["access_key_id", "allow_http", "endpoint", "region", "secret_access_key"];
            let expected = names.map(|name| {
                format!("storage.{name}: is only for s3://; leave it out, or change storage.url")
            });
            assert_eq!(found, expected);
            assert!(load(&format!("[storage]\nurl = \"{url}\""), CREDENTIALS).is_ok());
        }
    }
}
