//! An event on its way to the log: checked to read back before anything is written.

use serde::Serialize;

use super::log::{Line, NO_LINE, Note};
use crate::run::state::{Checked, Effect, Event, RunState};
use crate::text::error::{Fault, Kind, Result};

/// A line that has been checked to read back, all but what follows from it.
pub(super) struct Draft {
    text: String,
    pub(super) event: Event,
}

impl Draft {
    pub(super) fn new(state: &RunState, at: &str, event: &Event) -> Result<Draft> {
        let prev = if state.seq == 0 {
            NO_LINE
        } else {
            &state.log_head
        };
        let line = Line {
            seq: state.seq + 1,
            at: at.to_owned(),
            prev: prev.to_owned(),
            event: event.clone(),
            checkpoints: Vec::new(),
            checks: Vec::new(),
        };
        let unfit = |e: serde_json::Error| {
            Fault::new(
                Kind::OutputTooLargeError,
                format!("the event cannot be logged: {e}"),
            )
            .hint("JSON may be nested at most about 120 deep")
        };
        let text = serde_json::to_string(&line).map_err(unfit)?;
        let read: Line = serde_json::from_str(&text).map_err(unfit)?;
        Ok(Draft {
            text,
            event: read.event,
        })
    }

    /// The bytes of the line, newline included.
    pub(super) fn finish(mut self, effects: &[Effect]) -> Result<Vec<u8>> {
        let note = |effect: &Effect| match effect {
            Effect::Checkpoint(checkpoint) => Some(Note::from(checkpoint)),
            _ => None,
        };
        let check = |effect: &Effect| match effect {
            Effect::Checked(checked) => Some(checked.clone()),
            _ => None,
        };
        let notes: Vec<Note> = effects.iter().filter_map(note).collect();
        let checks: Vec<Checked> = effects.iter().filter_map(check).collect();
        self.add("checkpoints", &notes)?;
        self.add("checks", &checks)?;
        self.text.push('\n');
        Ok(self.text.into_bytes())
    }

    /// One more list at the end of the line, unless it is empty.
    fn add<T: Serialize>(&mut self, key: &str, list: &[T]) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let list = serde_json::to_string(list)
            .map_err(|e| Fault::new(Kind::IoError, format!("the event cannot be logged: {e}")))?;
        self.text.pop();
        self.text.push_str(&format!(",\"{key}\":{list}}}"));
        Ok(())
    }
}
