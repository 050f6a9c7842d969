//! The attempts: what an agent could try, as a few lines of shell each, and what is to come of it.
//!
//! A script ends with the line `escaped` where it got what it wanted, and `held` where it did not.
//! It knows `$R` (the root), `$V` (a folder outside), `$RUN` (the folder of a run), `$LOG` (its
//! log), `$N` (a number for processes), `$PORT` and `$ABSTRACT` (somebody who listens) and `$ORCH`
//! (the process of orch). `project/` lies in the root and is nobody's; `open/` may be written.

/// What comes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// It did not work, and nothing is changed.
    Held,
    /// It worked, and orch says afterwards that it did: `ScopeViolation`.
    Found,
    /// It worked, and is nothing that a comparison looks at.
    Happens,
    /// It worked although it was confined: Landlock has no rule for it, and without walls of mounts
    /// there is nothing else.
    Loose,
    /// It worked, and nothing of it is left when the step ends.
    Gone,
    /// The task ended with this kind of error.
    Ends(&'static str),
}

/// One attempt.
pub struct Attempt {
    pub name: &'static str,
    pub script: &'static str,
    /// Confined by the kernel.
    fenced: Comes,
    /// With `sandbox: none`.
    pub open: Comes,
    /// Only root could do it in the first place.
    pub root_only: bool,
}

impl Attempt {
    /// What comes of it when it is confined, with walls of mounts or without.
    pub fn fenced(&self, walls: bool) -> Comes {
        match self.fenced {
            Comes::Loose if walls => Comes::Held,
            comes => comes,
        }
    }
}

const fn a(name: &'static str, script: &'static str, fenced: Comes, open: Comes) -> Attempt {
    Attempt {
        name,
        script,
        fenced,
        open,
        root_only: false,
    }
}

const fn root(name: &'static str, script: &'static str, fenced: Comes, open: Comes) -> Attempt {
    Attempt {
        root_only: true,
        ..a(name, script, fenced, open)
    }
}

use Comes::{Ends, Found, Gone, Happens, Held, Loose};

pub const ATTEMPTS: &[Attempt] = &[
    // names and contents
    a(
        "create outside",
        "try sh -c 'echo x > $V/new'",
        Held,
        Happens,
    ),
    a(
        "create in the root",
        "try sh -c 'echo x > $R/new.txt'",
        Held,
        Found,
    ),
    a(
        "create beside",
        "try sh -c 'echo x > $R/project/new'",
        Held,
        Found,
    ),
    a(
        "create by dots",
        "try sh -c 'echo x > $R/open/../project/new'",
        Held,
        Found,
    ),
    a("write", "try sh -c 'echo x > $R/project/file'", Held, Found),
    a(
        "append",
        "try sh -c 'echo x >> $R/project/file'",
        Held,
        Found,
    ),
    a("truncate", "try truncate -s 0 $R/project/file", Held, Found),
    a("unlink", "try rm $R/project/file", Held, Found),
    a(
        "rename out",
        "try mv $R/project/file $R/open/file",
        Held,
        Found,
    ),
    a(
        "rename in",
        "echo x > $R/open/x; try mv $R/open/x $R/project/x",
        Held,
        Found,
    ),
    a(
        "rename over",
        "echo x > $R/open/x; try mv -f $R/open/x $R/project/file",
        Held,
        Found,
    ),
    a(
        "rename a folder",
        "try mv $R/project $R/open/project",
        Held,
        Found,
    ),
    a(
        "hard link",
        "try ln $R/project/file $R/open/link",
        Held,
        Found,
    ),
    a(
        "write by hard link",
        "ln $R/project/file $R/open/l 2>/dev/null; try sh -c '[ -e $R/open/l ] && echo x >> $R/open/l'",
        Held,
        Found,
    ),
    a(
        "symbolic link in",
        "try ln -s /etc $R/project/link",
        Held,
        Found,
    ),
    a(
        "write by symbolic link",
        "ln -s $R/project/file $R/open/s; try sh -c 'echo x > $R/open/s'",
        Held,
        Found,
    ),
    a(
        "write outside by a linked folder",
        "ln -s $V $R/open/e; try sh -c 'echo x > $R/open/e/f'",
        Held,
        Happens,
    ),
    a("mkdir", "try mkdir $R/project/folder", Held, Found),
    a("rmdir", "try rmdir $R/project/empty", Held, Found),
    a("fifo", "try mkfifo $R/project/fifo", Held, Found),
    root("device", "try mknod $R/project/null c 1 3", Held, Found),
    a(
        "unix socket",
        "py 'import socket; socket.socket(socket.AF_UNIX).bind(\"'$R'/project/s\")'",
        Held,
        Found,
    ),
    // what Landlock has no rule for
    a("chmod", "try chmod 777 $R/project/file", Loose, Found),
    root("chown", "try chown 1:1 $R/project/file", Loose, Found),
    a("utimes", "try touch -d @0 $R/project/file", Loose, Found),
    a(
        "xattr",
        "py 'import os; os.setxattr(\"'$R'/project/file\", \"user.x\", b\"1\")'",
        Loose,
        Found,
    ),
    // orch's own folders
    a(
        "a task for another",
        "try sh -c 'echo x > $R/inbox/other/evil.task'",
        Held,
        Happens,
    ),
    a(
        "a link in an inbox",
        "try ln -s /etc $R/inbox/other/link",
        Held,
        Happens,
    ),
    a("a new inbox", "try mkdir $R/inbox/evil", Held, Happens),
    a(
        "the settings",
        "try sh -c 'echo \"# x\" >> $R/specs/orch.yaml'",
        Held,
        Happens,
    ),
    a(
        "an agent's file",
        "try rm $R/specs/agents/other.md",
        Held,
        Happens,
    ),
    a(
        "the diagnostics",
        "try sh -c 'echo x >> $R/logs/orch.jsonl'",
        Held,
        Happens,
    ),
    a(
        "another's record",
        "try sh -c 'echo {} > $R/artifacts/other/x.json'",
        Held,
        Happens,
    ),
    a(
        "another's answer",
        "try sh -c 'echo x > $R/artifacts/other/x.out'",
        Held,
        Happens,
    ),
    a(
        "what is processed",
        "try rm $R/processed/other/x.task",
        Held,
        Happens,
    ),
    a(
        "the state of a run",
        "try sh -c 'sed -i s/succeeded/failed/ $RUN/state.json'",
        Held,
        Happens,
    ),
    a(
        "the spec of a run",
        "try sh -c 'for f in $RUN/spec/specs/*.yaml; do echo \"# x\" >> $f || exit 1; done'",
        Held,
        Happens,
    ),
    a(
        "the log of a run",
        "try sh -c 'echo {} >> $LOG'",
        Held,
        Happens,
    ),
    a(
        "the lock of a run",
        "try sh -c 'rm $RUN/lock && echo x > $RUN/lock'",
        Held,
        Happens,
    ),
    a(
        "a snapshot",
        "try sh -c 'mkdir -p $RUN/snapshots && echo {} > $RUN/snapshots/evil.json'",
        Held,
        Happens,
    ),
    // races
    a(
        "swap its folder for a link",
        "try sh -c 'mv $R/open $R/open.old && ln -s $V $R/open && echo x > $R/open/f'",
        Held,
        Found,
    ),
    a(
        "race a path check",
        "i=0; while [ $i -lt 100 ]; do rm -rf $R/open/r; mkdir $R/open/r; (echo x > $R/open/r/f) 2>/dev/null; rm -rf $R/open/r; ln -s $V $R/open/r; (echo x > $R/open/r/raced) 2>/dev/null; i=$((i+1)); done; try test -e $V/raced",
        Held,
        Happens,
    ),
    // orch itself
    a(
        "an inherited descriptor",
        "try sh -c 'echo x >&9'",
        Held,
        Held,
    ),
    a(
        "the environment of orch",
        "try cat /proc/$ORCH/environ",
        Held,
        Happens,
    ),
    a(
        "the memory of orch",
        "py 'open(\"/proc/'$ORCH'/mem\", \"r+b\")'",
        Held,
        Happens,
    ),
    a(
        "the open files of orch",
        "try readlink /proc/$ORCH/fd/0",
        Held,
        Happens,
    ),
    a(
        "trace orch",
        "py 'import ctypes; l = ctypes.CDLL(None); assert l.ptrace(0x4206, '$ORCH', 0, 0) == 0'",
        Held,
        Happens,
    ),
    a("a signal to orch", "try kill -WINCH $ORCH", Held, Happens),
    // powers
    a(
        "new privileges",
        "try grep -q 'NoNewPrivs:.0' /proc/self/status",
        Held,
        Happens,
    ),
    root(
        "mount",
        "try unshare -m mount -t tmpfs none $V",
        Held,
        Happens,
    ),
    root("chroot", "try chroot / true", Held, Happens),
    // network
    a(
        "connect",
        "py 'import socket; socket.create_connection((\"127.0.0.1\", '$PORT'), 5)'",
        Held,
        Happens,
    ),
    a(
        "listen",
        "py 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen()'",
        Held,
        Happens,
    ),
    a(
        "an abstract socket",
        "py 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0'$ABSTRACT'\")'",
        Held,
        Happens,
    ),
    // processes
    a("a daemon", "setsid -f sleep $N; echo started", Gone, Gone),
    a(
        "a daemon without a name",
        "env -i setsid -f sleep $N >/dev/null 2>&1 </dev/null; echo started",
        Gone,
        Gone,
    ),
    a(
        "a daemon in two steps",
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep '$N' & wait' >/dev/null 2>&1 &); echo started",
        Gone,
        Gone,
    ),
    a(
        "many processes",
        "i=0; while [ $i -lt 60 ]; do setsid -f sleep $N; i=$((i+1)); done; echo started",
        Gone,
        Gone,
    ),
    a(
        "a fork bomb",
        "python3 -c 'import os, time\nfor _ in range(7):\n  os.fork()\n  if os.getpid() != os.getsid(0) and os.getpid() != os.getpgid(0): os.setsid()\ntime.sleep('$N')' >/dev/null 2>&1 </dev/null & sleep 0.3; echo started",
        Gone,
        Gone,
    ),
    // too much
    a(
        "fill the disk",
        "try dd if=/dev/zero of=$R/open/big bs=1M count=64",
        Held,
        Held,
    ),
    a("too much memory", "py 'bytearray(3 << 30)'", Held, Held),
    a(
        "a dump of memory",
        "try sh -c '[ $(ulimit -c) != 0 ]'",
        Held,
        Held,
    ),
    a(
        "a line of 100 MB",
        "head -c 100000000 /dev/zero | tr '\\0' x",
        Ends("OutputTooLargeError"),
        Ends("OutputTooLargeError"),
    ),
];
