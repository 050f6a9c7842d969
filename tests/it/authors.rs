//! `check`, `graph` and `schema`: workflows good, bad and hostile, as their authors meet them.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Bed, End, Ended, Ran, names};

/// More of a processor's time than any text may take.
const QUICK: Duration = Duration::from_secs(10);

/// Three steps, one of them an agent's, in a cycle that ends.
pub const GOOD: &str = "version: \"1\"
name: good
steps:
  - {name: test, command: [make, test], on: {failure: {goto: fix}}}
  - {name: done, command: [echo, done], on: {success: {goto: _end}}}
  - name: fix
    agent: coder
    prompt: Mend ${steps.test.tail}
    max_visits: 3
    on_limit: _block
    next:
      - {if: 'exit_code == 0 && visits.fix < 3', goto: test}
      - {if: 'true', goto: _block, reason: \"it failed\"}
";

/// A root with one agent.
pub fn bed() -> Bed {
    let bed = Bed::new();
    bed.settings("provider: echo\n");
    bed.agent("coder", "access: edit", "Work.");
    bed
}

/// Checks one text as `specs/w.yaml`.
pub fn check(bed: &Bed, text: impl AsRef<[u8]>) -> Ran {
    bed.write("specs/w.yaml", text);
    bed.orch(["check", "w"]).run()
}

/// One command step with this line under it, which is line 6.
pub fn step(field: &str) -> String {
    format!("version: \"1\"\nname: w\nsteps:\n  - name: a\n    command: [x]\n    {field}\n")
}

/// The workflow `bad`, with a fault in line 6.
fn bad() -> String {
    step("colour: red").replace("name: w", "name: bad")
}

#[test]
fn a_good_workflow_is_fine_by_name_and_by_path() {
    let bed = bed();
    bed.write("specs/good.yml", GOOD);
    let line = "specs/good.yml: fine, 3 steps, ends after at most ";
    let ran = bed.orch(["check", "good"]).run().expect(0);
    assert!(ran.stdout.starts_with(line), "{ran:?}");
    assert!(ran.stdout.ends_with(" transitions\n") && ran.stderr.is_empty());
    // From the root, from anywhere, and from outside of `specs/`.
    let here = bed.orch(["check", "specs/good.yml"]).current_dir(&bed.root);
    here.run().expect(0);
    bed.orch(["check", "specs/good.yml"]).run().expect(0);
    fs::write(bed.outside.join("here.yaml"), GOOD).unwrap();
    let ran = bed.orch(["check", "here.yaml"]).run().expect(0);
    assert!(ran.stdout.starts_with("here.yaml: fine"), "{ran:?}");
    let all = bed.orch(["check"]).run().expect(0);
    assert!(all.stdout.starts_with(line), "{all:?}");
}

#[test]
fn all_faults_are_shown_at_once_with_place_line_and_hint() {
    let bed = bed();
    let text = GOOD
        .replace("name: good", "name: w")
        .replace("agent: coder", "agent: codr")
        .replace("goto: fix", "goto: fxi")
        .replace("on_limit", "on_limt")
        .replace("exit_code == 0", "exit_code ==")
        .replace("tail}", "tial} and ${env.HOME}");
    let ran = check(&bed, text).expect(65);
    for part in [
        "error: unknown field `on_limt`",
        "--> specs/w.yaml:10:5",
        "10 |     on_limt: _block\n   |     ^",
        "hint: did you mean `on_limit`?",
        "there is no agent `codr`",
        "did you mean `coder`?",
        "the target `fxi` is not a step",
        "did you mean `fix`?",
        "the result of a step has no `tial`",
        "the environment is not put into texts",
        "the expression cannot be read",
        "specs/w.yaml: 6 faults\n",
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
}

#[test]
fn a_fault_in_an_expression_points_into_it() {
    let bed = bed();
    let ran = check(
        &bed,
        GOOD.replace("name: good", "name: w")
            .replace("'exit_code == 0 &&", "'exit_code == 0 & &"),
    )
    .expect(65);
    assert!(ran.stdout.contains("specs/w.yaml:12:"), "{}", ran.stdout);
    let missing = check(
        &bed,
        GOOD.replace("name: good", "name: w")
            .replace("visits.fix", "visits.fxi"),
    )
    .expect(65);
    assert!(missing.stdout.contains("specs/w.yaml:12:33"), "{missing:?}");
    assert!(missing.stdout.contains("did you mean `fix`?"));
}

#[test]
fn several_workflows_are_all_checked() {
    let bed = bed();
    bed.write("specs/good.yaml", GOOD);
    bed.write("specs/bad.yaml", "steps: []\n");
    for words in [vec!["check"], vec!["check", "good", "bad"]] {
        let ran = bed.orch(words).run().expect(65);
        assert!(ran.stdout.contains("specs/good.yaml: fine"), "{ran:?}");
        assert!(ran.stdout.contains("specs/bad.yaml: "), "{ran:?}");
    }
    // Settings, providers and what does not lie in `specs/` itself are no workflows.
    bed.write("specs/providers.yaml", "providers: {}\n");
    bed.write("specs/schemas/x.yaml", "no workflow");
    fs::remove_file(bed.root.join("specs/bad.yaml")).unwrap();
    bed.orch(["check"]).run().expect(0);
}

#[test]
fn a_name_that_nothing_has_is_refused_with_the_nearest() {
    let bed = bed();
    let none = bed.orch(["check", "good"]).run().expect(65);
    assert!(none.stdout.contains("write specs/good.yaml"), "{none:?}");
    let empty = bed.orch(["check"]).run().expect(0);
    assert!(empty.stdout.contains("there is no workflow"), "{empty:?}");
    bed.write("specs/good.yaml", GOOD);
    let ran = bed.orch(["check", "god"]).run().expect(65);
    assert!(ran.stdout.contains("did you mean `good`?"), "{ran:?}");
    let ran = bed.orch(["graph", "god"]).run().fails(65);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("did you mean `good`?"));
    let path = bed.orch(["check", "elsewhere/good.yaml"]).run().expect(65);
    assert!(path.stdout.contains("no file"), "{path:?}");
    bed.write("specs/good.yml", GOOD);
    let two = bed.orch(["check", "good"]).run().expect(65);
    assert!(two.stdout.contains("both `specs/good.yaml`"), "{two:?}");
    bed.orch(["graph"]).run().fails(64);
    bed.orch(["graph", "good", "--format", "png"])
        .run()
        .fails(64);
}

#[test]
fn json_says_the_same() {
    let bed = bed();
    bed.write("specs/good.yaml", GOOD);
    let parse = |ran: Ended| serde_json::from_str::<Value>(&ran.stdout).unwrap();
    let good = parse(bed.orch(["check", "--json"]).run().expect(0));
    assert_eq!(good["valid"], true);
    assert_eq!(good["workflows"][0]["name"], "good");
    assert_eq!(good["workflows"][0]["steps"], 3);
    assert!(good["workflows"][0]["transitions"].as_u64().unwrap() > 3);
    bed.write("specs/bad.yaml", bad());
    let words = ["check", "bad", "none", "--json"];
    let bad = parse(bed.orch(words).run().expect(65));
    let fault = &bad["workflows"][0]["faults"][0];
    assert_eq!((&fault["line"], &fault["column"]), (&6.into(), &5.into()));
    assert!(fault["message"].as_str().unwrap().contains("`colour`"));
    assert_eq!(bad["workflows"][0]["transitions"], Value::Null);
    let none = &bad["workflows"][1];
    assert!(
        none["faults"][0]["message"]
            .as_str()
            .unwrap()
            .contains("`none`")
    );
}

#[test]
fn hostile_files_are_refused_and_never_more() {
    let bed = bed();
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (before, name) in ('a'..='h').zip('b'..='i') {
        let list = vec![format!("*{before}"); 9].join(", ");
        bomb.push_str(&format!("{name}: &{name} [{list}]\n"));
    }
    let table = [
        ("empty", String::new(), "`steps` is missing"),
        ("a comment", "# nothing\n".to_owned(), "`steps` is missing"),
        ("not a map", "[1]".to_owned(), "a workflow is a map"),
        ("huge", "x".repeat(300 << 10), "larger than 256 KiB"),
        ("tabs", step("\tphase: x"), "tab"),
        ("double", step("command: [y]"), "duplicate key `command`"),
        ("tag", step("when: {if: !x}"), "tag"),
        ("bomb", bomb, "too much data"),
        ("deep", "[".repeat(100_000), "levels deep"),
        ("deep maps", format!("state: {}", "{a: ".repeat(70)), ""),
        (
            "documents",
            step("once: true\n---\nname: x"),
            "more than one",
        ),
        ("nul", step("phase: \"a\\0b\"\n    \0"), ""),
        ("merge", step("env: {<<: {A: 1}}"), "merge key"),
        ("escapes", step("\"\\e[31mred\\u202E\": 1"), "unknown field"),
    ];
    for (what, text, part) in table {
        let ran = check(&bed, text).about(what).expect(65);
        assert!(ran.stdout.contains(part), "{what}: {}", ran.stdout);
        assert!(!ran.stdout.contains(['\u{1b}', '\u{202e}', '\0']), "{what}");
        assert!(ran.cpu < QUICK, "{what}: {:?}", ran.cpu);
    }
    let ran = check(&bed, [0xff, 0xfe, 0x00]).expect(65);
    assert!(ran.stdout.contains("not UTF-8"), "{ran:?}");
}

#[test]
fn what_only_looks_odd_is_read() {
    let bed = bed();
    check(&bed, format!("\u{feff}{}", step("once: true"))).expect(0);
    check(&bed, step("once: true").replace('\n', "\r\n")).expect(0);
    check(
        &bed,
        step("env: &e {A: 1}\n  - {name: b, command: [x], env: *e}"),
    )
    .expect(0);
}

#[test]
fn hostile_guards_are_refused_and_never_more() {
    let bed = bed();
    let guard = |guard: &str| step(&format!("when: {{if: {}}}", Value::from(guard)));
    let table = [
        ("(".repeat(2000), "over the limit"),
        ("(".repeat(20_000), "over the limit"),
        ("[".repeat(20_000), "levels deep"),
        (format!("1{}", " + 1".repeat(25_000)), "over the limit"),
        (format!("state{}", ".a".repeat(500)), "words and operators"),
        (format!("true{}", " || !true".repeat(110)), ""),
        (format!("{}true", "!".repeat(1000)), "words and operators"),
        ("(".repeat(500) + &")".repeat(500), "more than 16 brackets"),
        (format!("true{}", " && true".repeat(126)), ""),
        ("[1".repeat(20), "more than 16 brackets"),
        (String::new(), "cannot be read: it is empty"),
        ("steps.a.exit_code ==".to_owned(), "cannot be read"),
        (
            "${steps.a.output} == ''".to_owned(),
            "`${...}` in an expression",
        ),
        ("output == 'x'".to_owned(), "before the step has run"),
        ("system('rm -rf /')".to_owned(), "cannot be read"),
        ("env.HOME == ''".to_owned(), "there is no `env`"),
        ("state.all(k, true) && nobody".to_owned(), ""),
        ("\u{1b}[2J".to_owned(), "cannot be read"),
        ("'unclosed".to_owned(), "cannot be read"),
    ];
    for (text, part) in table {
        let ran = check(&bed, guard(&text)).about(&text);
        let ran = match part.is_empty() {
            true => ran.one_of(&[End::Code(0), End::Code(65)]),
            false => ran.expect(65),
        };
        assert!(ran.stdout.contains(part), "{text}: {}", ran.stdout);
        assert!(!ran.stdout.contains('\u{1b}'), "{ran:?}");
        assert!(ran.cpu < QUICK, "{text}: {:?}", ran.cpu);
    }
}

#[test]
fn what_lies_beside_a_workflow_is_looked_at() {
    let bed = bed();
    let with = |field: &str| {
        format!(
            "version: \"1\"\nname: w\nsteps:\n  - {{name: a, agent: coder, prompt: x, output_capture: json, {field}}}\n"
        )
    };
    bed.write("specs/prompts/p.md", "Do it.");
    bed.write("specs/schemas/s.json", "{\"type\": \"object\"}");
    bed.write("specs/schemas/broken.json", "{");
    bed.write("specs/prompts/big.md", "x".repeat(300 << 10));
    bed.write("specs/prompts/latin.md", [b'a', 0xe4]);
    check(&bed, with("input_file: specs/prompts/p.md")).expect(0);
    // It may be written by an earlier step.
    check(&bed, with("input_file: artifacts/coder/notes.md")).expect(0);
    check(&bed, with("output_schema: specs/schemas/s.json")).expect(0);
    let table = [
        ("input_file: specs/prompts/q.md", "there is no file"),
        ("input_file: specs/../secret.md", "leads upwards"),
        (
            "output_schema: schemas/s.json",
            "looked for in `specs/` only",
        ),
        ("input_file: specs/prompts/big.md", "larger than 256 KiB"),
        ("input_file: specs/prompts/latin.md", "not UTF-8"),
        ("input_file: specs/prompts", "not a regular file"),
        ("output_schema: specs/schemas/broken.json", "not valid JSON"),
        ("dir: app", "no directory `app`"),
        ("provider: cluade", "no provider `cluade`"),
    ];
    for (field, part) in table {
        let ran = check(&bed, with(field)).expect(65);
        assert!(ran.stdout.contains(part), "{field}: {}", ran.stdout);
    }
    bed.write("specs/orch.yaml", "layout: 1\nprovder: echo\n");
    let ran = bed.orch(["check", "w"]).run().fails(65);
    assert!(ran.stderr.contains("specs/orch.yaml"), "{ran:?}");
}

#[test]
fn checking_makes_and_changes_nothing() {
    let bed = bed();
    bed.write("specs/good.yaml", GOOD);
    bed.orch(["check"]).run().expect(0);
    bed.orch(["graph", "good"]).run().expect(0);
    assert_eq!(names(&bed.root), ["inbox", "specs"]);
    let lost = bed.orch(["check"]).env("ORCH_ROOT", &bed.outside).run();
    assert!(lost.fails(1).stderr.contains("is not an orch root"));
}

#[test]
fn a_long_workflow_is_checked() {
    let bed = bed();
    let mut text = String::from("version: \"1\"\nname: w\nsteps:\n");
    for n in 0..500 {
        text.push_str(&format!(
            "  - name: s{n}\n    command: [echo, '${{steps.s{}.output:-none}}']\n    max_visits: 2\n    next:\n      - {{if: 'exit_code == 0 && visits.s{n} < {n}', goto: {}}}\n      - {{if: 'exit_code != {n}', goto: s{}}}\n",
            (n + 1) % 500,
            if n == 499 { "_end".to_owned() } else { format!("s{}", n + 1) },
            n / 2,
        ));
    }
    let ran = check(&bed, &text).expect(0);
    assert!(ran.stdout.contains("fine, 500 steps"), "{ran:?}");
}

#[test]
fn a_drawing_goes_to_standard_output_and_faults_do_not() {
    let bed = bed();
    bed.write("specs/good.yaml", GOOD);
    for (format, begin) in [
        ("mermaid", "flowchart TD\n"),
        ("dot", "digraph \"good\" {\n"),
        ("svg", "<svg "),
    ] {
        let words = ["graph", "good", "--format", format];
        let ran = bed.orch(words).run().expect(0);
        assert!(ran.stdout.starts_with(begin), "{format}: {}", ran.stdout);
        assert!(ran.stdout.contains("fix") && ran.stderr.is_empty());
    }
    let plain = bed.orch(["graph", "good"]).run().expect(0);
    assert!(plain.stdout.starts_with("flowchart TD\n"));
    bed.write("specs/bad.yaml", bad());
    let ran = bed.orch(["graph", "bad"]).run().fails(65);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("specs/bad.yaml:6:5"));
}

#[test]
fn doctor_takes_the_inbox_of_a_workflow_for_what_it_is() {
    let bed = bed();
    bed.write("specs/good.yaml", GOOD);
    fs::create_dir_all(bed.root.join("inbox/good")).unwrap();
    fs::create_dir_all(bed.root.join("inbox/nobody")).unwrap();
    let told = bed.orch(["doctor"]).run().expect(0).stdout;
    assert!(!told.contains("inbox/good"), "{told}");
    assert!(told.contains("inbox/nobody"), "{told}");
}

#[test]
fn doctor_names_workflows_that_are_not_valid() {
    let bed = bed();
    bed.write("specs/good.yaml", GOOD);
    let ran = bed.orch(["doctor"]).run().expect(0);
    assert!(ran.stdout.contains("workflow specs/good.yaml"), "{ran:?}");
    bed.write("specs/bad.yaml", bad());
    let ran = bed.orch(["doctor"]).run().expect(1);
    assert!(
        ran.stdout.contains("`orch check specs/bad.yaml`"),
        "{ran:?}"
    );
}

#[test]
fn a_workflow_has_the_name_of_its_file() {
    let bed = bed();
    bed.write("specs/other.yaml", GOOD);
    let why = "the workflow is named `good`, and its file `other`";
    let ran = bed.orch(["check", "other"]).run().expect(65);
    assert!(ran.stdout.contains(why), "{ran:?}");
    assert!(ran.stdout.contains("specs/other.yaml:2:7"), "{ran:?}");
    assert!(ran.stdout.contains("write `name: other`"), "{ran:?}");
    let ran = bed.orch(["run", "other"]).run().fails(65);
    assert!(ran.stderr.contains(why), "{ran:?}");
    bed.drop_task("other", "go", "please");
    bed.drain().expect(1);
    assert_eq!(bed.status("other/go"), "rejected");
    assert_eq!(bed.ls("workspace"), [""; 0]);
    let ran = bed.orch(["doctor"]).run().expect(1);
    assert!(
        ran.stdout.contains("orch check specs/other.yaml"),
        "{ran:?}"
    );
    // So two files cannot have one name, and with two endings the word is refused.
    bed.write("specs/good.yaml", GOOD);
    bed.orch(["check", "good"]).run().expect(0);
    bed.write("specs/good.yml", GOOD);
    for words in [["check", "good"], ["run", "good"]] {
        let ran = bed
            .orch(words)
            .run()
            .may_say(&["error: ", "hint: "])
            .expect(65);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            told.contains("is both `specs/good.yaml` and `specs/good.yml`"),
            "{ran:?}"
        );
    }
    let ran = bed.orch(["doctor"]).run().expect(1);
    assert!(ran.stdout.contains("is both `specs/good.yaml`"), "{ran:?}");
    // Elsewhere a file may have any name: it is found by its path alone.
    bed.write("drafts/other.yaml", GOOD);
    let path = bed.root.join("drafts/other.yaml");
    bed.orch(["check", path.to_str().unwrap()]).run().expect(0);
}

#[test]
fn a_root_that_nobody_has_is_found_wherever_it_stands_in_a_guard() {
    let bed = bed();
    for guard in [
        "nobody || true",
        "true || nobody.x == 1",
        "false && nobody",
        "exit_code == 0 ? true : nobody",
    ] {
        let text = step(&format!("next: [{{if: '{guard}', goto: _end}}]"));
        let ran = check(&bed, text).expect(65);
        assert!(
            ran.stdout.contains("there is no `nobody` for expressions"),
            "{guard}: {ran:?}"
        );
    }
}
