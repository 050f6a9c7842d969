//! Files in the output of a model: a JSON document, fenced blocks with a path, or a diff.
//!
//! Pure: text in, changes or an error out. A path comes out as it was printed; [`inside`] checks it.
//! Nothing is guessed: half a file, or a hunk that could apply in two places, is an error.

mod diff;
mod fences;
mod path;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use diff::{Hunk, Patch, Side, apply};
pub use path::{BadPath, inside};

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its whole new text.
    Write {
        /// As it was printed.
        path: String,
        /// The whole text.
        text: String,
    },
    /// A diff that changes, creates or deletes it.
    Patch(Patch),
}

impl Change {
    /// The file, as it was printed.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Change::Write { path, .. } => path,
            Change::Patch(patch) => &patch.path,
        }
    }
}

/// Reads what was printed; empty if there are no files in it.
///
/// # Errors
/// One line, with the location.
pub fn read(text: &str) -> Result<Vec<Change>, String> {
    if let Some(document) = document(text) {
        return of_document(&document);
    }
    let mut changes = Vec::new();
    let mut outside = String::new();
    for piece in fences::pieces(text) {
        match piece {
            fences::Piece::Line(line) => {
                outside.push_str(line);
                outside.push('\n');
            }
            fences::Piece::Block(block) => changes.extend(of_block(&block)?),
        }
    }
    // A diff may be printed without a fence.
    if changes.is_empty() {
        changes = diff::read(&outside, 1)?;
    }
    twice(&changes)?;
    Ok(changes)
}

fn of_block(block: &fences::Block) -> Result<Vec<Change>, String> {
    if let Some(document) = document(&block.text) {
        return of_document(&document);
    }
    if diff::is_one(&block.text) && !block.path.as_deref().is_some_and(is_patch_file) {
        whole(block)?;
        return diff::read(&block.text, block.line + 1);
    }
    match &block.path {
        Some(path) => {
            whole(block)?;
            Ok(vec![Change::Write {
                path: path.clone(),
                text: block.text.clone(),
            }])
        }
        None => Ok(Vec::new()),
    }
}

fn is_patch_file(path: &str) -> bool {
    path.ends_with(".diff") || path.ends_with(".patch")
}

fn whole(block: &fences::Block) -> Result<(), String> {
    match block.closed {
        true => Ok(()),
        false => Err(format!(
            "the block that begins in line {} is not closed: the answer may have been cut off",
            block.line
        )),
    }
}

/// A JSON object with `files`.
fn document(text: &str) -> Option<Value> {
    let text = text.trim();
    if !text.starts_with('{') {
        return None;
    }
    let document: Value = serde_json::from_str(text).ok()?;
    document.get("files")?;
    Some(document)
}

fn of_document(document: &Value) -> Result<Vec<Change>, String> {
    let write = |path: &str, text: &Value| match text {
        Value::String(text) => Ok(Change::Write {
            path: path.to_owned(),
            text: text.clone(),
        }),
        _ => Err(format!(
            "the content of `{}` is not text",
            path.escape_debug()
        )),
    };
    let changes: Result<Vec<Change>, String> = match &document["files"] {
        Value::Object(files) => files.iter().map(|(path, text)| write(path, text)).collect(),
        Value::Array(files) => files
            .iter()
            .map(|file| {
                match (
                    file["path"].as_str(),
                    file.get("content").or(file.get("text")),
                ) {
                    (Some(path), Some(text)) => write(path, text),
                    _ => Err("an entry of `files` has no `path` or no `content`".to_owned()),
                }
            })
            .collect(),
        _ => Err("`files` is neither a map from paths to texts nor a list".to_owned()),
    };
    let changes = changes?;
    twice(&changes)?;
    Ok(changes)
}

/// Refuses a whole file that is given twice with different content.
fn twice(changes: &[Change]) -> Result<(), String> {
    for (index, change) in changes.iter().enumerate() {
        let Change::Write { path, text } = change else {
            continue;
        };
        let other = changes[..index].iter().find(|other| other.path() == path);
        match other {
            Some(Change::Write { text: before, .. }) if before == text => {}
            Some(_) => return Err(format!("`{}` is given twice", path.escape_debug())),
            None => {}
        }
    }
    Ok(())
}
