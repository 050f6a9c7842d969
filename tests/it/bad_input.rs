//! What cannot be a task is rejected with its reason, place and hint; its bytes stay as they were
//! dropped, and nobody else's task waits for it.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Bed, wait_for};

/// An agent `a` that copies its task, and a good task behind the bad one.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.script("a", "cat");
    bed.drop_task("a", "zz-good", "good");
    bed
}

/// Fails unless `a/x` was rejected like this, with its bytes unchanged, and the good task was done.
#[track_caller]
fn assert_rejected(bed: &Bed, bytes: &[u8], kind: &str, words: &[&str]) -> Value {
    let record = bed.record("a/x");
    assert_eq!(record["status"], "rejected", "{record:#}");
    let error = &record["error"];
    assert_eq!(error["kind"], kind, "{record:#}");
    let text = format!("{} | {}", error["message"], error["hint"]);
    for word in words {
        assert!(text.contains(word), "`{word}` is not in {text}");
    }
    assert!(error["hint"].is_string(), "there is no hint: {record:#}");
    assert!(
        fs::read(bed.root.join("processed/a/x.failed")).unwrap() == bytes,
        "its bytes changed"
    );
    assert_eq!(bed.ls("inbox/a"), [""; 0]);
    assert!(!bed.has("artifacts/a/x.out"), "it was run");
    assert_eq!(bed.status("a/zz-good"), "succeeded");
    record
}

#[track_caller]
fn rejects(task: impl AsRef<[u8]>, kind: &str, words: &[&str]) {
    let bed = bed();
    bed.drop_task("a", "x", &task);
    bed.drain().expect(1);
    assert_rejected(&bed, task.as_ref(), kind, words);
}

#[test]
fn an_empty_task_is_rejected_but_not_within_a_second() {
    let bed = bed();
    let started = Instant::now();
    bed.drop_task("a", "x", "");
    bed.drain().expect(1);
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_rejected(&bed, b"", "InvalidTask", &["empty"]);
}

#[test]
fn whitespace_alone_is_no_task() {
    rejects(" \n\t\n", "InvalidTask", &["empty", "plain text"]);
    rejects(
        "---\ntimeout: 5m\n---\n  \n",
        "InvalidTask",
        &["no text below"],
    );
}

#[test]
fn a_task_of_one_mebibyte_is_taken_and_one_byte_more_is_not() {
    let bed = bed();
    let longest = "a".repeat(1024 * 1024);
    bed.drop_task("a", "longest", &longest);
    bed.drop_task("a", "x", longest.clone() + "a");
    bed.drain().expect(1);
    assert_rejected(
        &bed,
        (longest + "a").as_bytes(),
        "InvalidTask",
        &["longer than 1MiB"],
    );
    assert_eq!(bed.status("a/longest"), "succeeded");
}

#[test]
fn a_huge_task_is_rejected_without_being_read() {
    let bed = bed();
    fs::create_dir_all(bed.root.join("inbox/a")).unwrap();
    let huge = File::create(bed.root.join("inbox/a/x.task")).unwrap();
    huge.set_len(200_000_000).unwrap();
    drop(huge);
    bed.script("peek", "grep VmHWM /proc/$PPID/status");
    bed.drop_task("peek", "memory", "how much memory did the watcher use?");
    bed.drain().expect(1);
    assert_eq!(bed.record("a/x")["error"]["kind"], "InvalidTask");
    let left = fs::metadata(bed.root.join("processed/a/x.failed")).unwrap();
    assert_eq!(left.len(), 200_000_000);
    let said = bed.read("artifacts/peek/memory.out");
    let kib: u64 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 64 * 1024, "the watcher used {kib} KiB");
}

#[test]
fn what_is_not_utf8_is_rejected_with_the_place() {
    rejects(
        b"line one\nline \xff two",
        "InvalidTask",
        &["not UTF-8", "offset 14", "line 2"],
    );
}

#[test]
fn front_matter_that_never_ends_is_rejected() {
    rejects(
        "---\ntimeout: 5m\nthe text",
        "InvalidTask",
        &["line 1", "never closed", "---"],
    );
}

#[test]
fn malformed_front_matter_is_rejected_with_line_and_column() {
    rejects(
        "---\ntimeout: 5m\ncontext: [1, 2\n---\ntext",
        "InvalidTask",
        &["line ", "column "],
    );
    rejects(
        "---\n\ttimeout: 5m\n---\ntext",
        "InvalidTask",
        &["line 2", "column ", "tab"],
    );
    rejects(
        "---\ntext without a key\n---\ntext",
        "InvalidTask",
        &["line 2"],
    );
    rejects("---\n- a\n- b\n---\ntext", "InvalidTask", &["line 2"]);
}

#[test]
fn an_unknown_key_is_rejected_with_the_nearest_one() {
    rejects(
        "---\ntimeuot: 5m\n---\ntext",
        "InvalidTask",
        &["line 2", "timeuot", "did you mean `timeout`"],
    );
    rejects("---\nrm -rf: 5m\n---\ntext", "InvalidTask", &["line 2"]);
}

#[test]
fn keys_that_are_given_twice_and_tags_are_rejected() {
    rejects(
        "---\ntimeout: 5m\ntimeout: 6m\n---\ntext",
        "InvalidTask",
        &["line 3", "timeout"],
    );
    rejects(
        "---\nmodel: !!python/object:os.system rm\n---\ntext",
        "InvalidTask",
        &["line 2", "tag"],
    );
}

#[test]
fn values_of_the_wrong_type_are_rejected() {
    for (front, word) in [
        ("timeout: soon", "timeout"),
        ("timeout: -5m", "timeout"),
        ("timeout: [5m]", "timeout"),
        ("then: {a: b}", "then"),
        ("then: [Not_An_Agent]", "then"),
        ("provider: [echo]", "provider"),
        ("context: text", "context"),
        ("access: everything", "access"),
        ("hops: 256", "hops"),
        ("attempt: -1", "attempt"),
    ] {
        rejects(
            format!("---\n{front}\n---\ntext"),
            "InvalidTask",
            &["line 2", word],
        );
    }
}

#[test]
fn an_unknown_agent_is_rejected_and_the_hint_names_the_file_to_write() {
    let bed = bed();
    bed.drop_task("nobody", "x", "text");
    bed.drain().expect(1);
    let error = bed.record("nobody/x")["error"].clone();
    assert_eq!(error["kind"], "UnknownAgent");
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("specs/agents/nobody.md"),
        "{error}"
    );
    assert_eq!(bed.read("processed/nobody/x.failed"), "text");
    assert_eq!(bed.status("a/zz-good"), "succeeded");
    let near = bed.orch(["send", "aa", "text"]).run().fails(65);
    assert!(near.stderr.contains("did you mean `a`"), "{near:?}");
}

#[test]
fn unknown_providers_dirs_and_workflows_are_rejected() {
    rejects(
        "---\nprovider: cluade\n---\ntext",
        "UnknownProvider",
        &["cluade", "claude"],
    );
    rejects(
        "---\ndir: app\n---\ntext",
        "UnknownDir",
        &["app", "specs/orch.yaml"],
    );
    rejects(
        "---\nworkflow: four-pass\n---\ntext",
        "UnknownWorkflow",
        &["four-pass"],
    );
    rejects(
        "---\nthen: nobody\n---\ntext",
        "UnknownAgent",
        &["nobody", "specs/agents/nobody.md"],
    );
}

#[test]
fn a_task_may_not_bring_its_own_shell() {
    rejects(
        "---\nprovider: bash\n---\ntouch /tmp/x",
        "InvalidTask",
        &["bash", "specs/agents/a.md"],
    );
    rejects(
        "---\nprovider: shell\n---\ntouch /tmp/x",
        "InvalidTask",
        &["shell"],
    );
}

#[test]
fn the_keys_of_the_engine_grant_nothing() {
    for front in ["run: 20260101T000000Z-x-0000", "step: build", "attempt: 2"] {
        rejects(
            format!("---\n{front}\n---\ntext"),
            "InvalidTask",
            &["orch's own keys"],
        );
    }
    rejects(
        "---\nhops: 255\nthen: a\n---\ntext",
        "LimitExceeded",
        &["16 times", "circle"],
    );
    rejects(
        "---\nhops: 16\nthen: a\n---\ntext",
        "LimitExceeded",
        &["16 times"],
    );
}

#[test]
fn nul_bytes_are_handed_on_where_they_can_be_and_refused_where_not() {
    let bed = bed();
    bed.script_with("argv", "printf %s \"$1\"", "prompt_via: argv", "");
    bed.drop_task("a", "nul", "one\0two");
    bed.drop_task("argv", "nul", "one\0two");
    bed.drop_task("a", "front", "---\nmodel: \"a\0b\"\n---\ntext");
    bed.drain().expect(1);
    assert_eq!(bed.read("artifacts/a/nul.out"), "one\0two");
    let refused = bed.record("argv/nul");
    assert_ne!(refused["status"], "succeeded", "{refused}");
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("nul"),
        "{refused}"
    );
    assert_eq!(bed.read("processed/argv/nul.failed"), "one\0two");
    assert_eq!(bed.status("a/front"), "rejected");
    assert_eq!(bed.status("a/zz-good"), "succeeded");
}

#[test]
fn send_and_wait_exits_65_for_what_is_rejected() {
    let bed = bed();
    bed.drain().expect(0);
    for (args, word) in [
        (vec!["--provider", "nothing"], "nothing"),
        (vec!["--provider", "bash"], "bash"),
        (vec!["--dir", "nowhere"], "nowhere"),
        (vec!["--then", "nobody"], "nobody"),
    ] {
        let all = ["send", "a", "text", "--wait", "--name", "x"];
        let ran = bed.orch(all.into_iter().chain(args)).run().fails(65);
        assert!(
            ran.stderr.contains(word) && ran.stderr.contains("hint:"),
            "{ran:?}"
        );
        assert!(
            !bed.has("inbox/a/x.task"),
            "it is refused before it is sent"
        );
    }
    let file = bed.outside.join("task");
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"\xff", "UTF-8"),
        (&vec![b'a'; (1 << 20) + 1], "1 MiB"),
    ] {
        fs::write(&file, bytes).unwrap();
        let ran = bed
            .orch(["send", "a", "--wait", "--file", file.to_str().unwrap()])
            .run()
            .fails(65);
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
    bed.orch(["send", "nobody", "text", "--wait"])
        .run()
        .fails(65);
    assert_eq!(bed.ls("inbox/a"), [""; 0]);
}

#[test]
fn text_that_is_sent_is_never_front_matter() {
    let bed = bed();
    let text = "---\nprovider: nothing\n---\nbody";
    let ran = bed
        .orch(["send", "a", "-", "--wait"])
        .run_with_input(text)
        .expect(0);
    assert_eq!(ran.stdout, text);
}

#[test]
fn a_broken_agent_file_rejects_its_tasks_and_says_where_it_is_broken() {
    for (file, place) in [
        (
            "---\nprovider: a-script\ntimeout: soon\n---\n",
            "specs/agents/a.md:3:",
        ),
        (
            "---\nprovider: a-script\n  then: [\n---\n",
            "specs/agents/a.md:3:",
        ),
        ("---\nprovidre: a-script\n---\n", "specs/agents/a.md:2:1"),
        ("---\nprovider: a-script\n", "specs/agents/a.md:1:1"),
    ] {
        let bed = Bed::new();
        bed.script("good", "cat");
        bed.write("specs/agents/a.md", file);
        bed.drop_task("a", "x", "text");
        bed.drop_task("good", "y", "text");
        bed.drain().expect(1);
        let record = bed.record("a/x");
        assert_eq!(record["status"], "rejected");
        assert_eq!(record["error"]["kind"], "YamlParseError", "{record}");
        let message = record["error"]["message"].as_str().unwrap();
        assert!(message.contains(place), "{message}");
        assert_eq!(bed.read("processed/a/x.failed"), "text");
        assert_eq!(bed.status("good/y"), "succeeded");
        // Once the file is right, the task is right.
        bed.script("a", "cat");
        bed.orch(["retry", "a/x"])
            .run()
            .says("no watcher is running")
            .expect(0);
        bed.drain().expect(0);
        assert_eq!(bed.status("a/x"), "succeeded");
    }
}

#[test]
fn agent_files_that_are_no_text_files_stop_nobody() {
    let bed = bed();
    fs::create_dir(bed.root.join("specs/agents/folder.md")).unwrap();
    bed.write("specs/agents/bytes.md", b"\xff\xfe");
    bed.write("specs/agents/huge.md", vec![b'a'; 300 << 10]);
    let fifo = bed.root.join("specs/agents/fifo.md");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    for agent in ["folder", "bytes", "huge", "fifo"] {
        bed.drop_task(agent, "x", "text");
    }
    bed.drain().expect(1);
    for agent in ["folder", "bytes", "huge", "fifo"] {
        let record = bed.record(&format!("{agent}/x"));
        assert_eq!(record["status"], "rejected", "{record}");
        let message = record["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("{agent}.md")), "{message}");
    }
    assert_eq!(bed.status("a/zz-good"), "succeeded");
}

#[test]
fn broken_settings_at_the_start_are_an_error_with_their_place() {
    for (file, text, place) in [
        (
            "specs/orch.yaml",
            "layout: 1\nlimits: {grace: soon}\n",
            "specs/orch.yaml:2:",
        ),
        ("specs/orch.yaml", "layout: 7\n", "specs/orch.yaml:1:"),
        ("specs/orch.yaml", "layout: [\n", "specs/orch.yaml:"),
        (
            "specs/providers.yaml",
            "providers:\n  p:\n    comand: [x]\n",
            "specs/providers.yaml:3:",
        ),
        (
            "specs/providers.yaml",
            "providers: {p: {command: x",
            "specs/providers.yaml:",
        ),
    ] {
        let bed = bed();
        bed.write(file, text);
        let ran = bed.drain().fails(65);
        assert!(ran.stderr.contains(place), "{ran:?}");
        bed.orch(["send", "a", "text"]).run().fails(65);
        assert_eq!(bed.ls("inbox/a"), ["zz-good.task"]);
        assert_eq!(bed.ls("artifacts/a"), [""; 0]);
    }
}

#[test]
fn settings_that_break_while_orch_watches_are_reported_and_the_last_good_ones_stay() {
    for file in ["specs/orch.yaml", "specs/providers.yaml"] {
        let bed = bed();
        let good = fs::read(bed.root.join(file)).unwrap();
        let watch = bed.watch(&[]);
        wait_for("the first task", || bed.has("processed/a/zz-good.task"));
        bed.write(file, "x: [");
        bed.drop_task("a", "during", "text");
        wait_for("a task with broken settings", || {
            bed.has("processed/a/during.task")
        });
        bed.write(file, good);
        bed.drop_task("a", "after", "text");
        wait_for("a task with good settings", || {
            bed.has("processed/a/after.task")
        });
        watch.signal("TERM");
        let ran = watch.wait().speaks().expect(143);
        assert!(ran.stderr.contains(&format!("trouble: {file}:")), "{ran:?}");
        assert!(
            ran.stderr.contains("the last valid settings stay in force"),
            "{ran:?}"
        );
        assert_eq!(ran.stderr.matches("trouble:").count(), 1, "{ran:?}");
    }
}
