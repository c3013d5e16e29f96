//! A look at the test bucket past Outhaul: what is there, and taking something away.

use std::process::Command;

use outhaul_testkit::servers;

/// Keys of all objects below a prefix, in order. Pages are followed, so that nothing is overlooked.
pub fn objects_below(prefix: &str) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    loop {
        // In order and encoded whole: curl signs a query as it stands.
        let after = keys.last().map(|key| format!("&start-after={}", encode(key, ""))).unwrap_or_default();
        let prefix = encode(&format!("{prefix}/"), "");
        let text = call("GET", &format!("?list-type=2&max-keys=1000&prefix={prefix}{after}"));
        assert!(text.contains("ListBucketResult"), "the listing was answered: {text}");
        keys.extend(text.split("<Key>").skip(1).filter_map(|rest| rest.split('<').next()).map(str::to_owned));
        if !text.contains("<IsTruncated>true") {
            return keys;
        }
    }
}

/// Removes an object.
pub fn remove(key: &str) {
    call("DELETE", &format!("/{}", encode(key, "/")));
}

/// Calls the test bucket; insists on success.
pub fn call(method: &str, rest: &str) -> String {
    let s3 = servers::s3();
    let output = Command::new("curl")
        .args([
            "-sS",
            "--fail-with-body",
            "--noproxy",
            "*",
            "--aws-sigv4",
            "aws:amz:us-east-1:s3",
            "-X",
            method,
            "-u",
        ])
        .arg(format!("{}:{}", s3.access_key_id, s3.secret_access_key))
        .arg(format!("{}/{}{rest}", s3.endpoint, s3.bucket))
        .output()
        .expect("run curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{method} {rest}: {text}");
    text
}

fn encode(key: &str, plain: &str) -> String {
    key.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-._".contains(c) || plain.contains(c) {
                c.to_string()
            } else {
                escape(c)
            }
        })
        .collect()
}

fn escape(c: char) -> String {
    c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")).collect()
}
