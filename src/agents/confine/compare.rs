//! Folders before and after an attempt: what was made, changed or removed there.
//!
//! Names, sizes, times, modes and owners are compared, not contents: the time of the last change of
//! an inode cannot be set back. A folder's own times are left out, as they only say that something
//! in it changed, which is found by itself.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

/// More files than this are not compared.
const MOST: usize = 200_000;

/// What is compared of one file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    mode: u32,
    owner: (u32, u32),
    /// Size and times; none of a folder.
    content: Option<(u64, i64, i64, i64, i64)>,
}

/// Some folders at one moment.
#[derive(Debug, Default)]
pub(super) struct Picture {
    stamps: BTreeMap<PathBuf, Stamp>,
    /// There was too much to be compared.
    pub cut: bool,
}

impl Picture {
    /// Looks at folders and files with everything below them. What `skip` names is left out.
    pub(super) fn take(tops: &[PathBuf], skip: &dyn Fn(&Path) -> bool) -> Picture {
        let mut picture = Picture::default();
        for top in tops {
            let walk = WalkDir::new(top).same_file_system(true).into_iter();
            let kept = walk.filter_entry(|entry| !skip(entry.path()));
            for entry in kept.filter_map(Result::ok) {
                if picture.stamps.len() >= MOST {
                    picture.cut = true;
                    return picture;
                }
                // What is gone between the listing and the look was never seen.
                if let Ok(meta) = entry.path().symlink_metadata() {
                    picture.stamps.insert(entry.into_path(), stamp(&meta));
                }
            }
        }
        picture
    }

    /// Every path that is not as it was, sorted.
    pub(super) fn changes<'p>(&'p self, later: &'p Picture) -> Vec<&'p Path> {
        let mut all: Vec<&Path> = Vec::new();
        for (path, stamp) in &self.stamps {
            if later.stamps.get(path) != Some(stamp) {
                all.push(path);
            }
        }
        let is_new = |path: &&PathBuf| !self.stamps.contains_key(*path);
        all.extend(later.stamps.keys().filter(is_new).map(PathBuf::as_path));
        all.sort_unstable();
        all
    }
}

fn stamp(meta: &std::fs::Metadata) -> Stamp {
    let times = || {
        (
            meta.size(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        )
    };
    Stamp {
        inode: (meta.dev(), meta.ino()),
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        content: (!meta.is_dir()).then(times),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn everything_that_can_be_done_to_a_file_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for name in ["same", "written", "replaced", "removed", "mode", "touched"] {
            fs::write(at(name), "1").unwrap();
        }
        fs::create_dir(at("folder")).unwrap();
        fs::create_dir(at("skipped")).unwrap();
        let tops = [temp.path().to_path_buf()];
        let skip = |path: &Path| path.ends_with("skipped");
        let before = Picture::take(&tops, &skip);
        fs::write(at("written"), "2").unwrap();
        fs::write(at("new"), "1").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        fs::remove_file(at("removed")).unwrap();
        fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        let touched = fs::File::options().write(true).open(at("touched")).unwrap();
        touched
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        fs::write(at("folder/made"), "").unwrap();
        fs::write(at("skipped/made"), "").unwrap();
        let after = Picture::take(&tops, &skip);
        let changed: Vec<_> = before
            .changes(&after)
            .into_iter()
            .map(|path| path.strip_prefix(temp.path()).unwrap().to_str().unwrap())
            .collect();
        let expected = [
            "folder/made",
            "mode",
            "removed",
            "replaced",
            "touched",
            "written",
        ];
        assert_eq!(changed, expected);
        assert!(before.changes(&before).is_empty());
    }
}
