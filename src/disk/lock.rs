//! Advisory whole-file locks (`flock`).
//!
//! The only file that touches fs2, and always by the trait's name: `std::fs::File` has methods of
//! the same names, which would be called instead. This file never opens or creates a file.

use std::fs::File;
use std::io;

use fs2::FileExt;

/// Takes the exclusive lock if it is free; `false` if someone else holds a lock.
///
/// # Errors
/// If locking fails, as on a file system without locks.
pub fn try_exclusive(file: &File) -> io::Result<bool> {
    taken(FileExt::try_lock_exclusive(file))
}

/// Takes a shared lock if no one holds the exclusive one; `false` otherwise.
///
/// # Errors
/// If locking fails.
pub fn try_shared(file: &File) -> io::Result<bool> {
    taken(FileExt::try_lock_shared(file))
}

/// Takes the exclusive lock, waiting for as long as someone else holds it.
///
/// # Errors
/// If locking fails.
pub fn wait_exclusive(file: &File) -> io::Result<()> {
    loop {
        match FileExt::lock_exclusive(file) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Releases a lock at once. Closing the file might not: a child between fork and exec may hold a copy of
/// the descriptor.
///
/// # Errors
/// If the lock cannot be released.
pub fn unlock(file: &File) -> io::Result<()> {
    FileExt::unlock(file)
}

/// A file with an exclusive lock, which is released on drop.
#[derive(Debug)]
pub struct Locked(File);

impl Locked {
    /// Locks the file; `None` if someone else holds a lock.
    ///
    /// # Errors
    /// If locking fails.
    pub fn try_new(file: File) -> io::Result<Option<Locked>> {
        Ok(try_exclusive(&file)?.then_some(Locked(file)))
    }

    /// Locks the file, waiting as long as necessary.
    ///
    /// # Errors
    /// If locking fails.
    pub fn wait(file: File) -> io::Result<Locked> {
        wait_exclusive(&file)?;
        Ok(Locked(file))
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // If this fails, closing the file unlocks it.
        let _ = unlock(&self.0);
    }
}

fn taken(answer: io::Result<()>) -> io::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_or_many_readers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let one = File::create(&path).unwrap();
        let two = File::open(&path).unwrap();
        assert!(try_exclusive(&one).unwrap());
        assert!(!try_exclusive(&two).unwrap());
        assert!(!try_shared(&two).unwrap());
        unlock(&one).unwrap();
        assert!(try_shared(&one).unwrap());
        assert!(try_shared(&two).unwrap());
    }
}
