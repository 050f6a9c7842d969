//! What does not wait its turn: tampering, and tasks that nobody asked for.
//!
//! A hard stop is an event like any other, so that the log tells of it; then what else the run has at
//! work is ended. A run that has ended already is left alone.

use std::sync::Arc;

use super::{StepWorker, forged};
use crate::disk::mailbox::Claim;
use crate::disk::store::{Locked, is_stopped};
use crate::run::state::{Effect, Event, RunState};
use crate::spec::workflow::model::Violation;
use crate::text::error::{Fault, Kind};
use crate::work::cancel::cancel_tasks;
use crate::work::clock::now;
use crate::work::pinned::PinnedRun;

impl StepWorker {
    /// Ends a run for good because of this, which is given back for the task that found it.
    pub(super) fn stop(
        &self,
        pinned: &PinnedRun,
        locked: &Locked<'_>,
        state: Arc<RunState>,
        own: &str,
        fault: Fault,
    ) -> Fault {
        let event = Event::Stopped {
            fault: fault.clone(),
        };
        match locked.apply(&pinned.workflow, state, &now(), event) {
            Ok((state, effects)) => {
                self.report(pinned.run.id(), &effects);
                self.end_others_if_stopped(&state, &effects, own);
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
        pinned: &PinnedRun,
        locked: &Locked<'_>,
        state: Arc<RunState>,
    ) -> Fault {
        let run = pinned.run.id();
        if state.status.is_final() || pinned.workflow.on_violation == Violation::Reject {
            return forged(run);
        }
        let message = format!(
            "the task `{}` came, and the run does not wait for it: it is forged, early or in the wrong inbox",
            claim.target()
        );
        let fault = Fault::new(Kind::ScopeViolation, message)
            .hint("`run` and `step` are orch's own keys; nothing of the task was run");
        let event = Event::Intruded { fault };
        match locked.apply(&pinned.workflow, state, &now(), event) {
            Ok((state, effects)) => {
                self.report(run, &effects);
                self.end_others_if_stopped(&state, &effects, claim.name.as_str());
                forged(run)
            }
            Err(error) => error,
        }
    }

    /// After a hard stop nothing of the run goes on working, and nothing of it waits any more.
    pub(super) fn end_others_if_stopped(&self, state: &RunState, effects: &[Effect], own: &str) {
        if !is_stopped(state) {
            return;
        }
        let left = effects.iter().filter_map(|effect| match effect {
            Effect::Left(left) => Some(left.as_slice()),
            _ => None,
        });
        let why = format!("run `{}` was stopped", state.run_id);
        let why = Fault::new(Kind::Cancelled, why);
        for other in left.flatten().filter(|other| other.task != own) {
            let other = std::slice::from_ref(other);
            if let Err(fault) = cancel_tasks(&self.shared.mailbox, &state.run_id, other, &why) {
                self.shared.reporter.trouble(&fault);
            }
        }
    }
}
