//! Every field that a workflow file can hold, with its shape and a sentence: the one table.
//!
//! The loader refuses what is not here, and the JSON Schema is printed from it, so that the two
//! cannot part. It holds no behaviour.

/// What a value must look like.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Text.
    Text,
    /// An expression: text, or `true` and `false`.
    Guard,
    /// `true` or `false`.
    Flag,
    /// A whole number within a range.
    Count(u64, u64),
    /// A whole number within a range, or `{from, default, min, max}`.
    Number(u64, u64),
    /// A duration with its unit, or `{from, default, min, max}` with such.
    Duration,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of such.
    List(&'static Shape),
    /// A list with at least one item.
    Some(&'static Shape),
    /// A map with any keys.
    Map(&'static Shape),
    /// A map with known keys.
    Object(&'static Object),
    /// `true`, `false` or such a map.
    FlagOr(&'static Object),
    /// Text, a number, `true` or `false`.
    Scalar,
    /// A provider, as in `providers.yaml`; its own reader judges it.
    Provider,
    /// Anything.
    Any,
}

/// A map with known keys.
#[derive(Debug)]
pub struct Object {
    /// Its name in the schema.
    pub name: &'static str,
    /// What messages call it.
    pub label: &'static str,
    /// Its keys.
    pub fields: &'static [Field],
    /// The keys that must be there.
    pub required: &'static [&'static str],
}

/// A key of a map.
#[derive(Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// What its value looks like.
    pub shape: Shape,
    /// What it is for.
    pub doc: &'static str,
}

impl Object {
    /// The names of its fields.
    pub fn names(&self) -> Vec<&'static str> {
        self.fields.iter().map(|field| field.name).collect()
    }

    /// The field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

pub(super) const fn f(name: &'static str, shape: Shape, doc: &'static str) -> Field {
    Field { name, shape, doc }
}

pub(super) const fn object(
    name: &'static str,
    label: &'static str,
    required: &'static [&'static str],
    fields: &'static [Field],
) -> Object {
    Object {
        name,
        label,
        fields,
        required,
    }
}

use Shape::{
    Any, Count, Flag, FlagOr, Guard, List, Map, Number, Provider, Scalar, Some, Text, Word,
};

pub use super::step_fields::STEP;

pub(super) const TEXTS: Shape = List(&Text);
pub(super) const MANY: u64 = 1_000_000;
pub(super) const WEEK_SEC: u64 = 7 * 24 * 3600;

/// A workflow file.
pub static WORKFLOW: Object = object(
    "workflow",
    "the workflow",
    &["version", "name", "steps"],
    &[
        f(
            "version",
            Any,
            "The version of the dialect: \"1\", or upstream's \"1.1\" and \"1.1.1\". In quotes.",
        ),
        f(
            "name",
            Text,
            "The name of the workflow; also the name of its inbox.",
        ),
        f("description", Text, "What it is for, in one line."),
        f(
            "strict_flow",
            Flag,
            "Whether a failure that nothing handles ends the run. Default: true.",
        ),
        f(
            "context",
            Map(&Any),
            "Variables with their defaults; `--context K=V` takes the type of the default.",
        ),
        f(
            "input",
            Shape::Object(&INPUT),
            "What the run's `--input` must look like.",
        ),
        f(
            "providers",
            Map(&Provider),
            "Providers for this workflow, as in `providers.yaml`.",
        ),
        f(
            "state",
            Map(&Any),
            "The canonical document as it is at the start; `metadata` and `governance` are reserved.",
        ),
        f(
            "on_violation",
            Word(&["reject", "block", "stop"]),
            "What happens on forged or early tasks and on writes outside the scope. Default: block.",
        ),
        f(
            "singleton",
            Flag,
            "Whether `run` resumes the unfinished run with the same input. Default: false.",
        ),
        f(
            "follow_up",
            Text,
            "The step at which `orch reply` reopens a finished run. Without it, completed is final.",
        ),
        f(
            "max_transitions",
            Count(1, MANY),
            "The ceiling for any run; above it the run fails with LimitExceeded. Default: 1000.",
        ),
        f("steps", Some(&Shape::Object(&STEP)), "The steps, in order."),
    ],
);

static INPUT: Object = object(
    "input",
    "`input`",
    &["schema"],
    &[f(
        "schema",
        Text,
        "The path of a JSON Schema that the input must match.",
    )],
);

pub(super) static WAIT: Object = object(
    "wait_for",
    "`wait_for`",
    &["glob"],
    &[
        f("glob", Text, "The files to wait for."),
        f(
            "timeout_sec",
            Count(1, WEEK_SEC),
            "How long, in seconds. Default: 300.",
        ),
        f(
            "poll_ms",
            Count(10, 600_000),
            "How often it looks, beside waking on the file. Default: 500.",
        ),
        f(
            "min_count",
            Count(1, MANY),
            "How many files must be there. Default: 1.",
        ),
    ],
);

/// A loop.
pub static FOR_EACH: Object = object(
    "for_each",
    "`for_each`",
    &["steps"],
    &[
        f("items", List(&Any), "The items themselves."),
        f(
            "items_from",
            Text,
            "The path of a list, such as `steps.X.json.files`.",
        ),
        f(
            "as",
            Text,
            "The name of the item in the body. Default: item.",
        ),
        f("key", Text, "The field that identifies an item."),
        f(
            "needs",
            Text,
            "The field with the keys of the items that must be done before.",
        ),
        f(
            "conflicts",
            Text,
            "A list field; items that share an entry never run side by side.",
        ),
        f(
            "max_parallel",
            Number(1, 64),
            "How many items run at once. Default: 1.",
        ),
        f(
            "on_error",
            Word(&["fail", "continue"]),
            "Whether a failing item fails the loop. Default: fail.",
        ),
        f("steps", Some(&Shape::Object(&STEP)), "The body."),
    ],
);

pub(super) static TRANSPORT: Object = object(
    "prompt_transport",
    "`prompt_transport`",
    &["mode"],
    &[
        f(
            "mode",
            Word(&["argv", "stdin", "temp_file"]),
            "As an argument, on standard input, or in a file.",
        ),
        f(
            "argv_template",
            Text,
            "With `argv`: the flag before the prompt, such as -p.",
        ),
    ],
);

pub(super) static WHEN: Object = object(
    "when",
    "`when`",
    &[],
    &[
        f(
            "equals",
            Shape::Object(&EQUALS),
            "Two texts that must be the same.",
        ),
        f("exists", Text, "A glob that must match something."),
        f("not_exists", Text, "A glob that must match nothing."),
        f("if", Guard, "An expression that must hold."),
    ],
);

static EQUALS: Object = object(
    "equals",
    "`equals`",
    &["left", "right"],
    &[
        f("left", Scalar, "One side; variables are substituted."),
        f(
            "right",
            Scalar,
            "The other side; variables are substituted.",
        ),
    ],
);

pub(super) static GATE: Object = object(
    "gate",
    "the gate",
    &["check"],
    &[
        f("check", Guard, "The expression that must hold."),
        f(
            "reason",
            Text,
            "What is said if it does not hold; variables are substituted.",
        ),
        f(
            "stop",
            Flag,
            "true: what does not hold is a hard stop (exit code 2) instead of a block.",
        ),
    ],
);

pub(super) static ROW: Object = object(
    "row",
    "the row",
    &["if", "goto"],
    &[
        f("if", Guard, "The expression that must hold."),
        f(
            "goto",
            Text,
            "A step, `_end`, `_fail`, `_block`, `_stop`, or `_next` in a loop body.",
        ),
        f(
            "lock",
            Text,
            "Stores the step's JSON as an immutable snapshot of this name.",
        ),
        f(
            "set",
            Map(&Guard),
            "Paths under `state.` and the expressions that they are set to.",
        ),
        f(
            "reason",
            Text,
            "Logged with the transition; variables are substituted.",
        ),
        f(
            "verdict",
            Word(&["OK", "FAIL"]),
            "The word of the checkpoint, for a step that judges. Default: how the step itself went.",
        ),
    ],
);

pub(super) static HANDLERS: Object = object(
    "on",
    "`on`",
    &[],
    &[
        f("success", Shape::Object(&GOTO), "After success."),
        f("failure", Shape::Object(&GOTO), "After a failure."),
        f(
            "interrupted",
            Shape::Object(&GOTO),
            "After a crash, instead of running again.",
        ),
        f(
            "stopped",
            Shape::Object(&GOTO),
            "After Ctrl-C or SIGTERM ended it, instead of running again.",
        ),
        f(
            "always",
            Shape::Object(&GOTO),
            "Whatever happened; overrides the others.",
        ),
    ],
);

static GOTO: Object = object(
    "goto",
    "the handler",
    &["goto"],
    &[f(
        "goto",
        Text,
        "A step, `_end`, `_fail`, `_block`, `_stop`, or `_next` in a loop body.",
    )],
);

pub(super) static RETRIES: Object = object(
    "retries",
    "`retries`",
    &["max"],
    &[
        f("max", Number(0, 100), "How often, beyond the first try."),
        f(
            "delay_ms",
            Count(0, 3_600_000),
            "The pause before each, in milliseconds. Default: 0.",
        ),
    ],
);

pub(super) static LIMITS: Object = object(
    "limits",
    "`limits`",
    &[],
    &[
        f(
            "processes",
            Count(1, 10_000_000),
            "Processes of the user who runs orch, all together.",
        ),
        f("memory", Text, "Memory of each process, such as 2GiB."),
        f(
            "file",
            Text,
            "The largest file that it may write, such as 1GiB.",
        ),
    ],
);

pub(super) static DEPENDS: Object = object(
    "depends_on",
    "`depends_on`",
    &[],
    &[
        f("required", TEXTS, "Globs that must match something."),
        f("optional", TEXTS, "Globs that may match nothing."),
        f(
            "inject",
            FlagOr(&INJECT),
            "Whether and how the files are put into the prompt.",
        ),
    ],
);

static INJECT: Object = object(
    "inject",
    "`inject`",
    &[],
    &[
        f(
            "mode",
            Word(&["list", "content", "none"]),
            "The paths, the contents, or nothing. Default: list.",
        ),
        f("instruction", Text, "The sentence before the files."),
        f(
            "position",
            Word(&["prepend", "append"]),
            "Before or after the prompt. Default: prepend.",
        ),
    ],
);

/// `{from, default, min, max}` instead of a number.
pub static FROM: Object = object(
    "number",
    "the number",
    &["from"],
    &[
        f(
            "from",
            Text,
            "Where it comes from: `context.k` or `input.k`.",
        ),
        f("default", Any, "The value where that is undefined."),
        f("min", Any, "What is smaller becomes this, with a warning."),
        f("max", Any, "What is larger becomes this, with a warning."),
    ],
);

/// The keys of a provider, for a place with the first unknown one.
pub const PROVIDER_KEYS: &[&str] = &[
    "preset",
    "command",
    "defaults",
    "prompt_via",
    "input_mode",
    "output",
    "result",
    "success",
    "transient",
    "fatal",
    "too_long",
    "access",
    "access_env",
    "env",
    "set_env",
    "also_writes",
    "also_reads",
    "limits",
    "args",
    "system",
    "takes_system",
    "model",
    "tools",
    "idle",
    "commands_start_with",
    "when_confined",
];
