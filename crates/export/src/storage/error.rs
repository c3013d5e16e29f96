//! Why a storage call failed. `what` names the storage and the cause in a few words, for operators. `told` is the same
//! text without the place, for everybody who may see the job. The full cause is kept as `source` for logs. None of
//! them ever holds a secret.

use std::error::Error as StdError;
use std::io;

use outhaul::{Cause, Failed};

type Source = Box<dyn StdError + Send + Sync>;

/// How a storage call failed, by what its caller should do next.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The chunk is no longer ours: nothing was published, and nothing must be.
    #[error("publish refused: the chunk has a newer owner")]
    Stopped,
    /// There is no such file.
    #[error("there is no file `{path}` in the storage")]
    NotFound {
        /// Its path.
        path: String,
    },
    /// Another attempt may succeed: full, slow, unreachable or refusing for now.
    #[error("{what}")]
    Retryable {
        /// What failed, where, and why in a few words.
        what: String,
        /// The same for whoever may see the job; `None`: `what` names no place.
        told: Option<String>,
        /// The whole cause.
        source: Option<Source>,
    },
    /// No attempt can succeed until a person changes something.
    #[error("{what}")]
    Fatal {
        /// What is wrong, and where.
        what: String,
        /// The same for whoever may see the job; `None`: `what` names no place.
        told: Option<String>,
        /// The whole cause.
        source: Option<Source>,
    },
}

impl StorageError {
    pub(super) fn fatal(what: impl Into<String>) -> Self {
        Self::Fatal { what: what.into(), told: None, source: None }
    }

    pub(super) fn retryable(what: impl Into<String>) -> Self {
        Self::Retryable { what: what.into(), told: None, source: None }
    }

    /// A failed call to the file system: worth another attempt, whatever it was.
    pub(super) fn io(act: &str, storage: &str, error: io::Error) -> Self {
        let known = match error.kind() {
            io::ErrorKind::StorageFull => Some("it is full"),
            io::ErrorKind::QuotaExceeded => Some("its quota is used up"),
            io::ErrorKind::ReadOnlyFilesystem => Some("it is read-only"),
            io::ErrorKind::PermissionDenied => Some("permission denied"),
            _ => None,
        };
        let (what, told) = texts(act, storage, known, || error.to_string());
        Self::Retryable { what, told, source: Some(Box::new(error)) }
    }

    /// A failed call to an object store.
    pub(super) fn object(act: &str, storage: &str, error: object_store::Error) -> Self {
        use object_store::Error as E;
        let known = match &error {
            E::NotFound { .. } => Some("not found (is the bucket there?)"),
            E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => {
                Some("it was changed at the same time")
            }
            E::PermissionDenied { .. } => Some("access denied"),
            E::Unauthenticated { .. } => Some("the credentials were not accepted"),
            _ => None,
        };
        let (what, told) = texts(act, storage, known, || short(&error));
        let source: Option<Source> = Some(Box::new(error));
        match source.as_ref().and_then(|e| e.downcast_ref::<E>()) {
            Some(E::NotSupported { .. } | E::NotImplemented { .. } | E::InvalidPath { .. }) => {
                Self::Fatal { what, told, source }
            }
            _ => Self::Retryable { what, told, source },
        }
    }

    fn source_error(&self) -> Option<&(dyn StdError + 'static)> {
        StdError::source(self)
    }
}

/// The text for operators and the text for others. Our own messages may be read by everybody; messages of a library
/// may name addresses and paths.
fn texts(
    act: &str,
    storage: &str,
    known: Option<&str>,
    why: impl FnOnce() -> String,
) -> (String, Option<String>) {
    let told = format!("could not {act} in the storage: {}", known.unwrap_or("it is not available"));
    let why = known.map_or_else(why, str::to_owned);
    (format!("could not {act} in the storage {storage}: {why}"), Some(told))
}

/// The innermost cause, which says most, cut to one line that people will read. An answer's body may
/// be a page of XML: only its code is kept.
fn short(error: &(dyn StdError + 'static)) -> String {
    let mut inner = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    let text = inner.to_string();
    let text = match (text.split_once(": <?xml"), text.split_once("<Code>")) {
        (Some((head, _)), Some((_, tail))) => {
            format!("{head} ({})", tail.split("</Code>").next().unwrap_or_default())
        }
        (Some((head, _)), None) => head.to_owned(),
        _ => text,
    };
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}

impl From<StorageError> for Failed {
    fn from(error: StorageError) -> Self {
        let cause = |what: &str, told: &Option<String>| {
            let cause = match told {
                Some(told) if told != what => Cause::with_detail(told, what),
                _ => Cause::from(what),
            };
            error.source_error().map_or(cause.clone(), |source| cause.of(source))
        };
        match &error {
            StorageError::Stopped => Failed::Stopped,
            StorageError::NotFound { .. } => Failed::Retryable(error.to_string().into()),
            StorageError::Retryable { what, told, .. } => Failed::Retryable(cause(what, told)),
            StorageError::Fatal { what, told, .. } => Failed::Fatal(cause(what, told)),
        }
    }
}

/// What a [`super::Publisher`] answered is passed on with its meaning.
impl From<Failed> for StorageError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Stopped => Self::Stopped,
            Failed::Retryable(cause) => {
                let what = cause.for_operators().to_owned();
                Self::Retryable { what, told: Some(cause.text), source: None }
            }
            Failed::Fatal(cause) => {
                let what = cause.for_operators().to_owned();
                Self::Fatal { what, told: Some(cause.text), source: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_and_worth_another_attempt() {
        let error = StorageError::io("write", "file:///data", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(error.to_string(), "could not write in the storage file:///data: it is full");
        let told = "could not write in the storage: it is full";
        let cause = Cause::with_detail(told, error.to_string());
        assert_eq!(Failed::from(error), Failed::Retryable(cause));
    }

    #[test]
    fn only_operators_are_told_the_words_of_libraries() {
        let error = io::Error::other("/var/lib/outhaul: stale file handle");
        let Failed::Retryable(cause) = Failed::from(StorageError::io("write", "file:///data", error)) else {
            panic!("worth another attempt");
        };
        assert_eq!(cause.text, "could not write in the storage: it is not available");
        assert!(cause.for_operators().contains("/var/lib/outhaul") && !cause.no_descriptors);
    }

    #[test]
    fn a_lack_of_descriptors_is_known() {
        let error = StorageError::io("write", "file:///data", io::Error::from_raw_os_error(24));
        let Failed::Retryable(cause) = Failed::from(error) else { panic!("worth another attempt") };
        assert!(cause.no_descriptors);
    }

    #[test]
    fn meanings_survive_the_way_to_the_engine_and_back() {
        let told = Failed::Retryable(Cause::with_detail("a", "a at 10.0.0.7"));
        for failed in [Failed::Stopped, told, Failed::Retryable("a".into()), Failed::Fatal("b".into())] {
            assert_eq!(Failed::from(StorageError::from(failed.clone())), failed);
        }
    }

    #[test]
    fn pages_of_xml_become_one_line() {
        let body = "Server returned non-2xx status code: 503: <?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code></Error>";
        let error = object_store::Error::Generic { store: "S3", source: body.into() };
        let text = StorageError::object("publish `a`", "s3://b", error).to_string();
        assert_eq!(
            text,
            "could not publish `a` in the storage s3://b: Server returned non-2xx status code: 503 (SlowDown)"
        );
    }
}
