//! Refuses YAML that the library would accept in silence: tags, duplicate keys, merge keys, `.nan` and
//! `.inf`, deep nesting, and aliases that expand without limit.
//!
//! Errors are raised inside a visitor wherever possible, while the library still knows the location.
//! No value is kept.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, Visitor};

use super::{MAX_BYTES, MAX_DEPTH, YamlFault, read_error};
use crate::text::error::hinted;
use crate::text::units::show_size;

/// Brackets deeper than this make the library slow, so they are counted before it sees them.
const MAX_RAW_BRACKETS: usize = 1_000;
/// The most nodes and bytes of text after aliases are expanded.
const MAX_NODES: usize = 300_000;
const MAX_EXPANDED_BYTES: usize = 4 * 1024 * 1024;

pub(super) const TAG: &str = "a tag (`!…`) is not supported";
pub(super) const TAG_HINT: &str = "put text that begins with `!` in quotes";

/// Whether a text has a value.
pub(super) enum Content {
    /// A document with a value.
    Something,
    /// No value at all: empty, only comments, or null.
    Nothing,
}

/// Walks the text once (twice where it contains `!!` or `!<`).
pub(super) fn check(text: &str) -> Result<Content, YamlFault> {
    limits(text)?;
    let Some(content) = walk(text)? else {
        return Ok(Content::Nothing);
    };
    shorthand_tags(text)?;
    Ok(content)
}

/// What is refused before any parser sees it.
pub(super) fn limits(text: &str) -> Result<(), YamlFault> {
    if text.len() > MAX_BYTES {
        let message = format!(
            "the YAML is {} long, over the limit of {}",
            show_size(text.len() as u64),
            show_size(MAX_BYTES as u64)
        );
        return Err(YamlFault::at(0, 0, message).hint("split it, or move long text to files"));
    }
    raw_brackets(text)?;
    directives(text)
}

/// A cheap count, blind to quotes and comments, hence far above the real limit.
fn raw_brackets(text: &str) -> Result<(), YamlFault> {
    let mut depth = 0usize;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_RAW_BRACKETS {
            let before = &text[..index];
            let line = before.matches('\n').count() + 1;
            let column = index - before.rfind('\n').map_or(0, |end| end + 1) + 1;
            return Err(YamlFault::at(line, column, too_deep()));
        }
    }
    Ok(())
}

pub(super) fn too_deep() -> String {
    format!("the nesting is over {MAX_DEPTH} levels deep")
}

/// `%TAG` could hide a tag, and nobody needs `%YAML`.
fn directives(text: &str) -> Result<(), YamlFault> {
    let first = text
        .lines()
        .enumerate()
        .find(|(_, row)| !row.trim().is_empty() && !row.starts_with('#'));
    match first {
        Some((index, row)) if row.starts_with('%') => Err(YamlFault::at(
            index + 1,
            1,
            "YAML directives are not supported",
        )),
        _ => Ok(()),
    }
}

/// The library applies or drops `!!word` and `!<word>` in silence. Spelled as local tags they reach
/// the visitor; inside strings the change does not matter.
fn shorthand_tags(text: &str) -> Result<(), YamlFault> {
    if !text.contains("!!") && !text.contains("!<") {
        return Ok(());
    }
    let respelled = text.replace("!!", "!_").replace("!<", "!_");
    match walk(&respelled) {
        Ok(_) => Ok(()),
        Err(fault) => Err(YamlFault::at(fault.line, fault.column, TAG).hint(TAG_HINT)),
    }
}

fn walk(text: &str) -> Result<Option<Content>, YamlFault> {
    let budget = Budget::default();
    let node = Node {
        depth: 0,
        budget: &budget,
    };
    match node.deserialize(serde_yaml::Deserializer::from_str(text)) {
        Ok(Kind::Value) => Ok(Some(Content::Something)),
        Ok(Kind::Null) => Ok(None),
        Err(error) if error.to_string().starts_with("EOF while") => Ok(None),
        Err(error) => Err(read_error(&error, text)),
    }
}

/// How much was visited so far; an alias counts each time it is used.
#[derive(Default)]
struct Budget {
    nodes: Cell<usize>,
    bytes: Cell<usize>,
}

impl Budget {
    fn spend<E: de::Error>(&self, bytes: usize) -> Result<(), E> {
        self.nodes.set(self.nodes.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        if self.nodes.get() > MAX_NODES || self.bytes.get() > MAX_EXPANDED_BYTES {
            let hint = "write the values out, without anchors and aliases";
            return Err(E::custom(hinted(
                "the aliases expand to too much data",
                Some(hint),
            )));
        }
        Ok(())
    }
}

/// What a node was.
enum Kind {
    Value,
    Null,
}

/// One node of the document.
#[derive(Clone, Copy)]
struct Node<'b> {
    depth: usize,
    budget: &'b Budget,
}

impl Node<'_> {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(too_deep()));
        }
        Ok(Node {
            depth: self.depth + 1,
            ..self
        })
    }

    fn scalar<E: de::Error>(self, bytes: usize) -> Result<Kind, E> {
        self.budget.spend(bytes)?;
        Ok(Kind::Value)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Kind, E> {
        self.scalar(1)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Kind, E> {
        self.scalar(1)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Kind, E> {
        self.scalar(1)
    }

    fn visit_i128<E: de::Error>(self, _: i128) -> Result<Kind, E> {
        self.scalar(1)
    }

    fn visit_u128<E: de::Error>(self, _: u128) -> Result<Kind, E> {
        self.scalar(1)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Kind, E> {
        if !number.is_finite() {
            let hint = Some("put it in quotes if it is meant as text");
            return Err(E::custom(hinted(
                "`.nan` and `.inf` are not supported",
                hint,
            )));
        }
        self.scalar(1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Kind, E> {
        self.scalar(text.len())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Kind, E> {
        self.scalar::<E>(1).map(|_| Kind::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Kind, E> {
        self.visit_unit()
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Kind, A::Error> {
        Err(de::Error::custom(hinted(TAG, Some(TAG_HINT))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        let inner = self.deeper()?;
        self.budget.spend(0)?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(Kind::Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Kind, A::Error> {
        let inner = self.deeper()?;
        self.budget.spend(0)?;
        let mut seen = HashSet::new();
        loop {
            let key = Key {
                seen: &mut seen,
                budget: self.budget,
            };
            if entries.next_key_seed(key)?.is_none() {
                return Ok(Kind::Value);
            }
            entries.next_value_seed(inner)?;
        }
    }
}

/// One key of a map, compared with those before it.
struct Key<'s, 'b> {
    seen: &'s mut HashSet<String>,
    budget: &'b Budget,
}

impl Key<'_, '_> {
    fn word<E: de::Error>(self, word: String) -> Result<(), E> {
        self.budget.spend(word.len())?;
        if word == "<<" {
            let hint = "write the keys out where they are needed";
            return Err(E::custom(hinted(
                "the merge key `<<` is not supported",
                Some(hint),
            )));
        }
        if self.seen.contains(&word) {
            let hint = "keep one of them: the other would be ignored";
            return Err(E::custom(hinted(
                &format!("duplicate key `{word}`"),
                Some(hint),
            )));
        }
        self.seen.insert(word);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a plain key")
    }

    fn visit_bool<E: de::Error>(self, key: bool) -> Result<(), E> {
        self.word(key.to_string())
    }

    fn visit_i64<E: de::Error>(self, key: i64) -> Result<(), E> {
        self.word(key.to_string())
    }

    fn visit_u64<E: de::Error>(self, key: u64) -> Result<(), E> {
        self.word(key.to_string())
    }

    fn visit_f64<E: de::Error>(self, key: f64) -> Result<(), E> {
        self.word(key.to_string())
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
        self.word(key.to_owned())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.word("null".to_owned())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(de::Error::custom(hinted(TAG, Some(TAG_HINT))))
    }
}
