//! People in workflows: they approve, reject, reply and come back, by command and by `mv`.

mod crashes;
mod starts;

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Bed, Ran, wait_for};

/// A root with the workflow `w`, which has these keys and steps.
fn bed(rest: &str) -> Bed {
    let bed = Bed::new();
    bed.write("specs/w.yaml", format!("version: \"1\"\nname: w\n{rest}"));
    bed
}

/// A command step that adds its name to `outside/count` and prints something.
fn says(name: &str, text: &str, more: &str) -> String {
    format!(
        "  - name: {name}\n    command: [sh, -c, 'echo {name} >> ../outside/count; echo \"$1\"', x, \"{text}\"]\n{more}"
    )
}

fn orch(bed: &Bed, words: &[&str]) -> Ran {
    bed.orch(words).env("USER", "ana").run()
}

fn run(bed: &Bed) -> Ran {
    orch(bed, &["run", "w", "please"])
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

fn counts(bed: &Bed) -> Vec<String> {
    let text = fs::read_to_string(bed.outside.join("count")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The names of the questions that lie in the inbox.
fn questions(bed: &Bed) -> Vec<String> {
    let names = bed.ls("inbox/human").into_iter();
    names
        .filter_map(|name| Some(name.strip_suffix(".task")?.to_owned()))
        .collect()
}

/// The only question. A watcher writes it down after it has said that the run waits.
fn question(bed: &Bed) -> String {
    wait_for("one question", || questions(bed).len() == 1);
    questions(bed).remove(0)
}

/// Answers the only question by renaming its file, with this below its last line.
fn mv(bed: &Bed, ending: &str, note: &str) -> String {
    let name = question(bed);
    let file = bed.root.join(format!("inbox/human/{name}.task"));
    let text = fs::read_to_string(&file).unwrap() + note;
    fs::write(&file, text).unwrap();
    let to = bed.root.join(format!("inbox/human/{name}.{ending}"));
    fs::rename(file, to).unwrap();
    name
}

fn audit(bed: &Bed) {
    orch(bed, &["audit", "last"]).expect(0);
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

const PLAN: &str = "    approval: plan\n    evidence: [\"docs/*.md\"]\n    next: [{if: 'approvals.plan == true', goto: go}]\n";

fn planned() -> Bed {
    let bed = bed(&format!(
        "steps:\n{}{}",
        says("write", "a plan for ${request}", PLAN),
        says("go", "with ${steps.write.note:-no note}", "")
    ));
    bed.write("docs/PLAN.md", "first this\n--- answer\nthen that\n");
    bed
}

#[test]
fn a_run_that_comes_to_a_gate_is_blocked_and_says_what_is_asked_and_what_to_type() {
    let bed = planned();
    let ran = run(&bed).fails(4);
    let id = only_run(&bed);
    has(
        &ran.stderr,
        &[
            "`plan` waits for approval",
            "Is `plan` approved?",
            "a plan for please",
            "=== File: docs/PLAN.md",
            "first this",
            &format!("orch approve {id} plan"),
            &format!("orch reject {id} plan --note"),
            &format!(
                "mv inbox/human/{0}.task inbox/human/{0}.approved",
                question(&bed)
            ),
        ],
    );
    let state = state(&bed);
    assert_eq!(state["status"], "blocked");
    assert_eq!(
        state["metadata"],
        json!({"currentPhase": "write", "status": "blocked"})
    );
    assert_eq!(state["governance"]["approvals"], json!({"plan": false}));
    assert_eq!(state["blocks"][0]["stage"], "approval");
    let asked = bed.read(&format!("inbox/human/{}.task", question(&bed)));
    has(&asked, &["  --- answer\nthen that", "\n\n--- answer\n"]);
    // A resume does not ask again, and says what is missing; nothing runs meanwhile.
    let task = question(&bed);
    let ran = orch(&bed, &["resume", "last"]).fails(4);
    has(&ran.stderr, &["`plan` waits for approval", "orch approve"]);
    assert_eq!(question(&bed), task);
    bed.drain().expect(4);
    assert_eq!(counts(&bed), ["write"]);
}

#[test]
fn approve_moves_the_run_on_and_everything_tells_who_when_and_why() {
    let bed = planned();
    run(&bed).fails(4);
    let (id, task) = (only_run(&bed), question(&bed));
    let ran = orch(&bed, &["approve", "last", "plan", "--note", "good"])
        .says("no watcher is running")
        .expect(0);
    has(&ran.stdout, &["`plan` is approved"]);
    has(
        &ran.stderr,
        &["no watcher is running", &format!("orch resume {id}")],
    );
    assert_eq!(questions(&bed), [""; 0]);
    assert!(bed.has(&format!("processed/human/{task}.task")));
    let record = bed.record(&format!("human/{task}"));
    assert_eq!(record["status"], "succeeded");
    assert_eq!(record["answer"], "approved");
    assert_eq!(record["output"], "good");
    orch(&bed, &["resume", "last"]).expect(0);
    assert_eq!(counts(&bed), ["write", "go"]);
    assert_eq!(result(&bed, "go")["output"], "with good\n");
    let decision = state(&bed)["governance"]["decisions"]["plan"].clone();
    assert_eq!(decision["approved"], true);
    assert_eq!(decision["by"], "ana");
    assert_eq!(decision["note"], "good");
    assert!(decision["at"].as_str().unwrap().starts_with("20"));
    assert_eq!(
        state(&bed)["governance"]["approvals"],
        json!({"plan": true})
    );
    for words in [["log", "last"], ["status", "last"], ["show", "last"]] {
        let text = orch(&bed, &words).expect(0).stdout;
        has(
            &text,
            &["write APPROVED -> go | `plan` approved by ana: good"],
        );
    }
    has(
        &orch(&bed, &["show", "last"]).expect(0).stdout,
        &["plan: approved by ana", "good"],
    );
    audit(&bed);
}

#[test]
fn a_gate_is_called_by_its_step_too() {
    let bed = planned();
    run(&bed).fails(4);
    orch(&bed, &["approve", "last", "write"])
        .says("no watcher is running")
        .expect(0);
    orch(&bed, &["resume", "last"]).expect(0);
}

#[test]
fn a_rejection_stays_blocked_with_the_note_and_a_resume_runs_the_step_again_with_it() {
    let bed = bed(&format!(
        "steps:\n{}",
        says(
            "write",
            "again: ${steps.write.note:-first}",
            "    approval: plan\n"
        )
    ));
    run(&bed).fails(4);
    let ran = orch(&bed, &["reject", "last", "plan", "--note", "too vague"])
        .says("error: ")
        .expect(0);
    has(&ran.stderr, &["rejected by ana: too vague", "orch resume"]);
    assert_eq!(state(&bed)["status"], "blocked");
    assert_eq!(
        state(&bed)["governance"]["decisions"]["plan"]["approved"],
        false
    );
    bed.drain().expect(0);
    assert_eq!(counts(&bed), ["write"], "nothing runs while it is blocked");
    orch(&bed, &["resume", "last"]).fails(4);
    assert_eq!(counts(&bed), ["write", "write"]);
    assert_eq!(result(&bed, "write")["output"], "again: too vague\n");
    orch(&bed, &["approve", "last", "plan"]).expect(0);
    assert_eq!(state(&bed)["status"], "succeeded");
    assert_eq!(state(&bed)["visits"]["write"], 1, "a resume is no visit");
    audit(&bed);
}

#[test]
fn a_rejected_step_that_runs_once_is_only_asked_about_again() {
    let bed = bed(&format!(
        "steps:\n{}",
        says("write", "x", "    approval: plan\n    once: true\n")
    ));
    run(&bed).fails(4);
    orch(&bed, &["reject", "last", "plan", "--note", "no"])
        .says("error: ")
        .expect(0);
    orch(&bed, &["resume", "last"]).fails(4);
    assert_eq!(counts(&bed), ["write"]);
    orch(&bed, &["approve", "last", "plan"]).expect(0);
    assert_eq!(state(&bed)["status"], "succeeded");
}

#[test]
fn on_reject_leads_elsewhere_and_each_new_visit_asks_again() {
    let bed = bed(&format!(
        "steps:\n{}  - {{name: agree, approval: plan, on_reject: write}}\n",
        says(
            "write",
            "for ${steps.agree.note:-nobody}",
            "    max_visits: 3\n    on_limit: _fail\n"
        )
    ));
    run(&bed).fails(4);
    let first = question(&bed);
    orch(&bed, &["reject", "last", "plan", "--note", "shorter"])
        .says("no watcher is running")
        .expect(0);
    orch(&bed, &["resume", "last"]).fails(4);
    assert_eq!(result(&bed, "write")["output"], "for shorter\n");
    assert_ne!(question(&bed), first);
    assert_eq!(state(&bed)["governance"]["approvals"]["plan"], false);
    orch(&bed, &["approve", "last", "agree"]).expect(0);
    assert_eq!(state(&bed)["status"], "succeeded");
    audit(&bed);
}

#[test]
fn what_is_not_asked_is_refused_and_says_what_is() {
    let bed = planned();
    let usage = |words: &[&str], parts: &[&str]| {
        let ran = orch(&bed, words).fails(64);
        has(&ran.stderr, parts);
    };
    usage(&["approve", "last", "plan"], &["error:"]);
    run(&bed).fails(4);
    usage(&["approve", "no-such-run", "plan"], &["no-such-run"]);
    usage(
        &["approve", "last", "plam"],
        &["no gate `plam`", "asked now: plan"],
    );
    usage(
        &["approve", "last", "go"],
        &["no gate `go`", "asked now: plan"],
    );
    usage(
        &["reply", "last", "yes"],
        &["asks for no reply", "orch approve"],
    );
    usage(&["reject", "last", "plan"], &["--note"]);
    usage(&["reject", "last", "plan", "--note", " "], &["why"]);
    orch(&bed, &["approve", "last", "plan"])
        .says("no watcher is running")
        .expect(0);
    usage(
        &["approve", "last", "plan"],
        &["`plan` is not being asked: approved by ana"],
    );
    orch(&bed, &["resume", "last"]).expect(0);
    usage(&["approve", "last", "plan"], &["has ended (succeeded)"]);
    usage(
        &["reject", "last", "plan", "--note", "x"],
        &["has ended (succeeded)"],
    );
    usage(&["reply", "last", "more"], &["that is final", "follow_up"]);
    assert_eq!(counts(&bed), ["write", "go"]);
    audit(&bed);
}

#[test]
fn an_agent_cannot_answer_for_a_person() {
    let orch = crate::harness::orch().display();
    let bed = bed(&format!(
        "strict_flow: false\nsteps:\n  - name: sly\n    command: [sh, -c, 'for c in \"approve last plan\" \"reject last plan --note x\" \"reply last x\" \"resume last\" \"reset last\"; do {orch} $c; echo $?; done']\n    inherit_env: [PATH]\n    env: {{ORCH_ROOT: \"{}\"}}\n    approval: plan\n",
        "."
    ));
    let ran = run(&bed).fails(4);
    has(&ran.stderr, &["`plan` waits for approval"]);
    let output = result(&bed, "sly")["output"].as_str().unwrap().to_owned();
    assert_eq!(output, "1\n1\n1\n1\n1\n", "{ran:?}");
    let err = bed.read(&format!(
        "artifacts/{}.err",
        result(&bed, "sly")["task"].as_str().unwrap()
    ));
    assert_eq!(
        err.matches("was called from inside a task").count(),
        5,
        "{err}"
    );
}

#[test]
fn approvals_from_another_terminal_while_watch_runs() {
    let bed = planned();
    let watch = bed.watch(&[]);
    let ran = run(&bed).fails(4);
    has(&ran.stderr, &["Is `plan` approved?"]);
    let ran = orch(&bed, &["approve", "last", "plan", "--note", "from here"]).expect(0);
    assert!(!ran.stderr.contains("no watcher"), "{ran:?}");
    wait_for("the run to end", || state(&bed)["status"] == "succeeded");
    assert_eq!(result(&bed, "go")["output"], "with from here\n");
    drop(watch);
    audit(&bed);
}

#[test]
fn a_question_is_answered_by_mv_while_watch_runs() {
    let bed = planned();
    let _watch = bed.watch(&[]);
    run(&bed).fails(4);
    let task = mv(&bed, "approved", "looks good\nto me\n");
    wait_for("the run to end", || state(&bed)["status"] == "succeeded");
    assert_eq!(result(&bed, "go")["output"], "with looks good\nto me\n");
    assert_eq!(state(&bed)["governance"]["decisions"]["plan"]["by"], "file");
    wait_for("the task to be put away", || {
        bed.has(&format!("processed/human/{task}.task"))
    });
    assert_eq!(bed.record(&format!("human/{task}"))["answer"], "approved");
    assert_eq!(bed.ls("inbox/human"), [""; 0]);
}

#[test]
fn a_rejection_by_mv_carries_its_note() {
    let bed = planned();
    run(&bed).fails(4);
    mv(&bed, "rejected", "not yet\n");
    bed.drain().expect(0);
    assert_eq!(
        state(&bed)["governance"]["blockedReason"],
        "`plan` rejected by file: not yet"
    );
    assert_eq!(result(&bed, "write")["note"], "not yet");
    audit(&bed);
}

#[test]
fn the_wrong_ending_is_refused_and_the_question_stays_with_what_was_written() {
    let bed = planned();
    run(&bed).fails(4);
    let task = mv(&bed, "reply", "yes\n");
    let ran = bed.drain().speaks().expect(4);
    has(&ran.stderr, &["asks for an approval"]);
    assert_eq!(question(&bed), task);
    has(
        &bed.read(&format!("inbox/human/{task}.task")),
        &["--- answer\nyes\n"],
    );
    assert_eq!(state(&bed)["status"], "blocked");
}

const ASK: &str = "  - name: ask\n    agent: human\n    prompt: \"what about ${request}?\"\n";

#[test]
fn a_reply_is_the_output_of_the_step_that_asked() {
    let bed = bed(&format!(
        "steps:\n{ASK}{}",
        says("go", "so ${steps.ask.output}", "")
    ));
    let ran = run(&bed).fails(4);
    let id = only_run(&bed);
    has(
        &ran.stderr,
        &[
            "what about please?",
            &format!("orch reply {id}/ask \"...\""),
        ],
    );
    assert_eq!(state(&bed)["blocks"][0]["stage"], "run");
    orch(&bed, &["reply", "last", "  "]).fails(64);
    orch(&bed, &["reply", "last"]).fails(64);
    orch(&bed, &["approve", "last", "ask"]).fails(64);
    bed.orch(["reply", "last", "-"])
        .env("USER", "ana")
        .run_with_input("two\nlines\n")
        .says("no watcher is running")
        .expect(0);
    orch(&bed, &["resume", "last"]).expect(0);
    assert_eq!(result(&bed, "ask")["output"], "two\nlines");
    assert_eq!(result(&bed, "go")["output"], "so two\nlines\n");
    has(
        &orch(&bed, &["log", "last"]).expect(0).stdout,
        &["ask OK -> go | answered by ana"],
    );
    audit(&bed);
}

#[test]
fn a_reply_must_start_with_one_of_the_choices_and_is_asked_again_until_it_does() {
    let bed = bed(&format!("steps:\n{ASK}    choices: [retry, stop]\n"));
    let ran = run(&bed).fails(4);
    has(&ran.stderr, &["must start with `retry` or `stop`"]);
    let ran = orch(&bed, &["reply", "last", "perhaps"]).fails(64);
    has(
        &ran.stderr,
        &["`perhaps`", "`retry` or `stop`", "still open"],
    );
    let task = mv(&bed, "reply", "maybe\n");
    let ran = bed.drain().speaks().expect(4);
    has(&ran.stderr, &["`maybe`", "`retry` or `stop`"]);
    let text = bed.read(&format!("inbox/human/{task}.task"));
    has(&text, &["--- answer\nmaybe\n"]);
    bed.write(
        &format!("inbox/human/{task}.task"),
        text.replace("maybe", "stop it"),
    );
    mv(&bed, "reply", "");
    bed.drain().expect(0);
    assert_eq!(state(&bed)["status"], "succeeded");
    assert_eq!(result(&bed, "ask")["output"], "stop it");
    assert_eq!(state(&bed)["visits"]["ask"], 1);
    audit(&bed);
}

#[test]
fn a_reply_can_be_json_with_a_schema_or_lines() {
    let bed = bed(&format!(
        "steps:\n{ASK}    output_capture: json\n    output_schema: specs/s.json\n  - {{name: more, agent: human, prompt: x, output_capture: lines}}\n"
    ));
    bed.write("specs/s.json", r#"{"type": "object", "required": ["n"]}"#);
    run(&bed).fails(4);
    let ran = orch(&bed, &["reply", "last", "{\"m\": 1}"]).fails(64);
    has(&ran.stderr, &["cannot be used", "still open"]);
    orch(&bed, &["reply", "last", "{\"n\": 1}"])
        .says("error: ")
        .expect(0);
    assert_eq!(result(&bed, "ask")["json_data"], json!({"n": 1}));
    orch(&bed, &["reply", "last", "a\nb"]).expect(0);
    assert_eq!(result(&bed, "more")["lines"], json!(["a", "b"]));
    assert_eq!(state(&bed)["status"], "succeeded");
    audit(&bed);
}

#[test]
fn a_provider_that_is_human_asks_a_person() {
    let bed = bed(
        "steps:\n  - {name: a, agent: boss, prompt: first}\n  - {name: b, provider: human, prompt: second}\n",
    );
    bed.agent("boss", "provider: human", "You are the boss.");
    let ran = run(&bed).fails(4);
    has(&ran.stderr, &["You are the boss.", "first"]);
    orch(&bed, &["reply", "last", "one"])
        .says("error: ")
        .expect(0);
    assert!(question(&bed).ends_with("-b"));
    orch(&bed, &["reply", "last", "two"]).expect(0);
    assert_eq!(state(&bed)["status"], "succeeded");
    assert_eq!(result(&bed, "a")["output"], "one");
    audit(&bed);
}

#[test]
fn several_questions_are_told_apart_by_step_and_item() {
    let bed = bed(
        "steps:\n  - name: l\n    for_each:\n      items: [x, y]\n      max_parallel: 2\n      steps:\n        - {name: ask, agent: human, prompt: \"about ${item}\"}\n",
    );
    run(&bed).fails(4);
    assert_eq!(questions(&bed).len(), 2);
    let ran = orch(&bed, &["reply", "last", "z"]).fails(64);
    has(&ran.stderr, &["2 open questions", "/ask[0]", "/ask[1]"]);
    orch(&bed, &["reply", "last/ask[1]", "why"])
        .says("error: ")
        .expect(0);
    orch(&bed, &["reply", "last/ask[1]", "why"]).fails(64);
    assert_eq!(state(&bed)["status"], "blocked");
    orch(&bed, &["reply", "last/ask", "ex"]).expect(0);
    let results = result(&bed, "l");
    assert_eq!(results[0]["ask"]["output"], "ex");
    assert_eq!(results[1]["ask"]["output"], "why");
    assert_eq!(state(&bed)["status"], "succeeded");
    audit(&bed);
}

#[test]
fn a_question_that_cannot_be_asked_fails_its_step() {
    let bed = bed(
        "steps:\n  - {name: ask, agent: human, prompt: \"${context.none.x}\", on: {failure: {goto: _block}}}\ncontext: {none: {}}\n",
    );
    run(&bed).fails(4);
    assert_eq!(result(&bed, "ask")["exit_code"], 2);
    assert_eq!(questions(&bed), [""; 0]);
    audit(&bed);
}

#[test]
fn a_question_that_was_taken_away_is_put_back_by_resume_and_can_be_answered_without_it() {
    let bed = planned();
    run(&bed).fails(4);
    let file = format!("inbox/human/{}.task", question(&bed));
    fs::remove_file(bed.root.join(&file)).unwrap();
    orch(&bed, &["resume", "last"]).fails(4);
    assert!(bed.has(&file));
    fs::remove_file(bed.root.join(&file)).unwrap();
    orch(&bed, &["approve", "last", "plan"])
        .says("no watcher is running")
        .expect(0);
    orch(&bed, &["resume", "last"]).expect(0);
    assert_eq!(bed.ls("inbox/human"), [""; 0]);
}

#[test]
fn cancel_takes_the_question_away_and_a_late_answer_is_told_so() {
    let bed = planned();
    run(&bed).fails(4);
    let task = question(&bed);
    let text = bed.read(&format!("inbox/human/{task}.task"));
    orch(&bed, &["cancel", "last"]).expect(0);
    assert_eq!(questions(&bed), [""; 0]);
    bed.write(&format!("inbox/human/{task}.approved"), text);
    bed.drain().expect(1);
    has(
        bed.record(&format!("human/{task}"))["error"]["message"]
            .as_str()
            .unwrap(),
        &["does not wait for this answer"],
    );
    assert_eq!(state(&bed)["status"], "cancelled");
    assert_eq!(counts(&bed), ["write"]);
}

#[test]
fn a_forged_answer_is_rejected() {
    let bed = planned();
    run(&bed).fails(4);
    let id = only_run(&bed);
    bed.write(
        &format!("inbox/human/{id}.0099-write.approved"),
        format!("---\nrun: {id}\nstep: write\n---\nyes\n"),
    );
    bed.drain().expect(1);
    assert_eq!(bed.status(&format!("human/{id}.0099-write")), "rejected");
    assert_eq!(state(&bed)["status"], "blocked");
}
