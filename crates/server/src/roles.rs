//! What a process does: serve the API, run chunks, look after what is stored.

use std::fmt;
use std::str::FromStr;

/// The duties of a process; all of them unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Answers HTTP.
    pub api: bool,
    /// Runs chunks.
    pub worker: bool,
    /// Prunes and repairs.
    pub scheduler: bool,
}

impl Roles {
    /// Everything in one process.
    pub const ALL: Self = Self { api: true, worker: true, scheduler: true };

    fn named(self) -> [(&'static str, bool); 3] {
        [("api", self.api), ("worker", self.worker), ("scheduler", self.scheduler)]
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles = Self { api: false, worker: false, scheduler: false };
        for word in text.split(',').map(str::trim) {
            match word {
                "api" => roles.api = true,
                "worker" => roles.worker = true,
                "scheduler" => roles.scheduler = true,
                _ => return Err(format!("`{word}` is not a role: name one or more of api,worker,scheduler")),
            }
        }
        Ok(roles)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.named().into_iter().filter(|(_, has)| *has).map(|(name, _)| name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints_and_refuses_the_rest() {
        assert_eq!("api,worker,scheduler".parse(), Ok(Roles::ALL));
        assert_eq!(Roles::ALL.to_string(), "api,worker,scheduler");
        assert_eq!("worker".parse::<Roles>().map(|roles| roles.to_string()), Ok("worker".into()));
        for wrong in ["", "api,", "workers", "api worker"] {
            assert!(wrong.parse::<Roles>().is_err(), "{wrong}");
        }
    }
}
