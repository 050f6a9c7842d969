//! What does not wait its turn: tampering, and tasks that nobody asked for.
//!
//! A hard stop is an event like any other, so that the log tells of it; then what else the run has at
//! work is ended. A run that has ended already is left alone.

use std::sync::Arc;

use super::Engine;
use super::run::{Host, forged};
use crate::error::{Fault, Kind, Result};
use crate::mailbox::{CLAIMED, Claim, file_name};
use crate::record::{Record, Status};
use crate::runs::now;
use crate::state::{Event, Pending, RunState, RunStatus};
use crate::store::Locked;
use crate::task::{AgentName, TaskName};
use crate::workflow::model::Violation;

impl Engine {
    /// Ends a run for good because of this, which is given back for the task that found it.
    pub(super) fn stop(
        &self,
        host: &Host,
        locked: &Locked<'_>,
        state: Arc<RunState>,
        own: &str,
        fault: Fault,
    ) -> Fault {
        let others = state.pending.clone();
        let event = Event::Stopped {
            fault: fault.clone(),
        };
        match locked.apply(&host.workflow, state, &now(), event) {
            Ok((state, effects)) => {
                self.tell(host.run.id(), &effects);
                self.end_others_if_stopped(&state, &others, own);
                fault
            }
            // It is found again by whoever looks next.
            Err(error) => error,
        }
    }

    /// A task that the run does not wait for, and never did: it is refused in any case, and the run
    /// is blocked or stopped where its workflow says so.
    pub(super) fn intrusion(
        &self,
        claim: &Claim,
        host: &Host,
        locked: &Locked<'_>,
        state: Arc<RunState>,
    ) -> Fault {
        let run = host.run.id();
        if state.status.is_final() || host.workflow.on_violation == Violation::Reject {
            return forged(run);
        }
        let message = format!(
            "the task `{}` came, and the run does not wait for it: it is forged, early or in the wrong inbox",
            claim.target()
        );
        let fault = Fault::new(Kind::ScopeViolation, message)
            .hint("`run` and `step` are orch's own keys; nothing of the task was run");
        let others = state.pending.clone();
        let event = Event::Intruded { fault };
        match locked.apply(&host.workflow, state, &now(), event) {
            Ok((state, effects)) => {
                self.tell(run, &effects);
                self.end_others_if_stopped(&state, &others, claim.name.as_str());
                forged(run)
            }
            Err(error) => error,
        }
    }

    /// After a hard stop nothing of the run goes on working.
    pub(super) fn end_others_if_stopped(&self, state: &RunState, others: &[Pending], own: &str) {
        let stopped = state.status == RunStatus::Failed
            && state
                .error
                .as_ref()
                .is_some_and(|fault| fault.kind == Kind::SafetyViolation);
        if !stopped {
            return;
        }
        for other in others.iter().filter(|other| other.task != own) {
            if let Err(fault) = self.end_other(&state.run_id, other) {
                self.trouble(&fault);
            }
        }
    }

    fn end_other(&self, run: &str, pending: &Pending) -> Result<()> {
        let agent = AgentName::parse(&pending.agent)?;
        let name = TaskName::parse(&pending.task)?;
        let mut record = Record::new(agent.as_str(), name.as_str(), 1, Status::Cancelled);
        record.run = Some(run.to_owned());
        record.step = Some(pending.step.clone());
        record.start_time = now();
        record.end_time.clone_from(&record.start_time);
        let why = format!("run `{run}` was stopped");
        record.error = Some(Fault::new(Kind::Cancelled, why));
        let ended = self.mailbox.agent(&agent).and_then(|folders| {
            // What only waits is retired when its turn comes: nothing waits for it any more.
            match folders.inbox.has(&file_name(&name, CLAIMED))? {
                true => self
                    .mailbox
                    .cancel_running(&folders, &name, &record)
                    .map(|_| ()),
                false => Ok(()),
            }
        });
        ended.map_err(|e| Fault::io("end", format!("{agent}/{name}"), &e))
    }
}
