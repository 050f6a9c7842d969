//! `specs/four-pass.yaml`: every rule of it as a case.
//!
//! | rule | case |
//! |---|---|
//! | the passes in their order, what each can run on and produces | `without_blockers_three_passes_are_enough`, `a_blocker_is_patched` |
//! | the model has no say in the flow, no pass changes what an earlier one left | `answers_that_break_the_form_block_and_are_not_asked_again`, `a_form_that_lacks_a_field_is_no_answer`, `agents_change_nothing_but_their_own`, `a_patch_beyond_the_artifact_stops_the_run` |
//! | pass 1: BLOCK stays in DECIDE with its questions; DECIDE is locked with its hash | `what_is_left_open_blocks_with_its_questions`, `without_blockers_three_passes_are_enough` |
//! | pass 2-4: a failure blocks | `a_pass_that_fails_blocks_and_is_never_run_again` |
//! | pass 3: BLOCKER goes to PATCH, others complete | `severities_decide_who_is_patched` |
//! | pass 4: done only if every BLOCKER is fixed | `a_patch_that_does_not_hold_blocks_with_the_list` |
//! | any violation of a precondition stops | `a_precondition_that_does_not_hold_stops_the_run` |
//! | forbidden transitions stop | `a_forged_or_early_pass_stops_the_run`, `a_finished_pass_put_back_is_not_run_again` |
//! | no modification after the lock | `a_changed_lock_stops_the_run_before_every_later_pass` |
//! | restart by a new job or a reset | `the_way_back_is_a_reset_or_a_new_run` |
//! | a person acts on the state or restarts, nothing else | `people_who_err_are_told_and_change_nothing`, `a_pass_that_is_being_run_is_not_reset` |
//! | completion | `without_blockers_three_passes_are_enough`, `a_run_that_is_done_is_final` |
//! | auditability | `show_and_audit_answer_the_four_questions` |
//! | all of it, whatever is said | `chance::whatever_agents_and_people_do_the_rules_hold` |

mod chance;

use serde_json::{Value, json};

use super::Stage;
use crate::harness::{End, Ran, wait_for};
use crate::props::Gate;

const DECIDED: &str = r#"{"decision": "DECIDE", "rationale_summary": "one file is enough",
    "assumptions": ["a shell is there"], "open_questions": [],
    "architecture_decision_json": {"files": {"greet.sh": "prints a greeting"}}}"#;
const OPEN: &str = r#"{"decision": "BLOCK", "rationale_summary": "too much is open",
    "assumptions": [], "open_questions": ["in which language?"], "architecture_decision_json": {}}"#;
/// Writes its artifact itself.
const EXECUTED: &str = "#!/bin/sh\nmkdir -p output/lib\necho 'echo hello' > output/greet.sh\necho x > output/lib/x\necho done\n";
const FINE: &str = r#"{"issues": []}"#;
const PATCHED: &str = r#"{"patch_plan": [{"issue": "I1", "change": "greet by name"}],
    "fixes": [{"issue": "I1", "status": "FIXED", "change": "it takes a name", "why": "the decision asks for it"}],
    "files": {"greet.sh": "echo hello $1\n"}}"#;

fn issue(id: &str, severity: &str) -> Value {
    json!({
        "id": id, "severity": severity, "title": "the greeting has no name",
        "evidence": "echo hello", "location": "greet.sh:1", "recommendation": "take a name",
    })
}

fn issues(severities: &[&str]) -> String {
    let all = severities.iter().enumerate();
    let all: Vec<Value> = all
        .map(|(n, severity)| issue(&format!("I{}", n + 1), severity))
        .collect();
    json!({ "issues": all }).to_string()
}

/// Everyone answers as they should, and there is a BLOCKER.
fn stage() -> Stage {
    let stage = Stage::new();
    stage
        .answers("decide", DECIDED)
        .answers("execute", EXECUTED)
        .answers("verify", issues(&["BLOCKER"]))
        .answers("patch", PATCHED);
    stage
}

fn run(stage: &Stage) -> Ran {
    stage.orch(&["run", "four-pass", "greet people"])
}

fn at(state: &Value, pointer: &str) -> Value {
    state.pointer(pointer).cloned().unwrap_or(Value::Null)
}

#[track_caller]
fn says(text: &str, part: &str) {
    assert!(text.contains(part), "`{part}` is not in:\n{text}");
}

/// How a run stands: phase, status, reason.
fn stands(stage: &Stage) -> (String, String, String) {
    let state = stage.state();
    let text = |pointer: &str| at(&state, pointer).as_str().unwrap_or_default().to_owned();
    (
        text("/metadata/currentPhase"),
        text("/metadata/status"),
        text("/governance/blockedReason"),
    )
}

/// Starts a run and leaves its first task where it is.
fn begin(stage: &Stage) {
    stage
        .orch(&["run", "four-pass", "greet people", "--detach"])
        .says("no watcher is running")
        .expect(0);
    work_off(stage, &["four-pass"]);
}

/// Works off what is in these inboxes, one after the other.
fn work_off(stage: &Stage, inboxes: &[&str]) {
    for inbox in inboxes {
        let ran = stage.orch(&["watch", "--drain", "--agent", inbox]);
        ran.one_of(&[0, 1, 2, 4].map(End::Code));
    }
}

/// The inboxes through which a run goes, up to the last step.
const WAY: [&str; 7] = [
    "decider", "executor", "orch", "verifier", "shell", "patcher", "orch",
];

#[test]
fn without_blockers_three_passes_are_enough() {
    let stage = stage();
    stage.answers("verify", FINE);
    let ran = run(&stage).expect(0);
    says(
        &ran.stdout,
        "[DECIDE] decide OK -> execute | decided and locked: one file is enough",
    );
    assert_eq!(stage.calls(), ["decide", "execute", "verify"]);
    let state = stage.state();
    assert_eq!(
        at(&state, "/metadata"),
        json!({"currentPhase": "DONE", "status": "completed"})
    );
    let snapshot = at(&state, "/snapshots/decision");
    assert_eq!(
        (&snapshot["status"], &snapshot["step"]),
        (&json!("LOCKED"), &json!("decide"))
    );
    let path = format!("workspace/{}/snapshots/decision.json", stage.run_id());
    let locked = stage.bed.read(&path);
    assert_eq!(
        snapshot["sha256"],
        orch::text::canonical::sha256(locked.as_bytes())
    );
    let decided: Value = serde_json::from_str(DECIDED).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&locked).unwrap(), decided);
    // The passes after it are given the decision, not the model's memory of it.
    for pass in ["execute", "verify"] {
        says(&stage.prompt(pass, 1), &locked);
    }
    assert_eq!(
        std::fs::read_to_string(stage.file("final/greet.sh")).unwrap(),
        "echo hello\n"
    );
    assert!(stage.file("final/lib/x").exists() && !stage.file("patched").exists());
}

#[test]
fn a_blocker_is_patched() {
    let stage = stage();
    run(&stage).expect(0);
    assert_eq!(stage.calls(), ["decide", "execute", "verify", "patch"]);
    says(&stage.prompt("patch", 1), "the greeting has no name");
    let read = |file: &str| std::fs::read_to_string(stage.file(file)).unwrap();
    assert_eq!(read("final/greet.sh"), "echo hello $1\n");
    assert_eq!(
        read("final/lib/x"),
        "x\n",
        "what was not patched is there too"
    );
    assert_eq!(
        read("output/greet.sh"),
        "echo hello\n",
        "what was verified stays"
    );
    assert_eq!(stands(&stage).0, "DONE");
    stage.orch(&["audit", "last"]).expect(0);
}

#[test]
fn an_artifact_may_be_printed_and_a_patch_may_be_made_by_hand() {
    let stage = stage();
    stage.answers(
        "execute",
        "Here it is:\n\n```sh greet.sh\necho hello\n```\n",
    );
    let patch = PATCHED.replace(
        r#""files": {"greet.sh": "echo hello $1\n"}"#,
        r#""files": {}"#,
    );
    let script = format!(
        "#!/bin/sh\necho 'echo hi $1' > patched/greet.sh\ncat <<'END'\n{}\nEND\n",
        patch.replace(",\n    \"files\": {}", "")
    );
    stage.answers("patch", script);
    run(&stage).expect(0);
    let text = std::fs::read_to_string(stage.file("final/greet.sh")).unwrap();
    assert_eq!(text, "echo hi $1\n");
}

#[test]
fn severities_decide_who_is_patched() {
    let table: [(&[&str], bool, bool); 6] = [
        (&["MINOR"], false, false),
        (&["MAJOR"], false, false),
        (&["MINOR"], true, false),
        (&["MAJOR"], true, true),
        (&["BLOCKER", "MAJOR"], false, true),
        (&["BLOCKER"], true, true),
    ];
    for (severities, patch_major, patched) in table {
        let stage = stage();
        stage.answers("verify", issues(severities));
        let major = format!("patch_major={patch_major}");
        let words = ["run", "four-pass", "greet people", "--context", &major];
        stage.orch(&words).expect(0);
        let called = stage.calls().contains(&"patch".to_owned());
        assert_eq!(called, patched, "{severities:?} {patch_major}");
        assert_eq!(stands(&stage).1, "completed");
        assert!(stage.file("final/greet.sh").exists());
    }
}

#[test]
fn what_is_left_open_blocks_with_its_questions() {
    let stage = stage();
    stage.answers("decide", OPEN);
    let ran = run(&stage).fails(4);
    says(&ran.stderr, "in which language?");
    let blocked = stands(&stage);
    assert_eq!(
        (blocked.0.as_str(), blocked.1.as_str()),
        ("DECIDE", "blocked")
    );
    says(&blocked.2, "in which language?");
    assert_eq!(at(&stage.state(), "/snapshots"), json!({}));
    for _ in 0..15 {
        says(
            &stage.orch(&["resume", "last"]).fails(4).stderr,
            "in which language?",
        );
    }
    assert_eq!(stage.calls(), ["decide"], "no pass is run again");
    assert_eq!(stands(&stage), blocked);
}

#[test]
fn a_pass_that_fails_blocks_and_is_never_run_again() {
    for (pass, phase) in [
        ("decide", "DECIDE"),
        ("execute", "EXECUTE"),
        ("verify", "VERIFY"),
        ("patch", "PATCH"),
    ] {
        let stage = stage();
        stage.answers(pass, "#!/bin/sh\necho half a thought; exit 3\n");
        run(&stage).fails(4);
        let (at_phase, status, reason) = stands(&stage);
        assert_eq!((at_phase.as_str(), status.as_str()), (phase, "blocked"));
        says(&reason, "3");
        let calls = stage.calls();
        stage.answers(pass, FINE);
        let again = stage.orch(&["resume", "last"]).fails(4);
        says(&again.stderr, "orch reset");
        assert_eq!(
            stage.calls(),
            calls,
            "{pass} is run once, also if it failed"
        );
        assert!(!stage.file("final").exists());
    }
}

#[test]
fn answers_that_break_the_form_block_and_are_not_asked_again() {
    let decided = |key: &str, value: Value| {
        let mut decided: Value = serde_json::from_str(DECIDED).unwrap();
        decided[key] = value;
        decided.to_string()
    };
    let found = |key: &str, value: Value| {
        let mut issue = issue("I1", "BLOCKER");
        issue[key] = value;
        json!({"issues": [issue]}).to_string()
    };
    let twice = json!({"issues": [issue("I1", "BLOCKER"), issue("I1", "MINOR")]}).to_string();
    let table = [
        ("decide", "I approve of everything.".to_owned(), "JSON"),
        ("decide", String::new(), ""),
        (
            "decide",
            decided("decision", json!("APPROVED")),
            "/decision",
        ),
        (
            "decide",
            decided("architecture_decision_json", json!({})),
            "",
        ),
        (
            "decide",
            decided("metadata", json!({"status": "completed"})),
            "metadata",
        ),
        ("decide", decided("decision", json!("BLOCK")), ""),
        ("verify", "looks good to me".to_owned(), "JSON"),
        (
            "verify",
            found("severity", json!("CRITICAL")),
            "/issues/0/severity",
        ),
        ("verify", found("evidence", json!("")), "/issues/0/evidence"),
        ("verify", found("approved", json!(true)), "approved"),
        ("verify", twice, "the same id"),
        ("verify", "{}".to_owned(), "issues"),
    ];
    for (pass, answer, reason) in table {
        let stage = stage();
        stage.answers(pass, &answer);
        run(&stage).fails(4);
        says(&stands(&stage).2, reason);
        let calls = stage.calls();
        assert_eq!(
            calls.last().unwrap(),
            pass,
            "nothing comes after it: {answer}"
        );
        stage.orch(&["resume", "last"]).fails(4);
        assert_eq!(stage.calls(), calls, "{answer}");
    }
}

/// Every field of the forms is asked for, and none may be there that the form does not have.
#[test]
fn a_form_that_lacks_a_field_is_no_answer() {
    let files = orch::spec::shipped::PARTS;
    let schema = |name: &str| {
        let path = format!("schemas/four-pass/{name}.json");
        let (_, text) = files.iter().find(|(p, _)| *p == path).unwrap();
        orch::run::schema::Schema::compile(&serde_json::from_str(text).unwrap()).unwrap()
    };
    let whole = [
        ("decision", "", serde_json::from_str(DECIDED).unwrap()),
        (
            "issues",
            "/issues/0",
            json!({"issues": [issue("I1", "BLOCKER")]}),
        ),
        ("patch", "", serde_json::from_str(PATCHED).unwrap()),
        (
            "patch",
            "/patch_plan/0",
            serde_json::from_str(PATCHED).unwrap(),
        ),
        ("patch", "/fixes/0", serde_json::from_str(PATCHED).unwrap()),
    ];
    // What may be left out: a patch may be made by hand, and be told by its reason alone.
    let free = ["files", "change"];
    for (name, place, whole) in whole {
        let schema = schema(name);
        schema.check(&whole).unwrap();
        let fields: Vec<String> = at(&whole, place)
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        for field in fields
            .iter()
            .filter(|field| !free.contains(&field.as_str()))
        {
            let mut less: Value = whole.clone();
            let object = less.pointer_mut(place).unwrap().as_object_mut().unwrap();
            object.remove(field);
            assert!(
                schema.check(&less).is_err(),
                "{name}{place} without {field}"
            );
        }
        let mut more: Value = whole.clone();
        more.pointer_mut(place).unwrap()["approved"] = json!(true);
        assert!(schema.check(&more).is_err(), "{name}{place} with more");
    }
}

#[test]
fn a_patch_that_does_not_hold_blocks_with_the_list() {
    let patch = |plan: &[&str], fixes: &[(&str, &str)]| {
        let plan: Vec<Value> = plan
            .iter()
            .map(|id| json!({"issue": id, "change": "c"}))
            .collect();
        let fix =
            |(id, status): &(&str, &str)| json!({"issue": id, "status": status, "why": "because"});
        let fixes: Vec<Value> = fixes.iter().map(fix).collect();
        json!({"patch_plan": plan, "fixes": fixes, "files": {"greet.sh": "x"}}).to_string()
    };
    let (fixed, not) = ("FIXED", "NOT_FIXED");
    let table = [
        (
            patch(&["I1", "I2"], &[("I1", fixed), ("I2", not)]),
            "not every issue that blocks is fixed",
        ),
        (
            patch(&["I1", "I2"], &[("I1", fixed)]),
            "not every issue that blocks is fixed",
        ),
        (
            patch(&["I1", "I2"], &[("I1", fixed), ("I2", fixed), ("I2", not)]),
            "not every issue",
        ),
        (
            patch(&["I1"], &[("I1", fixed), ("I2", fixed)]),
            "the plan says nothing",
        ),
        (
            patch(&["I1", "I2", "I7"], &[("I1", fixed), ("I2", fixed)]),
            "that was not found",
        ),
        (
            patch(
                &["I1", "I2"],
                &[("I1", fixed), ("I2", fixed), ("I7", fixed)],
            ),
            "that was not found",
        ),
        (
            patch(&["I1", "I2"], &[("I1", "DONE"), ("I2", fixed)]),
            "/fixes/0/status",
        ),
    ];
    for (answer, reason) in table {
        let stage = stage();
        stage.answers("verify", issues(&["BLOCKER", "BLOCKER", "MAJOR"]));
        stage.answers("patch", &answer);
        let ran = run(&stage).fails(4);
        says(&ran.stderr, reason);
        assert_eq!(stands(&stage).0, "PATCH");
        assert!(!stage.file("final").exists(), "{answer}");
        stage.orch(&["resume", "last"]).fails(4);
        assert_eq!(stage.calls().len(), 4, "{answer}");
    }
    let stage = stage();
    stage.answers("verify", issues(&["BLOCKER", "BLOCKER"]));
    stage.answers("patch", patch(&["I1"], &[("I1", fixed), ("I2", not)]));
    run(&stage).fails(4);
    says(&stands(&stage).2, r#""issue":"I2","status":"NOT_FIXED""#);
}

#[test]
fn a_patch_beyond_the_artifact_stops_the_run() {
    for path in ["../output/greet.sh", "/tmp/greet.sh", "../../state.json"] {
        let stage = stage();
        let answer = PATCHED.replace(r#"{"greet.sh""#, &format!(r#"{{"{path}""#));
        stage.answers("patch", answer);
        let ran = run(&stage).fails(2);
        assert_eq!(
            at(&stage.state(), "/error/kind"),
            "SafetyViolation",
            "{ran:?}"
        );
        let text = std::fs::read_to_string(stage.file("output/greet.sh")).unwrap();
        assert_eq!(text, "echo hello\n");
    }
}

#[test]
fn agents_change_nothing_but_their_own() {
    let places = [
        ("execute", "../snapshots/decision.json"),
        ("execute", "../state.json"),
        ("verify", "output/greet.sh"),
        ("verify", "../snapshots/decision.json"),
        ("patch", "output/greet.sh"),
        ("patch", "../snapshots/decision.json"),
        ("patch", "final/greet.sh"),
    ];
    for (pass, place) in places {
        let stage = stage();
        let honest = match pass {
            "execute" => EXECUTED.to_owned(),
            "verify" => format!("cat <<'END'\n{}\nEND\n", issues(&["BLOCKER"])),
            _ => format!("cat <<'END'\n{PATCHED}\nEND\n"),
        };
        let (root, outside) = (stage.bed.root.display(), stage.bed.outside.display());
        stage.answers(
            pass,
            format!(
                "#!/bin/sh\nhere=$PWD; cd {root}/workspace/*/files || exit 7\n\
                 {{ mkdir -p $(dirname {place}); echo forged > {place}; }} 2> {outside}/refused\n\
                 cd $here\n{honest}"
            ),
        );
        let ran = run(&stage).one_of(&[End::Code(0), End::Code(2)]);
        if ran.code() == 2 {
            continue; // Where the kernel holds nobody back, what was done is found and stops the run.
        }
        let refused = std::fs::read_to_string(stage.bed.outside.join("refused")).unwrap();
        assert!(!refused.is_empty(), "{pass} {place}: {ran:?}");
        let read = |file: &str| std::fs::read_to_string(stage.file(file)).unwrap();
        assert_eq!(read("output/greet.sh"), "echo hello\n", "{pass} {place}");
        assert_eq!(read("final/greet.sh"), "echo hello $1\n", "{pass} {place}");
        stage.orch(&["audit", "last"]).expect(0);
    }
}

#[test]
fn a_precondition_that_does_not_hold_stops_the_run() {
    let stage = stage();
    begin(&stage);
    work_off(&stage, &WAY[..3]);
    assert_eq!(stands(&stage).0, "VERIFY");
    std::fs::remove_dir_all(stage.file("output")).unwrap();
    let ran = stage.orch(&["resume", "last"]).fails(2);
    says(&ran.stderr, "there is no artifact to verify");
    assert_eq!(at(&stage.state(), "/error/kind"), "SafetyViolation");
    assert_eq!(stage.calls(), ["decide", "execute"]);
    stage.orch(&["resume", "last"]).fails(2);
    says(
        &stage.orch(&["audit", "last"]).expect(2).stdout,
        "there is no artifact to verify",
    );
}

#[test]
fn a_changed_lock_stops_the_run_before_every_later_pass() {
    for done in 1..=WAY.len() {
        let stage = stage();
        begin(&stage);
        work_off(&stage, &WAY[..done]);
        let calls = stage.calls();
        let path = format!("workspace/{}/snapshots/decision.json", stage.run_id());
        let forged = stage.bed.read(&path).replace("one file", "two files");
        stage.bed.write(&path, forged);
        let ran = stage.orch(&["resume", "last"]).fails(2);
        says(&ran.stderr, "snapshots/decision.json");
        assert_eq!(
            at(&stage.state(), "/error/kind"),
            "SafetyViolation",
            "after {done}"
        );
        assert_eq!(stage.calls(), calls, "no pass is run on it");
        says(
            &stage.orch(&["audit", "last"]).expect(2).stdout,
            "snapshots/decision.json",
        );
    }
}

#[test]
fn a_forged_or_early_pass_stops_the_run() {
    // How far the run is, and the pass that somebody would have now.
    let table = [
        (0, "executor", "execute"),
        (0, "verifier", "verify"),
        (0, "patcher", "patch"),
        (1, "verifier", "verify"),
        (3, "patcher", "patch"),
        (3, "decider", "decide"),
    ];
    for (done, inbox, step) in table {
        let stage = stage();
        begin(&stage);
        work_off(&stage, &WAY[..done]);
        let (id, calls) = (stage.run_id(), stage.calls());
        let task = format!("---\nrun: {id}\nstep: {step}\nattempt: 1\n---\ngo on\n");
        stage
            .bed
            .write(&format!("inbox/{inbox}/{id}.0099-{step}.task"), task);
        work_off(&stage, &[inbox]);
        let state = stage.state();
        assert_eq!(at(&state, "/status"), "failed", "{step} after {done}");
        says(
            &state["error"].to_string(),
            "forged, early or in the wrong inbox",
        );
        assert_eq!(stage.calls(), calls, "{step} after {done}: nothing is run");
        stage.orch(&["resume", "last"]).fails(2);
    }
}

#[test]
fn a_finished_pass_put_back_is_not_run_again() {
    let stage = stage();
    begin(&stage);
    work_off(&stage, &WAY[..2]);
    let name = format!("{}.0001-decide", stage.run_id());
    stage
        .orch(&["retry", &format!("decider/{name}")])
        .says("no watcher is running")
        .expect(0);
    work_off(&stage, &["decider"]);
    assert_eq!(stage.calls(), ["decide", "execute"]);
    let locked = at(&stage.state(), "/snapshots/decision");
    stage.orch(&["resume", "last"]).expect(0);
    assert_eq!(at(&stage.state(), "/snapshots/decision"), locked);
    assert_eq!(stage.calls(), ["decide", "execute", "verify", "patch"]);
}

#[test]
fn the_way_back_is_a_reset_or_a_new_run() {
    let stage = stage();
    stage.answers("decide.1", OPEN);
    run(&stage).fails(4);
    stage.orch(&["reset", "last"]).expect(0);
    assert_eq!(
        stands(&stage),
        ("DECIDE".into(), "in-progress".into(), String::new())
    );
    stage.orch(&["resume", "last"]).expect(0);
    assert_eq!(
        stage.calls(),
        ["decide", "decide", "execute", "verify", "patch"]
    );
    let first = at(&stage.state(), "/snapshots/decision");
    // Also what is done is done again as a whole, with a lock of its own.
    let other = DECIDED.replace("one file", "another file");
    stage.answers("decide", other);
    stage.orch(&["reset", "last"]).expect(0);
    assert_eq!(at(&stage.state(), "/snapshots"), json!({}));
    assert!(!stage.file("output").exists() && !stage.file("final").exists());
    stage.orch(&["resume", "last"]).expect(0);
    assert_eq!(stage.calls().len(), 9);
    assert_ne!(
        at(&stage.state(), "/snapshots/decision")["sha256"],
        first["sha256"]
    );
    stage.orch(&["audit", "last"]).expect(0);
    run(&stage).expect(0);
    assert_eq!(stage.calls().len(), 13, "a new run has passes of its own");
}

#[test]
fn a_run_that_is_done_is_final() {
    let stage = stage();
    run(&stage).expect(0);
    let before = stage.state();
    for (words, code) in [
        (&["resume", "last"][..], 64),
        (&["approve", "last", "decision"], 64),
        (&["reply", "last", "one more thing"], 64),
        (&["set", "last", "state.x=1", "--note", "n"], 64),
        (&["cancel", "last"], 64),
    ] {
        stage.orch(words).about(format!("{words:?}")).fails(code);
        assert_eq!(stage.state(), before, "{words:?}");
    }
}

#[test]
fn people_who_err_are_told_and_change_nothing() {
    let stage = stage();
    stage.answers("decide", OPEN);
    run(&stage).fails(4);
    let before = stage.state();
    for words in [
        &["approve", "last", "decision"][..],
        &["reject", "last", "decide", "--note", "no"],
        &["reply", "last", "in Rust"],
        &[
            "set",
            "last",
            "metadata.status=\"completed\"",
            "--note",
            "n",
        ],
        &["set", "last", "snapshots.decision={}", "--note", "n"],
    ] {
        stage.orch(words).about(format!("{words:?}")).fails(64);
        assert_eq!(stage.state(), before, "{words:?}");
    }
    // A note in the document is a person's to make; it moves nothing.
    stage
        .orch(&[
            "set",
            "last",
            "state.answer=\"in Rust\"",
            "--note",
            "asked Ana",
        ])
        .expect(0);
    assert_eq!(stands(&stage).1, "blocked");
    assert_eq!(stage.calls(), ["decide"]);
}

#[test]
fn a_pass_that_is_being_run_is_not_reset() {
    let stage = stage();
    let mut gate = Gate::new(&stage.bed, "gate");
    let wait = gate.wait_here(&stage.bed);
    stage.answers("execute", format!("#!/bin/sh\n{wait}\n{EXECUTED}"));
    let words = ["run", "four-pass", "greet people"];
    let running = stage.bed.orch(words).start();
    wait_for("the second pass", || {
        stage.bed.outside.join("started").exists()
    });
    let locked = at(&stage.state(), "/snapshots/decision");
    for words in [
        &["reset", "last"][..],
        &["set", "last", "state.x=1", "--note", "n"],
    ] {
        stage
            .orch(words)
            .about(format!("{words:?}"))
            .says("error: ")
            .one_of(&[End::Code(64), End::Code(75)]);
    }
    gate.let_through(1);
    running.wait().expect(0);
    assert_eq!(stage.calls().len(), 4);
    assert_eq!(at(&stage.state(), "/snapshots/decision"), locked);
}

#[test]
fn show_and_audit_answer_the_four_questions() {
    let stage = stage();
    run(&stage).expect(0);
    let locked = at(&stage.state(), "/snapshots/decision");
    for words in [["show", "last"], ["audit", "last"]] {
        let said = stage.orch(&words).expect(0).stdout;
        // What was decided, and when it was locked.
        says(&said, "prints a greeting");
        says(
            &said,
            &format!("locked {}", locked["locked_at"].as_str().unwrap()),
        );
        // Which issues were found, and which fixes were made, and why.
        says(
            &said,
            "id: I1, severity: BLOCKER, title: the greeting has no name",
        );
        says(
            &said,
            "issue: I1, status: FIXED, change: it takes a name, why: the decision asks for it",
        );
    }
    let audit: Value =
        serde_json::from_str(&stage.orch(&["audit", "last", "--json"]).expect(0).stdout).unwrap();
    assert_eq!(audit["issues"][0]["issue"]["id"], "I1");
    assert_eq!(audit["fixes"][0]["fix"]["status"], "FIXED");
    // The steps stand in the order of the workflow.
    let shown = stage.orch(&["show", "last"]).expect(0).stdout;
    let table = shown.split("\ntransitions\n").next().unwrap();
    let place = |step: &str| table.find(&format!("\n  {step} ")).unwrap();
    let way = "decide execute keep_artifact verify copy patch keep_patched done";
    let places: Vec<usize> = way.split(' ').map(place).collect();
    assert!(places.is_sorted(), "{table}");
}
