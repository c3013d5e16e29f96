//! An installation with a broker: on PostgreSQL and local files, with queues that no other test uses.

use std::sync::Mutex;

use outhaul_testkit::servers::{BrokerKind, PrivateBroker, unique_prefix};
use tokio::task::block_in_place;

use crate::common::{Kind, Stack, eventually, files_below};

/// A source with a gate ([`crate::common::gate`], at which nobody loses patience) and one without, each with a
/// dataset of its name. Their budgets are no limit.
pub(crate) const SOURCES: &str = "[sources.gated]\nurl = \"{postgres}\"\nmax_concurrent = 100\n\n\
     [datasets.gated]\ndefault = true\nsource = \"gated\"\n\
     query = \"with free as materialized (select set_config('lock_timeout', '0', true)) \
     select pg_advisory_xact_lock_shared(42)::text as gate, :key as key, :effective_date as day from free\"\n\n\
     [sources.free]\nurl = \"{postgres}\"\nmax_concurrent = 100\n\n\
     [datasets.free]\nsource = \"free\"\nquery = \"select :key as key, :effective_date as day\"\n\n";

/// Whose broker it is.
pub(crate) enum Broker {
    /// One that other tests use too.
    Shared(BrokerKind),
    /// The test's own, which it may kill.
    Own(PrivateBroker),
}

/// The installation.
pub(crate) struct Site {
    pub(crate) stack: Stack,
    pub(crate) broker: Broker,
    pub(crate) work: String,
    pub(crate) parking: String,
}

impl Site {
    /// On the shared broker; `delivery` are more lines of `[delivery]`, `sections` the rest.
    pub(crate) async fn shared(kind: BrokerKind, delivery: &str, sections: &str) -> Self {
        Self::new(Broker::Shared(kind), delivery, sections).await
    }

    /// On a broker of its own.
    pub(crate) async fn own(kind: BrokerKind, delivery: &str, sections: &str) -> Self {
        let broker = block_in_place(|| PrivateBroker::start(kind));
        Self::new(Broker::Own(broker), delivery, sections).await
    }

    async fn new(broker: Broker, delivery: &str, sections: &str) -> Self {
        let prefix = unique_prefix();
        let (work, parking) = (format!("{prefix}.work"), format!("{prefix}.parking"));
        let mut site = Self { stack: Stack::new(Kind::PostgresLocal, "").await, broker, work, parking };
        site.configure(&site.url(), delivery, sections);
        // What is said of the broker shall be in the log of a test that fails.
        site.stack.environment.push(("OUTHAUL_LOG", "info,outhaul_delivery=debug,outhaul=debug".to_owned()));
        site
    }

    /// Writes the configuration anew, with this URL of the broker.
    pub(crate) fn configure(&self, url: &str, delivery: &str, sections: &str) {
        let kind = match self.kind() {
            BrokerKind::ActiveMq => "activemq",
            BrokerKind::RabbitMq => "rabbitmq",
        };
        self.stack.configure(&format!(
            "[delivery]\nkind = \"{kind}\"\nurl = \"{url}\"\nwork_queue = \"{}\"\nparking_queue = \"{}\"\n\
             {delivery}\n{sections}",
            self.work, self.parking
        ));
    }

    pub(crate) fn kind(&self) -> BrokerKind {
        match &self.broker {
            Broker::Shared(kind) => *kind,
            Broker::Own(broker) => broker.kind(),
        }
    }

    /// The broker's URL, with the user and password.
    pub(crate) fn url(&self) -> String {
        match &self.broker {
            Broker::Shared(kind) => kind.shared_url(),
            Broker::Own(broker) => broker.url().to_owned(),
        }
    }

    /// The broker, where it is the test's own.
    pub(crate) fn own_broker(&self) -> &PrivateBroker {
        match &self.broker {
            Broker::Shared(kind) => panic!("others use this {kind:?} too"),
            Broker::Own(broker) => broker,
        }
    }

    /// How many messages of a queue are ready, and how many unacknowledged.
    pub(crate) async fn counts(&self, queue: &str) -> (u64, u64) {
        let counts = Mutex::new((0, 0));
        let asked = eventually("the broker says what it holds", || async {
            let answer = block_in_place(|| match &self.broker {
                Broker::Shared(kind) => kind.shared_queue_counts(queue),
                Broker::Own(broker) => broker.queue_counts(queue),
            });
            *counts.lock().expect("not poisoned") = answer.as_ref().copied().unwrap_or_default();
            answer.is_ok()
        });
        asked.await.unwrap_or_else(|error| panic!("{error}"));
        counts.into_inner().expect("not poisoned")
    }

    /// Waits until a queue holds this.
    pub(crate) async fn holds(&self, queue: &str, wanted: (u64, u64)) {
        self.comes_to(queue, &format!("{wanted:?}"), |counts| counts == wanted).await;
    }

    /// Waits until a queue holds this or more. A message may be there twice: what a slow broker has not
    /// confirmed in time is sent again.
    pub(crate) async fn holds_at_least(&self, queue: &str, (ready, unacknowledged): (u64, u64)) {
        let what = format!("{:?} or more", (ready, unacknowledged));
        self.comes_to(queue, &what, |counts| counts.0 >= ready && counts.1 >= unacknowledged).await;
    }

    async fn comes_to(&self, queue: &str, what: &str, so: impl Fn((u64, u64)) -> bool) {
        let seen = Mutex::new((0, 0));
        let what = format!("{queue} holds {what}");
        let held = eventually(&what, || async {
            let counts = self.counts(queue).await;
            *seen.lock().expect("not poisoned") = counts;
            so(counts)
        });
        held.await.unwrap_or_else(|error| panic!("{error}: {seen:?}"));
    }

    /// Waits until both queues are empty, nothing is unacknowledged, and nothing waits to be sent.
    pub(crate) async fn is_empty(&self) {
        self.outbox_is_empty().await;
        self.holds(&self.work, (0, 0)).await;
        self.holds(&self.parking, (0, 0)).await;
    }

    /// Waits until the broker has all that it is to be told but of chunks.
    pub(crate) async fn outbox_is_empty(&self) {
        let sent = eventually("the outbox is empty", || async {
            self.stack.recorded("select count(*) from outbox").await == [[0]]
        });
        sent.await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until at least so many chunks that nobody has claimed are announced.
    pub(crate) async fn announced(&self, wanted: i64) {
        let count = "select count(*) from announcement a join job_chunk c on c.id = a.chunk_id \
             where c.fence = a.fence and c.state = 'QUEUED' and a.until > clock_timestamp()";
        let what = format!("{wanted} chunks are announced");
        let announced = eventually(&what, || async { self.stack.recorded(count).await[0][0] >= wanted });
        announced.await.unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Drop for Site {
    /// What the processes said last, of a test that failed: their logs go with the folder.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let folder = self.stack.dir.path();
        for name in files_below(folder).into_iter().filter(|name| name.ends_with(".log")) {
            let log = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- {name}\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}
