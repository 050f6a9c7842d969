//! A provider's life: how it is started, what it gets and does not get, how it may end, and that
//! nothing of it is left.

use std::fs;

use serde_json::Value;

use crate::harness::{Bed, End, orch, processes_with, wait_for, write_executable};
use crate::props::{Gate, nap, wait_for_started};

/// Runs one task of a new agent with this script, and gives its record.
fn run(bed: &Bed, agent: &str, script: &str) -> Value {
    bed.script(agent, script);
    bed.drop_task(agent, "x", "work");
    let ran = bed.drain().one_of(&[End::Code(0), End::Code(1)]);
    let record = bed.record(&format!("{agent}/x"));
    assert_eq!(ran.code() == 0, record["status"] == "succeeded", "{ran:?}");
    record
}

/// Adds a provider with this command, and an agent of the same name.
fn command(bed: &Bed, agent: &str, command: &str) {
    let path = bed.root.join("specs/providers.yaml");
    let known = fs::read_to_string(&path).unwrap_or_else(|_| "providers:\n".to_owned());
    fs::write(
        path,
        format!("{known}  {agent}-tool: {{command: {command}}}\n"),
    )
    .unwrap();
    bed.agent(agent, &format!("provider: {agent}-tool"), "");
}

#[test]
fn a_provider_that_cannot_be_started_is_named_with_what_to_do() {
    let bed = Bed::new();
    fs::write(bed.outside.join("closed"), "#!/bin/sh\n").unwrap();
    write_executable(&bed.outside.join("plain"), "echo no first line\n");
    write_executable(&bed.outside.join("lost"), "#!/no/such/interpreter\n");
    fs::create_dir(bed.outside.join("folder")).unwrap();
    let outside = bed.outside.display();
    let table = [
        (
            "missing",
            format!("{outside}/missing"),
            "no such program",
            "install it",
        ),
        (
            "closed",
            format!("{outside}/closed"),
            "not executable",
            "chmod +x",
        ),
        (
            "plain",
            format!("{outside}/plain"),
            "`#!` line",
            "#!/bin/sh",
        ),
        (
            "lost",
            format!("{outside}/lost"),
            "/no/such/interpreter",
            "install",
        ),
        (
            "folder",
            format!("{outside}/folder"),
            "it is a folder",
            "`command`",
        ),
        (
            "nowhere",
            "no-such-tool-anywhere".to_owned(),
            "not on PATH",
            "install",
        ),
    ];
    for (agent, program, _, _) in &table {
        command(&bed, agent, &format!("[{program}]"));
        bed.drop_task(agent, "x", "work");
    }
    bed.drain().expect(1);
    for (agent, _, message, hint) in &table {
        let record = bed.record(&format!("{agent}/x"));
        assert_eq!(record["status"], "failed", "{agent}");
        let error = &record["error"];
        assert_eq!(error["kind"], "ProviderNotFound", "{agent}: {error}");
        assert!(
            error["message"].as_str().unwrap().contains(message),
            "{agent}: {error}"
        );
        assert!(
            error["hint"].as_str().unwrap().contains(hint),
            "{agent}: {error}"
        );
        assert!(bed.has(&format!("processed/{agent}/x.failed")), "{agent}");
    }
}

#[test]
fn a_provider_that_comes_later_is_found_without_a_restart() {
    let bed = Bed::new();
    let path = bed.outside.join("tool");
    command(&bed, "a", &format!("[{}]", path.display()));
    let _watcher = bed.watch(&[]);
    bed.drop_task("a", "early", "work");
    wait_for("the first to fail", || bed.has("processed/a/early.failed"));
    write_executable(&path, "#!/bin/sh\ncat\n");
    bed.drop_task("a", "late", "work");
    wait_for("the second to succeed", || bed.has("processed/a/late.task"));
}

#[test]
fn a_provider_that_a_signal_ends_has_failed_and_the_signal_is_named() {
    let bed = Bed::new();
    for signal in ["KILL", "SEGV", "TERM"] {
        let agent = signal.to_lowercase();
        let record = run(
            &bed,
            &agent,
            &format!("ulimit -c 0; echo begun; kill -{signal} $$"),
        );
        assert_eq!(record["status"], "failed", "{signal}");
        assert_eq!(record["signal"], format!("SIG{signal}"));
        assert_eq!(record["exit_code"], Value::Null, "{signal}");
        let message = record["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("SIG{signal}")), "{message}");
        assert_eq!(bed.read(&format!("artifacts/{agent}/x.out")), "begun\n");
    }
}

#[test]
fn the_exit_code_is_recorded_and_only_zero_is_success() {
    let bed = Bed::new();
    for code in [0, 1, 3, 126, 127, 255] {
        let agent = format!("a{code}");
        let record = run(&bed, &agent, &format!("echo why >&2; exit {code}"));
        assert_eq!(record["exit_code"], code);
        let ended = if code == 0 {
            ("succeeded", "task")
        } else {
            ("failed", "failed")
        };
        assert_eq!(record["status"], ended.0, "{code}");
        assert!(
            bed.has(&format!("processed/{agent}/x.{}", ended.1)),
            "{code}"
        );
        if code != 0 {
            assert!(
                record["error"]["message"].as_str().unwrap().contains("why"),
                "{record}"
            );
        }
    }
}

#[test]
fn a_provider_that_prints_without_end_is_ended_and_its_output_cut_to_the_limit() {
    let bed = Bed::new();
    bed.settings("limits: {output: 1MiB, grace: 200ms}\n");
    for (agent, script, file) in [
        ("out", "exec head -c 300000000 /dev/zero", "x.out"),
        ("err", "exec head -c 300000000 /dev/zero >&2", "x.err"),
    ] {
        let record = run(&bed, agent, script);
        assert_eq!(record["status"], "failed", "{agent}");
        assert_eq!(record["error"]["kind"], "OutputTooLargeError", "{agent}");
        let path = bed.root.join(format!("artifacts/{agent}/{file}"));
        assert_eq!(fs::metadata(path).unwrap().len(), 1 << 20, "{agent}");
        let listed = record["files"].as_array().unwrap();
        let entry = listed
            .iter()
            .find(|entry| entry["path"].as_str().unwrap().ends_with(file));
        assert_eq!(entry.unwrap()["bytes"], 1 << 20, "{agent}");
    }
}

#[test]
fn bytes_that_act_on_terminals_are_stored_raw_and_shown_harmless() {
    let bed = Bed::new();
    bed.script("good", r"printf 'a\000b\033[31mred\033]0;title\007\377\n'");
    bed.script(
        "bad",
        r"printf 'wr\033[2Jong\033]0;title\007\000\n' >&2; exit 1",
    );
    bed.drop_task("good", "x", "work");
    bed.drop_task("bad", "x", "work");
    let ran = bed.drain().expect(1);
    let stored = fs::read(bed.root.join("artifacts/good/x.out")).unwrap();
    assert_eq!(stored, b"a\0b\x1b[31mred\x1b]0;title\x07\xff\n");
    assert_eq!(
        bed.record("good/x")["output"],
        "a\0b\u{1b}[31mred\u{1b}]0;title\u{7}\u{fffd}\n"
    );
    let shown = ran.stdout + &ran.stderr;
    assert!(shown.contains("wrong"), "{shown}");
    assert!(
        !shown.chars().any(|c| c.is_control() && c != '\n'),
        "{shown:?}"
    );
}

/// Ways for a program to stay when its caller goes.
fn daemons(bed: &Bed) -> Vec<(&'static str, String, String)> {
    let ways = [
        ("background", "sleep NAP &"),
        ("orphan", "(sleep NAP &)"),
        ("session", "setsid sleep NAP & sleep 0.05"),
        ("nohup", "nohup sleep NAP >/dev/null 2>&1 &"),
        (
            "double",
            "(setsid sh -c 'sleep NAP & sleep 0.05' &); sleep 0.1",
        ),
        (
            "bare",
            "(env -i setsid sleep NAP <&- >&- 2>&- &); sleep 0.1",
        ),
        (
            "stubborn",
            "(setsid sh -c \"trap '' TERM HUP; sleep NAP & wait\" &); sleep 0.1",
        ),
    ];
    let named = |(number, (name, script)): (usize, (&'static str, &str))| {
        let nap = nap(bed, u32::try_from(number).unwrap());
        (name, script.replace("NAP", &nap), nap)
    };
    ways.into_iter().enumerate().map(named).collect()
}

#[test]
fn whatever_a_provider_leaves_behind_is_gone_when_its_task_is_committed() {
    let bed = Bed::new();
    let _watcher = bed.watch(&[]);
    for (agent, script, nap) in daemons(&bed) {
        bed.script(agent, &script);
        bed.drop_task(agent, "x", "work");
        wait_for("the task", || bed.has(&format!("artifacts/{agent}/x.json")));
        assert_eq!(processes_with(&nap), [0; 0], "{agent}");
        assert_eq!(bed.status(&format!("{agent}/x")), "succeeded", "{agent}");
    }
}

#[test]
fn what_a_running_task_has_started_survives_the_end_of_other_tasks() {
    let bed = Bed::new();
    let mut gate = Gate::new(&bed, "gate");
    let (marked, bare) = (nap(&bed, 100), nap(&bed, 101));
    bed.script(
        "long",
        &format!(
            "(setsid sleep {marked} &); (env -i setsid sleep {bare} <&- >&- 2>&- &)\n{}",
            gate.wait_here(&bed)
        ),
    );
    let _watcher = bed.watch(&["--jobs", "4"]);
    bed.drop_task("long", "x", "work");
    wait_for_started(&bed, 1);
    for nap in [&marked, &bare] {
        wait_for("the sleeper", || processes_with(nap).len() == 1);
    }
    for (agent, script, nap) in daemons(&bed) {
        bed.script(agent, &script);
        bed.drop_task(agent, "x", "work");
        wait_for("the task", || bed.has(&format!("artifacts/{agent}/x.json")));
        // Without a cgroup, one without any mark may be the other task's: it lives until that ends.
        if agent != "bare" || orch::agents::process::cgroup_is_available() {
            assert_eq!(processes_with(&nap), [0; 0], "{agent}");
        }
        assert_eq!(
            processes_with(&marked).len(),
            1,
            "{agent} took another's child"
        );
        assert_eq!(
            processes_with(&bare).len(),
            1,
            "{agent} took another's child"
        );
    }
    gate.let_through(1);
    wait_for("the long task", || bed.has("artifacts/long/x.json"));
    for (_, _, nap) in daemons(&bed) {
        assert_eq!(processes_with(&nap), [0; 0]);
    }
    assert_eq!(processes_with(&marked), [0; 0]);
    assert_eq!(processes_with(&bare), [0; 0]);
}

#[test]
fn a_timeout_asks_first_and_kills_after_the_grace() {
    let nap = nap(&Bed::new(), 0);
    // Who is asked has all the time to answer; who does not listen has little.
    let polite = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done".to_owned();
    let deaf = format!("trap '' TERM; echo here; sleep {nap}");
    for (agent, script, grace, said, least) in [
        ("polite", polite, "10m", "bye\n", 2.0),
        ("deaf", deaf, "200ms", "here\n", 2.2),
    ] {
        let bed = Bed::new();
        bed.settings(&format!("limits: {{grace: {grace}}}\n"));
        bed.script_with(agent, &script, "", "timeout: 2s");
        bed.drop_task(agent, "x", "work");
        bed.drain().expect(1);
        let record = bed.record(&format!("{agent}/x"));
        assert_eq!(record["status"], "timed_out", "{agent}");
        assert_eq!(record["exit_code"], 124, "{agent}");
        assert_eq!(record["error"]["kind"], "TimeoutExpired", "{agent}");
        assert!(
            record["error"]["message"]
                .as_str()
                .unwrap()
                .contains("longer than 2s"),
            "{record}"
        );
        assert!(record["duration"].as_f64().unwrap() >= least, "{record}");
        assert_eq!(record["output"], said, "{agent}");
        assert!(bed.has(&format!("processed/{agent}/x.failed")), "{agent}");
    }
    assert_eq!(processes_with(&nap), [0; 0]);
}

#[test]
fn silence_is_limited_only_where_it_is_asked_for_and_output_ends_it() {
    let bed = Bed::new();
    let chatty = "for i in 1 2 3 4 5 6 7; do echo $i; sleep 0.4; done";
    bed.script_with("chatty", chatty, "", "idle_timeout: 2s");
    bed.script_with(
        "errs",
        &chatty.replace("echo $i", "echo $i >&2"),
        "",
        "idle_timeout: 2s",
    );
    bed.script_with("silent", "echo first; sleep 1000", "", "idle_timeout: 2s");
    for agent in ["chatty", "errs", "silent"] {
        bed.drop_task(agent, "x", "work");
    }
    bed.orch(["watch", "--drain", "--jobs", "3", "--durability", "process"])
        .run()
        .expect(1);
    assert_eq!(bed.status("chatty/x"), "succeeded");
    assert_eq!(bed.status("errs/x"), "succeeded");
    let record = bed.record("silent/x");
    assert_eq!(
        (&record["status"], &record["exit_code"]),
        (&"timed_out".into(), &124.into())
    );
    assert!(
        record["error"]["message"]
            .as_str()
            .unwrap()
            .contains("printed nothing for 2s")
    );
    assert!(
        record["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("idle_timeout")
    );
    assert_eq!(bed.read("artifacts/silent/x.out"), "first\n");
}

#[test]
fn a_task_may_set_its_own_timeout() {
    let bed = Bed::new();
    bed.script("a", "sleep 100");
    bed.drop_task("a", "x", "---\ntimeout: 200ms\n---\nwork");
    bed.drain().expect(1);
    assert_eq!(bed.status("a/x"), "timed_out");
}

#[test]
fn a_provider_may_close_its_output_and_read_nothing() {
    let bed = Bed::new();
    bed.script("a", "echo said; exec <&- >&- 2>&-; exit 0");
    bed.drop_task("a", "x", "p".repeat(1_000_000));
    bed.drain().expect(0);
    assert_eq!(bed.read("artifacts/a/x.out"), "said\n");
}

#[test]
fn standard_input_is_the_prompt_or_nothing_and_ends() {
    let bed = Bed::new();
    let look =
        "stat -L -c %F /proc/$$/fd/0; cat; read more || echo end; [ -t 0 ] || echo no terminal";
    bed.script("reads", look);
    bed.script_with("argv", look, "prompt_via: argv", "");
    for agent in ["reads", "argv"] {
        bed.drop_task(agent, "x", "---\ntimeout: 20m\n---\nprompt\n");
    }
    bed.drain().expect(0);
    assert_eq!(
        bed.read("artifacts/reads/x.out"),
        "regular file\nprompt\nend\nno terminal\n"
    );
    assert_eq!(
        bed.read("artifacts/argv/x.out"),
        "character special file\nend\nno terminal\n"
    );
}

#[test]
fn the_environment_is_exactly_what_was_declared() {
    let bed = Bed::new();
    bed.settings("pass_env: [DECLARED, UNSET]\n");
    bed.write(
        "specs/providers.yaml",
        "providers:\n  tool: {command: [/usr/bin/env], env: [TOOL_KEY], set_env: {TOOL_MODE: quiet}}\n",
    );
    bed.agent(
        "a",
        "provider: tool\npass_env: [AGENT_PASS]\nenv: {AGENT_SET: here}",
        "",
    );
    bed.drop_task("a", "x", "work");
    let mut drain = bed.orch(["watch", "--drain", "--durability", "process"]);
    let given = [
        "DECLARED",
        "TOOL_KEY",
        "AGENT_PASS",
        "LC_ALL",
        "LC_TIME",
        "HOME",
        "LANG",
        "LOGNAME",
        "USER",
        "TERM",
        "TMPDIR",
        "ANTHROPIC_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GH_TOKEN",
        "SSH_AUTH_SOCK",
        "CLAUDECODE",
        "LD_LIBRARY_PATH",
        "MY_PASSWORD",
        "LCX",
        "NO_COLOR",
        "PWD",
        "SHELL",
    ];
    drain
        .command()
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("ORCH_ROOT", &bed.root);
    drain
        .command()
        .env("ORCH_SURPRISE", "1")
        .env("HOME", "/home/somebody");
    for name in given {
        drain.command().env(name, "/tmp");
    }
    drain.run().expect(0);
    let printed = bed.read("artifacts/a/x.out");
    let mut names: Vec<&str> = printed
        .lines()
        .map(|line| line.split_once('=').unwrap().0)
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "AGENT_PASS",
            "AGENT_SET",
            "DECLARED",
            "HOME",
            "LANG",
            "LC_ALL",
            "LC_TIME",
            "LOGNAME",
            "ORCH_ROOT",
            "ORCH_TASK",
            "ORCH_WATCHER",
            "PATH",
            "TERM",
            "TMPDIR",
            "TOOL_KEY",
            "TOOL_MODE",
            "USER",
        ]
    );
    let marker = bed.marker();
    assert!(
        printed.lines().any(|line| line == format!("{marker}a/x")),
        "{printed}"
    );
}

/// Runs a drain that a shell started in its own way.
fn drain_from_shell(bed: &Bed, line: &str) {
    bed.program("/bin/sh")
        .args(["-c", line])
        .env("ORCH", orch())
        .run()
        .expect(0);
}

#[test]
fn no_descriptor_of_orch_or_of_its_caller_reaches_a_provider() {
    let bed = Bed::new();
    command(&bed, "a", "[/bin/ls, /proc/self/fd]");
    bed.drop_task("a", "x", "work");
    bed.drop_task("a", "y", "work");
    fs::write(bed.outside.join("file"), "secret").unwrap();
    drain_from_shell(
        &bed,
        "exec $ORCH watch --drain --jobs 2 7<file 8>>file 9<&0",
    );
    for task in ["x", "y"] {
        // The third is the folder that `ls` itself reads.
        assert_eq!(bed.read(&format!("artifacts/a/{task}.out")), "0\n1\n2\n3\n");
    }
}

#[test]
fn signals_that_orch_ignores_or_blocks_have_their_default_in_a_provider() {
    let bed = Bed::new();
    command(&bed, "a", "[/bin/cat, /proc/self/status]");
    bed.drop_task("a", "x", "work");
    drain_from_shell(
        &bed,
        "trap '' INT HUP QUIT USR1 PIPE TERM; exec $ORCH watch --drain",
    );
    let status = bed.read("artifacts/a/x.out");
    for field in ["SigIgn", "SigBlk"] {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let mask = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        // Signals 32 and 33 are the C library's own.
        assert_eq!(mask & !(0b11 << 31), 0, "{line}");
    }
}

#[test]
fn a_provider_leads_its_own_group_and_writes_to_regular_files() {
    let bed = Bed::new();
    bed.script(
        "a",
        "cut -d' ' -f5 /proc/$$/stat; echo $$; stat -L -c %F /proc/$$/fd/1 /proc/$$/fd/2",
    );
    bed.drop_task("a", "x", "work");
    bed.drain().expect(0);
    let printed = bed.read("artifacts/a/x.out");
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], lines[1], "its group is its own");
    assert_eq!(lines[2..], ["regular file", "regular empty file"]);
}

#[test]
fn a_provider_works_in_the_root_or_in_the_dir_that_was_named() {
    let bed = Bed::new();
    let app = bed.outside.join("app");
    fs::create_dir(&app).unwrap();
    bed.settings(&format!("dirs: {{app: {{path: {}}}}}\n", app.display()));
    bed.script("a", "pwd -P; echo here > made");
    bed.drop_task("a", "x", "work");
    bed.drop_task("a", "y", "---\ndir: app\n---\nwork");
    bed.drop_task("a", "z", "---\ndir: apq\n---\nwork");
    bed.drain().expect(1);
    assert_eq!(
        bed.read("artifacts/a/x.out").trim(),
        bed.root.display().to_string()
    );
    assert_eq!(
        bed.read("artifacts/a/y.out").trim(),
        app.display().to_string()
    );
    assert_eq!(bed.record("a/y")["cwd"], app.display().to_string());
    assert!(app.join("made").exists());
    assert_eq!(bed.record("a/z")["error"]["kind"], "UnknownDir");
    assert_eq!(bed.status("a/z"), "rejected");
}

#[test]
fn only_files_with_something_in_them_are_kept() {
    let bed = Bed::new();
    bed.script("plain", "cat");
    bed.script("errs", "cat >&2");
    bed.script("taught", "cat");
    bed.agent("taught", "provider: taught-script", "You are brief.\n");
    for agent in ["plain", "errs", "taught"] {
        bed.drop_task(agent, "x", "---\ntimeout: 20m\n---\nthe request\n");
    }
    bed.drain().expect(0);
    assert_eq!(bed.ls("artifacts/plain"), ["x.json", "x.out"]);
    assert_eq!(bed.ls("artifacts/errs"), ["x.err", "x.json", "x.out"]);
    assert_eq!(bed.read("artifacts/errs/x.err"), "the request\n");
    assert_eq!(bed.ls("artifacts/taught"), ["x.json", "x.out", "x.prompt"]);
    assert_eq!(
        bed.read("artifacts/taught/x.prompt"),
        "You are brief.\n\nthe request\n"
    );
    assert_eq!(
        bed.read("artifacts/taught/x.out"),
        "You are brief.\n\nthe request\n"
    );
    let record = bed.record("errs/x");
    let files: Vec<&str> = record["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(files, ["artifacts/errs/x.out", "artifacts/errs/x.err"]);
}

#[test]
fn every_task_has_an_error_output_of_its_own() {
    let bed = Bed::new();
    // The first writes, then takes it all back.
    bed.script("a", "printf noise >&2; : > /proc/self/fd/2");
    bed.script("b", "printf clean >&2");
    bed.script("c", "exit 0");
    for agent in ["a", "b", "c"] {
        bed.drop_task(agent, "x", "work");
    }
    bed.drain().expect(0);
    assert_eq!(bed.ls("artifacts/a"), ["x.json", "x.out"]);
    assert_eq!(
        fs::read(bed.root.join("artifacts/b/x.err")).unwrap(),
        b"clean"
    );
    assert_eq!(bed.ls("artifacts/c"), ["x.json", "x.out"]);
}
