//! Storage of published files: atomic and fenced publishing on local folders and object stores.
