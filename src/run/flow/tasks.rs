//! What is to be done, by the name of its task.
//!
//! Tasks are numbered as they come up and pending ones stay in that order, so that one is found
//! without a look at all.

use super::{Illegal, Run, illegal};
use crate::run::state::{Pending, RunState};

/// What cut an attempt short.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cut {
    /// Its watcher died.
    Crash,
    /// Orch was told to stop, and put it back in good order.
    Stop,
}

impl Run<'_> {
    /// Notes that an attempt at a pending step begins.
    pub(super) fn take_attempt(&mut self, task: &str, attempt: u32) -> Result<Pending, Illegal> {
        let Some(place) = self.state.place_of(task) else {
            return illegal(format!("`{task}` is not pending"));
        };
        let pending = &mut self.state.pending[place];
        if pending.asks.is_some() {
            return illegal(format!("`{task}` waits for a person's answer"));
        }
        if attempt != pending.attempts + 1 {
            return illegal(format!(
                "attempt {attempt} at `{task}` follows attempt {}",
                pending.attempts
            ));
        }
        pending.attempts = attempt;
        pending.since.get_or_insert_with(|| self.at.to_owned());
        pending.put_back = false;
        Ok(pending.clone())
    }

    /// Notes that an attempt was given up in good order.
    pub(super) fn put_back(&mut self, task: &str, attempt: u32) -> Result<(), Illegal> {
        let begun = self.begun(task)?;
        if begun.asks.is_some() {
            return illegal(format!("`{task}` waits for a person's answer"));
        }
        if begun.attempts != attempt {
            return illegal(format!(
                "`{task}` is in attempt {}, not {attempt}",
                begun.attempts
            ));
        }
        if let Some(place) = self.state.place_of(task) {
            self.state.pending[place].put_back = true;
        }
        Ok(())
    }

    /// How the last attempt at a step was cut short, if there was one.
    pub(super) fn cut(&self, task: &str) -> Option<Cut> {
        let begun = self.state.pending(task).filter(|p| p.attempts > 0)?;
        Some(match begun.put_back {
            true => Cut::Stop,
            false => Cut::Crash,
        })
    }

    /// Its work begins with the next attempt.
    pub(super) fn begins_anew(&mut self, task: &str) {
        if let Some(place) = self.state.place_of(task) {
            self.state.pending[place].since = None;
        }
    }

    /// The pending step, if an attempt at it is under way.
    pub(super) fn begun(&self, task: &str) -> Result<Pending, Illegal> {
        match self.state.pending(task) {
            None => illegal(format!("`{task}` is not pending")),
            Some(pending) if pending.attempts == 0 => illegal(format!("`{task}` was never begun")),
            Some(pending) if pending.put_back => illegal(format!("`{task}` was put back")),
            Some(pending) => Ok(pending.clone()),
        }
    }

    pub(super) fn remove_pending(&mut self, task: &str) {
        if let Some(place) = self.state.place_of(task) {
            self.state.pending.remove(place);
            let blocks = &mut self.state.blocks;
            blocks.retain(|block| block.task.as_deref() != Some(task));
        }
    }
}

impl RunState {
    /// Where a task stands among the pending ones, which are in the order of their numbers.
    pub(crate) fn place_of(&self, task: &str) -> Option<usize> {
        let wanted = self.number_of(task)?;
        let before = |pending: &Pending| self.number_of(&pending.task) < Some(wanted);
        let place = self.pending.partition_point(before);
        (self.pending.get(place)?.task == task).then_some(place)
    }

    /// The pending steps whose tasks have a higher number than this.
    pub(crate) fn pending_after(&self, number: u64) -> &[Pending] {
        let before = |pending: &Pending| self.number_of(&pending.task) <= Some(number);
        &self.pending[self.pending.partition_point(before)..]
    }

    /// The number in a task's name.
    fn number_of(&self, task: &str) -> Option<u64> {
        let rest = task.strip_prefix(self.run_id.as_str())?.strip_prefix('.')?;
        rest.split_once('-')?.0.parse().ok()
    }
}
