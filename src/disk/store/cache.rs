//! `state.json`: what the log adds up to, kept so that nobody has to add it up again.
//!
//! It is replaced whole by temp and rename and never synced: when it is lost, it is made anew. A
//! state that a newer orch wrote is refused and left as it is.

use std::io::{self, Read, Write};

use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::Value;

use super::STATE_FILE;
use super::known::{Kept, Seal};
use crate::disk::order::{Point, at};
use crate::disk::safety::{Dir, Meta};
use crate::run::state::{RunState, VERSION};
use crate::text::error::{Fault, Kind, Result};

const TEMP_FILE: &str = ".state.json.tmp";

/// A state that was read, and how its file looked.
pub(super) struct Cached {
    pub(super) state: RunState,
    pub(super) kept: Kept,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// What is kept, or nothing where it is missing or torn.
pub(super) fn read(dir: &Dir) -> Result<Option<Cached>> {
    let path = dir.path().join(STATE_FILE);
    let (bytes, seal) = match bytes(dir) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(Fault::new(
                Kind::SafetyViolation,
                format!("`{}` is not a plain file", path.display()),
            )
            .hint("orch did not make it so"));
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
    match parsed {
        Ok(mut state) => {
            state.version = VERSION;
            let kept = Kept::new(seal, &bytes);
            Ok(Some(Cached { state, kept }))
        }
        // Torn, it is no JSON at all; of an older version, it may be something else.
        Err(e) if version == u64::from(VERSION) && is_json(&bytes) => Err(Fault::new(
            Kind::StateCorrupted,
            format!("`{}` is not a state of a run: {e}", path.display()),
        )
        .hint("`orch audit` names what differs")),
        Err(_) => Ok(None),
    }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Value>(bytes).is_ok()
}

/// Whether it still is what it was, by its looks, or by its bytes where looks may deceive.
pub(super) fn is_same(dir: &Dir, kept: &mut Kept) -> Result<bool> {
    let failed = |e: io::Error| Fault::io("read", dir.path().join(STATE_FILE), &e);
    let found = dir.find(STATE_FILE).map_err(failed)?;
    if found.is_none_or(|meta| !meta.is_plain() || Seal::of(&meta) != kept.seal) {
        return Ok(false);
    }
    if kept.is_settled {
        return Ok(true);
    }
    let Some((bytes, seal)) = bytes(dir).map_err(failed)? else {
        return Ok(false);
    };
    let now = Kept::new(seal, &bytes);
    let same = now.sha256 == kept.sha256;
    *kept = now;
    Ok(same)
}

fn bytes(dir: &Dir) -> io::Result<Option<(Vec<u8>, Seal)>> {
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
    let mut bytes = Vec::with_capacity(usize::try_from(meta.size).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    Ok(Some((bytes, Seal::of(&meta))))
}

/// Replaces what is kept, under the run's lock.
pub(super) fn write(dir: &Dir, state: &RunState) -> io::Result<Kept> {
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
    // A rename stamps the file once more.
    let seal = Seal::of(&Meta::of_file(&file)?);
    Ok(Kept::new(seal, &bytes))
}
