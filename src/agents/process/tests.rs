//! Real processes against the promises of this room.
//!
//! Most tests run again in a process of their own (`alone`), because a process has one set of
//! orphans, one signal table and one set of descriptors. Nothing waits by sleeping: scripts say
//! through files and FIFOs when they are ready.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::text::error::{Fault, Kind};

const ALONE: &str = "ORCH_TEST_ALONE";
const LONG: Duration = Duration::from_secs(30);
/// A daemon that says its number, and that it runs.
const DAEMON: &str =
    "(setsid sh -c 'echo $$ > daemon; echo > up; exec sleep 1000' &); read x < up\n";
/// A daemon without any environment.
const BARE_DAEMON: &str = "(setsid sh -c 'echo $$ > daemon; exec env -i sleep 1000' &)
while [ ! -s daemon ] || tr '\\0' x < /proc/$(cat daemon)/environ | grep -q .; do :; done\n";

/// Runs this test again in a process of its own, on a thread that is not the main one.
fn alone(name: &str, body: fn()) {
    let mut command = Command::new("timeout");
    command.arg("60").arg(std::env::current_exe().unwrap());
    again(name, &mut command, body);
}

fn again(name: &str, command: &mut Command, body: fn()) {
    if std::env::var_os(ALONE).is_some() {
        thread::spawn(body).join().unwrap();
        return;
    }
    let name = format!("agents::process::tests::{name}");
    let output = command
        .args(["--exact", &name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{wrong}");
    assert!(said.contains("1 passed"), "{said}");
}

/// A folder for one exec, and what is needed to run it.
struct Bench {
    dir: tempfile::TempDir,
    wake: Wake,
    task: &'static str,
    limits: Limits,
}

impl Bench {
    fn new() -> Bench {
        Bench::of(Wake::new().unwrap(), "writer/one")
    }

    fn of(wake: Wake, task: &'static str) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        // `up` is between a script and its daemons, the others between a script and its test.
        for fifo in ["up", "ready", "go"] {
            let path = dir.path().join(fifo);
            rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap();
        }
        let limits = Limits {
            wall: LONG,
            idle: None,
            output: 1 << 20,
            grace: LONG,
        };
        Bench {
            dir,
            wake,
            task,
            limits,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sh(&self, processes: &Processes, script: &str) -> Ending {
        let args = ["-c".into(), script.into()];
        self.run(processes, "/bin/sh", &args, &mut || true).unwrap()
    }

    fn run(
        &self,
        processes: &Processes,
        program: &str,
        args: &[OsString],
        still_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Ending, SpawnError> {
        let stdout = File::create(self.path("out")).unwrap();
        let stderr = File::create(self.path("err")).unwrap();
        let env = [("PATH".into(), std::env::var_os("PATH").unwrap())];
        let exec = Execution {
            program: Path::new(program),
            args,
            env: &env,
            cwd: self.dir.path(),
            stdin: Stdin::Null,
            stdout: &stdout,
            stderr: &stderr,
            limits: self.limits,
            markers: Marker {
                watcher: "w".into(),
                task: self.task.into(),
            },
            confine: None,
        };
        processes.run(&exec, &self.wake, still_wanted)
    }

    fn out(&self) -> String {
        fs::read_to_string(self.path("out")).unwrap()
    }

    fn daemon(&self) -> i32 {
        let text = fs::read_to_string(self.path("daemon")).unwrap();
        text.trim().parse().unwrap()
    }

    /// Waits until the script says that it is ready.
    fn ready(&self) {
        fs::read(self.path("ready")).unwrap();
    }

    /// Lets a script go on that reads from `go`.
    fn go(&self) {
        fs::write(self.path("go"), "\n").unwrap();
    }
}

fn processes() -> Processes {
    become_subreaper().unwrap();
    Processes::new(Tree::new().unwrap(), None)
}

fn lives(pid: i32) -> bool {
    procfs::stat(pid).is_some()
}

#[test]
fn endings_are_told_apart() {
    alone("endings_are_told_apart", || {
        let (bench, processes) = (Bench::new(), processes());
        assert_eq!(bench.sh(&processes, "exit 0"), Ending::Exited(0));
        assert_eq!(bench.sh(&processes, "exit 7"), Ending::Exited(7));
        assert_eq!(bench.sh(&processes, "kill -9 $$"), Ending::Signalled(9));
        assert_eq!(bench.sh(&processes, "pwd; cat"), Ending::Exited(0));
        assert_eq!(Path::new(bench.out().trim()), bench.dir.path());
        bench.wake.stop();
        assert_eq!(bench.sh(&processes, "exit 0"), Ending::Stopped);
    });
}

#[test]
fn a_program_that_does_not_start_says_why() {
    alone("a_program_that_does_not_start_says_why", || {
        let (bench, processes) = (Bench::new(), processes());
        let script = |name: &str, text: &str| {
            fs::write(bench.path(name), text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(bench.path(name), mode).unwrap();
            bench.path(name).to_str().unwrap().to_owned()
        };
        fs::write(bench.path("plain"), "").unwrap();
        let plain = bench.path("plain").to_str().unwrap().to_owned();
        let long: OsString = "x".repeat(200_000).into();
        let cases: [(&str, &[OsString], &str); 6] = [
            ("/no/such", &[], "no such program"),
            (&plain, &[], "not executable"),
            (&script("bare", "echo hello\n"), &[], "`#!` line"),
            (
                &script("lost", "#!/no/such\n"),
                &[],
                "interpreter `/no/such`",
            ),
            ("/bin/true", &[long], "too long"),
            ("/bin/true", &["a\0b".into()], "NUL"),
        ];
        for (program, args, words) in cases {
            let error = bench.run(&processes, program, args, &mut || true);
            let error = error.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(!error.retry_later());
            assert!(Fault::from(error).hint.is_some());
        }
        let none = bench.run(&processes, "/no/such", &[], &mut || true);
        assert_eq!(Fault::from(none.unwrap_err()).kind, Kind::ProviderNotFound);
    });
}

#[test]
fn time_and_silence_end_a_job() {
    alone("time_and_silence_end_a_job", || {
        let (mut bench, processes) = (Bench::new(), processes());
        let after = Duration::from_millis(300);
        bench.limits.wall = after;
        let ending = bench.sh(&processes, "sleep 1000");
        assert_eq!(ending, Ending::TimedOut { idle: false, after });
        bench.limits.wall = LONG;
        bench.limits.idle = Some(after);
        let ending = bench.sh(&processes, "echo x; sleep 1000");
        assert_eq!(ending, Ending::TimedOut { idle: true, after });
        let ending = bench.sh(&processes, "for i in 1 2 3 4 5; do sleep 0.1; echo x; done");
        assert_eq!(ending, Ending::Exited(0));
    });
}

#[test]
fn a_flood_is_cut_off() {
    alone("a_flood_is_cut_off", || {
        let (mut bench, processes) = (Bench::new(), processes());
        bench.limits.output = 64 << 20;
        let limit = bench.limits.output;
        let ending = bench.sh(&processes, "trap '' TERM; exec head -c 2G /dev/zero");
        assert_eq!(ending, Ending::OutputTooLarge { limit });
        let size = fs::metadata(bench.path("out")).unwrap().len();
        assert!(size > limit && size < 16 * limit, "{size}");
        bench.limits.output = 3;
        let ending = bench.sh(&processes, "echo a; echo b >&2");
        assert_eq!(ending, Ending::OutputTooLarge { limit: 3 });
    });
}

#[test]
fn a_job_that_was_asked_to_end_did_not_exit_by_itself() {
    alone("a_job_that_was_asked_to_end_did_not_exit_by_itself", || {
        let (bench, processes) = (Bench::new(), processes());
        let script = "trap 'echo bye; exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
        thread::scope(|scope| {
            let exec = scope.spawn(|| bench.sh(&processes, script));
            bench.ready();
            bench.wake.stop();
            assert_eq!(exec.join().unwrap(), Ending::Stopped);
        });
        assert_eq!(bench.out(), "bye\n");
    });
}

#[test]
fn a_job_that_ignores_term_is_killed_after_the_grace() {
    alone("a_job_that_ignores_term_is_killed_after_the_grace", || {
        let (mut bench, processes) = (Bench::new(), processes());
        bench.limits.wall = Duration::from_millis(200);
        bench.limits.grace = Duration::from_millis(300);
        let start = Instant::now();
        let ending = bench.sh(&processes, "trap '' TERM; while :; do sleep 1000; done");
        assert!(matches!(ending, Ending::TimedOut { idle: false, .. }));
        assert!(start.elapsed() >= Duration::from_millis(500));
    });
}

#[test]
fn a_second_stop_ends_the_grace() {
    alone("a_second_stop_ends_the_grace", || {
        let (mut bench, processes) = (Bench::new(), processes());
        bench.limits.grace = Duration::from_secs(3600);
        let script = "trap 'echo > ready' TERM; echo > ready; while :; do sleep 0.01; done";
        thread::scope(|scope| {
            let exec = scope.spawn(|| bench.sh(&processes, script));
            bench.ready();
            bench.wake.stop();
            bench.ready();
            bench.wake.stop();
            assert_eq!(exec.join().unwrap(), Ending::Stopped);
        });
    });
}

#[test]
fn what_left_the_group_is_asked_to_end_as_well() {
    alone("what_left_the_group_is_asked_to_end_as_well", || {
        let (bench, processes) = (Bench::new(), processes());
        let child = "setsid sh -c 'trap \"echo child; exit\" TERM; echo > ready; while :; do sleep 0.01; done'";
        let orphan = child
            .replace("echo child", "echo orphan")
            .replace("ready", "up");
        let script = format!("({orphan} &)\nread x < up\n{child} & read x < go\n");
        thread::scope(|scope| {
            let exec = scope.spawn(|| bench.sh(&processes, &script));
            bench.ready();
            bench.wake.stop();
            assert_eq!(exec.join().unwrap(), Ending::Stopped);
        });
        let mut said: Vec<String> = bench.out().lines().map(str::to_owned).collect();
        said.sort();
        assert_eq!(said, ["child", "orphan"]);
    });
}

#[test]
fn a_job_that_is_no_longer_wanted_is_ended_at_once() {
    alone("a_job_that_is_no_longer_wanted_is_ended_at_once", || {
        let (bench, processes) = (Bench::new(), processes());
        let args = ["-c".into(), "echo > ready; exec sleep 1000".into()];
        thread::scope(|scope| {
            let exec = scope.spawn(|| bench.run(&processes, "/bin/sh", &args, &mut || false));
            bench.ready();
            bench.wake.poke();
            assert_eq!(exec.join().unwrap().unwrap(), Ending::Cancelled);
        });
    });
}

#[test]
fn a_daemon_does_not_outlive_its_job() {
    alone("a_daemon_does_not_outlive_its_job", || {
        let (bench, processes) = (Bench::new(), processes());
        for daemon in [DAEMON, BARE_DAEMON] {
            let ending = bench.sh(&processes, &format!("{daemon}exit 3"));
            assert_eq!(ending, Ending::Exited(3));
            assert!(!lives(bench.daemon()));
        }
        let list = format!("/proc/self/task/{}/children", std::process::id());
        assert_eq!(fs::read_to_string(list).unwrap_or_default(), "");
    });
}

#[test]
fn neither_do_its_children_nor_the_background_of_the_group() {
    alone(
        "neither_do_its_children_nor_the_background_of_the_group",
        || {
            let (bench, processes) = (Bench::new(), processes());
            let script = "
            (setsid sh -c 'setsid sh -c \"echo \\$\\$ > daemon; echo > up; exec sleep 1000\" & wait' &)
            read x < up
            sleep 1000 & echo $! > background";
            assert_eq!(bench.sh(&processes, script), Ending::Exited(0));
            let background = fs::read_to_string(bench.path("background")).unwrap();
            assert!(!lives(bench.daemon()));
            assert!(!lives(background.trim().parse().unwrap()));
        },
    );
}

#[test]
fn without_the_list_of_children_daemons_are_found_too() {
    alone("without_the_list_of_children_daemons_are_found_too", || {
        become_subreaper().unwrap();
        let (bench, processes) = (Bench::new(), Processes::new(Tree::without_list(), None));
        for daemon in [DAEMON, BARE_DAEMON] {
            assert_eq!(bench.sh(&processes, daemon), Ending::Exited(0));
            assert!(!lives(bench.daemon()));
        }
    });
}

/// Two jobs with a daemon each: what becomes of them when the second exec ends first.
fn two_jobs(daemon: &str, second_survives: bool) {
    let processes = processes();
    let first = Bench::new();
    let second = Bench::of(first.wake.worker().unwrap(), "writer/two");
    let script = format!("{daemon}echo > ready; read x < go");
    thread::scope(|scope| {
        let one = scope.spawn(|| first.sh(&processes, &script));
        first.ready();
        let two = scope.spawn(|| second.sh(&processes, &script));
        second.ready();
        second.go();
        assert_eq!(two.join().unwrap(), Ending::Exited(0));
        assert!(lives(first.daemon()));
        assert_eq!(lives(second.daemon()), second_survives);
        first.go();
        assert_eq!(one.join().unwrap(), Ending::Exited(0));
    });
    assert!(!lives(first.daemon()));
    assert!(!lives(second.daemon()));
}

#[test]
fn a_job_does_not_end_the_daemon_of_another() {
    alone("a_job_does_not_end_the_daemon_of_another", || {
        two_jobs(DAEMON, false);
    });
}

#[test]
fn a_daemon_without_a_marker_is_ended_with_the_last_that_may_own_it() {
    alone(
        "a_daemon_without_a_marker_is_ended_with_the_last_that_may_own_it",
        || {
            two_jobs(BARE_DAEMON, true);
        },
    );
}

#[test]
fn a_job_gets_no_open_file_and_no_variable_beyond_its_own() {
    alone(
        "a_job_gets_no_open_file_and_no_variable_beyond_its_own",
        || {
            let (bench, processes) = (Bench::new(), processes());
            let inherited = File::open("/dev/null").unwrap();
            rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
            crate::disk::sys::cloexec_all_inherited().unwrap();
            let args = ["/proc/self/fd".into()];
            let ending = bench.run(&processes, "/bin/ls", &args, &mut || true);
            assert_eq!(ending.unwrap(), Ending::Exited(0));
            // The fourth is the folder that is being listed.
            assert_eq!(bench.out(), "0\n1\n2\n3\n");
            let ending = bench.run(&processes, "/usr/bin/env", &[], &mut || true);
            assert_eq!(ending.unwrap(), Ending::Exited(0));
            let path = std::env::var("PATH").unwrap();
            let mut lines: Vec<String> = bench.out().lines().map(str::to_owned).collect();
            lines.sort();
            let wanted = [
                "ORCH_TASK=writer/one",
                "ORCH_WATCHER=w",
                &format!("PATH={path}"),
            ];
            assert_eq!(lines, wanted);
        },
    );
}

#[test]
fn what_is_ignored_on_entry_is_not_ignored_by_jobs() {
    let mut command = Command::new("timeout");
    command
        .args(["60", "/bin/sh", "-c"])
        .arg("trap '' INT HUP USR1; exec \"$0\" \"$@\"")
        .arg(std::env::current_exe().unwrap());
    again(
        "what_is_ignored_on_entry_is_not_ignored_by_jobs",
        &mut command,
        || {
            let (tell, told) = std::sync::mpsc::channel();
            let _signals = Signals::install(move |signal| tell.send(signal).unwrap()).unwrap();
            let (bench, processes) = (Bench::new(), processes());
            let ending = bench.sh(&processes, "exec grep SigIgn /proc/self/status");
            assert_eq!(ending, Ending::Exited(0));
            let mask = bench.out().trim_start_matches("SigIgn:").trim().to_owned();
            // Bits 31 and 32 belong to the C library.
            let mask = u64::from_str_radix(&mask, 16).unwrap() & !(0b11 << 31);
            assert_eq!(mask, 0);
            use rustix::process::{Signal as Raw, getpid, kill_process};
            for signal in [Raw::HUP, Raw::USR1, Raw::IO, Raw::INT] {
                kill_process(getpid(), signal).unwrap();
            }
            assert_eq!(told.recv_timeout(LONG).unwrap(), Signal::Interrupt);
        },
    );
}
