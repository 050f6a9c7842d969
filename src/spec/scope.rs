//! What guards and variables may see: named JSON values, and which globs match a file.
//!
//! Only a table of what others looked up. It never looks anything up itself, and it never decides
//! which names a place may use. What costs something to put together is put together when it is
//! asked for: most guards look at one field of one root.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

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
    roots: BTreeMap<Cow<'v, str>, Root<'v>>,
    globs: Cow<'v, BTreeMap<String, bool>>,
}

/// What stands under a name.
#[derive(Debug, Clone, PartialEq)]
enum Root<'v> {
    Value(Cow<'v, Value>),
    Table(Table<'v>),
    Later(Later<'v>),
}

/// A value that is made when somebody asks for it.
#[derive(Clone)]
struct Later<'v> {
    make: Arc<dyn Fn() -> Value + Send + Sync + 'v>,
    made: OnceLock<Value>,
}

impl Later<'_> {
    fn value(&self) -> &Value {
        self.made.get_or_init(|| (self.make)())
    }
}

impl fmt::Debug for Later<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl PartialEq for Later<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

/// A map whose fields live elsewhere, in one map or in several of which a later one goes before an
/// earlier one. The whole is put together only where somebody asks for it.
#[derive(Debug, Clone, Default)]
pub struct Table<'v> {
    layers: Vec<Layer<'v>>,
    whole: OnceLock<Value>,
}

#[derive(Debug, Clone)]
struct Layer<'v> {
    fields: &'v Map<String, Value>,
    /// The fields in other words, for those that are shown so; each when it is looked at.
    shown: Option<Shown<'v>>,
}

#[derive(Debug, Clone)]
struct Shown<'v> {
    show: fn(&Value) -> Value,
    fields: OnceLock<BTreeMap<&'v str, OnceLock<Value>>>,
}

impl<'v> Table<'v> {
    /// The fields of a map, as they are.
    #[must_use]
    pub fn of(fields: &'v Map<String, Value>) -> Self {
        let shown = None;
        Table {
            layers: vec![Layer { fields, shown }],
            whole: OnceLock::new(),
        }
    }

    /// Lays the fields of a map over those that are there. They are shown in other words, if anybody
    /// looks at them.
    pub fn show(&mut self, fields: &'v Map<String, Value>, show: fn(&Value) -> Value) {
        let shown = Shown {
            show,
            fields: OnceLock::new(),
        };
        self.layers.push(Layer {
            fields,
            shown: Some(shown),
        });
        self.whole = OnceLock::new();
    }

    fn field(&self, name: &str) -> Option<&Value> {
        self.layers.iter().rev().find_map(|layer| layer.field(name))
    }

    fn whole(&self) -> &Value {
        self.whole.get_or_init(|| {
            let names = self.layers.iter().flat_map(|layer| layer.fields.keys());
            let field = |name: &String| Some((name.clone(), self.field(name)?.clone()));
            let all: BTreeMap<String, Value> = names.filter_map(field).collect();
            Value::Object(all.into_iter().collect())
        })
    }
}

impl PartialEq for Table<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.whole() == other.whole()
    }
}

impl<'v> Layer<'v> {
    fn field(&self, name: &str) -> Option<&Value> {
        let source = self.fields.get(name)?;
        let Some(shown) = &self.shown else {
            return Some(source);
        };
        let names = self.fields.keys();
        let all = shown
            .fields
            .get_or_init(|| names.map(|name| (name.as_str(), OnceLock::new())).collect());
        let field = all.get(name)?;
        Some(field.get_or_init(|| (shown.show)(source)))
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
    pub fn with(mut self, root: impl Into<Cow<'v, str>>, value: impl Into<Value>) -> Self {
        self.set(root, value);
        self
    }

    /// Sets a root to a value that the scope owns.
    pub fn set(&mut self, root: impl Into<Cow<'v, str>>, value: impl Into<Value>) {
        self.roots
            .insert(root.into(), Root::Value(Cow::Owned(value.into())));
    }

    /// Sets a root to a value that lives elsewhere: nothing is copied.
    pub fn lend(&mut self, root: impl Into<Cow<'v, str>>, value: &'v Value) {
        self.roots
            .insert(root.into(), Root::Value(Cow::Borrowed(value)));
    }

    /// Sets a root to a map whose fields live elsewhere.
    pub fn table(&mut self, root: impl Into<Cow<'v, str>>, table: Table<'v>) {
        self.roots.insert(root.into(), Root::Table(table));
    }

    /// Sets a root to a value that is made when somebody asks for it.
    pub fn later(
        &mut self,
        root: impl Into<Cow<'v, str>>,
        make: impl Fn() -> Value + Send + Sync + 'v,
    ) {
        let later = Later {
            make: Arc::new(make),
            made: OnceLock::new(),
        };
        self.roots.insert(root.into(), Root::Later(later));
    }

    /// Says which globs match a file, all of them at once.
    pub fn answers(&mut self, globs: &'v BTreeMap<String, bool>) {
        self.globs = Cow::Borrowed(globs);
    }

    /// Says whether a glob matches a file, for `exists("glob")`.
    pub fn answer(&mut self, glob: impl Into<String>, found: bool) {
        self.globs.to_mut().insert(glob.into(), found);
    }

    /// The value of a root; of a table it has to be put together first.
    #[must_use]
    pub fn root(&self, name: &str) -> Option<&Value> {
        match self.roots.get(name)? {
            Root::Value(value) => Some(value),
            Root::Table(table) => Some(table.whole()),
            Root::Later(later) => Some(later.value()),
        }
    }

    /// One field of a root, without the others.
    #[must_use]
    pub fn field(&self, root: &str, field: &str) -> Option<&Value> {
        match self.roots.get(root)? {
            Root::Value(value) => value.get(field),
            Root::Table(table) => table.field(field),
            Root::Later(later) => later.value().get(field),
        }
    }

    /// Whether a root is a table, of which it is better to take fields.
    #[must_use]
    pub fn is_table(&self, root: &str) -> bool {
        matches!(self.roots.get(root), Some(Root::Table(_)))
    }

    /// The names of the roots, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.keys().map(AsRef::as_ref)
    }

    /// The globs that were looked up.
    #[must_use]
    pub fn globs(&self) -> &BTreeMap<String, bool> {
        &self.globs
    }
}
