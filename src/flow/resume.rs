//! A person asks to go on: from where the run is blocked, with what is there now.

use super::visit::gates;
use super::{Illegal, Run, illegal};
use crate::state::{Block, RunStatus, Stage, StepResult, StepStatus};
use crate::workflow::model::StepId;

impl Run<'_> {
    pub(super) fn resumed(&mut self) -> Result<(), Illegal> {
        let blocks = std::mem::take(&mut self.state.blocks);
        if blocks.is_empty() {
            return illegal("nothing says where the run is blocked");
        }
        // What a person has been asked waits for the answer.
        let (asked, blocks): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| block.task.is_some());
        self.state.blocks = asked;
        let ids = blocks
            .iter()
            .map(|block| self.id(&block.step))
            .collect::<Result<Vec<_>, _>>()?;
        self.state.governance.blocked_reason = None;
        self.state.set_status(RunStatus::Running);
        for (id, block) in ids.into_iter().zip(blocks) {
            if self.state.status.is_final() {
                break;
            }
            self.resume_at(id, block);
        }
        Ok(())
    }

    /// The stored result with the present files comes first; the step runs again only where that
    /// is not enough, and never if it is to run once.
    fn resume_at(&mut self, id: StepId, block: Block) {
        let item = block.item;
        let again = !self.workflow.step(id).once;
        match (block.stage, self.stored_result(id, item)) {
            // What it waits for is pending, as it was.
            (Stage::Task, _) => {}
            (Stage::Requires, _) => self.drop_task(id, item),
            // Rejected: done again, or only asked about again.
            (Stage::Approval, Some(_)) if !again && self.is_approved_afterwards(id) => {
                self.ask_for_approval(id, item);
            }
            (Stage::Approval, _) => self.drop_task(id, item),
            // The conditions of a gate alone come before the question.
            (Stage::Ensures, _) if self.is_gate(id) => self.drop_task(id, item),
            (Stage::Limit, _) => self.enter(id, item),
            (Stage::Ensures, Some(result)) if again && !self.ensured(id, item, &result) => {
                self.drop_task(id, item);
            }
            (Stage::Ensures, Some(result)) => self.settle(id, item, &result),
            (Stage::Next, Some(result)) if again && result.status == StepStatus::Failed => {
                match self.decide(id, item, &result) {
                    Ok(decision) => self.follow(id, item, &result, decision),
                    Err(_) => self.drop_task(id, item),
                }
            }
            (Stage::Next, Some(result)) => self.transit(id, item, &result),
            (Stage::Run, Some(_)) if !again => self.block(block),
            (Stage::Run | Stage::Ensures | Stage::Next, _) => self.drop_task(id, item),
        }
    }

    /// Whether everything holds that must hold after success.
    fn ensured(&self, id: StepId, item: Option<usize>, result: &StepResult) -> bool {
        let sees = self.sees(id, item, Some(result));
        gates(&self.workflow.step(id).ensures, &sees)
            .unmet
            .is_none()
    }
}
