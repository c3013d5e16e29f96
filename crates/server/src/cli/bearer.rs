//! The token that client commands send: where it is looked for, and that nothing ever shows it.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::Args;
use outhaul_core::secret::Secret;
use reqwest::header::HeaderValue;

use super::failure::Failure;
use crate::config::Environment;

/// What it is called in the environment.
const VARIABLE: &str = "OUTHAUL_TOKEN";

/// Where the token is. Flags go before the environment.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BearerFlags {
    /// The token to send; else OUTHAUL_TOKEN. Other people on this machine can see flags: prefer
    /// --token-file or the variable.
    #[arg(long, value_name = "TOKEN", value_parser = secret, conflicts_with = "token_file")]
    token: Option<Secret>,
    /// A file that holds the token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl BearerFlags {
    /// The token, if there is one.
    pub(crate) fn find(&self) -> Result<Option<Bearer>, Failure> {
        self.find_in(&Environment::of_process())
    }

    fn find_in(&self, environment: &Environment) -> Result<Option<Bearer>, Failure> {
        let (token, from) = match (&self.token, &self.token_file, environment.get(VARIABLE)) {
            (Some(token), _, _) => (token.expose().to_owned(), "--token".to_owned()),
            (None, Some(file), _) => (super::input::text(file)?, file.display().to_string()),
            (None, None, Some(token)) => (token.to_owned(), VARIABLE.to_owned()),
            (None, None, None) => return Ok(None),
        };
        match Bearer::new(token.trim()) {
            Some(bearer) => Ok(Some(bearer)),
            None => {
                Err(Failure::new(format!("{from} does not hold a token: it must be one word of plain text")))
            }
        }
    }
}

fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

/// A token, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Bearer {
    token: Secret,
    header: HeaderValue,
}

impl Bearer {
    /// `None` for what no header can carry.
    pub(crate) fn new(token: &str) -> Option<Self> {
        let is_word = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| is_word)?;
        header.set_sensitive(true);
        Some(Self { token: Secret::new(token), header })
    }

    /// The value of `Authorization`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// A text without the token: something between us and the server may repeat what it was sent.
    pub(crate) fn hide(&self, text: &str) -> String {
        text.replace(self.token.expose(), "[token]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bearer: BearerFlags,
    }

    fn found(flags: &[&str], variable: &str) -> Result<Option<String>, String> {
        let line = Line::try_parse_from([&["x"], flags].concat()).map_err(|error| error.to_string())?;
        assert!(!format!("{line:?}").contains("hunter2"));
        let environment = Environment::from([(VARIABLE, variable)]);
        let found = line.bearer.find_in(&environment).map_err(|failure| failure.to_string())?;
        assert!(!format!("{found:?}").contains("hunter2"));
        Ok(found.map(|bearer| bearer.header().to_str().unwrap().to_owned()))
    }

    #[test]
    fn flags_go_before_the_environment_and_nothing_shows_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "hunter2.file\n").unwrap();
        let file = file.to_str().unwrap();
        let sent = |token: &str| Ok(Some(format!("Bearer {token}")));
        assert_eq!(found(&[], ""), Ok(None));
        assert_eq!(found(&[], " hunter2.env\n"), sent("hunter2.env"));
        assert_eq!(found(&["--token", "hunter2.flag"], "hunter2.env"), sent("hunter2.flag"));
        assert_eq!(found(&["--token-file", file], "hunter2.env"), sent("hunter2.file"));
        let both = found(&["--token", "hunter2", "--token-file", file], "").unwrap_err();
        assert!(both.contains("cannot be used with") && !both.contains("hunter2"), "{both}");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_and_not_repeated() {
        for token in ["hunter2 x", "hunter2\nx", "hünter2", " "] {
            let said = found(&["--token", token], "").unwrap_err();
            assert!(said.starts_with("--token does not hold a token") && !said.contains("nter2"), "{said}");
        }
        assert!(found(&["--token-file", "no/such/file"], "").unwrap_err().contains("no/such/file"));
    }
}
