//! `outhaul token`: a token for development, as a server with this configuration accepts it. Only the token
//! goes to stdout.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use outhaul_core::{clock, duration};
use serde_json::{Map, Value};

use super::ConfigFlag;
use super::failure::{Failure, with_causes};
use super::table::say;
use crate::auth::{AuthSettings, IssueError, Keys, Refusal, Role, Tokens, Wanted, issue};
use crate::config::Environment;

/// The longest that a token for development is good.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

const EXAMPLES: &str = "\
Examples:
  export OUTHAUL_TOKEN=$(outhaul token --subject ann --role submitter --claim county=Kent)
  outhaul token --subject ops --role operator --role submitter --ttl 10m --key private.pem --kid dev-1";

/// Who the token is to speak for.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Token {
    #[command(flatten)]
    config: ConfigFlag,
    /// Who it is.
    #[arg(long)]
    subject: String,
    /// A role: submitter, viewer or operator; may be given several times.
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<Role>,
    /// The department.
    #[arg(long)]
    department: Option<String>,
    /// A further claim; JSON where the value is that, else text. May be given several times.
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = claim)]
    claims: Vec<(String, Value)>,
    /// How long it is good, at most 24h.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = ttl)]
    ttl: Duration,
    /// The private key to sign with, a PEM file (PKCS #8); not needed where [auth] has a secret.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The key's name in the issuer's list of keys.
    #[arg(long)]
    kid: Option<String>,
}

pub(crate) async fn run(args: Token) -> Result<ExitCode, Failure> {
    // Where the server listens is no matter here.
    let config = args.config.clone().load(Environment::of_process(), true)?;
    let token = make(args, &config.auth).await?;
    say(token);
    Ok(ExitCode::SUCCESS)
}

async fn make(args: Token, auth: &AuthSettings) -> Result<String, Failure> {
    let Some(jwt) = auth.jwt() else {
        let message = "auth.mode is \"none\": the server asks nobody for a token; write mode = \"jwt\" first";
        return Err(Failure::new(message));
    };
    let key = match &args.key {
        None => None,
        Some(file) => Some(
            std::fs::read(file)
                .map_err(|error| Failure::new(format!("{} cannot be read: {error}", file.display())))?,
        ),
    };
    let mut claims = Map::new();
    for (name, value) in args.claims {
        if claims.insert(name.clone(), value).is_some() {
            return Err(Failure::new(format!("the claim `{name}` is given twice")));
        }
    }
    if args.roles.is_empty() {
        eprintln!("note: without --role the token gives no role, and may do nothing");
    }
    let Token { subject, roles, department, ttl, kid, .. } = args;
    let wanted = Wanted { subject, roles, department, claims, ttl, kid };
    let now = clock::now();
    let token = issue(jwt, key.as_deref(), &wanted, now).map_err(|error| match error {
        IssueError::NoKey => Failure::new(format!("{error}; give it with --key FILE")),
        IssueError::KeyBesideSecret => Failure::new(format!("{error}; leave --key out")),
        error => Failure::new(with_causes(&error)),
    })?;
    // With the issuer's list of keys, only the server can tell.
    if !matches!(jwt.keys, Keys::Jwks(_)) {
        let tokens = Tokens::new(jwt.clone()).map_err(|error| Failure::new(with_causes(&error)))?;
        tokens.verify(&token, now).await.map_err(|refusal| refused(&refusal))?;
    }
    Ok(token)
}

fn refused(refusal: &Refusal) -> Failure {
    Failure::new(format!("the server would not take such a token: {}", refusal.detail()))
}

fn ttl(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        ttl if ttl < Duration::from_secs(1) => Err("must be at least 1s".to_owned()),
        ttl if ttl > MAX_TTL => Err(format!("must be at most {}", duration::short(MAX_TTL))),
        ttl => Ok(ttl),
    }
}

fn claim(text: &str) -> Result<(String, Value), String> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("write NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::auth::Caller;
    use crate::config::{Config, Load};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        token: Token,
    }

    const SECRET: &str = "
        [auth]
        mode = \"jwt\"
        issuer = \"https://id.example.com/\"
        audience = \"outhaul\"
        secret = \"0123456789abcdef0123456789abcdef\"
        keep = [\"county\", \"address.zip\"]
        claims.roles = \"realm_access.roles\"
        roles.operator = [\"CN=admins,DC=example\"]
    ";

    fn auth(text: &str) -> AuthSettings {
        let load = Load { file: None, insecure: false, environment: Environment::default() };
        Config::parse(text, Path::new("/"), &load).unwrap().auth
    }

    fn parsed(flags: &[&str]) -> Result<Token, String> {
        let line = Line::try_parse_from([&["token", "--subject", "ann"], flags].concat());
        line.map(|line| line.token).map_err(|error| error.to_string())
    }

    async fn made(auth: &AuthSettings, flags: &[&str]) -> Result<String, String> {
        make(parsed(flags)?, auth).await.map_err(|failure| failure.to_string())
    }

    async fn caller(auth: &AuthSettings, token: &str) -> Caller {
        let tokens = Tokens::new(auth.jwt().unwrap().clone()).unwrap();
        tokens.verify(token, clock::now()).await.unwrap()
    }

    #[tokio::test]
    async fn the_server_takes_what_is_made() {
        let auth = auth(SECRET);
        let flags = [
            "--role",
            "submitter",
            "--role",
            "operator",
            "--department",
            "sales",
            "--claim",
            "county=Kent",
            "--claim",
            "address.zip=[1, \"x=y\"]",
            "--claim",
            "other=1",
            "--ttl",
            "24h",
        ];
        let token = made(&auth, &flags).await.unwrap();
        let caller = caller(&auth, &token).await;
        assert_eq!((caller.subject(), caller.identity.department.as_deref()), ("ann", Some("sales")));
        assert_eq!(format!("{:?}", caller.roles), "{Submitter, Operator}");
        assert_eq!(caller.identity.claims["county"], "Kent");
        assert_eq!(caller.identity.claims["address.zip"], json!([1, "x=y"]));
        assert!(!caller.identity.claims.contains_key("other"));
    }

    #[tokio::test]
    async fn what_no_server_would_take_is_not_made() {
        let none = made(&auth(""), &[]).await.unwrap_err();
        assert!(none.contains("auth.mode is \"none\""), "{none}");
        let published =
            SECRET.replace("secret = \"0123456789abcdef0123456789abcdef\"", "jwks_url = \"https://x/\"");
        let no_key = made(&auth(&published), &[]).await.unwrap_err();
        assert!(no_key.contains("private key is needed") && no_key.ends_with("--key FILE"), "{no_key}");
        let auth = auth(SECRET);
        let gone = made(&auth, &["--key", "no/such.pem"]).await.unwrap_err();
        assert!(gone.starts_with("no/such.pem cannot be read"), "{gone}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        std::fs::write(&file, "x").unwrap();
        let beside = made(&auth, &["--key", file.to_str().unwrap()]).await.unwrap_err();
        assert!(beside.ends_with("leave --key out"), "{beside}");
        for (claim, said) in [("county=1", "given twice"), ("iss=x", "`iss` is set by other options")] {
            let refused = made(&auth, &["--claim", "county=Kent", "--claim", claim]).await.unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        let named = Line::try_parse_from(["token", "--subject", "identity:nightly"]).unwrap().token;
        let named = make(named, &auth).await.unwrap_err().to_string();
        assert!(named.contains("unusable subject"), "{named}");
    }

    #[test]
    fn flags_are_judged() {
        assert_eq!(parsed(&[]).unwrap().ttl, Duration::from_secs(3600));
        for bad in [
            ["--ttl", "25h"],
            ["--ttl", "0s"],
            ["--ttl", "soon"],
            ["--role", "boss"],
            ["--claim", "county"],
            ["--claim", "=x"],
        ] {
            assert!(parsed(&bad).is_err(), "{bad:?}");
        }
        let value = |text: &str| claim(text).unwrap().1;
        assert_eq!(value("a=5"), 5);
        assert_eq!(value("a=\"5\""), "5");
        assert_eq!(value("a=b=c"), "b=c");
        assert_eq!(value("a="), "");
    }
}
