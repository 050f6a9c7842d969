//! An event on its way to the log: checked to read back before anything is written.

use super::log::{Line, NO_LINE, Note};
use crate::error::{Fault, Kind, Result};
use crate::state::{Effect, Event, RunState};

/// A line that has been checked to read back, all but its checkpoints.
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
        let notes: Vec<Note> = effects.iter().filter_map(note).collect();
        if !notes.is_empty() {
            let notes = serde_json::to_string(&notes).map_err(|e| {
                Fault::new(Kind::IoError, format!("the event cannot be logged: {e}"))
            })?;
            self.text.pop();
            self.text.push_str(",\"checkpoints\":");
            self.text.push_str(&notes);
            self.text.push('}');
        }
        self.text.push('\n');
        Ok(self.text.into_bytes())
    }
}
