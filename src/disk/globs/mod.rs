//! Globs over the files of a root: `*`, `?`, `**` and classes.
//!
//! The search uses handles, starts at the last folder that the pattern names without a wildcard, and
//! enters no folder that cannot lead to a match. Links are neither followed nor matched. A name that
//! begins with a dot is matched only by a part that begins with one.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use regex::Regex;
use rustix::fs::FileType;

mod wildcard;

#[cfg(test)]
mod tests;

use super::paths;
use crate::disk::safety::Dir;
use crate::run::state::Facts;

/// Folders nested deeper than this are not searched.
const MAX_DEPTH: usize = 128;

/// The files that a pattern matches, relative to the root, sorted bytewise. A folder matches only if the
/// pattern's last part is exactly its name.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for an invalid pattern, or one that leads out of the root.
pub fn matches(root: &Path, pattern: &str) -> io::Result<Vec<String>> {
    Ok(look(root, pattern)?.files)
}

/// The files that were found, and the folders that the result depends on.
#[derive(Debug, Default)]
pub struct Look {
    /// The files, as [`matches()`] gives them.
    pub files: Vec<String>,
    /// The folders that were searched. As long as nothing is added to or removed from them, another search
    /// finds the same.
    pub folders: Vec<Seen>,
}

/// A folder that was searched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Relative to the root; empty for the root itself.
    pub folder: String,
    /// The only name in it that matters; `None` if any does.
    pub name: Option<String>,
}

/// Searches for the files that a pattern matches.
///
/// # Errors
/// As [`matches()`].
pub fn look(root: &Path, pattern: &str) -> io::Result<Look> {
    let mut found = BTreeSet::new();
    let mut folders = Vec::new();
    let mut each = |path| {
        found.insert(path);
        true
    };
    let mut seen = |folder: &str, name: Option<&str>| {
        folders.push(Seen {
            folder: folder.to_owned(),
            name: name.map(str::to_owned),
        });
    };
    walk(root, pattern, &mut each, &mut seen)?;
    Ok(Look {
        // Strings are ordered by their bytes.
        files: found.into_iter().collect(),
        folders,
    })
}

/// Whether a pattern matches anything.
///
/// # Errors
/// As [`matches()`].
pub fn exists(root: &Path, pattern: &str) -> io::Result<bool> {
    let mut any = false;
    let mut each = |_| {
        any = true;
        false
    };
    walk(root, pattern, &mut each, &mut |_, _| {})?;
    Ok(any)
}

/// Which patterns match a file, for guards. An invalid pattern gets no answer, so that its guard is an
/// error and not false.
///
/// # Errors
/// If the disk cannot be read.
pub fn facts(root: &Path, wanted: &BTreeSet<String>) -> io::Result<Facts> {
    let mut facts = Facts::default();
    for glob in wanted {
        match exists(root, glob) {
            Ok(found) => {
                facts.exists.insert(glob.clone(), found);
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
            Err(e) => return Err(e),
        }
    }
    Ok(facts)
}

/// One part of a pattern, between two slashes.
enum Part {
    /// Exactly this name.
    Name(String),
    /// `**`: any number of folders.
    Any,
    /// A name with wildcards, and whether it begins with a dot.
    Like(Regex, bool),
}

impl Part {
    fn parse(text: &str) -> io::Result<Part> {
        if text == "**" {
            return Ok(Part::Any);
        }
        if !text.contains(['*', '?', '[', ']', '{', '}', '\\']) {
            return Ok(Part::Name(text.to_owned()));
        }
        let hidden = text.starts_with('.') || text.starts_with("\\.");
        Ok(Part::Like(wildcard::compile(text)?, hidden))
    }

    fn takes(&self, name: &str) -> bool {
        match self {
            Part::Name(own) => own == name,
            Part::Any => !name.starts_with('.'),
            Part::Like(glob, hidden) => (*hidden || !name.starts_with('.')) && glob.is_match(name),
        }
    }
}

/// Called with every folder before it is searched, and with the only name in it that matters.
type OnFolder<'f> = dyn FnMut(&str, Option<&str>) + 'f;

fn walk(
    root: &Path,
    pattern: &str,
    each: &mut dyn FnMut(String) -> bool,
    seen: &mut OnFolder<'_>,
) -> io::Result<()> {
    let texts = paths::parts(root, pattern)?;
    let parts = texts
        .iter()
        .map(|part| Part::parse(part))
        .collect::<io::Result<Vec<Part>>>()?;
    let Some((last, folders)) = parts.split_last() else {
        let message = format!("`{}` names no file", pattern.escape_debug());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let mut dir = Dir::open_named_by_user(root)?;
    let mut path = String::new();
    let mut at = 0;
    for part in folders {
        let Part::Name(name) = part else { break };
        seen(&path, Some(name));
        match absent_is_none(dir.sub(name))? {
            Some(next) => dir = next,
            None => return Ok(()),
        }
        path = join(&path, name);
        at += 1;
    }
    if let (Part::Name(name), true) = (last, at == folders.len()) {
        seen(&path, Some(name));
        let meta = absent_is_none(dir.look(name))?;
        if meta.is_some_and(|meta| is_file_or_folder(meta.kind)) {
            each(join(&path, name));
        }
        return Ok(());
    }
    let walk = Walk { parts: &parts };
    let places = walk.closed(BTreeSet::from([at]));
    walk.folder(&dir, &path, &places, (each, seen), 0)
        .map(|_| ())
}

/// A search below the folder where the wildcards begin. `places` are the indexes of the parts that may
/// match the next name.
struct Walk<'p> {
    parts: &'p [Part],
}

impl Walk<'_> {
    /// `**` may stand for no folder at all.
    fn closed(&self, mut places: BTreeSet<usize>) -> BTreeSet<usize> {
        for at in 0..self.parts.len() {
            if places.contains(&at) && matches!(self.parts[at], Part::Any) {
                places.insert(at + 1);
            }
        }
        places
    }

    /// Searches one folder; returns whether to continue.
    fn folder(
        &self,
        dir: &Dir,
        path: &str,
        places: &BTreeSet<usize>,
        (each, seen): (&mut dyn FnMut(String) -> bool, &mut OnFolder<'_>),
        depth: usize,
    ) -> io::Result<bool> {
        seen(path, None);
        for (name, kind) in entries(dir)? {
            let after = self.after(places, &name);
            let path = join(path, &name);
            let done = |at: &usize| self.is_whole(*at, &name, kind);
            if places.iter().any(done) && !each(path.clone()) {
                return Ok(false);
            }
            let deeper = after.iter().any(|at| *at < self.parts.len());
            if kind != FileType::Directory || !deeper || depth == MAX_DEPTH {
                continue;
            }
            if let Some(sub) = absent_is_none(dir.sub(&name))?
                && !self.folder(&sub, &path, &after, (&mut *each, &mut *seen), depth + 1)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether this name, matched by this part, ends the pattern.
    fn is_whole(&self, at: usize, name: &str, kind: FileType) -> bool {
        let last = at + 1 == self.parts.len();
        let right = match self.parts.get(at) {
            Some(Part::Name(_)) => is_file_or_folder(kind),
            _ => kind == FileType::RegularFile,
        };
        last && right && self.parts[at].takes(name)
    }

    fn after(&self, places: &BTreeSet<usize>, name: &str) -> BTreeSet<usize> {
        let mut next = BTreeSet::new();
        for &at in places {
            match self.parts.get(at) {
                Some(part) if part.takes(name) => match part {
                    Part::Any => next.insert(at),
                    _ => next.insert(at + 1),
                },
                _ => false,
            };
        }
        self.closed(next)
    }
}

/// The names in a folder that are UTF-8, with their types; none if the folder may not be read.
fn entries(dir: &Dir) -> io::Result<Vec<(String, FileType)>> {
    let mut found = Vec::new();
    let read = dir.entries(|name, kind| {
        if let Ok(name) = name.to_str() {
            found.push((name.to_owned(), kind));
        }
    });
    absent_is_none(read)?;
    for (name, kind) in &mut found {
        if *kind == FileType::Unknown
            && let Some(meta) = absent_is_none(dir.look(name))?
        {
            *kind = meta.kind;
        }
    }
    Ok(found)
}

fn is_file_or_folder(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::Directory)
}

/// What does not exist, may not be read or is a link matches nothing.
fn absent_is_none<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.kind(), NotFound | NotADirectory | PermissionDenied) => Ok(None),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Ok(None),
        Err(e) => Err(e),
    }
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}
