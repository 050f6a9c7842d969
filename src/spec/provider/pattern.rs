//! Lists of regular expressions, compiled when the configuration is read.
//!
//! They see bytes as a provider printed them. A bad expression is refused at its place in the file.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::text::error::hinted;

/// Any of several expressions; `^` and `$` match at line ends.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Vec<Regex>);

/// The same, where upper and lower case are one.
#[derive(Debug, Clone, Default)]
pub struct LoosePatterns(Patterns);

impl Patterns {
    /// No expression at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The line in which the first expression that matches does so.
    #[must_use]
    pub fn matching_line<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let found = self.0.iter().find_map(|regex| regex.find(text))?;
        let start = text[..found.start()]
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let end = text[found.start()..]
            .iter()
            .position(|b| *b == b'\n')
            .map_or(text.len(), |at| found.start() + at);
        Some(&text[start..end])
    }

    /// Whether any expression matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.0.iter().any(|regex| regex.is_match(text))
    }
}

impl std::ops::Deref for LoosePatterns {
    type Target = Patterns;

    fn deref(&self) -> &Patterns {
        &self.0
    }
}

/// One expression, compiled where its line and column are still known.
struct One<const LOOSE: bool>(Regex);

impl<'de, const LOOSE: bool> Deserialize<'de> for One<LOOSE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source<const LOOSE: bool>;
        impl<const LOOSE: bool> Visitor<'_> for Source<LOOSE> {
            type Value = One<LOOSE>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a regular expression")
            }
            fn visit_str<E: de::Error>(self, source: &str) -> Result<One<LOOSE>, E> {
                compile(source, LOOSE).map(One).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Source::<LOOSE>)
    }
}

fn compile(source: &str, loose: bool) -> Result<Regex, String> {
    RegexBuilder::new(source)
        .multi_line(true)
        .case_insensitive(loose)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| {
            let error = error.to_string();
            let why = error.lines().last().unwrap_or_default();
            let why = why.trim_start_matches("error: ");
            let message = format!("`{source}` is not a regular expression: {why}");
            hinted(
                &message,
                Some("look-around and back-references are not supported"),
            )
        })
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<One<false>>::deserialize(deserializer)?;
        Ok(Patterns(list.into_iter().map(|one| one.0).collect()))
    }
}

impl<'de> Deserialize<'de> for LoosePatterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<One<true>>::deserialize(deserializer)?;
        Ok(LoosePatterns(Patterns(
            list.into_iter().map(|one| one.0).collect(),
        )))
    }
}
