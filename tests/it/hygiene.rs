//! Whatever comes from outside, agents, tasks, file names and workflows, nothing that is printed acts
//! on a terminal, and no line of JSON is broken.

use serde_json::Value;

use crate::harness::{Bed, Ended};

/// Colours, a title, a link, a cleared screen, turned writing, hidden characters, other line ends.
const HOSTILE: &str = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\u{9b}2J\u{9d}t\u{9c}\u{202e}turned\u{2066}\u{200f}\u{61c}\u{200b}\u{feff}hid\u{e0041}\rcr\u{85}\u{2028}\u{2029}\x08\x7f\x0b\x0cend";

fn is_harmless(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        c if c.is_control() => false,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => {
            false
        }
        '\u{ad}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}' => false,
        _ => true,
    }
}

#[track_caller]
fn assert_harmless(what: &[&str], ran: &Ended) {
    for (stream, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        if let Some(at) = text.find(|c| !is_harmless(c)) {
            let around: String = text[at..].chars().take(20).collect();
            panic!("{what:?} prints {around:?} to {stream}");
        }
    }
}

fn bed() -> Bed {
    let bed = Bed::new();
    std::fs::write(bed.outside.join("hostile"), HOSTILE).unwrap();
    let hostile = bed.outside.join("hostile").display().to_string();
    bed.script("good", &format!("cat; cat {hostile}; cat {hostile} >&2"));
    bed.script("bad", &format!("cat {hostile} >&2; exit 3"));
    let (text, lines) = ("a\\e[31mb\\u202Ec\\u200Bd\\x9b2J", "${steps.one.output}");
    bed.write(
        "specs/w.yaml",
        format!(
            "version: \"1\"\nname: w\ndescription: \"{text}\"\nsteps:\n  - {{name: one, agent: good, prompt: \"{text}\", phase: \"{text}\"}}\n  - {{name: two, command: [sh, -c, 'cat {hostile} >&2; exit 1'], next: [{{if: 'exit_code == 1', goto: three, reason: \"{text} {lines}\"}}]}}\n  - {{name: three, command: [cat, {hostile}], output_capture: json, on: {{failure: {{goto: four}}}}}}\n  - {{name: four, command: [echo, \"{text}\"], requires: [{{check: \"exists('no{text}')\", reason: \"{text} {lines}\"}}]}}\n"
        ),
    );
    bed.write(
        "specs/broken.yaml",
        format!("version: \"1\"\nname: broken\nsteps:\n  - {{name: one, comand: \"{HOSTILE}\"}}\n"),
    );
    bed.write("specs/odd.yaml", format!("version: \"1\"\nname: odd\nsteps:\n  - {{name: one, command: [x], \"{text}\": 1, on: {{success: {{goto: \"{text}\"}}}}}}\n"));
    bed.write("specs/agents/sick.md", format!("---\n{HOSTILE}: 1\n---\n"));
    for name in [
        "a\x1b[2Jb.task",
        "line\nbreak.task",
        "turned\u{202e}.task",
        "c\u{9b}1.task",
    ] {
        bed.write(&format!("inbox/good/{name}"), "x");
    }
    bed.write("inbox/odd\x1b[31m/x.task", "x");
    bed.drop_task("good", "t", HOSTILE);
    bed.drop_task("bad", "t", HOSTILE);
    bed.drop_task("good", "front", format!("---\nfoo{HOSTILE}: 1\n---\nx"));
    bed.drop_task("sick", "t", "x");
    bed
}

#[test]
fn nothing_that_is_printed_acts_on_a_terminal() {
    let bed = bed();
    let mut seen = 0;
    let mut look = |words: &[&str]| {
        let ran = bed.orch(words).run().noisy().any_code();
        assert_harmless(words, &ran);
        seen += usize::from((ran.stdout + &ran.stderr).contains("red"));
    };
    look(&["status"]);
    look(&["watch", "--drain", "--durability", "process"]);
    bed.drop_task("bad", "u", "x");
    look(&["watch", "--drain", "--durability", "process", "--json"]);
    look(&["run", "w", HOSTILE.trim_start_matches('\x1b'), "--dry-run"]);
    look(&["run", "w", HOSTILE]);
    look(&["run", "w", HOSTILE, "--json"]);
    // Without `--json` the answer itself is the output: whole where it is piped, cleaned on a terminal.
    look(&["send", "bad", HOSTILE, "--wait"]);
    look(&["send", "bad", HOSTILE, "--wait", "--json"]);
    let run = bed.ls("workspace")[0].clone();
    for command in ["status", "log", "doctor"] {
        look(&[command]);
        look(&[command, "--json"]);
    }
    for target in [
        "good/t",
        "bad/t",
        "good/front",
        "sick/t",
        &run,
        "last/one",
        "last/two",
        "last/three",
    ] {
        look(&["show", target]);
        look(&["show", target, "--json"]);
    }
    look(&["log", &run]);
    look(&["log", &run, "--json"]);
    look(&["status", &run]);
    look(&["audit", &run]);
    look(&["audit", &run, "--json"]);
    look(&["resume", &run]);
    look(&["check"]);
    look(&["check", "--json"]);
    for workflow in ["w", "broken", "odd", "no\x1b[31msuch\u{202e}"] {
        look(&["check", workflow]);
        look(&["run", workflow, "x", "--dry-run"]);
        for format in ["mermaid", "dot", "svg"] {
            look(&["graph", workflow, "--format", format]);
        }
    }
    for format in ["mermaid", "dot", "svg"] {
        look(&["graph", &run, "--format", format]);
    }
    for words in [
        ["retry", "bad/t"],
        ["cancel", "bad/t"],
        ["cancel", &run],
        ["reset", &run],
    ] {
        look(&words);
    }
    look(&["show", "\x1b[31m/\u{202e}"]);
    look(&["send", "\x1b[31m\u{202e}", "x"]);
    look(&["clean-processed", "--older-than", "0s", "--dry-run"]);
    assert!(seen > 5, "the hostile text was hardly shown at all: {seen}");
}

#[test]
fn logs_stay_lines_of_json_whatever_agents_print() {
    let bed = bed();
    bed.orch(["watch", "--drain", "--durability", "process"])
        .run()
        .noisy()
        .expect(1);
    bed.orch(["run", "w", HOSTILE]).run().noisy().expect(4);
    let mut lines = 0;
    for file in bed
        .ls("logs")
        .iter()
        .filter(|name| name.ends_with(".jsonl"))
    {
        let text = bed.read(&format!("logs/{file}"));
        assert!(text.is_empty() || text.ends_with('\n'), "{file} is torn");
        for line in text.lines() {
            let value: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{file}: {e}: {line}"));
            assert!(value.is_object());
            assert!(!line.contains(['\x1b', '\r', '\x07']), "{line:?}");
            lines += 1;
        }
    }
    assert!(lines > 4, "{lines}");
    // Programs that read the JSON get the text as it was.
    let ran = bed.orch(["show", "bad/t", "--json"]).run().expect(0);
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(shown.to_string().contains("turned"), "{shown}");
}
