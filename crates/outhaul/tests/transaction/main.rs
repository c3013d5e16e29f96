//! `ctx.transaction` and `enqueue_in` on PostgreSQL: a job's own changes are applied once, also when the
//! answer to COMMIT is lost or somebody else owns the chunk by then.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod bench;
mod enqueue_in;
mod once;
mod proxy;
