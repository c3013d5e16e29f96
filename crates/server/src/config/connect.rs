//! URLs of databases. No message ever repeats a URL: it may hold a password.

use std::path::{Path, PathBuf};

use outhaul_core::secret::Secret;
use url::Url;

/// A database by its URL.
pub(super) enum Connect {
    /// `postgres://…`, with its password.
    Postgres(Secret),
    /// A SQLite file.
    Sqlite(PathBuf),
}

/// Reads a database URL; the error says what would be right.
pub(super) fn database_url(
    url: &Secret,
    password: Option<&Secret>,
    folder: &Path,
) -> Result<Connect, String> {
    let text = url.expose().trim();
    match text.split_once(':').map_or("", |(scheme, _)| scheme) {
        "sqlite" if password.is_some() => Err("SQLite takes no password".into()),
        "sqlite" => sqlite_path(&text["sqlite:".len()..], folder).map(Connect::Sqlite),
        "postgres" | "postgresql" => postgres(text, password).map(Connect::Postgres),
        "mysql" | "mariadb" => Err("mysql is not available yet; use postgres://… or sqlite:path".into()),
        _ => Err("must begin with postgres:// or sqlite:".into()),
    }
}

fn postgres(text: &str, password: Option<&Secret>) -> Result<Secret, String> {
    let mut url = Url::parse(text)
        .map_err(|error| format!("is not a URL ({error}); write postgres://user:password@host/database"))?;
    // Behind a local socket the host is empty or given as a parameter.
    let has_host = url.host_str().is_some_and(|host| !host.is_empty()) || text.contains("host=");
    if !has_host {
        return Err("names no host; write postgres://user:password@host/database".into());
    }
    if let Some(password) = password {
        if url.password().is_some() {
            return Err("holds a password, and another is given beside it; keep one".into());
        }
        url.set_password(Some(password.expose()))
            .map_err(|()| "cannot take a password; write postgres://user@host/database".to_owned())?;
    }
    Ok(Secret::new(url.as_str()))
}

fn sqlite_path(path: &str, folder: &Path) -> Result<PathBuf, String> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.contains(":memory:") {
        return Err("must name a file, such as sqlite:data/outhaul.db".into());
    }
    if path.contains('?') {
        return Err("takes no parameters; write sqlite:path".into());
    }
    Ok(folder.join(path))
}
