//! Warns of PostgreSQL on another machine if the server's certificate is not verified. The driver's default
//! (`sslmode=prefer`) accepts any server, also without TLS, and sends the password if the server asks for it.

use std::net::IpAddr;
use std::str::FromStr as _;

use outhaul_core::secret::Secret;
use outhaul_export::settings::SourceUrl;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::Warning;
use crate::config::Config;

/// The engine's database and every source that are on another machine and not verified.
pub(super) fn of(config: &Config) -> impl Iterator<Item = Warning> {
    let sources = config.export.sources.iter().filter_map(|(name, source)| match &source.url {
        SourceUrl::Postgres(url) => Some((format!("source {name}"), url)),
        SourceUrl::Sqlite(_) => None,
    });
    let all = std::iter::once(("database".to_owned(), &config.database.url)).chain(sources);
    all.filter_map(|(what, url)| Some(Warning { what, text: unverified(url)? }))
}

/// The warning about the server at this URL; `None`: its certificate is verified, or it is on this machine.
fn unverified(url: &Secret) -> Option<String> {
    if !url.expose().starts_with("postgres") {
        return None;
    }
    let options = PgConnectOptions::from_str(url.expose()).ok()?;
    let host = options.get_host();
    let is_here = options.get_socket().is_some() || is_this_machine(host);
    if is_here || matches!(options.get_ssl_mode(), PgSslMode::VerifyFull) {
        return None;
    }
    Some(format!(
        "it is on another machine ({host}), and nothing checks that the server there is the right one, which \
         may be given the password; add ?sslmode=verify-full to its URL (and &sslrootcert=FILE where this \
         machine does not trust its certificate)"
    ))
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    // A path is the folder of a Unix socket.
    host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Load};

    fn warned(url: &str) -> bool {
        unverified(&Secret::new(url)).is_some()
    }

    #[test]
    fn another_machine_must_be_verified() {
        for url in [
            "postgres://u:hunter2@db/x",
            "postgresql://u@10.0.0.7:5432/x",
            "postgres://u@db/x?sslmode=disable",
            "postgres://u@db/x?sslmode=prefer",
            "postgres://u@db/x?sslmode=require",
            "postgres://u@db/x?sslmode=verify-ca",
        ] {
            let text = unverified(&Secret::new(url)).expect(url);
            assert!(text.contains("sslmode=verify-full") && !text.contains("hunter2"), "{text}");
        }
        for url in [
            "postgres://u@db/x?sslmode=verify-full",
            "postgres://u@localhost/x",
            "postgres://u@127.0.0.1:5433/x?sslmode=disable",
            "postgres://u@[::1]/x",
            "postgres:///x?host=/var/run/postgresql",
            "sqlite:/data/outhaul.db",
        ] {
            assert!(!warned(url), "{url}");
        }
    }

    #[test]
    fn the_database_and_every_source_are_looked_at() {
        let text = "[database]\nurl = \"postgres://u@db/x\"\n\
                    [sources.near]\nurl = \"postgres://u@localhost/x\"\n\
                    [sources.far]\nurl = \"postgres://u@warehouse/x\"\n\
                    [sources.file]\nurl = \"sqlite:x.db\"\n";
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        let config = Config::parse(text, std::path::Path::new("/"), &load).unwrap();
        let found: Vec<String> =
            super::super::of(&config, None).into_iter().map(|warning| warning.what).collect();
        assert_eq!(found, ["database", "source far"]);
    }
}
