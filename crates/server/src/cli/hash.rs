//! SHA-256 of files and downloads, in hex.

use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Counts and hashes what passes through.
#[derive(Default)]
pub(crate) struct Hash(Sha256);

impl Hash {
    /// Takes more bytes in.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum in hex.
    pub(crate) fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The checksum of a file.
pub(crate) fn of_file(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = Hash::default();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.hex()),
            n => hash.update(&buffer[..n]),
        }
    }
}
