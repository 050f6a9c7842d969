//! Secrets: passed by environment, and found nowhere else, in no form, whatever happens.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Bed, End, Ended, Program, Ran, wait_for};
use crate::props::{Gate, wait_for_started};

const SECRET: &str = "s3cr3t/Kéy+\"q'<&> %\\z";
/// No text in a root holds this but by way of the secret.
const CORE: &str = "s3cr3t";

/// What other programs make of the secret.
const FORMS: &[(&str, &[u8])] = &include!("../fixtures/secrets/forms.in");

fn bed(steps: &str) -> Bed {
    let bed = Bed::new();
    let text = format!("version: \"1\"\nname: w\nsteps:\n{steps}");
    bed.write("specs/w.yaml", text);
    let mut all = Vec::new();
    for (name, form) in FORMS {
        all.extend_from_slice(format!("{name}: ").as_bytes());
        all.extend_from_slice(form);
        all.extend_from_slice(b" .\n");
    }
    fs::write(bed.outside.join("forms"), all).unwrap();
    fs::write(bed.outside.join("secret"), SECRET).unwrap();
    bed
}

fn with_secret(bed: &Bed, words: &[&str]) -> Program {
    bed.orch(words).env("KEY", SECRET)
}

fn run(bed: &Bed) -> Ran {
    with_secret(bed, &["run", "w", "please"]).run()
}

fn state(bed: &Bed) -> Value {
    let run = bed.ls("workspace").concat();
    serde_json::from_str(&bed.read(&format!("workspace/{run}/state.json"))).unwrap()
}

fn result(bed: &Bed, step: &str) -> Value {
    state(bed)["step_results"][step].clone()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[track_caller]
fn assert_clean(what: &str, bytes: &[u8]) {
    assert!(
        !contains(bytes, CORE.as_bytes()),
        "{what} has {CORE}: {}",
        String::from_utf8_lossy(bytes)
    );
    for (name, form) in FORMS {
        let escaped = serde_json::to_string(&String::from_utf8_lossy(form)).unwrap();
        let escaped = &escaped[1..escaped.len() - 1];
        for form in [*form, escaped.as_bytes()] {
            assert!(!contains(bytes, form), "{what} has the secret as {name}");
        }
    }
}

/// Every file below a folder, and every name.
#[track_caller]
fn assert_nothing_in(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert_clean("a name", path.as_os_str().as_encoded_bytes());
        if path.is_symlink() {
            continue;
        }
        match path.is_dir() {
            true => assert_nothing_in(&path),
            false => assert_clean(&path.display().to_string(), &fs::read(&path).unwrap()),
        }
    }
}

#[track_caller]
fn assert_said_nothing(ran: &Ended) {
    assert_clean("stdout", ran.stdout.as_bytes());
    assert_clean("stderr", ran.stderr.as_bytes());
}

/// In pieces of seven bytes, so that every form is cut in several places.
const PRINT: &str = "dd if=../outside/forms bs=7 status=none";

#[test]
fn no_form_of_a_secret_reaches_any_file_or_any_command() {
    let steps = [
        format!("  - {{name: text, command: [sh, -c, '{PRINT}; {PRINT} >&2'], secrets: [KEY], output_file: answers/text.txt}}\n"),
        "  - {name: lines, command: [sh, -c, 'printf \"%s\\n\" a \"$KEY\" b'], secrets: [KEY], output_capture: lines}\n".to_owned(),
        "  - {name: json, command: [cat, ../outside/json], output_capture: json}\n".to_owned(),
        "  - {name: bad, command: [cat, ../outside/forms], output_capture: json, on: {failure: {goto: agent}}}\n".to_owned(),
        "  - {name: agent, agent: talker, prompt: 'Say what you know of ${steps.text.output}'}\n".to_owned(),
        "  - {name: again, command: [sh, -c, 'cat ../outside/secret >&2; ! mkdir ../outside/once 2>/dev/null'], retries: {max: 1, delay_ms: 1}}\n".to_owned(),
        "  - {name: fails, agent: grumbler, prompt: hm, on: {failure: {goto: last}}}\n".to_owned(),
        "  - {name: last, agent: parrot, prompt: '${steps.text.tail} ${steps.lines.lines} ${steps.json.json.key}'}\n".to_owned(),
    ];
    let bed = bed(&steps.concat());
    let quoted = serde_json::to_string(SECRET).unwrap();
    fs::write(
        bed.outside.join("json"),
        format!("{{\"key\": {quoted}, {quoted}: [1]}}"),
    )
    .unwrap();
    let answer = format!("{{\"result\": {quoted}, \"session_id\": {quoted}, \"is_error\": false}}");
    fs::write(bed.outside.join("answer"), answer).unwrap();
    bed.script_with(
        "talker",
        &format!("cat >/dev/null; {PRINT} >&2; cat ../outside/answer"),
        "output: json\nresult: {text: /result, session: /session_id, failed: /is_error}\n",
        "",
    );
    bed.script_with(
        "grumbler",
        &format!("cat ../outside/secret; {PRINT} >&2; exit 3"),
        "success: {fail_if_match: [\"s3cr\", \"z\"]}\n",
        "",
    );
    bed.script("parrot", "cat");
    let ran = with_secret(&bed, &["run", "w", "please", "--record"])
        .run()
        .about(format!("\n{:#}", state(&bed)))
        .expect(0);
    assert_said_nothing(&ran);
    let run = bed.ls("workspace").concat();
    assert_nothing_in(&bed.root);

    // It was all there, with a mask for every form.
    let text = bed.read("answers/text.txt");
    let masked = text.lines().filter(|line| line.ends_with(": *** ."));
    assert_eq!(masked.count(), FORMS.len(), "{text}");
    assert_eq!(
        result(&bed, "lines")["lines"],
        serde_json::json!(["a", "***", "b"])
    );
    assert_eq!(
        result(&bed, "json")["json_data"],
        serde_json::json!({"key": "***", "***": [1]})
    );
    assert_eq!(result(&bed, "bad")["exit_code"], 2);
    assert_eq!(result(&bed, "agent")["output"], "***");
    assert_eq!(result(&bed, "fails")["exit_code"], 3);
    assert!(
        result(&bed, "last")["output"]
            .as_str()
            .unwrap()
            .contains("***")
    );
    let kinds = |ending: &str| {
        let all = bed.ls("artifacts").into_iter();
        all.flat_map(|agent| bed.ls(&format!("artifacts/{agent}")))
            .filter(|name| name.ends_with(ending))
            .count()
    };
    for ending in [".out", ".raw", ".err", ".prompt", ".json", "~1.err"] {
        assert!(kinds(ending) > 0, "no {ending} was written");
    }
    assert!(!bed.ls("artifacts/_recordings").is_empty());

    for words in [
        vec!["show", &run],
        vec!["show", "last/fails"],
        vec!["show", "last/agent"],
        vec!["show", &run, "--json"],
        vec!["log", &run],
        vec!["log"],
        vec!["log", "--json"],
        vec!["status"],
        vec!["status", &run],
        vec!["status", "--json"],
        vec!["audit", &run],
        vec!["graph", &run],
        vec!["doctor"],
    ] {
        // Without the secret in the environment: what is stored is clean by itself.
        let ran = bed.orch(words).run();
        assert_said_nothing(&ran.one_of(&[End::Code(0), End::Code(1)]));
    }
}

#[test]
fn the_output_is_seen_masked_while_the_agent_runs_and_a_crash_leaves_nothing() {
    let bed = bed("  - {name: one, agent: slow, prompt: go, secrets: [KEY]}\n");
    let mut gate = Gate::new(&bed, "gate");
    let wait = gate.wait_here(&bed);
    // The second half comes only when it is let through.
    bed.script(
        "slow",
        &format!("printf 'key: %s.\\n' \"$KEY\"; printf '%.9s' \"$KEY\"; cat ../outside/forms >&2; {wait}; printf %s \"$KEY\" | tail -c +10; echo; {PRINT}"),
    );
    let running = with_secret(&bed, &["run", "w", "please"]).start();
    wait_for_started(&bed, 1);
    let out = || {
        bed.ls("artifacts/slow")
            .into_iter()
            .find(|name| name.ends_with(".out"))
    };
    wait_for("the masked output", || {
        out().is_some_and(|name| bed.read(&format!("artifacts/slow/{name}")) == "key: ***.\n")
    });
    assert_nothing_in(&bed.root);
    running.signal("KILL");
    running.wait().killed();
    bed.assert_nothing_runs();
    assert_nothing_in(&bed.root);

    gate.let_through(8);
    let ran = with_secret(&bed, &["watch", "--drain"])
        .run()
        .says("take over")
        .expect(0);
    assert_said_nothing(&ran);
    assert_nothing_in(&bed.root);
    assert_eq!(result(&bed, "one")["status"], "succeeded");
    assert!(
        result(&bed, "one")["output"]
            .as_str()
            .unwrap()
            .starts_with("key: ***.\n***\n")
    );
}

#[test]
fn a_missing_secret_fails_the_step_with_code_2_before_anything_runs() {
    let bed = bed(
        "  - {name: one, command: [touch, ../outside/ran], secrets: [KEY, NO_SUCH_A, NO_SUCH_B], retries: {max: 3}}\n",
    );
    let ran = run(&bed).fails(1);
    assert!(
        ran.stderr.contains("NO_SUCH_A") || ran.stdout.contains("NO_SUCH_A"),
        "{ran:?}"
    );
    let one = result(&bed, "one");
    assert_eq!((&one["exit_code"], &one["attempt"]), (&2.into(), &1.into()));
    assert_eq!(
        one["more"]["missing_secrets"],
        serde_json::json!(["NO_SUCH_A", "NO_SUCH_B"])
    );
    assert_eq!(one["error"]["kind"], "MissingSecret");
    assert!(!bed.outside.join("ran").exists());
    assert_nothing_in(&bed.root);
}

#[test]
fn an_empty_secret_is_there_a_short_one_is_refused_and_env_wins() {
    let bed = bed(
        "  - {name: one, command: [sh, -c, 'echo \"<$EMPTY|$KEY>\"'], secrets: [EMPTY, KEY], env: {KEY: other-value}}\n",
    );
    with_secret(&bed, &["run", "w"])
        .env("EMPTY", "")
        .run()
        .expect(0);
    assert_eq!(result(&bed, "one")["output"], "<|***>\n");

    let bed = self::bed("  - {name: one, command: [touch, ../outside/ran], secrets: [KEY]}\n");
    let ran = bed.orch(["run", "w"]).env("KEY", "qx7").run().fails(1);
    assert_eq!(result(&bed, "one")["exit_code"], 2);
    assert!(
        ran.stderr.contains("fewer than 4") || ran.stdout.contains("fewer than 4"),
        "{ran:?}"
    );
    assert!(!bed.outside.join("ran").exists());
}

#[test]
fn a_secret_in_what_goes_in_is_refused_and_written_nowhere() {
    let bed = bed(
        "  - {name: one, command: [echo, '${steps.zero.output:-x}', '${context.k:-x}'], secrets: [KEY]}\n",
    );
    let text = format!("use {SECRET} please");
    with_secret(&bed, &["run", "w", &text]).run().fails(65);
    assert_nothing_in(&bed.root);
    assert_eq!(bed.ls("workspace"), [""; 0]);

    // A file that the prompt would carry.
    let bed = self::bed(
        "  - {name: one, agent: parrot, prompt: hi, secrets: [KEY], depends_on: {required: [env.txt], inject: {mode: content}}}\n",
    );
    bed.script("parrot", "touch ../outside/ran");
    bed.write("env.txt", SECRET);
    let ran = run(&bed).fails(1);
    assert_said_nothing(&ran);
    assert_eq!(result(&bed, "one")["exit_code"], 2);
    assert!(!bed.outside.join("ran").exists());
    fs::remove_file(bed.root.join("env.txt")).unwrap();
    assert_nothing_in(&bed.root);
}

#[test]
fn agents_have_secrets_too_and_keys_that_a_provider_gets_are_masked() {
    let bed = Bed::new();
    bed.script_with(
        "keeper",
        "echo \"$KEY $TEST_API_KEY $PLAIN\"; echo \"$KEY\" >&2",
        "env: [TEST_API_KEY, PLAIN]\n",
        "secrets: [KEY]\n",
    );
    bed.drop_task("keeper", "t", "go");
    let key = "sk-test-0123456789";
    let drain = ["watch", "--drain", "--durability", "process"];
    let orch = with_secret(&bed, &drain)
        .env("TEST_API_KEY", key)
        .env("PLAIN", "plain");
    orch.run().expect(0);
    assert_eq!(bed.read("artifacts/keeper/t.out"), "*** *** plain\n");
    assert_eq!(bed.read("artifacts/keeper/t.err"), "***\n");
    assert_nothing_in(&bed.root);
    bed.drop_task("keeper", "u", "go");
    bed.drain().expect(1);
    let record = bed.record("keeper/u");
    assert_eq!(
        (&record["status"], &record["error"]["kind"]),
        (&"rejected".into(), &"MissingSecret".into())
    );
}

#[test]
fn a_secret_in_the_document_of_a_step_does_not_reach_the_state() {
    let bed = Bed::new();
    let script = "sed \"s/\\\"notes\\\": \\\"\\\"/\\\"notes\\\": \\\"<$KEY>\\\"/\" $ORCH_STATE_FILE > ../outside/doc; cat ../outside/doc > $ORCH_STATE_FILE";
    bed.write("specs/note.sh", script);
    bed.write(
        "specs/w.yaml",
        "version: \"1\"\nname: w\nstate: {notes: \"\"}\nsteps:\n  - {name: one, command: [sh, specs/note.sh], secrets: [KEY], updates: [notes]}\n  - {name: two, command: [echo, '${state.notes}']}\n",
    );
    let key = "s3cr3t-hunter";
    bed.orch(["run", "w"]).env("KEY", key).run().expect(0);
    let written = fs::read_to_string(bed.outside.join("doc")).unwrap();
    assert!(written.contains(&format!("<{key}>")), "{written}");
    assert_eq!(state(&bed)["state"]["notes"], "<***>");
    assert_eq!(result(&bed, "two")["output"], "<***>\n");
    assert_nothing_in(&bed.root);
}
