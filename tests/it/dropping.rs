//! However a task is dropped, it is run whole and once; and whatever becomes of its file while orch
//! works on it, nothing is overwritten and nothing is committed that should not be.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use crate::harness::{self, Bed, Running, state_of, wait_for};
use crate::props::{Gate, wait_for_started};

/// An agent `a` that copies its task and counts its executions.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.script(
        "a",
        &format!("cat; echo x >> {}/count", bed.outside.display()),
    );
    fs::create_dir(bed.root.join("inbox/a")).unwrap();
    bed
}

/// An agent `a` that copies its task, and waits at a gate.
fn waiting_agent() -> (Bed, Gate) {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    bed.script("a", &format!("cat; {}", gate.wait_here(&bed)));
    (bed, gate)
}

fn shell(bed: &Bed, script: &str) {
    harness::shell(script)
        .current_dir(&bed.root)
        .run()
        .expect(0);
}

fn is_stopped(pid: i32) -> bool {
    state_of(pid) == "T"
}

/// A watcher that drains, and has stopped itself before this point.
fn stopped_at(bed: &Bed, point: &str) -> Running {
    let watch = bed
        .orch(["watch", "--drain", "--durability", "process"])
        .env("ORCH_FAULT", format!("stop:{point}"))
        .start();
    wait_for(point, || is_stopped(watch.pid()));
    watch
}

#[test]
fn every_usual_way_of_dropping_a_task_works() {
    let bed = bed();
    fs::write(bed.outside.join("file"), "text\n").unwrap();
    let watch = bed.watch(&[]);
    for (n, way) in [
        "echo text > inbox/a/NAME.task",
        "cp ../outside/file inbox/a/NAME.task",
        "echo text > inbox/a/NAME.tmp; mv inbox/a/NAME.tmp inbox/a/NAME.task",
        "echo text > inbox/a/.NAME.task.swp; mv inbox/a/.NAME.task.swp inbox/a/NAME.task",
        "cp ../outside/file other; mv other inbox/a/NAME.task",
        ": > inbox/a/NAME.task; sleep 0.05; echo text >> inbox/a/NAME.task",
        "(printf te; sleep 0.1; printf 'xt\\n') > inbox/a/NAME.task",
        "install -m 600 ../outside/file inbox/a/NAME.task",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("way{n}");
        shell(&bed, &way.replace("NAME", &name));
        wait_for(way, || bed.has(&format!("processed/a/{name}.task")));
        assert_eq!(
            bed.read(&format!("artifacts/a/{name}.out")),
            "text\n",
            "{way}"
        );
    }
    assert_eq!(bed.count_lines("count"), 8);
    drop(watch);
}

#[test]
fn a_task_is_not_touched_while_somebody_has_it_open_for_writing() {
    let bed = bed();
    let watch = bed.watch(&[]);
    let mut slow = File::create(bed.root.join("inbox/a/slow.task")).unwrap();
    for word in ["never ", "run ", "half"] {
        slow.write_all(word.as_bytes()).unwrap();
        // Another task, dropped later, is finished meanwhile: the watcher did look.
        bed.drop_task("a", word.trim(), "other");
        wait_for("another task", || {
            bed.has(&format!("processed/a/{}.task", word.trim()))
        });
        assert!(bed.has("inbox/a/slow.task") && !bed.has("artifacts/a/slow.out"));
    }
    drop(slow);
    wait_for("the slow task", || bed.has("processed/a/slow.task"));
    assert_eq!(bed.read("artifacts/a/slow.out"), "never run half");
    drop(watch);
}

#[test]
fn a_waiting_task_can_be_rewritten() {
    let (bed, mut gate) = waiting_agent();
    bed.drop_task("a", "first", "text");
    let watch = bed.watch(&[]);
    wait_for_started(&bed, 1);
    bed.drop_task("a", "second", "old");
    fs::write(bed.root.join("inbox/a/second.task"), "truncated and new").unwrap();
    bed.drop_task("a", "third", "old");
    bed.drop_task("a", "third", "replaced by a rename");
    let mut fourth = OpenOptions::new()
        .append(true)
        .create(true)
        .open(bed.root.join("inbox/a/fourth.task"))
        .unwrap();
    fourth.write_all(b"one, ").unwrap();
    drop(fourth);
    let mut fourth = OpenOptions::new()
        .append(true)
        .open(bed.root.join("inbox/a/fourth.task"))
        .unwrap();
    fourth.write_all(b"two").unwrap();
    drop(fourth);
    gate.let_through(4);
    wait_for("all of them", || bed.ls("processed/a").len() == 4);
    assert_eq!(bed.read("artifacts/a/second.out"), "truncated and new");
    assert_eq!(bed.read("artifacts/a/third.out"), "replaced by a rename");
    assert_eq!(bed.read("artifacts/a/fourth.out"), "one, two");
    assert_eq!(bed.count_lines("started"), 4);
    drop(watch);
}

const CLAIM: [&str; 6] = [
    "claim.open",
    "claim.lock",
    "claim.lease",
    "claim.aside",
    "claim.rename",
    "claim.check",
];

#[test]
fn a_task_that_is_replaced_while_it_is_claimed_runs_as_what_it_is_now() {
    for point in CLAIM {
        let bed = bed();
        bed.drop_task("a", "x", "old");
        let watch = stopped_at(&bed, point);
        let claimed = bed.has("inbox/a/x.claimed");
        bed.drop_task("a", "x", "new");
        watch.signal("CONT");
        watch.wait().may_say(&["note: `inbox/a/x.task`"]).expect(0);
        assert_eq!(bed.read("artifacts/a/x.out"), "new", "{point}");
        assert_eq!(bed.read("processed/a/x.task"), "new", "{point}");
        // Once it was claimed, what is dropped is another task of the same name.
        assert_eq!(
            bed.count_lines("count"),
            1 + usize::from(claimed),
            "{point}"
        );
        assert_eq!(bed.has("artifacts/a/x~1.out"), claimed, "{point}");
        assert_eq!(bed.ls("inbox/a"), [""; 0], "{point}");
    }
}

#[test]
fn a_task_that_is_replaced_by_one_still_written_is_not_run_half() {
    let bed = bed();
    bed.drop_task("a", "x", "old");
    let watch = stopped_at(&bed, "claim.rename");
    let mut new = File::create(bed.root.join("inbox/a/new.tmp")).unwrap();
    new.write_all(b"only ").unwrap();
    fs::rename(
        bed.root.join("inbox/a/new.tmp"),
        bed.root.join("inbox/a/x.task"),
    )
    .unwrap();
    bed.drop_task("a", "y", "other");
    watch.signal("CONT");
    wait_for("another task", || bed.has("processed/a/y.task"));
    assert!(!bed.has("artifacts/a/x.out"));
    new.write_all(b"whole").unwrap();
    drop(new);
    watch.wait().expect(0);
    assert_eq!(bed.read("artifacts/a/x.out"), "only whole");
    assert_eq!(bed.count_lines("count"), 2);
}

#[test]
fn a_task_that_is_removed_or_renamed_while_it_is_claimed_is_not_run() {
    for point in CLAIM {
        let bed = bed();
        bed.drop_task("a", "x", "gone");
        bed.drop_task("a", "z", "good");
        let watch = stopped_at(&bed, point);
        // Removing the claim is a cancel; removing the task is too.
        let file = if bed.has("inbox/a/x.claimed") {
            "inbox/a/x.claimed"
        } else {
            "inbox/a/x.task"
        };
        fs::rename(bed.root.join(file), bed.root.join("inbox/a/renamed.task")).unwrap();
        watch.signal("CONT");
        watch.wait().expect(0);
        assert_eq!(bed.ls("processed/a"), ["renamed.task", "z.task"], "{point}");
        assert_eq!(bed.read("artifacts/a/renamed.out"), "gone", "{point}");
        assert!(!bed.has("artifacts/a/x.json"), "{point}");
    }
}

#[test]
fn the_same_name_dropped_again_while_it_runs_is_run_after_it() {
    let bed = Bed::new();
    let outside = bed.outside.display();
    bed.script(
        "a",
        &format!("cat; until [ -e {outside}/go ]; do sleep 0.01; done"),
    );
    bed.drop_task("a", "x", "first");
    let watch = bed.watch(&["--jobs", "2"]);
    wait_for("the first to begin", || bed.has("artifacts/a/x.out"));
    bed.drop_task("a", "x", "second");
    bed.drop_task("a", "y", "other");
    wait_for("a task beside it", || bed.has("artifacts/a/y.out"));
    assert_eq!(bed.ls("inbox/a"), ["x.claimed", "x.task", "y.claimed"]);
    fs::write(bed.outside.join("go"), "").unwrap();
    wait_for("both", || {
        bed.has("processed/a/x~1.task") && bed.has("processed/a/x.task")
    });
    for (name, text) in [("x~1", "first"), ("x", "second")] {
        assert_eq!(bed.read(&format!("artifacts/a/{name}.out")), text);
        assert_eq!(bed.read(&format!("processed/a/{name}.task")), text);
        assert_eq!(bed.status(&format!("a/{name}")), "succeeded");
    }
    drop(watch);
}

#[test]
fn nothing_is_overwritten_when_a_name_is_used_again_and_again() {
    let bed = bed();
    for n in 0..5 {
        bed.drop_task("a", "x", format!("task {n}"));
        bed.drain().expect(0);
    }
    for (name, n) in [("x~1", 0), ("x~2", 1), ("x~3", 2), ("x~4", 3), ("x", 4)] {
        assert_eq!(
            bed.read(&format!("artifacts/a/{name}.out")),
            format!("task {n}")
        );
        assert_eq!(
            bed.read(&format!("processed/a/{name}.task")),
            format!("task {n}")
        );
        assert_eq!(bed.status(&format!("a/{name}")), "succeeded");
    }
    assert_eq!(bed.ls("processed/a").len(), 5);
}

#[test]
fn an_agent_that_removes_its_own_claim_has_cancelled_itself() {
    let bed = Bed::new();
    let claim = bed.root.join("inbox/a/x.claimed");
    bed.script("a", &format!("cat; rm {}; sleep 1000", claim.display()));
    bed.drop_task("a", "x", "text");
    let ran = bed.drain().says("cancelled").expect(0);
    assert!(ran.stderr.contains("cancelled a/x"), "{ran:?}");
    bed.assert_nothing_runs();
    assert!(!bed.has("artifacts/a/x.json"));
    assert_eq!(bed.ls("processed/a"), [""; 0]);
    assert_eq!(bed.read("artifacts/a/x~1.out"), "text");
    let record = bed.record("a/x~1");
    assert_eq!(
        (&record["status"], &record["uncommitted"]),
        (&"cancelled".into(), &true.into())
    );
}

#[test]
fn an_agent_that_replaces_its_own_claim_commits_nothing_for_it() {
    let bed = Bed::new();
    let outside = bed.outside.display();
    let claim = bed.root.join("inbox/a/x.claimed");
    bed.script("a", &format!(
        "cat; echo x >> {outside}/count; [ -e {outside}/done ] && exit; touch {outside}/done; echo other > {outside}/other; mv {outside}/other {0}; sleep 1000",
        claim.display()
    ));
    bed.drop_task("a", "x", "text");
    bed.drain().says("take over").expect(0);
    bed.assert_nothing_runs();
    assert_eq!(bed.read("artifacts/a/x~1.out"), "text");
    assert_eq!(bed.record("a/x~1")["uncommitted"], true);
    assert_eq!(bed.read("artifacts/a/x.out"), "other\n");
    assert_eq!(bed.count_lines("count"), 2);
}

#[test]
fn a_record_that_the_agent_forged_is_moved_out_of_the_way() {
    let forged = r#"{"task":"x","agent":"a","status":"failed","attempt":7,"start_time":"","end_time":"","duration":0}"#;
    for make in [
        format!("echo '{forged}' > x.json"),
        "echo rubbish > x.json".to_owned(),
        "mkdir x.json; touch x.json/file".to_owned(),
        "ln -s /etc/passwd x.json".to_owned(),
        "mkfifo x.json".to_owned(),
        "mkdir .x.json .x.next x.next x.err; touch x.err/file".to_owned(),
        "rm x.out; ln -s /etc/passwd x.out".to_owned(),
        "rm -r ../a".to_owned(),
    ] {
        let bed = Bed::new();
        bed.script("next", "cat");
        let artifacts = bed.root.join("artifacts/a");
        bed.script_with(
            "a",
            &format!("cat; echo trouble >&2; cd {}; {make}", artifacts.display()),
            "",
            "then: next",
        );
        bed.drop_task("a", "x", "text");
        bed.drain()
            .may_say(&["trouble: cannot commit `a/x`", "hint: "])
            .expect(0);
        let record = bed.record("a/x");
        assert_eq!(
            (&record["status"], &record["attempt"]),
            (&"succeeded".into(), &1.into()),
            "{make}"
        );
        assert_eq!(record["output"], "text", "{make}");
        assert_eq!(bed.ls("processed/a"), ["x.task"], "{make}");
        assert_eq!(bed.read("artifacts/a/x.err"), "trouble\n", "{make}");
        assert!(bed.read("artifacts/next/x.out").ends_with("text"), "{make}");
    }
}

#[test]
fn an_answer_never_becomes_front_matter() {
    let bed = Bed::new();
    bed.script("next", "cat");
    bed.script_with(
        "a",
        "printf -- '---\\nprovider: nothing\\nthen: a\\n---\\nrm -rf /\\n'",
        "",
        "then: next",
    );
    bed.drop_task("a", "x", "---\ntimeout: 1m\n---\nrequest");
    bed.drain().expect(0);
    let next = bed.read("artifacts/next/x.out");
    assert!(
        next.starts_with("request") && next.contains("provider: nothing\nthen: a"),
        "{next}"
    );
    assert!(!bed.record("next/x")["next"].is_string());
    assert_eq!(bed.ls("processed/a"), ["x.task"]);
}

#[test]
fn removing_a_claim_cancels_and_keeps_what_was_said() {
    let (bed, mut gate) = waiting_agent();
    bed.drop_task("a", "x", "half an answer");
    bed.drop_task("a", "y", "the next");
    let watch = bed.watch(&[]);
    wait_for_started(&bed, 1);
    fs::remove_file(bed.root.join("inbox/a/x.claimed")).unwrap();
    wait_for_started(&bed, 2);
    gate.let_through(1);
    wait_for("the next task", || bed.has("processed/a/y.task"));
    assert_eq!(bed.read("artifacts/a/x~1.out"), "half an answer");
    assert_eq!(bed.status("a/x~1"), "cancelled");
    assert!(!bed.has("artifacts/a/x.json") && !bed.has("processed/a/x.task"));
    drop(watch);
}

#[test]
fn a_failed_task_that_is_moved_back_is_tried_again() {
    let bed = Bed::new();
    let outside = bed.outside.display();
    bed.script(
        "a",
        &format!("echo x >> {outside}/count; cat; [ -e {outside}/fixed ]"),
    );
    bed.drop_task("a", "x", "text");
    bed.drain().expect(1);
    assert_eq!(bed.read("processed/a/x.failed"), "text");
    fs::write(bed.outside.join("fixed"), "").unwrap();
    fs::rename(
        bed.root.join("processed/a/x.failed"),
        bed.root.join("inbox/a/x.task"),
    )
    .unwrap();
    bed.drain().expect(0);
    assert_eq!(bed.status("a/x"), "succeeded");
    assert_eq!(bed.status("a/x~1"), "failed");
    assert_eq!(bed.ls("processed/a"), ["x.task"]);
    assert_eq!(bed.count_lines("count"), 2);
}
