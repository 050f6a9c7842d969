//! The copy of the canonical document that a step gets, and what it made of it.
//!
//! It lies beside the step's other artifacts as `NAME.state`, made anew for every attempt; earlier
//! attempts keep theirs as `NAME~k.state`. What a step may change, and what a change is, is decided
//! in `flow::document`; here the file is written and read back, and nothing that is found in it is
//! trusted.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Map, Value};

use crate::disk::mailbox::{STATE, file_name};
use crate::disk::safety::{Dir, Meta};
use crate::run::flow::document::{compare, document, outside, told, violation};
use crate::run::mask::Masker;
use crate::run::output::INVALID_OUTPUT as INVALID;
use crate::run::output::{MAX_JSON_BYTES, is_deeper};
use crate::run::state::{Changes, RunState, StepResult, StepStatus};
use crate::spec::task::TaskName;
use crate::spec::workflow::model::{Step, Text, Work};
use crate::text::canonical::MAX_JSON_DEPTH;
use crate::text::error::{Fault, Kind};

/// By this word a text asks for the document: `${STATE_FILE}` or `$ORCH_STATE_FILE`.
pub const ASKED_BY: &str = "STATE_FILE";
/// The variable with its path.
pub const VARIABLE: &str = "ORCH_STATE_FILE";

/// The copy of the document for one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    before: Map<String, Value>,
    step: String,
    updates: Vec<Text>,
}

/// Whether a step gets a copy at all: it may change a part, or one of its texts names the file.
pub(crate) fn is_wanted(step: &Step) -> bool {
    let names = |text: &Text| text.value.contains(ASKED_BY);
    let by_text = match &step.work {
        Work::Agent(agent) => {
            let in_params = |value: &Value| value.to_string().contains(ASKED_BY);
            agent.prompt.iter().any(names) || agent.params.values().any(in_params)
        }
        Work::Command(command) => command.iter().any(names),
        _ => false,
    };
    by_text || !step.updates.is_empty()
}

impl Document {
    /// The copy for a step of this run.
    pub(crate) fn of(step: &Step, state: &RunState) -> Document {
        Document {
            before: document(state),
            step: step.name.value.clone(),
            updates: step.updates.clone(),
        }
    }

    /// Puts it into the folder of the step's artifacts, in the place of whatever is there.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, dir: &Dir, name: &TaskName) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.before)?;
        text.push(b'\n');
        let mut file = dir.create_anew(&file_name(name, STATE))?;
        file.write_all(&text)?;
        if self.updates.is_empty() {
            file.set_permissions(std::fs::Permissions::from_mode(0o444))?;
        }
        Ok(())
    }

    /// Takes secrets out of what the step left, so that nothing is made of them. What cannot be read
    /// is told by [`Document::settle`].
    pub fn hide(&self, dir: &Dir, name: &TaskName, masker: &Masker) {
        if masker.is_idle() {
            return;
        }
        let file = file_name(name, STATE);
        let plain = dir.find(&file).ok().flatten();
        if !plain.is_some_and(|meta| meta.is_plain()) {
            return;
        }
        let mut bytes = Vec::new();
        let open = dir.open(&file);
        if open
            .and_then(|it| it.take(MAX_JSON_BYTES as u64 + 1).read_to_end(&mut bytes))
            .is_err()
        {
            return;
        }
        let mut masked = masker.bytes(&bytes);
        if let Ok(before) = serde_json::from_slice::<Value>(&bytes) {
            let mut after = before.clone();
            masker.value(&mut after);
            if before == after {
                return;
            }
            masked = serde_json::to_vec_pretty(&after).unwrap_or(masked);
        }
        if masked != bytes {
            let written = dir
                .create_anew(&file)
                .and_then(|mut it| it.write_all(&masked));
            if let Err(e) = written {
                tracing::warn!(file, error = %e, "the document of a step could not be masked");
            }
        }
    }

    /// What the step changed. One that went beyond its parts, or left something that is no document,
    /// has failed, and nothing is taken.
    pub fn settle(&self, dir: &Dir, name: &TaskName, result: &mut StepResult) -> Changes {
        let succeeded = result.status == StepStatus::Succeeded;
        let found = self.changes(dir, name, result);
        match found {
            Ok(changes) if succeeded => changes,
            // A process that was ended in the middle may have left half a document.
            Err(fault) if succeeded || fault.kind == Kind::ScopeViolation => {
                result.status = StepStatus::Failed;
                result.exit_code = INVALID;
                result.error = Some(fault);
                Changes::default()
            }
            _ => Changes::default(),
        }
    }

    fn changes(&self, dir: &Dir, name: &TaskName, result: &StepResult) -> Result<Changes, Fault> {
        let after = self.read(dir, &file_name(name, STATE))?;
        let mut changes = compare(&self.before, &after);
        if changes.is_empty()
            && let Some(output) = &result.json_data
        {
            changes = told(&self.before, output, &self.updates);
        }
        match outside(&self.step, &changes, &self.updates) {
            Some(fault) => Err(fault),
            None => Ok(changes),
        }
    }

    fn read(&self, dir: &Dir, file: &str) -> Result<Map<String, Value>, Fault> {
        let step = &self.step;
        let shown = dir.path().join(file);
        match dir.find(file) {
            Ok(Some(meta)) if meta.is_plain() => {}
            Ok(None) => {
                let message = format!("step `{step}` removed the document `{file}`");
                return Err(violation(message).hint("it may change fields, not take it away"));
            }
            Ok(Some(_)) => {
                let message = format!("step `{step}` put something else in the place of `{file}`");
                return Err(violation(message).hint("the document is a plain file of one name"));
            }
            Err(e) => return Err(Fault::io("look at", shown, &e)),
        }
        let mut bytes = Vec::new();
        let read = dir.open(file).and_then(|open| {
            // It may have been replaced since it was looked at.
            match Meta::of_file(&open)?.is_plain() {
                true => open.take(MAX_JSON_BYTES as u64 + 1).read_to_end(&mut bytes),
                false => Err(io::Error::other("it is not a plain file")),
            }
        });
        read.map_err(|e| Fault::io("read", &shown, &e))?;
        if bytes.len() > MAX_JSON_BYTES {
            let message = format!("step `{step}` left a document of more than 1 MiB");
            return Err(Fault::new(Kind::OutputTooLargeError, message)
                .hint("keep what is large in files, and name them in the document"));
        }
        let bad = |why: String| {
            let message = format!("step `{step}` left a document that cannot be read: {why}");
            Fault::new(Kind::JsonParseError, message)
                .hint(format!("`{file}` must be one JSON object, as it was"))
        };
        let after = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
        if is_deeper(&after, MAX_JSON_DEPTH) {
            return Err(bad(format!(
                "it is nested more than {MAX_JSON_DEPTH} levels deep"
            )));
        }
        match after {
            Value::Object(after) => Ok(after),
            _ => Err(bad("it is not an object".to_owned())),
        }
    }
}
