//! `resume --update-spec`: a run goes on with `specs/` as it is now, and everything that it ever went
//! by can still be proven.

use super::*;
use crate::crash::side_by_side;
use crate::harness::shell;

/// `one` is done, and `two` fails and blocks the run.
const OLD: &str = "steps:
  - {name: one, command: [sh, -c, 'echo one >> ../outside/count']}
  - {name: two, command: [sh, -c, 'echo two >> ../outside/count; exit 3'], on: {failure: {goto: _block}}}
";
/// `two` is mended, and there is a third, which needs a value that the run was not begun with.
const NEW: &str = "context: {who: world}
steps:
  - {name: one, command: [sh, -c, 'echo never >> ../outside/count']}
  - {name: two, command: [sh, -c, 'echo mended >> ../outside/count']}
  - {name: three, command: [sh, -c, 'echo \"three $1\" >> ../outside/count', x, \"${context.who}\"]}
";

fn blocked() -> Bed {
    let bed = bed(OLD);
    run(&bed, &["please"]).fails(4);
    assert_eq!(counts(&bed), ["one", "two"]);
    bed
}

fn update(bed: &Bed) -> Ran {
    bed.orch(["resume", "last", "--update-spec"]).run()
}

fn folder(bed: &Bed) -> Vec<String> {
    bed.ls(&format!("workspace/{}", only_run(bed)))
}

fn log(bed: &Bed) -> String {
    bed.read(&format!("logs/{}.jsonl", only_run(bed)))
}

#[test]
fn a_run_goes_on_with_specs_as_they_are_now_and_the_log_says_so() {
    let bed = blocked();
    workflow(&bed, NEW);
    bed.orch(["resume", "last"]).run().fails(4);
    assert_eq!(counts(&bed), ["one", "two", "two"], "it is pinned");
    let ran = update(&bed).says("goes on").expect(0);
    says(&ran.stderr, "it goes on with specs/ as it is now");
    assert_eq!(counts(&bed), ["one", "two", "two", "mended", "three world"]);
    let old = "files,lock,snapshots,spec,spec~1,state.json";
    assert_eq!(folder(&bed).join(","), old);
    says(&log(&bed), r#""event":"spec_updated""#);
    let pinned = bed.read(&format!("workspace/{}/spec/specs/w.yaml", only_run(&bed)));
    assert_eq!(pinned, bed.read("specs/w.yaml"));
    bed.orch(["audit", "last"]).run().expect(0);
    // The state is made anew from the log, each stretch of it by its own workflow.
    let before = state(&bed);
    fs::remove_file(
        bed.root
            .join(format!("workspace/{}/state.json", only_run(&bed))),
    )
    .unwrap();
    bed.orch(["resume", "last"]).run().fails(64);
    assert_eq!(state(&bed), before);
}

#[test]
fn what_does_not_fit_the_run_is_refused_and_nothing_is_changed() {
    let renamed = NEW.replace("name: two", "name: other");
    let broken = NEW.replace("name: three", "name: three, colour: red");
    let cases = [
        (
            format!("version: \"1\"\nname: w\n{renamed}"),
            64,
            "step `two`, which the new workflow does not have",
        ),
        (format!("version: \"1\"\nname: w\n{broken}"), 65, "colour"),
        (format!("version: \"1\"\nname: v\n{NEW}"), 65, "`v`"),
        (
            format!("version: \"1\"\nname: w\ninput: {{schema: specs/in.json}}\n{NEW}"),
            65,
            "input",
        ),
    ];
    let bed = blocked();
    bed.write("specs/in.json", r#"{"type": "object", "required": ["a"]}"#);
    let run_folder = bed.root.join("workspace").join(only_run(&bed));
    let (before, logged) = (tree(&run_folder), log(&bed));
    for (text, code, why) in cases {
        bed.write("specs/w.yaml", &text);
        let ran = update(&bed).fails(code);
        says(&ran.stderr, why);
        assert_eq!(tree(&run_folder), before, "{text}");
        assert_eq!(log(&bed), logged, "{text}");
    }
    fs::remove_file(bed.root.join("specs/w.yaml")).unwrap();
    says(&update(&bed).fails(65).stderr, "there is no workflow `w`");
    assert_eq!(log(&bed), logged);
}

#[test]
fn an_update_with_nothing_new_says_so_and_goes_on() {
    let bed = blocked();
    let ran = update(&bed).fails(4);
    says(&ran.stderr, "specs/ has nothing new");
    assert_eq!(counts(&bed), ["one", "two", "two"]);
    assert!(!log(&bed).contains("spec_updated"));
    assert!(!folder(&bed).iter().any(|name| name.contains('~')));
}

#[test]
fn a_run_that_is_over_has_no_use_for_another_spec() {
    let bed = bed("steps:\n  - {name: one, command: [\"true\"]}\n");
    run(&bed, &[]).expect(0);
    workflow(&bed, NEW);
    says(
        &update(&bed).fails(64).stderr,
        "succeeded, and that is final",
    );
}

#[test]
fn a_run_may_be_updated_again_and_back() {
    let bed = blocked();
    for _ in 0..2 {
        workflow(&bed, &OLD.replace("exit 3", "exit 4"));
        update(&bed).fails(4);
        workflow(&bed, OLD);
        update(&bed).fails(4);
    }
    workflow(&bed, NEW);
    update(&bed).says("goes on").expect(0);
    let past = folder(&bed)
        .iter()
        .filter(|name| name.contains('~'))
        .count();
    assert_eq!(past, 5);
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_pending_step_moves_to_the_inbox_that_the_new_spec_names() {
    let bed = bed(OLD);
    bed.orch(["run", "w"])
        .env("ORCH_FAULT", "kill:run.spawn:2")
        .run()
        .killed();
    workflow(
        &bed,
        "steps:\n  - {name: one, command: [\"true\"]}\n  - {name: two, provider: echo, prompt: said}\n",
    );
    update(&bed).says("goes on").expect(0);
    assert_eq!(result(&bed, "two")["output"], "said");
    assert_eq!(bed.ls("inbox/shell"), [""; 0]);
    assert_eq!(counts(&bed), ["one"]);
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_question_stays_open_over_an_update() {
    let asked = "steps:\n  - {name: one, command: [echo, old], approval: plan}\n";
    let bed = bed(asked);
    run(&bed, &[]).fails(4);
    let logged = log(&bed);
    workflow(&bed, "steps:\n  - {name: one, command: [echo, new]}\n");
    let ran = update(&bed).fails(64);
    says(&ran.stderr, "a person is being asked for step `one`");
    assert_eq!(log(&bed), logged);
    let more =
        "  - {name: two, command: [sh, -c, 'echo two >> ../outside/count'], approval: more}\n";
    workflow(&bed, &format!("{asked}{more}"));
    let ran = update(&bed).fails(4);
    says(&ran.stderr, "`plan` waits for approval");
    let gates = json!({"plan": false, "more": false});
    assert_eq!(state(&bed)["governance"]["approvals"], gates);
    for gate in ["plan", "more"] {
        bed.orch(["approve", "last", gate])
            .run()
            .may_say(&["no watcher is running"])
            .expect(0);
        let code = if gate == "plan" { 4 } else { 64 };
        bed.orch(["resume", "last"]).run().fails(code);
    }
    assert_eq!(state(&bed)["status"], "succeeded");
    assert_eq!(counts(&bed), ["two"]);
    bed.orch(["audit", "last"]).run().expect(0);
}

#[test]
fn a_run_that_is_being_worked_on_is_not_updated() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    let wait = gate.wait_here(&bed);
    workflow(
        &bed,
        &format!("steps:\n  - {{name: one, command: [sh, -c, '{wait}']}}\n"),
    );
    let running = bed.orch(["run", "w"]).start();
    wait_for_started(&bed, 1);
    workflow(&bed, "steps:\n  - {name: one, command: [\"true\"]}\n");
    let ran = update(&bed).fails(75);
    says(&ran.stderr, "step `one`");
    gate.let_through(1);
    running.wait().expect(0);
    assert!(!log(&bed).contains("spec_updated"));
}

#[test]
fn a_watcher_that_has_the_run_at_hand_goes_on_with_the_new_spec() {
    let bed = bed(OLD);
    let watcher = bed.watch(&[]);
    bed.drop_task("w", "go", "please");
    wait_for("the block", || {
        bed.ls("workspace").len() == 1 && state_if_there(&bed)["status"] == "blocked"
    });
    workflow(&bed, NEW);
    bed.orch(["resume", "last", "--update-spec", "--detach"])
        .run()
        .says("goes on")
        .expect(0);
    wait_for("the end", || state_if_there(&bed)["status"] == "succeeded");
    assert_eq!(counts(&bed), ["one", "two", "mended", "three world"]);
    watcher.signal("TERM");
    watcher.wait().expect(143);
    bed.orch(["audit", "last"]).run().expect(0);
}

fn state_if_there(bed: &Bed) -> Value {
    let path = format!("workspace/{}/state.json", only_run(bed));
    let text = fs::read_to_string(bed.root.join(path)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

#[test]
fn the_specs_of_before_are_sealed_like_the_present_one() {
    let meddling = [
        ("rm -r $W/spec~1", 2),
        ("echo '# more' >> $W/spec~1/specs/w.yaml", 2),
        ("echo x > $W/spec~1/more", 2),
        ("rm -r $W/spec; mv $W/spec~1 $W/spec", 2),
    ];
    side_by_side(&meddling, |(meddle, code)| {
        let bed = blocked();
        workflow(&bed, &OLD.replace("exit 3", "exit 4"));
        update(&bed).fails(4);
        let script = format!("W=workspace/{}\n{meddle}", only_run(&bed));
        shell(&script).current_dir(&bed.root).run().expect(0);
        let before = counts(&bed).len();
        bed.orch(["audit", "last"]).run().about(meddle).expect(3);
        bed.orch(["resume", "last"])
            .run()
            .about(meddle)
            .fails(*code);
        assert_eq!(counts(&bed).len(), before, "{meddle}: it went on");
        assert_eq!(state(&bed)["status"], "failed", "{meddle}");
    });
}

#[test]
fn an_update_killed_at_any_point_is_whole_or_has_not_been() {
    let points = [
        "run.spec",
        "run.spec-sync",
        "run.log-append",
        "run.log-sync",
        "run.spec-aside",
        "run.spec-rename",
        "run.spec-sync-folder",
        "run.state-write",
        "run.state-rename",
    ];
    let mut cases = Vec::new();
    for point in points {
        for nth in 1..=3 {
            cases.push((point, nth));
        }
    }
    let killed = std::sync::atomic::AtomicUsize::new(0);
    side_by_side(&cases, |(point, nth)| {
        let story = format!("kill -9 before {point} for the {nth}th time");
        let bed = blocked();
        workflow(&bed, NEW);
        let ran = bed
            .orch(["resume", "last", "--update-spec", "--detach"])
            .env("ORCH_FAULT", format!("kill:{point}:{nth}"))
            .run()
            .about(&story)
            .noisy()
            .killed_or(0);
        killed.fetch_add(
            usize::from(ran.was_killed()),
            std::sync::atomic::Ordering::Relaxed,
        );
        bed.orch(["audit", "last"]).run().about(&story).expect(0);
        // Whether it was adopted or not, the same command goes on from there.
        update(&bed).about(&story).says("goes on").expect(0);
        assert_eq!(
            counts(&bed),
            ["one", "two", "mended", "three world"],
            "{story}"
        );
        assert_eq!(
            folder(&bed).join(","),
            "files,lock,snapshots,spec,spec~1,state.json",
            "{story}"
        );
        assert_eq!(log(&bed).matches("spec_updated").count(), 1, "{story}");
        bed.orch(["audit", "last"]).run().expect(0);
    });
    assert!(
        killed.into_inner() >= 9,
        "the points are not passed any more"
    );
}
