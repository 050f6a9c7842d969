//! Seeing a run through: its checkpoints are printed as they come, and where no watcher is there to
//! work on it, the work is done here.
//!
//! The state on disk decides how a run stands; events only say when to look.

mod tail;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use notify::{RecursiveMode, Watcher as _};
use serde_json::json;

use crate::agents::process::{Signals, living_watchers};
use crate::disk::mailbox::{ANSWERS, CLAIMED, Mailbox, RECORD, TASK, file_name, read_record};
use crate::disk::order::Durability;
use crate::disk::root::Root;
use crate::disk::store::{PATIENCE, Runs};
use crate::run::record::Status;
use crate::run::state::{RunState, RunStatus};
use crate::spec::task::{AgentName, TaskName};
use crate::text::error::{Fault, Kind, Result};
use crate::ui::report::{clean_json, clean_line, print_fault, print_line, print_unheld};
use crate::work::runtime::{self, Ended};
use crate::work::scheduler::Options;
pub(super) use tail::Tail;

use super::questions::say_blocked;

/// How often to see whether anybody is still alive.
const CHECK: Duration = Duration::from_secs(1);
/// An engine that ends so often without a step forward will not make one.
const STALLS: u32 = 3;

/// A run that is to be seen through.
pub(super) struct Drive<'a> {
    pub root: &'a Arc<Root>,
    pub mailbox: &'a Mailbox,
    pub runs: &'a Runs,
    pub run_id: &'a str,
    /// Every inbox that it goes through.
    pub inboxes: Vec<String>,
    /// Whose inbox the task that starts it was put in; it has the run's id for a name.
    pub start: Option<AgentName>,
    pub jobs: u16,
    pub record: bool,
    pub deadline: Option<Instant>,
    pub json: bool,
}

/// Why a wait is over.
enum News {
    Look,
    Stop(u8),
    Done,
}

impl Drive<'_> {
    /// Drives it until it ends, is blocked, or a signal comes; gives the exit code.
    pub(super) fn run(&self, tail: &mut Tail) -> Result<u8> {
        let mut stalls = 0;
        let mut was_gone = false;
        loop {
            let state = self.state()?;
            tail.print()?;
            if let Some(state) = state.filter(|state| state.status != RunStatus::Running) {
                return self.conclude(&state);
            }
            self.check_start(&mut was_gone)?;
            if self.deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(self.late());
            }
            if self.is_covered() {
                if let Some(code) = self.follow(tail)? {
                    self.say_left(&format!(
                        "the run goes on; `orch status {}` shows it",
                        self.run_id
                    ));
                    return Ok(code);
                }
                continue;
            }
            let before = tail.offset();
            let ended = self.work(tail)?;
            if let Some(code) = ended.signal {
                self.say_left(&format!("stopped; `orch resume {}` goes on", self.run_id));
                return Ok(code);
            }
            stalls = if tail.offset() == before {
                stalls + 1
            } else {
                0
            };
            if stalls >= STALLS && self.is_running()? {
                return Err(self.stands_still());
            }
        }
    }

    /// How the run stands; nothing where it has not begun.
    fn state(&self) -> Result<Option<RunState>> {
        let peeked = self.runs.open(self.run_id).and_then(|run| run.peek());
        match peeked {
            Ok(state) => Ok(Some(state)),
            Err(fault) if fault.kind == Kind::StateNotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn is_running(&self) -> Result<bool> {
        let state = self.state()?;
        Ok(state.is_none_or(|state| state.status == RunStatus::Running))
    }

    /// A start that was refused or taken away will never be a run.
    fn check_start(&self, was_gone: &mut bool) -> Result<()> {
        let Some(agent) = self.start.as_ref() else {
            return Ok(());
        };
        if self.state()?.is_some() {
            return Ok(());
        }
        let name = TaskName::parse(self.run_id)?;
        let look = || -> std::io::Result<(Option<crate::run::record::Record>, bool)> {
            let folders = self.mailbox.agent(agent)?;
            let record = read_record(&folders.artifacts, &file_name(&name, RECORD))?;
            let answers = ANSWERS.iter().map(|(suffix, _)| *suffix);
            let mut there = false;
            for suffix in [TASK, CLAIMED].into_iter().chain(answers) {
                there |= folders.inbox.has(&file_name(&name, suffix))?;
            }
            Ok((record, there))
        };
        let (record, there) =
            look().map_err(|e| Fault::io("look for", format!("{agent}/{name}"), &e))?;
        match record {
            Some(record) if record.status != Status::Started => {
                let unknown = || Fault::new(Kind::StepFailed, "the run could not be started");
                Err(record.error.unwrap_or_else(unknown))
            }
            Some(_) => Ok(()),
            // One look may miss a file that is just being renamed.
            None if !there && *was_gone => Err(Fault::new(
                Kind::Cancelled,
                format!("`{agent}/{name}` was taken away before the run began"),
            )),
            None => {
                *was_gone = !there;
                Ok(())
            }
        }
    }

    /// Whether living watchers will work on all of it, or one on just this run.
    fn is_covered(&self) -> bool {
        let Ok(watchers) = living_watchers(&self.root.logs) else {
            return false;
        };
        let is_ours = |only: &Option<String>| only.as_deref() == Some(self.run_id);
        watchers.iter().any(|watcher| is_ours(&watcher.duty.only))
            || self
                .inboxes
                .iter()
                .all(|inbox| watchers.iter().any(|w| w.duty.covers(inbox)))
    }

    /// Prints what others do, for a while; gives the code of a signal.
    fn follow(&self, tail: &mut Tail) -> Result<Option<u8>> {
        let (tell, news) = mpsc::channel();
        let _signals = {
            let tell = tell.clone();
            Signals::install(move |signal| {
                let _ = tell.send(News::Stop(signal.exit_code()));
            })
            .map_err(|e| Fault::new(Kind::IoError, format!("cannot handle signals: {e}")))?
        };
        let _bell = bell(self.root.logs.path(), &tell, self.run_id);
        let until = self.deadline.map_or_else(
            || Instant::now() + CHECK,
            |at| at.min(Instant::now() + CHECK),
        );
        loop {
            tail.print()?;
            if !self.is_running()? {
                return Ok(None);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            match news.recv_timeout(left) {
                Ok(News::Stop(code)) => return Ok(Some(code)),
                Ok(News::Look | News::Done) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Does the work of this run alone, and prints what comes of it.
    fn work(&self, tail: &mut Tail) -> Result<Ended> {
        let options = Options {
            jobs: self.jobs.max(1),
            only_run: Some(self.run_id.to_owned()),
            until: self.deadline,
            record: self.record,
            ..Options::default()
        };
        let (tell, news) = mpsc::channel();
        let _bell = bell(self.root.logs.path(), &tell, self.run_id);
        std::thread::scope(|scope| {
            let printer = scope.spawn(move || {
                while !matches!(news.recv_timeout(CHECK), Ok(News::Done)) {
                    // What cannot be printed now is tried once more below.
                    let _ = tail.print();
                }
                tail.print()
            });
            let ended = runtime::watch(
                self.root,
                Durability::Power,
                options,
                Arc::new(print_unheld),
            );
            let _ = tell.send(News::Done);
            let printed = printer.join();
            let ended = ended?;
            printed.unwrap_or(Ok(()))?;
            Ok(ended)
        })
    }

    /// Says how it ended, and what to type where a person is needed.
    fn conclude(&self, state: &RunState) -> Result<u8> {
        self.wait_for_questions();
        let code = state.exit_code();
        if self.json {
            print_line(&clean_json(&verdict(state, code).to_string()))?;
            return Ok(code);
        }
        let id = self.run_id;
        match state.status {
            RunStatus::Succeeded => {
                print_line(&format!("{id} is done"))?;
            }
            RunStatus::Blocked => say_blocked(self.root, state),
            RunStatus::Failed => {
                let unknown = || Fault::new(Kind::StepFailed, format!("run `{id}` failed"));
                print_fault(&state.error.clone().unwrap_or_else(unknown));
                self.say_left(&format!(
                    "{id} failed; `orch show {id}` tells more, `orch reset {id}` starts it over"
                ));
            }
            RunStatus::Cancelled => self.say_left(&format!("{id} was cancelled")),
            RunStatus::Running => {}
        }
        Ok(code)
    }

    /// A worker that blocks a run drops its questions after that, under the same lock: what we tell
    /// people to answer must be there to be answered.
    fn wait_for_questions(&self) {
        let run = self.runs.open(self.run_id);
        drop(run.and_then(|run| run.lock(PATIENCE).map(drop)));
    }

    fn say_left(&self, line: &str) {
        eprintln!("{}", clean_line(line));
    }

    fn late(&self) -> Fault {
        let id = self.run_id;
        Fault::new(Kind::Busy, format!("run `{id}` is not finished yet")).hint(
            match self.is_covered() {
                true => format!("it goes on; `orch status {id}` tells how it stands"),
                false => format!("`orch resume {id}` goes on"),
            },
        )
    }

    fn stands_still(&self) -> Fault {
        let id = self.run_id;
        Fault::new(Kind::Busy, format!("nothing moves run `{id}` on"))
            .hint(format!("`orch status {id}` shows what it waits for"))
    }
}

fn verdict(state: &RunState, code: u8) -> serde_json::Value {
    json!({
        "run": state.run_id,
        "workflow": state.workflow_name,
        "status": state.status,
        "phase": state.metadata.current_phase,
        "blocked_reason": state.governance.blocked_reason,
        "error": state.error,
        "exit_code": code,
    })
}

/// Waits until something happens to the log of a run, no longer than this.
pub(super) fn wait_for_log(logs: &Path, run_id: &str, most: Duration) {
    let (tell, news) = mpsc::channel();
    let _bell = bell(logs, &tell, run_id);
    let _ = news.recv_timeout(most);
}

/// Rings when something happens to the log or the run; without events there is still the clock.
fn bell(logs: &Path, tell: &Sender<News>, run_id: &str) -> Option<notify::RecommendedWatcher> {
    let tell = tell.clone();
    let log = format!("{run_id}.jsonl");
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let ours = event.map_or(true, |event| {
            let changed = !matches!(event.kind, notify::EventKind::Access(_));
            event.need_rescan() || (changed && event.paths.iter().any(|path| path.ends_with(&log)))
        });
        if ours {
            let _ = tell.send(News::Look);
        }
    })
    .ok()?;
    watcher.watch(logs, RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}
