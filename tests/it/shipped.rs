//! The workflows and the schema that come with orch: valid, the same everywhere, and harmless.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::authors::{GOOD, bed, step};
use crate::harness::{Bed, names, orch, program};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// What `orch` prints outside of any root.
fn print(words: &[&str]) -> String {
    let printing = program(orch()).args(words).current_dir(Path::new("/"));
    printing.run().expect(0).stdout
}

#[test]
fn the_schema_in_the_repository_is_the_one_that_is_printed() {
    let path = Path::new(REPOSITORY).join("specs/schemas/workflow.json");
    let stored = fs::read_to_string(path).unwrap();
    assert_eq!(
        stored,
        print(&["schema"]),
        "type: orch schema > specs/schemas/workflow.json"
    );
    let schema: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
}

#[test]
fn an_editor_finds_nothing_in_the_shipped_workflows_but_does_in_bad_ones() {
    let schema: Value = serde_json::from_str(&print(&["schema"])).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let read = |text: &str| serde_yaml::from_str::<Value>(text).unwrap();
    assert!(schema.is_valid(&read(GOOD)));
    assert!(!schema.is_valid(&read(&step("colour: red"))));
    for file in shipped() {
        let text = fs::read_to_string(Path::new(REPOSITORY).join(&file)).unwrap();
        let faults: Vec<String> = schema
            .iter_errors(&read(&text))
            .map(|fault| fault.to_string())
            .collect();
        assert!(faults.is_empty(), "{file}: {faults:?}");
        assert!(text.starts_with("# yaml-language-server: $schema=schemas/workflow.json\n"));
    }
}

/// The workflows of this repository.
fn shipped() -> Vec<String> {
    let files = names(&Path::new(REPOSITORY).join("specs")).into_iter();
    files
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".yml"))
        .filter(|name| !["orch.yaml", "providers.yaml"].contains(&name.as_str()))
        .map(|name| format!("specs/{name}"))
        .collect()
}

#[test]
fn every_shipped_workflow_is_fine_here_and_in_a_new_root() {
    let bed = Bed::new();
    let fresh = bed.outside.join("fresh");
    let words = ["init", "--provider", "echo", "fresh"];
    bed.orch(words).run().expect(0);
    for root in [Path::new(REPOSITORY), &fresh] {
        let ran = bed.orch(["check"]).env("ORCH_ROOT", root).run().expect(0);
        assert_eq!(ran.stdout.matches(": fine, ").count(), shipped().len());
        // How long a list of tasks is, only a run of `feature` knows; nothing else is left open.
        let notes = ran.stdout.lines().filter(|line| line.starts_with("note:"));
        assert!(notes.count() <= 3, "{ran:?}");
    }
    assert!(!shipped().is_empty());
    for file in shipped()
        .iter()
        .map(String::as_str)
        .chain(["specs/schemas/workflow.json"])
    {
        let here = fs::read(Path::new(REPOSITORY).join(file)).unwrap();
        assert_eq!(here, fs::read(fresh.join(file)).unwrap(), "{file}");
    }
}

#[test]
fn the_hand_over_writes_a_task_and_runs_nothing_that_it_is_given() {
    let bed = bed();
    bed.agent("engineer", "provider: echo", "");
    bed.write("artifacts/architect/system_design.md", "a design");
    bed.write("artifacts/architect/old.json", "{}");
    let text = fs::read_to_string(Path::new(REPOSITORY).join("specs/handoff.yaml")).unwrap();
    let workflow: Value = serde_yaml::from_str(&text).unwrap();
    let command = workflow["steps"][1]["command"].as_array().unwrap();
    for id in ["x1", "x2;touch hacked", "x3$(touch hacked)"] {
        let words = command.iter().map(|word| word.as_str().unwrap());
        let words: Vec<String> = words.map(|w| w.replace("${run.id}", id)).collect();
        program(&words[0])
            .args(&words[1..])
            .current_dir(&bed.root)
            .run()
            .expect(0);
    }
    assert!(!bed.has("hacked") && !bed.has("inbox/engineer/hacked"));
    let dropped = bed.ls("inbox/engineer");
    assert_eq!(dropped.len(), 3);
    assert!(dropped.iter().all(|name| name.ends_with(".task")));
    bed.drain().speaks().expect(0);
    assert_eq!(bed.status("engineer/task_x1"), "succeeded");
    let asked = bed.read("artifacts/engineer/task_x1.out");
    assert!(
        asked.contains("artifacts/architect/system_design.md"),
        "{asked}"
    );
    assert!(!asked.contains("old.json") && !asked.contains("access:"));
}
