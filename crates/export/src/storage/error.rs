//! Why storage did not do what was asked. Texts name the storage and the cause in a few words; the
//! full cause is kept as `source` for logs, and neither ever holds a secret.

use std::error::Error as StdError;
use std::io;

use outhaul::Failed;

type Cause = Box<dyn StdError + Send + Sync>;

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
        /// The whole cause.
        source: Option<Cause>,
    },
    /// No attempt can succeed until a person changes something.
    #[error("{what}")]
    Fatal {
        /// What is wrong, and where.
        what: String,
        /// The whole cause.
        source: Option<Cause>,
    },
}

impl StorageError {
    pub(super) fn fatal(what: impl Into<String>) -> Self {
        Self::Fatal { what: what.into(), source: None }
    }

    pub(super) fn retryable(what: impl Into<String>) -> Self {
        Self::Retryable { what: what.into(), source: None }
    }

    /// A failed call to the file system: worth another attempt, whatever it was.
    pub(super) fn io(act: &str, storage: &str, error: io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::StorageFull => "it is full".to_owned(),
            io::ErrorKind::QuotaExceeded => "its quota is used up".to_owned(),
            io::ErrorKind::ReadOnlyFilesystem => "it is read-only".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        let what = format!("could not {act} in the storage {storage}: {why}");
        Self::Retryable { what, source: Some(Box::new(error)) }
    }

    /// A failed call to an object store.
    pub(super) fn object(act: &str, storage: &str, error: object_store::Error) -> Self {
        use object_store::Error as E;
        let why = match &error {
            E::NotFound { .. } => "not found (is the bucket there?)".to_owned(),
            E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => {
                "it was changed at the same time".to_owned()
            }
            E::PermissionDenied { .. } => "access denied".to_owned(),
            E::Unauthenticated { .. } => "the credentials were not accepted".to_owned(),
            other => short(other),
        };
        let what = format!("could not {act} in the storage {storage}: {why}");
        let source: Option<Cause> = Some(Box::new(error));
        match source.as_ref().and_then(|e| e.downcast_ref::<E>()) {
            Some(E::NotSupported { .. } | E::NotImplemented { .. } | E::InvalidPath { .. }) => {
                Self::Fatal { what, source }
            }
            _ => Self::Retryable { what, source },
        }
    }
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
        match error {
            StorageError::Stopped => Failed::Stopped,
            StorageError::NotFound { .. } | StorageError::Retryable { .. } => {
                Failed::Retryable(error.to_string().into())
            }
            StorageError::Fatal { .. } => Failed::Fatal(error.to_string().into()),
        }
    }
}

/// What a [`super::Publisher`] answered is passed on with its meaning.
impl From<Failed> for StorageError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Stopped => Self::Stopped,
            Failed::Retryable(cause) => Self::Retryable { what: cause.text, source: None },
            Failed::Fatal(cause) => Self::Fatal { what: cause.text, source: None },
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
        assert!(matches!(Failed::from(error), Failed::Retryable(_)));
    }

    #[test]
    fn meanings_survive_the_way_to_the_engine_and_back() {
        for failed in [Failed::Stopped, Failed::Retryable("a".into()), Failed::Fatal("b".into())] {
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
