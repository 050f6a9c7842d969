//! What this process knows of a run, so that nobody has to add up the log twice.
//!
//! The state that the log ends with is kept in memory, with how the files looked when it was the
//! truth. As long as they look the same, nothing is read; when they do not, what changed is followed
//! or found out. Nothing here decides what that means.

use std::sync::Arc;
use std::time::SystemTime;

use super::log::Log;
use crate::disk::safety::{FileId, Meta};
use crate::run::state::RunState;

/// A change within this time of a look may leave no trace in the times of a file: the clock that
/// stamps them is coarse.
const COARSE_NS: i128 = 40_000_000;

/// How a file looked: whatever is changed about it, this changes as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    id: FileId,
    size: u64,
    mtime_ns: i128,
    ctime_ns: i128,
}

impl Seal {
    pub(super) fn of(meta: &Meta) -> Seal {
        Seal {
            id: meta.id,
            size: meta.size,
            mtime_ns: meta.mtime_ns,
            ctime_ns: meta.ctime_ns,
        }
    }

    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// Whether the file was left alone for long enough that a later change will show.
    pub(super) fn is_settled(&self) -> bool {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_nanos().cast_signed());
        now - self.ctime_ns > COARSE_NS
    }
}

/// The end of a log, and the state that it adds up to.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) state: Arc<RunState>,
    pub(super) log: LogEnd,
    /// `state.json`, where it is there and was found true.
    pub(super) kept: Option<Kept>,
    /// How many bytes the log has that `state.json` does not know.
    pub(super) lag: u64,
}

/// How long a log was, and how it looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogEnd {
    pub(super) id: FileId,
    pub(super) len: u64,
    seal: Seal,
}

impl LogEnd {
    pub(super) fn of(log: &Log) -> LogEnd {
        LogEnd {
            id: log.meta().id,
            len: log.len(),
            seal: Seal::of(log.meta()),
        }
    }
}

/// `state.json` as it was when it was found true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) seal: Seal,
    pub(super) is_settled: bool,
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

impl Kept {
    pub(super) fn new(seal: Seal, bytes: &[u8]) -> Kept {
        Kept {
            is_settled: seal.is_settled(),
            sha256: super::sha256(bytes),
            bytes: bytes.len() as u64,
            seal,
        }
    }
}
