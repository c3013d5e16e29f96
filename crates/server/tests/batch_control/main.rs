//! Control over running work, as its users see it: progress, the event stream, cancellation, jobs that wait
//! for others, priorities and paused queues, with real processes of the built binary and `kill -9` in between.

#[path = "../common/mod.rs"]
mod common;
#[path = "../custom_jobs/endpoint.rs"]
#[expect(dead_code, reason = "the tests of custom jobs use all of it")]
mod endpoint;

mod cancel;
mod dependencies;
mod diamond;
mod events;
mod follower;
mod gates;
mod gigabyte;
mod large_jobs;
mod order;
mod pause;
mod progress;
mod rules;
mod running;
mod site;
