//! Files that a model printed, written all or not at all.
//!
//! Everything is decided before anything is written: every path is checked, every file that is
//! patched is read, every hunk placed. What comes of it goes into a journal beside the run's state,
//! and then into its place, file by file. An attempt that finds the journal of one that died does
//! not look at the printed text again: it writes what the journal says.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Done, NotDone, Place, counted};
use crate::disk::order::{Point, at};
use crate::disk::paths;
use crate::disk::safety::Dir;
use crate::disk::store::{RunDir, sha256};
use crate::run::printed::{self, BadPath, Change};
use crate::run::state::Changes;
use crate::text::error::{Fault, Kind, Result};

/// No answer holds more files than this.
const MAX_FILES: usize = 1000;
/// No file that is patched is longer than this.
const MAX_BYTES: u64 = 16 << 20;
/// Folders of the root that a model's text never goes to.
const OWN: [&str; 6] = [
    "inbox",
    "artifacts",
    "processed",
    "logs",
    "specs",
    "workspace",
];

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printed<'a> {
    /// The step that printed it.
    pub(super) from: &'a str,
    /// Where it goes, relative to the root.
    pub(super) into: &'a str,
    pub(super) text: &'a str,
    /// Whether that step changed files there by itself.
    pub(super) wrote: bool,
}

/// What becomes of a file: its whole text, or nothing.
type Outcome = BTreeMap<String, Option<String>>;

#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    files: Outcome,
}

pub(super) fn apply(place: &Place<'_>, printed: &Printed<'_>) -> Result<Done, NotDone> {
    let name = journal_name(place.task);
    let files = match journal(place.run, &name)? {
        Some(journal) => journal.files,
        None => {
            let files = decide(place, printed)?;
            if files.is_empty() {
                return nothing(printed);
            }
            keep(place, &name, &files)
                .map_err(|e| Fault::io("write", place.run.dir().path().join(&name), &e))?;
            files
        }
    };
    for (path, text) in &files {
        put(place, path, text.as_deref())?;
    }
    Ok(told(&files))
}

/// Forgets the journal of a task that is committed.
pub fn forget(run: &RunDir, task: &str) {
    // A leftover is never looked at again: no other task has this name.
    let _ = run.dir().remove(&journal_name(task));
}

fn nothing(printed: &Printed<'_>) -> Result<Done, NotDone> {
    let from = printed.from;
    if printed.wrote {
        return Ok(Done {
            text: format!("nothing to write: `{from}` has written files itself"),
            json: json!({"files": [], "deleted": []}),
            changes: Changes::default(),
        });
    }
    let message =
        format!("there are no files in the output of `{from}`, and it has written none itself");
    let hint = "a model prints JSON `{\"files\": {path: text}}`, fenced blocks with a path, or a unified diff";
    Err(NotDone {
        exit_code: 1,
        ..NotDone::from(Fault::new(Kind::PatchError, message).hint(hint))
    })
}

fn told(files: &Outcome) -> Done {
    let entry = |(path, text): (&String, &Option<String>)| {
        let text = text.as_ref()?;
        Some(json!({"path": path, "bytes": text.len(), "sha256": sha256(text.as_bytes())}))
    };
    let written: Vec<Value> = files.iter().filter_map(entry).collect();
    let gone: Vec<&String> = files
        .iter()
        .filter(|(_, text)| text.is_none())
        .map(|(path, _)| path)
        .collect();
    let mut text = format!("{} written", counted(written.len(), "file"));
    if !gone.is_empty() {
        text.push_str(&format!(", {} deleted", gone.len()));
    }
    Done {
        text,
        json: json!({"files": written, "deleted": gone}),
        changes: Changes::default(),
    }
}

/// What becomes of each file, by its path from the root. Nothing is written.
fn decide(place: &Place<'_>, printed: &Printed<'_>) -> Result<Outcome, NotDone> {
    let refuse = |why: String| -> NotDone {
        let message = format!("the output of `{}` cannot be applied: {why}", printed.from);
        Fault::new(Kind::PatchError, message)
            .hint(
                "nothing was written; ask for whole files, or for a diff of the files as they are",
            )
            .into()
    };
    let changes = printed::read(printed.text).map_err(refuse)?;
    if changes.len() > MAX_FILES {
        return Err(refuse(format!(
            "it has {} files, more than {MAX_FILES}",
            changes.len()
        )));
    }
    let mut files = Outcome::new();
    for change in &changes {
        let path = target(place, printed.into, change.path())?;
        let before = match files.get(&path) {
            Some(text) => text.clone().map(String::into_bytes),
            None => present(place, &path).map_err(|why| match why {
                Present::Violation(fault) => NotDone::from(fault),
                Present::Unfit(why) => refuse(why),
            })?,
        };
        let after = match change {
            Change::Write { text, .. } => Some(text.clone()),
            Change::Patch(patch) => {
                let before = before.map(String::from_utf8).transpose();
                let before = before.map_err(|_| refuse(format!("`{path}` is not UTF-8")))?;
                printed::apply(patch, before.as_deref()).map_err(refuse)?
            }
        };
        files.insert(path, after);
    }
    let inside = |folder: &String, file: &String| {
        file.strip_prefix(folder.as_str())
            .is_some_and(|rest| rest.starts_with('/'))
    };
    for (folder, file) in files.keys().zip(files.keys().skip(1)) {
        if inside(folder, file) && files[folder].is_some() && files[file].is_some() {
            return Err(refuse(format!("`{folder}` is to be a file and a folder")));
        }
    }
    Ok(files)
}

/// The path of a printed file from the root: below `into`, and not in what is orch's own.
fn target(place: &Place<'_>, into: &str, path: &str) -> Result<String> {
    let violation = |why: &str| {
        let message = format!("the printed path `{}` {why}", path.escape_debug());
        Fault::new(Kind::SafetyViolation, message)
            .hint("files go below `into` and nowhere else; nothing was written")
    };
    let unfit = |message: String| Err(Fault::new(Kind::PatchError, message));
    let path = match printed::inside(path) {
        Ok(path) => path,
        Err(BadPath::Leads(how)) => return Err(violation(how)),
        Err(BadPath::NoFile) => {
            return unfit(format!(
                "the printed path `{}` names no file",
                path.escape_debug()
            ));
        }
        Err(BadPath::TooLong(bytes)) => {
            return unfit(format!(
                "a part of a printed path has {bytes} bytes, more than 255"
            ));
        }
    };
    let whole = match into {
        "" => path,
        into => format!("{into}/{path}"),
    };
    let files = format!("workspace/{}/files/", place.run.id());
    let first = whole.split('/').next().unwrap_or_default();
    match OWN.contains(&first) && !whole.starts_with(&files) {
        true => Err(violation(&format!(
            "leads to `{whole}`, which is orch's own"
        ))),
        false => Ok(whole),
    }
}

enum Present {
    Violation(Fault),
    Unfit(String),
}

impl From<Fault> for Present {
    fn from(fault: Fault) -> Self {
        Present::Violation(fault)
    }
}

/// What a file holds, `None` where there is none. A link on the way is a violation.
fn present(place: &Place<'_>, path: &str) -> Result<Option<Vec<u8>>, Present> {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut here: Option<Dir> = None;
    let looked = |dir: &Dir, name: &str| match dir.find(name) {
        Ok(found) => Ok(found.map(|meta| meta.kind)),
        Err(e) => Err(Fault::io("look at", dir.path().join(name), &e)),
    };
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        let dir = here.as_ref().unwrap_or(&place.root.dir);
        match looked(dir, part)? {
            None => return Ok(None),
            Some(FileType::Directory) => {}
            Some(FileType::Symlink) => return Err(link(dir, part).into()),
            Some(_) => return Err(Present::Unfit(format!("`{path}` lies in a file"))),
        }
        let next = dir
            .sub(part)
            .map_err(|e| Fault::io("open", dir.path().join(part), &e))?;
        here = Some(next);
    }
    let dir = here.as_ref().unwrap_or(&place.root.dir);
    match looked(dir, name)? {
        None => return Ok(None),
        Some(FileType::RegularFile) => {}
        Some(FileType::Symlink) => return Err(link(dir, name).into()),
        Some(FileType::Directory) => return Err(Present::Unfit(format!("`{path}` is a folder"))),
        Some(_) => return Err(Present::Unfit(format!("`{path}` is no plain file"))),
    }
    let mut bytes = Vec::new();
    dir.open(name)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| Fault::io("read", dir.path().join(name), &e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Present::Unfit(format!(
            "`{path}` is longer than {MAX_BYTES} bytes"
        )));
    }
    Ok(Some(bytes))
}

fn link(dir: &Dir, name: &str) -> Fault {
    let message = format!(
        "`{}` is a link, and nothing is written through one",
        dir.path().join(name).display()
    );
    Fault::new(Kind::SafetyViolation, message)
        .hint("files go below `into` and nowhere else; nothing was written")
}

fn journal_name(task: &str) -> String {
    format!("applying-{:.24}.json", sha256(task.as_bytes()))
}

fn journal(run: &RunDir, name: &str) -> Result<Option<Journal>> {
    let path = run.dir().path().join(name);
    let mut bytes = Vec::new();
    match run
        .dir()
        .open(name)
        .and_then(|mut file| file.read_to_end(&mut bytes))
    {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::io("read", &path, &e)),
        Ok(_) => {}
    }
    let read = serde_json::from_slice(&bytes).map(Some);
    read.map_err(|e| {
        let message = format!("`{}` is not what orch wrote: {e}", path.display());
        Fault::new(Kind::StateCorrupted, message)
    })
}

fn keep(place: &Place<'_>, name: &str, files: &Outcome) -> io::Result<()> {
    let journal = Journal {
        files: files.clone(),
    };
    let bytes = serde_json::to_vec(&journal)?;
    let (dir, temp) = (place.run.dir(), format!(".{name}.tmp"));
    at(Point::ApplyJournal)?;
    let mut file = dir.create_anew(&temp)?;
    file.write_all(&bytes)?;
    place.disk.sync_file(Point::ApplySync, &file)?;
    dir.rename_over(&temp, name)?;
    place.disk.sync_dir(Point::ApplySync, dir)
}

/// Writes or removes one file. Can be repeated.
fn put(place: &Place<'_>, path: &str, text: Option<&str>) -> Result<()> {
    // Once more: the folders are not ours alone.
    let there = match present(place, path) {
        Ok(there) => there,
        Err(Present::Violation(fault)) => return Err(fault),
        Err(Present::Unfit(why)) => return Err(Fault::new(Kind::PatchError, why)),
    };
    if there.as_deref() == text.map(str::as_bytes) {
        return Ok(());
    }
    let whole = place.root.path.join(path);
    let failed = |e: io::Error| Fault::io("write", &whole, &e);
    let (dir, name) = paths::parent(place.root, path)?;
    let dir = dir.as_ref().unwrap_or(&place.root.dir);
    match text {
        Some(text) => {
            super::replace(place.disk, dir, name, text.as_bytes(), &super::APPLY).map_err(failed)
        }
        None => {
            at(Point::ApplyRename).map_err(failed)?;
            dir.remove(name).map_err(failed)?;
            place.disk.sync_dir(Point::ApplySync, dir).map_err(failed)
        }
    }
}
