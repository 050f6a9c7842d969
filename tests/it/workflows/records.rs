//! The log and the state of a run: torn, changed, missing; recorded answers; the shipped workflow.

use super::*;
use crate::harness::End;

const GATED: &str = "steps:\n  - {name: one, command: [sh, -c, 'echo one >> ../outside/count']}\n  - name: two\n    requires: [{check: 'exists(\"ready\")', reason: wait}]\n    command: [sh, -c, 'echo two >> ../outside/count']\n";

/// A run that is blocked before its second step; the cause is gone.
fn blocked() -> Bed {
    let bed = bed(GATED);
    run(&bed, &[]).fails(4);
    bed.write("ready", "");
    bed
}

fn log(bed: &Bed) -> String {
    format!("logs/{}.jsonl", only_run(bed))
}

fn state_file(bed: &Bed) -> String {
    format!("workspace/{}/state.json", only_run(bed))
}

#[test]
fn a_torn_last_line_of_the_log_is_cut_and_the_run_goes_on() {
    let bed = blocked();
    let whole = bed.read(&log(&bed));
    let last = whole.lines().last().unwrap();
    let torn = format!("{whole}{}", &last[..last.len() / 2]);
    bed.write(&log(&bed), torn);
    bed.orch(["resume", "last"]).run().expect(0);
    assert_eq!(counts(&bed), ["one", "two"]);
    let after = bed.read(&log(&bed));
    assert!(after.starts_with(&whole));
    for line in after.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_changed_byte_in_the_log_stops_with_exit_3_and_its_place() {
    let bed = blocked();
    let whole = bed.read(&log(&bed));
    let second = whole.find('\n').unwrap() + 1;
    let at = second + whole[second..].find("one").unwrap();
    let mut bytes = whole.into_bytes();
    bytes[at] = b'O';
    bed.write(&log(&bed), &bytes);
    fs::remove_file(bed.root.join(state_file(&bed))).unwrap();
    let ran = bed.orch(["resume", "last"]).run().fails(3);
    says(&ran.stderr, "line 2");
    let ran = bed.orch(["audit", "last"]).run().expect(3);
    says(&format!("{}{}", ran.stdout, ran.stderr), "line 2");
    assert_eq!(counts(&bed), ["one"], "nothing runs on a changed log");
}

#[test]
fn a_changed_byte_in_the_log_is_found_beside_an_intact_state_too() {
    let bed = blocked();
    let whole = bed.read(&log(&bed));
    let second = whole.find('\n').unwrap() + 1;
    let at = second + whole[second..].find("one").unwrap();
    let mut bytes = whole.into_bytes();
    bytes[at] = b'O';
    bed.write(&log(&bed), &bytes);
    let ran = bed.orch(["audit", "last"]).run().expect(3);
    says(&format!("{}{}", ran.stdout, ran.stderr), "line 2");
    let ran = bed.orch(["resume", "last"]).run().fails(3);
    says(&ran.stderr, "line 2");
    assert_eq!(counts(&bed), ["one"]);
}

#[test]
fn a_changed_state_is_made_anew_by_repair_and_stops_the_run_without() {
    let bed = blocked();
    let text = bed.read(&state_file(&bed));
    let changed = text.replacen("\"exit_code\": 0", "\"exit_code\": 7", 1);
    let changed = changed.replacen("\"exit_code\":0", "\"exit_code\":7", 1);
    assert_ne!(text, changed);
    bed.write(&state_file(&bed), changed);
    let ran = bed.orch(["audit", "last"]).run().expect(3);
    says(&format!("{}{}", ran.stdout, ran.stderr), "exit_code");
    bed.orch(["resume", "last", "--repair"])
        .run()
        .speaks()
        .expect(0);
    assert_eq!(result(&bed, "one")["exit_code"], 0);
    assert_eq!(counts(&bed), ["one", "two"]);
    bed.orch(["audit", "last"]).run().expect(0);

    let bed = blocked();
    let text = bed.read(&state_file(&bed));
    bed.write(
        &state_file(&bed),
        text.replace("\"exit_code\": 0", "\"exit_code\": 7"),
    );
    for _ in 0..2 {
        let ran = bed.orch(["resume", "last"]).run().fails(2);
        says(&ran.stderr, "state.json");
        assert_eq!(state(&bed)["status"], "failed");
    }
    assert_eq!(counts(&bed), ["one"]);
    bed.orch(["reset", "last"]).run().expect(0);
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_missing_state_is_made_anew_from_the_log() {
    let bed = blocked();
    let before = state(&bed);
    fs::remove_file(bed.root.join(state_file(&bed))).unwrap();
    bed.orch(["resume", "last"]).run().expect(0);
    let after = state(&bed);
    assert_eq!(after["step_results"]["one"], before["step_results"]["one"]);
    assert_eq!(counts(&bed), ["one", "two"]);
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_changed_copy_of_the_workflow_stops_the_run() {
    let bed = blocked();
    let copy = format!("workspace/{}/spec/specs/w.yaml", only_run(&bed));
    let text = bed.read(&copy).replace("echo two", "echo evil");
    let path = bed.root.join(&copy);
    fs::remove_file(&path).unwrap();
    fs::write(&path, text).unwrap();
    let ran = bed.orch(["resume", "last"]).run().says("w.yaml");
    ran.one_of(&[End::Code(2), End::Code(3)]);
    assert_eq!(counts(&bed), ["one"]);
}

#[test]
fn what_a_run_recorded_is_played_back_without_its_agents() {
    let bed = bed(
        "steps:\n  - {name: one, agent: bob, prompt: \"first ${request}\"}\n  - {name: two, agent: bob, prompt: \"then ${steps.one.output}\"}\n",
    );
    bed.script("bob", "echo x >> ../outside/count; echo \"got: $(cat)\"");
    run(&bed, &["--record", "please"]).expect(0);
    let said = result(&bed, "two")["output"].clone();
    assert_eq!(bed.ls("artifacts/_recordings").len(), 2);
    assert_eq!(counts(&bed).len(), 2);
    fs::remove_dir_all(bed.root.join("workspace")).unwrap();
    bed.agent("bob", "provider: replay", "");
    run(&bed, &["please"]).expect(0);
    assert_eq!(result(&bed, "two")["output"], said);
    assert_eq!(counts(&bed).len(), 2, "no agent ran");
    fs::remove_dir_all(bed.root.join("workspace")).unwrap();
    run(&bed, &["another"]).fails(1);
    failed_with(&result(&bed, "one"), 2, "NoRecording");
}

#[test]
fn the_shipped_handoff_goes_from_the_architect_to_the_engineer() {
    let bed = Bed::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/handoff.yaml");
    bed.write("specs/handoff.yaml", fs::read_to_string(shipped).unwrap());
    bed.script(
        "architect",
        "mkdir -p artifacts/architect; cat > artifacts/architect/system_design.md; echo designed",
    );
    bed.script("engineer", "cat > ../outside/asked.$$; echo built");
    let ran = bed
        .orch(["run", "handoff", "a small clock"])
        .run()
        .expect(0);
    for line in [
        "[design] design OK -> hand_over",
        "[hand_over] hand_over OK -> build",
        "[build] build OK -> _end",
    ] {
        says(&ran.stdout, line);
    }
    says(
        &bed.read("artifacts/architect/system_design.md"),
        "a small clock",
    );
    assert_eq!(result(&bed, "build")["output"], "built\n");
    let handed = format!("task_{}", only_run(&bed));
    assert_eq!(
        bed.ls("inbox/engineer"),
        [format!("{handed}.task")],
        "`run` works on its run alone"
    );
    bed.drain().expect(0);
    assert_eq!(bed.status(&format!("engineer/{handed}")), "succeeded");
    let asked: Vec<String> = crate::harness::names(&bed.outside)
        .into_iter()
        .filter(|name| name.starts_with("asked."))
        .map(|name| fs::read_to_string(bed.outside.join(name)).unwrap())
        .collect();
    assert_eq!(asked.len(), 2);
    for text in asked {
        says(&text, "artifacts/architect/system_design.md");
    }
}

#[test]
fn a_run_that_is_killed_goes_on_and_no_finished_step_runs_again() {
    let bed = bed(
        "steps:\n  - {name: one, command: [sh, -c, 'echo one >> ../outside/count']}\n  - {name: slow, agent: bob, prompt: hi}\n  - {name: three, command: [sh, -c, 'echo three >> ../outside/count']}\n",
    );
    let mut gate = Gate::new(&bed, "gate");
    bed.script("bob", &format!("{}; echo done", gate.wait_here(&bed)));
    let going = bed.orch(["run", "w"]).start();
    wait_for_started(&bed, 1);
    going.signal("KILL");
    going.wait().killed();
    gate.let_through(2);
    bed.orch(["resume", "last"]).run().expect(0);
    assert_eq!(counts(&bed), ["one", "three"]);
    assert_eq!(result(&bed, "slow")["output"], "done\n");
    assert_eq!(result(&bed, "slow")["visit"], 1, "a crash is no visit");
    bed.orch(["audit", "last"]).run().expect(0);
    bed.assert_nothing_runs();
}

#[test]
fn a_run_that_is_asked_to_stop_says_how_to_go_on() {
    let bed = bed("steps:\n  - {name: slow, agent: bob, prompt: hi}\n");
    let mut gate = Gate::new(&bed, "gate");
    bed.script("bob", &format!("{}; echo done", gate.wait_here(&bed)));
    let going = bed.orch(["run", "w"]).start();
    wait_for_started(&bed, 1);
    going.signal("INT");
    let ran = going.wait().says("goes on").expect(130);
    says(&ran.stderr, "orch resume ");
    bed.assert_nothing_runs();
    assert_eq!(state(&bed)["status"], "running");
    gate.let_through(1);
    bed.orch(["resume", "last"]).run().expect(0);
}

#[test]
fn a_loop_that_was_stopped_goes_on_with_its_first_unfinished_item() {
    let bed = bed(
        "steps:\n  - name: each\n    for_each:\n      items: [a, b, c]\n      as: it\n      steps:\n        - {name: work, agent: bob, prompt: \"${it}\"}\n",
    );
    let mut gate = Gate::new(&bed, "gate");
    bed.script(
        "bob",
        &format!("{}; cat; echo x >> ../outside/count", gate.wait_here(&bed)),
    );
    gate.let_through(1);
    let going = bed.orch(["run", "w"]).start();
    wait_for_started(&bed, 2);
    going.signal("TERM");
    going.wait().says("goes on").expect(143);
    assert_eq!(counts(&bed).len(), 1);
    gate.let_through(2);
    bed.orch(["resume", "last"]).run().expect(0);
    assert_eq!(counts(&bed).len(), 3);
    let outputs: Vec<Value> = (0..3)
        .map(|n| result(&bed, "each")[n]["work"]["output"].clone())
        .collect();
    assert_eq!(outputs, ["a", "b", "c"]);
}

#[test]
fn a_singleton_goes_on_with_its_unfinished_run_and_other_workflows_begin_anew() {
    let bed = bed(&format!("singleton: true\n{GATED}"));
    run(&bed, &[]).fails(4);
    let first = only_run(&bed);
    run(&bed, &[]).fails(4);
    assert_eq!(only_run(&bed), first);
    bed.write("ready", "");
    let ran = run(&bed, &[]).says("goes on").expect(0);
    assert_eq!(id(&ran), first);
    assert_eq!(counts(&bed), ["one", "two"]);
    run(&bed, &[]).expect(0);
    assert_eq!(bed.ls("workspace").len(), 2, "what is finished is final");
}
