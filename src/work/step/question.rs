//! What a person is asked: the text of the task in their inbox, and how their reply is read.
//!
//! What comes from files, agents and variables is shown and never read back: the answer stands below
//! the last line, and no other line can be taken for that one.

use super::prepare::{StepSource, View, schema};
use super::prompt::{self, PromptParts};
use super::result::{Outcome, step_result};
use crate::run::inject;
use crate::run::record::Record;
use crate::run::state::{Asks, Pending, StepResult, StepStatus};
use crate::spec::provider::Provider;
use crate::spec::workflow::model::{Approval, Inject, InjectMode, Position, Work};
use crate::text::cut;
use crate::text::error::{Fault, Kind, Result};

/// The line above a person's answer.
pub const ANSWER: &str = "--- answer";
/// The line above the ways to answer.
pub const HOW: &str = "How to answer:";
/// So much of a question is shown at most, evidence not counted.
const MOST: usize = 256 * 1024;

/// Whether a person does the work of this step, by the specs that its run is pinned to.
#[must_use]
pub fn is_for_person(source: &StepSource<'_>) -> bool {
    match &source.pinned.workflow.step(source.step).work {
        Work::Human(_) | Work::Approval => true,
        Work::Agent(work) => source
            .pinned
            .catalogue
            .step_setup(&work.who, &source.pinned.workflow.providers)
            .is_ok_and(|setup| matches!(setup.provider, Provider::Human)),
        _ => false,
    }
}

/// The text of a question, down to the line below which the answer goes.
///
/// # Errors
/// What is invalid in the step: it cannot be asked.
pub fn question(source: &StepSource<'_>, pending: &Pending) -> Result<String> {
    let view = View::new(source);
    let (run, name) = (source.pinned.run.id(), &view.step.name.value);
    let workflow = &source.pinned.workflow.name.value;
    let item = pending.item.map(|item| format!("[{item}]"));
    let item = item.unwrap_or_default();
    let at = format!("step `{name}{item}` of workflow `{workflow}`, run `{run}`");
    let file = |ending: &str| format!("inbox/human/{}.{ending}", pending.task);
    let mut text = String::new();
    let how = match (pending.asks, &view.step.approval) {
        (Some(Asks::Approval), Some(approval)) => {
            let gate = &approval.gate.value;
            text += &format!("Is `{gate}` approved? Asked by {at}.\n");
            add(&mut text, &done(&view, pending));
            add(&mut text, &evidence(&view, approval));
            let gate = quoted(gate);
            format!(
                "  orch approve {run} {gate}\n  orch reject {run} {gate} --note \"...\"\n\
                 Or write a note below the last line, and rename this file:\n  mv {} {}\n  mv {} {}\n",
                file("task"),
                file("approved"),
                file("task"),
                file("rejected"),
            )
        }
        _ => {
            text += &format!("Asked by {at}:\n");
            add(&mut text, &asked(&view)?);
            if let Some(choices) = choices(&view) {
                add(&mut text, &format!("The reply must start with {choices}."));
            }
            format!(
                "  orch reply {run}/{name}{item} \"...\"\n\
                 Or write the reply below the last line, and rename this file:\n  mv {} {}\n",
                file("task"),
                file("reply"),
            )
        }
    };
    Ok(format!("{}\n{HOW}\n{how}\n{ANSWER}\n", tamed(&text)))
}

/// Reads a reply as the step says.
///
/// # Errors
/// `Usage`: it cannot be taken, with what is missing. The question stays.
pub fn reply(
    source: &StepSource<'_>,
    pending: &Pending,
    record: &Record,
    text: &str,
) -> Result<StepResult> {
    let view = View::new(source);
    let name = &view.step.name.value;
    let refused = |why: String, hint: String| Err(Fault::new(Kind::Usage, why).hint(hint));
    if text.trim().is_empty() {
        let hint = "say something; the question is still open".to_owned();
        return refused(format!("the reply to step `{name}` is empty"), hint);
    }
    if let Work::Human(human) = &view.step.work
        && !human.choices.is_empty()
        && !human.choices.iter().any(|choice| text.starts_with(choice))
    {
        let said = text.lines().next().unwrap_or_default();
        let said = cut::head(said, 60);
        let choices = choices(&view).unwrap_or_default();
        let hint = format!("it must start with {choices}; the question is still open");
        return refused(
            format!("the reply `{said}` is none that step `{name}` takes"),
            hint,
        );
    }
    let schema = schema(source)?;
    let result = step_result(&Outcome {
        step: view.step,
        visit: pending.visit,
        attempt: pending.attempts,
        record,
        answer: text.as_bytes(),
        schema: schema.as_ref(),
    });
    match (result.status, result.error) {
        (StepStatus::Failed, Some(fault)) => {
            let hint = fault.hint.map(|hint| format!("{hint}; "));
            let hint = format!("{}the question is still open", hint.unwrap_or_default());
            refused(
                format!(
                    "the reply to step `{name}` cannot be used: {}",
                    fault.message
                ),
                hint,
            )
        }
        (_, error) => Ok(StepResult { error, ..result }),
    }
}

/// `a`, `b` or `c`.
fn choices(view: &View<'_>) -> Option<String> {
    let Work::Human(human) = &view.step.work else {
        return None;
    };
    let (last, first) = human.choices.split_last()?;
    let first: Vec<String> = first.iter().map(|choice| format!("`{choice}`")).collect();
    Some(match first.is_empty() {
        true => format!("`{last}`"),
        false => format!("{} or `{last}`", first.join(", ")),
    })
}

/// What a person is asked to say.
fn asked(view: &View<'_>) -> Result<String> {
    let (words, system) = match &view.step.work {
        Work::Human(human) => (PromptParts::from(human), String::new()),
        Work::Agent(work) => {
            let source = view.source;
            let setup = source
                .pinned
                .catalogue
                .step_setup(&work.who, &source.pinned.workflow.providers)?;
            (
                PromptParts::from(&**work),
                setup.agent.system.trim().to_owned(),
            )
        }
        _ => return Ok(String::new()),
    };
    let mut text = system;
    add(&mut text, &prompt::compose(view, words, true)?);
    Ok(cut(&text))
}

/// What the step that is to be approved has said, as far as its result keeps it.
fn done(view: &View<'_>, pending: &Pending) -> String {
    let name = &view.step.name.value;
    let steps = view.scope.root("steps");
    let result = steps.and_then(|steps| steps.get(name));
    let Some(result) = result.filter(|_| !matches!(view.step.work, Work::Approval)) else {
        return String::new();
    };
    let said = match (&result["json"], &result["lines"], &result["output"]) {
        (document, ..) if !document.is_null() => {
            serde_json::to_string_pretty(document).unwrap_or_default()
        }
        (_, lines, _) if lines.is_array() => {
            let lines = lines.as_array().into_iter().flatten();
            let lines: Vec<_> = lines.filter_map(|line| line.as_str()).collect();
            lines.join("\n")
        }
        (.., output) => output.as_str().unwrap_or_default().to_owned(),
    };
    let more = match result["truncated"] == true {
        true => "\n(only its beginning; artifacts/ has all of it)",
        false => "",
    };
    match said.trim().is_empty() {
        true => format!(
            "Step `{name}` is done; it printed nothing. Visit {}.",
            pending.visit
        ),
        false => format!("Step `{name}` says:\n\n{}{more}", cut(said.trim_end())),
    }
}

/// The files that are to be looked at, and what is in them, as far as there is room.
fn evidence(view: &View<'_>, approval: &Approval) -> String {
    let mut files = Vec::new();
    let mut missing = String::new();
    for glob in &approval.evidence {
        match prompt::matched(view, glob) {
            Ok((glob, found)) if found.is_empty() => {
                missing += &format!("There is no file `{glob}`.\n");
            }
            Ok((_, found)) => files.extend(found),
            Err(fault) => missing += &format!("`{}`: {}.\n", glob.value, fault.message),
        }
    }
    let mut found = Vec::new();
    for path in files {
        match prompt::found(view, path.clone(), InjectMode::Content, true) {
            Ok(file) => found.push(file),
            Err(fault) => missing += &format!("`{path}`: {}.\n", fault.message),
        }
    }
    let how = Inject {
        mode: InjectMode::Content,
        position: Position::Append,
        instruction: Some("The evidence:".to_owned()),
    };
    let mut text = inject::inject("", found, &how);
    add(&mut text, missing.trim_end());
    text
}

/// Adds a text below another, an empty line between them.
fn add(text: &mut String, more: &str) {
    if more.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    text.push_str(more);
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

fn cut(text: &str) -> String {
    match text.len() > MOST {
        true => format!("{}\n(cut here)", cut::head(text, MOST)),
        false => text.to_owned(),
    }
}

/// No line of it can be taken for one of ours.
fn tamed(text: &str) -> String {
    let ours = |line: &str| [ANSWER, HOW].contains(&line.trim_end());
    let lines = text.split_inclusive('\n');
    lines
        .map(|line| match ours(line) {
            true => format!("  {line}"),
            false => line.to_owned(),
        })
        .collect()
}

/// A name as a shell takes it.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}
