//! DNS for steps: what a name stands for is checked at the moment of dialling, so that a name cannot
//! change from a public to a private address between a check and the call.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::allow::Allow;

/// Asks for the addresses of a name.
pub(super) type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// A name that stands for no address, now.
#[derive(Debug, thiserror::Error)]
#[error("cannot find the address of {name}")]
pub(super) struct NotFound {
    name: String,
    #[source]
    source: Option<io::Error>,
}

/// The machine's own name service.
pub(super) fn system() -> Lookup {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

/// Passes on only addresses that may be called.
pub(super) struct Guard {
    pub(super) allow: Arc<Allow>,
    pub(super) lookup: Lookup,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (allow, lookup, name) = (self.allow.clone(), self.lookup.clone(), name.as_str().to_owned());
        Box::pin(async move {
            let found = match lookup(name.clone()).await {
                Ok(found) if !found.is_empty() => found,
                answer => return Err(NotFound { name, source: answer.err() }.into()),
            };
            let dialable = allow.dialable(&name, found)?;
            Ok(Box::new(dialable.into_iter()) as Addrs)
        })
    }
}
