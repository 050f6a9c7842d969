//! Whether every `${...}` and every expression names something that there can be.
//!
//! A step's result is there if the step can have run before, on some path from the start. What is
//! there on some paths only is left to the run, and to `${path:-text}`.

use std::collections::HashMap;

use super::edges::Edge;
use super::model::*;
use super::problem::Gather;
use super::vars::{BadRef, ROOTS, Ref, Segment, parse_path, refs};
use super::{Guards, MAX_GUARD_BYTES, MAX_GUARD_DEPTH};
use crate::suggest;
use crate::yaml::tree::Place;

/// The fields of a step's result.
const FIELDS: &[&str] = &[
    "exit_code",
    "output",
    "lines",
    "json",
    "duration",
    "tail",
    "note",
    "status",
    "error",
    "attempt",
    "visit",
    "truncated",
    "files",
    "start_time",
    "end_time",
    "step_name",
    "json_data",
];
const RUN: &[&str] = &["id", "root", "files", "timestamp_utc"];
const LOOP: &[&str] = &["index", "total"];
/// What expressions can begin with; the first four only after the step ran.
const GUARD_ROOTS: &[&str] = &[
    "output",
    "exit_code",
    "status",
    "error",
    "steps",
    "state",
    "context",
    "input",
    "request",
    "reply",
    "run",
    "visits",
    "approvals",
    "snapshots",
    "item",
    "loop",
];

/// Nothing, or what is wrong and a hint.
type Verdict = Result<(), (String, Option<String>)>;

/// Before or after the step has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Before,
    After,
}

/// Checks every text and every expression.
pub(super) fn check(
    workflow: &Workflow,
    edges: &[Vec<Edge>],
    broken_flow: bool,
    guards: &dyn Guards,
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
        guards,
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

struct Vars<'a, 't> {
    workflow: &'a Workflow,
    edges: &'a [Vec<Edge>],
    broken_flow: bool,
    names: HashMap<&'a str, StepId>,
    state: Vec<&'a str>,
    /// What can come after a step, by its id.
    reach: HashMap<StepId, Vec<bool>>,
    guards: &'a dyn Guards,
    out: &'a mut Gather<'t>,
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
        for found in refs(&text.value) {
            match found {
                Ok(found) => {
                    if let Err((message, hint)) = self.reference(id, &found, moment) {
                        let place = self.out.within(text.place, &found.raw);
                        self.out.fault_with(place, message, hint);
                    }
                }
                Err(BadRef { raw, message, hint }) => {
                    let place = self.out.within(text.place, &raw);
                    self.out.hinted(place, message, hint);
                }
            }
        }
    }

    fn items_from(&mut self, id: StepId, from: &Text) {
        let path = from.value.trim();
        let path = path
            .strip_prefix("${")
            .and_then(|p| p.strip_suffix('}'))
            .unwrap_or(path);
        let Some(mut segments) = parse_path(path) else {
            let message = format!("`items_from: {}` is not a path", from.value);
            let hint = "write a path such as `steps.X.json.files`";
            return self.out.hinted(from.place, message, hint);
        };
        let Segment::Key(root) = segments.remove(0) else {
            return;
        };
        let reference = Ref {
            raw: path.to_owned(),
            root,
            rest: segments,
            default: None,
        };
        if let Err((message, hint)) = self.reference(id, &reference, Moment::Before) {
            self.out.fault_with(from.place, message, hint);
        }
    }

    /// Whether a variable can have a value here.
    fn reference(&mut self, id: StepId, r: &Ref, moment: Moment) -> Verdict {
        let raw = &r.raw;
        let first = match r.rest.first() {
            Some(Segment::Key(key)) => Some(key.as_str()),
            _ => None,
        };
        let known = |words: &[&str]| match first {
            Some(word) if words.contains(&word) => Ok(()),
            Some(word) => Err((
                format!("`{raw}`: there is no `{}.{word}`", r.root),
                suggest::hint(word, words),
            )),
            None if r.root == "loop" || r.root == "run" => Err((
                format!("`{raw}` says nothing by itself"),
                Some(format!(
                    "known here: `{}.{}`",
                    r.root,
                    words.join(&format!("`, `{}.", r.root))
                )),
            )),
            None => Ok(()),
        };
        let item = self.item(id);
        match r.root.as_str() {
            "request" | "reply" | "input" | "STATE_FILE" => Ok(()),
            "run" => known(RUN),
            "loop" if item.is_some() => known(LOOP),
            "item" if item.is_some() => Ok(()),
            root if Some(root) == item => Ok(()),
            "item" | "loop" => Err((
                format!("`{raw}` has a value only in the body of a loop"),
                None,
            )),
            "steps" => self.result(id, r, first, moment),
            "context" => self.declared(r, first, "context"),
            "state" => self.declared(r, first, "state"),
            "env" => Err((
                format!("`{raw}`: the environment is not put into texts"),
                Some("list the variable under `inherit_env` or `secrets`; the program reads it itself".to_owned()),
            )),
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
    fn declared(&self, r: &Ref, first: Option<&str>, root: &str) -> Verdict {
        let Some(key) = first else {
            return Ok(());
        };
        let known: Vec<&str> = match root {
            "context" => self.workflow.context.keys().map(String::as_str).collect(),
            _ => self.state.clone(),
        };
        if r.default.is_some() || known.contains(&key) {
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
    fn result(&mut self, id: StepId, r: &Ref, name: Option<&str>, moment: Moment) -> Verdict {
        let raw = &r.raw;
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
        self.field(of, &r.rest[1..], raw)?;
        if r.default.is_none() && !self.broken_flow && !self.can_have_run(of, id, moment) {
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
    fn field(&self, of: StepId, rest: &[Segment], raw: &str) -> Verdict {
        let step = self.workflow.step(of);
        match (rest.first(), &step.work) {
            (None, _) => Ok(()),
            (Some(Segment::Index(_)), Work::ForEach(each)) => match rest.get(1) {
                None => Ok(()),
                Some(Segment::Key(name)) => {
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
                Some(Segment::Index(_)) => Err((
                    format!("`{raw}`: a step of the body is expected after the item"),
                    None,
                )),
            },
            (Some(Segment::Index(_)), _) => Err((
                format!(
                    "`{raw}`: `{}` is no loop, and has no items",
                    step.name.value
                ),
                None,
            )),
            (Some(Segment::Key(field)), _) if !FIELDS.contains(&field.as_str()) => Err((
                format!("`{raw}`: the result of a step has no `{field}`"),
                suggest::hint(field, FIELDS),
            )),
            (Some(Segment::Key(field)), _) => captured(step, field, raw),
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

    fn guard(&mut self, id: StepId, guard: &Text, moment: Moment) {
        if guard.value.len() > MAX_GUARD_BYTES {
            let message = format!(
                "the expression is {} bytes long, over the limit of {MAX_GUARD_BYTES}",
                guard.value.len()
            );
            return self.out.fault(guard.place, message);
        }
        if depth(&guard.value) > MAX_GUARD_DEPTH {
            let message =
                format!("the brackets of the expression are over {MAX_GUARD_DEPTH} levels deep");
            return self.out.fault(guard.place, message);
        }
        if guard.value.trim().is_empty() {
            return self.out.fault(guard.place, "the expression is empty");
        }
        if guard.value.contains("${") {
            let hint = "an expression names variables without `${}`: `steps.x.exit_code == 0`";
            return self
                .out
                .hinted(guard.place, "`${...}` in an expression", hint);
        }
        match self.guards.check(&guard.value) {
            Err(message) => self.out.fault(
                guard.place,
                format!("the expression cannot be read: {message}"),
            ),
            Ok(paths) => paths
                .iter()
                .for_each(|path| self.guard_path(id, path, guard.place, moment)),
        }
    }

    fn guard_path(&mut self, id: StepId, path: &str, place: Place, moment: Moment) {
        if let Err((message, hint)) = self.guard_name(id, path, moment) {
            let place = self.out.within(place, path);
            self.out.fault_with(place, message, hint);
        }
    }

    /// Whether what an expression names can be there.
    fn guard_name(&self, id: StepId, path: &str, moment: Moment) -> Verdict {
        let mut words = path.split('.');
        let root = words.next().unwrap_or_default();
        let name = words.next().unwrap_or_default();
        let item = self.item(id);
        if item.is_none() && matches!(root, "item" | "loop") {
            return Err((
                format!("`{root}` has a value only in the body of a loop"),
                None,
            ));
        }
        if Some(root) != item && !GUARD_ROOTS.contains(&root) {
            let message = format!("there is no `{root}` for expressions");
            return Err((message, suggest::hint(root, GUARD_ROOTS)));
        }
        if moment == Moment::Before && GUARD_ROOTS[..4].contains(&root) {
            let message = format!("`{root}` has no value before the step has run");
            return Err((message, Some("name the step: `steps.X.output`".to_owned())));
        }
        let known: Vec<&str> = match root {
            "steps" | "visits" if self.names.contains_key(name) => return Ok(()),
            "steps" | "visits" => self.names.keys().copied().collect(),
            "approvals" => self.gate_names(),
            "snapshots" => self.lock_names(),
            _ => return Ok(()),
        };
        if name.is_empty() || known.contains(&name) {
            return Ok(());
        }
        let message = format!(
            "`{root}.{name}`: there is no such {}",
            root.trim_end_matches('s')
        );
        let near = suggest::suggest(name, known);
        Err((message, near.map(|near| format!("did you mean `{near}`?"))))
    }

    /// What the item is called in the body that the step stands in.
    fn item(&self, id: StepId) -> Option<&'a str> {
        let workflow: &'a Workflow = self.workflow;
        match &workflow.step(workflow.loop_of(id)?).work {
            Work::ForEach(each) => Some(&each.name),
            _ => None,
        }
    }

    fn gate_names(&self) -> Vec<&'a str> {
        let approvals = self
            .workflow
            .steps
            .iter()
            .filter_map(|step| step.approval.as_ref());
        approvals
            .map(|approval| approval.gate.value.as_str())
            .collect()
    }

    fn lock_names(&self) -> Vec<&'a str> {
        let rows = self
            .workflow
            .steps
            .iter()
            .flat_map(|step| match &step.flow {
                Flow::Rows { rows, .. } => rows.as_slice(),
                Flow::Handlers { .. } => &[],
            });
        rows.filter_map(|row| row.lock.as_ref())
            .map(|lock| lock.value.as_str())
            .collect()
    }
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

/// How deep the brackets go, outside of quotes.
fn depth(guard: &str) -> usize {
    let (mut deep, mut most, mut quote, mut escaped) = (0usize, 0, None, false);
    for c in guard.chars() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => deep += 1,
            (None, ')' | ']' | '}') => deep = deep.saturating_sub(1),
            (None, _) => {}
        }
        most = most.max(deep);
    }
    most
}

/// The texts of a step in which variables are substituted, and when that is.
fn texts(step: &Step) -> Vec<(&Text, Moment)> {
    use Moment::{After, Before};
    let mut texts: Vec<(&Text, Moment)> = Vec::new();
    let mut before: Vec<&Text> = Vec::new();
    match &step.work {
        Work::Agent(agent) => before.extend(agent.prompt.iter().chain(&agent.input_file)),
        Work::Human(human) => before.extend(human.prompt.iter().chain(&human.input_file)),
        Work::Command(command) => before.extend(command),
        Work::Wait(wait) => before.push(&wait.glob),
        Work::Action(Action::LoadPlan { dir } | Action::MarkPlan { dir, .. }) => before.push(dir),
        Work::Action(Action::ApplyFiles { into, .. }) => before.push(into),
        Work::Approval | Work::Parallel(_) | Work::ForEach(_) => {}
    }
    match &step.when {
        Some(When::Equals(left, right)) => before.extend([left, right]),
        Some(When::Exists(glob) | When::NotExists(glob)) => before.push(glob),
        Some(When::If(_)) | None => {}
    }
    if let Home::Cwd(cwd) = &step.home {
        before.push(cwd);
    }
    before.extend(step.requires.iter().filter_map(|gate| gate.reason.as_ref()));
    before.extend(step.writes.iter().flatten());
    before.extend(
        step.depends_on
            .required
            .iter()
            .chain(&step.depends_on.optional),
    );
    before.extend(step.output_file.iter().chain(&step.output_schema));
    texts.extend(before.into_iter().map(|text| (text, Before)));
    let mut after: Vec<&Text> = Vec::new();
    after.extend(step.ensures.iter().filter_map(|gate| gate.reason.as_ref()));
    after.extend(step.approval.iter().flat_map(|approval| &approval.evidence));
    if let Flow::Rows { rows, .. } = &step.flow {
        after.extend(rows.iter().filter_map(|row| row.reason.as_ref()));
    }
    texts.extend(after.into_iter().map(|text| (text, After)));
    texts
}
