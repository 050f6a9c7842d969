//! A person asks to go on: from where the run is blocked, with what is there now.

use super::visit::gates;
use super::{Illegal, Run, illegal};
use crate::run::state::{Block, RunStatus, Stage, StepResult, StepStatus};
use crate::spec::workflow::model::{StepId, Work};

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
            // Approved when its conditions did not hold: they are what is left.
            (Stage::Approval, Some(result)) if self.is_approved(id) => {
                match self.ensured(id, item, &result) {
                    true => self.transit(id, item, &result),
                    false if again => self.drop_task(id, item),
                    false => self.block(block),
                }
            }
            // Rejected: done again, or only asked about again.
            (Stage::Approval, Some(_)) if !again && self.is_approved_afterwards(id) => {
                self.ask_for_approval(id, item);
            }
            (Stage::Approval, _) => self.drop_task(id, item),
            // The conditions of a gate alone come before the question.
            (Stage::Ensures, _) if self.is_gate(id) => self.drop_task(id, item),
            (Stage::Limit, _) => self.enter(id, item),
            (Stage::Ensures, Some(result)) if self.ensured(id, item, &result) => {
                let result = self.done_by_hand(id, item, result);
                self.settle(id, item, &result);
            }
            (Stage::Ensures, Some(_)) if again => self.drop_task(id, item),
            (Stage::Ensures, Some(result)) if result.status == StepStatus::Failed => {
                self.block(block);
            }
            (Stage::Ensures, Some(result)) => self.settle(id, item, &result),
            (Stage::Next, Some(result)) if again && result.status == StepStatus::Failed => {
                match self.decide(id, item, &result) {
                    Ok(decision) => self.follow(id, item, &result, decision),
                    Err(stuck) => {
                        self.checked(id, stuck.guards);
                        self.drop_task(id, item);
                    }
                }
            }
            (Stage::Next, Some(result)) => self.transit(id, item, &result),
            (Stage::Run, Some(_)) if !again => self.block(block),
            (Stage::Run | Stage::Ensures | Stage::Next, _) => self.drop_task(id, item),
        }
    }

    /// A person has corrected the document of a blocked run: a step that failed need not run again
    /// where everything holds now that must hold after success.
    pub(super) fn ask_conditions_first(&mut self) {
        let mut blocks = std::mem::take(&mut self.state.blocks);
        for block in &mut blocks {
            let Some(id) = self.workflow.find(&block.step) else {
                continue;
            };
            let step = self.workflow.step(id);
            let alone = !matches!(step.work, Work::ForEach(_) | Work::Parallel(_));
            if block.stage == Stage::Run
                && block.task.is_none()
                && alone
                && !step.ensures.is_empty()
                && self.has_failed(id, block.item)
            {
                block.stage = Stage::Ensures;
            }
        }
        self.state.blocks = blocks;
    }

    /// The result of a step that had failed, and that a person saw to.
    fn done_by_hand(&mut self, id: StepId, item: Option<usize>, result: StepResult) -> StepResult {
        if result.status != StepStatus::Failed {
            return result;
        }
        let result = StepResult {
            status: StepStatus::Succeeded,
            exit_code: 0,
            error: None,
            ..result
        };
        self.hold(id, item, &result);
        result
    }

    /// Whether everything holds that must hold after success. What does not is told here; the rest
    /// by who goes on.
    fn ensured(&mut self, id: StepId, item: Option<usize>, result: &StepResult) -> bool {
        let asked = gates(
            &self.workflow.step(id).ensures,
            &self.sees(id, item, Some(result)),
        );
        if asked.unmet.is_some() {
            self.checked(id, asked.guards);
            return false;
        }
        true
    }
}
