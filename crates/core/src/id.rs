//! Names of things: `jobId` for clients, small integers inside the database.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// What clients call a job: `J<yyyymmdd>_<13 Crockford base32 characters>`. Readable, sorted by day,
/// and unique without asking anyone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    /// Makes an id from the day of submission and 64 random bits.
    pub fn new(now: DateTime<Utc>, random: u64) -> Self {
        let tail: String =
            (0..13).rev().map(|i| char::from(CROCKFORD[(random >> (5 * i)) as usize & 31])).collect();
        Self(format!("J{}_{tail}", now.format("%Y%m%d")))
    }

    /// Reads an id that a client sent; `None` when it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let (day, tail) = text.strip_prefix('J')?.split_once('_')?;
        let well_formed = day.len() == 8
            && day.bytes().all(|b| b.is_ascii_digit())
            && tail.len() == 13
            && tail.bytes().all(|b| CROCKFORD.contains(&b));
        well_formed.then(|| Self(text.to_owned()))
    }

    /// Takes an id that our own database holds.
    pub fn from_store(text: String) -> Self {
        Self(text)
    }

    /// The id as clients see it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! internal_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

internal_id!(
    /// A chunk's internal key; locks are taken in its order.
    ChunkId
);
internal_id!(
    /// One start of one worker process. Never reused, so two processes can never be taken for one.
    WorkerId
);
internal_id!(
    /// A queue's internal key.
    QueueId
);

/// The only key to a running chunk: whoever names an older fence has lost the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lease {
    /// The chunk that is owned.
    pub chunk: ChunkId,
    /// The fence that the claim raised; every write by the owner names it.
    pub fence: i64,
}

impl Lease {
    /// `<installation>.<chunk>.<fence>`: the name of an attempt in a storage, which other installations
    /// may use too. Their chunks and fences are equal to ours sooner or later.
    pub fn mark(self, installation: &str) -> String {
        format!("{installation}.{self}")
    }
}

impl fmt::Display for Lease {
    /// `<chunk>.<fence>`: the name of an attempt inside one installation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.chunk, self.fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeZone;

    #[test]
    fn job_ids_are_readable_and_read_back() {
        let day = Utc.with_ymd_and_hms(2026, 1, 2, 3, 4, 5).unwrap();
        assert_eq!(JobId::new(day, 0).as_str(), "J20260102_0000000000000");
        assert_eq!(JobId::new(day, u64::MAX).as_str(), "J20260102_FZZZZZZZZZZZZ");
        for random in [1, 31, 32, 0xDEAD_BEEF, u64::MAX - 1] {
            let id = JobId::new(day, random);
            assert_eq!(JobId::parse(id.as_str()), Some(id));
        }
    }

    #[test]
    fn marks_of_two_installations_differ() {
        let lease = Lease { chunk: ChunkId(7), fence: 2 };
        assert_eq!(lease.mark("1f2e3d4c"), "1f2e3d4c.7.2");
        assert_ne!(lease.mark("1f2e3d4c"), lease.mark("00000000"));
    }

    #[test]
    fn foreign_ids_are_refused() {
        for text in [
            "",
            "J",
            "J20260102",
            "J20260102_",
            "j20260102_0000000000000",
            "J20260102_000000000000U",
            "J2026010a_0000000000000",
            "J20260102_00000000000000",
            "J20260102_000123",
            "../x",
        ] {
            assert_eq!(JobId::parse(text), None, "{text}");
        }
    }
}
