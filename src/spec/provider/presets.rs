//! The real programs, each with its flags and the way its output is to be read: data.
//!
//! Written in the language of `specs/providers.yaml`, so that any of them can be taken as a pattern.
//! A preset is read when it is first used, never before.

use std::sync::{Arc, OnceLock};

use super::config::{Entry, ProviderConfig};
use crate::text::yaml;

struct Preset {
    name: &'static str,
    text: &'static str,
    entry: OnceLock<Entry>,
    config: OnceLock<Arc<ProviderConfig>>,
}

const fn preset(name: &'static str, text: &'static str) -> Preset {
    Preset {
        name,
        text,
        entry: OnceLock::new(),
        config: OnceLock::new(),
    }
}

static PRESETS: [Preset; 12] = [
    preset("claude", include_str!("presets/claude.yaml")),
    preset("codex", include_str!("presets/codex.yaml")),
    preset("gemini", include_str!("presets/gemini.yaml")),
    preset("opencode", include_str!("presets/opencode.yaml")),
    preset("goose", include_str!("presets/goose.yaml")),
    preset("qwen", include_str!("presets/qwen.yaml")),
    preset("copilot", include_str!("presets/copilot.yaml")),
    preset("aider", include_str!("presets/aider.yaml")),
    preset("llm", include_str!("presets/llm.yaml")),
    preset("cursor-agent", include_str!("presets/cursor-agent.yaml")),
    preset("ollama", include_str!("presets/ollama.yaml")),
    preset("bash", include_str!("presets/bash.yaml")),
];

/// What every service of this kind says when it is busy, when asking again is of no use, and when the
/// prompt does not fit.
/// Presets that talk to a model share it.
const COMMON: &str = r#"
transient:
  - '\b(429|500|502|503|504|529)\b'
  - 'rate.?limit'
  - 'too many requests'
  - 'overloaded'
  - 'high demand'
  - 'temporarily (limiting|unavailable)'
  - 'resource_exhausted'
  - 'connection (refused|reset|error)'
  - 'econn(refused|reset)'
  - 'could not connect'
  - 'internal server error'
fatal:
  - '\b401\b'
  - 'unauthorized'
  - 'invalid (x-)?api.?key'
  - 'authentication'
  - 'not logged in'
  - 'credit balance'
  - 'insufficient_quota'
  - 'exceeded your current quota'
  - 'hit your (session|usage|weekly)? ?limit'
  - 'terminalquotaerror'
too_long:
  - 'prompt is too long'
  - 'context_length'
  - 'context (window|length|limit)'
  - 'maximum context'
  - 'exceeds? the (maximum|limit).*tokens?'
  - 'too many (input )?tokens'
  - 'input token count'
"#;

/// The names of the presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The text of a preset, for those who want to write their own.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    find(name).map(|preset| preset.text)
}

/// A preset as an entry that another can extend.
#[must_use]
pub fn entry(name: &str) -> Option<&'static Entry> {
    find(name).map(Preset::entry)
}

/// A preset ready to be used.
#[must_use]
pub fn config(name: &str) -> Option<Arc<ProviderConfig>> {
    find(name).map(Preset::config)
}

fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Preset {
    fn entry(&self) -> &Entry {
        self.entry.get_or_init(|| {
            // Invariant: the texts are part of the program, and a test reads every one of them.
            let entry: Entry = yaml::from_str(self.text).expect("a preset is valid");
            let common: Entry = match self.name {
                "bash" => Entry::default(),
                _ => yaml::from_str(COMMON).expect("the common patterns are valid"),
            };
            entry.over(common)
        })
    }

    fn config(&self) -> Arc<ProviderConfig> {
        let config = self.config.get_or_init(|| {
            let complete = self.entry().clone().complete(self.name);
            // Invariant: as above.
            Arc::new(complete.expect("a preset is complete"))
        });
        Arc::clone(config)
    }
}
