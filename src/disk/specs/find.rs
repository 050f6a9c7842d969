//! Lists workflows, and finds the one that the user names.

use std::io;
use std::path::Path;

use super::read_text;
use crate::spec::{provider, settings};
use crate::text::error::{Fault, Kind, Result};
use crate::text::suggest;

/// The extensions of workflow files.
const ENDINGS: [&str; 2] = [".yaml", ".yml"];

/// A workflow's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path for messages: from the root, or as the user gave it.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// The workflow files in `specs/`, as sorted paths from the root: all YAML files except settings and
/// providers.
#[must_use]
pub fn workflows(root: &Path) -> Vec<String> {
    let is_workflow = |name: &&String| stem(name).is_some() && !name.starts_with('.');
    let is_other = |file: &str| [settings::FILE, provider::FILE].contains(&file);
    let names = names_in(&root.join("specs"));
    names
        .iter()
        .filter(is_workflow)
        .map(|name| format!("specs/{name}"))
        .filter(|file| !is_other(file) && !root.join(file).is_dir())
        .collect()
}

/// Finds a workflow by its name in `specs/` or by its path from the working directory.
///
/// # Errors
/// There is none, there are two, or it cannot be read.
pub fn find(root: &Path, word: &str) -> Result<Found> {
    if word.contains('/') || stem(word).is_some() {
        return by_path(root, word);
    }
    let files = workflows(root);
    let same: Vec<&String> = files
        .iter()
        .filter(|file| stem(file) == Some(word))
        .collect();
    match same.as_slice() {
        [] => Err(unknown(word, &files)),
        [file, ..] => load(root, file),
    }
}

/// Reads one of [`workflows`].
///
/// # Errors
/// It cannot be read, or both `NAME.yaml` and `NAME.yml` exist.
pub fn load(root: &Path, file: &str) -> Result<Found> {
    refuse_twins(root, file)?;
    match read_text(&root.join(file)).map_err(invalid)? {
        Some(text) => Ok(Found {
            file: file.to_owned(),
            text,
        }),
        None => Err(no_file(root, file)),
    }
}

fn refuse_twins(root: &Path, file: &str) -> Result<()> {
    let Some(stem) = stem(file).filter(|_| file.split('/').count() == 2) else {
        return Ok(());
    };
    let twins = ENDINGS.map(|ending| format!("specs/{stem}{ending}"));
    if twins.iter().all(|twin| root.join(twin).is_file()) {
        let message = format!("`{stem}` is both `{}` and `{}`", twins[0], twins[1]);
        return Err(Fault::new(Kind::UnknownWorkflow, message).hint("rename one of them"));
    }
    Ok(())
}

/// A path from the working directory; `specs/x.yaml` is also found from elsewhere.
fn by_path(root: &Path, word: &str) -> Result<Found> {
    match read_text(Path::new(word)).map_err(invalid)? {
        Some(text) => Ok(Found {
            file: word.to_owned(),
            text,
        }),
        None if super::is_inside_specs(word) => load(root, word),
        None => Err(no_file(root, word)),
    }
}

fn no_file(root: &Path, word: &str) -> Fault {
    let fault = Fault::new(Kind::UnknownWorkflow, format!("there is no file `{word}`"));
    let known = workflows(root);
    let stems: Vec<&str> = known.iter().filter_map(|file| stem(file)).collect();
    let name = stem(word).unwrap_or_default();
    let near = suggest::suggest(name, stems.iter().copied());
    match near.or_else(|| stems.contains(&name).then_some(name)) {
        Some(near) => fault.hint(format!("did you mean `{near}`, which is in specs/?")),
        None => fault.hint("a path is taken from the working directory"),
    }
}

fn unknown(word: &str, files: &[String]) -> Fault {
    let stems: Vec<&str> = files.iter().filter_map(|file| stem(file)).collect();
    let hint = suggest::hint(word, &stems).unwrap_or_else(|| {
        format!("there are no workflows in specs/ yet: write specs/{word}.yaml")
    });
    Fault::new(
        Kind::UnknownWorkflow,
        format!("there is no workflow `{word}`"),
    )
    .hint(hint)
}

/// An unreadable workflow is not an error in the settings.
fn invalid(fault: Fault) -> Fault {
    match fault.kind {
        Kind::InvalidSettings => Fault {
            kind: Kind::WorkflowValidationError,
            ..fault
        },
        _ => fault,
    }
}

/// The name of a workflow file without folder and extension, if it has one of the extensions.
fn stem(file: &str) -> Option<&str> {
    let name = file.rsplit('/').next().unwrap_or_default();
    let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    stem.filter(|stem| !stem.is_empty())
}

/// The names in a folder that are UTF-8, sorted; none if the folder does not exist.
pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(io::Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}
