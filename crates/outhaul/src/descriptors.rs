//! Running out of file descriptors. The process has too many files open, and the attempt that fails is not to blame. So
//! the chunk is put back without counting the attempt.

use std::error::Error;
use std::fs::File;
use std::io;
use std::time::Duration;

/// How long a chunk that found no descriptor waits for its next attempt.
pub(crate) const LATER: Duration = Duration::from_secs(5);
/// How long the attempt keeps its place before that, so that a process without descriptors does not claim and put
/// back the whole queue as fast as it can.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// `ENFILE` (none left on the machine) and `EMFILE` (none left for the process), the same on every Unix.
const NONE_LEFT: [i32; 2] = [23, 24];
/// How many descriptors an attempt needs at least: a SQLite database has a log and an index file beside it.
const A_FEW: usize = 8;

/// Whether an error, or a cause of it, says that no descriptor was left.
pub(crate) fn none_left(error: &(dyn Error + 'static)) -> bool {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.any(|error| error.downcast_ref::<io::Error>().is_some_and(is_none_left))
}

fn is_none_left(error: &io::Error) -> bool {
    let inner = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
    error.raw_os_error().is_some_and(|code| NONE_LEFT.contains(&code)) || inner.is_some_and(none_left)
}

/// Whether the process has hardly any descriptors left now. Many libraries do not say why a file could not be opened,
/// so this function opens a few files and closes them again.
pub(crate) fn are_short() -> bool {
    let opened: io::Result<Vec<File>> = (0..A_FEW).map(|_| File::open("/dev/null")).collect();
    opened.is_err_and(|error| is_none_left(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Outer(#[source] io::Error);

    #[test]
    fn only_what_says_so_is_a_lack_of_descriptors() {
        let none = || io::Error::from_raw_os_error(24);
        assert!(none_left(&none()));
        assert!(none_left(&io::Error::from_raw_os_error(23)));
        assert!(none_left(&Outer(none())), "the cause of an error");
        assert!(none_left(&Outer(io::Error::other(Outer(none())))), "an error inside an error");
        assert!(!none_left(&io::Error::from_raw_os_error(2)));
        assert!(!none_left(&Outer(io::Error::other("no route"))));
        assert!(!are_short(), "a test has plenty");
    }
}
