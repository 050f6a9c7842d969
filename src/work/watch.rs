//! Wakeup-ups: what the kernel says happened in the inboxes. They only wake; the scan is the truth.
//!
//! Events of our own reading are dropped here, or a scan would wake itself. Nothing in this
//! module opens, reads or changes a task.

mod folders;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use crate::agents::process::is_watcher_lock;
use crate::disk::mailbox::{ANSWERS, CLAIMED, TASK};

pub use folders::{Change, Folders};

/// Why the engine is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wakeup {
    /// There may be something to claim: scan.
    Scan,
    /// This task may be there to be claimed: look at it, and scan.
    Task(PathBuf),
    /// A claim went away: a worker may have lost its task.
    ClaimGone,
}

/// Watches on the inbox, on every agent's folder in it, and on the watchers' locks in `logs/`: a
/// watcher that dies closes its lock, and what it leaves is there to be taken over. Dropping it
/// ends them.
pub struct Watch {
    watcher: RecommendedWatcher,
    watched: HashSet<PathBuf>,
}

impl Watch {
    /// Puts the watch on; `wake` is called on a thread of the watcher's own.
    pub fn on(
        folders: [&Path; 2],
        wake: Arc<dyn Fn(Wakeup) + Send + Sync>,
    ) -> notify::Result<Watch> {
        let handler = move |event: notify::Result<Event>| match event {
            Ok(event) => {
                if let Some(why) = classify(&event) {
                    wake(why);
                }
            }
            // What was lost is unknown: only a scan can tell.
            Err(_) => wake(Wakeup::Scan),
        };
        let mut watch = Watch {
            watcher: notify::recommended_watcher(handler)?,
            watched: HashSet::new(),
        };
        for folder in folders {
            watch.add(folder)?;
        }
        Ok(watch)
    }

    /// Watches a folder too. Gives whether that is new: then it has to be scanned once more.
    pub fn add(&mut self, folder: &Path) -> notify::Result<bool> {
        if self.watched.contains(folder) {
            return Ok(false);
        }
        self.watcher.watch(folder, RecursiveMode::NonRecursive)?;
        self.watched.insert(folder.to_path_buf());
        Ok(true)
    }

    /// Forgets the folders that are no longer wanted, so that a new folder of the same name is
    /// watched again.
    pub fn keep_only(&mut self, wanted: &HashSet<PathBuf>) {
        let gone: Vec<_> = self.watched.difference(wanted).cloned().collect();
        for folder in gone {
            // The kernel drops the watch with the folder; then there is nothing to remove.
            let _ = self.watcher.unwatch(&folder);
            self.watched.remove(&folder);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("watched", &self.watched)
            .finish_non_exhaustive()
    }
}

fn classify(event: &Event) -> Option<Wakeup> {
    if event.need_rescan() {
        return Some(Wakeup::Scan);
    }
    let last = event.paths.last()?;
    if is_watcher_lock(last) {
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let ended = event.kind == closed || matches!(event.kind, EventKind::Remove(_));
        return ended.then_some(Wakeup::Scan);
    }
    match event.kind {
        // A folder, or a file that appears whole (a link, a rename) or will be closed later.
        EventKind::Create(_) => is_news(last).then_some(Wakeup::Scan),
        // A task that is whole now.
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            is_task(last).then(|| whole(last))
        }
        EventKind::Modify(ModifyKind::Name(
            RenameMode::To | RenameMode::Any | RenameMode::Both,
        )) => is_news(last).then(|| whole(last)),
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) | EventKind::Remove(_) => {
            if has_suffix(last, CLAIMED) {
                return Some(Wakeup::ClaimGone);
            }
            // A folder that goes away may come back as another one.
            last.extension().is_none().then_some(Wakeup::Scan)
        }
        EventKind::Any | EventKind::Other => Some(Wakeup::Scan),
        EventKind::Access(_) | EventKind::Modify(_) => None,
    }
}

fn whole(path: &Path) -> Wakeup {
    match has_suffix(path, TASK) {
        true => Wakeup::Task(path.to_path_buf()),
        false => Wakeup::Scan,
    }
}

/// A task, an answer, or a name without a suffix of ours that may be an agent's folder.
fn is_news(path: &Path) -> bool {
    is_task(path) || path.extension().is_none()
}

fn is_task(path: &Path) -> bool {
    has_suffix(path, TASK) || ANSWERS.iter().any(|(suffix, _)| has_suffix(path, suffix))
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .ends_with(suffix.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{CreateKind, DataChange, Flag, RemoveKind};

    fn event(kind: EventKind, path: &str) -> Event {
        Event::new(kind).add_path(PathBuf::from(path))
    }

    #[test]
    fn our_own_reading_and_claiming_wakes_nobody() {
        let name = |mode| EventKind::Modify(ModifyKind::Name(mode));
        for (kind, path) in [
            (
                EventKind::Access(AccessKind::Open(AccessMode::Any)),
                "/i/a/x.task",
            ),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Read)),
                "/i/a/x.task",
            ),
            (
                EventKind::Modify(ModifyKind::Data(DataChange::Any)),
                "/i/a/x.task",
            ),
            (name(RenameMode::From), "/i/a/x.task"),
            (name(RenameMode::To), "/i/a/x.claimed"),
            (EventKind::Create(CreateKind::File), "/i/a/x.tmp"),
        ] {
            assert_eq!(classify(&event(kind, path)), None, "{kind:?} {path}");
        }
    }

    #[test]
    fn tasks_folders_answers_and_overflows_ask_for_a_scan() {
        let name = |mode| EventKind::Modify(ModifyKind::Name(mode));
        for (kind, path) in [
            (EventKind::Create(CreateKind::File), "/i/a/x.task"),
            (EventKind::Create(CreateKind::Folder), "/i/new-agent"),
            (name(RenameMode::To), "/i/human/x.reply"),
        ] {
            assert_eq!(
                classify(&event(kind, path)),
                Some(Wakeup::Scan),
                "{kind:?} {path}"
            );
        }
        for kind in [
            EventKind::Access(AccessKind::Close(AccessMode::Write)),
            name(RenameMode::To),
        ] {
            let named = Wakeup::Task(PathBuf::from("/i/a/x.task"));
            assert_eq!(classify(&event(kind, "/i/a/x.task")), Some(named));
        }
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert_eq!(classify(&overflow), Some(Wakeup::Scan));
    }

    #[test]
    fn the_end_of_another_watcher_asks_for_a_scan() {
        let lock = "/r/logs/watch-01a1e22a-1546-7356-a0bf-eb0422a82d32.lock";
        for kind in [
            EventKind::Access(AccessKind::Close(AccessMode::Write)),
            EventKind::Remove(RemoveKind::File),
        ] {
            assert_eq!(classify(&event(kind, lock)), Some(Wakeup::Scan), "{kind:?}");
        }
        let opened = EventKind::Access(AccessKind::Close(AccessMode::Read));
        assert_eq!(classify(&event(opened, lock)), None);
        let diagnostics = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        assert_eq!(classify(&event(diagnostics, "/r/logs/orch.jsonl")), None);
    }

    #[test]
    fn a_claim_that_goes_away_is_told_apart() {
        let gone = event(EventKind::Remove(RemoveKind::File), "/i/a/x.claimed");
        assert_eq!(classify(&gone), Some(Wakeup::ClaimGone));
    }
}
