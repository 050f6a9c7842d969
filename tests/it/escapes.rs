//! Escapes: what an agent could try to get at more than it was given, confined and not, as root and
//! as an ordinary user. Each must end as its table says, and the rest of the root must be intact.

mod table;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::confine::has_walls;
use crate::harness::{
    Bed, End, Program, needs, orch, processes_with, shell, wait_for, write_executable,
};
use table::{ATTEMPTS, Attempt, Comes};

/// What every script can use, in an empty folder of its own.
const PRELUDE: &str = r#"
find $R/open -mindepth 1 -delete
try() { if "$@" >/dev/null 2>&1 </dev/null; then echo escaped; else echo held; fi; }
py() { try python3 -c "$1"; }
"#;

const WORKFLOW: &str = "version: \"1\"\nname: tiny\nsteps:\n  - {name: a, command: [\"true\"]}\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Root,
    Nobody,
    Ourselves,
}

/// A root with something to get at, and somebody who listens.
struct Ground {
    bed: Bed,
    who: Who,
    saved: PathBuf,
    run: String,
    tcp: TcpListener,
    _abstract: UnixListener,
    program: PathBuf,
}

impl Ground {
    fn new(who: Who, sandbox: &str) -> Ground {
        let bed = Bed::new();
        bed.settings("limits: {grace: 200ms, output: 4MiB}\n");
        let provider = "providers:\n  sh: {command: [/bin/sh]}\n";
        bed.write("specs/providers.yaml", provider);
        let front = format!(
            "provider: sh\nwrites: [\"open/**\"]\nnetwork: none\nlimits: {{file: 32MiB, memory: 2GiB}}\n{sandbox}"
        );
        bed.agent("esc", &front, "");
        bed.agent("other", "provider: echo", "");
        bed.write("specs/tiny.yaml", WORKFLOW);
        bed.write("project/file", "precious\n");
        fs::create_dir(bed.root.join("project/empty")).unwrap();
        fs::create_dir(bed.root.join("open")).unwrap();
        fs::write(bed.outside.join("inherited"), "").unwrap();
        bed.drop_task("other", "x", "hello");
        bed.drain().expect(0);
        bed.orch(["run", "tiny"]).run().expect(0);
        let run = bed.ls("workspace").pop().unwrap();
        let base = bed.root.parent().unwrap();
        let saved = base.join("saved");
        let name = format!("orch-test-{}", base.file_name().unwrap().to_str().unwrap());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let program = match who {
            // The build may lie where an ordinary user cannot look.
            Who::Nobody => {
                let copy = base.join("orch");
                write_executable(&copy, fs::read(orch()).unwrap());
                copy
            }
            _ => orch().to_path_buf(),
        };
        if who == Who::Nobody {
            shell(&format!("chown -R 65534:65534 {}", base.display()))
                .run()
                .expect(0);
        }
        shell(&format!("cp -a {} {}", bed.root.display(), saved.display()))
            .run()
            .expect(0);
        Ground {
            saved,
            run,
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            _abstract: listener,
            program,
            who,
            bed,
        }
    }

    /// Everything as it was, whatever happened.
    fn restore(&self) {
        let (root, saved) = (self.bed.root.display(), self.saved.display());
        shell(&format!(
            "chmod -R u+rwX {root} || :; rm -rf {root}; cp -a {saved} {root}"
        ))
        .run()
        .expect(0);
        let outside = self.bed.outside.display();
        shell(&format!(
            "find {outside} -mindepth 1 ! -name inherited -delete"
        ))
        .run()
        .expect(0);
    }

    /// Makes these attempts one after the other, and answers what orch said.
    fn drain_all(&self, all: &[&Tried]) -> String {
        for tried in all {
            let script = self.script(tried.attempt, tried.number);
            self.bed.drop_task("esc", &tried.task(), script);
        }
        if self.who == Who::Nobody {
            let inbox = self.bed.root.join("inbox/esc");
            shell(&format!("chown -R 65534:65534 {}", inbox.display()))
                .run()
                .expect(0);
        }
        self.drain()
    }

    /// A program, started as whoever this is about.
    fn started(&self, program: &Path) -> Program {
        match self.who {
            Who::Nobody => self
                .bed
                .program("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .args([program]),
            _ => self.bed.program(program),
        }
    }

    fn has_walls(&self) -> bool {
        let built = has_walls(self.started(&self.program));
        if !built {
            let who = self.who;
            needs::skip_here(&format!(
                "{who:?} may have no mounts: what they hold is found"
            ));
        }
        built
    }

    /// What whoever started orch left open. It says which process orch is.
    fn held_open(&self) -> PathBuf {
        self.bed.outside.join("inherited")
    }

    /// Works on everything in the inboxes, with a descriptor left open by whoever started orch.
    fn drain(&self) -> String {
        let ran = self
            .started(Path::new("sh"))
            .args(["-c", "echo $$ > \"$0\"; exec 9>>\"$0\"; exec \"$@\""])
            .args([self.held_open(), self.program.clone()])
            .args(["watch", "--drain", "--durability", "process"])
            .env("HOME", &self.bed.outside)
            .run();
        // Some of them fail, and some leave something in an inbox.
        ran.may_say(&["note: "])
            .one_of(&[End::Code(0), End::Code(1)])
            .stderr
    }

    fn script(&self, attempt: &Attempt, number: usize) -> String {
        let abstract_name = self.bed.root.parent().unwrap().file_name().unwrap();
        format!(
            "export R={} V={} RUN={} LOG={} N={} PORT={} ABSTRACT=orch-test-{} ORCH=$(cat {})\n{PRELUDE}\n{}\n",
            self.bed.root.display(),
            self.bed.outside.display(),
            self.bed.root.join("workspace").join(&self.run).display(),
            self.bed
                .root
                .join(format!("logs/{}.jsonl", self.run))
                .display(),
            number,
            self.tcp.local_addr().unwrap().port(),
            abstract_name.to_str().unwrap(),
            self.held_open().display(),
            attempt.script,
        )
    }

    /// Everything that is not the agent's own, as it is.
    fn rest(&self) -> BTreeMap<PathBuf, String> {
        let own = |path: &Path| {
            let own = [
                "open",
                "inbox/esc",
                "artifacts/esc",
                "processed/esc",
                "logs/orch.jsonl",
            ];
            own.iter().any(|own| path == self.bed.root.join(own))
                || path == self.held_open()
                || path.file_name().is_some_and(|name| {
                    let name = name.to_string_lossy();
                    name.starts_with("watch-") || name == "lock"
                })
        };
        let mut all = BTreeMap::new();
        for top in [&self.bed.root, &self.bed.outside] {
            let walk = walkdir::WalkDir::new(top).into_iter();
            for entry in walk.filter_entry(|entry| !own(entry.path())) {
                let entry = entry.unwrap();
                let meta = entry.path().symlink_metadata().unwrap();
                let content = match meta.is_file() {
                    true => format!("{:x}", Sha256::digest(fs::read(entry.path()).unwrap())),
                    false => String::new(),
                };
                let shown = format!("{:o} {} {content}", meta.permissions().mode(), meta.uid());
                all.insert(entry.into_path(), shown);
            }
        }
        all
    }
}

/// Makes every attempt, and collects what did not come as the table says.
fn all(who: Who, sandbox: &str, expected: impl Fn(&Attempt, bool) -> Comes) {
    let ground = Ground::new(who, sandbox);
    let walls = ground.has_walls();
    let base = 1_000_000 + usize::try_from(std::process::id()).unwrap() * 1000;
    let offset = 100 * (who as usize * 3 + sandbox.len() % 3);
    let attempts = ATTEMPTS.iter().enumerate();
    let (held, others): (Vec<Tried>, Vec<Tried>) = attempts
        .filter(|(_, attempt)| who == Who::Root || !attempt.root_only)
        .map(|(number, attempt)| Tried {
            attempt,
            number: base + offset + number,
            comes: expected(attempt, walls),
        })
        .partition(|tried| tried.comes == Comes::Held);
    let mut wrong = all_held(&ground, &held);
    for tried in others {
        let said = ground.drain_all(&[&tried]);
        wrong.extend(tried.wrong(&ground, &said));
        ground.restore();
    }
    ground.bed.orch(["audit", &ground.run]).run().expect(0);
    assert!(wrong.is_empty(), "{who:?} {sandbox}:\n{}", wrong.join("\n"));
}

/// What is held leaves everything as it was: so all of them can be made one after the other.
fn all_held(ground: &Ground, held: &[Tried]) -> Vec<String> {
    let before = ground.rest();
    let said = ground.drain_all(&held.iter().collect::<Vec<_>>());
    let mut wrong: Vec<String> = held
        .iter()
        .filter_map(|tried| tried.wrong(ground, &said))
        .collect();
    let after = ground.rest();
    let differs: Vec<_> = before
        .iter()
        .filter(|(path, was)| after.get(*path) != Some(was))
        .map(|(path, _)| path)
        .chain(after.keys().filter(|path| !before.contains_key(*path)))
        .collect();
    if !differs.is_empty() {
        wrong.push(format!(
            "they said that they were held, and {differs:?} changed"
        ));
    }
    ground.restore();
    wrong
}

/// An attempt, and what is to come of it.
struct Tried {
    attempt: &'static Attempt,
    /// What its processes are known by.
    number: usize,
    comes: Comes,
}

impl Tried {
    fn task(&self) -> String {
        format!("t{}", self.number)
    }

    /// What did not come of it as it should.
    fn wrong(&self, ground: &Ground, said: &str) -> Option<String> {
        let told = |why: String| Some(format!("{}: {why}", self.attempt.name));
        let path = format!("artifacts/esc/{}.json", self.task());
        let record = match fs::read(ground.bed.root.join(path)) {
            Ok(bytes) => serde_json::from_slice::<serde_json::Value>(&bytes).unwrap(),
            Err(e) => return told(format!("there is no record: {e}: {said}")),
        };
        let output = record["output"].as_str().unwrap_or_default();
        let word = output.lines().last().unwrap_or_default();
        let kind = record["error"]["kind"].as_str().unwrap_or_default();
        let comes = self.comes;
        let (words, kinds): (&str, &str) = match comes {
            Comes::Held => ("held", ""),
            Comes::Found => ("escaped", "ScopeViolation"),
            Comes::Happens | Comes::Loose => ("escaped", ""),
            Comes::Gone => ("started", ""),
            Comes::Ends(kind) => (word, kind),
        };
        if (word, kind) != (words, kinds) {
            let why = format!("expected {comes:?}, and it said {word:?}, {record}, {said}");
            return told(why);
        }
        let left = processes_with(&self.number.to_string());
        match left.is_empty() {
            true => None,
            false => told(format!("it left {left:?}")),
        }
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn can_try() -> bool {
    needs::programs(&["python3", "setsid"])
}

fn can_be_nobody() -> bool {
    needs::root("become another user") && needs::programs(&["setpriv"])
}

fn kernel_holds() -> bool {
    let kernel = orch::agents::confine::kernel();
    let holds = kernel.holds_writes() && kernel.holds_network() && kernel.holds_signals();
    if !holds {
        needs::skip_here(&format!("this kernel has Landlock {}", kernel.landlock));
    }
    holds
}

#[test]
fn there_are_enough_attempts_and_no_name_is_there_twice() {
    let names: std::collections::BTreeSet<_> =
        ATTEMPTS.iter().map(|attempt| attempt.name).collect();
    assert_eq!(names.len(), ATTEMPTS.len());
    assert!(ATTEMPTS.len() >= 40);
}

#[test]
fn confined_as_we_are_nothing_escapes() {
    if kernel_holds() && can_try() {
        let who = if is_root() { Who::Root } else { Who::Ourselves };
        all(who, "", Attempt::fenced);
    }
}

#[test]
fn confined_as_an_ordinary_user_nothing_escapes() {
    if kernel_holds() && can_try() && can_be_nobody() {
        all(Who::Nobody, "", Attempt::fenced);
    }
}

#[test]
fn in_a_bubble_nothing_escapes() {
    if !(needs::bubblewrap() && can_try()) {
        return;
    }
    let who = if is_root() { Who::Root } else { Who::Ourselves };
    // It has a network of its own there, in which nobody hears it.
    let bubbled = |attempt: &Attempt, _| match attempt.name {
        "listen" => Comes::Happens,
        _ => attempt.fenced(true),
    };
    all(who, "sandbox: bwrap\n", bubbled);
    if can_be_nobody() {
        all(Who::Nobody, "sandbox: bwrap\n", bubbled);
    }
}

#[test]
fn not_confined_as_we_are_it_is_found_where_it_can_be() {
    if can_try() {
        let who = if is_root() { Who::Root } else { Who::Ourselves };
        all(who, "sandbox: none", |attempt, _| attempt.open);
    }
}

#[test]
fn not_confined_as_an_ordinary_user_it_is_found_where_it_can_be() {
    if can_try() && can_be_nobody() {
        all(Who::Nobody, "sandbox: none", |attempt, _| attempt.open);
    }
}

#[test]
fn a_forged_record_of_its_own_is_not_believed() {
    for sandbox in ["", "sandbox: none\n"] {
        let bed = Bed::new();
        let script = "for s in succeeded cancelled; do echo '{\"task\":\"t\",\"agent\":\"esc\",\"status\":\"'$s'\",\"attempt\":1,\"start_time\":\"\",\"end_time\":\"\",\"duration\":0}' > $ORCH_ROOT/artifacts/esc/t.json; done\nexit 7";
        let front = format!("writes: [\"artifacts/esc/**\"]\n{sandbox}");
        bed.script_with("esc", script, "", &front);
        bed.drop_task("esc", "t", "x");
        bed.drain().expect(1);
        let record = bed.record("esc/t");
        assert_eq!(record["exit_code"], 7, "{record}");
        assert_eq!(record["status"], "failed");
        assert_eq!(bed.ls("processed/esc"), ["t.failed"]);
        wait_for("the end", || bed.agents_alive().is_empty());
    }
}

#[test]
fn a_forged_record_is_not_believed_after_a_crash_either() {
    let bed = Bed::new();
    bed.agent("other", "provider: echo", "");
    let script = "cd $ORCH_ROOT/artifacts/esc\n[ -e first ] && exit 7\necho '{\"task\":\"t\",\"agent\":\"esc\",\"status\":\"succeeded\",\"attempt\":1,\"start_time\":\"\",\"end_time\":\"\",\"duration\":0,\"next\":\"other\"}' > t.json\necho evil > t.next\necho > first\nsleep 1000";
    bed.script_with("esc", script, "", "writes: [\"artifacts/esc/**\"]");
    bed.drop_task("esc", "t", "x");
    let watcher = bed.watch(&[]);
    wait_for("the forged record", || bed.has("artifacts/esc/first"));
    watcher.signal("KILL");
    watcher.wait().killed();
    wait_for("the guard", || bed.agents_alive().is_empty());
    bed.drain().says("take over esc/t").expect(1);
    let record = bed.record("esc/t");
    assert_eq!(record["exit_code"], 7, "{record}");
    assert_eq!(bed.ls("processed/esc"), ["t.failed"]);
    assert!(!bed.has("artifacts/other/t.json"), "a forged task was run");
}
