//! `orch graph`: a workflow as a drawing, or a run with the course that it took. A workflow that is
//! not valid is not drawn.

use std::path::Path;
use std::sync::Arc;

use super::check;
use super::run_target;
use crate::disk::root::Root;
use crate::disk::specs::{self, Folder};
use crate::disk::store::RunDir;
use crate::spec::workflow::graph::{self, Overlay};
use crate::text::error::{Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{Paint, print};
use crate::work::audit;
use crate::work::pinned;

pub(super) fn run(root: Option<&Path>, words: &cli::Graph) -> Result<u8> {
    let path = Root::locate(root)?;
    let found = match specs::find(&path, &words.workflow) {
        Ok(found) => found,
        Err(fault) if fault.kind == Kind::UnknownWorkflow => {
            // A workflow that does not exist may be a run that does.
            let Some(run) = find_run(&path, &words.workflow) else {
                return Err(fault);
            };
            return draw_run(&run, words);
        }
        Err(fault) => return Err(fault),
    };
    let checked = check::look(&Folder::open(&path)?, &found);
    let Some(workflow) = &checked.workflow else {
        // Standard output is for the drawing.
        eprint!("{}", check::problems(&checked, Paint::stderr()));
        return Ok(exit::INVALID);
    };
    print(&graph::draw(workflow, words.format, None))?;
    Ok(exit::DONE)
}

fn find_run(root: &Path, word: &str) -> Option<RunDir> {
    if !root.join("workspace").is_dir() {
        return None;
    }
    let runs = run_target::runs(&Arc::new(Root::open(root).ok()?));
    runs.open(&runs.find(word).ok()?).ok()
}

fn draw_run(run: &RunDir, words: &cli::Graph) -> Result<u8> {
    let workflow = pinned::workflow(run)?;
    let state = pinned::load(run, &workflow)?;
    let mut overlay = Overlay {
        visits: state.visits.clone(),
        status: Some(state.status.as_str().to_owned()),
        ..Overlay::default()
    };
    for made in audit::audit(run, &workflow)?.transitions {
        *overlay.taken.entry((made.step, made.next)).or_default() += 1;
    }
    let pending = state.pending.first().map(|pending| pending.step.clone());
    overlay.current = pending.or_else(|| state.blocks.first().map(|block| block.step.clone()));
    print(&graph::draw(&workflow, words.format, Some(&overlay)))?;
    Ok(exit::DONE)
}
