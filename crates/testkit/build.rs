//! Hashes what makes the schema of the PostgreSQL store. The template database of the tests has the hash in its
//! name, so a changed migration makes a new template.

use std::error::Error;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::Path;

/// The whole store, not only the migrations: nobody has to keep a list here, and a template more costs little.
const STORE: &str = "../store/src/postgres";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={STORE}");
    let mut hasher = DefaultHasher::new();
    hash_folder(Path::new(STORE), &mut hasher)?;
    println!("cargo::rustc-env=OUTHAUL_STORE_HASH={:016x}", hasher.finish());
    Ok(())
}

fn hash_folder(folder: &Path, hasher: &mut DefaultHasher) -> Result<(), Box<dyn Error>> {
    let entries: Result<Vec<_>, _> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect();
    let mut entries = entries?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            hash_folder(&path, hasher)?;
        } else {
            hasher.write(path.as_os_str().as_encoded_bytes());
            hasher.write(&std::fs::read(&path)?);
        }
    }
    Ok(())
}
