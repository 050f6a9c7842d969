//! What happens next: a state and an event in, the next state and what it calls for out.
//!
//! Pure: no file, process, clock or random number. Time comes with the event, and so does what the
//! disk looked like ([`Facts`]). Recovery and audit are this same function replayed over the log.
//!
//! Every pair of state and event that is legal stands in [`step`]; everything else is one
//! [`Illegal`], and changes nothing.

pub mod document;
mod facts;
mod finish;
mod lock;
mod loops;
mod number;
mod people;
mod resume;
mod spec;
mod tasks;
mod visit;

#[cfg(test)]
mod tests;

use serde_json::Map;

use facts::NO_FACTS;
pub use facts::{Moment, scope, wanted, wanted_on_resume};
pub use number::{clamped, number};
pub use people::{HUMAN, wanted_on_answer};

use crate::run::state::{
    Block, Checked, Checkpoint, Effect, Event, Facts, Governance, Metadata, RunState, RunStatus,
    Stage, StepStatus, VERSION,
};
use crate::spec::expr::with_room;
use crate::spec::workflow::Workflow;
use crate::spec::workflow::model::{StepId, Target};
use crate::text::error::{Fault, Kind};

/// An event that does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Illegal(pub String);

/// The state before the first event of a run.
#[must_use]
pub fn nothing() -> RunState {
    RunState {
        version: VERSION,
        run_id: String::new(),
        workflow_name: String::new(),
        workflow_sha256: String::new(),
        status: RunStatus::Running,
        metadata: Metadata::default(),
        governance: Governance::default(),
        start_timestamp: String::new(),
        end_timestamp: None,
        seq: 0,
        log_head: String::new(),
        variables: Map::new(),
        visits: Default::default(),
        snapshots: Map::new(),
        step_results: Map::new(),
        pending: Vec::new(),
        state: Map::new(),
        transitions: 0,
        tasks: 0,
        counts: Default::default(),
        blocks: Vec::new(),
        error: None,
        loops: Default::default(),
        loop_results: Default::default(),
        groups: Default::default(),
        done_once: Default::default(),
    }
}

/// Applies an event that happened at `at`. On an error the state must be thrown away.
///
/// # Errors
/// Where the event does not fit the state.
pub fn step(
    workflow: &Workflow,
    state: RunState,
    at: &str,
    event: &Event,
) -> Result<(RunState, Vec<Effect>), Illegal> {
    with_room(|| applied(workflow, state, at, event))
}

fn applied(
    workflow: &Workflow,
    state: RunState,
    at: &str,
    event: &Event,
) -> Result<(RunState, Vec<Effect>), Illegal> {
    let mut flow = Run {
        workflow,
        state,
        at,
        facts: match event {
            Event::Entered { facts, .. }
            | Event::Finished { facts, .. }
            | Event::Asked { facts, .. }
            | Event::Answered { facts, .. }
            | Event::Resumed { facts } => facts,
            _ => &NO_FACTS,
        },
        due: None,
        halted: false,
        said: None,
        effects: Vec::new(),
    };
    flow.apply(event)?;
    flow.end_waves();
    flow.wait_for_people();
    if flow.halted && flow.state.status == RunStatus::Blocked {
        flow.effects.push(Effect::Ended(RunStatus::Blocked));
    }
    flow.state.seq += 1;
    Ok((flow.state, flow.effects))
}

/// What [`Event::Stopped`] makes of a state, all but its number: it needs no workflow, which may be
/// what is wrong.
#[must_use]
pub fn stopped(mut state: RunState, at: &str, fault: &Fault) -> RunState {
    state.error = Some(fault.clone());
    end(&mut state, at, RunStatus::Failed);
    state
}

/// Nothing is to be done any more.
fn end(state: &mut RunState, at: &str, status: RunStatus) {
    state.pending.clear();
    state.blocks.clear();
    state.loops.clear();
    state.groups.clear();
    state.governance.blocked_reason = None;
    state.end_timestamp = Some(at.to_owned());
    state.set_status(status);
}

/// One application of an event.
struct Run<'w> {
    workflow: &'w Workflow,
    state: RunState,
    at: &'w str,
    /// What the disk looked like at this event.
    facts: &'w Facts,
    /// The loop whose wave is over: what follows is seen to when the event itself is.
    due: Option<StepId>,
    /// Whether it was blocked by this event.
    halted: bool,
    /// What a person said that leads to the next checkpoint.
    said: Option<people::Said>,
    effects: Vec<Effect>,
}

impl Run<'_> {
    fn apply(&mut self, event: &Event) -> Result<(), Illegal> {
        let status = self.state.status;
        let begun = self.state.seq > 0;
        match event {
            Event::Created { .. } if !begun => self.created(event),
            _ if !begun => illegal("the run does not exist yet"),
            Event::Entered { task, attempt, .. } if status == RunStatus::Running => {
                let cut = self.cut(task);
                let pending = self.take_attempt(task, *attempt)?;
                if pending.agent == HUMAN {
                    return illegal(format!("`{}` is for a person to do", pending.step));
                }
                self.entered(pending, cut)
            }
            // What was started before a block goes on, and is finished, all the same.
            Event::Retried { task, attempt } if !status.is_final() => {
                // What was never begun has not passed its gates yet.
                self.begun(task)?;
                self.begins_anew(task);
                let pending = self.take_attempt(task, *attempt)?;
                self.effects.push(Effect::Run(pending));
                Ok(())
            }
            Event::PutBack { task, attempt } if !status.is_final() => self.put_back(task, *attempt),
            Event::Finished {
                task,
                result,
                changes,
                ..
            } if !status.is_final() => {
                let pending = self.begun(task)?;
                self.finished(pending, (**result).clone(), changes)
            }
            Event::Intruded { fault } if !status.is_final() => self.intruded(fault),
            Event::Corrected { set, note } if status == RunStatus::Blocked => {
                self.corrected(set, note)
            }
            Event::Asked { task, .. } if status == RunStatus::Running => self.asked(task),
            Event::Answered {
                task, verdict, by, ..
            } if !status.is_final() => self.answered(task, verdict, by),
            Event::Reopened { reply, by } if status == RunStatus::Succeeded => {
                self.reopened(reply, by)
            }
            Event::Resumed { .. } if status == RunStatus::Blocked => self.resumed(),
            Event::Cancelled if !status.is_final() => {
                self.end(RunStatus::Cancelled);
                Ok(())
            }
            Event::Stopped { fault } if !status.is_final() => {
                self.fail(fault.clone());
                Ok(())
            }
            Event::Reset => self.reset(),
            Event::SpecUpdated {
                workflow_sha256,
                spec_sha256,
            } if !status.is_final() => self.spec_updated(workflow_sha256, spec_sha256),
            _ => illegal(format!(
                "a run that is {} takes no such event",
                status.as_str()
            )),
        }
    }

    fn created(&mut self, event: &Event) -> Result<(), Illegal> {
        let Event::Created {
            run_id,
            workflow_name,
            workflow_sha256,
            variables,
        } = event
        else {
            return illegal("not the start of a run");
        };
        self.state.run_id.clone_from(run_id);
        self.state.workflow_name.clone_from(workflow_name);
        self.state.workflow_sha256.clone_from(workflow_sha256);
        self.state.variables.clone_from(variables);
        self.begin();
        Ok(())
    }

    /// The first step, of a new run or of one that starts over.
    fn begin(&mut self) {
        self.state.start_timestamp = self.at.to_owned();
        self.state.state.clone_from(&self.workflow.state);
        self.close_gates();
        self.state.set_status(RunStatus::Running);
        let first = self.workflow.order[0];
        self.enter(first, None);
    }

    /// Everything but who it is and how far the log and the tasks have been counted.
    fn reset(&mut self) -> Result<(), Illegal> {
        let old = std::mem::replace(&mut self.state, nothing());
        self.state.run_id = old.run_id;
        self.state.workflow_name = old.workflow_name;
        self.state.workflow_sha256 = old.workflow_sha256;
        self.state.variables = old.variables;
        self.state.variables.remove("reply");
        self.state.seq = old.seq;
        self.state.log_head = old.log_head;
        self.state.tasks = old.tasks;
        self.begin();
        Ok(())
    }

    fn id(&self, step: &str) -> Result<StepId, Illegal> {
        self.workflow
            .find(step)
            .ok_or_else(|| Illegal(format!("the workflow has no step `{step}`")))
    }

    /// Says what the conditions of a step evaluated to that led to no transition.
    fn checked(&mut self, id: StepId, guards: Vec<String>) {
        if !guards.is_empty() {
            let step = self.workflow.step(id).name.value.clone();
            self.effects.push(Effect::Checked(Checked { step, guards }));
        }
    }

    /// Says that a transition was made.
    fn checkpoint(
        &mut self,
        id: StepId,
        status: &str,
        target: &str,
        reason: &str,
        guards: Vec<String>,
    ) {
        let step = self.workflow.step(id);
        let (status, reason) = match self.said.take() {
            Some(said) => said.before(reason),
            None => (status.to_owned(), reason.to_owned()),
        };
        self.effects.push(Effect::Checkpoint(Checkpoint {
            phase: step.phase.clone(),
            step: step.name.value.clone(),
            status,
            next: target.to_owned(),
            reason,
            guards,
        }));
    }

    fn block(&mut self, block: Block) {
        self.state.blocks.push(block);
        self.say_blocked();
    }

    /// Blocked, for every reason that there is.
    fn say_blocked(&mut self) {
        let blocks = self.state.blocks.iter();
        let reasons: Vec<_> = blocks.map(|block| block.reason.as_str()).collect();
        self.state.governance.blocked_reason = Some(reasons.join("; "));
        self.state.set_status(RunStatus::Blocked);
        self.halted = true;
    }

    fn fail(&mut self, fault: Fault) {
        if self.state.status.is_final() {
            return;
        }
        self.state.error = Some(fault);
        self.end(RunStatus::Failed);
    }

    fn end(&mut self, status: RunStatus) {
        let pending = std::mem::take(&mut self.state.pending);
        let (questions, left): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|p| p.asks.is_some());
        self.effects
            .extend(questions.into_iter().map(Effect::Unasked));
        if !left.is_empty() {
            self.effects.push(Effect::Left(left));
        }
        end(&mut self.state, self.at, status);
        self.effects.push(Effect::Ended(status));
    }

    /// Counts a transition; false if it was one too many, and that has ended the run.
    fn may_go(&mut self) -> bool {
        self.state.transitions += 1;
        let most = self.workflow.max_transitions;
        let within = self.state.transitions <= most;
        if !within {
            let why = format!("the run has made {most} transitions and is not done");
            let hint = "`max_transitions` is the ceiling for any run of this workflow";
            self.fail(Fault::new(Kind::LimitExceeded, why).hint(hint));
        }
        within
    }

    /// Goes where a transition leads.
    fn go(&mut self, from: StepId, item: Option<usize>, target: Target, reason: &str) {
        if !self.may_go() {
            return;
        }
        match target {
            Target::Step(id) => self.enter(id, item),
            Target::End => self.end(RunStatus::Succeeded),
            Target::Fail => {
                let fault = self.failure_of(from, item, target, reason);
                self.fail(fault);
            }
            Target::Block => {
                let reason = self.failure_of(from, item, target, reason).message;
                self.block(Block {
                    step: self.workflow.step(from).name.value.clone(),
                    item,
                    stage: if self.has_failed(from, item) {
                        Stage::Run
                    } else {
                        Stage::Next
                    },
                    reason,
                    task: None,
                });
            }
            Target::Stop => {
                let fault = self.failure_of(from, item, target, reason);
                self.fail(Fault {
                    kind: Kind::SafetyViolation,
                    ..fault
                });
            }
            Target::Next => self.item_ended(from, item, StepStatus::Succeeded, 0),
        }
    }

    /// Why a run fails or is blocked by this step: the given reason, else the step's own error.
    fn failure_of(&self, id: StepId, item: Option<usize>, target: Target, reason: &str) -> Fault {
        let name = &self.workflow.step(id).name.value;
        let result = self.stored_result(id, item);
        let failed = result.filter(|result| result.status == StepStatus::Failed);
        let code = failed.as_ref().map(|result| result.exit_code);
        let error = failed.and_then(|result| result.error);
        let message = match (reason.is_empty(), &error, code) {
            (false, ..) => reason.to_owned(),
            (true, Some(error), _) => format!("step `{name}` failed: {}", error.message),
            (true, None, Some(code)) => format!("step `{name}` failed with exit code {code}"),
            (true, None, None) => format!(
                "step `{name}` leads to `{}`",
                self.workflow.target_name(target)
            ),
        };
        match error {
            Some(error) => Fault { message, ..error },
            None => Fault::new(Kind::StepFailed, message),
        }
    }
}

fn illegal<T>(why: impl Into<String>) -> Result<T, Illegal> {
    Err(Illegal(why.into()))
}
