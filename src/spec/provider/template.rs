//! Arguments with placeholders: `${model}`, `${PROMPT}`; `$$` is a dollar sign.
//!
//! A template is cut into pieces once; what is put in is never looked at again.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::text::error::hinted;
use crate::text::suggest;

/// Placeholders in capitals that have a meaning; all others are parameters.
pub const RESERVED: &[&str] = &[
    "PROMPT",
    "PROMPT_FILE",
    "SYSTEM",
    "TOOLS",
    "TOOL_PATTERNS",
    "INPUT_FILE",
    "OUTPUT_FILE",
    "STATE_FILE",
];

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it is.
    Text(String),
    /// The value of this name.
    Key(String),
}

/// One argument of a command, already cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Cuts a text at its placeholders.
    ///
    /// # Errors
    /// An open `${`, a name that cannot be one, or a name in capitals that has no meaning.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                plain.push('$');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let (name, after) = after.split_once('}').ok_or_else(|| {
                    hinted(
                        &format!("`${{` in `{text}` is never closed"),
                        Some("write `$$` for a dollar sign"),
                    )
                })?;
                check_name(name)?;
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Key(name.to_owned()));
                rest = after;
            } else {
                plain.push('$');
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Template(pieces))
    }

    /// The parts in their order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// The one placeholder that is the whole argument.
    #[must_use]
    pub fn sole_key(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Key(key)] => Some(key),
            _ => None,
        }
    }

    /// The argument, if it has no placeholder.
    #[must_use]
    pub fn sole_text(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the placeholder is somewhere in it.
    #[must_use]
    pub fn mentions(&self, key: &str) -> bool {
        self.0
            .iter()
            .any(|piece| matches!(piece, Piece::Key(k) if k == key))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(is_word) {
        let hint = "a name is letters, digits, `_`, `-` and `.`";
        return Err(hinted(
            &format!("`${{{name}}}` is not a placeholder"),
            Some(hint),
        ));
    }
    if name.starts_with("env.") {
        let hint = "list the variable under `env:`; the program reads it itself";
        return Err(hinted(
            &format!("`${{{name}}}`: the environment is not put into arguments"),
            Some(hint),
        ));
    }
    let capitals = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    if capitals && !RESERVED.contains(&name) {
        let hint = suggest::hint(name, RESERVED);
        return Err(hinted(
            &format!("unknown placeholder `${{{name}}}`"),
            hint.as_deref(),
        ));
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Template;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an argument")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Template, E> {
                Template::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_cut_at_their_placeholders() {
        let text = |t: &str| Piece::Text(t.into());
        let key = |k: &str| Piece::Key(k.into());
        let table = [
            ("plain", vec![text("plain")]),
            ("", vec![text("")]),
            ("${model}", vec![key("model")]),
            ("--m=${model}!", vec![text("--m="), key("model"), text("!")]),
            ("$$HOME costs $5", vec![text("$HOME costs $5")]),
            ("$${model}", vec![text("${model}")]),
            ("${a}${b-c}", vec![key("a"), key("b-c")]),
            ("end$", vec![text("end$")]),
        ];
        for (template, pieces) in table {
            assert_eq!(
                Template::parse(template).unwrap().pieces(),
                pieces,
                "{template}"
            );
        }
    }

    #[test]
    fn bad_placeholders_are_refused() {
        let table = [
            ("${model", "never closed"),
            ("${}", "not a placeholder"),
            ("${a b}", "not a placeholder"),
            ("${PROMT}", "unknown placeholder"),
            ("${env.HOME}", "environment"),
        ];
        for (template, part) in table {
            let message = Template::parse(template).unwrap_err();
            assert!(message.contains(part), "{template}: {message}");
        }
        assert!(
            Template::parse("${PROMT}")
                .unwrap_err()
                .contains("`PROMPT`")
        );
    }
}
