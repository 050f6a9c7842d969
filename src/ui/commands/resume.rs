//! `orch resume`: a run goes on from where it stands, and is seen through.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::drive::{Drive, Tail};
use super::questions::say_blocked;
use super::update_spec::{Updated, update_spec};
use crate::disk::mailbox::{CLAIMED, Mailbox, TASK, file_name};
use crate::disk::order::{Disk, Durability};
use crate::disk::root::Root;
use crate::disk::store::{PATIENCE, RunDir, Runs, is_stopped};
use crate::run::flow;
use crate::run::state::{Event, RunState, RunStatus};
use crate::spec::task::{AgentName, TaskName};
use crate::spec::workflow::Workflow;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::ui::cli;
use crate::ui::report::{clean_line, print_json, print_line};
use crate::work::cancel::stop_run;
use crate::work::clock::now;
use crate::work::dispatch::Dispatcher;
use crate::work::pinned::{self, PinnedRun};
use crate::work::runtime;
use crate::work::start;

pub(super) fn run(root: Option<&Path>, words: &cli::Resume) -> Result<u8> {
    super::refuse_to_agents("resume")?;
    runtime::inherit_nothing()?;
    let root = Arc::new(Root::discover(root)?);
    let runs = Runs::new(root.clone(), Disk::new(Durability::Power));
    let mailbox = Mailbox::new(root.clone(), Disk::new(Durability::Power));
    let run_id = match (runs.find(&words.run), waiting_start(&mailbox, &words.run)) {
        (Err(_), Some(agent)) => {
            let inboxes = vec![agent.to_string()];
            let drive = Drive::new((&root, &mailbox, &runs), &words.run, inboxes, words);
            let mut tail = Tail::from_start(&root, &words.run, words.json);
            return Drive {
                start: Some(agent),
                ..drive
            }
            .run(&mut tail);
        }
        (found, _) => found?,
    };
    let run = runs.open(&run_id)?;
    if !words.repair {
        refuse_stopped(&run)?;
    }
    let mut workflow = stopping(&mailbox, &run, None, pinned::workflow(&run))?;
    if words.repair {
        let state = run.lock(PATIENCE)?.rebuild(&workflow)?;
        eprintln!(
            "{run_id}: state.json is made anew from {} events",
            state.seq
        );
    }
    if words.update_spec {
        let updated = update_spec(&mailbox, &run, &workflow);
        let updated = stopping(&mailbox, &run, Some(&workflow), updated)?;
        eprintln!("{run_id}: {}", updated.told());
        if let Updated::To(new) = updated {
            workflow = *new;
        }
    }
    let mut tail = Tail::from_now(&root, &run_id, words.json)?;
    let pinned = PinnedRun::with(run, workflow)?;
    let went_on = go_on(&mailbox, &pinned);
    let state = stopping(&mailbox, &pinned.run, Some(&pinned.workflow), went_on)?;
    if state.status == RunStatus::Blocked {
        tail.print()?;
        match words.json {
            true => drop(print_json(&*state)?),
            false => say_blocked(&root, &state),
        }
        return Ok(state.exit_code());
    }
    if words.detach {
        print_line(&run_id)?;
        return Ok(exit::DONE);
    }
    let inboxes = start::inboxes(&pinned.workflow)
        .into_iter()
        .map(str::to_owned);
    let drive = Drive::new((&root, &mailbox, &runs), &run_id, inboxes.collect(), words);
    drive.run(&mut tail)
}

/// Whose inbox the task waits in that starts a run which has not begun, by the run's whole id.
fn waiting_start(mailbox: &Mailbox, run_id: &str) -> Option<AgentName> {
    let (_, rest) = run_id.split_once('-')?;
    let agent = AgentName::parse(rest.rsplit_once('-')?.0).ok()?;
    let name = TaskName::parse(run_id).ok()?;
    let inbox = mailbox.root.inbox.sub(agent.as_str()).ok()?;
    let has = |suffix| inbox.has(&file_name(&name, suffix)).unwrap_or(false);
    (has(TASK) || has(CLAIMED)).then_some(agent)
}

impl<'a> Drive<'a> {
    fn new(
        (root, mailbox, runs): (&'a Arc<Root>, &'a Mailbox, &'a Runs),
        run_id: &'a str,
        inboxes: Vec<String>,
        words: &cli::Resume,
    ) -> Drive<'a> {
        Drive {
            root,
            mailbox,
            runs,
            run_id,
            inboxes,
            start: None,
            jobs: words.jobs,
            record: words.record,
            deadline: words.timeout.map(|timeout| Instant::now() + timeout),
            json: words.json,
        }
    }
}

/// Moves a blocked run on, if what it waited for is there now; one that was only interrupted needs
/// nothing but somebody to work on it. Its pending steps are in their inboxes then.
pub(super) fn go_on(mailbox: &Mailbox, pinned: &PinnedRun) -> Result<Arc<RunState>> {
    let PinnedRun { run, workflow, .. } = pinned;
    // One lock for all of it: another that resumes finds the run as it was, or as it goes on.
    let locked = run.lock(PATIENCE)?;
    let mut state = pinned::begun(run, locked.load(workflow)?)?;
    if !state.status.is_final() {
        locked.check_snapshots(&state)?;
    }
    match state.status {
        RunStatus::Running => {}
        RunStatus::Blocked => {
            let wanted = flow::wanted_on_resume(workflow, &state);
            let facts = pinned.facts(&wanted)?;
            let event = Event::Resumed { facts };
            (state, _) = locked.apply(workflow, state, &now(), event)?;
        }
        status => return Err(is_final(run.id(), status, &state)),
    }
    Dispatcher { mailbox, pinned }
        .drop_pending(&locked, state, 0)
        .map(|(state, _)| state)
}

/// A run that cannot be trusted is ended for good by whoever finds that out.
pub(super) fn stopping<T>(
    mailbox: &Mailbox,
    run: &RunDir,
    workflow: Option<&Workflow>,
    found: Result<T>,
) -> Result<T> {
    if let Err(fault) = &found
        && matches!(fault.kind, Kind::SafetyViolation | Kind::StateCorrupted)
    {
        stop_run(mailbox, run, workflow, fault, None)?;
    }
    found
}

/// One that was ended so is told with the same words and exit code as when it was found out.
fn refuse_stopped(run: &RunDir) -> Result<()> {
    let Ok(state) = run.peek() else {
        return Ok(());
    };
    match &state.error {
        Some(fault) if is_stopped(&state) => {
            let id = run.id();
            let message = clean_line(&format!("run `{id}` was stopped: {}", fault.message));
            // Without its own spec and log there is nothing that it could be started over from.
            let way_out =
                match pinned::workflow(run).and_then(|workflow| pinned::load(run, &workflow)) {
                    Ok(_) => format!("`orch reset {id}` starts it over"),
                    Err(_) => format!("`orch run {}` starts a new one", state.workflow_name),
                };
            Err(Fault::new(fault.kind, message).hint(format!(
                "it cannot go on; `orch audit {id}` names what differs, {way_out}"
            )))
        }
        _ => Ok(()),
    }
}

pub(super) fn is_final(id: &str, status: RunStatus, state: &RunState) -> Fault {
    let why = state
        .error
        .as_ref()
        .map(|fault| format!(": {}", fault.message));
    let message = format!(
        "run `{id}` has {}{}",
        ended(status),
        why.unwrap_or_default()
    );
    Fault::new(Kind::Usage, clean_line(&message)).hint(format!(
        "`orch reset {id}` starts it over; `orch run {}` starts another",
        state.workflow_name
    ))
}

fn ended(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Succeeded => "succeeded, and that is final",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "been cancelled",
        RunStatus::Running | RunStatus::Blocked => "not ended",
    }
}
