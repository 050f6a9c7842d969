//! What guards and variables may see: named JSON values, and which globs match a file.
//!
//! Only a table of what others looked up. It never looks anything up itself, and it never decides
//! which names a place may use.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

/// The roots that an expression may name. A loop body has `item` and `loop` besides, and the loop's
/// `as` is a root of variables only.
pub const ROOTS: &[&str] = &[
    "output",
    "exit_code",
    "status",
    "error",
    "steps",
    "state",
    "context",
    "input",
    "request",
    "reply",
    "run",
    "visits",
    "approvals",
    "snapshots",
    "item",
    "loop",
];

/// The named values that one evaluation or substitution sees.
///
/// `steps.X` is in the words of the dialect: the parsed output is `json`, not `json_data`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope<'v> {
    roots: BTreeMap<String, Cow<'v, Value>>,
    globs: BTreeMap<String, bool>,
}

impl<'v> Scope<'v> {
    /// A scope in which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Scope::default()
    }

    /// The same scope with one more root, which it owns.
    #[must_use]
    pub fn with(mut self, root: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(root, value);
        self
    }

    /// Sets a root to a value that the scope owns.
    pub fn set(&mut self, root: impl Into<String>, value: impl Into<Value>) {
        self.roots.insert(root.into(), Cow::Owned(value.into()));
    }

    /// Sets a root to a value that lives elsewhere: nothing is copied.
    pub fn lend(&mut self, root: impl Into<String>, value: &'v Value) {
        self.roots.insert(root.into(), Cow::Borrowed(value));
    }

    /// Says whether a glob matches a file, for `exists("glob")`.
    pub fn answer(&mut self, glob: impl Into<String>, found: bool) {
        self.globs.insert(glob.into(), found);
    }

    /// The value of a root.
    #[must_use]
    pub fn root(&self, name: &str) -> Option<&Value> {
        self.roots.get(name).map(AsRef::as_ref)
    }

    /// The names of the roots, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.keys().map(String::as_str)
    }

    /// The globs that were looked up.
    #[must_use]
    pub fn globs(&self) -> &BTreeMap<String, bool> {
        &self.globs
    }
}
