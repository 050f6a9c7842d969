//! Recorded answers (`--record`), which the `replay` provider plays back without a model.
//!
//! A recording is `artifacts/_recordings/<key>.json`; the key is the SHA-256 of provider, model,
//! parameters, system prompt and prompt. If the prompt differs there is no answer: the error names the
//! nearest recording and the difference.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::disk::safety::Dir;
use crate::text::canonical;
use crate::text::error::{Fault, Kind};

/// The folder. No agent has it: their names contain no `_`.
pub const FOLDER: &str = "_recordings";
const MAX_BYTES: u64 = 64 << 20;

/// One answer with its question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The provider.
    pub provider: String,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The parameters.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The prompt.
    pub prompt: String,
    /// The answer.
    pub answer: String,
}

/// Which answer to look for.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// Only answers of this provider, if given.
    pub provider: Option<&'a str>,
    /// Only answers of this model, if given.
    pub model: Option<&'a str>,
    /// Only answers with these parameters, if there are any.
    pub params: &'a Map<String, Value>,
    /// The agent's system prompt.
    pub system: &'a str,
    /// The prompt.
    pub prompt: &'a str,
}

impl Recording {
    /// The name of its file, without the ending.
    #[must_use]
    pub fn key(&self) -> String {
        let key = serde_json::json!([
            self.provider,
            self.model,
            self.params,
            self.system,
            self.prompt
        ]);
        canonical::sha256(key.to_string().as_bytes())
    }

    fn answers(&self, question: &Question<'_>) -> bool {
        self.prompt == question.prompt && self.system == question.system && self.is_by(question)
    }

    fn is_by(&self, question: &Question<'_>) -> bool {
        question
            .provider
            .is_none_or(|provider| self.provider == provider)
            && question
                .model
                .is_none_or(|model| self.model.as_deref() == Some(model))
            && (question.params.is_empty() || *question.params == self.params)
    }
}

/// Saves an answer; it replaces an earlier one to the same question.
pub fn keep(artifacts: &Dir, recording: &Recording) -> io::Result<()> {
    let dir = artifacts.make(FOLDER)?;
    let key = recording.key();
    let temp = format!(".{key}.tmp");
    match dir.remove(&temp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = dir.create_new(&temp)?;
    let mut text = serde_json::to_vec_pretty(recording)?;
    text.push(b'\n');
    file.write_all(&text)?;
    dir.rename_over(&temp, &format!("{key}.json"))
}

/// The recorded answer to a question.
pub fn replay(artifacts: &Dir, question: &Question<'_>) -> Result<String, Fault> {
    let all =
        load(artifacts).map_err(|e| Fault::io("read the recordings in", artifacts.path(), &e))?;
    if let Some((_, found)) = all.iter().find(|(_, r)| r.answers(question)) {
        return Ok(found.answer.clone());
    }
    Err(miss(&all, question))
}

fn load(artifacts: &Dir) -> io::Result<Vec<(String, Recording)>> {
    let dir = match artifacts.sub(FOLDER) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    dir.entries(|name, _| {
        if let Ok(name) = name.to_str()
            && name.ends_with(".json")
            && !name.starts_with('.')
        {
            names.push(name.to_owned());
        }
    })?;
    names.sort_unstable();
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let mut bytes = Vec::new();
        dir.open(&name)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
        let recording = serde_json::from_slice(&bytes).map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{FOLDER}/{name}: {e}"))
        })?;
        all.push((name, recording));
    }
    Ok(all)
}

fn miss(all: &[(String, Recording)], question: &Question<'_>) -> Fault {
    let by_whom = question
        .provider
        .map(|p| format!(" of `{p}`"))
        .unwrap_or_default();
    let fault = Fault::new(
        Kind::NoRecording,
        format!("no recorded answer{by_whom} to this prompt"),
    );
    let nearest = all
        .iter()
        .max_by_key(|(_, r)| common_start(&r.prompt, question.prompt));
    let Some((name, nearest)) = nearest else {
        return fault.hint("there are no recordings; record some with `orch watch --record`");
    };
    if nearest.prompt == question.prompt && nearest.system != question.system {
        return fault.hint(format!(
            "artifacts/{FOLDER}/{name} answers this prompt with another system prompt: has the agent's file changed?",
        ));
    }
    if nearest.prompt == question.prompt {
        return fault.hint(format!(
            "artifacts/{FOLDER}/{name} answers this prompt, but is of `{}`{} with parameters {}",
            nearest.provider,
            nearest
                .model
                .as_ref()
                .map(|m| format!(" with model `{m}`"))
                .unwrap_or_default(),
            serde_json::json!(nearest.params),
        ));
    }
    let same = common_start(&nearest.prompt, question.prompt);
    let line = question.prompt[..same].matches('\n').count() + 1;
    fault.hint(format!(
        "the nearest is artifacts/{FOLDER}/{name}; its prompt differs from line {line} on: recorded {:?}, now {:?}",
        line_at(&nearest.prompt, same),
        line_at(question.prompt, same),
    ))
}

/// The length of the common prefix of two texts, in bytes.
fn common_start(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map_or_else(|| a.len().min(b.len()), |((at, _), _)| at)
}

/// The line around an offset, shortened.
fn line_at(text: &str, at: usize) -> String {
    let start = text[..at].rfind('\n').map_or(0, |n| n + 1);
    text[start..]
        .lines()
        .next()
        .unwrap_or("")
        .chars()
        .take(60)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(provider: &str, prompt: &str, answer: &str) -> Recording {
        Recording {
            provider: provider.into(),
            model: None,
            params: Map::new(),
            system: String::new(),
            prompt: prompt.into(),
            answer: answer.into(),
        }
    }

    static NONE: std::sync::OnceLock<Map<String, Value>> = std::sync::OnceLock::new();

    fn ask<'a>(provider: Option<&'a str>, prompt: &'a str) -> Question<'a> {
        Question {
            provider,
            model: None,
            params: NONE.get_or_init(Map::new),
            system: "",
            prompt,
        }
    }

    #[test]
    fn an_answer_comes_back_for_the_same_prompt_only() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        keep(&dir, &recording("claude", "fix it\nplease", "done")).unwrap();
        keep(&dir, &recording("claude", "fix it\nplease", "done again")).unwrap();
        assert_eq!(
            replay(&dir, &ask(None, "fix it\nplease")).unwrap(),
            "done again"
        );
        let miss = replay(&dir, &ask(None, "fix it\nnow")).unwrap_err();
        let hint = miss.hint.unwrap();
        assert!(
            hint.contains("from line 2 on") && hint.contains("please") && hint.contains("now"),
            "{hint}"
        );
        let other = replay(&dir, &ask(Some("codex"), "fix it\nplease")).unwrap_err();
        assert!(other.hint.unwrap().contains("`claude`"));
    }

    #[test]
    fn a_miss_without_recordings_says_how_to_make_some() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_named_by_user(temp.path()).unwrap();
        let miss = replay(&dir, &ask(None, "x")).unwrap_err();
        assert!(miss.hint.unwrap().contains("--record"));
    }
}
