//! What people do in a run: they approve or reject, they reply, and they come back to one that is
//! done.
//!
//! A question is a pending task in the inbox of [`HUMAN`] and a block that names it. Alone it blocks
//! the run; beside work that goes on, it waits with it.

use serde_json::{Value, json};

use super::facts::{Moment, stored, wanted};
use super::visit::gates;
use super::{Illegal, Run, illegal};
use crate::run::state::{
    Asks, Block, Changes, Checkpoint, Decision, Effect, Pending, RunState, RunStatus, Stage,
    StepResult, StepStatus, Verdict,
};
use crate::spec::workflow::Workflow;
use crate::spec::workflow::model::{StepId, Target, Work};
use crate::text::error::{Fault, Kind};

/// Whose inbox questions go through.
pub const HUMAN: &str = "human";

/// A person's word, for the checkpoint of the transition that it leads to.
pub(super) struct Said {
    word: &'static str,
    what: String,
}

impl Said {
    /// The status and the reason of that checkpoint.
    pub(super) fn before(self, reason: &str) -> (String, String) {
        let reason = match reason.is_empty() || reason == self.what {
            true => self.what,
            false => format!("{}; {reason}", self.what),
        };
        (self.word.to_owned(), reason)
    }
}

/// The globs that an answer has to bring with it; `reply` is the result that it is read as.
#[must_use]
pub fn wanted_on_answer(
    workflow: &Workflow,
    state: &RunState,
    pending: &Pending,
    reply: Option<&StepResult>,
) -> std::collections::BTreeSet<String> {
    let Some(id) = workflow.find(&pending.step) else {
        return Default::default();
    };
    let kept = stored(workflow, state, id, pending.item);
    let moment = match (reply, &kept, pending.asks) {
        (Some(reply), ..) => Moment::Finishing(reply),
        (None, Some(kept), Some(Asks::Approval)) => Moment::Finishing(kept),
        _ => Moment::Entering,
    };
    wanted(workflow, state, id, pending.item, moment)
}

impl Run<'_> {
    /// Every gate, closed.
    pub(super) fn close_gates(&mut self) {
        let approvals = self
            .workflow
            .steps
            .iter()
            .filter_map(|s| s.approval.as_ref());
        self.state.governance.approvals = approvals
            .map(|approval| (approval.gate.value.clone(), Value::Bool(false)))
            .collect();
    }

    /// Whether a step does nothing but ask for an approval.
    pub(super) fn is_gate(&self, id: StepId) -> bool {
        matches!(self.workflow.step(id).work, Work::Approval)
    }

    /// Whether what a step did has to be approved.
    pub(super) fn is_approved_afterwards(&self, id: StepId) -> bool {
        self.workflow.step(id).approval.is_some() && !self.is_gate(id)
    }

    /// Whether a person has opened the gate of a step.
    pub(super) fn is_approved(&self, id: StepId) -> bool {
        let approvals = &self.state.governance.approvals;
        let approval = self.workflow.step(id).approval.as_ref();
        approval.is_some_and(|a| approvals.get(&a.gate.value) == Some(&Value::Bool(true)))
    }

    /// A step comes to a person: whether it is needed, whether it may, and then the question.
    pub(super) fn asked(&mut self, task: &str) -> Result<(), Illegal> {
        let pending = self.take_attempt(task, 1)?;
        let work = &self.workflow.step(self.id(&pending.step)?).work;
        if !matches!(work, Work::Agent(_) | Work::Human(_) | Work::Approval) {
            return illegal(format!("no person does `{}`", pending.step));
        }
        let Some(place) = self.state.place_of(task) else {
            return illegal(format!("`{task}` is not pending"));
        };
        let pending = &mut self.state.pending[place];
        pending.agent = HUMAN.to_owned();
        let pending = pending.clone();
        self.entered(pending, None)
    }

    /// The question of a step that a person does.
    pub(super) fn put_question(&mut self, id: StepId, pending: &Pending) {
        if !self.is_gate(id) {
            return self.ask(id, &pending.task, Asks::Reply);
        }
        let ensures = &self.workflow.step(id).ensures;
        let asked = gates(ensures, &self.sees(id, pending.item, None));
        match asked.unmet {
            None => {
                self.checked(id, asked.guards);
                self.ask(id, &pending.task, Asks::Approval);
            }
            Some(unmet) => {
                self.remove_pending(&pending.task);
                self.unmet(
                    id,
                    pending.item,
                    Stage::Ensures,
                    "FAIL",
                    unmet,
                    asked.guards,
                );
            }
        }
    }

    /// What a step did is put before a person.
    pub(super) fn ask_for_approval(&mut self, id: StepId, item: Option<usize>) {
        let pending = self.next_task(id, item, HUMAN.to_owned());
        let task = pending.task.clone();
        self.state.pending.push(Pending {
            attempts: 1,
            ..pending
        });
        self.ask(id, &task, Asks::Approval);
    }

    fn ask(&mut self, id: StepId, task: &str, asks: Asks) {
        let step = self.workflow.step(id);
        let Some(place) = self.state.place_of(task) else {
            return;
        };
        self.state.pending[place].asks = Some(asks);
        let item = self.state.pending[place].item;
        let (stage, reason) = match (asks, &step.approval) {
            (Asks::Approval, Some(approval)) => {
                let gate = &approval.gate.value;
                let governance = &mut self.state.governance;
                governance
                    .approvals
                    .insert(gate.clone(), Value::Bool(false));
                governance.decisions.remove(gate);
                (Stage::Approval, format!("`{gate}` waits for approval"))
            }
            _ => (
                Stage::Run,
                format!("`{}` waits for a reply", step.name.value),
            ),
        };
        self.checkpoint(id, "ASK", "_block", &reason, Vec::new());
        self.state.blocks.push(Block {
            step: step.name.value.clone(),
            item,
            stage,
            reason,
            task: Some(task.to_owned()),
        });
    }

    /// A run with nothing to do but to wait for people is blocked.
    pub(super) fn wait_for_people(&mut self) {
        if self.state.status != RunStatus::Running || self.state.blocks.is_empty() {
            return;
        }
        if self
            .state
            .pending
            .iter()
            .all(|pending| pending.asks.is_some())
        {
            self.say_blocked();
        }
    }

    /// Where only people were waited for, one answer is enough to go on with.
    pub(super) fn go_on_unless_blocked(&mut self) {
        if self.state.status != RunStatus::Blocked {
            return;
        }
        if self.state.blocks.iter().all(|block| block.task.is_some()) {
            self.state.governance.blocked_reason = None;
            self.state.set_status(RunStatus::Running);
        } else {
            let halted = self.halted;
            self.say_blocked();
            self.halted = halted;
        }
    }

    pub(super) fn answered(
        &mut self,
        task: &str,
        verdict: &Verdict,
        by: &str,
    ) -> Result<(), Illegal> {
        let pending = self.begun(task)?;
        match (pending.asks, verdict) {
            (Some(Asks::Reply), Verdict::Replied { result }) => {
                self.said = Some(Said {
                    word: word(result),
                    what: format!("answered by {by}"),
                });
                self.finished(pending, (**result).clone(), &Changes::default())
            }
            (Some(Asks::Approval), Verdict::Approved { note }) => {
                self.decided(&pending, true, note.as_deref(), by)
            }
            (Some(Asks::Approval), Verdict::Rejected { note }) => {
                self.decided(&pending, false, note.as_deref(), by)
            }
            (None, _) => illegal(format!("`{task}` asks nothing of a person")),
            (Some(Asks::Reply), _) => illegal(format!("`{task}` asks for a reply")),
            (Some(Asks::Approval), _) => illegal(format!("`{task}` asks for an approval")),
        }
    }

    fn decided(
        &mut self,
        pending: &Pending,
        approved: bool,
        note: Option<&str>,
        by: &str,
    ) -> Result<(), Illegal> {
        let id = self.id(&pending.step)?;
        let step = self.workflow.step(id);
        let Some(approval) = &step.approval else {
            return illegal(format!("step `{}` has no gate", pending.step));
        };
        let gate = approval.gate.value.clone();
        self.remove_pending(&pending.task);
        self.go_on_unless_blocked();
        let verb = if approved { "approved" } else { "rejected" };
        let mut what = format!("`{gate}` {verb} by {by}");
        if let Some(note) = note {
            what = format!("{what}: {note}");
        }
        let governance = &mut self.state.governance;
        governance.approvals.insert(gate.clone(), json!(approved));
        governance.decisions.insert(
            gate,
            Decision {
                approved,
                by: by.to_owned(),
                at: self.at.to_owned(),
                step: pending.step.clone(),
                note: note.map(str::to_owned),
            },
        );
        let result = self.decided_result(id, pending, approved, note, &what);
        if step.once && approved {
            self.state.done_once.insert(pending.step.clone());
        }
        self.store(id, pending.item, &result);
        let word = if approved { "APPROVED" } else { "REJECTED" };
        let said = what.clone();
        self.said = Some(Said { word, what });
        match (approved, approval.on_reject) {
            (true, _) => {
                // The answer may be a long time after the question.
                let asked = gates(&step.ensures, &self.sees(id, pending.item, Some(&result)));
                match asked.unmet {
                    None => self.transit(id, pending.item, &result),
                    Some(unmet) => {
                        self.unmet(id, pending.item, Stage::Approval, word, unmet, asked.guards)
                    }
                }
            }
            (false, None | Some(Target::Block)) => {
                self.halt(id, pending.item, Stage::Approval, word, said, Vec::new());
            }
            (false, Some(target)) => {
                let shown = self.workflow.target_name(target).to_owned();
                self.checkpoint(id, word, &shown, "", Vec::new());
                self.go(id, pending.item, target, &said);
            }
        }
        Ok(())
    }

    /// What the step left behind, with the note; a gate alone leaves the answer itself.
    fn decided_result(
        &self,
        id: StepId,
        pending: &Pending,
        approved: bool,
        note: Option<&str>,
        what: &str,
    ) -> StepResult {
        let note = note.map(str::to_owned);
        if !self.is_gate(id)
            && let Some(result) = self.stored_result(id, pending.item)
        {
            return StepResult { note, ..result };
        }
        let (status, code, error) = match approved {
            true => (StepStatus::Succeeded, 0, None),
            false => {
                let fault = Fault::new(Kind::Rejected, what);
                (StepStatus::Failed, 1, Some(fault))
            }
        };
        StepResult {
            output: note.clone(),
            note,
            task: Some(format!("{HUMAN}/{}", pending.task)),
            ..self.own_result(id, pending, status, code, error)
        }
    }

    /// A run that is done goes on where the workflow says.
    pub(super) fn reopened(&mut self, reply: &str, by: &str) -> Result<(), Illegal> {
        let Some(id) = self.workflow.follow_up else {
            return illegal("the workflow has no `follow_up`: completed is final");
        };
        self.state
            .variables
            .insert("reply".to_owned(), json!(reply));
        self.state.end_timestamp = None;
        self.state.set_status(RunStatus::Running);
        let step = self.workflow.step(id);
        self.effects.push(Effect::Checkpoint(Checkpoint {
            phase: self.state.metadata.current_phase.clone(),
            step: "reply".to_owned(),
            status: "OK".to_owned(),
            next: step.name.value.clone(),
            reason: format!("by {by}"),
            guards: Vec::new(),
        }));
        if self.may_go() {
            self.enter(id, None);
        }
        Ok(())
    }
}

fn word(result: &StepResult) -> &'static str {
    match result.status {
        StepStatus::Failed => "FAIL",
        StepStatus::Succeeded | StepStatus::Skipped => "OK",
    }
}
