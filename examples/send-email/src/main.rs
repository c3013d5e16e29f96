//! A program of its own with one job type: `cargo run -p send-email -- serve` starts API and worker on
//! embedded parts, and every other command of `outhaul` is there too.

use std::process::ExitCode;

use outhaul::{Context, Job, JobError, Registry};
use serde::{Deserialize, Serialize};

/// Its fields are the payload.
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Job for SendEmail {
    const TYPE: &'static str = "SEND_EMAIL";
    type Output = String;

    async fn run(&self, ctx: &Context) -> Result<String, JobError> {
        if !self.to.contains('@') {
            return Err(JobError::fatal("`to` is not an e-mail address"));
        }
        let text = ctx.step("render", || async { Ok(format!("Welcome, {}!", self.to)) }).await?;
        // Mail services take such a key, and send a message that they have seen before only once.
        let key = ctx.idempotency_key("deliver");
        ctx.step("deliver", || async { Ok(format!("sent {} characters as {key}", text.len())) }).await
    }
}

fn main() -> ExitCode {
    outhaul_server::run(Registry::new().job::<SendEmail>())
}

#[cfg(test)]
mod tests;
