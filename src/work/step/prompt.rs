//! The prompt of an agent's step: its file, its text, the files that it depends on, and what was
//! wrong with the answer before.

use std::io::Read;

use super::prepare::View;
use crate::disk::safety::Meta;
use crate::disk::{globs, paths};
use crate::run::inject::{self, Found};
use crate::spec::workflow::model::{AgentWork, Human, InjectMode, Text};
use crate::text::error::{Fault, Kind, Result};

/// The paths that a step depends on, relative to the root; all of the required ones are there.
///
/// # Errors
/// [`Kind::DependencyNotFoundError`], and whatever is wrong with a glob.
pub(super) fn dependencies(view: &View<'_>) -> Result<Vec<String>> {
    let depends = &view.step.depends_on;
    let mut all = Vec::new();
    let mut counted = Vec::new();
    for text in &depends.required {
        let (glob, found) = matched(view, text)?;
        counted.push((glob, found.len()));
        all.extend(found);
    }
    inject::require(counted.iter().map(|(glob, count)| (glob.as_str(), *count)))?;
    for text in &depends.optional {
        all.extend(matched(view, text)?.1);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

pub(super) fn matched(view: &View<'_>, text: &Text) -> Result<(String, Vec<String>)> {
    let root = &view.source.root().path;
    let glob = view.fill(text)?;
    paths::relative(root, &glob)?;
    match globs::matches(root, &glob) {
        Ok(found) => Ok((glob, found)),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => Err(Fault::new(
            Kind::WorkflowValidationError,
            format!("`{glob}`: {e}"),
        )),
        Err(e) => Err(Fault::io("look for", glob, &e)),
    }
}

/// What a step says itself.
#[derive(Clone, Copy)]
pub(super) struct PromptParts<'w> {
    /// A file that comes first.
    pub input_file: Option<&'w Text>,
    /// A text.
    pub prompt: Option<&'w Text>,
}

impl<'w> From<&'w AgentWork> for PromptParts<'w> {
    fn from(work: &'w AgentWork) -> Self {
        PromptParts {
            input_file: work.input_file.as_ref(),
            prompt: work.prompt.as_ref(),
        }
    }
}

impl<'w> From<&'w Human> for PromptParts<'w> {
    fn from(human: &'w Human) -> Self {
        PromptParts {
            input_file: human.input_file.as_ref(),
            prompt: human.prompt.as_ref(),
        }
    }
}

/// The whole prompt. `in_root` says whether the agent works in the root, so that paths from there
/// mean something to it.
pub(super) fn compose(view: &View<'_>, words: PromptParts<'_>, in_root: bool) -> Result<String> {
    let mut prompt = match words.input_file {
        Some(path) => view.spec_or_file(&view.fill(path)?)?,
        None => String::new(),
    };
    if let Some(text) = words.prompt {
        add(&mut prompt, &view.fill_prompt(text)?);
    }
    let files = dependencies(view)?;
    if let Some(how) = &view.step.depends_on.inject {
        let found = files
            .into_iter()
            .map(|path| found(view, path, how.mode, in_root))
            .collect::<Result<Vec<_>>>()?;
        prompt = inject::inject(&prompt, found, how);
    }
    if let Some(again) = view.source.again {
        add(&mut prompt, again);
    }
    Ok(prompt)
}

/// Adds a text below another, an empty line between them.
fn add(prompt: &mut String, text: &str) {
    if !prompt.is_empty() {
        let end = if prompt.ends_with('\n') { "\n" } else { "\n\n" };
        prompt.push_str(end);
    }
    prompt.push_str(text);
}

pub(super) fn found(
    view: &View<'_>,
    path: String,
    mode: InjectMode,
    in_root: bool,
) -> Result<Found> {
    let root = view.source.root();
    let shown = match in_root {
        true => path.clone(),
        false => root.path.join(&path).display().to_string(),
    };
    let mut found = Found {
        path: shown,
        total: 0,
        start: Vec::new(),
    };
    let whole = root.path.join(&path);
    if mode == InjectMode::Content && !whole.is_dir() {
        let unread = |e: std::io::Error| Fault::io("read", &whole, &e);
        let file = paths::file(root, &path)?;
        found.total = Meta::of_file(&file).map_err(unread)?.size;
        file.take(inject::MAX_BYTES as u64)
            .read_to_end(&mut found.start)
            .map_err(unread)?;
    }
    Ok(found)
}
