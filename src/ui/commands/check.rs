//! `orch check`: every fault of workflows, with its place, and the proof that they end.
//!
//! Looks only, and only at `specs/`: it works in a root that may not be written, as in CI.

use std::path::Path;

use serde::Serialize;

use crate::disk::root::Root;
use crate::disk::specs::{self, Folder, Found};
use crate::spec::workflow::{self, Checked, Problem};
use crate::text::error::{Fault, Result, exit};
use crate::ui::cli;
use crate::ui::report::{Paint, clean_line, count, print, print_json};

pub(super) fn run(root: Option<&Path>, words: &cli::Check) -> Result<u8> {
    let folder = Folder::open(&Root::locate(root)?)?;
    let root = folder.root();
    let outcome = |word: &String, found| Outcome::of(&folder, word, found);
    let results: Vec<Outcome> = match words.workflows.as_slice() {
        [] => specs::workflows(root)
            .iter()
            .map(|file| outcome(file, specs::load(root, file)))
            .collect(),
        named => named
            .iter()
            .map(|word| outcome(word, specs::find(root, word)))
            .collect(),
    };
    let is_valid = results.iter().all(|result| result.valid);
    if words.json {
        print_json(&serde_json::json!({"valid": is_valid, "workflows": results}))?;
    } else {
        print(&text(&results, Paint::stdout()))?;
    }
    Ok(if is_valid { exit::DONE } else { exit::INVALID })
}

/// Checks a workflow with what lies beside it.
pub(super) fn look(folder: &Folder, found: &Found) -> Checked {
    workflow::check(&found.file, &found.text, folder)
}

/// Faults and notes as text, ready for a terminal.
pub(super) fn problems(checked: &Checked, paint: Paint) -> String {
    let report = &checked.report;
    let faults = report.faults.iter();
    let faults = faults.map(|fault| cleaned(fault).render(&paint.bad("error")));
    let notes = report.notes.iter();
    let notes = notes.map(|note| cleaned(note).render(&paint.odd("note")));
    faults.chain(notes).map(|problem| problem + "\n").collect()
}

/// A problem may quote the file, and a file may hold anything.
fn cleaned(problem: &Problem) -> Problem {
    Problem {
        file: clean_line(&problem.file),
        message: clean_line(&problem.message),
        hint: problem.hint.as_deref().map(clean_line),
        ..problem.clone()
    }
}

/// What there is to say of one workflow.
#[derive(Debug, Serialize)]
struct Outcome {
    /// The file; what the user typed where there is none.
    file: String,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<usize>,
    /// A run ends after at most so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    transitions: Option<u64>,
    faults: Vec<Row>,
    notes: Vec<Row>,
    #[serde(skip)]
    shown: Shown,
}

/// One fault or note.
#[derive(Debug, Serialize)]
struct Row {
    /// Line and column are left out where the whole file is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// What the text form is made of.
#[derive(Debug)]
enum Shown {
    Checked(Box<Checked>),
    Missing(Fault),
}

impl Outcome {
    fn of(folder: &Folder, word: &str, found: Result<Found>) -> Outcome {
        match found {
            Ok(found) => Outcome::checked(look(folder, &found), found.file),
            Err(fault) => Outcome::missing(word, fault),
        }
    }

    fn checked(checked: Checked, file: String) -> Outcome {
        let rows = |problems: &[Problem]| problems.iter().map(Row::of).collect();
        let workflow = checked.workflow.as_ref();
        Outcome {
            file,
            valid: checked.report.is_clean(),
            name: workflow.map(|workflow| workflow.name.value.clone()),
            steps: workflow.map(|workflow| workflow.steps.len()),
            transitions: checked.report.proven,
            faults: rows(&checked.report.faults),
            notes: rows(&checked.report.notes),
            shown: Shown::Checked(Box::new(checked)),
        }
    }

    fn missing(word: &str, fault: Fault) -> Outcome {
        Outcome {
            file: word.to_owned(),
            valid: false,
            name: None,
            steps: None,
            transitions: None,
            faults: vec![Row {
                line: None,
                column: None,
                message: fault.message.clone(),
                hint: fault.hint.clone(),
            }],
            notes: Vec::new(),
            shown: Shown::Missing(fault),
        }
    }

    fn text(&self, paint: Paint) -> String {
        let checked = match &self.shown {
            Shown::Checked(checked) => checked,
            Shown::Missing(fault) => return fault_text(fault, paint),
        };
        let file = clean_line(&self.file);
        let end = match (self.valid, self.transitions) {
            (false, _) => paint.bad(count(self.faults.len(), "fault")),
            (true, proven) => self.fine(proven, paint),
        };
        format!("{}{file}: {end}\n", problems(checked, paint))
    }

    /// `fine, 5 steps, ends after at most 12 transitions`.
    fn fine(&self, proven: Option<u64>, paint: Paint) -> String {
        let fine = paint.good("fine");
        let steps = count(self.steps.unwrap_or_default(), "step");
        let most = proven.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        match most {
            Some(most) => format!(
                "{fine}, {steps}, ends after at most {}",
                count(most, "transition")
            ),
            None => format!("{fine}, {steps}"),
        }
    }
}

impl Row {
    fn of(problem: &Problem) -> Row {
        let known = problem.place.line > 0;
        Row {
            line: known.then_some(problem.place.line),
            column: known.then_some(problem.place.column),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
        }
    }
}

fn fault_text(fault: &Fault, paint: Paint) -> String {
    let mut text = format!("{}: {}\n", paint.bad("error"), clean_line(&fault.message));
    if let Some(hint) = &fault.hint {
        text.push_str(&format!(" = hint: {}\n", clean_line(hint)));
    }
    text
}

fn text(results: &[Outcome], paint: Paint) -> String {
    if results.is_empty() {
        return "there is no workflow in specs/\n".to_owned();
    }
    results.iter().map(|result| result.text(paint)).collect()
}
