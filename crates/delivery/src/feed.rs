//! The feed: holds a connection that consumes the work queue, sorts what comes into the inbox and the
//! parker, and acknowledges what receipts ask for. A connection that ends is made again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::broker::{Broker, BrokerError, Consumer, Incoming, Tag};
use crate::health::{Health, Part};
use crate::inbox::{Ack, Connection, Inbox};
use crate::message;
use crate::nudges::Nudges;
use crate::parker::Parker;
use crate::reconnect::{GOODBYE, Link, within};

/// Acknowledgements sent at once, at most.
const ACKS: usize = 256;

/// What happened on the connection.
enum Event {
    Came(Incoming),
    Done,
    /// Messages are wanted now, or no longer.
    Turned,
    Stop,
}

/// The consuming side of one process.
pub(crate) struct Feed {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) prefetch: u16,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) acks: mpsc::UnboundedReceiver<Ack>,
    pub(crate) parker: Parker,
    pub(crate) nudges: Arc<Nudges>,
    /// Whether a worker would take messages now.
    pub(crate) wanted: watch::Receiver<bool>,
    pub(crate) health: Arc<Health>,
    pub(crate) stop: CancellationToken,
}

impl Feed {
    /// Consumes until the token is cancelled; then what is done with is acknowledged and the rest goes back.
    pub(crate) async fn run(mut self) {
        let (broker, stop) = (self.broker.clone(), self.stop.clone());
        let mut link = Link::new(Part::Feed, broker.describe());
        loop {
            if !self.is_wanted() {
                self.health.resting(Part::Feed);
            }
            tokio::select! {
                wanted = self.wanted.wait_for(|wanted| *wanted) => {
                    // Nobody can want anything any more.
                    if wanted.is_err() { break }
                }
                () = stop.cancelled() => break,
            }
            let connected = tokio::select! {
                connected = Link::connect(broker.consumer(self.prefetch)) => connected,
                () = stop.cancelled() => break,
            };
            let ended = match connected {
                Ok(consumer) => {
                    link.up();
                    self.health.connected(Part::Feed);
                    let served = self.serve(consumer).await;
                    if served.is_err() {
                        // Also when the relay's connection holds: it may be the queue that is gone.
                        self.nudges.doubt.store(true, Ordering::Release);
                    }
                    served
                }
                // Says nothing of what the broker holds, and may be so for days.
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                let wait = link.down(&error, &self.health);
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stop.cancelled() => {}
                }
            }
        }
        self.health.closed(Part::Feed);
    }

    fn is_wanted(&self) -> bool {
        *self.wanted.borrow()
    }

    /// Serves one connection to its end, to that of the process, or until it has brought what nobody wants.
    async fn serve(&mut self, mut consumer: Box<dyn Consumer>) -> Result<(), BrokerError> {
        let connection = self.inbox.renew();
        let served = self.pump(&mut *consumer, connection).await;
        self.inbox.renew();
        served?;
        let mut last = Vec::new();
        while let Ok(ack) = self.acks.try_recv() {
            last.push(ack);
        }
        // A goodbye that fails changes nothing: the messages are handed out again, and dropped.
        let _ = tokio::time::timeout(GOODBYE, async {
            acknowledge(&mut *consumer, connection, last, &self.stop).await?;
            consumer.close().await;
            Ok::<(), BrokerError>(())
        })
        .await;
        Ok(())
    }

    async fn pump(&mut self, consumer: &mut dyn Consumer, connection: Connection) -> Result<(), BrokerError> {
        let mut done = Vec::with_capacity(ACKS);
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => Event::Stop,
                // Before the next message: each makes room for one more.
                _ = self.acks.recv_many(&mut done, ACKS) => Event::Done,
                Ok(()) = self.wanted.changed() => Event::Turned,
                came = consumer.next() => Event::Came(came?),
            };
            match event {
                // Kept, they would wait for this process; passed on by it, they would come back to it, for it
                // alone has places free. So the broker gets all of them back, and others have them. Until one
                // comes the connection is of use: what ends meanwhile is acknowledged.
                Event::Came(_) if !self.is_wanted() => return Ok(()),
                Event::Turned if !self.is_wanted() && !self.inbox.is_empty() => return Ok(()),
                Event::Turned => {}
                Event::Came(message) => self.sort(connection, message),
                Event::Done => {
                    acknowledge(consumer, connection, std::mem::take(&mut done), &self.stop).await?;
                }
                Event::Stop => return Ok(()),
            }
        }
    }

    /// Ours, or not.
    fn sort(&self, connection: Connection, message: Incoming) {
        metrics::counter!("outhaul_messages_received_total").increment(1);
        match message::read(&message.body, message.length) {
            Ok(name) => self.inbox.put(name, message),
            Err(reason) => {
                let receipt = self.inbox.receipt(connection, message.tag);
                self.parker.park_beginning(&message.body, message.length, &reason, receipt);
            }
        }
    }
}

/// Acknowledges those of this connection; the others went with theirs.
async fn acknowledge(
    consumer: &mut dyn Consumer,
    connection: Connection,
    acks: Vec<Ack>,
    stop: &CancellationToken,
) -> Result<(), BrokerError> {
    let ours = acks.into_iter().filter(|ack| ack.connection == connection);
    let tags: Vec<Tag> = ours.map(|ack| ack.tag).collect();
    if tags.is_empty() {
        return Ok(());
    }
    within(stop, consumer.acknowledge(&tags)).await
}
