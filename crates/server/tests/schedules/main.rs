//! Schedules with several processes that are killed, paused and away: a year of simulated time judged by a
//! calendar of the test's own, and seconds of real time with the built binary.

#[path = "../common/mod.rs"]
mod common;
#[path = "../custom_jobs/endpoint.rs"]
#[expect(dead_code, reason = "the tests of custom jobs use all of it")]
mod endpoint;

mod almanac;
mod calendar;
mod disorder;
mod every_second;
mod policy;
mod process;
mod simulated_year;
