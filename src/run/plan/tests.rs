//! Plans as planners write them: what is read, what is refused, and what marking changes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::spec::workflow::model::Mark;

fn folder(master: &str, files: &[(&str, &str)]) -> Folder {
    let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    Folder {
        master: master.to_owned(),
        files: files.iter().map(own).collect::<BTreeMap<_, _>>(),
    }
}

/// A phase of these tasks; each is its metadata, and files are named after their number.
fn one_phase(tasks: &[&str]) -> Folder {
    let mut master = "## Phase 1: All\n".to_owned();
    let mut files = BTreeMap::new();
    for (index, meta) in tasks.iter().enumerate() {
        let id = index + 1;
        master.push_str(&format!("- [ ] 0{id}: task {id} (0{id}-t.md)\n"));
        files.insert(format!("0{id}-t.md"), format!("# Task 0{id}: t\n{meta}\n"));
    }
    Folder { master, files }
}

fn faults(folder: &Folder) -> String {
    let faults = read(folder).expect_err("a plan with faults");
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What each task of the current phase needs.
fn needs(folder: &Folder) -> Vec<Value> {
    let plan = read(folder)
        .unwrap_or_else(|faults| panic!("{faults:?}"))
        .to_value("d");
    let tasks = plan["current"]["tasks"].as_array().unwrap().clone();
    tasks
        .into_iter()
        .map(|task| task["depends_on"].clone())
        .collect()
}

const MASTER_TEXT: &str = "# Master Plan: x\n\n**Progress**: 1/3 tasks (33%)\n\n## Phase 1: Foundations\n**Status**: Completed\n\n- [x] 01: Parser (`01-parser.md`)\n\n## Phase 2: The rest\n**Status**: Pending\n\n- [ ] 02: Lexer (`02-lexer.md`)\n  - [ ] a detail\n- [ ] 03: Printer (`03-printer.md`)\n\n### Acceptance criteria\n- [ ] all tests pass\n\n## Notes\n- [ ] 99 bottles\n\n```\n- [ ] 98: an example\n```\n";

fn example() -> Folder {
    folder(
        MASTER_TEXT,
        &[
            ("01-parser.md", "# Task 01: Parser\n"),
            (
                "02-lexer.md",
                "# Task 02: Lexer\n- **Depends On**: 01\n- **Parallel With**: 03\n- **Files**: `src/a.rs`, `./src/b.rs`\n- **requires_ux_dx_review**: true\n- **Status**: Pending\n",
            ),
            (
                "03-printer.md",
                "# Task 03: Printer\nParallel With: Task 02\nFiles to modify:\n- src/c.rs (new)\n",
            ),
            ("README.md", "nothing\n"),
        ],
    )
}

#[test]
fn a_plan_becomes_the_document_that_workflows_see() {
    let plan = read(&example()).unwrap();
    let expected = json!({
        "dir": "t", "done": 1, "total": 3,
        "phases": [
            {"number": 1, "title": "Foundations", "status": "done", "tasks": ["01"]},
            {"number": 2, "title": "The rest", "status": "open", "tasks": ["02", "03"]}
        ],
        "tasks": [
            {"id": "01", "file": "t/01-parser.md", "title": "Parser", "depends_on": [], "parallel_with": [], "files": [], "requires_ux_dx_review": false, "done": true, "skipped": false},
            {"id": "02", "file": "t/02-lexer.md", "title": "Lexer", "depends_on": ["01"], "parallel_with": ["03"], "files": ["src/a.rs", "src/b.rs"], "requires_ux_dx_review": true, "done": false, "skipped": false},
            {"id": "03", "file": "t/03-printer.md", "title": "Printer", "depends_on": [], "parallel_with": ["02"], "files": ["src/c.rs"], "requires_ux_dx_review": false, "done": false, "skipped": false}
        ],
        "current": {"number": 2, "title": "The rest", "status": "open", "tasks": [
            {"id": "02", "file": "t/02-lexer.md", "title": "Lexer", "depends_on": [], "parallel_with": ["03"], "files": ["src/a.rs", "src/b.rs"], "requires_ux_dx_review": true, "done": false, "skipped": false},
            {"id": "03", "file": "t/03-printer.md", "title": "Printer", "depends_on": [], "parallel_with": ["02"], "files": ["src/c.rs"], "requires_ux_dx_review": false, "done": false, "skipped": false}
        ]}
    });
    assert_eq!(plan.to_value("t"), expected);
}

#[test]
fn the_lines_of_tasks_may_be_written_in_many_ways() {
    let ways = [
        "- [ ] 01: Do it (`01-a.md`)",
        "* [ ] **Task 01**: Do it - `01-a.md`",
        "+ [] Task 1 — Do it",
        "1. [ ] [Do it](01-a.md)",
        "- [ ] `01-a.md`: Do it",
        "  - [ ] 01 Do it (see tasks/01-a.md)",
        "- **[ ] 01: Do it**",
        "| [ ] | 01 | Do it | 01-a.md |",
        "| 01 | Do it | `01-a.md` | [ ] |",
        "| Task 01 | [Do it](01-a.md) | [ ] |",
    ];
    for way in ways {
        for heading in [
            "## Phase 1: P",
            "### PHASE 1 - P",
            "# 🚀 Phase 1: P",
            "**Phase 1: P**",
        ] {
            let text = format!("{heading}\r\n\r\n| x | y |\r\n|---|---|\r\n{way}\r\n");
            let plan = read(&folder(&text, &[("01-a.md", "")]));
            let plan = plan.unwrap_or_else(|faults| panic!("{way}: {faults:?}"));
            assert_eq!(plan.phases[0].title, "P", "{heading}");
            let task = &plan.tasks[0];
            assert_eq!(
                (task.title.as_str(), task.file.as_str()),
                ("Do it", "01-a.md"),
                "{way}"
            );
        }
    }
}

#[test]
fn metadata_may_be_written_in_many_ways() {
    let ways = [
        "Depends On: 01\nParallel With: 03\nFiles: a.rs, b/c.rs\nrequires_ux_dx_review: yes",
        "- **Depends On:** Task 01 (the first)\n- **Parallel With:** Task 03\n- **Files Touched:** `a.rs` and `b/c.rs`\n- **UX/DX Review:** required",
        "---\ndepends_on: [01]\nparallel_with: [03]\nfiles: [a.rs, ./b//c.rs]\nrequires_ux_dx_review: true\n---",
        "| Field | Value |\n|---|---|\n| Depends On | 01 |\n| Parallel With | 03 |\n| Files | `a.rs`, `b/c.rs` |\n| requires_ux_dx_review | true |",
        "## Depends On\n\n- Task 01\n\n## Parallel With\n03\n\n## Files to Modify\n\n- `a.rs` - calls `b`\n- [ ] `b/c.rs:10-20`: x\n\n## UX\n**Requires UX/DX Review**: Yes",
        "* **Dependencies**: 01-t.md\n* **Parallel With**:\n  * 03\n* **Files**:\n  * a.rs (new)\n  * b/c.rs\n* **requires_ux_dx_review**: [x]",
    ];
    for way in ways {
        let plan =
            read(&one_phase(&["", way, ""])).unwrap_or_else(|faults| panic!("{way}: {faults:?}"));
        let task = &plan.tasks[1];
        assert_eq!(task.depends_on, ["01"], "{way}");
        assert_eq!(task.parallel_with, ["03"], "{way}");
        assert_eq!(task.files, ["a.rs", "b/c.rs"], "{way}");
        assert!(task.requires_ux_dx_review, "{way}");
    }
    let none = "Depends On: None\nParallel With: n/a\nFiles: -\nrequires_ux_dx_review: false";
    let plan = read(&one_phase(&["", none])).unwrap();
    let task = &plan.tasks[1];
    assert!(task.depends_on.is_empty() && task.parallel_with.is_empty() && task.files.is_empty());
    assert!(!task.requires_ux_dx_review);
}

#[test]
fn the_three_patterns_come_out_of_the_metadata() {
    // All at once.
    let all = one_phase(&[
        "Parallel With: 02, 03",
        "Parallel With: 01-03",
        "Parallel With: all",
    ]);
    assert_eq!(needs(&all), [json!([]), json!([]), json!([])]);
    // One by one.
    assert_eq!(
        needs(&one_phase(&["", "", ""])),
        [json!([]), json!(["01"]), json!(["02"])]
    );
    // Two at once, then the third.
    let mixed = one_phase(&["Parallel With: 02", "", "Depends On: 01, 02"]);
    assert_eq!(needs(&mixed), [json!([]), json!([]), json!(["01", "02"])]);
    // One side naming the other is enough; what is not named waits.
    let half = one_phase(&["", "Parallel With: 01", "Parallel With: 02"]);
    assert_eq!(needs(&half), [json!([]), json!([]), json!(["01"])]);
    // A dependency on what comes later in the plan turns the order around.
    let turned = one_phase(&["Depends On: 02", ""]);
    assert_eq!(needs(&turned), [json!(["02"]), json!([])]);
}

#[test]
fn what_touches_the_same_file_never_runs_side_by_side() {
    let table = [
        ("a.rs", "a.rs", true),
        ("./a.rs", "a.rs", true),
        ("src", "src/a.rs", true),
        ("src/", "src/deep/a.rs", true),
        ("src/**", "src/a.rs", true),
        ("*.md", "src/a.rs", true),
        ("src/a*", "src/b.rs", false),
        ("a.rs", "a.rs2", false),
        ("src", "src2/a.rs", false),
    ];
    for (one, two, shared) in table {
        let tasks = [
            format!("Parallel With: 02\nFiles: `{one}`"),
            format!("Files: `{two}`"),
        ];
        let needs = needs(&one_phase(&[&tasks[0], &tasks[1]]));
        let expected = if shared { json!(["01"]) } else { json!([]) };
        assert_eq!(needs[1], expected, "{one} {two}");
    }
}

#[test]
fn what_is_ticked_is_not_to_do_and_nobody_waits_for_it() {
    let text = "## Phase 1: P\n- [x] 01: a\n- [ ] 02: b\n- [-] 03: c\n- [ ] 04: d\n";
    let files = [
        ("01-a.md", ""),
        ("02-b.md", "Depends On: 01"),
        ("03-c.md", ""),
        ("04-d.md", "Depends On: 03"),
    ];
    let folder = folder(text, &files);
    assert_eq!(needs(&folder), [json!([]), json!(["02"])]);
}

#[test]
fn every_fault_is_told_with_its_place() {
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let table: [Case<'_>; 22] = [
        ("", &[], "MASTER_PLAN.md: it has no phase"),
        (
            "## Phase 1: a\n",
            &[],
            "MASTER_PLAN.md:1: phase 1 has no task",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n",
            &[],
            "MASTER_PLAN.md:2: task `01` has no file",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x (01-x.md)\n",
            &[("01-y.md", "")],
            "task `01` has no file `01-x.md`",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n",
            &[("01-x.md", ""), ("02-y.md", "")],
            "02-y.md: no phase lists this task",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n- [ ] 1: y\n",
            &[("01-x.md", "")],
            "MASTER_PLAN.md:3: task `1` is listed twice; the other is in line 2",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n",
            &[("01-x.md", ""), ("1-y.md", "")],
            "may be `01-x.md` or `1-y.md`",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x (a1.md)\n- [ ] 02: y (a1.md)\n",
            &[("a1.md", "")],
            "have the same file `a1.md`",
        ),
        (
            "## Phase 1: a\n- [ ] something\n",
            &[],
            "MASTER_PLAN.md:2: this line names no task",
        ),
        (
            "## Phase 1: a\n- [?] 01: x\n",
            &[("01-x.md", "")],
            "MASTER_PLAN.md:2: a box contains `?`",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x (../01-x.md)\n",
            &[("01-x.md", "")],
            "is outside the plan's folder",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x (/etc/01-x.md)\n",
            &[("01-x.md", "")],
            "is outside the plan's folder",
        ),
        (
            "## Phase 2: a\n- [ ] 01: x\n## Phase 1: b\n- [ ] 02: y\n",
            &[("01-x.md", ""), ("02-y.md", "")],
            "MASTER_PLAN.md:3: phase 1 comes after phase 2",
        ),
        (
            "## Phase 1: a\n**Status**: Done\n- [ ] 01: x\n",
            &[("01-x.md", "")],
            "MASTER_PLAN.md:2: the status of phase 1 is done, but task `01` is open",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n",
            &[("01-x.md", "\nDepends On: 07")],
            "01-x.md:2: task `01` depends on `07`, which is not a task",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n",
            &[("01-x.md", "Depends On: 1")],
            "01-x.md:1: task `01` depends on itself",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n## Phase 2: b\n- [ ] 02: y\n",
            &[("01-x.md", "Depends On: 02"), ("02-y.md", "")],
            "which is in a later phase",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n## Phase 2: b\n- [ ] 02: y\n",
            &[("01-x.md", "Parallel With: 02"), ("02-y.md", "")],
            "which is in another phase",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n- [ ] 02: y\n",
            &[("01-x.md", "Depends On: 02"), ("02-y.md", "Depends On: 01")],
            "in a cycle: 01, 02",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n- [ ] 02: y\n",
            &[
                ("01-x.md", "Parallel With: 02"),
                ("02-y.md", "Depends On: 01"),
            ],
            "are declared parallel, but one depends on the other",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n",
            &[("01-x.md", "# Task 02: x")],
            "01-x.md:1: the file says that it is task `02`",
        ),
        (
            "## Phase 1: a\n- [ ] 01: x\n",
            &[("01-x.md", "requires_ux_dx_review: perhaps")],
            "01-x.md:1: `requires_ux_dx_review` is `perhaps`",
        ),
    ];
    for (master, files, expected) in table {
        let told = faults(&folder(master, files));
        assert!(told.contains(expected), "{master}\n{told}\n{expected}");
    }
    for path in [
        "/etc/passwd",
        "../x",
        "a/../../x",
        "~/x",
        "C:\\x",
        "a\\..\\..\\x",
    ] {
        let told = faults(&one_phase(&[&format!("Files: `{path}`")]));
        assert!(
            told.contains("01-t.md:2") && told.contains("outside the working folder"),
            "{told}"
        );
    }
    let long = "x".repeat(MAX_FILE_BYTES + 1);
    assert!(faults(&one_phase(&[&long])).contains("01-t.md: it is"));
    let two = faults(&one_phase(&["Depends On: 8", "Depends On: 9"]));
    assert_eq!(two.lines().count(), 2, "{two}");
}

#[test]
fn what_was_done_stays_done() {
    let before = read(&example()).unwrap().to_value("t");
    let mut later = example();
    assert!(read(&later).unwrap().undone(&before).is_empty());
    later.master = later
        .master
        .replace("[x] 01", "[ ] 1")
        .replace("Completed", "Open");
    let told = read(&later).unwrap().undone(&before);
    assert!(told[0].message.contains("`01` was done"), "{told:?}");
    later.master = later.master.replace("[ ] 1", "[-] 1");
    assert_eq!(read(&later).unwrap().undone(&before).len(), 1);
}

#[test]
fn what_nobody_but_orch_may_tick_is_told() {
    let told = |text: &dyn Fn(&str) -> String, before: &Value, own| {
        let mut later = example();
        later.master = text(&later.master);
        let forged = read(&later).unwrap().forged(before, own);
        let messages = forged.into_iter().map(|fault| fault.message);
        messages.collect::<Vec<_>>()
    };
    let before = read(&example()).unwrap().to_value("t");
    let same = |text: &str| text.to_owned();
    let one = |text: &str| text.replace("[ ] 02", "[x] 2");
    let both = |text: &str| {
        one(text)
            .replace("[ ] 03", "[x] 03")
            .replace("Pending", "Done")
    };
    let left_out = |text: &str| text.replace("[ ] 02", "[-] 02");
    let closed = |text: &str| text.replace("Pending", "Skipped");
    let not_by_orch = |what: &str| format!("{what}, and only orch may do that");
    let (second, third) = (
        not_by_orch("task `2` was ticked"),
        not_by_orch("task `03` was ticked"),
    );
    assert_eq!(told(&same, &before, None), [""; 0]);
    assert_eq!(told(&one, &before, None), [second.as_str()]);
    assert_eq!(told(&both, &before, None), [second, third]);
    assert_eq!(
        told(&left_out, &before, None),
        [not_by_orch("task `02` was ticked")]
    );
    assert_eq!(
        told(&closed, &before, None),
        [not_by_orch("phase 2 was closed")]
    );
    // Of a plan that was never read, everything is new.
    assert_eq!(
        told(&same, &Value::Null, None),
        [not_by_orch("task `01` was ticked")]
    );
    // The phase that is being marked may have been marked already, as what it becomes.
    assert_eq!(told(&both, &before, Some((2, Tick::Done))), [""; 0]);
    assert_eq!(told(&one, &before, Some((2, Tick::Skipped))).len(), 1);
    assert_eq!(told(&one, &before, Some((1, Tick::Done))).len(), 1);
    assert_eq!(told(&closed, &before, Some((2, Tick::Skipped))), [""; 0]);
}

#[test]
fn marking_changes_boxes_status_and_counts_and_nothing_else() {
    let folder = example();
    let changed: BTreeMap<_, _> = mark(&folder, 2, Mark::Done).into_iter().collect();
    let expected = MASTER_TEXT
        .replace("1/3 tasks (33%)", "3/3 tasks (100%)")
        .replace("Pending", "Done")
        .replace("[ ] 02:", "[x] 02:")
        .replace("[ ] 03:", "[x] 03:");
    assert_eq!(changed[MASTER], expected);
    let own = folder.files["02-lexer.md"].replace("Pending", "Done");
    assert_eq!(changed["02-lexer.md"], own);
    assert_eq!(changed.len(), 2);
    let skipped: BTreeMap<_, _> = mark(&folder, 2, Mark::Skipped).into_iter().collect();
    let expected = MASTER_TEXT
        .replace("Pending", "Skipped (known issue)")
        .replace("[ ] 02:", "[-] 02:")
        .replace("[ ] 03:", "[-] 03:");
    assert_eq!(skipped[MASTER], expected);
}

#[test]
fn what_is_marked_reads_as_marked_and_is_not_marked_again() {
    for (how, status) in [(Mark::Done, Tick::Done), (Mark::Skipped, Tick::Skipped)] {
        let mut folder = example();
        for (name, text) in mark(&folder, 2, how) {
            match name.as_str() {
                MASTER => folder.master = text,
                _ => {
                    folder.files.insert(name, text);
                }
            }
        }
        let plan = read(&folder).unwrap();
        assert_eq!(plan.phases[1].status, status);
        assert!(plan.current().is_none() && plan.to_value("t")["current"].is_null());
        assert_eq!(mark(&folder, 2, how), []);
    }
}

#[test]
fn a_box_beside_words_is_not_marked_twice() {
    let text = "## Phase 1: P\n- [ ] 1: a\n";
    for (how, own) in [(Mark::Done, "[x] open\n"), (Mark::Skipped, "[-] open\n")] {
        let mut folder = folder(text, &[("1-a.md", "Status: [ ] open\n")]);
        let changed: BTreeMap<_, _> = mark(&folder, 1, how).into_iter().collect();
        assert_eq!(changed["1-a.md"], format!("Status: {own}"));
        // Once more before the master plan was written, and once more after.
        folder.files = [("1-a.md".to_owned(), changed["1-a.md"].clone())].into();
        let again = mark(&folder, 1, how);
        assert_eq!(again, [(MASTER.to_owned(), changed[MASTER].clone())]);
        folder.master = changed[MASTER].clone();
        assert_eq!(mark(&folder, 1, how), []);
    }
}

#[test]
fn what_was_skipped_before_is_not_done_with_its_phase() {
    let text = "## Phase 1: P\n- [-] 1: a\n- [ ] 2: b\n";
    let own = "Status: Skipped\n";
    let folder = folder(text, &[("1-a.md", own), ("2-b.md", "Status: open\n")]);
    let changed: BTreeMap<_, _> = mark(&folder, 1, Mark::Done).into_iter().collect();
    assert_eq!(changed[MASTER], text.replace("[ ]", "[x]"));
    assert_eq!(changed["2-b.md"], "Status: Done\n");
    assert!(!changed.contains_key("1-a.md"), "{changed:?}");
}

#[test]
fn line_ends_and_what_is_around_a_box_stay_as_they_are() {
    let text = "## Phase 1: P\r\nPhase Status: *open*\r\nProgress: 0 of 9\r\n\r\n|done|id|\r\n| [ ] | 01 | ü |\r\n1) []   2: b";
    let folder = folder(text, &[("01-a.md", "Status: [ ] open\r\n"), ("2-b.md", "")]);
    let changed: BTreeMap<_, _> = mark(&folder, 1, Mark::Done).into_iter().collect();
    let expected = "## Phase 1: P\r\nPhase Status: *Done*\r\nProgress: 2 of 2\r\n\r\n|done|id|\r\n| [x] | 01 | ü |\r\n1) [x]   2: b";
    assert_eq!(changed[MASTER], expected);
    assert_eq!(changed["01-a.md"], "Status: [x] open\r\n");
}

/// Text of pieces that a plan is made of, in every order: nothing panics, and a plan that can be
/// read can be marked to its end.
#[test]
fn no_text_breaks_it() {
    let pieces = [
        "## Phase 1: x\n",
        "## Phase 2\n",
        "- [ ] 01: a\n",
        "- [x] 02: b (02-b.md)\n",
        "| [ ] | 03 | ü |\n",
        "Status: done\n",
        "Progress: 0/3\n",
        "```\n",
        "<!--\n",
        "-->\n",
        "|\n",
        "||\n",
        "- [",
        "]\n",
        "ü€",
        "\r\n",
        "Depends On: 01\n",
        "Parallel With: all\n",
        "Files:\n- /x\n",
        "# Task 01\n",
        "**",
        "`",
        "- [ ] 04",
    ];
    let mut seed = 7_u64;
    let mut next = |most: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % most
    };
    for _ in 0..3000 {
        let mut text = || {
            (0..next(12))
                .map(|_| pieces[next(pieces.len())])
                .collect::<String>()
        };
        let names = ["01-a.md", "02-b.md", "03-c.md", "04.md"];
        let folder = Folder {
            master: text(),
            files: names
                .iter()
                .map(|name| ((*name).to_owned(), text()))
                .collect(),
        };
        let Ok(plan) = read(&folder) else { continue };
        let Some(phase) = plan.current() else {
            continue;
        };
        let marked = mark(&folder, phase.number, Mark::Done);
        let master = marked
            .into_iter()
            .find(|(name, _)| name == MASTER)
            .unwrap()
            .1;
        let after = read(&Folder {
            master,
            ..folder.clone()
        })
        .unwrap();
        assert!(
            after
                .current()
                .is_none_or(|next| next.number > phase.number)
        );
        assert_eq!(after.undone(&plan.to_value("d")), []);
    }
}
