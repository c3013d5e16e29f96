//! `outhaul init`: writes a commented configuration to start from.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::failure::Failure;
use super::table::say;
use crate::config::DEFAULT_FILE;

/// What it writes: every setting with its default, commented out unless it must be chosen.
const TEMPLATE: &str = include_str!("init.toml");

/// Where to write.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The file to write.
    #[arg(default_value = DEFAULT_FILE, value_name = "FILE")]
    file: PathBuf,
    /// Overwrite a file that is there.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Init) -> Result<ExitCode, Failure> {
    let file = args.file.display();
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    // Create-only in one step: a file that appears meanwhile is not overwritten either.
    if args.force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let written =
        options.open(&args.file).and_then(|mut out| std::io::Write::write_all(&mut out, TEMPLATE.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(format!("{file} is there already; --force overwrites it"))
        }
        _ => Failure::new(format!("{file} cannot be written: {error}")),
    })?;
    say(format!("wrote {file}; edit it, then run `outhaul check` and `outhaul serve`"));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment, Load};

    fn parse(text: &str) -> Config {
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        Config::parse(text, std::path::Path::new("/srv"), &load).unwrap()
    }

    #[test]
    fn the_template_is_a_configuration_with_the_defaults() {
        let (written, default) = (parse(TEMPLATE), parse(""));
        assert_eq!(format!("{written:?}"), format!("{default:?}"));
    }

    #[test]
    fn everything_that_is_commented_out_is_a_setting() {
        // `# key = value` and `# [section]` are settings, `## …` and `# text` are remarks.
        let is_setting = |line: &str| {
            let line = line.trim_start();
            line.starts_with('[') || line.split_once(" = ").is_some_and(|(name, _)| !name.contains(' '))
        };
        let uncommented: Vec<&str> = TEMPLATE
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "hunter2").unwrap();
        let mut text = uncommented.join("\n").replace("/run/secrets/outhaul-db", secret.to_str().unwrap());
        for name in ["/run/secrets/s3", "/run/secrets/outhaul-mq", "/run/secrets/outhaul-recheck"] {
            text = text.replace(name, secret.to_str().unwrap());
        }
        for (name, kind) in [
            ("/etc/outhaul/mq-ca.pem", "CERTIFICATE"),
            ("/etc/outhaul/mq.pem", "CERTIFICATE"),
            ("/run/secrets/mq-key.pem", "PRIVATE KEY"),
        ] {
            let file = folder.path().join(name.rsplit('/').next().unwrap());
            std::fs::write(&file, format!("-----BEGIN {kind}-----\n-----END {kind}-----\n")).unwrap();
            text = text.replace(name, file.to_str().unwrap());
        }
        let environment =
            Environment::from([("WAREHOUSE_PASSWORD", "hunter2"), ("MAILER_SECRET", "hunter2")]);
        let load = Load { file: None, insecure: false, environment };
        let config = Config::parse(&text, folder.path(), &load).unwrap();
        assert!(config.export.datasets["positions"].default);
        assert_eq!(config.export.sources["warehouse"].max_concurrent, 4);
        assert!(config.broker.unwrap().settings.tls.unwrap().client.is_some());
    }

    #[test]
    fn a_file_that_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("outhaul.toml");
        std::fs::write(&file, "mine").unwrap();
        assert!(run(&Init { file: file.clone(), force: false }).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        assert!(run(&Init { file: file.clone(), force: true }).is_ok());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), TEMPLATE);
    }
}
