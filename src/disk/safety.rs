//! The only way from a name to a file: folders held by handle, and names of one component.
//!
//! Everything that orch opens, creates, renames or removes under its root goes through a [`Dir`].
//! A `Dir` is opened once, beneath its parent's handle, with no symbolic link on the way
//! (`openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`), and a file in it is reached by a name
//! that has been checked to be a single component. So no name, link or race leads outside the root.
//!
//! This module must never take a path of more than one component from anyone but the user's own
//! command line and settings, and it must never follow a link below the root.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, Access, AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags,
};
use rustix::io::Errno;

/// Identifies a file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The device.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
}

/// The metadata of a file that orch uses.
#[derive(Debug, Clone, Copy)]
pub struct Meta {
    /// Which file it is.
    pub id: FileId,
    /// Its type.
    pub kind: FileType,
    /// How many names it has.
    pub links: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Last change of the content, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Last change of the inode, a rename included, in nanoseconds since 1970.
    pub ctime_ns: i128,
}

impl Meta {
    #[allow(
        clippy::useless_conversion,
        reason = "the type differs between architectures"
    )]
    fn of(stat: &fs::Stat) -> Meta {
        let nanos = |s: i64, n: u64| i128::from(s) * 1_000_000_000 + i128::from(n);
        Meta {
            id: FileId {
                dev: stat.st_dev,
                ino: stat.st_ino,
            },
            kind: FileType::from_raw_mode(stat.st_mode),
            links: u64::from(stat.st_nlink),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanos(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// What an open file is.
    pub fn of_file(file: &impl AsFd) -> io::Result<Meta> {
        Ok(Meta::of(&fs::fstat(file)?))
    }

    /// A regular file with no second name.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.kind == FileType::RegularFile && self.links == 1
    }
}

/// A folder, held by handle. `path` is for messages alone.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

const DIR_FLAGS: OFlags = OFlags::DIRECTORY
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

impl Dir {
    /// Opens a folder that the user named, links and all: the root, or one of `dirs`.
    pub fn open_named_by_user(path: &Path) -> io::Result<Dir> {
        let fd = fs::open(path, DIR_FLAGS, Mode::empty())?;
        Ok(Dir {
            fd,
            path: path.to_path_buf(),
        })
    }

    /// Opens the folder `name` in this one; a symbolic link is refused.
    pub fn sub(&self, name: &str) -> io::Result<Dir> {
        component(name)?;
        let fd = open_beneath(self.fd.as_fd(), name)?;
        Ok(Dir {
            fd,
            path: self.path.join(name),
        })
    }

    /// Opens the folder `name` in this one, making it first where it is missing.
    pub fn make(&self, name: &str) -> io::Result<Dir> {
        match self.sub(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => self.sub(name),
                    Err(e) => Err(e.into()),
                }
            }
            other => other,
        }
    }

    /// Where it was when it was opened, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this very folder, whatever its name is now, in this process and in a
    /// child before it executes another program.
    #[must_use]
    pub fn handle_path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// What the folder itself is.
    pub fn meta(&self) -> io::Result<Meta> {
        Meta::of_file(&self.fd)
    }

    /// The id of its mount, where the kernel gives it (5.8 and later). A rename fails between two mounts
    /// even of one file system.
    #[must_use]
    pub fn mount_id(&self) -> Option<u64> {
        let flags = StatxFlags::MNT_ID;
        let stat = fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, flags).ok()?;
        (stat.stx_mask & flags.bits() != 0).then_some(stat.stx_mnt_id)
    }

    /// Whether files may be made in it.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        match fs::accessat(&self.fd, ".", wanted, AtFlags::EACCESS) {
            // On any other error the first write will tell.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => false,
            _ => true,
        }
    }

    /// What `name` is, links not followed.
    pub fn look(&self, name: &str) -> io::Result<Meta> {
        component(name)?;
        Ok(Meta::of(&fs::statat(
            &self.fd,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?))
    }

    /// What is at a path below this folder; a link at its end is not followed. It opens nothing, and is
    /// only for comparing with an identity that is known: a folder on the way may be a link.
    pub fn look_below(&self, path: &str) -> io::Result<Meta> {
        path.split('/').try_for_each(component)?;
        Ok(Meta::of(&fs::statat(
            &self.fd,
            path,
            AtFlags::SYMLINK_NOFOLLOW,
        )?))
    }

    /// What `name` is, or `None` if it does not exist.
    pub fn find(&self, name: &str) -> io::Result<Option<Meta>> {
        match self.look(name) {
            Ok(meta) => Ok(Some(meta)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether anything has this name.
    pub fn has(&self, name: &str) -> io::Result<bool> {
        Ok(self.find(name)?.is_some())
    }

    /// Opens a file for reading. Never blocks on a fifo, never follows a link.
    pub fn open(&self, name: &str) -> io::Result<File> {
        self.open_with(name, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Creates a file that must not exist yet, for reading and writing.
    pub fn create_new(&self, name: &str) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Creates a file and removes what had its name; a folder is moved aside.
    pub fn create_anew(&self, name: &str) -> io::Result<File> {
        match self.create_new(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.make_way(name)?;
                match self.remove(name) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                    _ => self.create_new(name),
                }
            }
            other => other,
        }
    }

    /// Moves a folder that has the name of a file to `NAME~K.folder`.
    pub fn make_way(&self, name: &str) -> io::Result<()> {
        if self
            .find(name)?
            .is_none_or(|meta| meta.kind != FileType::Directory)
        {
            return Ok(());
        }
        for k in 1_u32.. {
            match self.rename_new(name, self, &format!("{name}~{k}.folder")) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Opens a file for appending, creating it where it is missing. Never blocks on a fifo.
    pub fn append(&self, name: &str) -> io::Result<File> {
        self.open_with(
            name,
            OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NONBLOCK,
        )
    }

    /// Opens a file that must exist, for reading it and for adding to its end.
    pub fn open_append(&self, name: &str) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK)
    }

    fn open_with(&self, name: &str, flags: OFlags) -> io::Result<File> {
        component(name)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o666))?;
        Ok(File::from(fd))
    }

    /// Creates a file without a name, which [`Dir::give_name`] can name later.
    pub fn create_unnamed(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, ".", flags, Mode::from_raw_mode(0o666))?;
        Ok(File::from(fd))
    }

    /// Gives a file made by [`Dir::create_unnamed`] a name that must be free.
    pub fn give_name(&self, file: &File, name: &str) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        component(name)?;
        let by_handle = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::linkat(fs::CWD, by_handle, &self.fd, name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    /// Gives a file a second name, which must be free.
    pub fn link_new(&self, from: &str, to_dir: &Dir, to: &str) -> io::Result<()> {
        component(from)?;
        component(to)?;
        Ok(fs::linkat(
            &self.fd,
            from,
            &to_dir.fd,
            to,
            AtFlags::empty(),
        )?)
    }

    /// Renames, refusing to replace anything.
    pub fn rename_new(&self, from: &str, to_dir: &Dir, to: &str) -> io::Result<()> {
        component(from)?;
        component(to)?;
        match fs::renameat_with(&self.fd, from, &to_dir.fd, to, RenameFlags::NOREPLACE) {
            // A file system that lacks the flag (some FUSE and network ones).
            Err(Errno::INVAL) => self.rename_by_link(from, to_dir, to),
            other => Ok(other?),
        }
    }

    fn rename_by_link(&self, from: &str, to_dir: &Dir, to: &str) -> io::Result<()> {
        self.link_new(from, to_dir, to)?;
        fs::unlinkat(&self.fd, from, AtFlags::empty())?;
        Ok(())
    }

    /// Renames over whatever is there.
    pub fn rename_over(&self, from: &str, to: &str) -> io::Result<()> {
        component(from)?;
        component(to)?;
        Ok(fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        component(name)?;
        Ok(fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    pub fn remove_dir(&self, name: &str) -> io::Result<()> {
        component(name)?;
        Ok(fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes the names in this folder durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.fd)?)
    }

    /// Calls `each` with every entry's name and type (if the file system gives it), in no order.
    pub fn entries(&self, mut each: impl FnMut(&CStr, FileType)) -> io::Result<()> {
        // A new descriptor: the position in a folder belongs to the open description.
        let fd = fs::openat(&self.fd, ".", DIR_FLAGS, Mode::empty())?;
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); 64 * 1024];
        let mut raw = fs::RawDir::new(fd, &mut buffer);
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                each(name, entry.file_type());
            }
        }
        Ok(())
    }

    /// A second handle on the same folder, with a lock of its own.
    pub fn reopen(&self) -> io::Result<File> {
        Ok(File::from(fs::openat(
            &self.fd,
            ".",
            DIR_FLAGS,
            Mode::empty(),
        )?))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open_beneath(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match fs::openat2(parent, name, DIR_FLAGS, Mode::empty(), resolve) {
        // Kernels before 5.6 and some containers: one component with NOFOLLOW is the same thing.
        Err(Errno::NOSYS | Errno::PERM) => Ok(fs::openat(
            parent,
            name,
            DIR_FLAGS | OFlags::NOFOLLOW,
            Mode::empty(),
        )?),
        other => Ok(other?),
    }
}

/// Refuses everything that is not the name of one entry in one folder.
fn component(name: &str) -> io::Result<()> {
    let bad = name.is_empty()
        || name == "."
        || name == ".."
        || name.len() > 255
        || name.bytes().any(|b| b == b'/' || b == 0);
    if bad {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{}` is not a plain file name", name.escape_debug()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn dir() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        (temp, dir)
    }

    #[test]
    fn names_of_more_than_one_component_are_refused() {
        let (_temp, dir) = dir();
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0b", "../x"] {
            assert!(dir.open(name).is_err(), "{name:?}");
            assert!(dir.create_new(name).is_err(), "{name:?}");
            assert!(dir.make(name).is_err(), "{name:?}");
            assert!(dir.remove(name).is_err(), "{name:?}");
            assert!(dir.rename_new("x", &dir, name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn links_are_never_followed() {
        let (temp, dir) = dir();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), temp.path().join("folder")).unwrap();
        symlink(outside.path().join("secret"), temp.path().join("file")).unwrap();
        symlink(outside.path().join("new"), temp.path().join("dangling")).unwrap();
        assert!(dir.sub("folder").is_err());
        assert!(dir.make("folder").is_err());
        assert!(dir.open("file").is_err());
        assert!(dir.append("file").is_err());
        assert!(dir.create_new("dangling").is_err());
        assert!(dir.append("dangling").is_err());
        assert!(!outside.path().join("new").exists());
    }

    #[test]
    fn a_folder_swapped_for_a_link_after_opening_leads_nowhere_else() {
        let (temp, dir) = dir();
        let inner = dir.make("inner").unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::rename(temp.path().join("inner"), temp.path().join("moved")).unwrap();
        symlink(outside.path(), temp.path().join("inner")).unwrap();
        inner.create_new("x").unwrap();
        assert!(temp.path().join("moved/x").exists());
        assert!(!outside.path().join("x").exists());
    }

    #[test]
    fn a_rename_never_replaces() {
        let (temp, dir) = dir();
        std::fs::write(temp.path().join("a"), "a").unwrap();
        std::fs::write(temp.path().join("b"), "b").unwrap();
        let error = dir.rename_new("a", &dir, "b").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(temp.path().join("b")).unwrap(), b"b");
    }
}
