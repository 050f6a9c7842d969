//! From the tree of a file to the typed workflow: names are resolved, illegal pairs refused.
//!
//! Shapes were judged before, by `conform`; whatever has the wrong one is passed over here in
//! silence. A workflow comes back even if there were faults, so that the checks can find the rest;
//! only a clean one is ever handed out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::model::*;
use super::problem::Gather;
use crate::spec::provider::{self, ProviderConfig};
use crate::spec::task::AgentName;
use crate::text::suggest;
use crate::text::yaml::tree::{Content, Node};

/// The parts of the canonical document that are orch's own.
pub(super) const RESERVED_STATE: &[&str] = &["metadata", "governance"];
const MAX_NAME: usize = 64;
const DEFAULT_TRANSITIONS: u64 = 1000;

/// What loading gives to the checks.
pub(super) struct Loaded {
    pub(super) workflow: Workflow,
    /// Some target is unknown, so that what can be reached cannot be told.
    pub(super) broken_flow: bool,
}

/// The nodes of all steps, numbered, before any of them is read.
pub(super) struct Outline<'n> {
    pub(super) nodes: Vec<&'n Node>,
    pub(super) levels: Vec<Level>,
    pub(super) children: Vec<Vec<StepId>>,
    pub(super) order: Vec<StepId>,
    pub(super) names: HashMap<&'n str, StepId>,
}

impl<'n> Outline<'n> {
    fn of(root: &'n Node) -> Self {
        let mut outline = Outline {
            nodes: Vec::new(),
            levels: Vec::new(),
            children: Vec::new(),
            order: Vec::new(),
            names: HashMap::new(),
        };
        let steps = root.get("steps").map(Node::items).unwrap_or_default();
        outline.order = outline.add(steps, Level::Top);
        outline
    }

    fn add(&mut self, steps: &'n [Node], level: Level) -> Vec<StepId> {
        let mut ids = Vec::new();
        for node in steps {
            let id = StepId(self.nodes.len());
            self.nodes.push(node);
            self.levels.push(level);
            self.children.push(Vec::new());
            ids.push(id);
            if let Some(name) = node.get("name").and_then(Node::text) {
                self.names.entry(name).or_insert(id);
            }
            let body = node.get("for_each").and_then(|each| each.get("steps"));
            let inside = match (body, node.get("parallel")) {
                (Some(body), _) => self.add(body.items(), Level::Body(id)),
                (None, Some(subs)) => self.add(subs.items(), Level::Parallel(id)),
                (None, None) => continue,
            };
            self.children[id.0] = inside;
        }
        ids
    }
}

/// Reads the tree of a file whose shape was judged. Nothing comes back if there is no step.
pub(super) fn load(root: &Node, out: &mut Gather<'_>) -> Option<Loaded> {
    let outline = Outline::of(root);
    if outline.order.is_empty() {
        return None;
    }
    let mut loader = Loader {
        outline: &outline,
        out,
        broken_flow: false,
    };
    loader.step_names();
    let steps = (0..outline.nodes.len())
        .map(|index| loader.step(StepId(index)))
        .collect();
    let workflow = loader.workflow(root, steps);
    Some(Loaded {
        workflow,
        broken_flow: loader.broken_flow,
    })
}

/// Reads one file.
pub(super) struct Loader<'a, 'n, 't> {
    pub(super) outline: &'a Outline<'n>,
    pub(super) out: &'a mut Gather<'t>,
    pub(super) broken_flow: bool,
}

impl Loader<'_, '_, '_> {
    fn workflow(&mut self, root: &Node, steps: Vec<Step>) -> Workflow {
        let word = |key: &str| root.get(key).and_then(Node::text);
        let flag = |key: &str, other: bool| flag(root, key).unwrap_or(other);
        Workflow {
            name: self.workflow_name(root),
            version: self.version(root),
            description: word("description").map(str::to_owned),
            strict_flow: flag("strict_flow", true),
            context: map_of(root.get("context")),
            input_schema: root
                .get("input")
                .and_then(|input| input.get("schema"))
                .and_then(text),
            providers: self.providers(root),
            state: self.state(root),
            on_violation: match word("on_violation") {
                Some("reject") => Violation::Reject,
                Some("stop") => Violation::Stop,
                _ => Violation::Block,
            },
            singleton: flag("singleton", false),
            follow_up: self.follow_up(root),
            max_transitions: root
                .get("max_transitions")
                .and_then(Node::number)
                .unwrap_or(DEFAULT_TRANSITIONS),
            steps,
            order: self.outline.order.clone(),
            uses_max_retries: mentions(root, "context.max_retries"),
        }
    }

    fn workflow_name(&mut self, root: &Node) -> Text {
        let Some(name) = root.get("name").and_then(text) else {
            return nowhere(root);
        };
        match AgentName::parse(&name.value) {
            Err(fault) => {
                let message = fault.message.replace("for an agent", "for a workflow");
                let hint = "use a name such as `four-pass`: it is also the name of an inbox";
                self.out.hinted(name.place, message, hint);
            }
            Ok(parsed) if parsed.is_reserved() => {
                let message = format!("`{parsed}` is reserved, and no name for a workflow");
                self.out.fault(name.place, message);
            }
            Ok(_) => {}
        }
        name
    }

    fn version(&mut self, root: &Node) -> Version {
        let Some(node) = root.get("version") else {
            return Version::V1;
        };
        match node.text() {
            Some("1") => Version::V1,
            Some("1.1") => Version::V1_1,
            Some("1.1.1") => Version::V1_1_1,
            _ => {
                let message = format!("`version` is {}, which is not known", node.to_value());
                let hint = "write `version: \"1\"`, in quotes; \"1.1\" and \"1.1.1\" are read too";
                self.out.hinted(node.place, message, hint);
                Version::V1
            }
        }
    }

    fn state(&mut self, root: &Node) -> Map<String, Value> {
        let node = root.get("state");
        for entry in node.map(Node::entries).unwrap_or_default() {
            if RESERVED_STATE.contains(&entry.key.as_str()) {
                let message = format!("`{}` is reserved in `state`", entry.key);
                let hint = "orch keeps it beside the document; choose another name";
                self.out.hinted(entry.place, message, hint);
            }
        }
        map_of(node)
    }

    fn follow_up(&mut self, root: &Node) -> Option<StepId> {
        let node = root.get("follow_up")?;
        let name = node.text()?;
        match self.outline.names.get(name) {
            Some(&id) if self.outline.levels[id.0] == Level::Top => Some(id),
            Some(_) => {
                let message = format!("`follow_up`: `{name}` is inside of another step");
                self.out.fault(node.place, message);
                None
            }
            None => {
                self.unknown_step("`follow_up`", name, node.place);
                None
            }
        }
    }

    fn providers(&mut self, root: &Node) -> BTreeMap<String, Arc<ProviderConfig>> {
        let mut providers = BTreeMap::new();
        let entries = root.get("providers").map(Node::entries).unwrap_or_default();
        for entry in entries {
            let read = serde_json::from_value::<provider::Entry>(match entry.value.content {
                Content::Null => Value::Object(Map::new()),
                _ => entry.value.to_value(),
            });
            let resolved = match read {
                Ok(read) => {
                    provider::resolve(&entry.key, read).map_err(|fault| (fault.message, fault.hint))
                }
                // The table has already named it, with its place.
                Err(error) if error.to_string().starts_with("unknown field") => continue,
                Err(error) => {
                    let (message, hint) = crate::text::error::unhinted(&error.to_string());
                    Err((format!("provider `{}`: {message}", entry.key), hint))
                }
            };
            match resolved {
                Ok(config) => {
                    providers.insert(entry.key.clone(), Arc::new(config));
                }
                Err((message, hint)) => self.out.fault_with(entry.place, message, hint),
            }
        }
        providers
    }

    /// Names that cannot be, and names that are there twice.
    fn step_names(&mut self) {
        let outline = self.outline;
        for (index, node) in outline.nodes.iter().enumerate() {
            // What is not text has been refused with its shape.
            let named = node.get("name").filter(|name| name.text().is_some());
            let Some(name) = named.and_then(text) else {
                continue;
            };
            let first = outline.names.get(name.value.as_str()).copied();
            let first = first.unwrap_or(StepId(index));
            if first != StepId(index) {
                let line = outline.nodes[first.0].place.line;
                let message = format!("there is another step `{}` in line {line}", name.value);
                let hint = "every step has a name of its own, those of bodies included";
                self.out.hinted(name.place, message, hint);
            }
            if let Some(why) = bad_step_name(&name.value) {
                let message = format!("`{}` is not a name for a step: {why}", name.value);
                self.out
                    .hinted(name.place, message, "use a name such as `fix_tests`");
            }
        }
    }

    /// A target of step `id`, as it is written.
    pub(super) fn target(&mut self, id: StepId, node: Option<&Node>) -> Option<Target> {
        let node = node?;
        let name = node.text()?;
        let level = self.outline.levels[id.0];
        match name {
            "_end" => Some(Target::End),
            "_fail" => Some(Target::Fail),
            "_block" => Some(Target::Block),
            "_stop" => Some(Target::Stop),
            "_next" if matches!(level, Level::Body(_)) => Some(Target::Next),
            "_next" => {
                let message = "`_next` is a target only in the body of a loop";
                self.out
                    .hinted(node.place, message, "name a step, or use `_end`");
                self.broken_flow = true;
                None
            }
            _ => self.step_target(id, name, node.place),
        }
    }

    fn step_target(&mut self, id: StepId, name: &str, place: Place) -> Option<Target> {
        let outline = self.outline;
        let Some(&to) = outline.names.get(name) else {
            self.unknown_step("the target", name, place);
            self.broken_flow = true;
            return None;
        };
        let (here, there) = (outline.levels[id.0], outline.levels[to.0]);
        if here == there {
            return Some(Target::Step(to));
        }
        self.broken_flow = true;
        let (message, hint) = match there {
            Level::Body(parent) => (
                format!(
                    "`{name}` is in the body of `{}`, and a body is entered only by its loop",
                    self.name_of(parent)
                ),
                format!("go to `{}`", self.name_of(parent)),
            ),
            Level::Parallel(parent) => (
                format!(
                    "`{name}` is a part of the parallel step `{}`",
                    self.name_of(parent)
                ),
                format!("go to `{}`", self.name_of(parent)),
            ),
            Level::Top => (
                format!("`{name}` is outside of the loop, and a body does not jump out"),
                "use `_next`, `_block` or `_fail`, and let the loop go there".to_owned(),
            ),
        };
        self.out.hinted(place, message, &hint);
        None
    }

    pub(super) fn name_of(&self, id: StepId) -> &str {
        let node = self.outline.nodes[id.0];
        node.get("name").and_then(Node::text).unwrap_or("?")
    }

    /// A step named elsewhere than in a target.
    pub(super) fn step_named(&mut self, what: &str, node: &Node) -> Option<StepId> {
        let name = node.text()?;
        let found = self.outline.names.get(name).copied();
        if found.is_none() {
            self.unknown_step(what, name, node.place);
        }
        found
    }

    fn unknown_step(&mut self, what: &str, name: &str, place: Place) {
        let mut known: Vec<&str> = self.outline.names.keys().copied().collect();
        known.sort_unstable();
        known.extend(["_end", "_fail", "_block", "_stop", "_next"]);
        let near = suggest::suggest(name, known.iter().copied());
        let hint = near.map(|near| format!("did you mean `{near}`?"));
        let message = format!("{what} `{name}` is not a step");
        self.out.fault_with(place, message, hint);
    }
}

fn bad_step_name(name: &str) -> Option<&'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > MAX_NAME {
        Some("it is longer than 64 bytes")
    } else if name.starts_with('_') {
        Some("names that begin with `_` are reserved for targets")
    } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        Some("it does not start with a letter")
    } else if !name.chars().all(good) {
        Some("only letters, digits, `_` and `-` may be in it")
    } else {
        None
    }
}

/// A scalar as text with its place.
pub(super) fn text(node: &Node) -> Option<Text> {
    let value = match &node.content {
        Content::Text(text) => text.clone(),
        Content::Bool(flag) => flag.to_string(),
        Content::Number(number) => number.to_string(),
        _ => return None,
    };
    Some(At {
        value,
        place: node.place,
    })
}

/// The texts of a list; a missing list is an empty one.
pub(super) fn texts(node: Option<&Node>) -> Vec<Text> {
    let items = node.map(Node::items).unwrap_or_default();
    items.iter().filter_map(text).collect()
}

/// The flag of this key.
pub(super) fn flag(node: &Node, key: &str) -> Option<bool> {
    match node.get(key)?.content {
        Content::Bool(flag) => Some(flag),
        _ => None,
    }
}

/// A free map; anything else is an empty one.
pub(super) fn map_of(node: Option<&Node>) -> Map<String, Value> {
    match node.map(Node::to_value) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Whether any text below holds this.
fn mentions(node: &Node, needle: &str) -> bool {
    match &node.content {
        Content::Text(text) => text.contains(needle),
        Content::List(items) => items.iter().any(|item| mentions(item, needle)),
        Content::Map(entries) => entries.iter().any(|entry| mentions(&entry.value, needle)),
        _ => false,
    }
}

fn nowhere(node: &Node) -> Text {
    At {
        value: String::new(),
        place: node.place,
    }
}
