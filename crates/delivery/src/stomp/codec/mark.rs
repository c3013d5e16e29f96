//! Where in a body that may not be one the next frame begins: at a NUL, heart-beats and a command.

use super::COMMANDS;

/// More heart-beats between two frames than come while the rest of one is waited for.
const MAX_BEATS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    /// At a NUL after which too few bytes are known.
    Open(usize),
    /// At this NUL.
    Found(usize),
}

/// Looks at the NULs among the first `most` bytes, and at whatever follows them.
pub(super) fn find(bytes: &[u8], most: usize) -> Mark {
    let nuls = bytes.iter().take(most).enumerate().filter(|(_, byte)| **byte == 0);
    for (at, _) in nuls {
        match begins(&bytes[at + 1..]) {
            Some(true) => return Mark::Found(at),
            Some(false) => {}
            None => return Mark::Open(at),
        }
    }
    Mark::None
}

/// Whether a frame begins here, after any heart-beats; nothing if that cannot be said yet.
fn begins(bytes: &[u8]) -> Option<bool> {
    let beats = bytes.iter().take(MAX_BEATS).take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
    let rest = &bytes[beats..];
    let mut may = false;
    for command in COMMANDS {
        match rest.split_at_checked(command.len()) {
            Some((begin, more)) if begin == command.as_bytes() => match more.first() {
                Some(b'\n') => return Some(true),
                Some(_) => {}
                None => may = true,
            },
            Some(_) => {}
            None => may |= command.as_bytes().starts_with(rest),
        }
    }
    if may { None } else { Some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_begins_after_a_nul_and_heart_beats() {
        for (bytes, expected) in [
            (&b"x\0\nMESSAGE\n"[..], Mark::Found(1)),
            (b"x\0RECEIPT\n", Mark::Found(1)),
            (b"\0x\0\n\r\n\nERROR\nmore", Mark::Found(2)),
            (b"\nMESSAGE\n", Mark::None),
            (b"\0MESSAGES\n\0x", Mark::None),
            (b"\0SEND\n", Mark::None),
            (b"x\0", Mark::Open(1)),
            (b"x\0\n\n", Mark::Open(1)),
            (b"x\0\nMESS", Mark::Open(1)),
            (b"x\0\nMESSAGE", Mark::Open(1)),
        ] {
            assert_eq!(find(bytes, bytes.len()), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(find(b"xx\0MESSAGE\n", 2), Mark::None, "only what is asked for is looked at");
        let beats = [&[0][..], &[b'\n'; MAX_BEATS + 1]].concat();
        assert_eq!(find(&beats, beats.len()), Mark::None, "so that nothing is kept for long");
    }
}
