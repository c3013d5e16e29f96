//! Why a caller was turned away before any handler ran, and how HTTP says it. The words name what is wrong
//! with a token in a word or two; never the token, a claim's value or a key.

use std::time::Duration;

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Not three parts of base64, not JSON, or a member that is not what it must be.
    Malformed,
    /// More bytes than a token may have.
    TooLarge,
    /// An algorithm that is not on the list, `none` among them.
    Algorithm,
    /// Another kind of token, or one that says that it must be understood in ways we do not know.
    Kind,
    /// No key fits what the token names.
    UnknownKey,
    /// It names no key, and several fit.
    AmbiguousKey,
    /// Not signed by that key.
    Signature,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// Not from our issuer.
    Issuer,
    /// Not for us.
    Audience,
    /// A claim that must be there is not, or is no text or number as it must be.
    Missing(&'static str),
    /// The subject is empty, too long, or a name of our own.
    Subject,
    /// The department is not a text that can be kept.
    Department,
    /// A claim to be kept cannot be.
    Unkeepable,
    /// A claim, or a member of a claim, occurs twice.
    Twice,
}

impl Why {
    /// In a word or two, for the header and for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too large",
            Self::Algorithm => "algorithm not allowed",
            Self::Kind => "not an access token",
            Self::UnknownKey => "unknown key",
            Self::AmbiguousKey => "names no key",
            Self::Signature => "wrong signature",
            Self::Expired => "expired",
            Self::NotYet => "not yet valid",
            Self::Issuer => "wrong issuer",
            Self::Audience => "wrong audience",
            Self::Missing("exp") => "exp is missing",
            Self::Missing("iss") => "iss is missing",
            Self::Missing("aud") => "aud is missing",
            Self::Missing(_) => "the subject is missing",
            Self::Subject => "unusable subject",
            Self::Department => "unusable department",
            Self::Unkeepable => "a claim cannot be kept",
            Self::Twice => "a claim stands twice",
        }
    }
}

/// Why a request goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401: no token at all.
    NoToken,
    /// 401: something else than one `Authorization: Bearer …`.
    NotBearer,
    /// 401: a token that is not good.
    Token(Why),
    /// 403: a good token, and no role here.
    NoRole,
    /// 429: too many requests; come back after this time.
    TooMany(Duration),
    /// 421: without tokens, a name that is not this machine's own.
    ForeignHost,
    /// 503: tokens cannot be judged now, which is no fault of the caller's.
    NoKeys,
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::NotBearer | Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::NoRole => StatusCode::FORBIDDEN,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::ForeignHost => StatusCode::MISDIRECTED_REQUEST,
            Self::NoKeys => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What is wrong and what to do about it, for people.
    pub fn detail(&self) -> String {
        match self {
            Self::NoToken => "a token is needed: `Authorization: Bearer …`".into(),
            Self::NotBearer => {
                "send exactly one `Authorization` header, and in it `Bearer` and a token".into()
            }
            Self::Token(why) => format!("the token is not accepted: {}", why.words()),
            Self::NoRole => "the token gives no role here; `[auth.roles]` says which claims do".into(),
            Self::TooMany(_) => "too many requests; `Retry-After` says when to come back".into(),
            Self::ForeignHost => {
                "without `[auth]` this server answers to `localhost` and addresses only: ask for it so, or let a proxy"
                    .to_owned()
                    + " send such a `Host`"
            }
            Self::NoKeys => {
                "tokens cannot be verified now, for the issuer's keys cannot be had; try again".into()
            }
        }
    }

    /// The headers that belong to it.
    pub fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let challenge = |text: &str| {
            let value = HeaderValue::from_str(text).expect("the words are all plain ASCII");
            vec![(WWW_AUTHENTICATE, value)]
        };
        match self {
            Self::NoToken => challenge("Bearer"),
            Self::NotBearer => challenge("Bearer error=\"invalid_request\""),
            Self::Token(why) => {
                let words = why.words();
                challenge(&format!("Bearer error=\"invalid_token\", error_description=\"{words}\""))
            }
            Self::NoRole | Self::ForeignHost => Vec::new(),
            Self::TooMany(wait) => vec![(RETRY_AFTER, whole_seconds(*wait).into())],
            Self::NoKeys => vec![(RETRY_AFTER, HeaderValue::from_static("5"))],
        }
    }
}

/// Rounded up: coming back a moment too early would be refused again.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_WHY: [Why; 19] = [
        Why::Malformed,
        Why::TooLarge,
        Why::Algorithm,
        Why::Kind,
        Why::UnknownKey,
        Why::AmbiguousKey,
        Why::Signature,
        Why::Expired,
        Why::NotYet,
        Why::Issuer,
        Why::Audience,
        Why::Missing("exp"),
        Why::Missing("iss"),
        Why::Missing("aud"),
        Why::Missing("sub"),
        Why::Subject,
        Why::Department,
        Why::Unkeepable,
        Why::Twice,
    ];

    #[test]
    fn a_bad_token_is_401_and_says_what_is_wrong_in_plain_words() {
        for why in EVERY_WHY {
            let refusal = Refusal::Token(why);
            assert_eq!(refusal.status(), 401);
            let [(name, value)] = refusal.headers().try_into().unwrap();
            assert_eq!(name, WWW_AUTHENTICATE);
            let expected = format!("Bearer error=\"invalid_token\", error_description=\"{}\"", why.words());
            assert_eq!(value.to_str().unwrap(), expected);
            assert!(refusal.detail().ends_with(why.words()));
        }
    }

    #[test]
    fn without_a_token_there_is_a_challenge_and_no_error() {
        assert_eq!(Refusal::NoToken.headers(), [(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))]);
        assert_eq!(Refusal::NoToken.status(), 401);
        assert_eq!(Refusal::NotBearer.status(), 401);
        assert_eq!(Refusal::NoRole.status(), 403);
    }

    #[test]
    fn waiting_times_are_whole_seconds_rounded_up() {
        for (millis, expected) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (59_999, "60")] {
            let refusal = Refusal::TooMany(Duration::from_millis(millis));
            assert_eq!(refusal.status(), 429);
            assert_eq!(refusal.headers(), [(RETRY_AFTER, HeaderValue::from_static(expected))]);
        }
        assert_eq!(Refusal::NoKeys.status(), 503);
        assert_eq!(Refusal::NoKeys.headers()[0].0, RETRY_AFTER);
    }
}
