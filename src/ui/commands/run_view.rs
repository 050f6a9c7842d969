//! How runs stand: the list of unfinished ones, one run, one step. Changes nothing.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::drive::Tail;
use super::questions;
use super::run_target::{RunStep, runs};
use crate::disk::root::Root;
use crate::disk::store::RunDir;
use crate::run::flow;
use crate::run::state::{Facts, Pending, RunState, RunStatus, Stage, StepResult};
use crate::spec::vars::{NoOutputs, Text};
use crate::spec::workflow::model::Work;
use crate::text::error::{Fault, Kind, Result, exit};
use crate::text::suggest;
use crate::ui::report::{
    Align, Paint, Table, ago, clean, clean_line, count, print, print_json, short_duration,
};
use crate::work::audit;
use crate::work::pinned;

/// So many of the last transitions are shown with the status.
const LAST: usize = 10;

/// An unfinished run, in a line.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    run: String,
    workflow: String,
    phase: String,
    status: RunStatus,
    started: String,
    blocked_reason: Option<String>,
    /// The files that it waits for.
    waits: Vec<FileWait>,
}

/// The runs that are not finished, oldest first. What cannot be read is left to `status RUN`.
pub(super) fn unfinished(root: &Arc<Root>) -> Vec<Row> {
    if !root.path.join("workspace").is_dir() {
        return Vec::new();
    }
    let runs = runs(root);
    let ids = runs.list().unwrap_or_default();
    let states = ids.iter().filter_map(|id| {
        let run = runs.open(id).ok()?;
        let state = run.peek().ok()?;
        Some((run, state))
    });
    let open = states.filter(|(_, state)| !state.status.is_final());
    open.map(|(run, state)| Row {
        waits: file_waits(&run, &state),
        run: state.run_id,
        workflow: state.workflow_name,
        phase: state.metadata.current_phase,
        status: state.status,
        started: state.start_timestamp,
        blocked_reason: state.governance.blocked_reason,
    })
    .collect()
}

/// A step that waits for files.
#[derive(Debug, Serialize)]
struct FileWait {
    step: String,
    task: String,
    glob: String,
    since: Option<String>,
}

impl FileWait {
    fn text(&self, now: Timestamp) -> String {
        let since = self.since.as_deref();
        let ago = since.and_then(|since| ago(now, since));
        let since = since.map(|since| format!(" since {since}"));
        let ago = ago.map(|ago| format!(" ({ago})"));
        format!(
            "waiting for files ({}){}{}",
            self.glob,
            since.unwrap_or_default(),
            ago.unwrap_or_default()
        )
    }
}

/// The steps that a run has entered, and how often, in the order of its workflow.
fn in_order<'s>(run: &RunDir, state: &'s RunState) -> Vec<(&'s str, u64)> {
    let visits = state.visits.iter().map(|(step, n)| (step.as_str(), *n));
    let mut visits: Vec<_> = visits.collect();
    if let Ok(workflow) = pinned::workflow(run) {
        visits.sort_by_key(|(step, _)| workflow.find(step));
    }
    visits
}

/// The steps of a run that wait for files now.
fn file_waits(run: &RunDir, state: &RunState) -> Vec<FileWait> {
    let begun = |p: &&Pending| p.agent == "orch" && p.attempts > 0;
    if state.status.is_final() || !state.pending.iter().any(|p| begun(&p)) {
        return Vec::new();
    }
    // A run whose workflow cannot be read is shown without.
    let Ok(workflow) = pinned::workflow(run) else {
        return Vec::new();
    };
    let wait = |p: &Pending| {
        let id = workflow.find(&p.step)?;
        let Work::Wait(wait) = &workflow.step(id).work else {
            return None;
        };
        let nothing = Facts::default();
        let scope = flow::scope(&workflow, state, id, p.item, &nothing);
        let filled = Text::parse(&wait.glob.value).and_then(|text| text.fill(&scope, &NoOutputs));
        Some(FileWait {
            step: p.step.clone(),
            task: p.task.clone(),
            glob: filled.unwrap_or_else(|_| wait.glob.value.clone()),
            since: p.since.clone(),
        })
    };
    state
        .pending
        .iter()
        .filter(begun)
        .filter_map(wait)
        .collect()
}

/// Whether an inbox is that of a workflow, or of steps that no agent does.
pub(super) fn is_of_runs(root: &Path, inbox: &str) -> bool {
    let file = |ending: &str| root.join(format!("specs/{inbox}.{ending}"));
    matches!(inbox, "shell" | "orch") || file("yaml").is_file() || file("yml").is_file()
}

/// The rows as lines that line up.
pub(super) fn lines(rows: &[Row], now: Timestamp) -> Vec<String> {
    let mut table = Table::new(&[Align::Left; 5]);
    for row in rows {
        let waits = row.waits.first().map(|wait| wait.text(now));
        let reason = row.blocked_reason.clone().or(waits).unwrap_or_default();
        table.row([
            clean_line(&row.run),
            clean_line(&row.phase),
            row.status.as_str().to_owned(),
            ago(now, &row.started).unwrap_or_default(),
            clean_line(&reason),
        ]);
    }
    table.lines()
}

/// `orch status RUN`.
pub(super) fn status(root: &Arc<Root>, run: &RunDir, json: bool) -> Result<u8> {
    let state = state(run)?;
    let view = View::of(root, run, &state)?;
    match json {
        true => print_json(&view)?,
        false => print(&view.text(Paint::stdout(), Detail::Last))?,
    };
    Ok(exit::DONE)
}

/// `orch show RUN` and `orch show RUN/STEP`.
pub(super) fn show(root: &Arc<Root>, target: &RunStep, json: bool) -> Result<u8> {
    let state = state(&target.run)?;
    match &target.step {
        Some(step) => show_step(&state, step, json)?,
        None if json => drop(print_json(&state)?),
        None => {
            let view = View::of(root, &target.run, &state)?;
            let text = view.text(Paint::stdout(), Detail::All);
            print(&format!("{text}{}", more(&target.run, &state)))?;
        }
    }
    Ok(exit::DONE)
}

/// The state as it is on disk; where there is none that can be read, what the log adds up to.
fn state(run: &RunDir) -> Result<RunState> {
    match run.peek() {
        Err(fault) if fault.kind == Kind::StateNotFound => {
            let state = pinned::load(run, &pinned::workflow(run)?)?;
            Ok(Arc::unwrap_or_clone(state))
        }
        other => other,
    }
}

/// How much of what a run went through is shown.
#[derive(Debug, Clone, Copy)]
enum Detail {
    /// The last transitions.
    Last,
    /// All of them, with every guard.
    All,
}

#[derive(Debug, Serialize)]
struct View<'s> {
    run: &'s str,
    workflow: &'s str,
    status: RunStatus,
    phase: &'s str,
    started: &'s str,
    ended: Option<&'s str>,
    blocked_reason: Option<&'s str>,
    error: Option<&'s Fault>,
    /// What a person can type now.
    to_type: Vec<String>,
    transitions: u64,
    steps: Vec<StepRow>,
    pending: &'s [Pending],
    waits: Vec<FileWait>,
    checkpoints: Vec<Made>,
}

#[derive(Debug, Serialize)]
struct StepRow {
    step: String,
    visits: u64,
    status: Option<String>,
    exit_code: Option<i64>,
    seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Made {
    at: String,
    checkpoint: String,
    /// What its guards evaluated to.
    guards: Vec<String>,
    /// Whether no transition was made, and conditions were only looked at.
    #[serde(skip)]
    only_checked: bool,
}

impl<'s> View<'s> {
    fn of(root: &Arc<Root>, run: &RunDir, state: &'s RunState) -> Result<View<'s>> {
        let log = Tail::from_start(root, run.id(), false).news()?;
        let made = log.iter().flat_map(|line| {
            let checks = line.checks.iter().map(|checked| Made {
                at: line.at.clone(),
                checkpoint: format!("{} CHECKED", checked.step),
                guards: checked.guards.clone(),
                only_checked: true,
            });
            checks.chain(line.checkpoints.iter().map(|note| Made {
                at: line.at.clone(),
                checkpoint: note.line.clone(),
                guards: note.guards.clone(),
                only_checked: false,
            }))
        });
        Ok(View {
            run: &state.run_id,
            workflow: &state.workflow_name,
            status: state.status,
            phase: &state.metadata.current_phase,
            started: &state.start_timestamp,
            ended: state.end_timestamp.as_deref(),
            blocked_reason: state.governance.blocked_reason.as_deref(),
            error: state.error.as_ref(),
            to_type: to_type(state),
            transitions: state.transitions,
            steps: in_order(run, state)
                .into_iter()
                .map(|(step, n)| StepRow::of(state, step, n))
                .collect(),
            pending: &state.pending,
            waits: file_waits(run, state),
            checkpoints: made.collect(),
        })
    }

    fn text(&self, paint: Paint, detail: Detail) -> String {
        let now = Timestamp::now();
        let mut out = format!(
            "{}  {}  {}\n",
            paint.strong(clean_line(self.run)),
            painted(self.status, paint),
            clean_line(self.phase)
        );
        let since = ago(now, self.started).unwrap_or_default();
        let ended = self.ended.and_then(|end| ago(now, end));
        let ended = ended
            .map(|ended| format!(", ended {ended}"))
            .unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "  started {since}{ended}, {}",
            count(
                usize::try_from(self.transitions).unwrap_or(usize::MAX),
                "transition"
            )
        );
        if let Some(reason) = self.blocked_reason {
            let _ = writeln!(out, "  blocked: {}", clean_line(reason));
            for line in &self.to_type {
                let _ = writeln!(out, "  `{}`", clean_line(line));
            }
        }
        if let Some(fault) = self.error {
            let _ = writeln!(out, "  error: {}", clean_line(&fault.message));
        }
        self.write_steps(&mut out, paint);
        self.write_pending(&mut out, paint);
        self.write_checkpoints(&mut out, paint, detail);
        out
    }

    fn write_steps(&self, out: &mut String, paint: Paint) {
        let mut table = Table::new(&[Align::Left, Align::Right, Align::Left, Align::Right]);
        for row in &self.steps {
            let time = row
                .seconds
                .and_then(|s| Duration::try_from_secs_f64(s).ok());
            table.row([
                clean_line(&row.step),
                format!("{}×", row.visits),
                clean_line(row.status.as_deref().unwrap_or("-")),
                time.map(short_duration).unwrap_or_default(),
            ]);
        }
        section(out, paint, "steps", &table.lines());
    }

    fn write_pending(&self, out: &mut String, paint: Paint) {
        let line = |p: &Pending| {
            let wait = self.waits.iter().find(|wait| wait.task == p.task);
            let begun = match wait {
                Some(wait) => wait.text(Timestamp::now()),
                None if p.asks.is_some() => "asks a person".to_owned(),
                None if p.attempts == 0 => "waits".to_owned(),
                None => "begun".to_owned(),
            };
            clean_line(&format!("{}  {begun}  {}/{}", p.step, p.agent, p.task))
        };
        let lines: Vec<String> = self.pending.iter().map(line).collect();
        section(out, paint, "pending", &lines);
    }

    fn write_checkpoints(&self, out: &mut String, paint: Paint, detail: Detail) {
        let line = |made: &Made| {
            let at = paint.dim(clean_line(&made.at));
            format!("{at}  {}", clean_line(&made.checkpoint))
        };
        let lines: Vec<String> = match detail {
            Detail::Last => {
                let made = self.checkpoints.iter().filter(|made| !made.only_checked);
                let mut last: Vec<String> = made.rev().take(LAST).map(line).collect();
                last.reverse();
                last
            }
            Detail::All => {
                let guard = |guard: &String| paint.dim(format!("    {}", clean_line(guard)));
                let each = self.checkpoints.iter().flat_map(|made| {
                    std::iter::once(line(made)).chain(made.guards.iter().map(guard))
                });
                each.collect()
            }
        };
        section(out, paint, "transitions", &lines);
    }
}

impl StepRow {
    fn of(state: &RunState, step: &str, visits: u64) -> StepRow {
        let of_loop = state.loop_results.get(step).map(|result| json!(result));
        let result = of_loop.or_else(|| state.step_results.get(step).cloned());
        let field = |name: &str| result.as_ref().and_then(|result| result.get(name).cloned());
        StepRow {
            step: step.to_owned(),
            visits,
            status: field("status").and_then(|v| v.as_str().map(str::to_owned)),
            exit_code: field("exit_code").and_then(|v| v.as_i64()),
            seconds: field("duration").and_then(|v| v.as_f64()),
        }
    }
}

fn painted(status: RunStatus, paint: Paint) -> String {
    let word = status.as_str();
    match status {
        RunStatus::Succeeded => paint.good(word),
        RunStatus::Failed => paint.bad(word),
        _ => paint.odd(word),
    }
}

fn section(out: &mut String, paint: Paint, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", paint.strong(heading));
    for line in lines {
        let _ = writeln!(out, "  {line}");
    }
}

/// The lines that move a blocked run on.
fn to_type(state: &RunState) -> Vec<String> {
    let mut all: Vec<String> = questions::open(state)
        .flat_map(|pending| questions::lines(state, pending))
        .collect();
    let stuck = state.blocks.iter().any(|block| block.task.is_none());
    if stuck || (state.status == RunStatus::Blocked && all.is_empty()) {
        let once = questions::runs_once(state);
        if once.is_none_or(|block| block.stage != Stage::Run) {
            all.push(format!("orch resume {}", state.run_id));
        }
        all.extend(once.map(|_| format!("orch reset {}", state.run_id)));
    }
    all
}

/// What the run was given, what was decided, and where its files are.
fn more(run: &RunDir, state: &RunState) -> String {
    let paint = Paint::stdout();
    let mut out = String::new();
    let pair = |(name, value): (&String, &Value)| clean_line(&format!("{name}: {value}"));
    let given = state.variables.iter().filter(|(name, _)| *name != "run");
    section(
        &mut out,
        paint,
        "given",
        &given.map(pair).collect::<Vec<_>>(),
    );
    let locked = audit::decisions(run, state).into_iter();
    let locked: Vec<String> = locked.map(|made| clean_line(&made.line())).collect();
    section(&mut out, paint, "decisions", &locked);
    for list in ["issues", "fixes"] {
        section(&mut out, paint, list, &told(state, list));
    }
    let approvals = state.governance.approvals.keys();
    let approvals: Vec<String> = approvals.map(|gate| decided(state, gate)).collect();
    section(&mut out, paint, "approvals", &approvals);
    let document: Vec<String> = state.state.iter().map(pair).collect();
    section(&mut out, paint, "state", &document);
    let files = [
        run.files_path().display().to_string(),
        run.log_path().display().to_string(),
    ];
    section(
        &mut out,
        paint,
        "files",
        &files.map(|file| clean_line(&file)),
    );
    out
}

/// The entries of all lists of this name in the latest results.
fn told(state: &RunState, list: &str) -> Vec<String> {
    let of_step = |(step, result): (&String, &Value)| {
        let entries = audit::entries(&result["json_data"], list).into_iter();
        let line = |entry| clean_line(&format!("{step}: {}", audit::line(&entry)));
        entries.map(line).collect::<Vec<_>>()
    };
    state.step_results.iter().flat_map(of_step).collect()
}

/// Who decided about a gate, when, and what they said.
fn decided(state: &RunState, gate: &str) -> String {
    let text = match state.governance.decisions.get(gate) {
        None => format!("{gate}: not approved"),
        Some(decision) => {
            let verb = if decision.approved {
                "approved"
            } else {
                "rejected"
            };
            let note = decision.note.as_ref().map(|note| format!(": {note}"));
            format!(
                "{gate}: {verb} by {} at {}{}",
                decision.by,
                decision.at,
                note.unwrap_or_default()
            )
        }
    };
    clean_line(&text)
}

fn show_step(state: &RunState, step: &str, json: bool) -> Result<()> {
    let of_loop = state.loop_results.get(step).map(|result| json!(result));
    let found = of_loop.or_else(|| state.step_results.get(step).cloned());
    let pending = state.pending.iter().find(|pending| pending.step == step);
    let Some(result) = found else {
        return match pending {
            Some(pending) if json => print_json(&json!({"pending": pending})).map(drop),
            Some(Pending { agent, task, .. }) => {
                print(&clean_line(&format!(
                    "{step} is not finished: `orch show {agent}/{task}`"
                )))?;
                print("\n").map(drop)
            }
            None => Err(no_step(state, step)),
        };
    };
    if json {
        return print_json(&result).map(drop);
    }
    let text = match serde_json::from_value::<StepResult>(result.clone()) {
        Ok(result) => step_text(&result),
        // The items of a loop, each with the results of its steps.
        Err(_) => serde_json::to_string_pretty(&result).unwrap_or_default() + "\n",
    };
    print(&clean(&text)).map(drop)
}

fn step_text(result: &StepResult) -> String {
    let status = json!(result.status);
    let time = Duration::try_from_secs_f64(result.duration).unwrap_or_default();
    let mut out = format!(
        "{}  {}  exit code {}  {}  visit {}, attempt {}\n",
        result.step_name,
        status.as_str().unwrap_or_default(),
        result.exit_code,
        short_duration(time),
        result.visit,
        result.attempt
    );
    if let Some(fault) = &result.error {
        let _ = writeln!(out, "error: {}", fault.message);
    }
    if let Some(note) = &result.note {
        let _ = writeln!(out, "note: {note}");
    }
    if let Some(task) = &result.task {
        let _ = writeln!(out, "task: {task} (`orch show {task}`)");
    }
    let output = match (&result.json_data, &result.lines, &result.output) {
        (Some(document), _, _) => serde_json::to_string_pretty(document).unwrap_or_default(),
        (None, Some(lines), _) => lines.join("\n"),
        (None, None, text) => text.clone().unwrap_or_default(),
    };
    if !output.is_empty() {
        let cut = if result.truncated {
            "\n... the rest is in its artifacts"
        } else {
            ""
        };
        let _ = writeln!(out, "\n{}{cut}", output.trim_end());
    }
    out
}

fn no_step(state: &RunState, step: &str) -> Fault {
    let names: Vec<&str> = state.visits.keys().map(String::as_str).collect();
    let message = format!("run `{}` has not come to a step `{step}`", state.run_id);
    let fault = Fault::new(Kind::StateNotFound, message);
    match suggest::hint(step, &names) {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}
