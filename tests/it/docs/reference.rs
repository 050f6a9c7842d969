//! What the reference lists is what the program has: every key, name, code and field, in its order.
//!
//! The names come out of the program's own types and tables, never out of a list in here.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Map, Value, json};

use orch::agents::process::{TASK_VARIABLE, WATCHER_VARIABLE};
use orch::disk::store::log::{Line, Note};
use orch::run::plan;
use orch::run::record::{self, FileEntry, Record, Usage};
use orch::run::state::{
    Asks, Block, Changes, Checked, Decision, Event, Facts, Governance, Group, ItemState, LoopState,
    Metadata, Pending, RunState, RunStatus, Stage, StepResult, StepStatus, Verdict, Waited,
};
use orch::spec::agent;
use orch::spec::expr::{FUNCTIONS, MACROS, MAX_BRACKETS, MAX_BYTES, METHODS};
use orch::spec::provider::config::{Entry, ResultRules, Success, WhenConfined};
use orch::spec::provider::template;
use orch::spec::scope;
use orch::spec::settings::{self, Limits, Retention, Settings};
use orch::spec::task::Header;
use orch::spec::vars;
use orch::spec::workflow::fields::{FROM, Object, PROVIDER_KEYS, Shape, WORKFLOW};
use orch::spec::workflow::model::Target;
use orch::text::error::{Fault, Kind, exit};
use orch::work::document;

use super::{all_pages, page};

const PAGE: &str = "docs/reference.md";

/// The rows of a table below a heading, each cut into its cells; `nth` counts from 0.
pub(super) fn table(text: &str, heading: &str, nth: usize) -> Vec<Vec<String>> {
    let below = text
        .lines()
        .skip_while(|line| {
            line.trim_start_matches('#').trim_start() != heading || !line.starts_with('#')
        })
        .skip(1)
        .take_while(|line| !line.starts_with('#'));
    let lines: Vec<&str> = below.collect();
    let tables = lines.split(|line| !line.starts_with('|'));
    let found = tables.filter(|table| !table.is_empty()).nth(nth);
    let found = found.unwrap_or_else(|| panic!("there is no table {nth} below `{heading}`"));
    found.iter().skip(2).map(|row| cells(row)).collect()
}

fn cells(row: &str) -> Vec<String> {
    let inner = row.trim_matches('|').replace("\\|", "\u{1f}");
    let cells = inner
        .split('|')
        .map(|cell| cell.trim().replace('\u{1f}', "|"));
    cells.collect()
}

/// The first column of a table, without its backticks.
fn names(heading: &str, nth: usize) -> Vec<String> {
    let rows = table(&page(PAGE), heading, nth);
    rows.iter()
        .map(|row| row[0].trim_matches('`').to_owned())
        .collect()
}

/// The row of this name.
fn row(heading: &str, name: &str) -> String {
    let rows = table(&page(PAGE), heading, 0);
    let found = rows.into_iter().find(|row| row[0] == format!("`{name}`"));
    found.unwrap_or_else(|| panic!("`{heading}` has no row `{name}`"))[1..].join(" | ")
}

/// The whole page on one line.
fn prose() -> String {
    page(PAGE).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `a`, `b`, `c`.
fn listed(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// `a`, `b` or `c`.
fn alternatives(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or `{last}`", listed(first)),
        _ => listed(names),
    }
}

/// The fields of a struct, or the variants of an enum, under the names that they have in files.
fn fields<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Asked) {
        Err(Answer(names)) => names,
        Ok(_) => panic!("it wants no fields"),
    }
}

/// A source of data that only finds out what is asked for.
struct Asked;

#[derive(Debug)]
struct Answer(&'static [&'static str]);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Answer {}

impl de::Error for Answer {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Answer(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Answer(expected)
    }
}

impl<'de> Deserializer<'de> for Asked {
    type Error = Answer;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(fields))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(variants))
    }

    /// An enum with its tag inside: an unknown tag makes it name all that it knows.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Answer> {
        let tagged = [("event", "?"), ("is", "?")].into_iter();
        let map: de::value::MapDeserializer<'_, _, Answer> =
            de::value::MapDeserializer::new(tagged);
        visitor.visit_map(map)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

#[test]
fn exit_codes() {
    let mut found = 0;
    for path in all_pages() {
        let text = page(&path);
        if !text.contains("| code | meaning |") {
            continue;
        }
        let rows = table(&text, "Exit codes", 0);
        let rows: Vec<(u8, &str)> = rows
            .iter()
            .map(|row| (row[0].parse().unwrap(), row[1].as_str()))
            .collect();
        assert_eq!(rows, exit::TABLE, "{path}");
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn error_kinds() {
    assert_eq!(names("Error kinds", 0), fields::<Kind>());
    for row in table(&page(PAGE), "Error kinds", 0) {
        let name = row[0].trim_matches('`');
        let kind = Kind::deserialize(IntoDeserializer::<de::value::Error>::into_deserializer(
            name,
        ));
        assert_eq!(row[1], kind.unwrap().exit_code().to_string(), "{name}");
    }
}

#[test]
fn keys_of_workflows_and_steps() {
    let mut seen = BTreeSet::new();
    assert_object(&WORKFLOW, &mut seen);
    assert_object(&FROM, &mut seen);
    assert!(seen.len() > 10, "{seen:?}");
}

/// Every key of a map with its value, and of the maps in it.
fn assert_object(object: &'static Object, seen: &mut BTreeSet<&'static str>) {
    if !seen.insert(object.name) {
        return;
    }
    let rows = table(&page(PAGE), heading(object), 0);
    let rows: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row[0].as_str(), row[1].as_str()))
        .collect();
    let wanted = object.fields.iter().map(|field| {
        let required = match object.required.contains(&field.name) {
            true => ", required",
            false => "",
        };
        (format!("`{}`", field.name), value(&field.shape) + required)
    });
    let wanted: Vec<(String, String)> = wanted.collect();
    let wanted: Vec<(&str, &str)> = wanted
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(rows, wanted, "{}", object.name);
    for field in object.fields {
        inner(&field.shape, seen);
    }
}

fn inner(shape: &'static Shape, seen: &mut BTreeSet<&'static str>) {
    match shape {
        Shape::Object(object) | Shape::FlagOr(object) => assert_object(object, seen),
        Shape::List(shape) | Shape::Some(shape) | Shape::Map(shape) => inner(shape, seen),
        _ => {}
    }
}

/// The heading above the table of a map.
fn heading(object: &Object) -> &'static str {
    match object.name {
        "workflow" => "Workflow keys",
        "step" => "Step keys",
        "gate" => "`requires` and `ensures`",
        "row" => "`next`",
        "number" => "Numbers from variables",
        "input" => "`input`",
        "wait_for" => "`wait_for`",
        "for_each" => "`for_each`",
        "prompt_transport" => "`prompt_transport`",
        "when" => "`when`",
        "equals" => "`equals`",
        "on" => "`on`",
        "goto" => "`goto`",
        "retries" => "`retries`",
        "limits" => "`limits`",
        "depends_on" => "`depends_on`",
        "inject" => "`inject`",
        other => panic!("the reference has no heading for `{other}`"),
    }
}

/// Where a heading is linked to.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn value(shape: &Shape) -> String {
    let variable = format!(
        ", or [from a variable](#{})",
        anchor("Numbers from variables")
    );
    match shape {
        Shape::Text => "text".into(),
        Shape::Guard => "expression".into(),
        Shape::Flag => "true or false".into(),
        Shape::Count(least, most) => format!("number, {least} to {most}"),
        Shape::Number(least, most) => format!("number, {least} to {most}{variable}"),
        Shape::Duration => format!("duration{variable}"),
        Shape::Word(words) => alternatives(words),
        Shape::List(shape) => format!("list of {}", values(shape)),
        Shape::Some(shape) => format!("list of {}, not empty", values(shape)),
        Shape::Map(shape) => format!("map of {}", values(shape)),
        Shape::Object(object) => format!("[map](#{})", anchor(heading(object))),
        Shape::FlagOr(object) => format!("true, false, or [map](#{})", anchor(heading(object))),
        Shape::Scalar => "text or number".into(),
        Shape::Provider | Shape::Any => "any".into(),
    }
}

fn values(shape: &Shape) -> String {
    match shape {
        Shape::Text => "texts".into(),
        Shape::Guard => "expressions".into(),
        Shape::Scalar => "texts or numbers".into(),
        Shape::Any => "any values".into(),
        Shape::Provider => format!("[providers](#{})", anchor("Provider keys")),
        Shape::Object(object) => format!("[maps](#{})", anchor(heading(object))),
        other => panic!("a list of {other:?}"),
    }
}

#[test]
fn targets() {
    let name = |target: &Target| match target {
        Target::Step(_) => "a step",
        Target::End => "_end",
        Target::Fail => "_fail",
        Target::Block => "_block",
        Target::Stop => "_stop",
        Target::Next => "_next",
    };
    use Target::{Block, End, Fail, Next, Step, Stop};
    let all = [
        Step(orch::spec::workflow::StepId(0)),
        End,
        Fail,
        Block,
        Stop,
        Next,
    ];
    assert_eq!(
        names("Targets", 0),
        all.iter().map(name).collect::<Vec<_>>()
    );
}

#[test]
fn variables() {
    let text = prose();
    let rows = names("Variables", 0);
    let path = |row: &String| {
        row.trim_start_matches("${")
            .trim_end_matches('}')
            .to_owned()
    };
    let paths: Vec<String> = rows.iter().map(path).collect();
    let mut roots: Vec<&str> = paths
        .iter()
        .filter_map(|path| path.split('.').next())
        .collect();
    roots.dedup();
    assert_eq!(roots, vars::ROOTS);
    let under = |root: &str| -> Vec<&str> {
        let inside = paths.iter().filter_map(|path| path.split_once('.'));
        let inside = inside.filter(|(first, _)| *first == root);
        inside.map(|(_, field)| field).collect()
    };
    assert_eq!(under("run"), vars::RUN_FIELDS);
    assert_eq!(under("loop"), vars::LOOP_FIELDS);
    assert_eq!(names("Fields of steps", 0), vars::STEP_FIELDS);
    let placeholders = names("Placeholders in a provider's command", 0);
    let placeholders: Vec<String> = placeholders.iter().map(path).collect();
    assert_eq!(placeholders, template::RESERVED);
    let run: Vec<String> = vars::RUN_FIELDS
        .iter()
        .map(|field| format!("`run.{field}`"))
        .collect();
    assert!(text.contains(&run.join(", ")), "{run:?}");
}

#[test]
fn names_and_functions_of_expressions() {
    assert_eq!(names("Expressions", 0), scope::ROOTS);
    let rows = table(&page(PAGE), "Expressions", 1);
    let functions: Vec<&str> = FUNCTIONS.iter().copied().chain(["has"]).collect();
    let wanted = [
        ["functions".to_owned(), listed(&functions)],
        ["methods".to_owned(), listed(METHODS)],
        ["macros over lists".to_owned(), listed(MACROS)],
    ];
    assert_eq!(rows, wanted);
    let limits = format!("at most {MAX_BYTES} bytes and {MAX_BRACKETS} levels of brackets");
    assert!(
        prose().replace("1,024", "1024").contains(&limits),
        "{limits}"
    );
}

#[test]
fn keys_of_tasks_agents_and_providers() {
    assert_eq!(names("Task keys", 0), fields::<Header>());
    assert_eq!(names("Agent keys", 0), agent::KEYS);
    let mut keys: Vec<&str> = fields::<Entry>().to_vec();
    let mut known = PROVIDER_KEYS.to_vec();
    let mut rows = names("Provider keys", 0);
    keys.sort_unstable();
    known.sort_unstable();
    assert_eq!(keys, known);
    assert_eq!(rows, PROVIDER_KEYS);
    rows.sort_unstable();
    assert_eq!(rows, keys);
    assert_eq!(names("`result`", 0), fields::<ResultRules>());
    assert_eq!(names("`success`", 0), fields::<Success>());
    assert_eq!(names("`when_confined`", 0), fields::<WhenConfined>());
}

#[test]
fn settings_and_their_defaults() {
    let inside = |key: &str| -> Option<&'static [&'static str]> {
        match key {
            "limits" => Some(fields::<Limits>()),
            "retention" => Some(fields::<Retention>()),
            _ => None,
        }
    };
    let mut keys = Vec::new();
    for key in fields::<Settings>() {
        match inside(key) {
            Some(fields) => keys.extend(fields.iter().map(|field| format!("{key}.{field}"))),
            None => keys.push((*key).to_owned()),
        }
    }
    assert_eq!(names("Settings", 0), keys);
    assert_eq!(
        fields::<settings::Dir>(),
        ["path"],
        "the reference shows a dir"
    );
    let mut text = String::new();
    let mut maps: Map<String, Value> = Map::new();
    for row in table(&page(PAGE), "Settings", 0) {
        let (key, default) = (row[0].trim_matches('`'), row[1].trim_matches('`'));
        match (key.split_once('.'), default) {
            (_, "–") => {}
            (None, default) => text += &format!("{key}: {default}\n"),
            (Some((map, key)), default) => {
                let default = default
                    .parse::<u64>()
                    .map_or_else(|_| json!(default), |n| json!(n));
                let map = maps.entry(map).or_insert_with(|| json!({}));
                map[key] = default;
            }
        }
    }
    for (key, map) in maps {
        text += &format!("{key}: {map}\n");
    }
    assert_eq!(
        Settings::parse(&text).unwrap(),
        Settings::default(),
        "{text}"
    );
}

#[test]
fn variables_of_the_environment() {
    let wanted = [
        "ORCH_ROOT",
        TASK_VARIABLE,
        WATCHER_VARIABLE,
        document::VARIABLE,
    ];
    assert_eq!(names("Environment", 0), wanted);
}

#[test]
fn fields_of_records() {
    assert_eq!(names("Result record", 0), fields::<Record>());
    assert!(row("Result record", "files").contains(&listed(fields::<FileEntry>())));
    assert!(row("Result record", "usage").contains(&listed(fields::<Usage>())));
    assert!(row("Result record", "error").contains(&listed(fields::<Fault>())));
    for status in fields::<record::Status>() {
        assert!(row("Result record", "status").contains(&format!("`{status}`")));
    }
}

#[test]
fn fields_of_states() {
    let text = prose();
    assert_eq!(names("state.json", 0), fields::<RunState>());
    for (field, inside) in [
        ("status", alternatives(fields::<RunStatus>())),
        ("metadata", alternatives(&governed())),
        ("governance", listed(fields::<Governance>())),
        ("blocks", listed(fields::<Block>())),
        ("loops", listed(fields::<LoopState>())),
        ("groups", listed(fields::<Group>())),
    ] {
        let row = row("state.json", field);
        assert!(row.contains(&inside), "{field}: {inside}");
    }
    for field in fields::<Metadata>() {
        assert!(row("state.json", "metadata").contains(&format!("`{field}`")));
    }
    for inside in [
        listed(fields::<Decision>()),
        alternatives(fields::<Stage>()),
        "`ended`, `exit_code`, `visits` and `counts`".to_owned(),
    ] {
        assert!(text.contains(&inside), "{inside}");
    }
    assert_eq!(
        fields::<ItemState>(),
        ["ended", "exit_code", "visits", "counts"]
    );
    assert_eq!(names("Pending steps", 0), fields::<Pending>());
    assert!(row("Pending steps", "asks").contains(&alternatives(fields::<Asks>())));
    assert!(row("Step results", "status").contains(&alternatives(fields::<StepStatus>())));
    assert_eq!(names("Step results", 0), keys_of(&json!(step_result())));
}

/// What `metadata.status` can be.
fn governed() -> Vec<&'static str> {
    let all = fields::<RunStatus>().iter();
    all.map(|word| {
        serde_json::from_value::<RunStatus>(json!(word))
            .unwrap()
            .governed()
    })
    .collect()
}

fn keys_of(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// A result with all of its fields.
fn step_result() -> StepResult {
    StepResult {
        step_name: "s".into(),
        status: StepStatus::Failed,
        exit_code: 1,
        start_time: "t".into(),
        end_time: "t".into(),
        duration: 1.0,
        output: Some("o".into()),
        lines: Some(vec![]),
        json_data: Some(json!(1)),
        truncated: false,
        json_parse_error: Some("e".into()),
        error: Some(fault()),
        note: Some("n".into()),
        attempt: 1,
        visit: 1,
        task: Some("a/n".into()),
        artifacts: vec![FileEntry {
            path: "p".into(),
            bytes: 1,
            sha256: "h".into(),
        }],
        waited: Some(Waited {
            files: vec![],
            wait_duration_ms: 1,
            poll_count: 1,
        }),
        more: one_field(),
    }
}

fn fault() -> Fault {
    Fault::new(Kind::IoError, "m").hint("h")
}

fn one_field() -> Map<String, Value> {
    json!({"k": 1}).as_object().unwrap().clone()
}

#[test]
fn plans() {
    let (task, master) = (
        "# Task 01: A\n\n- **Depends On**: none\n- **Parallel With**: none\n- **Files**: `a`\n- **Status**: Pending\n",
        "# Master Plan: p\n\n**Progress**: 0/1 tasks\n\n## Phase 1: A\n**Status**: Pending\n\n- [ ] 01: A (`01-a.md`)\n",
    );
    let folder = plan::Folder {
        master: master.to_owned(),
        files: [("01-a.md".to_owned(), task.to_owned())].into(),
    };
    let value = plan::read(&folder).unwrap().to_value("d");
    assert_eq!(names("`state.plan`", 0), keys_of(&value));
    assert!(row("`state.plan`", "phases").contains(&listed(&keys_of(&value["phases"][0]))));
    assert!(row("`state.plan`", "tasks").contains(&listed(&keys_of(&value["tasks"][0]))));
    assert_eq!(keys_of(&value["current"]), keys_of(&value["phases"][0]));
}

/// Every event with all of its fields. The match in here makes a new one known.
fn events() -> Vec<Event> {
    let (task, attempt, facts, by) = ("t".to_owned(), 1, Facts::default(), "b".to_owned());
    let changes = Changes {
        set: [("/a".to_owned(), json!(1))].into(),
        removed: ["/b".to_owned()].into(),
    };
    let is_listed_below = |event: &Event| match event {
        Event::Created { .. } | Event::Entered { .. } | Event::Retried { .. } => {}
        Event::PutBack { .. } | Event::Finished { .. } | Event::Intruded { .. } => {}
        Event::Corrected { .. } | Event::Asked { .. } | Event::Answered { .. } => {}
        Event::Reopened { .. } | Event::Resumed { .. } | Event::Cancelled => {}
        Event::Stopped { .. } | Event::Reset | Event::SpecUpdated { .. } => {}
    };
    let all = vec![
        Event::Created {
            run_id: "r".into(),
            workflow_name: "w".into(),
            workflow_sha256: "h".into(),
            variables: one_field(),
        },
        Event::Entered {
            task: task.clone(),
            attempt,
            facts: facts.clone(),
        },
        Event::Retried {
            task: task.clone(),
            attempt,
        },
        Event::PutBack {
            task: task.clone(),
            attempt,
        },
        Event::Finished {
            task: task.clone(),
            result: Box::new(step_result()),
            changes,
            facts: facts.clone(),
        },
        Event::Intruded { fault: fault() },
        Event::Corrected {
            set: one_field(),
            note: "n".into(),
        },
        Event::Asked {
            task: task.clone(),
            facts: facts.clone(),
        },
        Event::Answered {
            task,
            verdict: Verdict::Approved { note: None },
            by: by.clone(),
            facts: facts.clone(),
        },
        Event::Reopened {
            reply: "r".into(),
            by,
        },
        Event::Resumed { facts },
        Event::Cancelled,
        Event::Stopped { fault: fault() },
        Event::Reset,
        Event::SpecUpdated {
            workflow_sha256: "h".into(),
            spec_sha256: "h".into(),
        },
    ];
    all.iter().for_each(is_listed_below);
    all
}

#[test]
fn lines_and_events_of_logs() {
    let text = page(PAGE);
    assert_eq!(names("Log", 0), fields::<Line>());
    assert!(row("Log", "checkpoints").contains(&listed(fields::<Note>())));
    assert!(row("Log", "checks").contains(&listed(fields::<Checked>())));
    assert_eq!(names("Log", 1), fields::<Event>());
    let rows = table(&text, "Log", 1);
    for (row, event) in rows.iter().zip(events()) {
        let value = json!(event);
        let keys: Vec<&str> = keys_of(&value)
            .into_iter()
            .filter(|key| *key != "event")
            .collect();
        let wanted = match keys.is_empty() {
            true => "–".to_owned(),
            false => listed(&keys),
        };
        assert_eq!(
            (row[0].as_str(), &row[1]),
            (
                format!("`{}`", value["event"].as_str().unwrap()).as_str(),
                &wanted
            )
        );
    }
    assert_eq!(fields::<Facts>(), ["exists"]);
    assert_eq!(fields::<Changes>(), ["set", "removed"]);
    assert_eq!(fields::<Verdict>(), ["approved", "rejected", "replied"]);
    assert!(prose().contains(
        "`verdict.is` is `approved`, `rejected` (both with `note`) or `replied` (with `result`)"
    ));
}
