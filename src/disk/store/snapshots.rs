//! Locked decisions on disk: `workspace/<run>/snapshots/NAME.json`, in canonical form.
//!
//! A snapshot is written before the event that locks it, so that from the commit on one that is
//! missing, changed or replaced was tampered with. What a crash left of an event that never happened
//! is removed before the step is run again.

use std::io::{self, Write};

use rustix::fs::FileType;

use super::{RunDir, open_below};
use crate::disk::hash::sha256;
use crate::disk::order::{Disk, Point, at};
use crate::disk::safety::Dir;
use crate::run::state::RunState;
use crate::text::error::{Fault, Kind, Result};

const FOLDER: &str = "snapshots";

/// Writes a snapshot, over what an event that never happened left. Under the run's lock only.
pub(super) fn write(run: &Dir, disk: Disk, name: &str, text: &str) -> Result<()> {
    let path = run.path().join(FOLDER).join(file_name(name));
    let dir = folder(run)?;
    let (temp, file) = (format!(".{name}.new"), file_name(name));
    let written = || -> io::Result<()> {
        at(Point::RunSnapshotCreate)?;
        let mut open = dir.create_anew(&temp)?;
        at(Point::RunSnapshotWrite)?;
        open.write_all(text.as_bytes())?;
        disk.sync_file(Point::RunSnapshotSync, &open)?;
        at(Point::RunSnapshotRename)?;
        dir.make_way(&file)?;
        dir.rename_over(&temp, &file)?;
        disk.sync_dir(Point::RunSnapshotSyncFolder, &dir)
    };
    written().map_err(|e| Fault::io("write", path, &e))
}

/// That every locked decision is as it was locked.
pub(super) fn check(run: &RunDir, state: &RunState) -> Result<()> {
    for (name, snapshot) in &state.snapshots {
        let path = format!("{FOLDER}/{}", file_name(name));
        let why = match hash(&run.dir, &path) {
            Ok(hash) if snapshot["sha256"] == hash.as_str() => continue,
            Ok(_) => "was changed after it was locked".to_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                "is missing, and it was locked".to_owned()
            }
            Err(e) => format!("was locked, and cannot be read any more: {e}"),
        };
        let message = format!("`workspace/{}/{path}` {why}", run.id);
        return Err(tampered(message, &run.id));
    }
    Ok(())
}

/// Removes what no event of the log has locked. Under the run's lock only.
pub(super) fn clear_uncommitted(run: &RunDir, state: &RunState) -> Result<()> {
    let dir = folder(&run.dir)?;
    let cleared = || -> io::Result<()> {
        let mut names = Vec::new();
        dir.entries(|name, _| names.extend(name.to_str().ok().map(str::to_owned)))?;
        for file in names {
            let name = file.strip_suffix(".json").unwrap_or_default();
            let locked = state.snapshots.contains_key(name);
            if !locked && dir.look(&file)?.kind != FileType::Directory {
                dir.remove(&file)?;
            }
        }
        Ok(())
    };
    cleared().map_err(|e| Fault::io("clear", dir.path(), &e))
}

fn folder(run: &Dir) -> Result<Dir> {
    run.make(FOLDER).map_err(|e| {
        let is_other = |meta: crate::disk::safety::Meta| meta.kind != FileType::Directory;
        let path = run.path().join(FOLDER);
        match run.look(FOLDER).is_ok_and(is_other) {
            true => {
                let message = format!("`{}` is not a folder any more", path.display());
                Fault::new(Kind::SafetyViolation, message)
                    .hint("orch did not make it so; `orch reset` starts the run over")
            }
            false => Fault::io("open", path, &e),
        }
    })
}

fn tampered(message: String, run: &str) -> Fault {
    Fault::new(Kind::SafetyViolation, message).hint(format!(
        "a locked decision is never changed; `orch reset {run}` clears it and starts over"
    ))
}

fn file_name(name: &str) -> String {
    format!("{name}.json")
}

fn hash(dir: &Dir, path: &str) -> io::Result<String> {
    Ok(sha256(&open_below(dir, path)?)?.1)
}
