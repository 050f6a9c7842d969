//! The prompts of agents' steps.

use serde_json::json;

use super::bed::bed;
use crate::text::error::Kind;

#[test]
fn the_file_comes_first_and_is_not_substituted() {
    let bed = bed(
        "{name: a, agent: coder, input_file: specs/prompts/p.md, prompt: \"Do ${request} $$1\"}",
    );
    // What lies in specs/ now does not matter: the run is pinned.
    bed.file("specs/prompts/p.md", "changed");
    assert_eq!(bed.prompt("a"), "Pinned ${request}.\n\nDo please $1");
}

#[test]
fn a_pinned_file_that_was_changed_is_a_violation() {
    let bed = bed("{name: a, agent: coder, input_file: specs/prompts/p.md}");
    let copy = format!("workspace/{}/spec/specs/prompts/p.md", super::bed::RUN);
    bed.file(&copy, "changed");
    bed.refused("a", Kind::SafetyViolation, "was changed");
}

#[test]
fn an_output_stands_whole_in_a_prompt_and_cut_elsewhere() {
    let mut bed = bed(concat!(
        "{name: one, command: [x]}\n",
        "{name: a, agent: coder, prompt: \"<${steps.one.output}>\"}\n",
        "{name: b, command: [echo, \"${steps.one.output}\"]}\n",
        "{name: t, agent: coder, prompt: \"<${steps.one.tail}>\"}"
    ));
    bed.refused("a", Kind::UndefinedVariableError, "steps.one.output");
    bed.printed("one", "0123456789abcdef");
    bed.file("artifacts/shell/one.err", "oops");
    assert_eq!(bed.prompt("a"), "<0123456789abcdef>");
    assert_eq!(bed.argv("b"), ["echo", "0123456789"]);
    assert_eq!(bed.prompt("t"), "<0123456789abcdef\noops>");

    bed.printed("one", &"x".repeat(1024 * 1024 + 1));
    bed.refused("a", Kind::OutputTooLargeError, "1048577 bytes");
    bed.printed("one", &format!("é{}", "y".repeat(64 * 1024 - 1)));
    assert_eq!(bed.prompt("t").len(), 64 * 1024 - 1 + "<\noops>".len());
}

#[test]
fn an_answer_that_was_changed_or_lost_is_not_used() {
    let mut bed = bed(concat!(
        "{name: one, command: [x]}\n",
        "{name: a, agent: coder, prompt: \"${steps.one.output}\"}"
    ));
    bed.printed("one", "short");
    bed.state.step_results["one"]["artifacts"] =
        json!([{"path": "artifacts/shell/one.out", "bytes": 5, "sha256": "00"}]);
    bed.refused("a", Kind::UndefinedVariableError, "was changed");
    std::fs::remove_file(bed.root.path.join("artifacts/shell/one.out")).unwrap();
    assert_eq!(bed.prompt("a"), "short");
    bed.state.step_results["one"]["truncated"] = json!(true);
    bed.refused("a", Kind::UndefinedVariableError, "cannot be read");
}

#[test]
fn dependencies_are_found_required_and_injected() {
    let mut bed = bed(concat!(
        "{name: list, agent: coder, prompt: go, depends_on: {required: [\"docs/*.md\"], optional: [\"none/*\", docs/b.md], inject: true}}\n",
        "{name: content, agent: coder, prompt: go, depends_on: {required: [\"${context.d}/a.md\"], inject: {mode: content, position: append, instruction: Read}}}\n",
        "{name: away, agent: coder, cwd: app, prompt: go, depends_on: {required: [docs/a.md], inject: true}}\n",
        "{name: plain, agent: coder, prompt: go, depends_on: {required: [docs/a.md]}}\n",
        "{name: missing, command: [x], depends_on: {required: [\"docs/*.md\", \"x/*\", y]}}"
    ));
    bed.state.variables["context"] = json!({"d": "docs"});
    bed.refused(
        "missing",
        Kind::DependencyNotFoundError,
        "`docs/*.md`, `x/*`, `y`",
    );
    bed.file("docs/b.md", "B ${request}").file("docs/a.md", "A");
    bed.refused("missing", Kind::DependencyNotFoundError, "`x/*`, `y`");
    assert_eq!(
        bed.prompt("list"),
        "The following files are required inputs for this task:\n- docs/a.md\n- docs/b.md\n\ngo"
    );
    assert_eq!(
        bed.prompt("content"),
        "go\n\nRead\n\n=== File: docs/a.md (1/1 bytes) ===\nA\n"
    );
    let there = bed.root.path.join("docs/a.md");
    assert!(
        bed.prompt("away")
            .contains(&format!("- {}\n", there.display()))
    );
    assert_eq!(bed.prompt("plain"), "go");
    bed.state.variables["context"] = json!({"d": "../docs"});
    bed.refused("content", Kind::SafetyViolation, "`..`");
}

#[test]
fn what_was_wrong_before_is_said_at_the_end() {
    let bed = bed("{name: a, agent: coder, prompt: go}");
    let ready = bed.ask("a", Some("Print JSON.")).unwrap();
    let crate::work::step::Ready::Run(plan) = ready else {
        panic!("a plan");
    };
    assert_eq!(plan.task.body(), "go\n\nPrint JSON.");
    assert!(!plan.as_dropped && plan.chain.is_none() && plan.retries == 0);
}
