//! `orch audit`: whether a run is what its log says. Repairs nothing.

use std::path::Path;

use super::run_target::{self, Named};
use crate::run::state::tampering;
use crate::text::error::{Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{print, print_json};
use crate::work::audit;
use crate::work::pinned;

pub(super) fn run(root: Option<&Path>, words: &cli::RunWords) -> Result<u8> {
    let Named { run, .. } = run_target::open(root, &words.run)?;
    let workflow = match pinned::workflow(&run) {
        Ok(workflow) => Some(workflow),
        // What was changed about it is among what is found.
        Err(fault) if fault.kind == Kind::SafetyViolation => None,
        Err(fault) => return Err(fault),
    };
    let audit = audit::audit(&run, workflow.as_ref())?;
    match words.json {
        true => print_json(&audit)?,
        false => print(&audit.render())?,
    };
    // What was found out before is told with the same code as then.
    Ok(match (tampering(audit.error.as_ref()), audit.is_sound()) {
        (Some(code), _) => code,
        (None, true) => exit::DONE,
        (None, false) => exit::CORRUPTED,
    })
}
