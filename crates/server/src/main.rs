//! The one binary: reads the command line and does what it says.

use std::process::ExitCode;

fn main() -> ExitCode {
    outhaul_server::run(outhaul::Registry::new())
}
