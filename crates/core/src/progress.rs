//! Progress of chunks that run: how far each is, as its worker tells it once a second at most. What is
//! recorded here never goes backwards, also not when an attempt is repeated.

use crate::id::Lease;

/// Below this part of an estimate it is believed; from there on the rest shrinks without ever ending.
const BELIEVED: f64 = 0.9;

/// How much there is to do, if anything is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// Counted.
    Exact(i64),
    /// Guessed, such as by a database's planner.
    Estimate(i64),
}

/// How far one running chunk is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The claim.
    pub lease: Lease,
    /// Rows so far, or whatever the job counts.
    pub rows: i64,
    /// Bytes so far.
    pub bytes: i64,
    /// The part of the chunk that is done, 0 to 1, never quite 1.
    pub fraction: f64,
}

/// How far a chunk is, for those who look at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkProgress {
    /// Rows so far.
    pub rows: i64,
    /// Bytes so far.
    pub bytes: i64,
    /// The part of the chunk that is done, 0 to 1.
    pub fraction: f64,
}

/// What the unsettled chunks of a job have done so far, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moving {
    /// Rows so far.
    pub rows: i64,
    /// Bytes so far.
    pub bytes: i64,
    /// Chunks so far, counting parts.
    pub chunks: f64,
}

/// The part of the whole that `done` is: 0 when nothing is known, less than 1 while it runs, and more with
/// every step, also beyond an estimate that was too low.
pub fn fraction(done: i64, total: Option<Total>) -> f64 {
    let done = done.max(0) as f64;
    let part = match total {
        None => 0.0,
        Some(Total::Exact(total)) => done / total.max(1) as f64,
        Some(Total::Estimate(total)) => {
            let believed = BELIEVED * total.max(1) as f64;
            if done <= believed {
                done / believed * BELIEVED
            } else {
                1.0 - (1.0 - BELIEVED) * believed / done
            }
        }
    };
    part.clamp(0.0, 0.999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_backwards_and_never_ends_early() {
        for total in [Some(Total::Exact(1000)), Some(Total::Estimate(1000)), Some(Total::Estimate(0)), None] {
            let mut last = 0.0;
            for done in (0..100_000).step_by(50) {
                let now = fraction(done, total);
                assert!(now >= last && now < 1.0, "{total:?} {done}: {now} after {last}");
                last = now;
            }
        }
    }

    #[test]
    fn a_count_is_believed_and_an_estimate_up_to_a_point() {
        assert_eq!(fraction(250, Some(Total::Exact(1000))), 0.25);
        assert_eq!(fraction(450, Some(Total::Estimate(1000))), 0.45);
        assert!(fraction(2000, Some(Total::Estimate(1000))) > fraction(1000, Some(Total::Estimate(1000))));
        assert_eq!(fraction(5, None), 0.0);
        assert_eq!(fraction(-5, Some(Total::Exact(-1))), 0.0);
    }
}
