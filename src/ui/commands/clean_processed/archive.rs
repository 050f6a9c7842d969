//! The archive that old tasks go into before they are removed: a new `.tar.gz`, whole or not there.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::disk::mailbox::{Old, OldFile, OldTask, Peek};
use crate::disk::root::{RUNTIME_FOLDERS, Root};
use crate::disk::safety::{Dir, Meta};
use crate::text::error::{Fault, Kind, Result};

/// Where the archive will be.
#[derive(Debug)]
pub(super) struct Target {
    folder: Dir,
    name: String,
    path: PathBuf,
}

impl Target {
    /// Refuses what exists, and what lies among the files that orch manages.
    pub(super) fn check(root: &Root, path: &Path) -> Result<Target> {
        let usage = |message: String| Fault::new(Kind::Usage, message);
        let shown = path.display();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| name.ends_with(".tar.gz") || name.ends_with(".tgz"))
        else {
            return Err(usage(format!("`{shown}` is not a name for an archive"))
                .hint("it ends in `.tar.gz` or `.tgz`"));
        };
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = std::fs::canonicalize(parent.unwrap_or(Path::new(".")))
            .map_err(|e| Fault::io("find the folder of", path, &e))?;
        if RUNTIME_FOLDERS
            .iter()
            .any(|folder| parent.starts_with(root.path.join(folder)))
        {
            return Err(usage(format!("`{shown}` is in a folder that orch manages"))
                .hint("put the archive elsewhere"));
        }
        let folder =
            Dir::open_named_by_user(&parent).map_err(|e| Fault::io("open", &parent, &e))?;
        if folder
            .has(name)
            .map_err(|e| Fault::io("look at", path, &e))?
        {
            return Err(exists(path));
        }
        Ok(Target {
            folder,
            name: name.to_owned(),
            path: path.to_path_buf(),
        })
    }
}

/// Writes everything old into the archive and makes it durable. What changed since it was found is
/// left out, of the archive and of `old`.
pub(super) fn write(root: &Root, target: &Target, old: &mut Old) -> Result<()> {
    let temp = format!(".orch-{}.tmp", uuid::Uuid::now_v7());
    let io = |e: io::Error| Fault::io("write", &target.path, &e).hint("nothing was removed");
    let file = target.folder.create_new(&temp).map_err(io)?;
    let written = fill(root, file, old).map_err(io).and_then(|()| {
        match target
            .folder
            .rename_new(&temp, &target.folder, &target.name)
        {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(exists(&target.path)),
            other => other.and_then(|()| target.folder.sync()).map_err(io),
        }
    });
    if written.is_err() {
        // Under its own name it may be there already; then it is whole, and stays.
        let _ = target.folder.remove(&temp);
    }
    written
}

fn fill(root: &Root, file: File, old: &mut Old) -> io::Result<()> {
    let packer = GzEncoder::new(
        BufWriter::with_capacity(1 << 20, file),
        Compression::default(),
    );
    let mut tar = tar::Builder::new(packer);
    let mut peek: Option<Peek> = None;
    let mut trouble = Ok(());
    old.tasks.retain(|task| {
        if trouble.is_err() {
            return true;
        }
        add(root, &mut peek, &mut tar, task).unwrap_or_else(|e| {
            trouble = Err(e);
            true
        })
    });
    trouble?;
    let file = tar
        .into_inner()?
        .finish()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    file.sync_all()
}

/// Adds a task, and gives whether it was still as it had been found.
fn add(
    root: &Root,
    peek: &mut Option<Peek>,
    tar: &mut tar::Builder<impl Write>,
    task: &OldTask,
) -> io::Result<bool> {
    let folders = match peek {
        Some(folders) if folders.agent == task.agent => folders,
        _ => peek.insert(Peek::at(root, &task.agent)?),
    };
    if !task.is_unchanged(folders)? {
        return Ok(false);
    }
    for old in &task.files {
        let Some(dir) = old.area.of(folders) else {
            return Ok(false);
        };
        let file = match dir.open(&old.file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let meta = Meta::of_file(&file)?;
        if !old.is(&meta) {
            return Ok(false);
        }
        let path = format!("{}/{}/{}", old.area.as_str(), task.agent, old.file);
        append(tar, &path, file, old, &meta)?;
    }
    Ok(true)
}

fn append(
    tar: &mut tar::Builder<impl Write>,
    path: &str,
    file: File,
    old: &OldFile,
    meta: &Meta,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(old.size);
    header.set_mode(0o644);
    header.set_mtime(u64::try_from(meta.mtime_ns / 1_000_000_000).unwrap_or(0));
    let mut counted = Counted {
        inner: file.take(old.size),
        bytes: 0,
    };
    tar.append_data(&mut header, path, &mut counted)?;
    if counted.bytes != old.size {
        return Err(io::Error::other(format!(
            "`{path}` became shorter while it was read"
        )));
    }
    Ok(())
}

/// A reader that knows how much was read.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.bytes += n as u64;
        Ok(n)
    }
}

fn exists(path: &Path) -> Fault {
    Fault::new(Kind::Usage, format!("`{}` exists already", path.display()))
        .hint("an archive is never overwritten or added to; choose another name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;

    fn root() -> (tempfile::TempDir, Root) {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["specs", "inbox/a", "processed/a", "artifacts/a"] {
            fs::create_dir_all(temp.path().join(dir)).unwrap();
        }
        fs::write(temp.path().join("specs/orch.yaml"), "").unwrap();
        let root = Root::open(temp.path()).unwrap();
        (temp, root)
    }

    #[test]
    fn what_goes_in_comes_out_again() {
        let (temp, root) = root();
        let long = "n".repeat(190);
        for name in ["x", &long] {
            fs::write(
                temp.path().join(format!("processed/a/{name}.task")),
                "do it",
            )
            .unwrap();
            fs::write(
                temp.path().join(format!("artifacts/a/{name}.out")),
                "it is done",
            )
            .unwrap();
        }
        let soon = jiff::Timestamp::now().as_nanosecond() + 1_000_000_000;
        let mut old = Old::find(&root, soon).unwrap();
        let path = temp.path().join("old.tar.gz");
        write(&root, &Target::check(&root, &path).unwrap(), &mut old).unwrap();
        assert_eq!(old.tasks.len(), 2);
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).unwrap()));
        let mut found = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.insert(entry.path().unwrap().display().to_string(), text);
        }
        let expected = ["x", long.as_str()].into_iter().flat_map(|name| {
            [
                (format!("processed/a/{name}.task"), "do it".to_owned()),
                (format!("artifacts/a/{name}.out"), "it is done".to_owned()),
            ]
        });
        assert_eq!(found, expected.collect());
        let names: Vec<_> = fs::read_dir(temp.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert!(
            !names
                .iter()
                .any(|name| name.to_string_lossy().ends_with(".tmp")),
            "{names:?}"
        );
    }

    #[test]
    fn an_archive_is_new_and_lies_outside_the_managed_folders() {
        let (temp, root) = root();
        fs::write(temp.path().join("there.tar.gz"), "").unwrap();
        for bad in [
            "there.tar.gz",
            "processed/x.tar.gz",
            "artifacts/a/x.tgz",
            "x.zip",
            "no/x.tgz",
        ] {
            assert!(
                Target::check(&root, &temp.path().join(bad)).is_err(),
                "{bad}"
            );
        }
        assert!(Target::check(&root, &temp.path().join("new.tgz")).is_ok());
    }
}
