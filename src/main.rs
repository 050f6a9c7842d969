//! Parse, run, print one error, exit.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use orch::agents::confine;
use orch::text::error::exit;
use orch::ui::cli::Cli;
use orch::ui::{commands, report};

fn main() -> ExitCode {
    // Before anything else: the helper must be quick, and read nothing but what it is sent.
    if let Some(code) = confine::run_helper() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // A closed output is nobody's fault.
            let _ = e.print();
            return ExitCode::from(match e.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => exit::DONE,
                _ => exit::USAGE,
            });
        }
    };
    match commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            report::print_fault(&fault);
            ExitCode::from(fault.exit_code())
        }
    }
}
