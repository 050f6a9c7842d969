//! Who may work in a folder: one task at a time, or the steps of one run that its workflow puts side
//! by side.
//!
//! A run only has two steps at work where its workflow says that they are parallel, so within one
//! watcher a folder is shared by run. Another watcher, and everything else, finds it taken.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::disk::lock::Locked;
use crate::disk::safety::Dir;
use crate::text::error::{Fault, Result};
use crate::work::job::Job;

/// Whether the folder that a task works in is free.
pub(crate) enum FolderLock {
    /// The task names no folder of its own.
    NotNeeded,
    /// It is ours while this lives.
    Held(#[expect(dead_code, reason = "held for its drop")] Arc<HeldFolder>),
    /// Another task works there.
    Busy,
}

/// A folder that is worked in.
#[derive(Debug)]
pub(crate) struct HeldFolder {
    /// The run whose steps share it; `None` shares it with nobody.
    run: Option<String>,
    _lock: Locked,
}

/// The folders that this watcher's tasks work in, by device and inode.
#[derive(Debug, Default)]
pub(super) struct WorkFolders(Mutex<HashMap<(u64, u64), Weak<HeldFolder>>>);

impl WorkFolders {
    pub(super) fn lock(&self, job: &Job) -> Result<FolderLock> {
        let Some(dir) = job.dir.as_ref().filter(|_| job.exclusive) else {
            return Ok(FolderLock::NotNeeded);
        };
        self.take(dir, job.task.header.run.as_deref())
            .map_err(|e| Fault::io("lock", dir.path(), &e))
    }

    fn take(&self, dir: &Dir, run: Option<&str>) -> io::Result<FolderLock> {
        let file = dir.reopen()?;
        let meta = file.metadata()?;
        let key = (meta.dev(), meta.ino());
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = held.get(&key).and_then(Weak::upgrade) {
            let shared = run.is_some() && there.run.as_deref() == run;
            return Ok(match shared {
                true => FolderLock::Held(there),
                false => FolderLock::Busy,
            });
        }
        held.retain(|_, there| there.strong_count() > 0);
        let Some(lock) = Locked::try_new(file)? else {
            return Ok(FolderLock::Busy);
        };
        let own = Arc::new(HeldFolder {
            run: run.map(str::to_owned),
            _lock: lock,
        });
        held.insert(key, Arc::downgrade(&own));
        Ok(FolderLock::Held(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_shared_by_the_steps_of_one_run_and_nobody_else() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        let (here, elsewhere) = (WorkFolders::default(), WorkFolders::default());
        let take = |dirs: &WorkFolders, run: Option<&str>| dirs.take(&dir, run).unwrap();
        let busy =
            |dirs: &WorkFolders, run: Option<&str>| matches!(take(dirs, run), FolderLock::Busy);
        let first = take(&here, Some("a"));
        let second = take(&here, Some("a"));
        assert!(matches!(first, FolderLock::Held(_)) && matches!(second, FolderLock::Held(_)));
        let refused = |why: &str| {
            assert!(busy(&here, Some("b")), "another run, {why}");
            assert!(busy(&here, None), "a bare task, {why}");
            assert!(busy(&elsewhere, Some("a")), "another watcher, {why}");
        };
        refused("with both at work");
        drop(first);
        refused("with one of two gone");
        drop(second);
        let bare = take(&here, None);
        assert!(matches!(bare, FolderLock::Held(_)));
        assert!(busy(&here, None) && busy(&here, Some("a")));
        drop(bare);
        assert!(!busy(&elsewhere, Some("b")));
    }
}
