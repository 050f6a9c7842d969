//! `orch approve`, `orch reject`, `orch reply`: a person answers a run, which goes on by itself.
//!
//! The question's task is claimed like any other and the answer is committed here; a watcher, where
//! one is alive, works on what comes next.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::input;
use super::questions::{label, lines, open, say_blocked};
use super::run_target::{self, Named};
use super::target::is_watched;
use crate::disk::mailbox::{ANSWERS, Answer, Claim, Commit, Look, Mailbox, OUT, TASK, file_name};
use crate::disk::order::{Disk, Durability};
use crate::disk::store::{Locked, PATIENCE};
use crate::run::flow::HUMAN;
use crate::run::state::{Asks, Event, Pending, RunState, RunStatus};
use crate::spec::task::{AgentName, TaskName};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::text::suggest;
use crate::ui::cli;
use crate::ui::report::{clean_line, print_json, print_line};
use crate::work::clock::now;
use crate::work::dispatch::{Dispatcher, PersonsAnswer};
use crate::work::pinned::{self, PinnedRun};

/// How often a question is looked at that somebody else has open.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) fn approve(root: Option<&Path>, words: &cli::Approve) -> Result<u8> {
    super::refuse_to_agents("approve")?;
    decide(
        root,
        &words.run,
        &words.gate,
        (Answer::Approved, &words.note),
        words.json,
    )
}

pub(super) fn reject(root: Option<&Path>, words: &cli::Reject) -> Result<u8> {
    super::refuse_to_agents("reject")?;
    if words.note.trim().is_empty() {
        let message = "a rejection needs a note that says why";
        return Err(Fault::new(Kind::Usage, message).hint("give it with --note TEXT"));
    }
    decide(
        root,
        &words.run,
        &words.gate,
        (Answer::Rejected, &words.note),
        words.json,
    )
}

fn decide(
    root: Option<&Path>,
    run: &str,
    gate: &str,
    (answer, note): (Answer, &str),
    json: bool,
) -> Result<u8> {
    let answered = AnsweredRun::open(root, run)?;
    let locked = answered.pinned.run.lock(PATIENCE)?;
    let state = answered.state(&locked)?;
    let pending = asked_gate(&answered.pinned.workflow, &state, gate)?;
    let given = PersonsAnswer {
        kind: answer,
        text: note.trim(),
        by: &whoami(),
    };
    let state = answered.answer(locked, state, &pending, given)?;
    let gate = gate_of(&answered.pinned.workflow, &pending);
    let verb = match answer {
        Answer::Rejected => "rejected",
        _ => "approved",
    };
    answered.report(&state, &format!("`{gate}` is {verb}"), json)
}

pub(super) fn reply(root: Option<&Path>, words: &cli::Reply) -> Result<u8> {
    super::refuse_to_agents("reply")?;
    let (run, step) = match words.target.split_once('/') {
        Some((run, step)) => (run, Some(step)),
        None => (words.target.as_str(), None),
    };
    let answered = AnsweredRun::open(root, run)?;
    let locked = answered.pinned.run.lock(PATIENCE)?;
    let state = answered.state(&locked)?;
    if state.status == RunStatus::Succeeded && step.is_none() {
        return answered.reopen(locked, state, words);
    }
    let pending = asked_reply(&state, step)?;
    let text = said(words)?;
    let given = PersonsAnswer {
        kind: Answer::Reply,
        text: text.trim(),
        by: &whoami(),
    };
    let state = answered.answer(locked, state, &pending, given)?;
    answered.report(
        &state,
        &format!("step `{}` has its reply", label(&pending)),
        words.json,
    )
}

/// A run that is answered, and the inboxes that the answer goes through.
struct AnsweredRun {
    mailbox: Mailbox,
    pinned: PinnedRun,
}

impl AnsweredRun {
    fn open(root: Option<&Path>, word: &str) -> Result<AnsweredRun> {
        let found = run_target::open(root, word);
        let Named { root, run } = found.map_err(|fault| match fault.kind {
            Kind::StateNotFound => Fault {
                kind: Kind::Usage,
                ..fault
            },
            _ => fault,
        })?;
        Ok(AnsweredRun {
            mailbox: Mailbox::new(root, Disk::new(Durability::Power)),
            pinned: PinnedRun::open(run)?,
        })
    }

    fn dispatcher(&self) -> Dispatcher<'_> {
        Dispatcher {
            mailbox: &self.mailbox,
            pinned: &self.pinned,
        }
    }

    fn state(&self, locked: &Locked<'_>) -> Result<Arc<RunState>> {
        pinned::begun(&self.pinned.run, locked.load(&self.pinned.workflow)?)
    }

    /// Claims the question, commits the answer, drops what comes next, and puts the task away.
    fn answer(
        &self,
        locked: Locked<'_>,
        state: Arc<RunState>,
        pending: &Pending,
        given: PersonsAnswer<'_>,
    ) -> Result<Arc<RunState>> {
        let dispatcher = self.dispatcher();
        dispatcher.read(&state, pending, given)?;
        // Where the file is gone, it is written again: an answer claims it like any other task.
        let (state, _) = dispatcher.drop_pending(&locked, state, 0)?;
        let claim = self.claim(pending)?;
        let taken = match dispatcher.answer(&locked, state, pending, &claim.folders, given) {
            Ok(taken) => taken,
            Err(fault) => {
                let _ = self.mailbox.put_back(claim);
                return Err(fault);
            }
        };
        drop(locked);
        let outputs = [(OUT, taken.output)];
        let put_away = || -> io::Result<()> {
            if self.mailbox.commit(&claim, &taken.record, &outputs, None)? == Commit::Done {
                self.mailbox.retire(&claim, taken.record.status)?;
            }
            Ok(())
        };
        // The answer counts already; a watcher puts away what is left.
        if let Err(e) = put_away() {
            let fault = Fault::io("put away", claim.target(), &e);
            eprintln!("{}", clean_line(&fault.message));
        }
        Ok(taken.state)
    }

    fn claim(&self, pending: &Pending) -> Result<Claim> {
        let (human, name) = (AgentName::parse(HUMAN)?, TaskName::parse(&pending.task)?);
        let failed = |e: io::Error| Fault::io("claim", format!("{human}/{name}"), &e);
        let folders = self.mailbox.agent(&human).map_err(failed)?;
        for _ in 0..LOOKS {
            match self.mailbox.look(&folders, &name, TASK).map_err(failed)? {
                Look::Ready(held) => {
                    if let Some(claim) = self.mailbox.claim(held).map_err(failed)? {
                        return Ok(claim);
                    }
                }
                Look::Gone => {
                    for (suffix, _) in ANSWERS {
                        let file = file_name(&name, suffix);
                        if folders.inbox.has(&file).map_err(failed)? {
                            let message = format!("it is answered already: `inbox/human/{file}`");
                            return Err(Fault::new(Kind::Busy, message)
                                .hint("a watcher takes that answer; `orch watch` is one"));
                        }
                    }
                }
                Look::Stray(why) => return Err(failed(io::Error::other(why))),
                Look::Busy => {}
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let message = format!("`inbox/human/{name}.task` is open in another program");
        Err(Fault::new(Kind::Busy, message).hint("save and close it there, then try again"))
    }

    /// A run that is done goes on where its workflow says.
    fn reopen(&self, locked: Locked<'_>, state: Arc<RunState>, words: &cli::Reply) -> Result<u8> {
        let id = self.pinned.run.id();
        let Some(step) = self.pinned.workflow.follow_up else {
            let message = format!("run `{id}` succeeded, and that is final: nothing is asked");
            let name = &self.pinned.workflow.name.value;
            let hint = format!(
                "`follow_up: STEP` in workflow `{name}` would take a reply; `orch run {name}` starts another run"
            );
            return Err(Fault::new(Kind::Usage, message).hint(hint));
        };
        let reply = said(words)?.trim().to_owned();
        if reply.is_empty() {
            let fault = Fault::new(Kind::Usage, "the reply is empty");
            return Err(fault.hint("say what is to be done"));
        }
        let event = Event::Reopened {
            reply,
            by: whoami(),
        };
        let (state, _) = locked.apply(&self.pinned.workflow, state, &now(), event)?;
        let (state, _) = self.dispatcher().drop_pending(&locked, state, 0)?;
        drop(locked);
        let step = &self.pinned.workflow.step(step).name.value;
        self.report(&state, &format!("it goes on at step `{step}`"), words.json)
    }

    /// Says what became of the run, and who works on it.
    fn report(&self, state: &RunState, what: &str, json: bool) -> Result<u8> {
        let id = &state.run_id;
        let watched = self.is_watched(state);
        if json {
            print_json(&json!({
                "run": id,
                "status": state.status,
                "phase": state.metadata.current_phase,
                "blocked_reason": state.governance.blocked_reason,
                "watched": watched,
            }))?;
            return Ok(exit::DONE);
        }
        print_line(&clean_line(&format!("{id}: {what}")))?;
        match state.status {
            RunStatus::Running if !watched => {
                eprintln!(
                    "no watcher is running: `orch resume {id}` goes on, and so does `orch watch`"
                );
            }
            RunStatus::Running => {}
            RunStatus::Blocked => say_blocked(&self.mailbox.root, state),
            RunStatus::Succeeded => print_line(&format!("{id} is done")).map(drop)?,
            RunStatus::Failed | RunStatus::Cancelled => {
                let why = state.error.as_ref().map(|fault| fault.message.as_str());
                eprintln!(
                    "{}",
                    clean_line(&format!("{id} has failed: {}", why.unwrap_or_default()))
                );
            }
        }
        Ok(exit::DONE)
    }

    fn is_watched(&self, state: &RunState) -> bool {
        let work = state
            .pending
            .iter()
            .filter(|pending| pending.asks.is_none());
        let mut agents = work.filter_map(|pending| AgentName::parse(&pending.agent).ok());
        agents.all(|agent| is_watched(&self.mailbox, &agent))
    }
}

/// The open question of a gate, by its own name or that of its step.
fn asked_gate(workflow: &Workflow, state: &RunState, word: &str) -> Result<Pending> {
    let asked: Vec<&Pending> = open(state)
        .filter(|pending| pending.asks == Some(Asks::Approval))
        .collect();
    let found = asked
        .iter()
        .find(|p| gate_of(workflow, p) == word || p.step == word);
    if let Some(pending) = found {
        return Ok((*pending).clone());
    }
    let id = &state.run_id;
    let gates = workflow.steps.iter().filter_map(|step| {
        let gate = step.approval.as_ref()?.gate.value.as_str();
        Some((gate, step.name.value.as_str()))
    });
    let gates: Vec<(&str, &str)> = gates.collect();
    let named = gates
        .iter()
        .find(|(gate, step)| *gate == word || *step == word);
    let message = match named {
        None => format!("workflow `{}` has no gate `{word}`", state.workflow_name),
        Some(_) if state.status.is_final() => format!(
            "run `{id}` has ended ({}): nothing is asked any more",
            state.status.as_str()
        ),
        Some((gate, _)) => match state.governance.decisions.get(*gate) {
            Some(decision) => format!(
                "`{gate}` is not being asked: {} by {} at {}",
                if decision.approved {
                    "approved"
                } else {
                    "rejected"
                },
                decision.by,
                decision.at
            ),
            None => format!("`{gate}` is not being asked"),
        },
    };
    let asked: Vec<String> = asked.iter().map(|p| gate_of(workflow, p)).collect();
    let hint = match (asked.is_empty(), named) {
        (false, _) => format!("asked now: {}", asked.join(", ")),
        (true, None) => {
            let known: Vec<&str> = gates
                .iter()
                .flat_map(|(gate, step)| [*gate, *step])
                .collect();
            let close = suggest::hint(word, &known);
            close.unwrap_or_else(|| format!("nothing is asked now; `orch status {id}` tells more"))
        }
        (true, Some(_)) => format!("nothing is asked now; `orch status {id}` tells more"),
    };
    Err(Fault::new(Kind::Usage, clean_line(&message)).hint(hint))
}

fn gate_of(workflow: &Workflow, pending: &Pending) -> String {
    let step = workflow.find(&pending.step).map(|id| workflow.step(id));
    let approval = step.and_then(|step| step.approval.as_ref());
    approval.map_or_else(|| pending.step.clone(), |a| a.gate.value.clone())
}

/// The open question that a reply is for.
fn asked_reply(state: &RunState, step: Option<&str>) -> Result<Pending> {
    let asked: Vec<&Pending> = open(state)
        .filter(|pending| pending.asks == Some(Asks::Reply))
        .collect();
    let fits = |p: &&&Pending| step.is_none_or(|step| p.step == step || label(p) == step);
    let found: Vec<&&Pending> = asked.iter().filter(fits).collect();
    let id = &state.run_id;
    let refuse = |message: String, hint: String| Err(Fault::new(Kind::Usage, message).hint(hint));
    match (found.as_slice(), asked.as_slice()) {
        ([one], _) => Ok((**one).clone()),
        ([], []) => {
            let message = match state.status.is_final() {
                true => format!(
                    "run `{id}` has ended ({}): nothing is asked",
                    state.status.as_str()
                ),
                false => format!("run `{id}` asks for no reply"),
            };
            let others: Vec<String> = open(state).flat_map(|p| lines(state, p)).collect();
            let hint = match others.is_empty() {
                true => format!("`orch status {id}` shows how it stands"),
                false => format!("it asks for an approval: `{}`", others.join("` or `")),
            };
            refuse(message, hint)
        }
        (found, asked) => {
            let message = match (found.is_empty(), step) {
                (true, Some(step)) => format!("step `{step}` of run `{id}` asks nothing"),
                _ => format!("run `{id}` has {} open questions", asked.len()),
            };
            let lines: Vec<String> = asked.iter().flat_map(|p| lines(state, p)).collect();
            refuse(message, format!("say which: `{}`", lines.join("`, `")))
        }
    }
}

fn said(words: &cli::Reply) -> Result<String> {
    match words.text.as_deref() {
        Some("-") => input::stdin(),
        Some(text) => Ok(text.to_owned()),
        None if io::stdin().is_terminal() => {
            let message = "the reply is missing";
            Err(Fault::new(Kind::Usage, message)
                .hint("give it as TEXT, or `-` to read it from standard input"))
        }
        None => input::stdin(),
    }
}

/// Who types this, as far as the system tells.
fn whoami() -> String {
    let named = ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok());
    let named = named
        .map(|name| clean_line(&name))
        .find(|name| !name.is_empty());
    named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}
