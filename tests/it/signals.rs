//! A watcher that is asked to stop gives back what it has; one that is killed leaves nothing alive.

use crate::harness::{Bed, End, processes_with, wait_for};
use crate::props::{Gate, nap, wait_for_started};

#[test]
fn a_signal_puts_tasks_back_and_does_not_count_as_a_crash() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    let nap = nap(&bed, 0);
    bed.script(
        "a",
        &format!(
            "(setsid sleep {nap} &); echo begun; {}; cat",
            gate.wait_here(&bed)
        ),
    );
    bed.drop_task("a", "x", "first");
    bed.drop_task("a", "y", "second");
    // Once more than a task may be interrupted by a crash.
    let signals = [("INT", 130), ("TERM", 143), ("HUP", 143), ("INT", 130)];
    for (round, (signal, code)) in signals.into_iter().enumerate() {
        let watcher = bed.orch(["watch", "--jobs", "2"]).start();
        wait_for_started(&bed, 2 * (round + 1));
        watcher.signal(signal);
        let ran = watcher.wait().says("put back").expect(code);
        assert_eq!(bed.ls("inbox/a"), ["x.task", "y.task"], "{signal}");
        assert!(ran.stderr.contains("put back a/x"), "{signal}: {ran:?}");
        assert_eq!(processes_with(&nap), [0; 0], "{signal}");
        assert_eq!(bed.agents_alive(), [0; 0], "{signal}");
        for task in ["x", "y"] {
            let record = bed.record(&format!("a/{task}~{}", round + 1));
            assert_eq!(
                (&record["status"], &record["uncommitted"]),
                (&"interrupted".into(), &true.into())
            );
            assert_eq!(record["output"], "begun\n");
            assert!(!bed.has(&format!("artifacts/a/{task}.json")));
        }
    }
    assert_eq!(bed.ls("logs"), ["orch.jsonl"]);
    gate.let_through(2);
    bed.drain().expect(0);
    assert_eq!(bed.read("artifacts/a/x.out"), "begun\nfirst");
    assert_eq!(bed.read("processed/a/y.task"), "second");
}

#[test]
fn a_second_signal_ends_the_grace() {
    let bed = Bed::new();
    bed.settings("limits: {grace: 10h}\n");
    let told = bed.outside.join("told");
    bed.script(
        "a",
        &format!(
            "trap 'echo >> {}' TERM; echo >> {}; while :; do sleep 0.02; done",
            told.display(),
            bed.outside.join("started").display()
        ),
    );
    bed.drop_task("a", "x", "work");
    let watcher = bed.watch(&[]);
    wait_for_started(&bed, 1);
    watcher.signal("INT");
    wait_for("the agent to be asked", || bed.count_lines("told") > 0);
    watcher.signal("INT");
    watcher.wait().says("put back").expect(130);
    assert_eq!(bed.agents_alive(), [0; 0]);
    assert!(bed.has("inbox/a/x.task"));
}

#[test]
fn an_agent_that_is_saving_its_work_gets_the_grace() {
    let bed = Bed::new();
    bed.settings("limits: {grace: 10h}\n");
    bed.script(
        "a",
        &format!(
            "trap 'sleep 0.3; echo saved; exit 0' TERM; echo >> {}; while :; do sleep 0.02; done",
            bed.outside.join("started").display()
        ),
    );
    bed.drop_task("a", "x", "work");
    let watcher = bed.watch(&[]);
    wait_for_started(&bed, 1);
    watcher.signal("TERM");
    watcher.wait().says("put back").expect(143);
    assert_eq!(bed.read("artifacts/a/x~1.out"), "saved\n");
    assert!(
        bed.has("inbox/a/x.task"),
        "exit code 0 of what was stopped is no success"
    );
}

#[test]
fn a_signal_between_attempts_puts_the_task_back_at_once() {
    let bed = Bed::new();
    bed.settings("limits: {backoff: 10h}\n");
    bed.script_with("a", "echo busy >&2; exit 1", "transient: [busy]", "");
    bed.drop_task("a", "x", "work");
    let watcher = bed.watch(&[]);
    wait_for("the first attempt to be kept", || {
        bed.has("artifacts/a/x~1.json")
    });
    watcher.signal("TERM");
    watcher.wait().says("put back").expect(143);
    assert!(bed.has("inbox/a/x.task"));
}

#[test]
fn an_idle_watcher_ends_at_once() {
    let bed = Bed::new();
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 143)] {
        let watcher = bed.watch(&[]);
        bed.drop_task("echo", signal, "hello");
        wait_for("it to be at work", || {
            bed.has(&format!("processed/echo/{signal}.task"))
        });
        watcher.signal(signal);
        watcher.wait().expect(code);
    }
}

#[test]
fn a_stopped_send_that_does_the_work_itself_leaves_the_task_waiting() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    bed.script("a", &gate.wait_here(&bed));
    for (round, (signal, code)) in [("TERM", 143), ("INT", 130)].into_iter().enumerate() {
        let name = format!("x{round}");
        let send = bed
            .orch(["send", "a", "work", "--wait", "--name", &name])
            .start();
        wait_for_started(&bed, round + 1);
        send.signal(signal);
        let ran = send.wait().speaks().expect(code);
        assert!(
            ran.stderr
                .contains(&format!("`a/{name}` waits in its inbox")),
            "{ran:?}"
        );
        assert_eq!(ran.stdout, "");
        assert!(bed.has(&format!("inbox/a/{name}.task")));
        bed.assert_nothing_runs();
    }
}

#[test]
fn a_stopped_send_that_only_waits_leaves_the_task_running() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &gate.wait_here(&bed));
    let _watcher = bed.watch(&[]);
    let send = bed
        .orch(["send", "a", "work", "--wait", "--name", "x"])
        .start();
    wait_for_started(&bed, 1);
    send.signal("TERM");
    send.wait().one_of(&[End::Signal(15), End::Code(143)]);
    gate.let_through(1);
    wait_for("the task", || bed.has("processed/a/x.task"));
    assert_eq!(bed.count_lines("started"), 1);
}

#[test]
fn the_agents_of_a_killed_watcher_end_by_themselves() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    let naps = [nap(&bed, 0), nap(&bed, 1)];
    bed.script(
        "a",
        &format!(
            "trap '' TERM HUP INT; sleep {} & (setsid sleep {} &); {}",
            naps[0],
            naps[1],
            gate.wait_here(&bed)
        ),
    );
    bed.drop_task("a", "x", "work");
    bed.drop_task("a", "y", "work");
    let watcher = bed.watch(&["--jobs", "2"]);
    wait_for_started(&bed, 2);
    for nap in &naps {
        wait_for("the sleepers", || processes_with(nap).len() == 2);
    }
    watcher.signal("KILL");
    watcher.wait().killed();
    bed.assert_nothing_runs();
    for nap in &naps {
        wait_for("the sleepers to end", || processes_with(nap).is_empty());
    }
    wait_for("the guard to clear away", || {
        bed.ls("logs") == ["orch.jsonl"]
    });
    assert_eq!(
        bed.ls("inbox/a"),
        ["x.claimed", "y.claimed"],
        "the tasks wait for another watcher"
    );
}
