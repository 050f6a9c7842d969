//! Locked decisions: the JSON of a step, kept as a snapshot that nothing changes any more.
//!
//! Here it is decided what is locked and what its hash is. The file is written by the store, before
//! the event: from the commit on, one that is missing or differs was tampered with.

use serde_json::json;

use super::Run;
use crate::run::state::{Effect, StepResult, StepStatus};
use crate::spec::workflow::model::{Row, StepId};
use crate::text::canonical;
use crate::text::error::{Fault, Kind};

/// What a row of `next` locks.
pub(super) struct Lock {
    name: String,
    text: String,
}

/// The decision that a row locks, if it locks one; or why it cannot.
pub(super) fn locked(row: &Row, result: &StepResult) -> Result<Option<Lock>, String> {
    let Some(name) = &row.lock else {
        return Ok(None);
    };
    match &result.json_data {
        Some(document) if result.status == StepStatus::Succeeded => Ok(Some(Lock {
            name: name.value.clone(),
            text: canonical::text(document),
        })),
        _ => Err(format!(
            "`lock: {}` has nothing to lock: the step left no JSON",
            name.value
        )),
    }
}

impl Run<'_> {
    /// Locks a decision, in the same commit as the transition. One that is locked already may be
    /// locked again only as it is.
    pub(super) fn lock(&mut self, id: StepId, lock: Lock) -> Result<(), Fault> {
        let Lock { name, text } = lock;
        let sha256 = canonical::sha256(text.as_bytes());
        let step = &self.workflow.step(id).name.value;
        match self.state.snapshots.get(&name) {
            Some(before) if before["sha256"] == sha256.as_str() => Ok(()),
            Some(before) => {
                let message = format!(
                    "step `{step}` would change the snapshot `{name}`, which has been locked since {}",
                    before["locked_at"].as_str().unwrap_or_default()
                );
                Err(Fault::new(Kind::SafetyViolation, message)
                    .hint("a locked decision is never changed; `orch reset` clears it"))
            }
            None => {
                let snapshot = json!({
                    "status": "LOCKED", "sha256": sha256, "locked_at": self.at, "step": step,
                });
                self.state.snapshots.insert(name.clone(), snapshot);
                self.effects.push(Effect::Lock { name, text });
                Ok(())
            }
        }
    }
}
