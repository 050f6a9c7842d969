//! `specs/feature.yaml`: every rule of it as a case.
//!
//! | rule | test |
//! |---|---|
//! | 0a, 0b: clear, questions, three rounds together | `clarify::a_request_that_is_clear…`, `clarify::three_rounds_in_0a…`, `clarify::a_person_is_asked_three_times…`, `clarify::what_was_found_out…` |
//! | 1: two agents side by side, two discoveries | `clarify::two_discoveries_at_most…`, `clarify::what_was_found_out…` |
//! | 2, 3: plan, approval, changes | `clarify::a_rejected_plan…`, `plans::a_plan_with_faults…`, `plans::a_plan_that_comes_ticked…` |
//! | the plan's grammar in the prompts | `plans::the_example_in_the_prompts…` |
//! | 4a: one implementer for a task, patterns A, B, C | `plans::pattern_a…`, `plans::pattern_b…`, `plans::pattern_c…` |
//! | 4a: an error that blocks is mended twice | `loop4::an_error_that_blocks…` |
//! | 4b: analysis, only what fails, full check again | `loop4::a_gate_that_fails…`, `loop4::an_analysis_that_leaves_a_task_out…` |
//! | three iterations, the report, retry, skip, stop | `loop4::the_third_failure…`, `loop4::a_person_may_stop…` |
//! | 4c: only orch ticks | `plans::nobody_but_orch_ticks…` |
//! | 5a, 5b, back to 4 at most three times | `phases::five_a_leads_to_five_b…`, `phases::a_validation_that_fails…`, `phases::three_fix_phases…`, `phases::a_person_may_send_the_validation_back…` |
//! | who checks what, and when | `phases::each_agent_is_told…` |
//! | the checkpoint line, OK and FAIL | `clarify::a_request_that_is_clear…`, `loop4::a_gate_that_fails…`, `phases::a_validation_that_fails…` |
//! | 6: what was learnt | `phases::without_what_was_learnt…` |
//! | 7: three kinds of follow-up | `phases::a_follow_up_is_routed…` |
//! | gates 1 to 7, what is forbidden after each | `gates::…`: what no run can do, whatever agents say |
//! | agents that lie | `clarify::answers_that_are_no_answers…`, `clarify::a_planner_that_writes_outside…`, `loop4::gates_and_analyses…`, `phases::validations_that…` |
//! | any course of events | `gates::random_runs_keep_the_rules` |

mod clarify;
mod gates;
mod loop4;
mod phases;
mod plans;

use serde_json::{Value, json};

use super::Stage;
use crate::harness::{Ended, Ran};

/// A stage on which everything goes well: one phase, one task, and every gate passes.
fn stage() -> Stage {
    let stage = Stage::new();
    stage
        .answers("clarify", verdict("REQUIREMENTS_CLEAR", &[]))
        .answers("clarify_again", verdict("REQUIREMENTS_CLEAR", &[]))
        .answers("research", "# the manual\n")
        .answers("explore", "# the code\n")
        .answers("plan", planned(&[&[("01", "")]]))
        .answers("code", done())
        .answers("apply", done())
        .answers("quality", gate(&[]))
        .answers("validate", validated(&[]))
        .answers("review", validated(&[]))
        .answers("complete", completed());
    stage
}

fn verdict(word: &str, questions: &[&str]) -> String {
    let questions: Vec<Value> = questions
        .iter()
        .map(|text| json!({"question": text, "default": format!("default of {text}")}))
        .collect();
    json!({"verdict": word, "questions": questions, "summary": format!("{word} it is")}).to_string()
}

/// A plan of these phases as a planner prints it; each task is its id and its metadata.
fn planned(phases: &[&[(&str, &str)]]) -> String {
    let mut files = json!({});
    let mut master = format!(
        "# Master Plan\n\n**Progress**: 0/{} tasks\n",
        phases.iter().map(|tasks| tasks.len()).sum::<usize>()
    );
    for (place, tasks) in phases.iter().enumerate() {
        let number = place + 1;
        master += &format!("\n## Phase {number}: part {number}\n**Status**: Pending\n\n");
        for (id, meta) in *tasks {
            master += &format!("- [ ] {id}: do {id} (`{id}-t.md`)\n");
            files[format!("{id}-t.md")] = json!(format!("# Task {id}: do {id}\n\n{meta}\n"));
        }
    }
    files["MASTER_PLAN.md"] = json!(master);
    json!({"files": files}).to_string()
}

fn done() -> String {
    json!({"status": "done", "blocking": false, "summary": "written"}).to_string()
}

/// What a quality gate says of a phase in which these tasks fail.
fn gate(failing: &[&str]) -> String {
    let status = if failing.is_empty() { "PASS" } else { "FAIL" };
    json!({"status": status, "failing": failing, "summary": format!("gate {status}")}).to_string()
}

fn validated(findings: &[&str]) -> String {
    let status = if findings.is_empty() { "PASS" } else { "FAIL" };
    json!({"status": status, "findings": findings, "summary": format!("validation {status}")})
        .to_string()
}

fn completed() -> String {
    json!({"files": {"SUMMARY.md": "what was built\n", "LEARNINGS.md": "what was learnt\n"}})
        .to_string()
}

/// The analysis of these tasks.
fn analysed(tasks: &[&str], summary: &str) -> String {
    let tasks: Vec<Value> = tasks
        .iter()
        .map(|id| json!({"id": id, "files": [], "root_cause": format!("cause {id}"), "instructions": "mend it"}))
        .collect();
    json!({"tasks": tasks, "summary": summary}).to_string()
}

/// Starts the run.
fn start(stage: &Stage) -> Ran {
    stage.orch(&["run", "feature", "a flag", "--jobs", "4"])
}

/// Starts the run and approves its plan.
fn approved(stage: &Stage) -> Ran {
    start(stage).fails(4);
    approve(stage)
}

/// Approves the plan, and goes on until it is done or somebody is asked.
fn approve(stage: &Stage) -> Ran {
    stage
        .orch(&["approve", "last", "plan"])
        .says("no watcher is running")
        .expect(0);
    resume(stage)
}

fn resume(stage: &Stage) -> Ran {
    stage.orch(&["resume", "last", "--jobs", "4"])
}

/// Answers the question, and goes on until somebody is asked again.
fn reply(stage: &Stage, text: &str) -> Ran {
    stage
        .orch(&["reply", "last", text])
        .says("no watcher is running")
        .expect(0);
    resume(stage)
}

/// Fails the test unless one of the checkpoints begins like this.
#[track_caller]
fn said(ran: &Ended, line: &str) {
    assert!(ran.stdout.contains(line), "no `{line}` in\n{}", ran.stdout);
}
