//! A user's own binary with jobs in Rust: this test program itself, started once more.
//!
//! A process for `kill -9` has to be an executable, and Cargo builds no further one for a test. So
//! [`spawn`] runs this very program with a variable set and only [`serves_when_told_to`] selected, and
//! that "test" becomes the server. Without the variable, in a normal run, it does nothing.

use std::process::Command;
use std::time::Duration;

use outhaul::core::retry::{Backoff, RetryPolicy};
use outhaul::{Context, Job, JobError, JobOptions, Registry};
use outhaul_server::config::{Config, Environment, Load};
use outhaul_server::serve::{self, Ended};
use serde::{Deserialize, Serialize};

use crate::common::{Process, Stack};

/// Says which roles the program shall have.
const ROLES: &str = "OUTHAUL_TEST_OWN_BINARY";

/// Starts a process with these roles and the jobs below.
pub(crate) fn spawn(stack: &Stack, name: &str, roles: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["own_binary::serves_when_told_to", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLES, roles).env("OUTHAUL_CONFIG", stack.config());
    stack.spawn_command(name, command)
}

#[test]
fn serves_when_told_to() {
    let Ok(roles) = std::env::var(ROLES) else { return };
    let environment = Environment::of_process();
    outhaul_server::log::start(&environment, "info");
    let load = Load { file: None, insecure: false, environment };
    let config = Config::load(&load).unwrap_or_else(|problems| panic!("{problems}"));
    let registry =
        Registry::new().job::<Transfer>().job::<Good>().job::<Panics>().job::<Aborts>().job::<NeverReturns>();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let ended = runtime.block_on(serve::run(config, roles.parse().expect("roles"), registry));
    // At once, as `outhaul_server::run` does it: a stuck job must not keep the process alive.
    match ended {
        Ok(Ended::Asked) => std::process::exit(0),
        Ok(ended) => eprintln!("{ended}"),
        Err(errors) => eprintln!("{errors}"),
    }
    std::process::exit(1);
}

/// Moves money between two accounts, and writes down that it did.
#[derive(Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) amount: i64,
    /// Waits inside its transaction for a lock that the test holds.
    #[serde(default)]
    pub(crate) gated: bool,
}

impl Job for Transfer {
    const TYPE: &'static str = "TRANSFER";
    type Output = ();

    async fn run(&self, ctx: &Context) -> Result<(), JobError> {
        let job = ctx.job_id().to_string();
        let mut moves = [(self.from, -self.amount), (self.to, self.amount)];
        // Everybody locks accounts in the same order.
        moves.sort_unstable();
        ctx.transaction("move", async |tx| {
            // Whoever is stopped here comes back to a transaction that is not his any more.
            if self.gated {
                // For as long as the test wants.
                sqlx::raw_sql("set local lock_timeout = 0; set local statement_timeout = 0")
                    .execute(&mut *tx)
                    .await?;
            }
            let wait =
                if self.gated { "select pg_advisory_xact_lock_shared(42)" } else { "select pg_sleep(0.03)" };
            sqlx::query(wait).execute(&mut *tx).await?;
            for (account, amount) in moves {
                sqlx::query("update account set balance = balance + $2 where id = $1")
                    .bind(account)
                    .bind(amount)
                    .execute(&mut *tx)
                    .await?;
            }
            sqlx::query("insert into ledger (job) values ($1)").bind(&job).execute(&mut *tx).await?;
            Ok(())
        })
        .await?;
        // Whoever is killed here has moved the money and not finished.
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(())
    }
}

/// Does nothing of importance, for long enough to have neighbours.
#[derive(Serialize, Deserialize)]
pub(crate) struct Good {}

impl Job for Good {
    const TYPE: &'static str = "GOOD";
    type Output = ();

    async fn run(&self, _ctx: &Context) -> Result<(), JobError> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

/// Panics.
#[derive(Serialize, Deserialize)]
pub(crate) struct Panics {}

impl Job for Panics {
    const TYPE: &'static str = "PANICS";
    type Output = ();

    async fn run(&self, _ctx: &Context) -> Result<(), JobError> {
        panic!("poison");
    }
}

/// Takes the whole process with it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Aborts {}

impl Job for Aborts {
    const TYPE: &'static str = "ABORTS";
    type Output = ();

    async fn run(&self, _ctx: &Context) -> Result<(), JobError> {
        std::process::abort();
    }
}

/// Never gives its thread back.
#[derive(Serialize, Deserialize)]
pub(crate) struct NeverReturns {
    /// Burns a core, instead of only holding its thread: once is enough for the tests beside this one.
    pub(crate) busy: bool,
}

impl Job for NeverReturns {
    const TYPE: &'static str = "NEVER_RETURNS";
    type Output = ();

    fn options() -> JobOptions {
        let backoff = Backoff::Fixed { base: Duration::from_millis(100) };
        JobOptions::default().timeout(Duration::from_secs(1)).retry(RetryPolicy { max_attempts: 3, backoff })
    }

    async fn run(&self, _ctx: &Context) -> Result<(), JobError> {
        loop {
            if self.busy {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
