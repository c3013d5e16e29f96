//! Durable background jobs: the engine of Outhaul as a library.
#![doc = include_str!("../README.md")]

mod claims;
mod client;
mod context;
mod descriptors;
mod duty;
mod engine;
mod envelope;
mod handler;
mod instrument;
mod job;
mod keeper;
mod lease;
mod lookout;
mod owned;
mod planner;
mod pruner;
mod reaper;
mod recorder;
mod registry;
mod repair;
mod runner;
pub mod schedule;
mod settings;
mod slots;
mod stager;
mod submission;
mod sweeper;
mod template;
pub mod testing;
pub mod trigger;
mod worker;

pub use client::{Client, EnqueueError, EnqueueOptions, Enqueued};
pub use context::{ChunkContext, Stop, Waiting};
pub use engine::Engine;
pub use envelope::Envelope;
pub use handler::{Cause, Failed, Handler, Outcome, StepSpec};
pub use instrument::Instrumented;
pub use job::{Classify, Context, Job, JobError, JobOptions, job_type_problem};
pub use outhaul_core as core;
pub use planner::{PlanProblem, Planner};
pub use registry::Registry;
pub use settings::{EngineSettings, Stores, WorkerSettings};
pub use sqlx;
pub use submission::{MAIN_CHUNK, Submission, SubmitOptions, queue_of};
