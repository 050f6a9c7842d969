//! The three kinds of specs say the same of the same files, and nothing of others.

use std::fs;

use super::*;
use crate::spec::workflow::check;

const WORKFLOW: &str = "version: \"1\"\nname: w\nsteps:\n  - {name: a, agent: coder, input_file: specs/prompts/p.md}\n  - {name: b, command: [x], dir: app, output_capture: json, output_schema: specs/schemas/s.json}\n";

fn root() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("inbox/x", ""),
        ("secret", "outside of specs"),
        (
            "specs/orch.yaml",
            "layout: 1\nprovider: mine\ndirs: {app: {path: /tmp}}\n",
        ),
        (
            "specs/providers.yaml",
            "providers: {mine: {command: [cat], prompt_via: stdin}}\n",
        ),
        ("specs/agents/coder.md", "---\naccess: edit\n---\nWork.\n"),
        ("specs/agents/unused.md", "Idle.\n"),
        ("specs/prompts/p.md", "Do it."),
        ("specs/schemas/s.json", "{}"),
    ] {
        let path = temp.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    temp
}

#[test]
fn only_what_is_below_specs_is_given_out() {
    let temp = root();
    let folder = Folder::open(temp.path()).unwrap();
    assert!(folder.file("specs/prompts/p.md").unwrap().is_some());
    for path in [
        "secret",
        "specs/../secret",
        "./secret",
        "/etc/passwd",
        "specs//prompts/p.md",
        "specs/",
        "specs",
        "",
        "specs/a\0b",
        "specs/prompts/none.md",
    ] {
        assert_eq!(folder.file(path).unwrap(), None, "{path}");
    }
    assert!(folder.file("specs/prompts").is_err());
    fs::write(temp.path().join("specs/big"), "x".repeat(300 << 10)).unwrap();
    assert!(folder.file("specs/big").is_err());
}

#[test]
fn a_run_keeps_what_was_read_and_needs_nothing_else() {
    let temp = root();
    let folder = Folder::open(temp.path()).unwrap();
    let recorder = Recorder::new(&folder).unwrap();
    let first = check("w.yaml", WORKFLOW, &recorder);
    assert!(first.report.is_clean(), "{}", first.report.render());
    let used = recorder.used();
    let names: Vec<&str> = used.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "specs/agents/coder.md",
            "specs/orch.yaml",
            "specs/prompts/p.md",
            "specs/providers.yaml",
            "specs/schemas/s.json",
        ]
    );
    assert_eq!(used["specs/prompts/p.md"], b"Do it.");
    drop(temp);
    let pinned = Pinned::new(used).unwrap();
    let again = check("w.yaml", WORKFLOW, &pinned);
    assert_eq!(first.report, again.report);
    assert_eq!(pinned.agents(), ["coder"]);
    assert_eq!(pinned.default_provider().as_deref(), Some("mine"));
}

#[test]
fn a_pinned_file_that_is_no_text_is_a_fault() {
    let files = Files::from([("specs/x".to_owned(), vec![0xff])]);
    assert!(Pinned::new(files).unwrap().file("specs/x").is_err());
}
