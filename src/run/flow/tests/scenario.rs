//! Plays `tests/fixtures/flow/*.yaml`: a workflow, and what each event must bring about.
//!
//! `do` is `create`, `enter A`, `finish A`, `retry A`, `put-back A`, `resume`, `cancel`, `stop`, `intrude`, `correct`
//! or `reset`; `A[0]` is the step of an item. `changes` are those of a `finish`, `set` of a `correct`.
//! People: `ask A`, `approve A`, `reject A`, `reply A`, `reopen`. `pass A` and `fail A` are an `enter`
//! that runs just that, and a `finish`.
//! `run`, `says`, `locks`, `unasked` and `ended` are all the effects; `pending` is the whole list; `see` are values of the
//! state by JSON pointer, where null is also what is not there.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::player::{Player, label, result, workflow};
use crate::run::flow::Illegal;
use crate::run::state::{Changes, Effect, Event, Pending, StepResult, Verdict};
use crate::text::error::{Fault, Kind};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    about: String,
    workflow: String,
    #[serde(default)]
    variables: Map<String, Value>,
    events: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    r#do: String,
    /// The globs that match something, from now on.
    files: Option<Vec<String>>,
    exit: Option<i32>,
    error: Option<String>,
    kind: Option<Kind>,
    output: Option<String>,
    lines: Option<Vec<String>>,
    json: Option<Value>,
    attempt: Option<u32>,
    /// What a person says.
    note: Option<String>,
    #[serde(default)]
    changes: Changes,
    #[serde(default)]
    set: Map<String, Value>,
    /// The snapshots that are to be written, with their text.
    #[serde(default)]
    locks: BTreeMap<String, String>,
    #[serde(default)]
    run: Vec<String>,
    #[serde(default)]
    says: Vec<String>,
    guards: Option<Vec<String>>,
    /// What was to be done when the run ended.
    left: Option<Vec<String>>,
    ended: Option<String>,
    #[serde(default)]
    unasked: Vec<String>,
    pending: Option<Vec<String>>,
    #[serde(default)]
    see: BTreeMap<String, Value>,
    refused: Option<String>,
}

#[test]
fn every_scenario_goes_as_written() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/flow");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of scenarios")
        .map(|entry| entry.expect("an entry of it").path())
        .collect();
    paths.sort();
    let faults: Vec<String> = paths.iter().filter_map(|path| play(path).err()).collect();
    assert!(paths.len() >= 50, "only {} scenarios", paths.len());
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn play(path: &std::path::Path) -> Result<(), String> {
    let name = path.file_name().expect("a file has a name").display();
    let text = std::fs::read_to_string(path).expect("a scenario can be read");
    let scenario: Scenario =
        crate::text::yaml::from_str(&text).map_err(|e| format!("{name}: {e:?}"))?;
    let mut player = Player::new(workflow(&scenario.workflow).map_err(|e| format!("{name}: {e}"))?);
    for (number, line) in scenario.events.iter().enumerate() {
        let before = player.state.clone();
        let outcome = perform(&mut player, line, &scenario.variables);
        let faults = compare(&player, line, outcome);
        if line.refused.is_some() && player.state != before {
            return Err(format!(
                "{name}: {number}: a refused event changed the state"
            ));
        }
        if !faults.is_empty() {
            let about = &scenario.about;
            let faults = faults.join("\n    ");
            return Err(format!(
                "{name} ({about})\n  event {} `{}`:\n    {faults}",
                number + 1,
                line.r#do
            ));
        }
    }
    match player.replay() == player.state {
        true => Ok(()),
        false => Err(format!("{name}: the log played again gives another state")),
    }
}

fn perform(
    player: &mut Player,
    line: &Line,
    variables: &Map<String, Value>,
) -> Result<Vec<Effect>, Illegal> {
    if let Some(files) = &line.files {
        player.files = files.iter().cloned().collect();
    }
    let (verb, who) = line.r#do.split_once(' ').unwrap_or((&line.r#do, ""));
    let pending = find(player, who, line.attempt);
    match verb {
        "create" => player.create(variables.clone()),
        "enter" => player.enter(&pending),
        "retry" => player.apply(Event::Retried {
            attempt: pending.attempts + 1,
            task: pending.task,
        }),
        "put-back" => player.apply(Event::PutBack {
            attempt: pending.attempts,
            task: pending.task,
        }),
        "finish" => player.finish_with(&pending, ended(line, &pending, 0), line.changes.clone()),
        "pass" => through(player, line, &pending, 0),
        "fail" => through(player, line, &pending, 1),
        "ask" => player.ask(&pending),
        "approve" => player.answer(
            &pending,
            Verdict::Approved {
                note: line.note.clone(),
            },
        ),
        "reject" => player.answer(
            &pending,
            Verdict::Rejected {
                note: line.note.clone(),
            },
        ),
        "reply" => {
            let result = Box::new(ended(line, &pending, 0));
            player.answer(&pending, Verdict::Replied { result })
        }
        "reopen" => player.apply(Event::Reopened {
            reply: line.note.clone().unwrap_or_default(),
            by: "ana".to_owned(),
        }),
        "resume" => player.resume(),
        "cancel" => player.apply(Event::Cancelled),
        "stop" => player.apply(Event::Stopped {
            fault: Fault::new(
                line.kind.unwrap_or(Kind::SafetyViolation),
                "a file was changed",
            ),
        }),
        "intrude" => player.apply(Event::Intruded {
            fault: Fault::new(Kind::ScopeViolation, "a task came"),
        }),
        "correct" => player.apply(Event::Corrected {
            set: line.set.clone(),
            note: "as agreed".to_owned(),
        }),
        "reset" => player.apply(Event::Reset),
        other => panic!("`do` has no `{other}`"),
    }
}

/// The pending step of this label, or a task that does not exist.
fn find(player: &Player, who: &str, attempt: Option<u32>) -> Pending {
    let found = player
        .state
        .pending
        .iter()
        .find(|pending| label(pending) == who);
    let mut pending = found.cloned().unwrap_or_else(|| Pending {
        task: format!("r-1.9999-{who}"),
        agent: "shell".to_owned(),
        step: player.workflow.steps[0].name.value.clone(),
        item: None,
        visit: 1,
        attempts: 0,
        since: None,
        asks: None,
        put_back: false,
    });
    pending.attempts = attempt.unwrap_or(pending.attempts);
    pending
}

/// Enters, which must run the step and do nothing else, and finishes.
fn through(
    player: &mut Player,
    line: &Line,
    pending: &Pending,
    code: i32,
) -> Result<Vec<Effect>, Illegal> {
    let mut effects = player.enter(pending)?;
    effects.retain(|effect| !matches!(effect, Effect::Checked(_)));
    let begun = find(player, &label(pending), None);
    assert_eq!(effects, [Effect::Run(begun.clone())], "`{}`", line.r#do);
    player.finish_with(&begun, ended(line, &begun, code), line.changes.clone())
}

fn ended(line: &Line, pending: &Pending, code: i32) -> StepResult {
    let mut result = result(pending, line.exit.unwrap_or(code));
    result.output.clone_from(&line.output);
    result.lines.clone_from(&line.lines);
    result.json_data.clone_from(&line.json);
    if let Some(error) = &mut result.error {
        error.message = line.error.clone().unwrap_or_else(|| "boom".to_owned());
        error.kind = line.kind.unwrap_or(error.kind);
    }
    result
}

fn compare(player: &Player, line: &Line, outcome: Result<Vec<Effect>, Illegal>) -> Vec<String> {
    let mut faults = Vec::new();
    match (outcome, &line.refused) {
        (Ok(effects), None) => compare_effects(line, &effects, &mut faults),
        (Err(why), Some(part)) if why.0.contains(part) => {}
        (other, _) => faults.push(format!("{other:?}")),
    }
    if let Some(wanted) = &line.pending {
        let there: Vec<String> = player.state.pending.iter().map(label).collect();
        differ("pending", &json!(wanted), &json!(there), &mut faults);
    }
    let state = json!(player.state);
    for (pointer, wanted) in &line.see {
        let there = state.pointer(pointer).unwrap_or(&Value::Null);
        differ(pointer, wanted, there, &mut faults);
    }
    faults
}

fn compare_effects(line: &Line, effects: &[Effect], faults: &mut Vec<String>) {
    let (mut run, mut says, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    let mut locks = BTreeMap::new();
    let (mut guards, mut unasked) = (Vec::new(), Vec::new());
    let mut left = Vec::new();
    for effect in effects {
        match effect {
            Effect::Run(pending) => run.push(label(pending)),
            Effect::Checkpoint(checkpoint) => {
                says.push(checkpoint.to_string());
                guards.extend(checkpoint.guards.clone());
            }
            Effect::Lock { name, text } => {
                locks.insert(name, text);
            }
            Effect::Ended(status) => ended.push(status.as_str()),
            Effect::Checked(checked) => guards.extend(checked.guards.clone()),
            Effect::Left(all) => left.extend(all.iter().map(label)),
            Effect::Unasked(pending) => unasked.push(label(pending)),
        }
    }
    differ("run", &json!(line.run), &json!(run), faults);
    differ("says", &json!(line.says), &json!(says), faults);
    differ("locks", &json!(line.locks), &json!(locks), faults);
    differ("unasked", &json!(line.unasked), &json!(unasked), faults);
    differ(
        "ended",
        &json!(line.ended.iter().collect::<Vec<_>>()),
        &json!(ended),
        faults,
    );
    if let Some(wanted) = &line.left {
        differ("left", &json!(wanted), &json!(left), faults);
    }
    if let Some(wanted) = &line.guards {
        differ("guards", &json!(wanted), &json!(guards), faults);
    }
}

fn differ(what: &str, wanted: &Value, there: &Value, faults: &mut Vec<String>) {
    if wanted != there {
        faults.push(format!("{what}: wanted {wanted}, got {there}"));
    }
}
