//! Several watchers on one root: every task once, the dead's work taken over, the living's never.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::harness::{Bed, End, Running, let_pass, orch, state_of, ticks_of, wait_for};
use crate::props::{Gate, is_watching, wait_for_started};

/// Soon enough for "at once", also on a busy machine: below the timer of an idle watcher.
const PROMPT: Duration = Duration::from_secs(25);

/// Watchers that work while one after the other is killed and replaced.
fn work_under_fire(bed: &Bed, watchers: usize, tasks: usize, agent: &str) -> usize {
    let start = || bed.orch(["watch", "--durability", "process"]).start();
    let mut running: Vec<Running> = (0..watchers).map(|_| start()).collect();
    let count = || bed.ls(&format!("processed/{agent}")).len();
    let (mut done, mut kills) = (0, 0);
    while done < tasks {
        // However slow the machine is, each has the time to do something; a kill may strike anywhere.
        wait_for("another task to be done", || count() > done);
        let_pass(Duration::from_millis(kills as u64 * 37 % 300));
        done = count();
        let victim = &mut running[kills % watchers];
        victim.signal("KILL");
        *victim = start();
        kills += 1;
    }
    for watcher in running {
        watcher.signal("TERM");
        // One that was started a moment ago may not handle signals yet.
        watcher
            .wait()
            .may_say(&["take over "])
            .one_of(&[End::Code(143), End::Signal(15)]);
    }
    kills
}

/// Every task is committed once, and lies in one place.
fn assert_each_once(bed: &Bed, tasks: usize, agent: &str) {
    bed.drain().expect(0);
    let names: Vec<String> = (0..tasks).map(|n| format!("t{n:04}")).collect();
    let processed: Vec<String> = names.iter().map(|name| format!("{name}.task")).collect();
    assert_eq!(bed.ls(&format!("processed/{agent}")), processed);
    assert_eq!(bed.ls(&format!("inbox/{agent}")), [""; 0]);
    let files = bed.ls(&format!("artifacts/{agent}"));
    for name in &names {
        let record = bed.record(&format!("{agent}/{name}"));
        assert_eq!(
            (&record["status"], &record["uncommitted"]),
            (&"succeeded".into(), &().into()),
            "{name}"
        );
    }
    for file in files
        .iter()
        .filter(|file| file.contains('~') && file.ends_with(".json"))
    {
        let kept = bed.record(&format!("{agent}/{}", file.strip_suffix(".json").unwrap()));
        assert_eq!(
            kept["uncommitted"], true,
            "{file} is a second commit: {kept}"
        );
    }
    let temporary: Vec<_> = files.iter().filter(|file| file.starts_with('.')).collect();
    assert_eq!(temporary, [""; 0]);
    wait_for("the guards to clear away", || {
        bed.ls("logs") == ["orch.jsonl"]
    });
    bed.assert_nothing_runs();
}

fn drop_many(bed: &Bed, tasks: usize, agent: &str) {
    for n in 0..tasks {
        bed.drop_task(agent, &format!("t{n:04}"), format!("number {n}"));
    }
}

fn scripts_under_fire(watchers: usize) {
    let tasks = 300;
    let bed = Bed::new();
    bed.settings("limits: {interrupted: 100, grace: 200ms}\n");
    let count = bed.outside.join("count");
    bed.script("a", &format!("echo $ORCH_TASK >> {}; cat", count.display()));
    drop_many(&bed, tasks, "a");
    let kills = work_under_fire(&bed, watchers, tasks, "a");
    assert_each_once(&bed, tasks, "a");
    let executions = bed.count_lines("count");
    assert!(
        (tasks..=tasks + kills).contains(&executions),
        "{executions} executions, {kills} kills"
    );
    for n in 0..tasks {
        assert_eq!(
            bed.read(&format!("artifacts/a/t{n:04}.out")),
            format!("number {n}")
        );
    }
}

#[test]
fn two_watchers_of_which_one_dies_again_and_again_do_every_task_once() {
    scripts_under_fire(2);
}

#[test]
fn eight_watchers_of_which_one_dies_again_and_again_do_every_task_once() {
    scripts_under_fire(8);
}

/// Many short tasks, so that a kill strikes between any two steps of them.
fn echoes_under_fire(watchers: usize) {
    let bed = Bed::new();
    bed.settings("limits: {interrupted: 100}\n");
    drop_many(&bed, 2000, "echo");
    work_under_fire(&bed, watchers, 2000, "echo");
    assert_each_once(&bed, 2000, "echo");
}

#[test]
fn two_watchers_under_fire_commit_two_thousand_tasks_once_each() {
    echoes_under_fire(2);
}

#[test]
fn eight_watchers_under_fire_commit_two_thousand_tasks_once_each() {
    echoes_under_fire(8);
}

#[test]
fn a_watcher_that_comes_late_to_a_task_leaves_its_result_alone() {
    let bed = Bed::new();
    bed.drop_task("echo", "x", "hello");
    let late = bed
        .orch(["watch", "--drain", "--durability", "process"])
        .env("ORCH_FAULT", "stop:claim.lock")
        .start();
    wait_for("it to have opened the task", || state_of(late.pid()) == "T");
    bed.drain().expect(0);
    let record = bed.read("artifacts/echo/x.json");
    late.signal("CONT");
    late.wait().expect(0);
    assert_eq!(bed.read("artifacts/echo/x.json"), record);
    assert_eq!(bed.ls("artifacts/echo"), ["x.json", "x.out"]);
    assert_eq!(bed.ls("processed/echo"), ["x.task"]);
}

#[test]
fn a_dead_watchers_task_is_taken_over_by_an_idle_one_at_once() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    bed.script(
        "a",
        &format!(
            "if [ ! -e {0} ]; then touch {0}; {1}; fi; cat",
            bed.outside.join("once").display(),
            gate.wait_here(&bed)
        ),
    );
    let first = bed.watch(&[]);
    bed.drop_task("a", "x", "work");
    wait_for_started(&bed, 1);
    let second = bed.watch(&[]);
    let killed = Instant::now();
    first.signal("KILL");
    wait_for("the task to be done", || bed.has("processed/a/x.task"));
    assert!(killed.elapsed() < PROMPT, "it took {:?}", killed.elapsed());
    assert_eq!(bed.record("a/x")["attempt"], 2);
    drop(second);
}

#[test]
fn a_busy_watcher_does_not_keep_a_dead_ones_task_from_an_idle_one() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    let once = bed.outside.join("once");
    bed.script(
        "a",
        &format!(
            "if [ ! -e {0} ]; then touch {0}; {1}; fi; cat",
            once.display(),
            gate.wait_here(&bed)
        ),
    );
    bed.script("long", &gate.wait_here(&bed));
    let dies = bed.watch(&["--agent", "a"]);
    bed.drop_task("a", "x", "work");
    wait_for_started(&bed, 1);
    let _busy = bed.watch(&[]);
    bed.drop_task("long", "y", "work");
    wait_for_started(&bed, 2);
    dies.signal("KILL");
    dies.wait().killed();
    bed.assert_only_runs("long/y");
    // The busy one has time to notice; only then does an idle one come.
    let_pass(Duration::from_millis(2500));
    let _idle = bed
        .orch(["watch", "--durability", "process", "--agent", "a"])
        .start();
    let came = Instant::now();
    wait_for("the task to be done", || bed.has("processed/a/x.task"));
    assert!(came.elapsed() < PROMPT, "it took {:?}", came.elapsed());
    assert!(bed.has("inbox/long/y.claimed"));
}

#[test]
fn a_living_watchers_task_is_never_taken() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &gate.wait_here(&bed));
    let _first = bed.watch(&[]);
    bed.drop_task("a", "x", "work");
    wait_for_started(&bed, 1);
    let _second = bed.watch(&["--poll", "20ms"]);
    let third = bed.orch(["watch", "--drain", "--poll", "20ms"]).start();
    for n in 0..50 {
        bed.drop_task("echo", &format!("t{n}"), "hello");
    }
    wait_for("the others to be at work", || {
        bed.ls("processed/echo").len() == 50
    });
    assert_eq!(bed.count_lines("started"), 1);
    assert!(bed.has("inbox/a/x.claimed"));
    gate.let_through(1);
    third.wait().expect(0);
    assert_eq!(
        bed.status("a/x"),
        "succeeded",
        "a drain ends after another's claim"
    );
    assert_eq!(bed.record("a/x")["attempt"], 1);
    assert_eq!(bed.count_lines("started"), 1);
}

#[test]
fn a_drain_waits_for_another_watchers_claim() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &gate.wait_here(&bed));
    let _watcher = bed.watch(&[]);
    bed.drop_task("a", "x", "work");
    wait_for_started(&bed, 1);
    let drain = bed
        .orch(["watch", "--drain", "--durability", "process"])
        .start();
    bed.drop_task("echo", "y", "hello");
    wait_for("somebody to do the other", || {
        bed.has("processed/echo/y.task")
    });
    let_pass(Duration::from_secs(1));
    assert_ne!(state_of(drain.pid()), "Z", "it ended early");
    let ticks = ticks_of(drain.pid());
    assert!(ticks < 40, "waiting took {ticks} ticks of the processor");
    gate.let_through(1);
    drain.wait().expect(0);
    assert!(bed.has("artifacts/a/x.json"));
}

#[test]
fn only_the_agents_that_were_asked_for_are_worked_on() {
    let bed = Bed::new();
    for agent in ["a", "b", "c"] {
        bed.script(agent, "cat");
        bed.drop_task(agent, "x", "work");
    }
    bed.orch(["watch", "--drain", "--agent", "a", "--agent", "c"])
        .run()
        .expect(0);
    assert!(bed.has("processed/a/x.task") && bed.has("processed/c/x.task"));
    assert!(bed.has("inbox/b/x.task"));
    assert!(!bed.has("artifacts/b/x.out"));
    bed.orch(["watch", "--drain", "--agent", "No Agent"])
        .run()
        .fails(64);
}

#[test]
fn polling_finds_what_events_would_tell() {
    let bed = Bed::new();
    let _watcher = bed.watch(&["--poll", "50ms"]);
    bed.drop_task("echo", "x", "hello");
    wait_for("the task", || bed.has("processed/echo/x.task"));
    bed.drop_task("echo", "y", "hello");
    wait_for("the second", || bed.has("processed/echo/y.task"));
}

#[test]
fn as_many_tasks_run_at_once_as_there_are_jobs_and_never_more() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &gate.wait_here(&bed));
    let _watcher = bed.watch(&["--jobs", "3"]);
    for n in 0..8 {
        bed.drop_task("a", &format!("t{n}"), "work");
    }
    for finished in 0..8_usize {
        let expected = (finished + 3).min(8);
        wait_for_started(&bed, expected);
        wait_for("the claims", || {
            let claimed = bed
                .ls("inbox/a")
                .iter()
                .filter(|name| name.ends_with(".claimed"))
                .count();
            claimed == expected - finished
        });
        assert_eq!(bed.count_lines("started"), expected);
        gate.let_through(1);
        wait_for("one to end", || bed.ls("processed/a").len() == finished + 1);
    }
}

#[test]
fn one_task_at_a_time_works_in_a_dir_also_with_two_watchers() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.settings(&format!(
        "dirs: {{app: {{path: {}}}}}\n",
        bed.outside.display()
    ));
    bed.script("a", &format!("{}; cat", gate.wait_here(&bed)));
    let _first = bed.watch(&["--jobs", "2"]);
    let _second = bed.watch(&["--jobs", "2"]);
    for name in ["x", "y"] {
        bed.drop_task("a", name, "---\ndir: app\n---\nwork");
    }
    wait_for_started(&bed, 1);
    // Others that need no dir, or none at all, are not held up.
    for n in 0..20 {
        bed.drop_task("echo", &format!("t{n}"), "hello");
    }
    wait_for("the others", || bed.ls("processed/echo").len() == 20);
    let_pass(Duration::from_millis(500));
    assert_eq!(bed.count_lines("started"), 1, "two tasks work in one dir");
    gate.let_through(1);
    wait_for_started(&bed, 2);
    assert_eq!(bed.ls("processed/a").len(), 1);
    gate.let_through(1);
    wait_for("both", || bed.ls("processed/a").len() == 2);
}

#[test]
fn an_agent_may_send_tasks_and_work_them_off() {
    let bed = Bed::new();
    bed.script(
        "a",
        &format!("{} send echo inner --name y", orch().display()),
    );
    bed.drop_task("a", "x", "work");
    bed.drain().expect(0);
    assert_eq!(bed.read("artifacts/a/x.out"), "echo/y\n");
    assert_eq!(bed.read("artifacts/echo/y.out"), "inner");
}

#[test]
fn a_drain_inside_agents_does_not_wait_for_the_tasks_it_runs_under() {
    let bed = Bed::new();
    let orch = orch().display();
    bed.script(
        "outer",
        &format!(
            "{orch} send inner go --name y && {orch} watch --drain --agent inner --agent outer"
        ),
    );
    bed.script(
        "inner",
        &format!("{orch} send echo deep --name z && {orch} watch --drain"),
    );
    bed.drop_task("outer", "x", "---\ntimeout: 10m\n---\nwork");
    bed.orch(["watch", "--drain", "--agent", "outer"])
        .run()
        .expect(0);
    assert_eq!(bed.status("outer/x"), "succeeded");
    assert_eq!(bed.status("inner/y"), "succeeded");
    assert_eq!(bed.read("artifacts/echo/z.out"), "deep");
}

#[test]
fn an_agent_that_would_wait_for_itself_is_told_so() {
    let bed = Bed::new();
    let wait = format!(
        "{} send echo inner --wait --name y; echo code $?",
        orch().display()
    );
    bed.script("a", &wait);
    bed.drop_task("a", "x", "---\ntimeout: 10m\n---\nwork");
    bed.drain().expect(0);
    assert_eq!(bed.read("artifacts/a/x.out"), "code 75\n");
    assert!(bed.read("artifacts/a/x.err").contains("--jobs"));
    assert!(
        !bed.has("artifacts/echo/y.json"),
        "what was refused was not sent"
    );
}

#[test]
fn slots_for_other_agents_do_not_count_for_an_agent_that_would_wait_for_itself() {
    let bed = Bed::new();
    bed.script(
        "a",
        &format!(
            "{} send a inner --wait --name y; echo code $?",
            orch().display()
        ),
    );
    let _a = bed.watch(&["--agent", "a"]);
    let _other = bed.watch(&["--agent", "other", "--jobs", "4"]);
    bed.drop_task("a", "x", "---\ntimeout: 10m\n---\nwork");
    wait_for("the task", || bed.has("artifacts/a/x.json"));
    assert_eq!(bed.read("artifacts/a/x.out"), "code 75\n");
}

#[test]
fn an_agent_may_wait_where_there_is_a_slot() {
    let bed = Bed::new();
    bed.script("a", &format!("{} send echo inner --wait", orch().display()));
    bed.drop_task("a", "x", "---\ntimeout: 10m\n---\nwork");
    bed.orch(["watch", "--drain", "--jobs", "2"])
        .run()
        .expect(0);
    assert_eq!(bed.read("artifacts/a/x.out"), "inner");
}

#[test]
fn a_watcher_says_that_it_watches_when_it_notices_whatever_comes() {
    let bed = Bed::new();
    let folders: Vec<PathBuf> = (0..200)
        .map(|n| bed.root.join(format!("inbox/a{n}")))
        .collect();
    for folder in &folders {
        fs::create_dir(folder).unwrap();
    }
    let watcher = bed.watch(&[]);
    for folder in &folders {
        assert!(is_watching(watcher.pid(), folder), "{}", folder.display());
    }
    watcher.signal("TERM");
    let ran = watcher.wait().expect(143);
    assert_eq!(ran.stderr.matches("watching ").count(), 1, "{ran:?}");
}

#[test]
fn a_watcher_says_it_to_programs_too_before_anything_else_and_a_drain_does_not() {
    let bed = Bed::new();
    bed.drop_task("echo", "x", "hello");
    let watcher = bed.orch(["watch", "--json"]).start();
    wait_for("the task", || bed.has("processed/echo/x.task"));
    watcher.signal("TERM");
    let ran = watcher.wait().expect(143);
    assert!(
        ran.stdout.starts_with("{\"event\":\"watching\"}\n"),
        "{ran:?}"
    );
    assert_eq!(ran.stdout.matches("\"watching\"").count(), 1, "{ran:?}");
    bed.drop_task("echo", "y", "hello");
    let ran = bed.orch(["watch", "--drain", "--json"]).run().expect(0);
    assert!(!ran.stdout.contains("\"watching\""), "{ran:?}");
    let ran = bed.drain().expect(0);
    assert!(!ran.stderr.contains("watching "), "{ran:?}");
}
