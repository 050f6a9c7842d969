//! The processes of steps: command lines, folders, environments, limits; and what is refused.

use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::json;

use super::bed::{bed, bed_with};
use crate::spec::provider::invocation::StdinPlan;
use crate::text::error::Kind;
use crate::work::step::{Ready, WantedFiles};

#[test]
fn a_command_has_no_shell_and_a_list_spreads() {
    let mut bed = bed(concat!(
        "{name: a, command: [\"run\", \"${context.files}\", \"-x=${context.files}\", \"${request}; rm $HOME\"]}\n",
        "{name: empty, command: [\"${context.none}\"]}\n",
        "{name: long, command: [echo, \"${context.long}\"]}\n",
        "{name: nul, command: [echo, \"${context.nul}\"]}\n",
        "{name: gone, command: [echo, \"${context.gone}\"]}"
    ));
    bed.state.variables["context"] = json!({
        "files": ["a b", "$(c)"], "none": [], "long": "x".repeat(200_000), "nul": "a\0b"
    });
    let plan = bed.plan("a");
    let invocation = plan.invocation.unwrap();
    let expected = [
        "run",
        "a b",
        "$(c)",
        "-x=[\"a b\",\"$(c)\"]",
        "please; rm $HOME",
    ];
    assert_eq!(invocation.argv, expected);
    assert_eq!(invocation.stdin, StdinPlan::Null);
    assert_eq!(plan.setup.provider_name, "shell");
    assert!(plan.task.body().is_empty() && plan.dir.is_none());
    bed.refused("empty", Kind::InvalidTask, "is empty");
    bed.refused("long", Kind::InvalidTask, "195.3KiB");
    bed.refused("nul", Kind::InvalidTask, "NUL");
    bed.refused("gone", Kind::UndefinedVariableError, "context.gone");
}

#[test]
fn a_provider_gets_parameters_files_and_variables() {
    let bed = bed_with(
        concat!(
            "{name: a, provider: p, prompt: hi, access: read, provider_params: {model: \"m-${request}\", n: 3, list: \"${context.l}\"}, output_file: out/x.txt, input_file: specs/prompts/p.md}\n",
            "{name: b, provider: q, prompt: hi, prompt_transport: {mode: argv, argv_template: -p}}\n",
            "{name: c, provider: q, prompt: hi}"
        ),
        concat!(
            "context: {l: [x, y], z: Z}\n",
            "providers:\n",
            "  p: {command: [prog, \"${n}\", \"${d}\", \"${list}\", \"${context.z}\", \"${INPUT_FILE}\", \"${OUTPUT_FILE}\"], defaults: {n: 1, d: dd}, model: [--model, \"${model}\"]}\n",
            "  q: {command: [prog]}\n"
        ),
    );
    let root = bed.root.path.display().to_string();
    let pinned = format!(
        "{root}/workspace/{}/spec/specs/prompts/p.md",
        super::bed::RUN
    );
    let argv = bed.argv("a").join(" ");
    let expected = format!("prog 3 dd x y Z {pinned} {root}/out/x.txt --model m-please");
    assert_eq!(argv, expected);
    let header = bed.plan("a").task.header;
    assert_eq!(header.model.as_deref(), Some("m-please"));
    assert!(!header.params.contains_key("INPUT_FILE"));
    assert_eq!(bed.argv("b"), ["prog", "-p", "hi"]);
    let stdin = bed.plan("c").invocation.unwrap();
    assert_eq!((stdin.argv.len(), stdin.stdin), (1, StdinPlan::Prompt));
    assert_eq!(stdin.prompt_sent, "hi");
}

#[test]
fn a_step_works_inside_the_root_or_in_a_dir_of_the_settings() {
    let bed = bed(concat!(
        "{name: here, command: [x]}\n",
        "{name: sub, command: [x], cwd: \"${run.root}/app\"}\n",
        "{name: top, command: [x], cwd: .}\n",
        "{name: dir, command: [x], dir: app}\n",
        "{name: link, command: [x], cwd: link/in}\n",
        "{name: none, command: [x], cwd: none}\n",
        "{name: up, command: [x], cwd: \"a${context.up}/x\"}"
    ));
    let mut bed = bed;
    bed.state.variables["context"] = json!({"up": "/../.."});
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir(other.path().join("in")).unwrap();
    symlink(other.path(), bed.root.path.join("link")).unwrap();
    let dir = |step: &str| {
        let plan = bed.plan(step);
        (plan.dir.map(|dir| dir.path().to_path_buf()), plan.exclusive)
    };
    let app = bed.root.path.join("app");
    assert_eq!(dir("here"), (None, false));
    assert_eq!(dir("sub"), (Some(app.clone()), false));
    assert_eq!(dir("top"), (None, false));
    assert_eq!(dir("dir"), (Some(app), true));
    bed.refused("link", Kind::SafetyViolation, "by a link");
    bed.refused("none", Kind::FileNotFound, "none");
    bed.refused("up", Kind::SafetyViolation, "`..`");
}

#[test]
fn the_environment_is_set_and_cut_down() {
    let bed = bed(concat!(
        "{name: all, command: [x], env: {A: \"${request}\", PATH: /p}}\n",
        "{name: few, command: [x], inherit_env: [USER_OF_NOTHING]}"
    ));
    let all = bed.plan("all");
    let set = &all.invocation.as_ref().unwrap().set_env;
    assert_eq!(set["A"], "${request}");
    assert_eq!(set["PATH"], "/p");
    let few = bed.plan("few").setup;
    let names: Vec<_> = few.env.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["ORCH_ROOT", "PATH"]);
    assert!(all.setup.env.len() >= few.env.len());
}

#[test]
fn a_timeout_is_a_number_or_comes_from_a_variable() {
    let steps = concat!(
        "{name: usual, command: [x]}\n",
        "{name: fixed, command: [x], timeout: 2m}\n",
        "{name: sec, command: [x], timeout_sec: {from: context.s, default: 5, max: 50}}\n",
        "{name: time, command: [x], timeout: {from: context.t, default: 1m}}\n",
        "{name: must, command: [x], timeout_sec: {from: context.m}}"
    );
    let mut bed = bed_with(steps, "context: {s: 1, t: 1s, m: 1}\n");
    bed.state.variables["context"] = json!({});
    let wall = |bed: &super::bed::Bed, step: &str| bed.plan(step).limits.wall;
    assert_eq!(wall(&bed, "usual"), Duration::from_secs(90));
    assert_eq!(wall(&bed, "fixed"), Duration::from_secs(120));
    assert_eq!(wall(&bed, "sec"), Duration::from_secs(5));
    assert_eq!(wall(&bed, "time"), Duration::from_secs(60));
    bed.refused("must", Kind::UndefinedVariableError, "context.m");
    bed.state.variables["context"] = json!({"s": "99", "t": "1500ms", "m": "soon"});
    assert_eq!(wall(&bed, "sec"), Duration::from_secs(50));
    assert_eq!(wall(&bed, "time"), Duration::from_millis(1500));
    bed.refused("must", Kind::WorkflowValidationError, "soon");
}

#[test]
fn files_are_waited_for() {
    let mut bed = bed(
        "{name: a, wait_for: {glob: \"${run.files}/${context.g}\", min_count: 2, poll_ms: 20}}",
    );
    bed.state.variables["context"] = json!({"g": "*.md"});
    let files = bed.pinned.run.files_path().display().to_string();
    match bed.ask("a", None).unwrap() {
        Ready::Wait(wait) => assert_eq!(
            wait,
            WantedFiles {
                glob: format!("{files}/*.md"),
                timeout: Duration::from_secs(300),
                poll: Duration::from_millis(20),
                min_count: 2,
            }
        ),
        other => panic!("{other:?}"),
    }
    bed.state.variables["context"] = json!({"g": "../../../../x"});
    bed.refused("a", Kind::SafetyViolation, "`..`");
}
