//! The words that variables are made of. A list only: the loader compares, this does not.

/// The roots that every text may name; the loop's `as` and a provider's own words come on top.
pub const ROOTS: &[&str] = &[
    "request",
    "reply",
    "input",
    "run",
    "item",
    "loop",
    "steps",
    "context",
    "state",
    "STATE_FILE",
];
/// What `run` has.
pub const RUN_FIELDS: &[&str] = &["id", "root", "files", "timestamp_utc"];
/// What `loop` has.
pub const LOOP_FIELDS: &[&str] = &["index", "total"];
/// What a step's result has.
pub const STEP_FIELDS: &[&str] = &[
    "exit_code",
    "output",
    "lines",
    "json",
    "duration",
    "tail",
    "note",
    "status",
    "error",
    "attempt",
    "visit",
    "truncated",
    "artifacts",
    "files",
    "wait_duration_ms",
    "poll_count",
    "start_time",
    "end_time",
    "step_name",
    "json_data",
];
