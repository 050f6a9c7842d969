//! `orch audit`: whether a run is what its log says. Repairs nothing.

use std::path::Path;

use super::run_target::{self, Named};
use crate::audit;
use crate::cli;
use crate::error::{Result, exit};
use crate::report::{print, print_json};
use crate::runs;

pub(super) fn run(root: Option<&Path>, words: &cli::RunWords) -> Result<u8> {
    let Named { run, .. } = run_target::open(root, &words.run)?;
    let workflow = runs::pinned(&run)?;
    let audit = audit::audit(&run, &workflow)?;
    match words.json {
        true => print_json(&audit)?,
        false => print(&audit.render())?,
    };
    Ok(match audit.is_sound() {
        true => exit::DONE,
        false => exit::CORRUPTED,
    })
}
