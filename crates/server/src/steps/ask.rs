//! Questions that a receiver answers with yes or no, asked under the rules of steps: the same addresses, no
//! redirects, signed, on threads of their own. The status is the answer; nothing of a body is read.

use std::time::Duration;

use outhaul::{Cause, Failed};
use outhaul_core::clock;
use outhaul_core::duration::short;
use outhaul_core::secret::Secret;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use url::Url;

use super::answer;
use super::call::{header, not_answered};
use super::client::Client;
use super::sign::Signer;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A status of success.
    Yes,
    /// 403, 404 or 410.
    No(u16),
    /// Anything else, or nothing: neither yes nor no.
    Unknown(Cause),
}

/// Somebody who is asked. No `Debug`: it holds the keys.
#[derive(Clone)]
pub(crate) struct Question {
    client: Client,
    url: Url,
    timeout: Duration,
    signer: Signer,
}

impl Question {
    /// Asks at this address, signed with every secret.
    pub(crate) fn new(client: Client, url: Url, timeout: Duration, secrets: &[Secret]) -> Self {
        Self { client, url, timeout, signer: Signer::new(secrets) }
    }

    /// Why nobody can be asked, as things are; names are judged only when they are called.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.client.refusal(&self.url)
    }

    /// Asks with a JSON body; `id` names the question, for signatures.
    pub(crate) async fn ask(&self, id: &str, body: String) -> Answer {
        if let Err(refused) = self.client.check(&self.url) {
            return Answer::Unknown(refused.into());
        }
        let (asker, headers) = (self.clone(), self.signer.headers(id, clock::now().timestamp(), &body));
        let exchange = self.client.threads.spawn(async move { asker.exchange(headers, body).await });
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Unknown("the call broke off".into()),
            Err(_) => Answer::Unknown(format!("no answer within {}", short(self.timeout)).into()),
        }
    }

    async fn exchange(&self, headers: Vec<(&'static str, String)>, body: String) -> Answer {
        let mut request = self.client.http.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let response = match request.body(body).send().await {
            Ok(response) => response,
            Err(error) => return unknown(not_answered(&self.url, &error)),
        };
        // Whatever stands in the body changes nothing, so that no receiver can make us read it.
        match response.status().as_u16() {
            status @ (403 | 404 | 410) => Answer::No(status),
            _ => {
                let retry_after = header(&response, &RETRY_AFTER);
                answer::failure(response.status(), retry_after, clock::now()).map_or(Answer::Yes, unknown)
            }
        }
    }
}

/// Also what is the end for a step: a question is not settled by its having gone wrong.
fn unknown(failed: Failed) -> Answer {
    match failed {
        Failed::Retryable(cause) | Failed::Fatal(cause) => Answer::Unknown(cause),
        Failed::Stopped => Answer::Unknown("the call broke off".into()),
    }
}
