//! The orch command: for now, only the hidden commands of the guard.

use std::path::Path;
use std::process::ExitCode;

use orch::process::{GUARD, GUARD_LAUNCH, guard_launch_main, guard_main};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    ExitCode::from(match args.as_slice() {
        [GUARD, "--logs", logs, "--id", id] => guard_main(Path::new(logs), id),
        [GUARD_LAUNCH, "--logs", logs, "--id", id] => guard_launch_main(Path::new(logs), id),
        _ => orch::error::exit::USAGE,
    })
}
