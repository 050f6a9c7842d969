//! The spec of a run: the files that it is pinned to, copied and hashed at its start.
//!
//! They lie under `workspace/<run>/spec/` by the paths that they have below the root, with
//! `MANIFEST.json` beside them. Nothing here reads the user's `specs/`, and a copy whose hash differs
//! is never handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::{read_below, sha256};
use crate::disk::{Disk, Point, at};
use crate::error::{Fault, Kind, Result};
use crate::safety::Dir;

const FOLDER: &str = "spec";
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

    /// Copies the files to the folder of a run that has not begun, over what is there of an earlier try.
    pub(super) fn write(&self, run: &Dir, disk: Disk) -> Result<()> {
        self.check()?;
        let path = run.path().join(FOLDER);
        let written = || -> io::Result<()> {
            at(Point::RunSpec)?;
            let top = run.make(FOLDER)?;
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

/// Reads the spec of a run back; every byte must be as it was at its start.
pub(super) fn read(run: &Dir) -> Result<Spec> {
    let (manifest, top) = manifest(run)?;
    let mut spec = Spec {
        workflow: manifest.workflow,
        files: BTreeMap::new(),
    };
    for (path, expected) in manifest.files {
        let bytes = verified(&top, &path, &expected).map_err(|why| changed(run, &path, &why))?;
        spec.files.insert(path, bytes);
    }
    match spec.files.contains_key(&spec.workflow) {
        true => Ok(spec),
        false => Err(changed(
            run,
            MANIFEST,
            "names a workflow that is not among the files",
        )),
    }
}

/// The manifest of a run's spec, and the folder that it lies in.
pub(crate) fn manifest(run: &Dir) -> Result<(Manifest, Dir)> {
    let top = run
        .sub(FOLDER)
        .map_err(|e| changed(run, "", &e.to_string()))?;
    let bytes = read_below(&top, MANIFEST).map_err(|e| changed(run, MANIFEST, &e.to_string()))?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|e| changed(run, MANIFEST, &e.to_string()))?;
    Ok((manifest, top))
}

/// The bytes of a file whose hash is the expected one, or what is wrong with it.
pub(crate) fn verified(top: &Dir, path: &str, expected: &str) -> Result<Vec<u8>, String> {
    if !is_plain_path(path) {
        return Err("is not a path below the spec".to_owned());
    }
    match read_below(top, path) {
        Ok(bytes) if sha256(&bytes) == expected => Ok(bytes),
        Ok(_) => Err("was changed after the run began".to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err("is missing".to_owned()),
        Err(e) => Err(format!("cannot be read: {e}")),
    }
}

fn changed(run: &Dir, path: &str, why: &str) -> Fault {
    let shown = run.path().join(FOLDER).join(path);
    Fault::new(
        Kind::SafetyViolation,
        format!("`{}` {why}", shown.display()),
    )
    .hint(
        "a run is pinned to its copy of the spec; start a new run, or put the file back as it was",
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
