//! Secrets in their three forms: the text itself, `*_file` (a file that holds it), `*_env` (a variable that does).

use std::path::{Path, PathBuf};

use outhaul_core::secret::Secret;

use super::env::Environment;
use super::problem::Problems;
use super::raw::Hidden;

/// One secret as it was given.
pub(super) struct Given {
    pub(super) text: Option<Hidden>,
    pub(super) file: Option<PathBuf>,
    pub(super) env: Option<String>,
}

/// Where secrets are looked up.
pub(super) struct Secrets<'a> {
    pub(super) folder: &'a Path,
    pub(super) environment: &'a Environment,
}

impl Secrets<'_> {
    /// The secret at `path`, or `None` if it was not given (or a problem was noted).
    pub(super) fn find(&self, path: &str, given: Given, problems: &mut Problems) -> Option<Secret> {
        match (given.text, given.file, given.env) {
            (None, None, None) => None,
            (Some(Hidden(secret)), None, None) => Some(secret),
            (None, Some(file), None) => {
                let place = format!("{path}_file");
                match std::fs::read_to_string(self.folder.join(&file)) {
                    Ok(text) if text.trim().is_empty() => {
                        problems.add(place, format!("{} is empty", file.display()));
                        None
                    }
                    Ok(text) => Some(Secret::new(text.trim_end_matches(['\r', '\n']))),
                    Err(error) => {
                        problems.add(place, format!("{} cannot be read: {error}", file.display()));
                        None
                    }
                }
            }
            (None, None, Some(name)) => {
                let found = self.environment.get(&name).map(Secret::new);
                if found.is_none() {
                    problems
                        .add(format!("{path}_env"), format!("the environment variable {name} is not set"));
                }
                found
            }
            _ => {
                let name = path.rsplit('.').next().unwrap_or(path);
                problems.add(path, format!("give only one of {name}, {name}_file and {name}_env"));
                None
            }
        }
    }
}
