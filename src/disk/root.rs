//! The root: where it is, and the folders in it.
//!
//! A root is a folder with `inbox/` and `specs/orch.yaml`. Finding one uses paths that the user
//! gave; from then on everything goes through the handles of [`Root`].

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::disk::safety::{Dir, FileId};
use crate::text::error::{Fault, Kind, Result};

/// The folders that orch itself writes to, beside the user's `specs/`.
pub const RUNTIME_FOLDERS: [&str; 5] = ["inbox", "artifacts", "processed", "workspace", "logs"];

/// An opened root.
#[derive(Debug)]
pub struct Root {
    /// The absolute path, as it was when it was opened.
    pub path: PathBuf,
    /// The root itself.
    pub dir: Dir,
    /// Which folder it is: part of the markers that agents carry.
    pub id: FileId,
    /// Waiting and claimed tasks.
    pub inbox: Dir,
    /// Results.
    pub artifacts: Dir,
    /// Finished tasks.
    pub processed: Dir,
    /// Working directories of runs.
    pub workspace: Dir,
    /// Diagnostics and the watchers' locks.
    pub logs: Dir,
    /// Whether the file system must be polled, because changes can come from another machine.
    pub remote: bool,
}

impl Root {
    /// Opens the root: `--root` or `$ORCH_ROOT`, else the nearest parent folder that is one.
    pub fn discover(named: Option<&Path>) -> Result<Root> {
        match named {
            Some(path) => Root::open(path),
            None => Root::open(&nearest()?),
        }
    }

    /// The path of the root, for commands that only read `specs/`: nothing is opened or created.
    pub fn locate(named: Option<&Path>) -> Result<PathBuf> {
        match named {
            Some(path) => whole(path),
            None => whole(&nearest()?),
        }
    }

    /// Opens a root and creates the runtime folders that are missing.
    pub fn open(path: &Path) -> Result<Root> {
        let path = whole(path)?;
        let open = || -> io::Result<Root> {
            let dir = Dir::open_named_by_user(&path)?;
            Ok(Root {
                workspace: dir.make("workspace")?,
                id: dir.meta()?.id,
                inbox: dir.make("inbox")?,
                artifacts: dir.make("artifacts")?,
                processed: dir.make("processed")?,
                logs: dir.make("logs")?,
                remote: is_remote(&dir)?,
                path: path.clone(),
                dir,
            })
        };
        let root = open().map_err(|e| not_opened(&path, &e))?;
        root.check_one_file_system()?;
        Ok(root)
    }

    fn check_one_file_system(&self) -> Result<()> {
        for dir in [
            &self.inbox,
            &self.artifacts,
            &self.processed,
            &self.workspace,
            &self.logs,
        ] {
            let meta = dir
                .meta()
                .map_err(|e| Fault::io("look at", dir.path(), &e))?;
            if meta.id.dev != self.id.dev || dir.mount_id() != self.dir.mount_id() {
                return Err(Fault::new(
                    Kind::SafetyViolation,
                    format!(
                        "`{}` is on another file system or mount than the root",
                        dir.path().display()
                    ),
                )
                .hint("a task is claimed by an atomic rename, which works within one file system only; move the whole root"));
            }
        }
        Ok(())
    }
}

/// A link in the place of a folder gets its own message: it may lead anywhere.
fn not_opened(path: &Path, error: &io::Error) -> Fault {
    let hint = "inbox, artifacts, processed, workspace and logs must be real folders that you may write in, not links";
    match RUNTIME_FOLDERS
        .iter()
        .find(|name| path.join(name).is_symlink())
    {
        Some(link) => Fault::new(
            Kind::SafetyViolation,
            format!("`{}` is a link", path.join(link).display()),
        ),
        None => Fault::io("open the folders of the root", path, error),
    }
    .hint(hint)
}

/// The absolute path of a root, if it is one.
fn whole(path: &Path) -> Result<PathBuf> {
    let path = std::fs::canonicalize(path).map_err(|e| not_a_root(path, &e.to_string()))?;
    for needed in ["inbox", "specs/orch.yaml"] {
        if !path.join(needed).exists() {
            return Err(not_a_root(&path, &format!("it has no `{needed}`")));
        }
    }
    Ok(path)
}

fn nearest() -> Result<PathBuf> {
    let here =
        std::env::current_dir().map_err(|e| Fault::io("find the working directory", ".", &e))?;
    for folder in here.ancestors() {
        for candidate in [folder.to_path_buf(), folder.join(".orch")] {
            if candidate.join("inbox").is_dir() && candidate.join("specs/orch.yaml").is_file() {
                return Ok(candidate);
            }
        }
    }
    Err(Fault::new(
        Kind::FileNotFound,
        format!(
            "no orch root in `{}` or any folder above it",
            here.display()
        ),
    )
    .hint("`orch init` makes one here; `--root DIR` or ORCH_ROOT names one elsewhere"))
}

fn not_a_root(path: &Path, why: &str) -> Fault {
    Fault::new(
        Kind::FileNotFound,
        format!("`{}` is not an orch root: {why}", path.display()),
    )
    .hint(format!("`orch init {}` makes it one", path.display()))
}

/// NFS, SMB, 9p and FUSE: changes made elsewhere give no events here.
fn is_remote(dir: &Dir) -> io::Result<bool> {
    const REMOTE: [u64; 7] = [
        0x6969,      // NFS
        0x517b,      // SMB
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x6573_5546, // FUSE
        0x0102_1997, // 9p
        0x00c3_6400, // Ceph
    ];
    let kind = rustix::fs::fstatfs(dir.as_fd())?.f_type;
    Ok(REMOTE.contains(&(kind as u64 & 0xffff_ffff)))
}
