//! The spec of a run: the files that it is pinned to, copied and hashed at its start.
//!
//! They lie under `workspace/<run>/spec/` by the paths that they have below the root, with
//! `MANIFEST.json` beside them; the specs that a run had before are `spec~1/`, `spec~2/`. Nothing here
//! reads the user's `specs/`, and a copy whose hash differs is never handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::known::Seal;
use super::{read_below, sha256};
use crate::disk::order::{Disk, Point, at};
use crate::disk::safety::{Dir, FileId};
use crate::text::error::{Fault, Kind, Result};

pub(super) const FOLDER: &str = "spec";
const MANIFEST: &str = "MANIFEST.json";
/// How deep the folders of a spec may lie in each other.
const MAX_DEPTH: usize = 32;

/// The files of a run's spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    /// The path of the workflow among the files.
    pub workflow: String,
    /// The bytes of every file, by its path below the root, such as `specs/agents/x.md`.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// What `MANIFEST.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) workflow: String,
    pub(crate) files: BTreeMap<String, String>,
}

impl Spec {
    /// The bytes of the workflow.
    #[must_use]
    pub fn workflow_bytes(&self) -> &[u8] {
        self.files.get(&self.workflow).map_or(&[], Vec::as_slice)
    }

    /// The hash of the workflow's text, as the state holds it.
    #[must_use]
    pub fn workflow_sha256(&self) -> String {
        sha256(self.workflow_bytes())
    }

    /// One hash over all files and their names: that of the manifest.
    #[must_use]
    pub fn sha256(&self) -> String {
        sha256(&self.manifest())
    }

    fn manifest(&self) -> Vec<u8> {
        let hashed = |(path, bytes): (&String, &Vec<u8>)| (path.clone(), sha256(bytes));
        let manifest = Manifest {
            workflow: self.workflow.clone(),
            files: self.files.iter().map(hashed).collect(),
        };
        let mut text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        text.push(b'\n');
        text
    }

    fn check(&self) -> Result<()> {
        let bad = self.files.keys().find(|path| !is_plain_path(path));
        match bad {
            Some(path) => Err(Fault::new(
                Kind::SafetyViolation,
                format!(
                    "`{}` cannot be the path of a spec's file",
                    path.escape_debug()
                ),
            )
            .hint("a path is relative to the root and has no `..`")),
            None if !self.files.contains_key(&self.workflow) => Err(Fault::new(
                Kind::FileNotFound,
                format!("the spec has no file `{}`", self.workflow),
            )),
            None => Ok(()),
        }
    }

    /// Copies the files to a folder of a run that goes by nothing in it yet, over what is there of an
    /// earlier try.
    pub(super) fn write(&self, run: &Dir, folder: &str, disk: Disk) -> Result<()> {
        self.check()?;
        let path = run.path().join(folder);
        let written = || -> io::Result<()> {
            at(Point::RunSpec)?;
            let top = run.make(folder)?;
            clear(&top, MAX_DEPTH)?;
            for (path, bytes) in &self.files {
                write_below(&top, path, bytes, disk)?;
            }
            write_below(&top, MANIFEST, &self.manifest(), disk)?;
            self.sync_folders(&top, disk)
        };
        written().map_err(|e| Fault::io("write the spec to", path, &e))
    }

    fn sync_folders(&self, top: &Dir, disk: Disk) -> io::Result<()> {
        let parents = self
            .files
            .keys()
            .flat_map(|path| Path::new(path).ancestors().skip(1));
        let folders: BTreeSet<_> = parents.filter_map(Path::to_str).collect();
        for folder in folders {
            match folder {
                "" => disk.sync_dir(Point::RunSpecSync, top)?,
                folder => disk.sync_dir(Point::RunSpecSync, &make_below(top, folder)?)?,
            }
        }
        Ok(())
    }
}

/// How the files of a spec looked when their hashes were compared.
#[derive(Debug)]
pub(super) struct Seals {
    /// Which folder of the run they lie in.
    folder: String,
    /// The hash of the whole spec.
    sha256: String,
    /// Every folder and file, by its path below the spec.
    seals: Vec<(String, Seal)>,
    /// Whether any later change will show.
    are_settled: bool,
}

impl Seals {
    /// That nothing was changed since. Only where something looks different is anything read.
    pub(super) fn check(&mut self, run: &Dir) -> Result<()> {
        if self.are_settled && self.hold(run) {
            return Ok(());
        }
        let (spec, seals) = read_sealed(run, &self.folder)?;
        if spec.sha256() != self.sha256 {
            let place = format!("{}/{MANIFEST}", self.folder);
            return Err(changed(run, &place, "was changed after the run began"));
        }
        *self = seals;
        Ok(())
    }

    /// The folder itself, whatever its name is now.
    pub(super) fn folder_id(&self) -> Option<FileId> {
        self.seals.first().map(|(_, seal)| seal.id())
    }

    fn hold(&self, run: &Dir) -> bool {
        let Ok(top) = run.sub(&self.folder) else {
            return false;
        };
        let same = |(path, seal): &(String, Seal)| {
            let meta = match path.is_empty() {
                true => top.meta(),
                false => top.look_below(path),
            };
            meta.is_ok_and(|meta| Seal::of(&meta) == *seal)
        };
        self.seals.iter().all(same)
    }
}

/// Reads the spec of a run back, every byte as it was at its start, with nothing beside it; and how
/// its files looked before that.
pub(super) fn read_sealed(run: &Dir, folder: &str) -> Result<(Spec, Seals)> {
    let top = run.sub(folder).map_err(|e| unread(run, folder, &e))?;
    let mut seals = Vec::new();
    let listed = seal_all(&top, "", MAX_DEPTH, &mut seals);
    listed.map_err(|e| unread(run, folder, &e))?;
    let spec = read(run, folder, &top)?;
    let is_known = |path: &str| {
        let folder = || format!("{path}/");
        path.is_empty()
            || path == MANIFEST
            || spec.files.contains_key(path)
            || spec.files.keys().any(|file| file.starts_with(&folder()))
    };
    if let Some((path, _)) = seals.iter().find(|(path, _)| !is_known(path)) {
        let place = format!("{folder}/{path}");
        return Err(changed(run, &place, "was put there after the run began"));
    }
    let seals = Seals {
        folder: folder.to_owned(),
        sha256: spec.sha256(),
        are_settled: seals.iter().all(|(_, seal)| seal.is_settled()),
        seals,
    };
    Ok((spec, seals))
}

/// That a folder of a run holds a spec as it was written, and nothing beside it.
pub(crate) fn check_sealed(run: &Dir, folder: &str) -> Result<()> {
    read_sealed(run, folder).map(drop)
}

fn seal_all(
    dir: &Dir,
    path: &str,
    depth: usize,
    seals: &mut Vec<(String, Seal)>,
) -> io::Result<()> {
    seals.push((path.to_owned(), Seal::of(&dir.meta()?)));
    let mut names = Vec::new();
    dir.entries(|name, _| names.push(name.to_string_lossy().into_owned()))?;
    for name in names {
        let below = match path {
            "" => name.clone(),
            path => format!("{path}/{name}"),
        };
        let meta = dir.look(&name)?;
        match meta.kind {
            FileType::Directory if depth > 0 => {
                seal_all(&dir.sub(&name)?, &below, depth - 1, seals)?;
            }
            _ => seals.push((below, Seal::of(&meta))),
        }
    }
    Ok(())
}

/// Reads the files that the manifest names; all through one handle, so that they are of one spec.
fn read(run: &Dir, folder: &str, top: &Dir) -> Result<Spec> {
    let manifest = manifest_of(run, folder, top)?;
    let mut spec = Spec {
        workflow: manifest.workflow,
        files: BTreeMap::new(),
    };
    for (path, expected) in manifest.files {
        let place = format!("{folder}/{path}");
        match verified(top, &path, &expected) {
            Ok(bytes) => spec.files.insert(path, bytes),
            Err(Unfit::Unread(e)) => return Err(unread(run, &place, &e)),
            Err(why) => return Err(changed(run, &place, &why.to_string())),
        };
    }
    match spec.files.contains_key(&spec.workflow) {
        true => Ok(spec),
        false => Err(changed(
            run,
            &format!("{folder}/{MANIFEST}"),
            "names a workflow that is not among the files",
        )),
    }
}

/// That the manifest is the one with this hash, which the log names.
pub(super) fn check_hash(run: &Dir, sha256: &str) -> Result<()> {
    match hash_of(run, FOLDER)? == sha256 {
        true => Ok(()),
        false => {
            let place = format!("{FOLDER}/{MANIFEST}");
            Err(changed(run, &place, "was changed after the run began"))
        }
    }
}

/// The hash of the manifest in a folder of a run.
pub(super) fn hash_of(run: &Dir, folder: &str) -> Result<String> {
    let (manifest, _) = manifest_in(run, folder)?;
    let mut bytes = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    bytes.push(b'\n');
    Ok(sha256(&bytes))
}

/// The manifest of a run's spec, and the folder that it lies in.
pub(crate) fn manifest(run: &Dir) -> Result<(Manifest, Dir)> {
    manifest_in(run, FOLDER)
}

/// The same of a spec in this folder of the run.
pub(crate) fn manifest_in(run: &Dir, folder: &str) -> Result<(Manifest, Dir)> {
    let top = run.sub(folder).map_err(|e| unread(run, folder, &e))?;
    Ok((manifest_of(run, folder, &top)?, top))
}

fn manifest_of(run: &Dir, folder: &str, top: &Dir) -> Result<Manifest> {
    let place = format!("{folder}/{MANIFEST}");
    let bytes = read_below(top, MANIFEST).map_err(|e| unread(run, &place, &e))?;
    serde_json::from_slice(&bytes).map_err(|e| changed(run, &place, &e.to_string()))
}

/// What is wrong with a file of a spec.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("is not a path below the spec")]
    NoPath,
    #[error("was changed after the run began")]
    Changed,
    #[error("cannot be read: {0}")]
    Unread(io::Error),
}

/// The bytes of a file whose hash is the expected one, or what is wrong with it.
pub(crate) fn verified(top: &Dir, path: &str, expected: &str) -> Result<Vec<u8>, Unfit> {
    if !is_plain_path(path) {
        return Err(Unfit::NoPath);
    }
    let bytes = read_below(top, path).map_err(Unfit::Unread)?;
    match sha256(&bytes) == expected {
        true => Ok(bytes),
        false => Err(Unfit::Changed),
    }
}

/// What is not there, or is no file, was changed; whatever else the system says may pass.
fn unread(run: &Dir, path: &str, error: &io::Error) -> Fault {
    let is_gone = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
    );
    let is_link = error.raw_os_error() == Some(libc::ELOOP);
    let is_odd = error.raw_os_error().is_none();
    match is_gone || is_link || is_odd {
        true => changed(run, path, &format!("cannot be read: {error}")),
        false => Fault::io("read", run.path().join(path), error),
    }
}

/// A file of a spec, by its path from the run's folder, is not what it was.
pub(super) fn changed(run: &Dir, path: &str, why: &str) -> Fault {
    let shown = run.path().join(path);
    Fault::new(
        Kind::SafetyViolation,
        format!("`{}` {why}", shown.display()),
    )
    .hint(
        "a run is pinned to its copy of the spec, and cannot be started over without it: start a new run",
    )
}

/// Relative, of plain names, and not the manifest's own.
fn is_plain_path(path: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path != MANIFEST && path.split('/').all(plain) && path.split('/').count() <= MAX_DEPTH
}

fn make_below(top: &Dir, path: &str) -> io::Result<Dir> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let mut here = top.make(first)?;
    for part in rest.split('/').filter(|_| !rest.is_empty()) {
        here = here.make(part)?;
    }
    Ok(here)
}

fn write_below(top: &Dir, path: &str, bytes: &[u8], disk: Disk) -> io::Result<()> {
    at(Point::RunSpec)?;
    let mut file = match path.rsplit_once('/') {
        Some((folder, name)) => make_below(top, folder)?.create_new(name)?,
        None => top.create_new(path)?,
    };
    file.write_all(bytes)?;
    disk.sync_file(Point::RunSpecSync, &file)
}

/// Removes a folder of the run and everything in it, or what else has its name.
pub(super) fn remove(run: &Dir, folder: &str) -> io::Result<()> {
    if run.look(folder)?.kind != FileType::Directory {
        return run.remove(folder);
    }
    clear(&run.sub(folder)?, MAX_DEPTH)?;
    run.remove_dir(folder)
}

/// Removes what an earlier try left in the folder.
fn clear(dir: &Dir, depth: usize) -> io::Result<()> {
    let mut names = Vec::new();
    dir.entries(|name, _| names.push(name.to_string_lossy().into_owned()))?;
    for name in names {
        if dir.look(&name)?.kind != FileType::Directory {
            dir.remove(&name)?;
        } else if depth > 0 {
            clear(&dir.sub(&name)?, depth - 1)?;
            dir.remove_dir(&name)?;
        }
    }
    Ok(())
}
