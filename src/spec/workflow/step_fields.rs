//! The fields of a step: the longest part of the one table.
//!
//! Data only, as in `fields`.

use super::fields::Shape::{
    self, Any, Duration, Flag, List, Map, Number, Scalar, Some, Text, Word,
};
use super::fields::{
    DEPENDS, FOR_EACH, GATE, HANDLERS, LIMITS, MANY, Object, RETRIES, ROW, TEXTS, TRANSPORT, WAIT,
    WEEK_SEC, WHEN, f, object,
};

use crate::spec::policy::{Network, Sandbox};

/// A step.
pub static STEP: Object = object(
    "step",
    "the step",
    &["name"],
    &[
        f(
            "name",
            Text,
            "The name of the step: letters, digits, `_` and `-`.",
        ),
        f(
            "phase",
            Scalar,
            "What `metadata.currentPhase` shows. Default: the name.",
        ),
        // what it does
        f(
            "agent",
            Text,
            "Work: the agent that runs, or `human` to ask a person.",
        ),
        f(
            "provider",
            Text,
            "Work: the provider that runs; beside `agent`, instead of the agent's own.",
        ),
        f(
            "command",
            Some(&Scalar),
            "Work: a program and its arguments.",
        ),
        f(
            "command_override",
            Some(&Scalar),
            "Another spelling of `command`.",
        ),
        f("wait_for", Shape::Object(&WAIT), "Work: wait for files."),
        f(
            "parallel",
            Some(&Shape::Object(&STEP)),
            "Work: agent or command steps that run side by side.",
        ),
        f(
            "for_each",
            Shape::Object(&FOR_EACH),
            "Work: repeat a body for each item.",
        ),
        f(
            "action",
            Word(&["load_plan", "mark_plan", "apply_files"]),
            "Work: something that orch does itself.",
        ),
        f(
            "approval",
            Text,
            "The gate that a person must approve: alone, or after an agent or a command.",
        ),
        // agents and people
        f(
            "provider_params",
            Map(&Any),
            "Values for the placeholders of the provider's command.",
        ),
        f("prompt", Text, "What is asked; variables are substituted."),
        f(
            "input_file",
            Text,
            "A file that comes before the prompt; nothing in it is substituted.",
        ),
        f(
            "prompt_transport",
            Shape::Object(&TRANSPORT),
            "How the prompt reaches the program.",
        ),
        f(
            "access",
            Word(&["read", "edit", "full"]),
            "How much the agent may do. Default: edit.",
        ),
        f(
            "choices",
            Some(&Scalar),
            "With `agent: human`: the reply must start with one of these.",
        ),
        // actions
        f(
            "from",
            Text,
            "With `action: apply_files`: the step whose output is applied.",
        ),
        f(
            "into",
            Text,
            "With `action: apply_files`: the folder that the files go to.",
        ),
        f(
            "as",
            Word(&["done", "skipped"]),
            "With `action: mark_plan`: what the current phase becomes.",
        ),
        f(
            "own_ticks",
            Flag,
            "With `action: load_plan`: what is ticked in the plan, and not by orch in this run, fails it.",
        ),
        // order
        f(
            "when",
            Shape::Object(&WHEN),
            "The step is skipped unless this holds.",
        ),
        f(
            "requires",
            List(&Shape::Object(&GATE)),
            "What must hold before it runs; otherwise the run is blocked.",
        ),
        f(
            "ensures",
            List(&Shape::Object(&GATE)),
            "What must hold after it succeeded; otherwise the run is blocked.",
        ),
        f(
            "evidence",
            TEXTS,
            "Globs of what is shown to the person who approves.",
        ),
        f(
            "on_reject",
            Text,
            "Where a rejection leads. Without it the run stays blocked.",
        ),
        f(
            "next",
            Some(&Shape::Object(&ROW)),
            "Where it goes: the first row that holds, after success and after failure.",
        ),
        f("on", Shape::Object(&HANDLERS), "Where it goes by outcome."),
        f(
            "max_visits",
            Number(1, MANY),
            "How often it may be entered.",
        ),
        f(
            "on_limit",
            Text,
            "Where the entry after the last allowed one leads. Default: _fail.",
        ),
        f(
            "per",
            Some(&Text),
            "Entering one of these steps restarts the count of visits.",
        ),
        f(
            "once",
            Flag,
            "A committed result is never produced again in this run.",
        ),
        // limits
        f("timeout", Duration, "Wall-clock limit, such as 15m."),
        f(
            "timeout_sec",
            Number(1, WEEK_SEC),
            "Wall-clock limit in seconds.",
        ),
        f(
            "retries",
            Shape::Object(&RETRIES),
            "How often a failure is tried again.",
        ),
        // surroundings
        f(
            "env",
            Map(&Scalar),
            "Variables that the process gets; nothing is substituted in them.",
        ),
        f(
            "secrets",
            TEXTS,
            "Variables taken from orch's own environment, and masked everywhere.",
        ),
        f(
            "inherit_env",
            TEXTS,
            "The only variables that are inherited.",
        ),
        f(
            "writes",
            TEXTS,
            "Globs of what it may write; an empty list is nothing.",
        ),
        f(
            "reads",
            TEXTS,
            "Globs of what it may read, beside the system itself. Default: everything.",
        ),
        f(
            "network",
            Word(Network::WORDS),
            "What it can reach by network. Default: all.",
        ),
        f(
            "sandbox",
            Word(Sandbox::WORDS),
            "What holds it to that. Default: Landlock, where the kernel has it and something is declared.",
        ),
        f(
            "limits",
            Shape::Object(&LIMITS),
            "How much of the system it may take.",
        ),
        f(
            "updates",
            TEXTS,
            "The parts of the canonical document that it may change.",
        ),
        f("cwd", Text, "The folder it works in, relative to the root."),
        f(
            "dir",
            Text,
            "The name of a directory from the settings; with a plan action, the plan's folder.",
        ),
        f(
            "depends_on",
            Shape::Object(&DEPENDS),
            "Files that it needs.",
        ),
        // output
        f(
            "output_capture",
            Word(&["text", "lines", "json"]),
            "How its output is read. Default: text.",
        ),
        f(
            "output_schema",
            Text,
            "The path of a JSON Schema for its output.",
        ),
        f("output_file", Text, "A file that gets the whole output."),
        f(
            "allow_parse_error",
            Flag,
            "Whether output that is not valid JSON is taken as text.",
        ),
    ],
);
