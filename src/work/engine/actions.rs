//! The steps that orch does itself: done by the worker, at once, and told like any other result.

use super::Engine;
use super::attempt::{Began, stamp};
use super::run_work::{Worked, times};
use super::worker::Finished;
use crate::disk::mailbox::Claim;
use crate::run::record::Status;
use crate::run::state::{Pending, RunState};
use crate::work::actions::{self, Act, Done, NotDone, Place};
use crate::work::pinned::PinnedRun;
use crate::work::step::result;

impl Engine {
    pub(super) fn act(
        &self,
        claim: &Claim,
        host: &PinnedRun,
        state: &RunState,
        pending: &Pending,
        attempt: u32,
        act: &Act,
    ) -> Worked {
        let began = Began::now();
        let place = Place {
            root: &self.mailbox.root,
            disk: self.mailbox.disk(),
            run: &host.run,
            task: claim.name.as_str(),
            plan: state.state.get("plan"),
        };
        let done = actions::perform(act, &place);
        let Some(id) = host.workflow.find(&pending.step) else {
            return Worked::Abandoned;
        };
        let step = host.workflow.step(id);
        let run = host.run.id();
        let mut record = self.step_record(claim, run, &pending.step, Status::Succeeded, None);
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
        let mut finished = Finished::without_output(record);
        finished.changes = changes;
        Worked::Result(Box::new(result), Box::new(finished))
    }
}
