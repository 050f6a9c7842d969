//! Ids, values, globs and outlines, on workflows of a few lines.

use serde_json::{Map, Value, json};

use super::*;
use crate::disk::store::tests::{Bed, TEXT, workflow};
use crate::run::state::{Effect, Event, Facts, RunStatus};
use crate::spec::scope::Scope;
use crate::spec::workflow::outline::Outline;
use crate::work::inputs;
use crate::work::pinned::{apply, load};

const CONTEXT: &str = "version: \"1\"\nname: w\ncontext: {name: x, most: 3, deep: true, list: [1], map: {a: 1}, any: null}\nsteps:\n  - {name: one, command: [\"echo\", \"${context.name} ${context.most} ${context.deep} ${context.list} ${context.map} ${context.any:-}\"]}\n";

#[test]
fn an_id_has_the_time_the_workflow_and_something_of_its_own() {
    let now: Timestamp = "2026-05-01T12:34:56.789Z".parse().unwrap();
    let id = fresh_id("four-pass", now, &Uuid::from_u128(0xabc_0042));
    assert_eq!(id, "20260501T123456Z-four-pass-0042");
    let longest = fresh_id(&"w".repeat(64), now, &Uuid::nil());
    assert!(
        crate::spec::task::TaskName::parse(&format!("{longest}.123456-{}", "s".repeat(64))).is_ok()
    );
}

#[test]
fn context_takes_the_type_of_its_default() {
    let workflow = workflow(CONTEXT);
    let good = [
        ("name", "7", json!("7")),
        ("name", "", json!("")),
        ("most", "7", json!(7)),
        ("most", "-0.5", json!(-0.5)),
        ("deep", "false", json!(false)),
        ("list", "[1, \"a\"]", json!([1, "a"])),
        ("map", "{\"b\": null}", json!({"b": null})),
        ("any", "7", json!("7")),
    ];
    for (key, text, expected) in good {
        assert_eq!(
            inputs::typed(&workflow, key, text).unwrap(),
            expected,
            "{key}={text}"
        );
    }
    for (key, text) in [
        ("most", "many"),
        ("most", "inf"),
        ("deep", "yes"),
        ("list", "{}"),
        ("list", "a,b"),
        ("map", "[]"),
        ("max_retries", "3"),
    ] {
        let fault = inputs::typed(&workflow, key, text).unwrap_err();
        assert_eq!(fault.kind, Kind::Usage, "{key}={text}");
    }
    let fault = inputs::typed(&workflow, "nmae", "x").unwrap_err();
    assert_eq!(fault.hint.as_deref(), Some("did you mean `name`?"));
}

#[test]
fn given_values_go_over_the_defaults_and_keep_their_type() {
    let workflow = workflow(CONTEXT);
    let given = |value: Value| -> Map<String, Value> { value.as_object().unwrap().clone() };
    let all = inputs::context(&workflow, &given(json!({"most": 9, "deep": "false"}))).unwrap();
    assert_eq!(all["most"], json!(9));
    assert_eq!(all["deep"], json!(false));
    assert_eq!(all["name"], json!("x"));
    for wrong in [
        json!({"most": true}),
        json!({"list": {}}),
        json!({"other": 1}),
    ] {
        assert!(
            inputs::context(&workflow, &given(wrong.clone())).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn an_input_is_held_against_its_schema() {
    let mut workflow = workflow(TEXT);
    let mut spec = Spec::default();
    assert_eq!(inputs::check_input(&workflow, &spec, None), Ok(()));
    workflow.input_schema = Some(crate::spec::workflow::model::At {
        value: "specs/schemas/in.json".to_owned(),
        place: crate::spec::workflow::model::Place::default(),
    });
    let schema = json!({"type": "object", "required": ["a"]}).to_string();
    spec.files
        .insert("specs/schemas/in.json".to_owned(), schema.into_bytes());
    let check = |input: Option<&Value>| inputs::check_input(&workflow, &spec, input);
    assert_eq!(check(Some(&json!({"a": 1}))), Ok(()));
    assert_eq!(check(None).unwrap_err().kind, Kind::Usage);
    let fault = check(Some(&json!({}))).unwrap_err();
    assert_eq!(fault.exit_code(), 65);
    assert!(
        fault.message.starts_with("the input does not match"),
        "{fault}"
    );
}

#[test]
fn an_event_is_applied_to_the_latest_state_and_one_that_does_not_fit_changes_nothing() {
    let bed = Bed::new();
    let missing = load(&bed.run, &bed.workflow).unwrap_err();
    assert_eq!(missing.kind, Kind::StateNotFound);
    bed.three();
    let fault = apply(
        &bed.run,
        &bed.workflow,
        Event::Resumed {
            facts: Facts::default(),
        },
    );
    assert_eq!(fault.unwrap_err().kind, Kind::Usage);
    let (state, effects) = apply(&bed.run, &bed.workflow, Event::Cancelled).unwrap();
    assert_eq!(state.status, RunStatus::Cancelled);
    assert!(
        matches!(
            &effects[..],
            [Effect::Left(_), Effect::Ended(RunStatus::Cancelled)]
        ),
        "{effects:?}"
    );
    assert_eq!(load(&bed.run, &bed.workflow).unwrap(), state);
}

#[test]
fn an_outline_names_every_step_what_it_does_and_where_it_leads() {
    let text = "version: \"1\"\nname: w\ndescription: two things\ncontext: {who: world}\nsteps:\n  - name: hello\n    command: [\"echo\", \"to ${context.who}\", \"${run.id}\"]\n    depends_on: {required: [\"in/*.md\"]}\n    on: {failure: {goto: _block}}\n  - name: again\n    phase: LAST\n    when: {exists: out.md}\n    command: [\"echo\", \"${steps.hello.output}\"]\n";
    let workflow = workflow(text);
    let scope = Scope::new()
        .with("context", workflow.context.clone())
        .with("run", json!({"id": "${run.id}"}));
    let outline = Outline::of(&workflow, &scope);
    let expected = "\
w: two things

  hello  command
    command: echo 'to world' '${run.id}'
    needs: in/*.md
    -> again
    -> _block if failure

  again  command  [LAST]
    command: echo '${steps.hello.output}'
    only if: out.md exists
    -> _end
    -> _fail if failure
    -> _end if skipped
";
    assert_eq!(outline.text(), expected);
}

#[test]
fn a_run_goes_through_the_inbox_of_its_workflow_and_of_its_steps() {
    let text = "version: \"1\"\nname: w\nsteps:\n  - {name: one, command: [\"true\"]}\n  - {name: two, wait_for: {glob: x}}\n";
    let workflow = workflow(text);
    assert_eq!(
        inboxes(&workflow).into_iter().collect::<Vec<_>>(),
        ["orch", "shell", "w"]
    );
}

#[test]
fn a_workflow_is_loaded_with_its_files_and_a_faulty_one_is_refused_with_its_report() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("specs/schemas")).unwrap();
    std::fs::write(temp.path().join("specs/orch.yaml"), "provider: echo\n").unwrap();
    let text = format!("{TEXT}input: {{schema: specs/schemas/in.json}}\n");
    std::fs::write(
        temp.path().join("specs/schemas/in.json"),
        "{\"type\": \"object\"}",
    )
    .unwrap();
    std::fs::write(temp.path().join("specs/w.yaml"), text).unwrap();
    let (workflow, spec) = load_workflow(temp.path(), "w").unwrap();
    assert_eq!(workflow.name.value, "w");
    assert_eq!(spec.workflow, "specs/w.yaml");
    let files: Vec<&str> = spec.files.keys().map(String::as_str).collect();
    assert_eq!(
        files,
        ["specs/orch.yaml", "specs/schemas/in.json", "specs/w.yaml"]
    );
    std::fs::write(
        temp.path().join("specs/w.yaml"),
        TEXT.replace("command", "comand"),
    )
    .unwrap();
    let fault = load_workflow(temp.path(), "w").unwrap_err();
    assert_eq!(fault.exit_code(), 65);
    assert!(fault.message.contains("specs/w.yaml:4:"), "{fault}");
}
