//! The steps that orch does itself: done by the worker, at once, and told like any other result.

use super::perform::times;
use super::{StepWorker, step_record};
use crate::disk::mailbox::Claim;
use crate::run::record::Status;
use crate::run::state::{Pending, RunState};
use crate::work::actions::{self, Act, Done, NotDone, Place};
use crate::work::commit::{Began, stamp};
use crate::work::outcome::{Finished, FinishedStep, Unfinished, Worked};
use crate::work::pinned::PinnedRun;
use crate::work::step::result;

impl StepWorker {
    pub(super) fn do_action(
        &self,
        claim: &Claim,
        pinned: &PinnedRun,
        state: &RunState,
        pending: &Pending,
        attempt: u32,
        act: &Act,
    ) -> Worked<FinishedStep> {
        let began = Began::now();
        let place = Place {
            root: &self.shared.mailbox.root,
            disk: self.shared.mailbox.disk(),
            run: &pinned.run,
            task: claim.name.as_str(),
            plan: state.state.get("plan"),
        };
        let done = actions::perform(act, &place);
        let Some(id) = pinned.workflow.find(&pending.step) else {
            return Err(Unfinished::Abandoned);
        };
        let step = pinned.workflow.step(id);
        let run = pinned.run.id();
        let mut record = step_record(claim, run, &pending.step, Status::Succeeded, None);
        record.attempt = attempt;
        stamp(&mut record, began);
        let visit = (pending.visit, attempt);
        let mut result = result::action_result(step, visit, &times(&record));
        result.task = Some(claim.target());
        let mut changes = Default::default();
        match done {
            Ok(Done {
                text,
                json,
                changes: own,
            }) => {
                record.output.clone_from(&text);
                result.output = Some(text);
                result.json_data = Some(json);
                changes = own;
            }
            Err(NotDone {
                fault,
                exit_code,
                json,
            }) => {
                result::fail(&mut result, *fault, exit_code);
                result.json_data = json;
                record.status = Status::Failed;
                record.error.clone_from(&result.error);
            }
        }
        record.exit_code = Some(result.exit_code);
        Ok(FinishedStep {
            result,
            changes,
            finished: Finished::without_output(record),
        })
    }
}
