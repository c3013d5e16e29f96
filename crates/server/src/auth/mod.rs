//! Who asks, and what they may do. A token is verified once per request and forgotten: what goes on from
//! here is a [`Caller`], and the one function that decides about it is [`may`].

mod caller;
mod claim;
mod extract;
mod issue;
mod jwk;
mod jwks;
mod keys;
mod problems;
mod rate;
mod recheck;
mod refusal;
mod rights;
mod settings;
#[cfg(test)]
mod tests;
mod token;
mod twice;
mod vouch;
mod vouched;

pub use self::caller::{Caller, Role, RoleNames, Roles};
pub use self::claim::ClaimPath;
pub(crate) use self::extract::names_this_machine;
pub use self::extract::{Anyone, Auth, Gate, PROBED, gate, is_open};
pub use self::issue::{IssueError, Wanted, issue};
pub use self::jwks::SetupError;
pub use self::rate::Rate;
pub use self::recheck::RecheckSettings;
pub use self::refusal::{Refusal, Why};
pub use self::rights::{Act, Owned, Verdict, may, visible};
pub use self::settings::{
    Algorithm, AuthSettings, ClaimNames, JwtSettings, Keys, Mode, NamedIdentity, named,
};
pub use self::token::Tokens;
pub use self::vouched::vouched;
