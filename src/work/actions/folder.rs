//! What a folder looks like, so that it can be said later what has changed in it.

use std::collections::HashMap;

use rustix::fs::FileType;

use crate::disk::paths;
use crate::disk::root::Root;
use crate::disk::safety::{Dir, FileId};

/// No more entries than this are looked at.
const MOST: usize = 200_000;
/// Folders that lie deeper in each other than this are not looked at.
const MAX_DEPTH: usize = 128;

/// The files of a folder, each with what changes when it is written.
#[derive(Debug, Default, PartialEq)]
pub struct Looked {
    files: HashMap<String, (FileId, u64, i128, i128)>,
}

impl Looked {
    /// Looks at a folder, relative to the root. One that is not there has nothing in it.
    #[must_use]
    pub fn at(root: &Root, path: &str) -> Looked {
        let mut looked = Looked::default();
        match paths::folder(root, path) {
            Ok(Some(dir)) => looked.walk(&dir, "", 0),
            Ok(None) => looked.walk(&root.dir, "", 0),
            Err(_) => {}
        }
        looked
    }

    fn walk(&mut self, dir: &Dir, path: &str, depth: usize) {
        let mut names = Vec::new();
        let _ = dir.entries(|name, _| names.extend(name.to_str().ok().map(str::to_owned)));
        for name in names {
            let Ok(meta) = dir.look(&name) else { continue };
            let path = format!("{path}/{name}");
            if meta.kind != FileType::Directory {
                let seen = (meta.id, meta.size, meta.mtime_ns, meta.ctime_ns);
                self.files.insert(path, seen);
            } else if depth < MAX_DEPTH
                && self.files.len() < MOST
                && let Ok(sub) = dir.sub(&name)
            {
                self.walk(&sub, &path, depth + 1);
            }
        }
    }

    /// How many files have come, gone or changed since `before`.
    #[must_use]
    pub fn changed_since(&self, before: &Looked) -> usize {
        let new = self
            .files
            .iter()
            .filter(|(path, seen)| before.files.get(*path) != Some(*seen));
        let gone = before
            .files
            .keys()
            .filter(|path| !self.files.contains_key(*path));
        new.count() + gone.count()
    }
}
