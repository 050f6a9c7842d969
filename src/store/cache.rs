//! `state.json`: what the log adds up to, kept so that nobody has to add it up again.
//!
//! It is replaced whole by temp and rename and never synced: when it is lost, it is made anew. A
//! state that a newer orch wrote is refused and left as it is.

use std::io::{self, Read, Write};

use rustix::fs::FileType;
use serde::Deserialize;

use super::STATE_FILE;
use crate::disk::{Point, at};
use crate::error::{Fault, Kind, Result};
use crate::safety::{Dir, Meta};
use crate::state::{RunState, VERSION};

const TEMP_FILE: &str = ".state.json.tmp";

/// A state that was read, and how long its file is.
pub(super) struct Cached {
    pub(super) state: RunState,
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// What is kept, or nothing where it is missing or torn.
pub(super) fn read(dir: &Dir) -> Result<Option<Cached>> {
    let path = dir.path().join(STATE_FILE);
    let bytes = match bytes(dir) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(Fault::new(
                Kind::SafetyViolation,
                format!("`{}` is not a plain file", path.display()),
            )
            .hint("orch did not make it so; remove it, and it is made anew from the log"));
        }
        Err(e) => return Err(Fault::io("read", path, &e)),
    };
    let parsed = serde_json::from_slice::<RunState>(&bytes);
    let version = match &parsed {
        Ok(state) => u64::from(state.version),
        Err(_) => serde_json::from_slice::<Version>(&bytes).map_or(0, |v| v.version),
    };
    if version > u64::from(VERSION) {
        return Err(Fault::new(
            Kind::NewerVersion,
            format!(
                "`{}` has version {version}, and this orch knows {VERSION}",
                path.display()
            ),
        )
        .hint("a newer orch wrote it: use that one; nothing was changed"));
    }
    Ok(parsed.ok().map(|mut state| {
        state.version = VERSION;
        Cached {
            state,
            bytes: bytes.len() as u64,
        }
    }))
}

fn bytes(dir: &Dir) -> io::Result<Option<Vec<u8>>> {
    let mut file = match dir.open(STATE_FILE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        // What `O_NOFOLLOW` says of a link.
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
            return Err(io::ErrorKind::InvalidData.into());
        }
        other => other?,
    };
    let meta = Meta::of_file(&file)?;
    // Without the run's lock it may have been replaced since it was opened: then it has no name.
    let replaced = meta.kind == FileType::RegularFile && meta.links == 0;
    if !meta.is_plain() && !replaced {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces what is kept, under the run's lock; gives the length of the file.
pub(super) fn write(dir: &Dir, state: &RunState) -> io::Result<u64> {
    let mut bytes = serde_json::to_vec_pretty(state)?;
    bytes.push(b'\n');
    at(Point::RunStateWrite)?;
    let mut file = match dir.create_new(TEMP_FILE) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            dir.remove(TEMP_FILE)?;
            dir.create_new(TEMP_FILE)?
        }
        other => other?,
    };
    file.write_all(&bytes)?;
    at(Point::RunStateRename)?;
    dir.rename_over(TEMP_FILE, STATE_FILE)?;
    Ok(bytes.len() as u64)
}
