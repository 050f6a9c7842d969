//! Finding a program, and the reasons why one could not be started.
//!
//! Looks at files, and starts nothing.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::text::error::{Fault, Kind};

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such file.
    #[error("cannot start `{}`: there is no such program", .0.display())]
    NotFound(PathBuf),
    /// There is a folder of that name.
    #[error("cannot start `{}`: it is a folder", .0.display())]
    IsFolder(PathBuf),
    /// The folder that it was to run in is missing.
    #[error("cannot start `{}`: the folder `{}` does not exist", .program.display(), .cwd.display())]
    NoFolder {
        /// What was to be started.
        program: PathBuf,
        /// Where.
        cwd: PathBuf,
    },
    /// It is a script and the program of its first line is missing.
    #[error("cannot start `{}`: its interpreter `{interpreter}` does not exist", .program.display())]
    NoInterpreter {
        /// The script.
        program: PathBuf,
        /// What its first line names.
        interpreter: String,
    },
    /// The file is there but may not be executed.
    #[error("cannot start `{}`: it is not executable", .0.display())]
    NotExecutable(PathBuf),
    /// The file is executable, but neither a binary for this machine nor a script with `#!`.
    #[error("cannot start `{}`: it is neither a program for this machine nor a script with a `#!` line", .0.display())]
    NotAProgram(PathBuf),
    /// The arguments and the environment do not fit.
    #[error("cannot start `{}`: its arguments and environment are too long ({bytes} bytes, the longest of them {longest})", .program.display())]
    TooLong {
        /// What was to be started.
        program: PathBuf,
        /// Everything together.
        bytes: usize,
        /// The longest single string: the kernel takes 128 KiB.
        longest: usize,
    },
    /// An argument or variable holds a NUL byte.
    #[error("cannot start `{}`: an argument or variable holds a NUL byte", .0.display())]
    Nul(PathBuf),
    /// It could not be held to what it may touch.
    #[error("cannot start `{}`: it cannot be confined: {why}", .program.display())]
    NotConfined {
        /// What was to be started.
        program: PathBuf,
        /// What did not work.
        why: String,
    },
    /// The system is short of something: the same start may work later.
    #[error("cannot start `{}`: {source}", .program.display())]
    System {
        /// What was to be started.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl SpawnError {
    /// Whether the same start may work later, with nothing changed by a person.
    #[must_use]
    pub fn retry_later(&self) -> bool {
        matches!(self, SpawnError::System { source, .. } if short_of_something(source))
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            SpawnError::NotFound(_) => "install it, or correct the provider's `command`".into(),
            SpawnError::IsFolder(_) => "name the program in it in the provider's `command`".into(),
            SpawnError::NoFolder { .. } => "create the folder, or correct `cwd`".into(),
            SpawnError::NoInterpreter { interpreter, .. } => {
                format!("install `{interpreter}`, or correct the first line of the script")
            }
            SpawnError::NotExecutable(path) => format!("try `chmod +x {}`", path.display()),
            SpawnError::NotAProgram(_) => {
                "a script starts with a line such as `#!/bin/sh`; a binary must be built for this machine".into()
            }
            SpawnError::TooLong { .. } => "pass the prompt with `prompt_via: stdin`".into(),
            SpawnError::Nul(_) => "pass the prompt with `prompt_via: stdin`".into(),
            SpawnError::NotConfined { .. } => {
                "`orch doctor` says what this system can do; `sandbox: none` runs it without".into()
            }
            SpawnError::System { source, .. } if short_of_something(source) => {
                "the system is short of processes, memory or open files: try again, or lower `--jobs`".into()
            }
            SpawnError::System { .. } => return None,
        })
    }

    fn kind(&self) -> Kind {
        match self {
            SpawnError::NotFound(_)
            | SpawnError::IsFolder(_)
            | SpawnError::NoInterpreter { .. }
            | SpawnError::NotExecutable(_)
            | SpawnError::NotAProgram(_) => Kind::ProviderNotFound,
            SpawnError::NoFolder { .. } => Kind::FileNotFound,
            SpawnError::TooLong { .. } => Kind::LimitExceeded,
            SpawnError::Nul(_) => Kind::InvalidTask,
            SpawnError::NotConfined { .. } => Kind::SafetyViolation,
            SpawnError::System { .. } => Kind::IoError,
        }
    }
}

impl From<SpawnError> for Fault {
    fn from(error: SpawnError) -> Fault {
        let fault = Fault::new(error.kind(), error.to_string());
        match error.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

fn short_of_something(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ETXTBSY)
    )
}

/// Finds a program: a name with a slash is relative to `base`, any other is looked up in
/// `path_var`. The answer is absolute if `base` is.
///
/// # Errors
/// `ProviderNotFound` if there is none, or none that may be executed.
pub fn resolve_program(
    name: impl AsRef<OsStr>,
    path_var: impl AsRef<OsStr>,
    base: &Path,
) -> Result<PathBuf, Fault> {
    let (name, path_var) = (name.as_ref(), path_var.as_ref());
    let shown = name.to_string_lossy();
    if name.is_empty() {
        return Err(Fault::new(Kind::ProviderNotFound, "the command is empty")
            .hint("name a program in the provider's `command`"));
    }
    if shown.contains('/') {
        let path = base.join(name);
        return if executable(&path) {
            Ok(path)
        } else if path.is_file() {
            Err(SpawnError::NotExecutable(path).into())
        } else if path.is_dir() {
            Err(SpawnError::IsFolder(path).into())
        } else {
            Err(SpawnError::NotFound(path).into())
        };
    }
    // An empty entry would mean the current folder, which an agent may have written to.
    let entries = || std::env::split_paths(path_var).filter(|dir| !dir.as_os_str().is_empty());
    let candidates = || entries().map(|dir| base.join(dir).join(name));
    if let Some(found) = candidates().find(|path| executable(path)) {
        return Ok(found);
    }
    if let Some(found) = candidates().find(|path| path.is_file()) {
        return Err(SpawnError::NotExecutable(found).into());
    }
    Err(
        Fault::new(Kind::ProviderNotFound, format!("`{shown}` is not on PATH"))
            .hint(format!("install `{shown}`, or give its full path")),
    )
}

/// Whether there is a file that may be executed.
pub(crate) fn executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file()) && access(path, Access::EXEC_OK).is_ok()
}

/// The absolute form of a path that starts with `~/`, or of one that is absolute already.
#[must_use]
pub fn expand_home(path: &str) -> Option<String> {
    if path.starts_with('/') {
        return Some(path.to_owned());
    }
    let rest = path.strip_prefix('~')?;
    if !(rest.is_empty() || rest.starts_with('/')) {
        return None;
    }
    Some(format!("{}{rest}", std::env::var("HOME").ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(path: &Path, mode: u32) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_name_is_looked_up_in_path_and_a_path_from_the_base() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        fs::create_dir_all(base.join("a")).unwrap();
        fs::create_dir_all(base.join("b")).unwrap();
        program(&base.join("a/tool"), 0o644);
        program(&base.join("b/tool"), 0o755);
        let path = format!(
            "::{}:{}",
            base.join("a").display(),
            base.join("b").display()
        );
        let find = |name: &str| resolve_program(name, &path, base);
        assert_eq!(find("tool").unwrap(), base.join("b/tool"));
        assert_eq!(find("b/tool").unwrap(), base.join("b/tool"));
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        for wrong in ["", "nothing", "a/tool", "a/nothing", "a/"] {
            let fault = find(wrong).unwrap_err();
            assert_eq!(fault.kind, Kind::ProviderNotFound, "{wrong}");
            assert!(fault.hint.is_some(), "{wrong}");
        }
    }
}
