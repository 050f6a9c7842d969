//! A YAML text as a tree in which every key and value has its location.
//!
//! Built from the events of a second parser, which keeps positions, and compared with what the strict
//! reader makes of the same text: where the two differ, the text is refused. All independent errors are
//! reported at once. What a value means is not decided here.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Number, Value};

use super::check::{self, TAG, TAG_HINT};
use super::{MAX_DEPTH, YamlFault};

/// The most nodes and bytes of text after aliases are expanded.
const MAX_NODES: usize = 300_000;
const MAX_EXPANDED_BYTES: usize = 4 * 1024 * 1024;

/// A line and a column, both from 1; 0 where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub content: Content,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where the key begins.
    pub place: Place,
    /// The key.
    pub key: String,
    /// The value.
    pub value: Node,
}

impl Node {
    /// The entries of a map; nothing for anything else.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; nothing for anything else.
    #[must_use]
    pub fn items(&self) -> &[Node] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// The entry of this key.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value of this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one and not negative.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match &self.content {
            Content::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// The value without its locations.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(flag) => Value::Bool(*flag),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::String(text.clone()),
            Content::List(items) => items.iter().map(Node::to_value).collect(),
            Content::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_value()))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    /// What it is, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.content {
            Content::Null => "nothing",
            Content::Bool(_) => "true or false",
            Content::Number(_) => "a number",
            Content::Text(_) => "text",
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
        }
    }
}

/// Reads a text. If the syntax allows, there is a tree even where there are errors.
#[must_use]
pub fn tree(text: &str) -> (Option<Node>, Vec<YamlFault>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Err(fault) = check::limits(text) {
        return (None, vec![fault]);
    }
    let strict = super::from_str::<Value>(text);
    let mut builder = Builder::new(text);
    match (builder.document(), strict) {
        (Err(_), Err(fault)) => (None, vec![fault]),
        (Err(fault), Ok(_)) => (None, vec![fault]),
        (Ok(node), Ok(value)) => {
            let mut faults = builder.faults;
            if faults.is_empty() && node.to_value() != value {
                faults.push(differs(&node, &value));
            }
            (Some(node), faults)
        }
        (Ok(node), Err(fault)) => {
            let mut faults = builder.faults;
            if !faults.iter().any(|own| own.message == fault.message) {
                faults.push(fault);
            }
            (Some(node), faults)
        }
    }
}

/// The first location where the two readings differ.
fn differs(node: &Node, value: &Value) -> YamlFault {
    let deeper = match (&node.content, value) {
        (Content::List(items), Value::Array(values)) if items.len() == values.len() => {
            items.iter().zip(values).find(|(a, b)| a.to_value() != **b)
        }
        (Content::Map(entries), Value::Object(values)) => entries
            .iter()
            .filter_map(|entry| Some((&entry.value, values.get(&entry.key)?)))
            .find(|(a, b)| a.to_value() != **b),
        _ => None,
    };
    match deeper {
        Some((node, value)) => differs(node, value),
        None => fault(node.place, "this can be read in more than one way")
            .hint("put it in quotes, or write it in a simpler form"),
    }
}

fn fault(place: Place, message: impl Into<String>) -> YamlFault {
    YamlFault::at(place.line, place.column, message)
}

fn place(span: Span) -> Place {
    Place {
        line: span.start.line(),
        column: span.start.col() + 1,
    }
}

/// What came where a node was expected.
enum Met<'t> {
    Start(Event<'t>, Place),
    End,
}

struct Builder<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    bytes: usize,
    faults: Vec<YamlFault>,
}

impl<'t> Builder<'t> {
    fn new(text: &'t str) -> Self {
        Builder {
            parser: Parser::new_from_str(text),
            anchors: HashMap::new(),
            nodes: 0,
            bytes: 0,
            faults: Vec::new(),
        }
    }

    fn event(&mut self) -> Result<(Event<'t>, Place), YamlFault> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, place(span))),
            Some(Err(error)) => {
                let mark = error.marker();
                let at = Place {
                    line: mark.line(),
                    column: mark.col() + 1,
                };
                Err(fault(at, error.info()))
            }
            None => Ok((Event::StreamEnd, Place::default())),
        }
    }

    /// The one document; nothing at all is an empty map.
    fn document(&mut self) -> Result<Node, YamlFault> {
        let start = Place { line: 1, column: 1 };
        let mut root = None;
        loop {
            match self.event()? {
                (Event::StreamEnd, _) => break,
                (Event::DocumentStart(_), at) if root.is_some() => {
                    self.faults.push(
                        fault(at, "there is more than one YAML document here")
                            .hint("keep one document per file: remove the second `---`"),
                    );
                    break;
                }
                (Event::DocumentStart(_), _) => {
                    let (event, at) = self.event()?;
                    root = Some(self.node(event, at, 0)?);
                }
                _ => {}
            }
        }
        let empty = Node {
            place: start,
            content: Content::Map(Vec::new()),
        };
        Ok(root
            .filter(|node| node.content != Content::Null)
            .unwrap_or(empty))
    }

    fn next(&mut self) -> Result<Met<'t>, YamlFault> {
        Ok(match self.event()? {
            (Event::SequenceEnd | Event::MappingEnd | Event::StreamEnd, _) => Met::End,
            (event, at) => Met::Start(event, at),
        })
    }

    fn node(&mut self, event: Event<'t>, at: Place, depth: usize) -> Result<Node, YamlFault> {
        let (content, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.tag(tag, at);
                self.spend(1, text.len(), at)?;
                (self.scalar(&text, style, at), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag(tag, at);
                (self.list(at, depth)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.tag(tag, at);
                (self.map(at, depth)?, anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, at),
            _ => (Content::Null, 0),
        };
        let node = Node { place: at, content };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn tag(&mut self, tag: Option<Cow<'t, Tag>>, at: Place) {
        if tag.is_some() {
            self.faults.push(fault(at, TAG).hint(TAG_HINT));
        }
    }

    fn alias(&mut self, anchor: usize, at: Place) -> Result<Node, YamlFault> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(fault(at, "an alias contains itself"));
        };
        let (nodes, bytes) = weight(&node);
        self.spend(nodes, bytes, at)?;
        Ok(Node { place: at, ..node })
    }

    fn spend(&mut self, nodes: usize, bytes: usize, at: Place) -> Result<(), YamlFault> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > MAX_NODES || self.bytes > MAX_EXPANDED_BYTES {
            let hint = "write the values out, without anchors and aliases";
            return Err(fault(at, "the aliases expand to too much data").hint(hint));
        }
        Ok(())
    }

    fn deeper(&mut self, at: Place, depth: usize) -> Result<usize, YamlFault> {
        self.spend(1, 0, at)?;
        match depth >= MAX_DEPTH {
            true => Err(fault(at, check::too_deep())),
            false => Ok(depth + 1),
        }
    }

    fn list(&mut self, at: Place, depth: usize) -> Result<Content, YamlFault> {
        let depth = self.deeper(at, depth)?;
        let mut items = Vec::new();
        while let Met::Start(event, at) = self.next()? {
            items.push(self.node(event, at, depth)?);
        }
        Ok(Content::List(items))
    }

    fn map(&mut self, at: Place, depth: usize) -> Result<Content, YamlFault> {
        let depth = self.deeper(at, depth)?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = HashSet::new();
        while let Met::Start(event, at) = self.next()? {
            let Event::Scalar(key, _, _, tag) = event else {
                return Err(fault(at, "a key must be plain text"));
            };
            self.tag(tag, at);
            let (event, value_at) = self.event()?;
            let value = self.node(event, value_at, depth)?;
            if key == "<<" {
                let hint = "write the keys out where they are needed";
                let message = "the merge key `<<` is not supported";
                self.faults.push(fault(at, message).hint(hint));
                continue;
            }
            if !seen.insert(key.clone().into_owned()) {
                let hint = "keep one of them: the other would be ignored";
                let message = format!("duplicate key `{key}`");
                self.faults.push(fault(at, message).hint(hint));
                continue;
            }
            entries.push(Entry {
                place: at,
                key: key.into_owned(),
                value,
            });
        }
        Ok(Content::Map(entries))
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, at: Place) -> Content {
        if style != ScalarStyle::Plain {
            return Content::Text(text.to_owned());
        }
        let number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Content::Null,
            "true" | "True" | "TRUE" => Content::Bool(true),
            "false" | "False" | "FALSE" => Content::Bool(false),
            _ if number => self.number(text, at),
            _ => Content::Text(text.to_owned()),
        }
    }

    /// Asks the strict reader whether a plain scalar is a number.
    fn number(&mut self, text: &str, at: Place) -> Content {
        match serde_yaml::from_str::<serde_yaml::Value>(text) {
            Ok(serde_yaml::Value::Number(number)) => {
                let read = match (number.as_u64(), number.as_i64()) {
                    (Some(number), _) => Some(number.into()),
                    (None, Some(number)) => Some(number.into()),
                    _ => number.as_f64().and_then(Number::from_f64),
                };
                read.map_or_else(
                    || {
                        let hint = "put it in quotes if it is meant as text";
                        let message = "`.nan` and `.inf` are not supported";
                        self.faults.push(fault(at, message).hint(hint));
                        Content::Null
                    },
                    Content::Number,
                )
            }
            _ => Content::Text(text.to_owned()),
        }
    }
}

fn weight(node: &Node) -> (usize, usize) {
    let sum = |(nodes, bytes): (usize, usize), (n, b)| (nodes + n, bytes + b);
    match &node.content {
        Content::Text(text) => (1, text.len()),
        Content::List(items) => items.iter().map(weight).fold((1, 0), sum),
        Content::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.len(), weight(&entry.value)))
            .map(|(key, (nodes, bytes))| (nodes, bytes + key))
            .fold((1, 0), sum),
        _ => (1, 1),
    }
}
