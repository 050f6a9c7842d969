//! Finding a program, starting it, and saying in plain words why it did not start.
//!
//! It must stay on the fast path of `std::process::Command` (an absolute program, no `pre_exec`, no
//! user change): the slow one copies the page tables of the whole process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Access, access};

use super::cgroup::Cage;
use super::{Job, Stdin, TASK_VARIABLE, WATCHER_VARIABLE};
use crate::confine::{Launch, Refused, Start};
use crate::error::{Fault, Kind};

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

    /// Puts a failed start into words.
    pub(super) fn of(job: &Job<'_>, source: io::Error) -> SpawnError {
        let program = job.program.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => SpawnError::missing(job),
            Some(libc::EACCES | libc::EPERM) if !executable(job.program) => {
                SpawnError::NotExecutable(program)
            }
            Some(libc::ENOEXEC) => SpawnError::NotAProgram(program),
            Some(libc::E2BIG) => SpawnError::too_long(job),
            None if source.kind() == io::ErrorKind::InvalidInput => SpawnError::Nul(program),
            _ => SpawnError::System { program, source },
        }
    }

    /// "No such file" may mean the program, its interpreter or the folder.
    fn missing(job: &Job<'_>) -> SpawnError {
        let program = job.program.to_path_buf();
        if !job.cwd.is_dir() {
            let cwd = job.cwd.to_path_buf();
            return SpawnError::NoFolder { program, cwd };
        }
        match interpreter(job.program) {
            Some(interpreter) => SpawnError::NoInterpreter {
                program,
                interpreter,
            },
            None => SpawnError::NotFound(program),
        }
    }

    fn too_long(job: &Job<'_>) -> SpawnError {
        let args = job.args.iter().map(|arg| arg.len() + 1);
        let env = job
            .env
            .iter()
            .map(|(key, value)| key.len() + value.len() + 2);
        let lengths: Vec<usize> = args.chain(env).collect();
        SpawnError::TooLong {
            program: job.program.to_path_buf(),
            bytes: lengths.iter().sum(),
            longest: lengths.iter().copied().max().unwrap_or(0),
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

/// The program of a `#!` line.
fn interpreter(script: &Path) -> Option<String> {
    let mut start = Vec::new();
    File::open(script)
        .ok()?
        .take(256)
        .read_to_end(&mut start)
        .ok()?;
    let line = start.split(|&byte| byte == b'\n').next()?;
    let rest = String::from_utf8_lossy(line.strip_prefix(b"#!")?).into_owned();
    rest.split_ascii_whitespace().next().map(str::to_owned)
}

/// Starts a job in a process group of its own. The child belongs to the calling thread.
pub(super) fn spawn(job: &Job<'_>, cage: Option<&Cage>) -> Result<Child, SpawnError> {
    if let Some(launch) = job.confine {
        return confined(job, launch, cage);
    }
    command(job)
        .and_then(|mut command| command.spawn())
        .map_err(|error| SpawnError::of(job, error))
}

/// The same by way of the helper, which becomes the program, in its cage if there is one.
fn confined(job: &Job<'_>, launch: &Launch, cage: Option<&Cage>) -> Result<Child, SpawnError> {
    let markers = [
        (WATCHER_VARIABLE, job.markers.watcher.as_str()),
        (TASK_VARIABLE, job.markers.task.as_str()),
    ];
    let own = |(name, value): (&str, &str)| (name.into(), value.into());
    let stdin = match &job.stdin {
        Stdin::Null => File::open("/dev/null"),
        Stdin::File(file) => file.try_clone(),
    };
    let start = Start {
        program: job.program,
        args: job.args,
        env: job.env.iter().cloned().chain(markers.map(own)).collect(),
        markers,
        cwd: job.cwd,
        stdin: stdin.map_err(|error| SpawnError::of(job, error))?,
        stdout: job.stdout,
        stderr: job.stderr,
        caps: cage.map_or_else(|| launch.caps(), Cage::left),
    };
    let take_in = |helper: &Child| cage.map_or(Ok(()), |cage| cage.take_in(helper.id()));
    launch
        .start(&start, take_in)
        .map_err(|refused| match refused {
            Refused::Start(error) => SpawnError::of(job, error),
            Refused::Confine(why) => SpawnError::NotConfined {
                program: job.program.to_path_buf(),
                why,
            },
        })
}

fn command(job: &Job<'_>) -> io::Result<Command> {
    let stdin = match &job.stdin {
        Stdin::Null => Stdio::null(),
        Stdin::File(file) => Stdio::from(file.try_clone()?),
    };
    let mut command = Command::new(job.program);
    command
        .args(job.args)
        .env_clear()
        .envs(job.env.iter().map(|(key, value)| (key, value)))
        .env(WATCHER_VARIABLE, &job.markers.watcher)
        .env(TASK_VARIABLE, &job.markers.task)
        .current_dir(job.cwd)
        .process_group(0)
        .stdin(stdin)
        .stdout(job.stdout.try_clone()?)
        .stderr(job.stderr.try_clone()?);
    Ok(command)
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

fn executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file()) && access(path, Access::EXEC_OK).is_ok()
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

    #[test]
    fn the_interpreter_of_a_script_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        fs::write(&path, "#! /usr/bin/nothing -x\nrest").unwrap();
        assert_eq!(interpreter(&path).as_deref(), Some("/usr/bin/nothing"));
        fs::write(&path, "rest").unwrap();
        assert_eq!(interpreter(&path), None);
    }
}
