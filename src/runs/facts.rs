//! What the disk looks like to a blocked run, and the one look-up that this takes.

use std::path::Path;

use globset::GlobBuilder;
use serde_json::Value;
use walkdir::WalkDir;

use crate::flow::{Moment, wanted};
use crate::state::{Block, Facts, RunState, StepResult};
use crate::workflow::{StepId, Work, Workflow};

/// What a resume has to know: every glob that the guards at the blocks ask for.
#[must_use]
pub fn for_resume(
    workflow: &Workflow,
    state: &RunState,
    mut exists: impl FnMut(&str) -> bool,
) -> Facts {
    let mut facts = Facts::default();
    for block in &state.blocks {
        let Some(id) = workflow.find(&block.step) else {
            continue;
        };
        let Some(result) = stored(workflow, state, id, block) else {
            continue;
        };
        let moment = Moment::Finishing(&result);
        for glob in wanted(workflow, state, id, block.item, moment) {
            let found = exists(&glob);
            facts.exists.insert(glob, found);
        }
    }
    facts
}

/// The result that a blocked step left behind.
fn stored(workflow: &Workflow, state: &RunState, id: StepId, block: &Block) -> Option<StepResult> {
    let name = &workflow.step(id).name.value;
    if matches!(workflow.step(id).work, Work::ForEach(_)) {
        return state.loop_results.get(name).cloned();
    }
    let value: &Value = match (workflow.loop_of(id), block.item) {
        (Some(parent), Some(index)) => {
            let parent = &workflow.step(parent).name.value;
            state.step_results.get(parent)?.get(index)?.get(name)?
        }
        _ => state.step_results.get(name)?,
    };
    serde_json::from_value(value.clone()).ok()
}

/// Whether a glob matches a file below the root. Links are not followed, and names that begin with
/// a dot count only where the glob names them.
#[must_use]
pub fn exists(root: &Path, glob: &str) -> bool {
    let relative = match Path::new(glob).strip_prefix(root) {
        Ok(inside) => inside.to_string_lossy().into_owned(),
        Err(_) => glob.strip_prefix("./").unwrap_or(glob).to_owned(),
    };
    let built = GlobBuilder::new(&relative)
        .literal_separator(true)
        .backslash_escape(true)
        .build();
    let is_inside = !relative.starts_with('/') && relative.split('/').all(|part| part != "..");
    let (Ok(built), true) = (built, is_inside) else {
        return false;
    };
    let matcher = built.compile_matcher();
    let plain = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
    let parts: Vec<&str> = relative.split('/').collect();
    let start: Vec<&str> = parts.iter().copied().take_while(plain).collect();
    let names_dots = parts[start.len()..]
        .iter()
        .any(|part| part.starts_with('.'));
    let is_shown = |name: &str| names_dots || !name.starts_with('.');
    if leads_through_link(root, &start) {
        return false;
    }
    WalkDir::new(root.join(start.join("/")))
        .follow_root_links(false)
        .into_iter()
        .filter_entry(|entry| {
            entry.depth() == 0 || entry.file_name().to_str().is_some_and(&is_shown)
        })
        .filter_map(std::result::Result::ok)
        .any(|entry| {
            let below = entry.path().strip_prefix(root);
            below.is_ok_and(|path| matcher.is_match(path))
        })
}

/// Whether a folder on the way to the last of these names is a link.
fn leads_through_link(root: &Path, names: &[&str]) -> bool {
    let folders = names.len().saturating_sub(1);
    (1..=folders).any(|count| root.join(names[..count].join("/")).is_symlink())
}
