//! Whether every `${...}` and every expression names something that there can be.
//!
//! A step's result is there if the step can have run before, on some path from the start. What is
//! there on some paths only is left to the run, and to `${path:-text}`.

use std::collections::{BTreeMap, HashMap};

use super::edges::Edge;
use super::model::*;
use super::problem::Gather;
use super::texts::texts;
use crate::spec::vars::{self, LOOP_FIELDS, Part, Path, ROOTS, RUN_FIELDS, STEP_FIELDS};
use crate::text::suggest;

/// A variable that a text or `items_from` names.
struct Ref<'v> {
    /// As it is written, braces included.
    raw: &'v str,
    /// What it names.
    path: &'v Path,
    /// Whether some text stands in where it is undefined.
    has_default: bool,
}

/// Nothing, or what is wrong and a hint.
pub(super) type Verdict = Result<(), (String, Option<String>)>;

/// Before or after the step has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Before,
    After,
}

/// Checks every text and every expression.
pub(super) fn check(
    workflow: &Workflow,
    edges: &[Vec<Edge>],
    broken_flow: bool,
    out: &mut Gather<'_>,
) {
    let mut vars = Vars {
        workflow,
        edges,
        broken_flow,
        names: workflow
            .ids()
            .map(|id| (workflow.step(id).name.value.as_str(), id))
            .collect(),
        state: state_roots(workflow),
        reach: HashMap::new(),
        out,
    };
    for id in workflow.ids() {
        vars.step(id);
    }
}

/// What can stand at the top of `state`.
fn state_roots(workflow: &Workflow) -> Vec<&str> {
    let mut roots: Vec<&str> = workflow.state.keys().map(String::as_str).collect();
    for step in &workflow.steps {
        if matches!(step.work, Work::Action(Action::LoadPlan { .. })) {
            roots.push("plan");
        }
        if let Flow::Rows { rows, .. } = &step.flow {
            let set = rows.iter().flat_map(|row| &row.set);
            roots.extend(set.filter_map(|(path, _)| path.value.split('.').next()));
        }
    }
    roots
}

pub(super) struct Vars<'a, 't> {
    pub(super) workflow: &'a Workflow,
    edges: &'a [Vec<Edge>],
    broken_flow: bool,
    pub(super) names: BTreeMap<&'a str, StepId>,
    state: Vec<&'a str>,
    /// What can come after a step, by its id.
    reach: HashMap<StepId, Vec<bool>>,
    pub(super) out: &'a mut Gather<'t>,
}

impl<'a> Vars<'a, '_> {
    fn step(&mut self, id: StepId) {
        use Moment::{After, Before};
        let step = self.workflow.step(id);
        for (text, moment) in texts(step) {
            self.text(id, text, moment);
        }
        if let Work::Agent(agent) = &step.work {
            let place = step.name.place;
            for value in agent.params.values().filter_map(|value| value.as_str()) {
                let value = value.to_owned();
                self.text(id, &At { value, place }, Before);
            }
        }
        if let Work::ForEach(each) = &step.work
            && let Items::From(from) = &each.items
        {
            self.items_from(id, from);
        }
        for (name, value) in &step.env {
            if value.contains("${") {
                let message =
                    format!("nothing is substituted in `env`: `{name}` is passed as it is");
                let place = self.out.within(step.name.place, value);
                self.out.note(place, message);
            }
        }
        if let Some(When::If(guard)) = &step.when {
            self.guard(id, guard, Before);
        }
        step.requires
            .iter()
            .for_each(|g| self.guard(id, &g.check, Before));
        step.ensures
            .iter()
            .for_each(|g| self.guard(id, &g.check, After));
        if let Flow::Rows { rows, .. } = &step.flow {
            for row in rows {
                self.guard(id, &row.guard, After);
                row.set
                    .iter()
                    .for_each(|(_, value)| self.guard(id, value, After));
            }
        }
    }

    fn text(&mut self, id: StepId, text: &Text, moment: Moment) {
        let (cut, faults) = vars::Text::scan(&text.value);
        for fault in faults {
            let raw = vars::written(&text.value, fault.at);
            let place = self.out.within(text.place, first_line(raw));
            self.out.fault_with(place, fault.message, fault.hint);
        }
        for var in cut.names() {
            let found = Ref {
                raw: vars::written(&text.value, var.at),
                path: &var.path,
                has_default: var.default.is_some(),
            };
            if let Err((message, hint)) = self.reference(id, &found, moment) {
                let place = self.out.within(text.place, first_line(found.raw));
                self.out.fault_with(place, message, hint);
            }
        }
    }

    fn items_from(&mut self, id: StepId, from: &Text) {
        let raw = from.value.trim();
        let bare = raw.strip_prefix("${").and_then(|p| p.strip_suffix('}'));
        let raw = bare.unwrap_or(raw);
        let Ok(path) = Path::parse(raw) else {
            let message = format!("`items_from: {}` is not a path", from.value);
            let hint = "write a path such as `steps.X.json.files`";
            return self.out.hinted(from.place, message, hint);
        };
        let found = Ref {
            raw,
            path: &path,
            has_default: false,
        };
        if let Err((message, hint)) = self.reference(id, &found, Moment::Before) {
            self.out.fault_with(from.place, message, hint);
        }
    }

    /// Whether a variable can have a value here.
    fn reference(&mut self, id: StepId, r: &Ref<'_>, moment: Moment) -> Verdict {
        let (raw, root) = (r.raw, r.path.root());
        let first = r.path.field(0);
        let known = |words: &[&str]| match first {
            Some(word) if words.contains(&word) => Ok(()),
            Some(word) => Err((
                format!("`{raw}`: there is no `{root}.{word}`"),
                suggest::hint(word, words),
            )),
            None if root == "loop" || root == "run" => Err((
                format!("`{raw}` says nothing by itself"),
                Some(format!(
                    "known here: `{root}.{}`",
                    words.join(&format!("`, `{root}."))
                )),
            )),
            None => Ok(()),
        };
        let item = self.item(id);
        match root {
            "request" | "reply" | "input" | "STATE_FILE" => Ok(()),
            "run" => known(RUN_FIELDS),
            "loop" if item.is_some() => known(LOOP_FIELDS),
            "item" if item.is_some() => Ok(()),
            root if Some(root) == item => Ok(()),
            "item" | "loop" => Err((
                format!("`{raw}` has a value only in the body of a loop"),
                None,
            )),
            "steps" => self.result(id, r, first, moment),
            "context" => self.declared(r, first, "context"),
            "state" => self.declared(r, first, "state"),
            root => Err(self.unknown_root(id, root, raw)),
        }
    }

    fn unknown_root(&self, id: StepId, root: &str, raw: &str) -> (String, Option<String>) {
        let secrets = &self.workflow.step(id).secrets;
        if root == "secrets" || secrets.iter().any(|secret| secret.value == root) {
            let message = format!("`{raw}` is a secret, and secrets are not put into texts");
            let hint = "it is passed by environment: let the program read it there";
            return (message, Some(hint.to_owned()));
        }
        let hint = match ["PROMPT", "INPUT_FILE", "OUTPUT_FILE"].contains(&root) {
            true => Some("it has a value only in the command of a provider".to_owned()),
            false => suggest::hint(root, ROOTS),
        };
        (format!("there is no variable `{raw}`"), hint)
    }

    /// `context.k` and `state.k`, unless there is a text to stand in.
    fn declared(&self, r: &Ref<'_>, first: Option<&str>, root: &str) -> Verdict {
        let Some(key) = first else {
            return Ok(());
        };
        let known: Vec<&str> = match root {
            "context" => self.workflow.context.keys().map(String::as_str).collect(),
            _ => self.state.clone(),
        };
        if r.has_default || known.contains(&key) {
            return Ok(());
        }
        let near = suggest::suggest(key, known.iter().copied());
        let hint = match near {
            Some(near) => format!("did you mean `{root}.{near}`?"),
            None => format!("declare it under `{root}:`, or write `${{{root}.{key}:-text}}`"),
        };
        Err((
            format!("`{}`: there is no `{key}` in `{root}`", r.raw),
            Some(hint),
        ))
    }

    /// `steps.X...`.
    fn result(&mut self, id: StepId, r: &Ref<'_>, name: Option<&str>, moment: Moment) -> Verdict {
        let raw = r.raw;
        let Some(name) = name else {
            return Err((
                format!("`{raw}` names no step"),
                Some("write `${steps.X.output}`".to_owned()),
            ));
        };
        let Some(&of) = self.names.get(name) else {
            let names = self.names.keys().copied();
            let near = suggest::suggest(name, names);
            return Err((
                format!("`{raw}`: there is no step `{name}`"),
                near.map(|near| format!("did you mean `{near}`?")),
            ));
        };
        self.visible(id, of, raw)?;
        self.field(of, &r.path.parts()[1..], raw)?;
        if !r.has_default && !self.broken_flow && !self.can_have_run(of, id, moment) {
            return Err((
                format!("`{raw}`: step `{name}` never runs before this"),
                Some(format!(
                    "write `${{{}:-text}}` if it may be undefined",
                    raw.trim_matches(['$', '{', '}'])
                )),
            ));
        }
        Ok(())
    }

    /// The results of a body are seen from outside only through the loop.
    fn visible(&self, id: StepId, of: StepId, raw: &str) -> Verdict {
        match self.workflow.loop_of(of) {
            Some(parent) if self.workflow.loop_of(id) != Some(parent) => {
                let (parent, of) = (self.workflow.step(parent), self.workflow.step(of));
                Err((
                    format!(
                        "`{raw}`: step `{}` is in the body of `{}`",
                        of.name.value, parent.name.value
                    ),
                    Some(format!(
                        "write `${{steps.{}[0].{}...}}`",
                        parent.name.value, of.name.value
                    )),
                ))
            }
            _ => Ok(()),
        }
    }

    /// What comes after the name of the step.
    fn field(&self, of: StepId, rest: &[Part], raw: &str) -> Verdict {
        let step = self.workflow.step(of);
        match (rest.first(), &step.work) {
            (None, _) => Ok(()),
            (Some(Part::Index(_)), Work::ForEach(each)) => match rest.get(1) {
                None => Ok(()),
                Some(Part::Field(name)) => {
                    let body = each.body.iter().copied();
                    let found = body
                        .into_iter()
                        .find(|&id| self.workflow.step(id).name.value == *name);
                    match found {
                        Some(inner) => self.field(inner, &rest[2..], raw),
                        None => Err((
                            format!(
                                "`{raw}`: there is no step `{name}` in the body of `{}`",
                                step.name.value
                            ),
                            None,
                        )),
                    }
                }
                Some(Part::Index(_)) => Err((
                    format!("`{raw}`: a step of the body is expected after the item"),
                    None,
                )),
            },
            (Some(Part::Index(_)), _) => Err((
                format!(
                    "`{raw}`: `{}` is no loop, and has no items",
                    step.name.value
                ),
                None,
            )),
            (Some(Part::Field(field)), _) if !STEP_FIELDS.contains(&field.as_str()) => Err((
                format!("`{raw}`: the result of a step has no `{field}`"),
                suggest::hint(field, STEP_FIELDS),
            )),
            (Some(Part::Field(field)), _) => captured(step, field, raw),
        }
    }

    /// Whether some run comes from one step to the other.
    fn can_have_run(&mut self, of: StepId, id: StepId, moment: Moment) -> bool {
        let inside = self.workflow.loop_of(of);
        let of = self.outward(of, inside);
        let at = self.outward(id, inside);
        if of == at && moment == Moment::After && of == self.outward(id, self.workflow.loop_of(id))
        {
            return true;
        }
        let (workflow, edges) = (self.workflow, self.edges);
        self.reach
            .entry(of)
            .or_insert_with(|| after(workflow, edges, of))[at.0]
    }

    /// The step itself, or the one that holds it on the level of `inside`.
    fn outward(&self, id: StepId, inside: Option<StepId>) -> StepId {
        match self.workflow.step(id).level {
            Level::Top => id,
            Level::Parallel(parent) => self.outward(parent, inside),
            Level::Body(parent) if Some(parent) == inside => id,
            Level::Body(parent) => self.outward(parent, inside),
        }
    }
}

/// What a place in the file is looked for by.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// `json` and `lines` are there only if the output is read that way.
fn captured(step: &Step, field: &str, raw: &str) -> Verdict {
    let needed = match field {
        "json" | "json_data" => Capture::Json,
        "lines" => Capture::Lines,
        _ => return Ok(()),
    };
    if step.capture == needed {
        return Ok(());
    }
    let word = field.trim_end_matches("_data");
    Err((
        format!(
            "`{raw}`: the output of `{}` is not read as {word}",
            step.name.value
        ),
        Some(format!("add `output_capture: {word}` to it")),
    ))
}

/// Every step that can come after this one, on its own level.
fn after(workflow: &Workflow, edges: &[Vec<Edge>], of: StepId) -> Vec<bool> {
    let mut seen = vec![false; workflow.steps.len()];
    let mut stack = vec![of];
    while let Some(id) = stack.pop() {
        for edge in &edges[id.0] {
            if let Target::Step(to) = edge.to
                && !std::mem::replace(&mut seen[to.0], true)
            {
                stack.push(to);
            }
        }
        // A finished run goes on where a reply reopens it.
        if let Some(to) = workflow
            .follow_up
            .filter(|_| workflow.step(of).level == Level::Top)
            && !std::mem::replace(&mut seen[to.0], true)
        {
            stack.push(to);
        }
    }
    seen
}
