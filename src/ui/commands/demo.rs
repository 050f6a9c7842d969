//! `orch demo`: the main job, shown on a scratch root with what is built in. Needs no agent.
//!
//! Everything here is done by the real program: tasks are dropped as plain files, `orch watch` runs
//! as a process of its own, and what is shown is read back from the disk. What does not happen as
//! announced fails the demo.

mod build;
mod feature;
mod four_pass;
mod lifecycle;
mod played;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::agents::process::TASK_VARIABLE;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{Paint, clean};

/// How long any single thing may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(30);

const FILES: [(&str, &str); 6] = [
    (
        "specs/handoff.yaml",
        include_str!("../../../specs/handoff.yaml"),
    ),
    ("specs/orch.yaml", include_str!("demo/orch.yaml")),
    ("specs/providers.yaml", include_str!("demo/providers.yaml")),
    (
        "specs/agents/architect.md",
        include_str!("demo/architect.md"),
    ),
    ("specs/agents/engineer.md", include_str!("demo/engineer.md")),
    ("specs/agents/reviewer.md", include_str!("demo/reviewer.md")),
];
/// What stands in for real agents.
const PROGRAMS: [(&str, &str); 3] = [
    ("bin/architect", include_str!("demo/architect.sh")),
    ("bin/engineer", include_str!("demo/engineer.sh")),
    ("bin/reviewer", include_str!("demo/reviewer.sh")),
];
const AGENTS: [&str; 3] = ["architect", "engineer", "reviewer"];

pub(super) fn run(words: &cli::Demo) -> Result<u8> {
    let scratch = tempfile::Builder::new()
        .prefix("orch-demo-")
        .tempdir()
        .map_err(|e| Fault::io("make a scratch folder in", std::env::temp_dir(), &e))?;
    let stage = Stage {
        paint: Paint::stdout(),
        program: std::env::current_exe().map_err(|e| Fault::io("find", "orch itself", &e))?,
        root: scratch.path().to_path_buf(),
    };
    let shown = stage.show();
    if words.keep || shown.is_err() {
        println!("\nthe scratch root is kept: {}", scratch.keep().display());
    }
    shown.map(|()| exit::DONE)
}

struct Stage {
    paint: Paint,
    program: PathBuf,
    root: PathBuf,
}

impl Stage {
    fn show(&self) -> Result<()> {
        self.build()?;
        self.a_file_becomes_a_result()?;
        self.nothing_is_lost()?;
        self.mistakes_are_told()?;
        self.a_workflow_decides()?;
        self.four_passes()?;
        self.a_governed_lifecycle()?;
        self.a_build_goes_green()?;
        self.a_feature_escalates()?;
        self.how_it_stands()?;
        println!(
            "\n{} all of it was done with files: no server, no database.\nNext: `orch init` in a folder of yours, then `orch watch`.",
            self.paint.good("That was it:"),
        );
        Ok(())
    }

    fn build(&self) -> Result<()> {
        for agent in AGENTS {
            self.folder(&format!("inbox/{agent}"))?;
        }
        for (path, text) in FILES {
            self.write(path, text)?;
        }
        for (path, text) in PROGRAMS {
            self.program(path, text)?;
        }
        Ok(())
    }

    fn folder(&self, path: &str) -> Result<()> {
        let path = self.root.join(path);
        fs::create_dir_all(&path).map_err(|e| Fault::io("make", &path, &e))
    }

    fn program(&self, path: &str, text: &str) -> Result<()> {
        self.write(path, text)?;
        let path = self.root.join(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(|e| Fault::io("make executable", &path, &e))
    }

    fn a_file_becomes_a_result(&self) -> Result<()> {
        self.chapter("A file dropped in an inbox becomes a result");
        self.say("Three agents, and `orch watch` in the background. You write a file:");
        let watcher = self.watch()?;
        self.command("echo 'a command that counts words' > inbox/architect/words.task");
        self.write(
            "inbox/architect/words.task",
            "a command that counts words\n",
        )?;
        self.wait("processed/reviewer/words.task")?;
        self.say("`architect` answered; its file says `then: [engineer, reviewer]`, so request and answer went on:");
        for agent in AGENTS {
            self.cat(&format!("artifacts/{agent}/words.out"))?;
        }
        self.say("Beside each answer stands how it ended (NAME.json), and the task has moved to processed/:");
        for agent in AGENTS {
            self.show_record(agent, "words")?;
        }
        for agent in AGENTS {
            self.list(&format!("processed/{agent}"))?;
        }
        watcher.stop()
    }

    fn nothing_is_lost(&self) -> Result<()> {
        self.chapter("Nothing is lost, whatever dies");
        self.say("A task that takes its time, and `kill -9` to the watcher in the middle of it:");
        let watcher = self.watch()?;
        let task = "---\nthen: []\n---\nslow: three thoughts\n";
        self.write("inbox/architect/slow.task", task)?;
        self.wait("started")?;
        self.command(&format!("kill -9 {}", watcher.child.id()));
        watcher.kill()?;
        self.list("inbox/architect")?;
        self.say("The claim has no owner now, and its agent was ended too. The next watcher takes it over:");
        self.write("hurry", "")?;
        let next = self.watch()?;
        self.wait("processed/architect/slow.task")?;
        self.list("artifacts/architect")?;
        self.say(
            "slow~1.out is what the interrupted attempt had printed; slow.json is the one commit.",
        );
        next.stop()
    }

    fn mistakes_are_told(&self) -> Result<()> {
        self.chapter("A mistake is told with its place, and what to do");
        self.command("printf -- '---\\ntimeuot: 5m\\n---\\ndo it\\n' > inbox/engineer/oops.task");
        self.write("inbox/engineer/oops.task", "---\ntimeuot: 5m\n---\ndo it\n")?;
        let told = self.orch(&["watch", "--drain"])?;
        self.expect(
            told.contains("did you mean `timeout`"),
            "the misspelt key was not named",
        )
    }

    fn a_workflow_decides(&self) -> Result<()> {
        self.chapter("A workflow decides what comes next, and proves what happened");
        self.say("specs/handoff.yaml: the architect writes a design, a command hands its path over, the engineer builds from it.");
        self.orch(&["check", "handoff"])?;
        self.orch(&["run", "handoff", "a command that counts words"])?;
        let state = self.orch(&["show", "last/build"])?;
        self.expect(
            state.contains("system_design.md"),
            "the engineer did not get the design",
        )?;
        let audit = self.orch(&["audit", "last"])?;
        self.expect(audit.contains("sound"), "the run does not fit its log")?;
        self.say("The command also dropped a task for the engineer by `mv`; a watcher takes it like any other:");
        let drained = self.orch(&["watch", "--drain"])?;
        self.expect(
            drained.contains("engineer/task_"),
            "the task that was handed over is missing",
        )
    }

    fn how_it_stands(&self) -> Result<()> {
        self.chapter("How it stands");
        self.orch(&["status"])?;
        self.orch(&["log"])?;
        Ok(())
    }

    /// Runs orch to its end, shows what it printed, and gives it.
    fn orch(&self, words: &[&str]) -> Result<String> {
        let quoted = |word: &&str| match word.contains(' ') {
            true => format!("'{word}'"),
            false => (*word).to_owned(),
        };
        let line: Vec<String> = words.iter().map(quoted).collect();
        self.command(&format!("orch {}", line.join(" ")));
        let out = self
            .self_command(words)
            .output()
            .map_err(|e| Fault::io("run", &self.program, &e))?;
        let text = [out.stdout, out.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        print!("{}", clean(&text));
        Ok(text)
    }

    fn self_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .env("ORCH_ROOT", &self.root)
            .env_remove(TASK_VARIABLE)
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    fn watch(&self) -> Result<Watcher> {
        let child = self
            .self_command(&["watch"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Fault::io("run", &self.program, &e))?;
        Ok(Watcher { child })
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.root.join(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, text))
            .map_err(|e| Fault::io("write", &path, &e))
    }

    fn wait(&self, path: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.root.join(path).exists() {
            self.expect(Instant::now() < deadline, &format!("`{path}` did not come"))?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn chapter(&self, title: &str) {
        println!("\n{}", self.paint.strong(format!("== {title}")));
        // Where this is piped, it is to be read as it happens all the same.
        let _ = std::io::stdout().flush();
    }

    fn say(&self, text: &str) {
        println!("\n{text}");
    }

    fn command(&self, line: &str) {
        println!("\n{}", self.paint.odd(format!("$ {line}")));
    }

    fn cat(&self, path: &str) -> Result<()> {
        self.command(&format!("cat {path}"));
        let path = self.root.join(path);
        let text = fs::read_to_string(&path).map_err(|e| Fault::io("read", &path, &e))?;
        println!("{}", clean(text.trim_end()));
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<()> {
        self.command(&format!("ls {folder}"));
        println!(
            "{}",
            clean(&file_names(&self.root.join(folder))?.join("  "))
        );
        Ok(())
    }

    fn show_record(&self, agent: &str, task: &str) -> Result<()> {
        let path = self.root.join(format!("artifacts/{agent}/{task}.json"));
        let text = fs::read_to_string(&path).map_err(|e| Fault::io("read", &path, &e))?;
        let record: crate::run::record::Record = serde_json::from_str(&text)
            .map_err(|e| Fault::new(Kind::JsonParseError, format!("`{}`: {e}", path.display())))?;
        let next = record
            .next
            .map(|next| format!("  next {next}"))
            .unwrap_or_default();
        println!(
            "  {agent:<10} {}  {:.3} s{next}",
            record.status.as_str(),
            record.duration
        );
        self.expect(
            record.status.is_success(),
            &format!("`{agent}/{task}` did not succeed"),
        )
    }

    fn expect(&self, holds: bool, what: &str) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Fault::new(
            Kind::ProviderFailed,
            format!("the demo went wrong: {what}"),
        ))
    }
}

fn file_names(folder: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map_err(|e| Fault::io("list", folder, &e))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// A watcher in the background, which does not outlive the demo.
struct Watcher {
    child: Child,
}

impl Watcher {
    fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|e| Fault::io("stop", "the watcher", &e.into()))?;
        self.end()
    }

    fn kill(mut self) -> Result<()> {
        self.child
            .kill()
            .map_err(|e| Fault::io("kill", "the watcher", &e))?;
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let waited = self.child.wait();
        waited
            .map(|_| ())
            .map_err(|e| Fault::io("wait for", "the watcher", &e))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Where the demo failed half-way; a child that has ended is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
