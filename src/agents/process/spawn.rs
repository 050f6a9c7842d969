//! Finding a program, starting it, and saying in plain words why it did not start.
//!
//! It must stay on the fast path of `std::process::Command` (an absolute program, no `pre_exec`, no
//! user change): the slow one copies the page tables of the whole process.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::cgroup::Cage;
use super::{Execution, Stdin, TASK_VARIABLE, WATCHER_VARIABLE};
use crate::agents::confine::{Launch, Refused, Start};
use crate::agents::program::{SpawnError, executable};

impl SpawnError {
    /// Puts a failed start into words.
    pub(super) fn of(exec: &Execution<'_>, source: io::Error) -> SpawnError {
        let program = exec.program.to_path_buf();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => SpawnError::missing(exec),
            Some(libc::EACCES | libc::EPERM) if !executable(exec.program) => {
                SpawnError::NotExecutable(program)
            }
            Some(libc::ENOEXEC) => SpawnError::NotAProgram(program),
            Some(libc::E2BIG) => SpawnError::too_long(exec),
            None if source.kind() == io::ErrorKind::InvalidInput => SpawnError::Nul(program),
            _ => SpawnError::System { program, source },
        }
    }

    /// "No such file" may mean the program, its interpreter or the folder.
    fn missing(exec: &Execution<'_>) -> SpawnError {
        let program = exec.program.to_path_buf();
        if !exec.cwd.is_dir() {
            let cwd = exec.cwd.to_path_buf();
            return SpawnError::NoFolder { program, cwd };
        }
        match interpreter(exec.program) {
            Some(interpreter) => SpawnError::NoInterpreter {
                program,
                interpreter,
            },
            None => SpawnError::NotFound(program),
        }
    }

    fn too_long(exec: &Execution<'_>) -> SpawnError {
        let args = exec.args.iter().map(|arg| arg.len() + 1);
        let env = exec
            .env
            .iter()
            .map(|(key, value)| key.len() + value.len() + 2);
        let lengths: Vec<usize> = args.chain(env).collect();
        SpawnError::TooLong {
            program: exec.program.to_path_buf(),
            bytes: lengths.iter().sum(),
            longest: lengths.iter().copied().max().unwrap_or(0),
        }
    }
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

/// Starts a process in a process group of its own. The child belongs to the calling thread.
pub(super) fn spawn(exec: &Execution<'_>, cage: Option<&Cage>) -> Result<Child, SpawnError> {
    if let Some(launch) = exec.confine {
        return confined(exec, launch, cage);
    }
    command(exec)
        .and_then(|mut command| command.spawn())
        .map_err(|error| SpawnError::of(exec, error))
}

/// The same by way of the helper, which becomes the program, in its cage if there is one.
fn confined(
    exec: &Execution<'_>,
    launch: &Launch,
    cage: Option<&Cage>,
) -> Result<Child, SpawnError> {
    let markers = [
        (WATCHER_VARIABLE, exec.markers.watcher.as_str()),
        (TASK_VARIABLE, exec.markers.task.as_str()),
    ];
    let own = |(name, value): (&str, &str)| (name.into(), value.into());
    let stdin = match &exec.stdin {
        Stdin::Null => File::open("/dev/null"),
        Stdin::File(file) => file.try_clone(),
    };
    let start = Start {
        program: exec.program,
        args: exec.args,
        env: exec.env.iter().cloned().chain(markers.map(own)).collect(),
        markers,
        cwd: exec.cwd,
        stdin: stdin.map_err(|error| SpawnError::of(exec, error))?,
        stdout: exec.stdout,
        stderr: exec.stderr,
        caps: cage.map_or_else(|| launch.caps(), Cage::left),
    };
    let take_in = |helper: &Child| cage.map_or(Ok(()), |cage| cage.take_in(helper.id()));
    launch
        .start(&start, take_in)
        .map_err(|refused| match refused {
            Refused::Start(error) => SpawnError::of(exec, error),
            Refused::Confine(why) => SpawnError::NotConfined {
                program: exec.program.to_path_buf(),
                why,
            },
        })
}

fn command(exec: &Execution<'_>) -> io::Result<Command> {
    let stdin = match &exec.stdin {
        Stdin::Null => Stdio::null(),
        Stdin::File(file) => Stdio::from(file.try_clone()?),
    };
    let mut command = Command::new(exec.program);
    command
        .args(exec.args)
        .env_clear()
        .envs(exec.env.iter().map(|(key, value)| (key, value)))
        .env(WATCHER_VARIABLE, &exec.markers.watcher)
        .env(TASK_VARIABLE, &exec.markers.task)
        .current_dir(exec.cwd)
        .process_group(0)
        .stdin(stdin)
        .stdout(exec.stdout.try_clone()?)
        .stderr(exec.stderr.try_clone()?);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
