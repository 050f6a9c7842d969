//! A run before it is one: every step with what it does, what it needs and where it leads.
//!
//! Nothing is run, and nothing but the workflow and what the run is given is looked at. A text whose
//! variables are only known later is shown as it is written.

use std::fmt::Write;

use serde::Serialize;

use crate::spec::scope::Scope;
use crate::spec::vars::{NoOutputs, Text};
use crate::spec::workflow::edges::{Edge, EdgeKind, edges};
use crate::spec::workflow::model::{
    Action, Flow, Gate, Items, Level, Step, When, Who, Work, Workflow,
};
use crate::spec::workflow::{StepId, model};
use crate::text::clean::clean_line;

/// So much of a text is shown to people; `--json` has all of it.
const SHOWN: usize = 160;

/// All steps, in the order of the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outline {
    /// The workflow.
    pub workflow: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its steps.
    pub steps: Vec<Planned>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Planned {
    /// Its name.
    pub step: String,
    /// What is shown as the phase.
    pub phase: String,
    /// What sort of step it is.
    pub kind: &'static str,
    /// Whose inbox it goes through.
    pub inbox: String,
    /// The step that it stands in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// What it does.
    pub does: Vec<Said>,
    /// What must hold or be there before it runs.
    pub needs: Vec<Said>,
    /// Where it may lead.
    pub next: Vec<Leads>,
}

/// A text with a title.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Said {
    /// What it is.
    pub what: &'static str,
    /// The text, its variables filled in where they are known.
    pub text: String,
}

/// A transition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Leads {
    /// Where to.
    pub to: String,
    /// When; empty where nothing else is asked.
    pub when: String,
}

impl Outline {
    /// The outline of a run that would be given this.
    #[must_use]
    pub fn of(workflow: &Workflow, scope: &Scope<'_>) -> Outline {
        let all = edges(workflow);
        let planned = |id: StepId| Planned::of(workflow, id, &all[id.0], scope);
        Outline {
            workflow: workflow.name.value.clone(),
            description: workflow.description.clone(),
            steps: workflow.ids().map(planned).collect(),
        }
    }

    /// The same for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = clean_line(&self.workflow);
        if let Some(description) = &self.description {
            out.push_str(&format!(": {}", clean_line(description.trim())));
        }
        out.push('\n');
        self.steps.iter().for_each(|step| step.write(&mut out));
        out
    }
}

impl Planned {
    fn of(workflow: &Workflow, id: StepId, edges: &[Edge], scope: &Scope<'_>) -> Planned {
        let step = workflow.step(id);
        let inside = match step.level {
            Level::Top => None,
            Level::Body(up) | Level::Parallel(up) => Some(workflow.step(up).name.value.clone()),
        };
        let lead = |edge: &Edge| Leads {
            to: workflow.target_name(edge.to).to_owned(),
            when: condition(step, edge.kind),
        };
        Planned {
            step: step.name.value.clone(),
            phase: step.phase.clone(),
            kind: step.work.kind(),
            inbox: step.inbox().to_owned(),
            inside,
            does: does(workflow, step, scope),
            needs: needs(step, scope),
            next: edges.iter().map(lead).collect(),
        }
    }

    fn write(&self, out: &mut String) {
        let margin = if self.inside.is_some() { "    " } else { "  " };
        let phase = match self.phase == self.step {
            true => String::new(),
            false => format!("  [{}]", clean_line(&self.phase)),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "\n{margin}{}  {}{phase}",
            clean_line(&self.step),
            self.kind
        );
        for Said { what, text } in self.does.iter().chain(&self.needs) {
            let _ = writeln!(out, "{margin}  {what}: {}", short(text));
        }
        for Leads { to, when } in &self.next {
            let when = if when.is_empty() {
                String::new()
            } else {
                format!(" if {}", short(when))
            };
            let _ = writeln!(out, "{margin}  -> {}{when}", clean_line(to));
        }
    }
}

fn does(workflow: &Workflow, step: &Step, scope: &Scope<'_>) -> Vec<Said> {
    let say = |what, text: String| Said { what, text };
    let filled = |what, text: &model::Text| say(what, fill(&text.value, scope));
    let mut all = Vec::new();
    match &step.work {
        Work::Agent(work) => {
            all.push(match &work.who {
                Who::Agent { name, .. } => say("agent", name.value.to_string()),
                Who::Provider(provider) => say("provider", provider.value.clone()),
            });
            all.extend(work.input_file.iter().map(|file| filled("file", file)));
            all.extend(work.prompt.iter().map(|prompt| filled("prompt", prompt)));
        }
        Work::Command(command) => {
            let words = command.iter().map(|word| quoted(&fill(&word.value, scope)));
            all.push(say("command", words.collect::<Vec<_>>().join(" ")));
        }
        Work::Wait(wait) => all.push(filled("waits for", &wait.glob)),
        Work::Human(human) => all.extend(human.prompt.iter().map(|p| filled("asks", p))),
        Work::Approval | Work::Parallel(_) => {}
        Work::ForEach(each) => all.push(match &each.items {
            Items::List(items) => say("for each of", format!("{} items", items.len())),
            Items::From(path) => say("for each of", path.value.clone()),
        }),
        Work::Action(action) => all.push(say("action", act(workflow, action))),
    }
    all.extend(
        step.approval
            .iter()
            .map(|a| say("approval", a.gate.value.clone())),
    );
    all
}

fn act(workflow: &Workflow, action: &Action) -> String {
    match action {
        Action::LoadPlan { dir, .. } => format!("load_plan {}", dir.value),
        Action::MarkPlan { dir, .. } => format!("mark_plan {}", dir.value),
        Action::ApplyFiles { from, into } => {
            let from = &workflow.step(*from).name.value;
            format!("apply_files from {from} into {}", into.value)
        }
    }
}

fn needs(step: &Step, scope: &Scope<'_>) -> Vec<Said> {
    let say = |what, text: String| Said { what, text };
    let mut all = Vec::new();
    all.extend(step.when.iter().map(|when| say("only if", word(when))));
    let gate = |gate: &Gate| gate.check.value.clone();
    all.extend(step.requires.iter().map(|g| say("requires", gate(g))));
    let depends = &step.depends_on;
    let globs = depends.required.iter().map(|g| ("needs", g));
    let globs = globs.chain(depends.optional.iter().map(|g| ("takes", g)));
    all.extend(globs.map(|(what, glob)| say(what, fill(&glob.value, scope))));
    all.extend(
        step.secrets
            .iter()
            .map(|secret| say("secret", secret.value.clone())),
    );
    all.extend(step.ensures.iter().map(|g| say("ensures", gate(g))));
    all
}

fn word(when: &When) -> String {
    match when {
        When::Equals(left, right) => format!("{} is {}", left.value, right.value),
        When::Exists(glob) => format!("{} exists", glob.value),
        When::NotExists(glob) => format!("{} does not exist", glob.value),
        When::If(guard) => guard.value.clone(),
    }
}

fn condition(step: &Step, kind: EdgeKind) -> String {
    match (&step.flow, kind) {
        (Flow::Rows { rows, .. }, EdgeKind::Next(at)) => {
            rows.get(at).map_or("", |row| &row.guard.value).to_owned()
        }
        (_, EdgeKind::Always | EdgeKind::Following) => String::new(),
        (_, kind) => kind.word().to_owned(),
    }
}

/// The text with its variables, or as it is written where one of them is not known yet.
fn fill(text: &str, scope: &Scope<'_>) -> String {
    let filled = Text::parse(text).and_then(|parsed| parsed.fill(scope, &NoOutputs));
    filled.unwrap_or_else(|_| text.to_owned())
}

/// One argument so that a shell would read it as one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn short(text: &str) -> String {
    let line = clean_line(text.trim());
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
