//! `wait_for`: what wakes a step that waits for files, what ends it, and what it costs meanwhile.
//!
//! Except where the clock itself is meant, `poll_ms` is so long that only the kernel can have told.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Bed, let_pass, ticks_of, wait_for};
use crate::props::is_watching;

/// Longer than any test takes.
const NEVER: &str = "timeout_sec: 9000, poll_ms: 600000";

fn bed(steps: &str) -> Bed {
    let bed = Bed::new();
    bed.write("specs/w.yaml", format!("version: \"1\"\nname: w\n{steps}"));
    bed
}

fn waits_for(glob: &str) -> Bed {
    bed(&format!(
        "steps:\n  - {{name: wait, wait_for: {{glob: '{glob}', {NEVER}}}}}\n"
    ))
}

fn start(bed: &Bed) -> String {
    let ran = bed
        .orch(["run", "w", "--detach"])
        .run()
        .may_say(&["no watcher is running"])
        .expect(0);
    ran.stdout.lines().next().unwrap().to_owned()
}

fn state(bed: &Bed, run: &str) -> Value {
    let path = format!("workspace/{run}/state.json");
    if !bed.has(&path) {
        return Value::Null;
    }
    serde_json::from_str(&bed.read(&path)).unwrap()
}

fn claims(bed: &Bed) -> Vec<String> {
    let mut all = bed.ls("inbox/orch");
    all.retain(|name| name.ends_with(".claimed"));
    all
}

/// Waits until so many steps are claimed, and their runs say since when they wait.
fn until_waiting(bed: &Bed, how_many: usize) {
    let begun = |claim: &String| {
        let run = claim.split('.').next().unwrap();
        state(bed, run)["pending"][0]["since"].is_string()
    };
    wait_for("the waits to begin", || {
        let claims = claims(bed);
        claims.len() == how_many && claims.iter().all(begun)
    });
}

/// Waits until a watcher is told by the kernel what happens in this folder, and has nothing to do:
/// what comes from then on, only an event can show.
fn until_watched(pid: i32, folder: &std::path::Path) {
    wait_for("the folder to be watched", || is_watching(pid, folder));
    until_idle(pid);
}

/// Waits until a process has nothing to do: all of its threads sleep, and go on sleeping. One that only
/// waits for a processor is not idle.
fn until_idle(pid: i32) {
    let asleep = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut stats =
            threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
        stats.all(|stat| stat.rsplit(") ").next().unwrap().starts_with('S'))
    };
    let (mut spent, mut since) = (ticks_of(pid), Instant::now());
    wait_for("the watcher to be idle", || {
        if !asleep() || ticks_of(pid) != spent {
            (spent, since) = (ticks_of(pid), Instant::now());
        }
        since.elapsed() > Duration::from_millis(400)
    });
}

fn until_ended(bed: &Bed, run: &str, status: &str) {
    wait_for("the run to end", || state(bed, run)["status"] == status);
}

fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
fn a_wait_wakes_on_the_file_and_says_what_it_found() {
    let bed = bed(&format!(
        "steps:\n  - {{name: wait, wait_for: {{glob: 'drop/*.txt', min_count: 2, {NEVER}}}}}\n  - {{name: use, when: {{if: 'steps.wait.files.size() == 2'}}, command: [echo, \"${{steps.wait.files}}\", \"${{steps.wait.files[0]}}\", \"${{steps.wait.poll_count}}\"]}}\n"
    ));
    bed.write("drop/a.txt", "");
    let watch = bed.watch(&[]);
    let run = start(&bed);
    until_waiting(&bed, 1);
    until_watched(watch.pid(), &bed.root.join("drop"));
    bed.write("drop/other.md", "");
    bed.write("drop/b.txt", "");
    until_ended(&bed, &run, "succeeded");
    let state = state(&bed, &run);
    let wait = &state["step_results"]["wait"];
    assert_eq!(wait["files"], json!(["drop/a.txt", "drop/b.txt"]));
    assert_eq!(
        (&wait["status"], &wait["exit_code"]),
        (&json!("succeeded"), &json!(0))
    );
    assert!(wait["poll_count"].as_u64() >= Some(1), "{wait}");
    assert!(wait["wait_duration_ms"].is_u64(), "{wait}");
    let polls = &wait["poll_count"];
    assert_eq!(
        state["step_results"]["use"]["output"],
        format!("drop/a.txt drop/b.txt drop/a.txt {polls}\n")
    );
}

#[test]
fn a_wait_wakes_in_folders_that_come_later_and_in_those_that_are_replaced() {
    let bed = waits_for("in/*/deep/**/x?.txt");
    let _watch = bed.watch(&[]);
    let run = start(&bed);
    until_waiting(&bed, 1);
    // One by one, and gone again: each has to be watched anew.
    for _ in 0..2 {
        for folder in ["in", "in/a", "in/a/deep", "in/a/deep/more"] {
            fs::create_dir(bed.root.join(folder)).unwrap();
        }
        fs::remove_dir_all(bed.root.join("in")).unwrap();
    }
    fs::create_dir_all(bed.root.join("in/a/deep/more/still")).unwrap();
    fs::rename(bed.root.join("in"), bed.root.join("out")).unwrap();
    bed.write("out/a/deep/more/still/x1.txt", "");
    fs::create_dir_all(bed.root.join("in/b/deep")).unwrap();
    assert_eq!(state(&bed, &run)["status"], "running");
    bed.write("in/b/deep/more/x2.txt", "");
    until_ended(&bed, &run, "succeeded");
    assert_eq!(
        state(&bed, &run)["step_results"]["wait"]["files"],
        json!(["in/b/deep/more/x2.txt"])
    );
}

#[test]
fn a_whole_tree_that_is_moved_in_ends_a_wait() {
    let bed = waits_for("in/deep/*.txt");
    let watch = bed.watch(&[]);
    let run = start(&bed);
    until_waiting(&bed, 1);
    until_watched(watch.pid(), &bed.root);
    bed.write("aside/deep/x.txt", "");
    fs::rename(bed.root.join("aside"), bed.root.join("in")).unwrap();
    until_ended(&bed, &run, "succeeded");
}

#[test]
fn without_events_a_wait_looks_as_often_as_it_says() {
    let bed = bed(
        "steps:\n  - {name: wait, wait_for: {glob: 'drop/*.txt', timeout_sec: 9000, poll_ms: 10}}\n",
    );
    let _watch = bed.watch(&["--poll", "50ms"]);
    let run = start(&bed);
    until_waiting(&bed, 1);
    bed.write("drop/a.txt", "");
    until_ended(&bed, &run, "succeeded");
}

#[test]
fn a_wait_in_vain_fails_with_124_and_says_what_was_there() {
    let bed = bed(
        "steps:\n  - {name: wait, wait_for: {glob: 'drop/*.txt', timeout_sec: 1, min_count: 3, poll_ms: 600000}}\n",
    );
    bed.write("drop/a.txt", "");
    let ran = bed.orch(["run", "w"]).run().fails(1);
    let run = ran.stdout.lines().next().unwrap();
    let result = &state(&bed, run)["step_results"]["wait"];
    assert_eq!(
        (
            &result["status"],
            &result["exit_code"],
            &result["error"]["kind"]
        ),
        (&json!("failed"), &json!(124), &json!("TimeoutExpired"))
    );
    assert_eq!(result["files"], json!(["drop/a.txt"]));
    assert!(
        result["wait_duration_ms"].as_u64() >= Some(1000),
        "{result}"
    );
    assert!(result["poll_count"].as_u64() < Some(20), "{result}");
}

#[test]
fn a_wait_in_vain_is_tried_again_as_declared() {
    let bed = bed(
        "steps:\n  - {name: wait, wait_for: {glob: 'never/*', timeout_sec: 1}, retries: {max: 1, delay_ms: 1}}\n",
    );
    let ran = bed.orch(["run", "w"]).run().fails(1);
    let run = ran.stdout.lines().next().unwrap();
    let result = &state(&bed, run)["step_results"]["wait"];
    assert_eq!(
        (&result["attempt"], &result["exit_code"]),
        (&json!(2), &json!(124))
    );
    assert!(
        result["wait_duration_ms"].as_u64() < Some(20_000),
        "{result}"
    );
}

#[test]
fn a_wait_holds_no_job_slot() {
    let bed = waits_for("drop/*.txt");
    bed.script("a", "cat");
    let watch = bed.watch(&["--jobs", "1"]);
    let runs: Vec<String> = (0..3).map(|_| start(&bed)).collect();
    until_waiting(&bed, 3);
    bed.drop_task("a", "meanwhile", "hi");
    wait_for("a task beside them", || {
        bed.has("processed/a/meanwhile.task")
    });
    assert_eq!(claims(&bed).len(), 3);
    bed.write("drop/x.txt", "");
    for run in &runs {
        until_ended(&bed, run, "succeeded");
    }
    drop(watch);
}

#[test]
fn a_drain_waits_for_the_waits() {
    let bed = waits_for("drop/*.txt");
    let run = start(&bed);
    let drain = bed.orch(["watch", "--drain"]).start();
    until_waiting(&bed, 1);
    until_watched(drain.pid(), &bed.root);
    bed.write("drop/x.txt", "");
    drain.wait().expect(0);
    assert_eq!(state(&bed, &run)["status"], "succeeded");
}

#[test]
fn two_hundred_waits_cost_no_threads_and_next_to_no_time() {
    let bed = waits_for("drop/${request}");
    let watch = bed.watch(&["--jobs", "2"]);
    for n in 0..200 {
        bed.drop_task("w", &format!("go{n}"), format!("{n}.txt"));
    }
    until_waiting(&bed, 200);
    wait_for("all starts to be over", || bed.ls("inbox/w").is_empty());
    until_idle(watch.pid());
    // The engine's own and two workers, two for events, one for the waits, one for signals.
    assert!(threads(watch.pid()) <= 8, "{}", threads(watch.pid()));
    let spent = ticks_of(watch.pid());
    let_pass(Duration::from_secs(3));
    let spent = ticks_of(watch.pid()) - spent;
    assert!(
        spent <= 15,
        "{spent} hundredths of a second in three seconds"
    );
    for n in 0..200 {
        bed.write(&format!("drop/{n}.txt"), "");
    }
    wait_for("the waits to end", || claims(&bed).is_empty());
    wait_for("all to be retired", || {
        bed.ls("processed/orch").len() == 200
    });
}

#[test]
fn cancelling_the_run_ends_its_wait_at_once() {
    let bed = waits_for("drop/*.txt");
    let watch = bed.watch(&["--jobs", "1"]);
    let run = start(&bed);
    until_waiting(&bed, 1);
    bed.orch(["cancel", &run]).run().expect(0);
    assert_eq!(state(&bed, &run)["status"], "cancelled");
    let claim = format!("/proc/{}/fd", watch.pid());
    wait_for("the watcher to let go of the claim", || {
        fs::read_dir(&claim).unwrap().all(|fd| {
            let to = fd
                .and_then(|fd| fs::read_link(fd.path()))
                .unwrap_or_default();
            !to.to_string_lossy().contains("-wait.")
        })
    });
    bed.write("drop/x.txt", "");
    let next = start(&bed);
    until_ended(&bed, &next, "succeeded");
    assert_eq!(state(&bed, &run)["status"], "cancelled");
}

#[test]
fn a_stop_puts_a_wait_back_and_the_next_watcher_goes_on() {
    let bed = waits_for("drop/*.txt");
    let first = bed.watch(&[]);
    let run = start(&bed);
    until_waiting(&bed, 1);
    let since = state(&bed, &run)["pending"][0]["since"].clone();
    assert!(since.is_string());
    first.signal("TERM");
    first.wait().says("put back").expect(143);
    assert!(claims(&bed).is_empty());
    assert_eq!(bed.ls("inbox/orch").len(), 1, "{:?}", bed.ls("inbox/orch"));
    let _second = bed.watch(&[]);
    until_waiting(&bed, 1);
    wait_for("the second attempt", || {
        state(&bed, &run)["pending"][0]["attempts"] == 2
    });
    assert_eq!(state(&bed, &run)["pending"][0]["since"], since);
    bed.write("drop/x.txt", "");
    until_ended(&bed, &run, "succeeded");
    assert_eq!(
        state(&bed, &run)["step_results"]["wait"]["start_time"],
        since
    );
    assert!(
        bed.ls("artifacts/orch")
            .iter()
            .all(|name| !name.contains('~'))
    );
}

/// Starts a run whose watcher dies as soon as the step has begun to wait.
fn left_waiting(bed: &Bed) -> String {
    let run = start(bed);
    // The first state of a run is that of its start.
    bed.orch(["watch", "--drain", "--durability", "process"])
        .env("ORCH_FAULT", "kill:run.state-write:2")
        .run()
        .killed();
    assert_eq!(claims(bed).len(), 1, "a crash leaves the claim");
    let log = bed.read(&format!("logs/{run}.jsonl"));
    assert!(log.contains("\"event\":\"entered\""), "{log}");
    run
}

#[test]
fn the_time_of_a_wait_goes_on_while_nobody_is_there() {
    let bed = bed(
        "steps:\n  - {name: wait, wait_for: {glob: 'drop/*.txt', timeout_sec: 2, poll_ms: 600000}}\n",
    );
    let run = left_waiting(&bed);
    let_pass(Duration::from_secs(3));
    bed.drain().says("take over").expect(1);
    let result = &state(&bed, &run)["step_results"]["wait"];
    assert_eq!(result["exit_code"], 124);
    assert!(
        result["wait_duration_ms"].as_u64() >= Some(3000),
        "{result}"
    );
    assert_eq!(result["poll_count"], 1, "{result}");
}

#[test]
fn files_that_came_while_nobody_was_there_count_however_late_it_is() {
    let bed = bed(
        "steps:\n  - {name: wait, wait_for: {glob: 'drop/*.txt', timeout_sec: 1, poll_ms: 600000}}\n",
    );
    let run = left_waiting(&bed);
    bed.write("drop/x.txt", "");
    let_pass(Duration::from_millis(1500));
    bed.drain().says("take over").expect(0);
    assert_eq!(state(&bed, &run)["step_results"]["wait"]["exit_code"], 0);
}

#[test]
fn a_wait_that_is_killed_again_and_again_goes_on() {
    let bed = waits_for("drop/*.txt");
    let run = start(&bed);
    // More often than an agent may be interrupted.
    for attempt in 1..=5 {
        let watch = bed.watch(&[]);
        wait_for("the wait to begin", || {
            state(&bed, &run)["pending"][0]["attempts"] == attempt
        });
        watch.signal("KILL");
        watch.wait().may_say(&["take over "]).killed();
    }
    let _watch = bed.watch(&[]);
    bed.write("drop/x.txt", "");
    until_ended(&bed, &run, "succeeded");
}

#[test]
fn status_says_what_a_run_waits_for_and_since_when() {
    let bed = waits_for("drop/${request}-*.txt");
    let _watch = bed.watch(&[]);
    let ran = bed.orch(["run", "w", "night", "--detach"]).run().expect(0);
    let run = ran.stdout.lines().next().unwrap().to_owned();
    until_waiting(&bed, 1);
    let state = state(&bed, &run);
    let since = state["pending"][0]["since"].as_str().unwrap();
    let expected = format!("waiting for files (drop/night-*.txt) since {since}");
    for words in [vec!["status"], vec!["status", &run], vec!["show", &run]] {
        let ran = bed.orch(&words).run().expect(0);
        assert!(ran.stdout.contains(&expected), "{words:?}: {}", ran.stdout);
    }
    let ran = bed.orch(["status", &run, "--json"]).run().expect(0);
    let view: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(view["waits"][0]["glob"], "drop/night-*.txt");
    assert_eq!(view["waits"][0]["since"], since);
}
