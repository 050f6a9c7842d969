//! Paths that a workflow names: opened folder by folder inside the root, without following links.
//!
//! A path is relative to the root or begins with the root's path. Anything else is refused before
//! anything is opened.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::disk::root::Root;
use crate::disk::safety::Dir;
use crate::disk::store::open_below;
use crate::text::error::{Fault, Kind, Result};

/// The parts of a path or glob inside the root; none if it is the root itself.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it leads out of the root.
pub fn parts<'p>(root: &Path, path: &'p str) -> io::Result<Vec<&'p str>> {
    let refuse = |why: &str| {
        let message = format!("`{}` {why}", path.escape_debug());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    };
    let inside = match root.to_str().and_then(|root| path.strip_prefix(root)) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ if path.starts_with('/') => return refuse("leads out of the root"),
        _ if path.trim().is_empty() => return refuse("is empty"),
        _ => path,
    };
    let parts: Vec<&str> = inside
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    if parts.contains(&"..") {
        return refuse("leads upwards by `..`");
    }
    if path.contains('\0') {
        return refuse("contains a NUL byte");
    }
    Ok(parts)
}

/// A path inside the root, relative to it.
///
/// # Errors
/// [`Kind::SafetyViolation`] if it leads out of the root.
pub fn relative(root: &Path, path: &str) -> Result<String> {
    match parts(root, path) {
        Ok(parts) => Ok(parts.join("/")),
        Err(e) => Err(Fault::new(Kind::SafetyViolation, e.to_string())
            .hint("a path is relative to the root and stays inside it")),
    }
}

/// Opens a folder inside the root; `None` is the root itself.
///
/// # Errors
/// [`Kind::SafetyViolation`] for a link on the way, [`Kind::FileNotFound`] if it does not exist.
pub fn folder(root: &Root, path: &str) -> Result<Option<Dir>> {
    let inside = relative(&root.path, path)?;
    let mut here: Option<Dir> = None;
    for part in inside.split('/').filter(|part| !part.is_empty()) {
        let dir = here.as_ref().unwrap_or(&root.dir);
        let next = dir.sub(part);
        here = Some(next.map_err(|e| not_opened(dir, part, &e))?);
    }
    Ok(here)
}

/// Opens a regular file inside the root.
///
/// # Errors
/// As [`folder`].
pub fn file(root: &Root, path: &str) -> Result<File> {
    let inside = relative(&root.path, path)?;
    open_below(&root.dir, &inside).map_err(|e| {
        let whole = root.path.join(&inside);
        match e.kind() {
            io::ErrorKind::NotFound => {
                Fault::new(Kind::FileNotFound, format!("there is no file `{inside}`"))
                    .hint("paths are relative to the root")
            }
            _ if has_link(&root.dir, &inside) => link(&whole),
            _ => Fault::io("read", whole, &e),
        }
    })
}

/// The text of a file inside the root.
///
/// # Errors
/// As [`file()`]; or it is longer than `limit`, or not UTF-8.
pub fn text(root: &Root, path: &str, limit: usize) -> Result<String> {
    let mut bytes = Vec::new();
    file(root, path)?
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Fault::io("read", root.path.join(path), &e))?;
    if bytes.len() > limit {
        let message = format!("`{path}` is longer than {limit} bytes");
        return Err(Fault::new(Kind::OutputTooLargeError, message)
            .hint("name the file in the prompt, and let the agent read it"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let message = format!("`{path}` is not UTF-8: byte {at}");
        Fault::new(Kind::InvalidTask, message).hint("save it as UTF-8")
    })
}

/// Writes a file inside the root, atomically; missing folders are created.
///
/// # Errors
/// [`Kind::SafetyViolation`] if the path leads out of the root, or over a link.
pub fn write(root: &Root, path: &str, bytes: &[u8]) -> Result<()> {
    let inside = relative(&root.path, path)?;
    let (here, name) = parent(root, &inside)?;
    let dir = here.as_ref().unwrap_or(&root.dir);
    replace(dir, name, bytes).map_err(|e| Fault::io("write", root.path.join(&inside), &e))
}

/// The folder of a file, created if missing, and the file's name. The path is relative to the root;
/// `None` is the root itself.
///
/// # Errors
/// [`Kind::SafetyViolation`] for a link on the way.
pub fn parent<'p>(root: &Root, inside: &'p str) -> Result<(Option<Dir>, &'p str)> {
    let (folders, name) = inside.rsplit_once('/').unwrap_or(("", inside));
    let mut here: Option<Dir> = None;
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        let dir = here.as_ref().unwrap_or(&root.dir);
        let next = dir.make(part);
        here = Some(next.map_err(|e| not_opened(dir, part, &e))?);
    }
    Ok((here, name))
}

/// Replaces a file or a link of this name; a link is never written through. Anything else stays.
fn replace(dir: &Dir, name: &str, bytes: &[u8]) -> io::Result<()> {
    let short: String = name.chars().take(40).collect();
    let temp = format!(".{short}.{}.orch", uuid::Uuid::now_v7().simple());
    let mut file = dir.create_new(&temp)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_data())
        .and_then(|()| dir.rename_over(&temp, name));
    if written.is_err() {
        let _ = dir.remove(&temp);
    }
    written
}

fn not_opened(dir: &Dir, name: &str, error: &io::Error) -> Fault {
    let whole = dir.path().join(name);
    let is_link = |meta: crate::disk::safety::Meta| meta.kind == rustix::fs::FileType::Symlink;
    if dir.look(name).is_ok_and(is_link) {
        return link(&whole);
    }
    let fault = Fault::io("open", &whole, error);
    match error.kind() {
        io::ErrorKind::NotFound => Fault {
            kind: Kind::FileNotFound,
            ..fault
        },
        _ => fault,
    }
}

fn link(path: &Path) -> Fault {
    let message = format!("`{}` is reached by a link", path.display());
    Fault::new(Kind::SafetyViolation, message)
        .hint("links may lead out of the root: replace it with the file or folder itself")
}

fn has_link(dir: &Dir, inside: &str) -> bool {
    let mut here: Option<Dir> = None;
    for part in inside.split('/') {
        let dir = here.as_ref().unwrap_or(dir);
        match dir.look(part) {
            Ok(meta) if meta.kind == rustix::fs::FileType::Symlink => return true,
            Ok(meta) if meta.kind == rustix::fs::FileType::Directory => {}
            _ => return false,
        }
        match dir.sub(part) {
            Ok(next) => here = Some(next),
            Err(_) => return false,
        }
    }
    false
}
