//! What orch does itself in a workflow: plans that are read and marked, files that are written.

mod files;
mod plans;

use std::fs;

use serde_json::Value;

use crate::harness::{Bed, Ran};

/// A root with the workflow `w` of these steps.
fn bed(steps: &str) -> Bed {
    let bed = Bed::new();
    bed.write("specs/w.yaml", format!("version: \"1\"\nname: w\n{steps}"));
    bed
}

fn run(bed: &Bed) -> Ran {
    bed.orch(["run", "w", "--jobs", "4"]).run()
}

fn only_run(bed: &Bed) -> String {
    let all = bed.ls("workspace");
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn state(bed: &Bed) -> Value {
    let text = bed.read(&format!("workspace/{}/state.json", only_run(bed)));
    serde_json::from_str(&text).unwrap()
}

fn result(bed: &Bed, step: &str) -> Value {
    state(bed)["step_results"][step].clone()
}

/// What scripts have noted beside the root, line by line.
fn noted(bed: &Bed) -> Vec<String> {
    let text = fs::read_to_string(bed.outside.join("noted")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn audited(bed: &Bed) {
    bed.orch(["audit", "last"]).run().expect(0);
}
