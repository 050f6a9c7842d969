//! `specs/lifecycle.yaml`: every rule of it as a case.
//!
//! | section of the model | here |
//! |---|---|
//! | 1, 2.1 the sequence, one agent for each phase | `the_phases_follow_each_other_each_behind_its_approval` |
//! | 1.1, 2.3 no phase is skipped, none comes again | `each_phase_has_one_agent_and_leads_to_the_next_alone` |
//! | 1.3 only orch changes phase and status | `liars::what_an_agent_may_not_touch_blocks_the_run` |
//! | 2.2 every guard of every transition | `every_condition_of_every_phase_is_a_gate` |
//! | 2.2 guards at the transition itself | `people::an_approval_does_not_pass_what_no_longer_holds` |
//! | 2.3 invalid transitions | `people::no_gate_is_passed_before_its_turn`, `people::a_forged_task_of_a_later_phase_blocks`, `liars::` |
//! | 2.4 phase stays, blocked, reason | `every_condition_of_every_phase_is_a_gate` |
//! | 3, 3.1, 3.3 blocked: nothing runs or is tried again | `while_it_is_blocked_nothing_runs_and_nothing_changes` |
//! | 3.2 causes: preconditions | `a_precondition_that_does_not_hold_blocks_before_the_agent` |
//! | 3.2 causes: writes outside the scope | `liars::files_outside_of_its_folder_are_out_of_reach` |
//! | 3.2 causes: the agent fails | `an_agent_that_fails_blocks_and_is_not_tried_again` |
//! | 3.4 resume: explicit, reason cleared, same phase | `a_resume_clears_the_reason_and_stays_in_the_phase` |
//! | 3.5 approval, correction, regeneration, override | `people::the_ways_out_of_a_block` |
//! | 3.5 a fix by hand and a retry are the same | `people::a_fix_by_hand_needs_no_agent` |
//! | 4, 4.3 one agent in a cycle, with the document | `the_agent_gets_the_document_as_it_stands`, `however_many_jobs_one_agent_works` |
//! | 4.4 validation of outputs | `liars::an_answer_that_is_not_what_was_asked_for_changes_nothing` |
//! | 4.5 completed is final | `people::a_completed_run_is_final` |
//! | every rule, with any agent and any person | `chance::` |

mod chance;
mod liars;
mod people;

use std::fs;

use serde_json::{Value, json};

use super::Stage;
use super::random::Ground;
use crate::harness::{End, Ran};

/// The phases: step, agent, the part of the document and the folder, and an honest answer.
const PHASES: [Phase; 5] = [
    Phase {
        step: "architecture",
        agent: "architect",
        part: "architecture",
        files: &["blueprint.md", "parts.md"],
        answer: r#"{"architecture": {"blueprint": {"approved": true}, "diagrams": [{"file": "architecture/parts.md", "approved": true}]}}"#,
    },
    Phase {
        step: "design",
        agent: "designer",
        part: "design",
        files: &["design.md"],
        answer: r#"{"design": {"status": "approved"}}"#,
    },
    Phase {
        step: "code",
        agent: "engineer",
        part: "code",
        files: &["count.sh"],
        answer: r#"{"code": {"status": "completed"}}"#,
    },
    Phase {
        step: "test",
        agent: "tester",
        part: "tests",
        files: &["report.txt"],
        answer: r#"{"tests": {"status": "passed"}}"#,
    },
    Phase {
        step: "deploy",
        agent: "deployer",
        part: "deployment",
        files: &["report.md"],
        answer: r#"{"deployment": {"status": "completed"}}"#,
    },
];

/// Edits the document in its place, which is all that an agent may do with it.
const EDIT: &str = r#"
D=$ORCH_STATE_FILE
edit() { sed "$1" "$D" > "$TMPDIR/document" && cat "$TMPDIR/document" > "$D"; }
"#;

struct Phase {
    step: &'static str,
    agent: &'static str,
    part: &'static str,
    files: &'static [&'static str],
    answer: &'static str,
}

impl Phase {
    /// What an agent does that says this, after it has written its files.
    fn says(&self, answer: &str) -> String {
        let mut script = format!("#!\nmkdir -p {}\n", self.part);
        for file in self.files {
            script += &format!("echo '{} of it' > {}/{file}\n", self.step, self.part);
        }
        script + &format!("cat <<'END'\n{answer}\nEND\n")
    }

    fn honest(&self) -> String {
        self.says(self.answer)
    }
}

fn phase(step: &str) -> &'static Phase {
    PHASES.iter().find(|phase| phase.step == step).unwrap()
}

/// A stage on which every agent is honest.
fn honest() -> Stage {
    let stage = Stage::new();
    for phase in &PHASES {
        stage.answers(phase.step, phase.honest());
    }
    stage
}

fn begin(stage: &Stage) -> Ran {
    stage.orch(&["run", "lifecycle", "a word counter"])
}

/// Everything before this phase is approved; what its agent does then is not part of this.
fn reach(stage: &Stage, step: &str) -> Ran {
    let mut ran = begin(stage);
    for phase in PHASES.iter().take_while(|phase| phase.step != step) {
        ran.fails(4);
        approve(stage, phase.part);
        ran = stage.orch(&["resume", "last"]);
    }
    ran
}

fn approve(stage: &Stage, gate: &str) {
    let may = &["no watcher is running", "error: run ", "hint: "];
    stage
        .orch(&["approve", "last", gate])
        .may_say(may)
        .expect(0);
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

/// Blocked in this phase, and the reason says this.
#[track_caller]
fn is_blocked(stage: &Stage, step: &str, reason: &str) {
    let state = stage.state();
    let metadata = json!({"currentPhase": step, "status": "blocked"});
    assert_eq!(state["metadata"], metadata, "{state:#}");
    assert_eq!(state["status"], "blocked");
    has(
        state["governance"]["blockedReason"].as_str().unwrap(),
        &[reason],
    );
}

fn waits(phase: &Phase) -> String {
    format!("`{}` waits for approval", phase.part)
}

/// A number of cases side by side: each waits for processes most of the time.
fn side_by_side<T: Sync>(cases: &[T], case: impl Fn(&T) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(one) = cases.get(index) else { break };
                    case(one);
                }
            });
        }
    });
}

#[test]
fn it_is_checked_and_ends_after_one_transition_for_each_phase() {
    let stage = Stage::new();
    let ran = stage.orch(&["check", "lifecycle"]).expect(0);
    has(
        &ran.stdout,
        &["fine, 5 steps, ends after at most 5 transitions"],
    );
    assert!(stage.calls().is_empty());
}

#[test]
fn the_phases_follow_each_other_each_behind_its_approval() {
    let stage = honest();
    let mut ran = begin(&stage);
    for (index, phase) in PHASES.iter().enumerate() {
        ran.fails(4);
        is_blocked(&stage, phase.step, &waits(phase));
        let state = stage.state();
        for (before, other) in PHASES.iter().enumerate() {
            let approved = json!(before < index);
            assert_eq!(state["governance"]["approvals"][other.part], approved);
        }
        let calls: Vec<&str> = PHASES[..=index].iter().map(|phase| phase.step).collect();
        assert_eq!(stage.calls(), calls);
        let task = format!("artifacts/{}", phase.agent);
        assert!(
            !stage.bed.ls(&task).is_empty(),
            "its own agent, in its own inbox"
        );
        approve(&stage, phase.part);
        if phase.step == "deploy" {
            break;
        }
        ran = stage.orch(&["resume", "last"]);
    }
    let state = stage.state();
    assert_eq!(
        state["metadata"],
        json!({"currentPhase": "deploy", "status": "completed"})
    );
    assert_eq!(state["status"], "succeeded");
    assert_eq!(state["transitions"], 5);
    assert_eq!(state["governance"]["blockedReason"], Value::Null);
    assert_eq!(stage.calls().len(), 5);
    let log = stage.orch(&["log", "last"]).expect(0).stdout;
    has(&log, &["[architecture] architecture APPROVED -> design"]);
    has(&log, &["[deploy] deploy APPROVED -> _end"]);
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn each_phase_has_one_agent_and_leads_to_the_next_alone() {
    let workflow = Ground::shipped("lifecycle").workflow;
    let names: Vec<&str> = workflow
        .steps
        .iter()
        .map(|s| s.name.value.as_str())
        .collect();
    assert_eq!(names, PHASES.map(|phase| phase.step));
    let edges = orch::spec::workflow::edges::edges(&workflow);
    for (index, (phase, edges)) in PHASES.iter().zip(&edges).enumerate() {
        let step = &workflow.steps[index];
        assert_eq!(step.inbox(), phase.agent);
        assert_eq!(step.phase, phase.step);
        let mut targets: Vec<&str> = edges
            .iter()
            .map(|edge| workflow.target_name(edge.to))
            .collect();
        targets.sort_unstable();
        targets.dedup();
        let next = PHASES.get(index + 1).map_or("_end", |phase| phase.step);
        assert_eq!(targets, ["_block", next], "from {}", phase.step);
    }
}

/// What an agent says, and why that is not enough; twice, and then what is.
const CONDITIONS: [(&str, &str, &str); 13] = [
    (
        "architecture",
        r#"{"architecture": {"blueprint": {"approved": false}, "diagrams": [{"approved": true}]}}"#,
        "the architecture blueprint is not approved",
    ),
    (
        "architecture",
        r#"{"architecture": {"blueprint": {"approved": true}, "diagrams": [{"approved": true}, {"approved": false}]}}"#,
        "not every architecture diagram is approved",
    ),
    (
        "architecture",
        r#"{"architecture": {"blueprint": {"approved": true}, "diagrams": []}}"#,
        "not every architecture diagram is approved",
    ),
    (
        "architecture",
        "no files",
        "there is no architecture/blueprint.md",
    ),
    (
        "design",
        r#"{"design": {"status": "draft"}}"#,
        "the design is not approved",
    ),
    ("design", "no files", "there is no design/design.md"),
    (
        "code",
        r#"{"code": {"status": "draft"}}"#,
        "the code is not completed",
    ),
    ("code", "no files", "there is no file in code/"),
    (
        "test",
        r#"{"tests": {"status": "failed"}}"#,
        "the tests have not passed",
    ),
    (
        "test",
        r#"{"tests": {"status": "pending"}}"#,
        "the tests have not passed",
    ),
    ("test", "no files", "there is no tests/report.txt"),
    (
        "deploy",
        r#"{"deployment": {"status": "failed", "why": "no disk"}}"#,
        "the deployment is not completed",
    ),
    ("deploy", "no files", "there is no deployment/report.md"),
];

#[test]
fn every_condition_of_every_phase_is_a_gate() {
    side_by_side(&CONDITIONS, |(step, answer, reason)| {
        let stage = honest();
        let phase = phase(step);
        let lacking = match *answer {
            "no files" => format!("#!\ncat <<'END'\n{}\nEND\n", phase.answer),
            answer => phase.says(answer),
        };
        stage.answers(&format!("{step}.1"), &lacking);
        stage.answers(&format!("{step}.2"), &lacking);
        let ran = reach(&stage, step).fails(4);
        has(&ran.stderr, &[reason]);
        is_blocked(&stage, step, reason);
        // Nobody is asked to approve what is not there.
        let asked = format!("`{}` is not being asked", phase.part);
        let ran = stage.orch(&["approve", "last", step]).fails(64);
        has(&ran.stderr, &[&asked]);
        assert_eq!(stage.state()["governance"]["approvals"][phase.part], false);
        // Still not there: a resume says so again.
        let ran = stage.orch(&["resume", "last"]).fails(4);
        has(&ran.stderr, &[reason]);
        is_blocked(&stage, step, reason);
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, step, &waits(phase));
        let calls = stage.calls().iter().filter(|call| call == step).count();
        assert_eq!(calls, 3, "{step}: once for each resume");
        stage.orch(&["audit", "last"]).expect(0);
    });
}

#[test]
fn while_it_is_blocked_nothing_runs_and_nothing_changes() {
    let table = [
        ("waits for approval", phase("architecture").honest()),
        (
            "is not approved",
            phase("architecture").says(CONDITIONS[0].1),
        ),
        ("exit code 3", "#!\nexit 3\n".to_owned()),
    ];
    for (reason, answer) in table {
        let stage = honest();
        stage.answers("architecture", answer);
        begin(&stage).fails(4);
        let log = format!("logs/{}.jsonl", stage.run_id());
        let before = (stage.bed.read(&log), stage.state());
        for _ in 0..2 {
            stage.bed.drain().one_of(&[End::Code(0), End::Code(4)]);
        }
        assert_eq!((stage.bed.read(&log), stage.state()), before, "{reason}");
        assert_eq!(stage.calls(), ["architecture"], "{reason}");
        for words in [["status", "last"], ["show", "last"]] {
            has(&stage.orch(&words).expect(0).stdout, &["blocked", reason]);
        }
        let shown = stage.orch(&["status", "last", "--json"]).expect(0).stdout;
        has(&shown, &[reason]);
    }
}

#[test]
fn a_precondition_that_does_not_hold_blocks_before_the_agent() {
    let cases: Vec<&[Phase]> = PHASES.windows(2).collect();
    side_by_side(&cases, |pair| {
        let (before, next) = (&pair[0], &pair[1]);
        let stage = honest();
        reach(&stage, before.step).fails(4);
        approve(&stage, before.part);
        // Approved, and then somebody takes it away.
        let folder = stage.file(before.part);
        let aside = stage.bed.outside.join("aside");
        fs::rename(&folder, &aside).unwrap();
        let ran = stage.orch(&["resume", "last"]).fails(4);
        has(&ran.stderr, &["there is no"]);
        is_blocked(&stage, next.step, &format!("{}/", before.part));
        assert!(!stage.calls().contains(&next.step.to_owned()));
        // Still missing, and still no agent.
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, next.step, &format!("{}/", before.part));
        assert!(!stage.calls().contains(&next.step.to_owned()));
        fs::rename(&aside, &folder).unwrap();
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, next.step, &waits(next));
    });
}

#[test]
fn an_agent_that_fails_blocks_and_is_not_tried_again() {
    let cases = [
        ("#!\nexit 3\n", "failed: exit code 3"),
        ("#!\nkill -9 $$\n", "was killed by SIGKILL"),
        ("#!\nexec /no/such/program\n", "/no/such/program: not found"),
    ];
    side_by_side(&cases, |(script, reason)| {
        let stage = honest();
        stage.answers("design.1", script);
        let ran = reach(&stage, "design").fails(4);
        has(&ran.stderr, &["is blocked", reason]);
        is_blocked(&stage, "design", reason);
        stage.bed.drain().expect(0);
        assert_eq!(stage.calls(), ["architecture", "design"]);
        assert_eq!(stage.state()["state"]["design"], json!({"status": "draft"}));
        stage.orch(&["resume", "last"]).fails(4);
        is_blocked(&stage, "design", "`design` waits for approval");
        assert_eq!(stage.calls(), ["architecture", "design", "design"]);
    });
}

#[test]
fn a_resume_clears_the_reason_and_stays_in_the_phase() {
    let stage = honest();
    stage.answers("design.1", "#!\nexit 3\n");
    let look = format!(
        "#!\ncp \"$ORCH_STATE_FILE\" design/seen.json\n{}",
        &phase("design").honest()[3..]
    );
    stage.answers("design.2", look);
    reach(&stage, "design").fails(4);
    stage.orch(&["resume", "last"]).fails(4);
    let seen = fs::read_to_string(stage.file("design/seen.json")).unwrap();
    let seen: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(
        seen["metadata"],
        json!({"currentPhase": "design", "status": "in-progress"})
    );
    assert_eq!(seen["governance"]["blockedReason"], Value::Null);
    assert_eq!(
        stage.state()["visits"]["design"],
        1,
        "a resume is no new entry"
    );
}

#[test]
fn the_agent_gets_the_document_as_it_stands() {
    let stage = honest();
    let edit = r#"edit '/"design": {/,/}/ s/draft/approved/'"#;
    let answer = phase("design").says("The design is written.");
    stage.answers("design", format!("{answer}{EDIT}{edit}\n"));
    reach(&stage, "design").fails(4);
    is_blocked(&stage, "design", "`design` waits for approval");
    assert_eq!(stage.state()["state"]["design"]["status"], "approved");
    let prompt = stage.prompt("design", 1);
    has(
        &prompt,
        &[
            "This is the phase `design`",
            ".state. Edit its part `design`, and no other",
            r#""blueprint":{"approved":true}"#,
            "a word counter",
            "last rejection: none",
        ],
    );
    let state: Value = serde_json::from_str(&stage.bed.read(&format!(
        "artifacts/designer/{}.0003-design.state",
        stage.run_id()
    )))
    .unwrap();
    assert_eq!(state["architecture"]["blueprint"]["approved"], true);
    assert_eq!(state["governance"]["approvals"]["architecture"], true);
}

#[test]
fn however_many_jobs_one_agent_works() {
    let stage = honest();
    let _watcher = stage.bed.watch(&["--jobs", "4"]);
    begin(&stage).fails(4);
    for phase in &PHASES {
        crate::harness::wait_for("the next question", || {
            let reason = stage.state()["governance"]["blockedReason"].clone();
            reason.as_str() == Some(&waits(phase))
        });
        let working = PHASES
            .iter()
            .position(|other| other.step == phase.step)
            .unwrap()
            + 1;
        assert_eq!(stage.calls().len(), working, "one agent in each cycle");
        approve(&stage, phase.part);
    }
    assert_eq!(stage.state()["metadata"]["status"], "completed");
}
