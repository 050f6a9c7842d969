//! What guards and variables may see: named JSON values, and which globs match a file.
//!
//! Only a table of what others looked up. It never looks anything up itself, and it never decides
//! which names a place may use.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

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
    roots: BTreeMap<String, Root<'v>>,
    globs: BTreeMap<String, bool>,
}

/// What stands under a name.
#[derive(Debug, Clone, PartialEq)]
enum Root<'v> {
    Value(Cow<'v, Value>),
    Table(Table<'v>),
}

/// A map whose fields live elsewhere. The whole is put together only where somebody asks for it.
#[derive(Debug, Clone, Default)]
pub struct Table<'v> {
    fields: BTreeMap<&'v str, Field<'v>>,
    whole: OnceLock<Value>,
}

#[derive(Debug, Clone)]
struct Field<'v> {
    source: &'v Value,
    show: Option<fn(&Value) -> Value>,
    shown: OnceLock<Value>,
}

impl<'v> Table<'v> {
    /// The fields of a map, as they are.
    #[must_use]
    pub fn of(map: &'v Map<String, Value>) -> Self {
        let mut table = Table::default();
        map.iter().for_each(|(name, value)| table.lend(name, value));
        table
    }

    /// Sets a field to a value that lives elsewhere.
    pub fn lend(&mut self, name: &'v str, source: &'v Value) {
        self.put(name, source, None);
    }

    /// The same, for a value that is shown in other words, if anybody looks at it.
    pub fn show(&mut self, name: &'v str, source: &'v Value, show: fn(&Value) -> Value) {
        self.put(name, source, Some(show));
    }

    fn put(&mut self, name: &'v str, source: &'v Value, show: Option<fn(&Value) -> Value>) {
        let shown = OnceLock::new();
        self.fields.insert(
            name,
            Field {
                source,
                show,
                shown,
            },
        );
        self.whole = OnceLock::new();
    }

    fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).map(Field::value)
    }

    fn whole(&self) -> &Value {
        let fields = || {
            self.fields
                .iter()
                .map(|(name, field)| ((*name).to_owned(), field.value().clone()))
        };
        self.whole.get_or_init(|| Value::Object(fields().collect()))
    }
}

impl PartialEq for Table<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.whole() == other.whole()
    }
}

impl Field<'_> {
    fn value(&self) -> &Value {
        match self.show {
            None => self.source,
            Some(show) => self.shown.get_or_init(|| show(self.source)),
        }
    }
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
        self.roots
            .insert(root.into(), Root::Value(Cow::Owned(value.into())));
    }

    /// Sets a root to a value that lives elsewhere: nothing is copied.
    pub fn lend(&mut self, root: impl Into<String>, value: &'v Value) {
        self.roots
            .insert(root.into(), Root::Value(Cow::Borrowed(value)));
    }

    /// Sets a root to a map whose fields live elsewhere.
    pub fn table(&mut self, root: impl Into<String>, table: Table<'v>) {
        self.roots.insert(root.into(), Root::Table(table));
    }

    /// Says whether a glob matches a file, for `exists("glob")`.
    pub fn answer(&mut self, glob: impl Into<String>, found: bool) {
        self.globs.insert(glob.into(), found);
    }

    /// The value of a root; of a table it has to be put together first.
    #[must_use]
    pub fn root(&self, name: &str) -> Option<&Value> {
        match self.roots.get(name)? {
            Root::Value(value) => Some(value),
            Root::Table(table) => Some(table.whole()),
        }
    }

    /// One field of a root, without the others.
    #[must_use]
    pub fn field(&self, root: &str, field: &str) -> Option<&Value> {
        match self.roots.get(root)? {
            Root::Value(value) => value.get(field),
            Root::Table(table) => table.field(field),
        }
    }

    /// Whether a root is a table, of which it is better to take fields.
    #[must_use]
    pub fn is_table(&self, root: &str) -> bool {
        matches!(self.roots.get(root), Some(Root::Table(_)))
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
