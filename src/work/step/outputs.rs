//! What earlier steps printed, read from their artifacts when a prompt asks for it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use serde_json::Value;

use crate::disk::mailbox::{ERR, OUT, RAW, file_name};
use crate::disk::root::Root;
use crate::disk::safety::{Dir, Meta};
use crate::disk::store::{open_below, sha256};
use crate::spec::task::{AgentName, TaskName};
use crate::spec::vars::{MAX_OUTPUT_BYTES, Outputs, Printed};
use crate::text::error::{Fault, Kind, Result};

/// How much of the end of each stream `tail` gives.
const TAIL_BYTES: u64 = 64 * 1024;
/// How much of the end of a command's complaints its result keeps.
const STDERR_BYTES: u64 = 2 * 1024;

/// The outputs of a run's steps; only a prompt takes them whole.
pub(super) struct Artifacts<'a> {
    pub(super) root: &'a Root,
    /// `steps`, as the scope has it.
    pub(super) steps: &'a Value,
    /// Whether `output` is all of it.
    pub(super) whole: bool,
}

impl Outputs for Artifacts<'_> {
    fn whole(&self, step: &str) -> Option<Printed> {
        let result = self.result(step).filter(|_| self.whole)?;
        let (dir, name) = match self.task(result)? {
            Ok(task) => task,
            Err(e) => return Some(Printed::Lost(e.to_string())),
        };
        match read_whole(&dir, &file_name(&name, OUT), MAX_OUTPUT_BYTES as u64) {
            Ok(Seen::Bytes(bytes)) => Some(checked(result, &file_name(&name, OUT), &bytes)),
            Ok(Seen::TooLong(bytes)) => Some(Printed::TooLong(bytes)),
            // A step without an answer has what its result keeps, if that is all of it.
            Err(e) if e.kind() == io::ErrorKind::NotFound && result["truncated"] != true => None,
            Err(e) => Some(Printed::Lost(e.to_string())),
        }
    }

    fn tail(&self, step: &str) -> Printed {
        let Some(result) = self.result(step) else {
            return Printed::Nothing;
        };
        match self.task(result) {
            None => Printed::Nothing,
            Some(Err(e)) => Printed::Lost(e.to_string()),
            Some(Ok((dir, name))) => match tails(&dir, &name) {
                Ok(text) => Printed::Text(text),
                Err(e) => Printed::Lost(e.to_string()),
            },
        }
    }
}

/// How much of an answer is looked at for files.
const MOST_APPLIED: u64 = 16 << 20;

impl Artifacts<'_> {
    /// The whole answer of a step, and whether it changed files while it ran.
    ///
    /// # Errors
    /// It has none, or not any more, or it is too long.
    pub(super) fn to_apply(&self, step: &str) -> Result<(String, bool)> {
        let gone =
            |kind: Kind, why: &str| Fault::new(kind, format!("the output of `{step}` {why}"));
        let Some(result) = self.result(step) else {
            return Err(gone(
                Kind::UndefinedVariableError,
                "is not there: it has not run",
            ));
        };
        let changed = result["more"]["files_changed"].as_u64().unwrap_or(0);
        let (dir, name) = match self.task(result) {
            Some(Ok((dir, name))) => (dir, name),
            Some(Err(e)) => return Err(gone(Kind::FileNotFound, &format!("cannot be read: {e}"))),
            None => {
                return Ok((
                    result["output"].as_str().unwrap_or_default().to_owned(),
                    changed > 0,
                ));
            }
        };
        let file = file_name(&name, OUT);
        let printed = match read_whole(&dir, &file, MOST_APPLIED) {
            Ok(Seen::Bytes(bytes)) => checked(result, &file, &bytes),
            Ok(Seen::TooLong(bytes)) => Printed::TooLong(bytes),
            Err(e) if e.kind() == io::ErrorKind::NotFound && result["truncated"] != true => {
                Printed::Text(result["output"].as_str().unwrap_or_default().to_owned())
            }
            Err(e) => Printed::Lost(e.to_string()),
        };
        match printed {
            Printed::Text(text) => Ok((text, changed > 0)),
            Printed::Nothing => Ok((String::new(), changed > 0)),
            Printed::TooLong(bytes) => {
                Err(
                    gone(Kind::OutputTooLargeError, &format!("is {bytes} bytes long")).hint(
                        format!("files are looked for in at most {MOST_APPLIED} bytes"),
                    ),
                )
            }
            Printed::Lost(why) => Err(gone(Kind::FileNotFound, &format!("cannot be read: {why}"))),
        }
    }

    /// The result of `STEP` or `LOOP[0].STEP`.
    fn result(&self, step: &str) -> Option<&Value> {
        let found = match step.split_once('[') {
            None => self.steps.get(step)?,
            Some((each, rest)) => {
                let (index, inner) = rest.split_once("].")?;
                let index: usize = index.parse().ok()?;
                self.steps.get(each)?.get(index)?.get(inner)?
            }
        };
        found.is_object().then_some(found)
    }

    /// The folder and the name of the task that a result came of.
    fn task(&self, result: &Value) -> Option<io::Result<(Dir, TaskName)>> {
        let (agent, name) = result.get("task")?.as_str()?.split_once('/')?;
        let agent = AgentName::parse(agent).ok()?;
        let name = TaskName::parse(name).ok()?;
        Some(
            self.root
                .artifacts
                .sub(agent.as_str())
                .map(|dir| (dir, name)),
        )
    }
}

/// A file as far as it is looked at.
enum Seen {
    Bytes(Vec<u8>),
    TooLong(u64),
}

fn read_whole(dir: &Dir, name: &str, most: u64) -> io::Result<Seen> {
    let file = open_below(dir, name)?;
    let size = Meta::of_file(&file)?.size;
    if size > most {
        return Ok(Seen::TooLong(size));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(Seen::Bytes(bytes))
}

/// The text, if it is still what the step left behind.
fn checked(result: &Value, name: &str, bytes: &[u8]) -> Printed {
    let files = result.get("artifacts").and_then(Value::as_array);
    let is_it = |file: &&Value| {
        let path = file["path"].as_str().unwrap_or_default();
        path.rsplit_once('/').is_some_and(|(_, last)| last == name)
    };
    match files.and_then(|files| files.iter().find(is_it)) {
        Some(file) if file["sha256"] != sha256(bytes) => {
            Printed::Lost("it was changed after the step ended".to_owned())
        }
        _ => Printed::Text(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// The end of what a task's process printed on its standard error, without the last line end.
///
/// # Errors
/// Where it cannot be read.
pub fn stderr_of(dir: &Dir, name: &TaskName) -> io::Result<String> {
    let text = end_of(dir, &file_name(name, ERR), STDERR_BYTES)?.unwrap_or_default();
    Ok(text.trim_end().to_owned())
}

fn tails(dir: &Dir, name: &TaskName) -> io::Result<String> {
    let out = match end_of(dir, &file_name(name, OUT), TAIL_BYTES)? {
        Some(out) => out,
        None => end_of(dir, &file_name(name, RAW), TAIL_BYTES)?.unwrap_or_default(),
    };
    let err = end_of(dir, &file_name(name, ERR), TAIL_BYTES)?.unwrap_or_default();
    let between = if out.is_empty() || err.is_empty() || out.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    Ok(format!("{out}{between}{err}"))
}

/// The end of a file, from the beginning of a character on.
fn end_of(dir: &Dir, name: &str, most: u64) -> io::Result<Option<String>> {
    let mut file: File = match open_below(dir, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let start = Meta::of_file(&file)?.size.saturating_sub(most);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let cut = match start {
        0 => 0,
        _ => bytes.iter().take(3).take_while(continues).count(),
    };
    Ok(Some(String::from_utf8_lossy(&bytes[cut..]).into_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_steps_of_a_loops_items_have_outputs_of_their_own() {
        let temp = tempfile::tempdir().unwrap();
        for folder in ["inbox", "specs", "artifacts/a"] {
            std::fs::create_dir_all(temp.path().join(folder)).unwrap();
        }
        std::fs::write(temp.path().join("specs/orch.yaml"), "").unwrap();
        std::fs::write(temp.path().join("artifacts/a/t1.out"), "one").unwrap();
        std::fs::write(temp.path().join("artifacts/a/t2.raw"), "two").unwrap();
        let root = Root::open(temp.path()).unwrap();
        let steps = json!({
            "each": [{"x": {"task": "a/t1"}}, {"x": {"task": "a/t2", "output": "two"}}],
            "odd": {"task": "../../etc/passwd"}, "gone": {"task": "b/t"}
        });
        let outputs = Artifacts {
            root: &root,
            steps: &steps,
            whole: true,
        };
        let text = |text: &str| Printed::Text(text.to_owned());
        assert_eq!(outputs.whole("each[0].x"), Some(text("one")));
        assert_eq!(outputs.whole("each[1].x"), None);
        assert_eq!(outputs.tail("each[1].x"), text("two"));
        assert_eq!(outputs.tail("each[2].x"), Printed::Nothing);
        assert_eq!(outputs.tail("each"), Printed::Nothing);
        assert_eq!(outputs.whole("odd"), None);
        assert!(matches!(outputs.whole("gone"), Some(Printed::Lost(_))));
        assert!(matches!(outputs.tail("gone"), Printed::Lost(_)));
    }
}
