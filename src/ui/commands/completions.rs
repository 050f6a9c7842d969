//! `orch completions`: the completion script for a shell.

use clap::CommandFactory;

use crate::text::error::{Result, exit};
use crate::ui::cli::{self, Cli};

pub(super) fn run(words: &cli::Completions) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(words.shell, &mut Cli::command(), "orch", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(exit::DONE)
}
