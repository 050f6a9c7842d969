//! What an expression names, found without evaluating it: roots, steps, files, functions.
//!
//! The listing is for `check` and for the shell, which looks up only what is asked for. It never
//! looks at a value.

use std::collections::{BTreeMap, BTreeSet};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Node, IdedExpr, LiteralValue, SourceInfo,
    operators,
};

use super::limits::LOOP;
use super::meter::OVER_MAP;
use super::{ExprFault, FaultKind};
use crate::text::suggest;

/// Functions that may be called, `has` not counted.
pub const FUNCTIONS: &[&str] = &[
    "size", "int", "uint", "double", "string", "bool", "bytes", "type", "dyn", "matches", "exists",
];
/// Functions that may be called on a value.
pub const METHODS: &[&str] = &["size", "contains", "startsWith", "endsWith", "matches"];
/// What may be done with the items of a list.
pub const MACROS: &[&str] = &["all", "exists", "exists_one", "filter", "map"];
/// Identifiers that name a type.
const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];

/// How much of a value is needed: all of it, or only some of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Need {
    All,
    Fields(BTreeMap<String, Need>),
}

impl Need {
    fn nothing() -> Self {
        Need::Fields(BTreeMap::new())
    }

    fn add(&mut self, path: &[String]) {
        let Need::Fields(fields) = self else { return };
        match path.split_first() {
            None => *self = Need::All,
            Some((first, rest)) => fields
                .entry(first.clone())
                .or_insert_with(Need::nothing)
                .add(rest),
        }
    }
}

/// A part of the argument of `exists`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Path(Vec<String>),
}

/// Everything that an expression names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub roots: BTreeSet<String>,
    /// Every fixed path, root first, in the order of the text.
    pub paths: Vec<Vec<String>>,
    pub globs: Vec<Vec<Part>>,
}

impl Names {
    /// The second names of the paths under `root`.
    pub fn under(&self, root: &str) -> BTreeSet<String> {
        let under = self.paths.iter().filter(|path| path[0] == root);
        under.filter_map(|path| path.get(1)).cloned().collect()
    }

    /// What is needed of each root.
    pub fn needs(&self) -> BTreeMap<String, Need> {
        let mut needs: BTreeMap<String, Need> = BTreeMap::new();
        for path in &self.paths {
            let need = needs.entry(path[0].clone()).or_insert_with(Need::nothing);
            need.add(&path[1..]);
        }
        needs
    }
}

/// Lists the names, or says what cannot be allowed.
pub(super) fn list(node: &IdedExpr, source: &SourceInfo) -> Result<Names, ExprFault> {
    let mut walk = Walk {
        names: Names::default(),
        bound: Vec::new(),
        source,
    };
    walk.visit(node)?;
    Ok(walk.names)
}

/// Calls `f` on a node and on every node below it.
pub(super) fn each<'n>(node: &'n IdedExpr, f: &mut dyn FnMut(&'n IdedExpr)) {
    f(node);
    for child in children(node) {
        each(child, f);
    }
}

fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Node::Call(call) => call
            .target
            .iter()
            .map(AsRef::as_ref)
            .chain(&call.args)
            .collect(),
        Node::Comprehension(walk) => vec![
            &walk.iter_range,
            &walk.accu_init,
            &walk.loop_cond,
            &walk.loop_step,
            &walk.result,
        ],
        Node::List(list) => list.elements.iter().collect(),
        Node::Map(map) => map
            .entries
            .iter()
            .flat_map(|entry| entry_nodes(&entry.expr))
            .collect(),
        Node::Struct(made) => made
            .entries
            .iter()
            .flat_map(|e| entry_nodes(&e.expr))
            .collect(),
        Node::Select(select) => vec![&select.operand],
        Node::Ident(_) | Node::Literal(_) | Node::Unspecified => Vec::new(),
    }
}

fn entry_nodes(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(pair) => vec![&pair.key, &pair.value],
    }
}

struct Walk<'s> {
    names: Names,
    /// The variables of the macros around the place that is looked at.
    bound: Vec<String>,
    source: &'s SourceInfo,
}

impl Walk<'_> {
    fn visit(&mut self, node: &IdedExpr) -> Result<(), ExprFault> {
        if let Some(path) = self.path(node) {
            self.names.roots.insert(path[0].clone());
            self.names.paths.push(path);
            return Ok(());
        }
        match &node.expr {
            Node::Call(call) => self.call(node, call),
            Node::Comprehension(walk) => self.comprehension(node, walk),
            Node::Struct(made) => {
                let message = format!(
                    "`{}{{...}}` makes a type that does not exist",
                    made.type_name
                );
                Err(self
                    .fault(node, message)
                    .hint("a map is written `{\"key\": value}`"))
            }
            Node::Literal(LiteralValue::Bytes(_)) => Err(self
                .fault(node, "bytes have no place in JSON")
                .hint("leave out the `b`")),
            _ => children(node)
                .into_iter()
                .try_for_each(|child| self.visit(child)),
        }
    }

    fn call(&mut self, node: &IdedExpr, call: &CallExpr) -> Result<(), ExprFault> {
        let known = if call.target.is_some() {
            METHODS
        } else {
            FUNCTIONS
        };
        let name = call.func_name.as_str();
        let written = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if written && !known.contains(&name) {
            return Err(self.unknown_function(node, call, known));
        }
        if name == "exists" && call.target.is_none() {
            self.glob(node, call)?;
        }
        children(node)
            .into_iter()
            .try_for_each(|child| self.visit(child))
    }

    fn unknown_function(&self, node: &IdedExpr, call: &CallExpr, known: &[&str]) -> ExprFault {
        let name = &call.func_name;
        let message = match call.target {
            Some(_) => format!("there is no method `.{name}()` with these arguments"),
            None => format!("there is no function `{name}()`"),
        };
        let macros: &[&str] = if call.target.is_some() {
            MACROS
        } else {
            &["has"]
        };
        let words: Vec<&str> = known.iter().chain(macros).copied().collect();
        let fault = self.fault(node, message);
        match suggest::hint(name, &words) {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }

    fn comprehension(
        &mut self,
        node: &IdedExpr,
        walk: &ComprehensionExpr,
    ) -> Result<(), ExprFault> {
        if matches!(walk.iter_range.expr, Node::Map(_)) {
            return Err(self.fault(node, OVER_MAP).hint("use a list"));
        }
        self.visit(&walk.iter_range)?;
        self.visit(&walk.accu_init)?;
        let before = self.bound.len();
        self.bound.push(walk.iter_var.clone());
        self.bound.extend(walk.iter_var2.clone());
        let body = [&walk.loop_cond, &walk.loop_step, &walk.result];
        let result = body.into_iter().try_for_each(|child| self.visit(child));
        self.bound.truncate(before);
        result
    }

    /// The path that a node spells: a root and fields, by dots or `["name"]`.
    fn path(&self, node: &IdedExpr) -> Option<Vec<String>> {
        match &node.expr {
            Node::Ident(name) => {
                let name = name.trim_start_matches('.');
                let own = name.starts_with('@') || self.bound.iter().any(|bound| bound == name);
                let root = if name == LOOP { "loop" } else { name };
                (!own && !TYPES.contains(&name)).then(|| vec![root.to_owned()])
            }
            Node::Select(select) => {
                let mut path = self.path(&select.operand)?;
                path.push(select.field.clone());
                Some(path)
            }
            Node::Call(call) if call.func_name == operators::INDEX => {
                let mut path = self.path(call.args.first()?)?;
                path.push(text_of(call.args.get(1)?)?.to_owned());
                Some(path)
            }
            _ => None,
        }
    }

    fn glob(&mut self, node: &IdedExpr, call: &CallExpr) -> Result<(), ExprFault> {
        let mut parts = Vec::new();
        match call.args.as_slice() {
            [glob] if self.parts(glob, &mut parts) => {
                self.names.globs.push(parts);
                Ok(())
            }
            _ => Err(self
                .fault(
                    node,
                    "`exists()` takes one glob that is known before the guard is evaluated",
                )
                .hint("write `exists(\"a/*.md\")` or `exists(run.files + \"/a/*.md\")`")),
        }
    }

    /// Collects a text literal, a fixed path, or several of them joined by `+`.
    fn parts(&self, node: &IdedExpr, parts: &mut Vec<Part>) -> bool {
        if let Some(text) = text_of(node) {
            parts.push(Part::Text(text.to_owned()));
            return true;
        }
        if let Some(path) = self.path(node) {
            parts.push(Part::Path(path));
            return true;
        }
        match &node.expr {
            Node::Call(call) if call.func_name == operators::ADD => {
                call.args.iter().all(|arg| self.parts(arg, parts))
            }
            _ => false,
        }
    }

    fn fault(&self, node: &IdedExpr, message: impl Into<String>) -> ExprFault {
        let fault = ExprFault::new(FaultKind::Load, message);
        match self.source.offset_for(node.id) {
            Some((start, _)) => fault.at(start as usize),
            None => fault,
        }
    }
}

fn text_of(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Node::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}
