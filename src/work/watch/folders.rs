//! Watches on folders in which somebody waits for names: what came and what went, and nothing else.
//!
//! Like every watch they only wake. Contents do not matter here, and reading makes no events.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use notify::event::{EventKind, ModifyKind, RenameMode};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// This is there now, or is another one than before.
    Came(&'a Path),
    /// This is gone, and whatever was in it.
    Went(&'a Path),
    /// Events were lost: anything may have happened.
    Anything,
}

/// The watches. Dropping it ends them.
pub struct Folders {
    watcher: RecommendedWatcher,
    watched: HashSet<PathBuf>,
}

impl Folders {
    /// No folder yet; `changed` is called on a thread of the watcher's own.
    ///
    /// # Errors
    /// Where the system has no watcher left.
    pub fn new(changed: impl Fn(Change<'_>) + Send + 'static) -> notify::Result<Folders> {
        let handler = move |event: notify::Result<Event>| match event {
            Ok(event) => tell(&event, &changed),
            Err(_) => changed(Change::Anything),
        };
        Ok(Folders {
            watcher: notify::recommended_watcher(handler)?,
            watched: HashSet::new(),
        })
    }

    /// Watches a folder too.
    ///
    /// # Errors
    /// It is gone, or there are too many.
    pub fn add(&mut self, folder: &Path) -> notify::Result<()> {
        if !self.watched.contains(folder) {
            self.watcher.watch(folder, RecursiveMode::NonRecursive)?;
            self.watched.insert(folder.to_path_buf());
        }
        Ok(())
    }

    /// Watches it no longer.
    pub fn remove(&mut self, folder: &Path) {
        if self.watched.remove(folder) {
            // The kernel drops the watch with the folder; then there is nothing to remove.
            let _ = self.watcher.unwatch(folder);
        }
    }
}

fn tell(event: &Event, changed: &impl Fn(Change<'_>)) {
    if event.need_rescan() {
        return changed(Change::Anything);
    }
    for path in &event.paths {
        match event.kind {
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                changed(Change::Came(path));
            }
            // The second of its two paths came. That it is taken for gone costs one look.
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
                changed(Change::Went(path));
            }
            EventKind::Any | EventKind::Other => changed(Change::Anything),
            EventKind::Access(_) | EventKind::Modify(_) => {}
        }
    }
}
