//! `orch graph`: a workflow as a drawing. One that is not valid is not drawn.

use std::path::Path;

use super::check;
use crate::cli;
use crate::error::{Result, exit};
use crate::report::{Paint, print};
use crate::root::Root;
use crate::specs::{self, Folder};
use crate::workflow::graph;

pub(super) fn run(root: Option<&Path>, words: &cli::Graph) -> Result<u8> {
    let folder = Folder::open(&Root::locate(root)?)?;
    let checked = check::look(&folder, &specs::find(folder.root(), &words.workflow)?);
    let Some(workflow) = &checked.workflow else {
        // Standard output is for the drawing.
        eprint!("{}", check::problems(&checked, Paint::stderr()));
        return Ok(exit::INVALID);
    };
    print(&graph::draw(workflow, words.format, None))?;
    Ok(exit::DONE)
}
