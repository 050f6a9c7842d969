//! `send`, `cancel` and `retry`: what a person types, and what it does to a task.

use std::fs;

use crate::harness::{Bed, Ran, orch, state_of, wait_for};
use crate::props::{Gate, wait_for_started};

fn send(bed: &Bed, args: &[&str]) -> Ran {
    bed.orch([&["send"], args].concat()).run()
}

#[test]
fn a_text_is_sent_as_argument_from_a_file_or_from_standard_input() {
    let bed = Bed::new();
    let ran = send(&bed, &["echo", "by argument", "--name", "a"])
        .says("no watcher is running")
        .expect(0);
    assert_eq!(ran.stdout, "echo/a\n");
    assert!(ran.stderr.contains("orch watch"), "nobody watches: {ran:?}");
    let file = bed.outside.join("request");
    fs::write(&file, "by file\n").unwrap();
    send(
        &bed,
        &["echo", "--file", file.to_str().unwrap(), "--name", "b"],
    )
    .says("no watcher is running")
    .expect(0);
    bed.orch(["send", "echo", "-", "--name", "c"])
        .run_with_input("by dash\n")
        .says("no watcher is running")
        .expect(0);
    bed.orch(["send", "echo", "--name", "d"])
        .run_with_input("by pipe\n")
        .says("no watcher is running")
        .expect(0);
    for (name, text) in [
        ("a", "by argument"),
        ("b", "by file\n"),
        ("c", "by dash\n"),
        ("d", "by pipe\n"),
    ] {
        assert_eq!(bed.read(&format!("inbox/echo/{name}.task")), text);
    }
    let fresh = send(&bed, &["echo", "unnamed"])
        .says("no watcher is running")
        .expect(0)
        .stdout;
    let name = fresh.trim().strip_prefix("echo/").unwrap();
    assert_eq!(bed.read(&format!("inbox/echo/{name}.task")), "unnamed");
    let json = send(&bed, &["echo", "x", "--name", "e", "--json"])
        .says("no watcher is running")
        .expect(0)
        .stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["agent"], &json["task"]),
        (&"echo".into(), &"e".into())
    );
}

#[test]
fn what_cannot_be_sent_is_refused_before_anything_is_written() {
    let bed = Bed::new();
    bed.agent("reviewer", "provider: echo", "");
    let big = "y".repeat((1 << 20) + 1);
    for (args, input, code, part) in [
        (vec!["reviewr", "x"], "", 65, "did you mean `reviewer`"),
        (vec!["No", "x"], "", 64, "`No`"),
        (vec!["echo", "x", "--name", "../x"], "", 64, "../x"),
        (vec!["echo", ""], "", 65, "empty"),
        (vec!["echo", "-"], big.as_str(), 65, "1 MiB"),
        (vec!["echo", "x", "--then", "nobody"], "", 65, "nobody"),
        (vec!["echo", "x", "--provider", "nobody"], "", 65, "nobody"),
        (vec!["echo", "x", "--dir", "nowhere"], "", 65, "nowhere"),
        (vec!["echo", "x", "--context", "k"], "", 64, "K=V"),
    ] {
        let ran = bed
            .orch([vec!["send"], args.clone()].concat())
            .run_with_input(input)
            .about(format!("{args:?}"))
            .fails(code);
        assert!(ran.stderr.contains(part), "{args:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
    }
    assert!(
        bed.ls("inbox/echo").is_empty() && bed.ls("inbox").iter().all(|name| name == "echo"),
        "{:?}",
        bed.ls("inbox")
    );
}

#[test]
fn a_text_is_never_taken_for_front_matter() {
    let bed = Bed::new();
    let text = "---\nprovider: bash\nthen: [human]\n---\nrm -rf everything\n";
    let ran = send(&bed, &["echo", "--wait", "--", text]).expect(0);
    assert_eq!(ran.stdout, text);
    let ran = bed
        .orch(["send", "echo", "-", "--wait", "--context", "k=v"])
        .run_with_input(text)
        .expect(0);
    assert_eq!(ran.stdout, text);
    assert_eq!(bed.ls("inbox"), ["echo"]);
}

#[test]
fn a_name_that_waits_or_is_worked_on_is_not_given_twice() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &format!("{}; cat", gate.wait_here(&bed)));
    send(&bed, &["a", "one", "--name", "x"])
        .says("no watcher is running")
        .expect(0);
    let ran = send(&bed, &["a", "two", "--name", "x"]).fails(75);
    assert!(ran.stderr.contains("`a/x`"), "{ran:?}");
    let _watcher = bed.watch(&[]);
    wait_for_started(&bed, 1);
    send(&bed, &["a", "two", "--name", "x"]).fails(75);
    gate.let_through(1);
    wait_for("the first", || bed.has("processed/a/x.task"));
    assert_eq!(bed.read("artifacts/a/x.out"), "one");
    send(&bed, &["a", "two", "--name", "x"]).expect(0);
    gate.let_through(1);
    wait_for("the second", || bed.has("processed/a/x~1.task"));
    wait_for("the second", || bed.has("processed/a/x.task"));
    assert_eq!(
        (
            bed.read("artifacts/a/x.out"),
            bed.read("artifacts/a/x~1.out")
        ),
        ("two".into(), "one".into())
    );
}

/// The outcomes of a task, as a waiting `send` reports them.
fn outcomes(bed: &Bed) {
    bed.script("good", "cat; echo noise >&2");
    bed.script("bad", "echo partly; echo broken >&2; exit 3");
    bed.write("specs/agents/lost.md", "---\nprovider: lost\n---\n");
    bed.write("specs/agents/needy.md", "---\nprovider: ollama\n---\n");
}

fn assert_outcomes(bed: &Bed) {
    let ran = send(bed, &["good", "exactly\nthis", "--wait"]).expect(0);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("exactly\nthis", "")
    );
    let ran = send(bed, &["bad", "x", "--wait"]).fails(1);
    assert_eq!(ran.stdout, "partly\n");
    assert!(ran.stderr.contains("exit code 3: broken"), "{ran:?}");
    let ran = send(bed, &["needy", "x", "--wait"]).fails(65);
    assert_eq!(ran.stdout, "");
    assert!(
        ran.stderr.contains("${model}") && ran.stderr.contains("hint: "),
        "{ran:?}"
    );
    let ran = send(bed, &["good", "x", "--wait", "--json", "--name", "j"]).expect(0);
    let printed: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed, bed.record("good/j"));
}

#[test]
fn waiting_prints_exactly_the_answer_and_exits_as_the_task_did_without_a_watcher() {
    let bed = Bed::new();
    outcomes(&bed);
    assert_outcomes(&bed);
    assert_eq!(bed.ls("logs"), ["orch.jsonl"]);
}

#[test]
fn waiting_prints_exactly_the_answer_and_exits_as_the_task_did_with_a_watcher() {
    let bed = Bed::new();
    outcomes(&bed);
    let _watcher = bed.watch(&[]);
    assert_outcomes(&bed);
    assert_eq!(bed.ls("logs").len(), 2, "the watcher did the work");
}

#[test]
fn waiting_for_a_name_that_was_used_before_does_not_give_the_old_answer() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &format!("{}; cat", gate.wait_here(&bed)));
    let _watcher = bed.watch(&[]);
    gate.let_through(1);
    assert_eq!(
        send(&bed, &["a", "old", "--name", "x", "--wait"])
            .expect(0)
            .stdout,
        "old"
    );
    // The only slot is taken, so that the second of the name waits beside the first's result.
    bed.drop_task("a", "blocks", "work");
    wait_for_started(&bed, 2);
    let second = bed
        .orch(["send", "a", "new", "--name", "x", "--wait"])
        .start();
    wait_for("the second", || bed.has("inbox/a/x.task"));
    gate.let_through(2);
    assert_eq!(second.wait().expect(0).stdout, "new");
}

#[test]
fn waiting_ends_when_the_time_is_up_with_and_without_a_watcher() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &format!("{}; cat", gate.wait_here(&bed)));
    let ran = send(
        &bed,
        &["a", "x", "--name", "x", "--wait", "--timeout", "400ms"],
    )
    .fails(75);
    assert!(ran.stderr.contains("a/x"), "{ran:?}");
    assert!(bed.has("inbox/a/x.task"), "it waits again");
    bed.assert_nothing_runs();
    let _watcher = bed.watch(&[]);
    wait_for("the watcher to take it", || bed.has("inbox/a/x.claimed"));
    send(
        &bed,
        &["a", "y", "--name", "y", "--wait", "--timeout", "300ms"],
    )
    .fails(75);
    gate.let_through(2);
    wait_for("both to be done", || {
        bed.has("processed/a/x.task") && bed.has("processed/a/y.task")
    });
}

#[test]
fn waiting_ends_when_the_watcher_dies_and_the_work_is_done_here() {
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
    let watcher = bed.watch(&[]);
    let waits = bed.orch(["send", "a", "hello", "--wait"]).start();
    wait_for_started(&bed, 1);
    watcher.signal("KILL");
    assert_eq!(waits.wait().expect(0).stdout, "hello");
}

#[test]
fn waiting_ends_when_the_task_is_taken_away() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    bed.script("a", &gate.wait_here(&bed));
    let _watcher = bed.watch(&[]);
    let running = bed
        .orch(["send", "a", "x", "--wait", "--name", "x"])
        .start();
    wait_for_started(&bed, 1);
    let waiting = bed
        .orch(["send", "a", "y", "--wait", "--name", "y"])
        .start();
    wait_for("the second to wait", || bed.has("inbox/a/y.task"));
    fs::remove_file(bed.root.join("inbox/a/y.task")).unwrap();
    let ran = waiting.wait().fails(1);
    assert!(ran.stderr.contains("a/y"), "{ran:?}");
    bed.orch(["cancel", "a/x"]).run().expect(0);
    let ran = running.wait().fails(1);
    assert!(ran.stderr.contains("cancelled"), "{ran:?}");
}

#[test]
fn two_that_wait_side_by_side_without_a_watcher_both_get_their_answer() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.script("a", &format!("{}; cat", gate.wait_here(&bed)));
    let both = ["one", "two"].map(|text| {
        bed.orch(["send", "a", text, "--wait", "--name", text])
            .start()
    });
    wait_for_started(&bed, 2);
    gate.let_through(2);
    let answers = both.map(|send| send.wait().expect(0).stdout);
    assert_eq!(answers, ["one", "two"]);
    assert_eq!(bed.count_lines("started"), 2);
}

#[test]
fn dir_provider_and_then_are_sent_with_the_task() {
    let bed = Bed::new();
    bed.settings(&format!(
        "dirs: {{app: {{path: {}}}}}\n",
        bed.outside.display()
    ));
    bed.script("a", "pwd -P; cat");
    bed.agent("b", "provider: echo", "");
    let ran = send(&bed, &["a", "hi", "--dir", "app", "--wait"]).expect(0);
    assert_eq!(ran.stdout, format!("{}\nhi", bed.outside.display()));
    let ran = send(&bed, &["b", "hi", "--provider", "a-script", "--wait"]).expect(0);
    assert_eq!(ran.stdout, format!("{}\nhi", bed.root.display()));
    send(
        &bed,
        &["echo", "hi", "--then", "b", "--then", "a", "--name", "x"],
    )
    .says("no watcher is running")
    .expect(0);
    bed.drain().expect(0);
    assert!(
        bed.has("processed/echo/x.task")
            && bed.has("processed/b/x.task")
            && bed.has("processed/a/x.task")
    );
}

fn cancel(bed: &Bed, target: &str) -> Ran {
    bed.orch(["cancel", target]).run()
}

fn assert_cancelled(bed: &Bed, target: &str) {
    let record = bed.record(target);
    assert_eq!(
        (&record["status"], &record["error"]["kind"]),
        (&"cancelled".into(), &"Cancelled".into())
    );
    let (agent, name) = target.split_once('/').unwrap();
    assert!(bed.has(&format!("processed/{agent}/{name}.failed")));
    assert!(
        bed.ls(&format!("inbox/{agent}"))
            .iter()
            .all(|file| !file.starts_with(name))
    );
}

#[test]
fn a_waiting_task_is_cancelled_and_never_run() {
    let bed = Bed::new();
    bed.script("a", "echo >> ran");
    bed.drop_task("a", "x", "work");
    cancel(&bed, "a/x").expect(0);
    assert_cancelled(&bed, "a/x");
    bed.drain().expect(0);
    assert!(!bed.has("ran"));
}

#[test]
fn a_running_task_is_cancelled_and_its_agent_ended_at_once() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    bed.script("a", &format!("echo begun; {}", gate.wait_here(&bed)));
    let watcher = bed.watch(&[]);
    bed.drop_task("a", "x", "work");
    wait_for_started(&bed, 1);
    let ran = cancel(&bed, "a/x").expect(0);
    assert!(ran.stdout.contains("a/x"), "{ran:?}");
    bed.assert_nothing_runs();
    // The watcher is done with it when it takes the next.
    bed.drop_task("echo", "y", "hello");
    wait_for("the next", || bed.has("processed/echo/y.task"));
    assert_cancelled(&bed, "a/x");
    watcher.signal("TERM");
    let ran = watcher.wait().says("cancelled").expect(143);
    assert!(ran.stderr.contains("cancelled a/x"), "{ran:?}");
    assert!(!ran.stderr.contains("trouble"), "{ran:?}");
    assert_eq!(bed.ls("inbox/a"), [""; 0]);
    let kept: Vec<_> = bed
        .ls("artifacts/a")
        .into_iter()
        .filter(|file| file.ends_with(".out"))
        .collect();
    assert_eq!(
        bed.read(&format!("artifacts/a/{}", kept[0])),
        "begun\n",
        "what it printed is kept"
    );
    assert_eq!(bed.status("a/x"), "cancelled");
}

#[test]
fn a_task_of_a_dead_watcher_is_cancelled() {
    let bed = Bed::new();
    bed.script("a", "cat");
    bed.drop_task("a", "x", "work");
    bed.orch(["watch", "--drain"])
        .env("ORCH_FAULT", "kill:run.ended")
        .run()
        .killed();
    assert!(bed.has("inbox/a/x.claimed"));
    let ran = cancel(&bed, "a/x").expect(0);
    assert!(ran.stdout.contains("had died"), "{ran:?}");
    assert_cancelled(&bed, "a/x");
    bed.drain().expect(0);
    assert_cancelled(&bed, "a/x");
}

#[test]
fn what_is_unknown_or_finished_cannot_be_cancelled() {
    let bed = Bed::new();
    send(&bed, &["echo", "hi", "--name", "x", "--wait"]).expect(0);
    for target in ["echo/x", "echo/never", "nobody/x"] {
        let ran = cancel(&bed, target).fails(1);
        assert!(ran.stderr.contains("neither waits nor runs"), "{ran:?}");
    }
    assert_eq!(bed.status("echo/x"), "succeeded");
    let ran = cancel(&bed, "x").fails(1);
    assert!(ran.stderr.contains("there is no run `x`"), "{ran:?}");
}

#[test]
fn removing_the_claim_cancels_too() {
    let bed = Bed::new();
    let gate = Gate::new(&bed, "gate");
    bed.script("a", &gate.wait_here(&bed));
    let _watcher = bed.watch(&[]);
    bed.drop_task("a", "x", "work");
    wait_for_started(&bed, 1);
    fs::remove_file(bed.root.join("inbox/a/x.claimed")).unwrap();
    bed.assert_nothing_runs();
    wait_for("the attempt to be kept", || bed.has("artifacts/a/x~1.json"));
    let record = bed.record("a/x~1");
    assert_eq!(
        (&record["status"], &record["uncommitted"]),
        (&"cancelled".into(), &true.into())
    );
    assert!(!bed.has("artifacts/a/x.json"));
    assert_eq!(bed.ls("processed/a"), [""; 0]);
}

/// A cancel that strikes while the owner stands right before this point of its commit.
fn cancel_during(point: &str) -> (Bed, Ran, Ran) {
    let bed = Bed::new();
    bed.script("a", "cat");
    bed.drop_task("a", "x", "work");
    let owner = bed
        .orch(["watch", "--drain"])
        .env("ORCH_FAULT", format!("stop:{point}"))
        .start();
    wait_for("the owner to stop", || state_of(owner.pid()) == "T");
    let cancelled = cancel(&bed, "a/x");
    owner.signal("CONT");
    let ran = owner.wait();
    (bed, cancelled, ran)
}

#[test]
fn a_cancel_while_the_owner_commits_has_one_winner() {
    for point in [
        "run.ended",
        "commit.create",
        "commit.write",
        "commit.sync",
        "commit.rename",
    ] {
        let (bed, cancelled, owner) = cancel_during(point);
        cancelled.expect(0);
        assert_cancelled(&bed, "a/x");
        let owner = owner.about(point).says("cancelled").expect(0);
        assert!(!owner.stderr.contains("trouble"), "{point}: {owner:?}");
        let files = bed.ls("artifacts/a");
        assert!(
            files.iter().all(|file| !file.starts_with('.')),
            "{point}: {files:?}"
        );
        assert_eq!(bed.ls("processed/a"), ["x.failed"], "{point}");
    }
    for point in ["commit.sync-folder", "retire.rename"] {
        let (bed, cancelled, owner) = cancel_during(point);
        let ran = cancelled.fails(75);
        assert!(ran.stderr.contains("finished just now"), "{point}: {ran:?}");
        owner.expect(0);
        assert_eq!(bed.status("a/x"), "succeeded", "{point}");
        assert_eq!(bed.ls("processed/a"), ["x.task"], "{point}");
    }
}

#[test]
fn a_cancelled_task_that_is_sent_again_at_once_keeps_its_own_files() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    bed.settings("limits: {grace: 10m}\n");
    let told = bed.outside.join("told");
    bed.script(
        "a",
        &format!(
            "if grep -q first; then trap 'touch {}' TERM; {}; while [ ! -e {} ]; do sleep 0.02; done; read x < {}; else echo second; {}; fi",
            told.display(), gate.wait_here(&bed), told.display(), gate.path.display(), gate.wait_here(&bed)
        ),
    );
    let _one = bed.watch(&[]);
    bed.drop_task("a", "x", "first");
    wait_for_started(&bed, 1);
    cancel(&bed, "a/x").expect(0);
    // The first is still saving its work when the second of its name begins elsewhere.
    wait_for("the first to be asked to end", || told.exists());
    let _two = bed.orch(["watch", "--durability", "process"]).start();
    bed.drop_task("a", "x", "second");
    wait_for_started(&bed, 2);
    gate.let_through(2);
    wait_for("the second", || bed.has("processed/a/x.task"));
    wait_for("the first to be put away", || bed.agents_alive().is_empty());
    bed.drop_task("echo", "y", "hello");
    wait_for("both to be idle", || bed.has("processed/echo/y.task"));
    assert_eq!(bed.read("artifacts/a/x.out"), "second\n");
    assert_eq!(bed.status("a/x"), "succeeded");
}

fn retry(bed: &Bed, target: &str) -> Ran {
    bed.orch(["retry", target]).run()
}

#[test]
fn a_finished_task_is_run_again_with_the_same_bytes() {
    let bed = Bed::new();
    let flag = bed.outside.join("flag");
    bed.script("a", &format!("cat; [ -e {} ]", flag.display()));
    bed.drop_task("a", "x", "---\ntimeout: 20m\n---\nwork\n");
    bed.drain().expect(1);
    fs::write(&flag, "").unwrap();
    for (round, ended) in [(1, "failed"), (2, "succeeded")] {
        assert_eq!(bed.status("a/x"), ended);
        let ran = retry(&bed, "a/x").says("no watcher is running").expect(0);
        assert!(ran.stderr.contains("orch watch"), "nobody watches: {ran:?}");
        assert_eq!(bed.read("inbox/a/x.task"), "---\ntimeout: 20m\n---\nwork\n");
        assert_eq!(bed.ls("processed/a"), [""; 0]);
        retry(&bed, "a/x").fails(1);
        bed.drain().expect(0);
        assert_eq!(bed.status("a/x"), "succeeded");
        assert_eq!(bed.record("a/x")["attempt"], 1);
        assert_eq!(bed.status(&format!("a/x~{round}")), ended);
    }
    assert_eq!(bed.ls("processed/a"), ["x.task"]);
}

#[test]
fn what_does_not_exist_or_waits_cannot_be_retried() {
    let bed = Bed::new();
    let ran = retry(&bed, "echo/x").fails(1);
    assert!(ran.stderr.contains("no finished task `echo/x`"), "{ran:?}");
    send(&bed, &["echo", "hi", "--name", "x", "--wait"]).expect(0);
    bed.drop_task("echo", "x", "another");
    retry(&bed, "echo/x").fails(75);
    assert_eq!(bed.read("inbox/echo/x.task"), "another");
    retry(&bed, "x").fails(64);
}

#[test]
fn an_agent_may_not_retry_even_with_a_clean_environment() {
    let bed = Bed::new();
    send(&bed, &["echo", "hi", "--name", "x", "--wait"]).expect(0);
    let orch = orch().display();
    for (agent, command) in [
        ("plain", format!("{orch} retry echo/x; echo code $?")),
        (
            "sly",
            format!("env -i ORCH_ROOT=$ORCH_ROOT {orch} retry echo/x; echo code $?"),
        ),
        (
            "slier",
            format!("env -i ORCH_ROOT=$ORCH_ROOT setsid {orch} retry echo/x; echo code $?"),
        ),
    ] {
        bed.script(agent, &command);
        bed.drop_task(agent, "x", "work");
        bed.drain().expect(0);
        assert_eq!(
            bed.read(&format!("artifacts/{agent}/x.out")),
            "code 1\n",
            "{agent}"
        );
        assert!(
            bed.read(&format!("artifacts/{agent}/x.err"))
                .contains("inside a task"),
            "{agent}"
        );
    }
    assert!(bed.has("processed/echo/x.task"));
}
