//! Counts bytes and computes their SHA-256 as they pass.

use sha2::{Digest, Sha256};

/// A running count of what passed.
#[derive(Default)]
pub(super) struct Tally {
    bytes: u64,
    hash: Sha256,
}

impl Tally {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(super) fn total(self) -> Total {
        Total { bytes: self.bytes, sha256: hex(&self.hash.finalize()) }
    }
}

/// What passed in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_hashes_in_any_pieces() {
        let mut tally = Tally::default();
        tally.add(b"a");
        tally.add(b"");
        tally.add(b"bc");
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned();
        assert_eq!(tally.total(), Total { bytes: 3, sha256 });
    }
}
