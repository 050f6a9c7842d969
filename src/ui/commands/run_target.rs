//! RUN and RUN/STEP, as commands take them beside AGENT/NAME.

use std::path::Path;
use std::sync::Arc;

use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::disk::store::{RunDir, Runs};
use crate::spec::task::AgentName;
use crate::text::error::Result;

/// A run that the user named.
pub(super) struct Named {
    pub root: Arc<Root>,
    pub run: RunDir,
}

/// The runs of a root, for commands that are not a watcher.
pub(super) fn runs(root: &Arc<Root>) -> Runs {
    Runs::new(root.clone(), Disk::new(Durability::Power))
}

/// Opens the run that a word stands for.
pub(super) fn open(root: Option<&Path>, word: &str) -> Result<Named> {
    let root = Arc::new(Root::discover(root)?);
    let runs = runs(&root);
    let run = runs.open(&runs.find(word)?)?;
    Ok(Named { root, run })
}

/// A run, and perhaps a step of it.
pub(super) struct RunStep {
    pub run: RunDir,
    pub step: Option<String>,
}

/// What a TARGET means if it means a run; nothing where it is AGENT/NAME.
///
/// What stands before the slash is an agent wherever there is one of that name.
pub(super) fn parse(root: &Arc<Root>, text: &str) -> Result<Option<RunStep>> {
    let runs = runs(root);
    let Some((first, step)) = text.split_once('/') else {
        let run = runs.open(&runs.find(text)?)?;
        return Ok(Some(RunStep { run, step: None }));
    };
    if step.is_empty() || step.contains('/') || is_agent(&root.path, first) {
        return Ok(None);
    }
    let found = match (runs.find(first), AgentName::parse(first)) {
        (Ok(id), _) => id,
        // It can only have been meant as a run.
        (Err(fault), Err(_)) => return Err(fault),
        (Err(_), Ok(_)) => return Ok(None),
    };
    Ok(Some(RunStep {
        run: runs.open(&found)?,
        step: Some(step.to_owned()),
    }))
}

/// The run that a word without a slash stands for, unless it is the name of an agent.
pub(super) fn unless_agent(root: &Arc<Root>, word: &str) -> Result<Option<RunDir>> {
    let word = word.trim_end_matches('/');
    if word.contains('/') || is_agent(&root.path, word) {
        return Ok(None);
    }
    let runs = runs(root);
    match (runs.find(word), AgentName::parse(word)) {
        (Ok(id), _) => runs.open(&id).map(Some),
        (Err(fault), _) if word == "last" => Err(fault),
        (Err(fault), Err(_)) => Err(fault),
        (Err(_), Ok(_)) => Ok(None),
    }
}

/// Whether there is anything of an agent of this name.
fn is_agent(root: &Path, name: &str) -> bool {
    let is_name = AgentName::parse(name).is_ok();
    let folders = ["inbox", "artifacts", "processed"];
    let has_folder = || {
        folders
            .iter()
            .any(|area| root.join(area).join(name).is_dir())
    };
    is_name && (has_folder() || root.join(format!("specs/agents/{name}.md")).is_file())
}
