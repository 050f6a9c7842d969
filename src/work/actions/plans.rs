//! The folder of a plan: read as a whole, and written file by file, each in one step.

use std::io::Read;

use rustix::fs::FileType;
use serde_json::{Value, json};

use super::{Done, NotDone, Place, counted};
use crate::disk::paths;
use crate::disk::safety::Dir;
use crate::run::flow::document::PLAN;
use crate::run::plan::{
    self, Folder, MASTER, MAX_FILE_BYTES, MAX_TASKS, Phase, Plan, PlanFault, Tick,
};
use crate::run::state::Changes;
use crate::spec::workflow::model::{Mark, Ticks};
use crate::text::error::{Fault, Kind, Result};

/// How many faults a message names; the result has them all.
const NAMED: usize = 20;

pub(super) fn load(place: &Place<'_>, dir: &str, ticks: Ticks) -> Result<Done, NotDone> {
    let (_, _, plan) = read(place, dir)?;
    if ticks == Ticks::Own {
        only_own(place, dir, &plan, None)?;
    }
    let text = match plan.current() {
        Some(phase) => format!(
            "phase {} of {}: {}, {} to do; {}/{} tasks done",
            phase.number,
            plan.phases.len(),
            phase.title,
            counted(open(&plan, phase).len(), "task"),
            plan.done(),
            plan.tasks.len()
        ),
        None => format!(
            "no phase is open; {}/{} tasks done",
            plan.done(),
            plan.tasks.len()
        ),
    };
    Ok(done(&plan, dir, text, json!({})))
}

pub(super) fn mark(place: &Place<'_>, dir: &str, mark: Mark) -> Result<Done, NotDone> {
    let (handle, folder, plan) = read(place, dir)?;
    let phase = marked_phase(place, dir, &plan)?;
    let (number, title) = (phase.number, phase.title.clone());
    let tick = match mark {
        Mark::Done => Tick::Done,
        Mark::Skipped => Tick::Skipped,
    };
    // An attempt that died may have marked it already.
    only_own(place, dir, &plan, Some((number, tick)))?;
    let changed = plan::mark(&folder, number, mark);
    let names: Vec<&str> = changed.iter().map(|(name, _)| name.as_str()).collect();
    // The master plan comes last: a crash before it leaves the phase open, and all is done again.
    for (name, text) in &changed {
        super::replace(place.disk, &handle, name, text.as_bytes(), &super::PLAN)
            .map_err(|e| Fault::io("write", handle.path().join(name), &e))?;
    }
    let word = tick.as_str();
    let text = format!("phase {number} is {word}: {title}");
    let more = json!({"phase": number, "as": word, "files": names});
    let (_, _, plan) = read(place, dir)?;
    Ok(done(&plan, dir, text, more))
}

/// What the run is told: the plan goes into its document, and the result has the short of it.
fn done(plan: &Plan, dir: &str, text: String, more: Value) -> Done {
    let mut json = json!({
        "done": plan.done(),
        "total": plan.tasks.len(),
        "current": plan.current().map(|phase| phase.number),
    });
    if let (Value::Object(json), Value::Object(more)) = (&mut json, more) {
        json.extend(more);
    }
    let mut changes = Changes::default();
    changes.set.insert(PLAN.to_owned(), plan.to_value(dir));
    Done {
        text,
        json,
        changes,
    }
}

/// The phase that the run worked on: the current one of the plan as it was loaded, not of the file,
/// in which it may have been marked already by an attempt that died.
fn marked_phase<'p>(place: &Place<'_>, dir: &str, plan: &'p Plan) -> Result<&'p Phase, NotDone> {
    let refuse = |message: String| -> NotDone {
        Fault::new(Kind::PlanError, message)
            .hint("a `load_plan` step of the same `dir` comes first")
            .into()
    };
    let loaded = place.plan.filter(|loaded| loaded["dir"] == dir);
    let Some(loaded) = loaded else {
        return Err(refuse(format!(
            "the plan in `{dir}` was not loaded in this run"
        )));
    };
    let current = &loaded["current"];
    let Some(number) = current["number"].as_u64() else {
        return Err(refuse(format!(
            "the plan in `{dir}` had no open phase when it was loaded"
        )));
    };
    let found = plan
        .phases
        .iter()
        .find(|phase| u64::from(phase.number) == number);
    let Some(phase) = found else {
        return Err(refuse(format!(
            "the plan in `{dir}` has no phase {number} any more"
        )));
    };
    // What was added since then has not been worked on.
    let worked_on = |id: &str| {
        let tasks = current["tasks"].as_array().map_or(&[][..], Vec::as_slice);
        tasks.iter().any(|task| task["id"] == id)
    };
    let new = open(plan, phase).into_iter().find(|id| !worked_on(id));
    match new {
        Some(id) => Err(refuse(format!(
            "task `{id}` of phase {number} is new since the plan was loaded"
        ))),
        None => Ok(phase),
    }
}

fn open<'p>(plan: &'p Plan, phase: &Phase) -> Vec<&'p str> {
    let tasks = phase.tasks.iter().map(|place| &plan.tasks[*place]);
    tasks
        .filter(|task| task.tick == Tick::Open)
        .map(|task| task.id.as_str())
        .collect()
}

/// Refuses a plan in which more is ticked than when it was loaded, but for what `own` says.
fn only_own(
    place: &Place<'_>,
    dir: &str,
    plan: &Plan,
    own: Option<(u32, Tick)>,
) -> Result<(), NotDone> {
    let before = place.plan.filter(|before| before["dir"] == dir);
    let forged = plan.forged(before.unwrap_or(&Value::Null), own);
    match forged.is_empty() {
        true => Ok(()),
        false => Err(unusable(dir, &forged)),
    }
}

/// Reads the plan, and refuses one in which something is not done any more that was.
fn read(place: &Place<'_>, dir: &str) -> Result<(Dir, Folder, Plan), NotDone> {
    let opened = paths::folder(place.root, dir).map_err(|fault| match fault.kind {
        Kind::FileNotFound => fault.hint("the step that writes the plan comes first"),
        _ => fault,
    })?;
    let handle = match opened {
        Some(handle) => handle,
        None => Dir::open_named_by_user(&place.root.path)
            .map_err(|e| Fault::io("open", &place.root.path, &e))?,
    };
    let folder = files(&handle)?;
    let plan = plan::read(&folder).map_err(|faults| unusable(dir, &faults))?;
    let before = place.plan.filter(|before| before["dir"] == dir);
    let undone = before.map(|before| plan.undone(before)).unwrap_or_default();
    match undone.is_empty() {
        true => Ok((handle, folder, plan)),
        false => Err(unusable(dir, &undone)),
    }
}

fn unusable(dir: &str, faults: &[PlanFault]) -> NotDone {
    let shown: Vec<String> = faults.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match faults.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!(
        "the plan in `{dir}` cannot be used: {}{more}",
        shown.join("; ")
    );
    let all: Vec<Value> = faults.iter().map(PlanFault::to_value).collect();
    let hint =
        "correct the plan and resume; how it is written stands in specs/prompts/plan-grammar.md";
    NotDone {
        json: Some(json!({"faults": all})),
        ..NotDone::from(Fault::new(Kind::PlanError, message).hint(hint))
    }
}

/// All files of a plan's folder that can belong to it. A link among them is a violation.
fn files(dir: &Dir) -> Result<Folder> {
    let mut names: Vec<(String, FileType)> = Vec::new();
    dir.entries(|name, kind| {
        if let Ok(name) = name.to_str()
            && name.ends_with(".md")
            && !name.starts_with('.')
        {
            names.push((name.to_owned(), kind));
        }
    })
    .map_err(|e| Fault::io("read", dir.path(), &e))?;
    if names.len() > 4 * MAX_TASKS {
        let message = format!("`{}` holds {} files", dir.path().display(), names.len());
        return Err(Fault::new(Kind::PlanError, message).hint("a plan has a folder of its own"));
    }
    let mut folder = Folder::default();
    let mut master = None;
    for (name, kind) in names {
        if kind == FileType::Directory {
            continue;
        }
        let text = text(dir, &name)?;
        match name.as_str() {
            MASTER => master = Some(text),
            _ => {
                folder.files.insert(name, text);
            }
        }
    }
    folder.master = master.ok_or_else(|| {
        let message = format!("there is no `{MASTER}` in `{}`", dir.path().display());
        Fault::new(Kind::PlanError, message).hint("the step that writes the plan comes first")
    })?;
    Ok(folder)
}

fn text(dir: &Dir, name: &str) -> Result<String> {
    let path = dir.path().join(name);
    let meta = dir
        .look(name)
        .map_err(|e| Fault::io("look at", &path, &e))?;
    if meta.kind != FileType::RegularFile {
        let message = format!("`{}` is not a file but a link or worse", path.display());
        return Err(Fault::new(Kind::SafetyViolation, message).hint("put the file itself there"));
    }
    let mut bytes = Vec::new();
    dir.open(name)
        .and_then(|file| file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|e| Fault::io("read", &path, &e))?;
    String::from_utf8(bytes).map_err(|_| {
        let message = format!("`{}` is not UTF-8", path.display());
        Fault::new(Kind::PlanError, message).hint("save it as UTF-8")
    })
}
