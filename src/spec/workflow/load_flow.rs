//! The parts of a step that decide: conditions, gates, rows, handlers, limits and numbers.
//!
//! Expressions are kept as text; whether they can be read is for the checks.

use super::load::{Loader, RESERVED_STATE, flag, text, texts};
use super::model::*;
use crate::text::units::parse_duration;
use crate::text::yaml::tree::{Content, Node};

/// Where a number may come from.
const SOURCES: &[&str] = &["context", "input"];
/// The most names in a path of `set`: with the value at its end, the document can be read back.
const MAX_SET_WORDS: usize = 32;

impl Loader<'_, '_, '_> {
    pub(super) fn when(&mut self, step: &Node) -> Option<When> {
        let node = step.get("when")?;
        let mut found = None;
        for entry in node.entries() {
            let read = match entry.key.as_str() {
                "equals" => {
                    let side = |key: &str| entry.value.get(key).and_then(text);
                    side("left")
                        .zip(side("right"))
                        .map(|(a, b)| When::Equals(a, b))
                }
                "exists" => text(&entry.value).map(When::Exists),
                "not_exists" => text(&entry.value).map(When::NotExists),
                "if" => text(&entry.value).map(When::If),
                _ => None,
            };
            if found.is_some() && read.is_some() {
                let message = "`when` holds exactly one condition";
                self.out
                    .hinted(entry.place, message, "join them in one `if`");
            }
            found = found.or(read);
        }
        if node.entries().is_empty() {
            let hint = "write one of `equals`, `exists`, `not_exists`, `if`";
            self.out
                .hinted(node.place, "`when` holds no condition", hint);
        }
        found
    }

    pub(super) fn gates(&self, node: Option<&Node>) -> Vec<Gate> {
        let items = node.map(Node::items).unwrap_or_default();
        let gate = |item: &Node| {
            Some(Gate {
                check: item.get("check").and_then(text)?,
                reason: item.get("reason").and_then(text),
                stop: flag(item, "stop").unwrap_or(false),
            })
        };
        items.iter().filter_map(gate).collect()
    }

    pub(super) fn approval(&mut self, id: StepId, node: &Node) -> Option<Approval> {
        let gate = node.get("approval").and_then(text)?;
        Some(Approval {
            gate,
            evidence: texts(node.get("evidence")),
            on_reject: self.target(id, node.get("on_reject")),
        })
    }

    pub(super) fn flow(&mut self, id: StepId, node: &Node) -> Flow {
        let on = node.get("on");
        let mut handler = |key: &str| {
            let goto = on.and_then(|on| on.get(key)).and_then(|on| on.get("goto"));
            self.target(id, goto)
        };
        let (success, failure) = (handler("success"), handler("failure"));
        let (interrupted, stopped) = (handler("interrupted"), handler("stopped"));
        let always = handler("always");
        if let Some(next) = node.get("next") {
            for key in ["success", "always"] {
                if let Some(entry) = on.and_then(|on| on.entry(key)) {
                    let message = format!("`on.{key}` beside `next`");
                    let hint = "`next` is evaluated after success: make a row of it";
                    self.out.hinted(entry.place, message, hint);
                }
            }
            return Flow::Rows {
                rows: self.rows(id, next),
                failure,
                interrupted,
                stopped,
            };
        }
        Flow::Handlers {
            success,
            failure,
            interrupted,
            stopped,
            always,
        }
    }

    fn rows(&mut self, id: StepId, node: &Node) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut closed = false;
        for item in node.items() {
            let goto = self.target(id, item.get("goto"));
            let set = self.set(item.get("set"));
            let lock = item.get("lock").and_then(text);
            if let Some(lock) = &lock {
                self.lock(id, lock);
            }
            let Some(guard) = item.get("if").and_then(text) else {
                continue;
            };
            if closed {
                let message = "no run comes to this row: the one before always holds";
                self.out.note(item.place, message);
            }
            closed |= guard.value.trim() == "true";
            rows.push(Row {
                guard,
                goto: goto.unwrap_or(Target::Fail),
                lock,
                set,
                reason: item.get("reason").and_then(text),
                verdict: match item.get("verdict").and_then(Node::text) {
                    Some("OK") => Some(Verdict::Ok),
                    Some("FAIL") => Some(Verdict::Fail),
                    _ => None,
                },
            });
        }
        rows
    }

    fn lock(&mut self, id: StepId, lock: &Text) {
        let node = self.outline.nodes[id.0];
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if lock.value.is_empty() || lock.value.len() > 64 || !lock.value.chars().all(good) {
            let message = format!("`{}` is not a name for a snapshot", lock.value);
            let hint = "use letters, digits, `_` and `-`";
            self.out.hinted(lock.place, message, hint);
        }
        if node.get("output_capture").and_then(Node::text) != Some("json") {
            let message = "`lock` stores the step's JSON, and this step has none";
            self.out
                .hinted(lock.place, message, "add `output_capture: json`");
        }
        if !matches!(self.outline.levels[id.0], Level::Top) {
            let message = "`lock` cannot stand in the body of a loop: every item would store it";
            self.out.fault(lock.place, message);
        }
    }

    fn set(&mut self, node: Option<&Node>) -> Vec<(Text, Text)> {
        let mut set = Vec::new();
        for entry in node.map(Node::entries).unwrap_or_default() {
            let path = entry.key.strip_prefix("state.").unwrap_or_default();
            let words: Vec<&str> = path.split('.').collect();
            let odd = |word: &&str| word.is_empty() || word.contains(['[', ']', '$', ' ']);
            if words.iter().any(odd) || words.len() > MAX_SET_WORDS {
                let message = format!("`{}` is not a path under `state.`", entry.key);
                self.out.hinted(
                    entry.place,
                    message,
                    "write it like `state.answers.first`: names alone, at most 32",
                );
                continue;
            }
            if RESERVED_STATE.contains(&words[0]) {
                let message = format!("`{}` is reserved and cannot be set", entry.key);
                self.out.fault(entry.place, message);
                continue;
            }
            if let Some(value) = text(&entry.value) {
                let place = entry.place;
                let value_path = path.to_owned();
                set.push((
                    At {
                        value: value_path,
                        place,
                    },
                    value,
                ));
            }
        }
        set
    }

    pub(super) fn limit(&mut self, id: StepId, node: &Node) -> Option<Limit> {
        let on_limit = self.target(id, node.get("on_limit"));
        let mut per = Vec::new();
        for item in node.get("per").map(Node::items).unwrap_or_default() {
            let Some(step) = self.step_named("`per`:", item) else {
                continue;
            };
            if step == id {
                let message = "a step in its own `per` restarts its count on every entry";
                self.out
                    .hinted(item.place, message, "name a step outside of the cycle");
            } else if self.outline.levels[step.0] != self.outline.levels[id.0] {
                let message = format!("`per`: `{}` is on another level", self.name_of(step));
                self.out.fault(item.place, message);
            } else {
                per.push(step);
            }
        }
        Some(Limit {
            max: self.number(node.get("max_visits"))?,
            on_limit: on_limit.unwrap_or(Target::Fail),
            per,
        })
    }

    pub(super) fn timeout(&mut self, node: &Node) -> Option<Timeout> {
        if let (Some(_), Some(second)) = (node.get("timeout"), node.entry("timeout_sec")) {
            let message = "`timeout` and `timeout_sec` exclude each other";
            self.out
                .hinted(second.place, message, "take out one of the two");
        }
        if let Some(timeout) = node.get("timeout") {
            return self.sourced(timeout, &millis).map(Timeout::Millis);
        }
        self.number(node.get("timeout_sec")).map(Timeout::Seconds)
    }

    pub(super) fn retries(&mut self, node: Option<&Node>) -> Option<Retries> {
        let node = node?;
        Some(Retries {
            max: self.number(node.get("max"))?,
            delay_ms: node.get("delay_ms").and_then(Node::number).unwrap_or(0),
        })
    }

    /// A number, or where it comes from.
    pub(super) fn number(&mut self, node: Option<&Node>) -> Option<Number> {
        self.sourced(node?, &Node::number)
    }

    fn sourced(&mut self, node: &Node, read: &dyn Fn(&Node) -> Option<u64>) -> Option<Number> {
        if !matches!(node.content, Content::Map(_)) {
            return read(node).map(Number::Fixed);
        }
        let from = node.get("from")?;
        let path = from.text()?.to_owned();
        let part = |key: &str| node.get(key).and_then(read);
        let (default, min, max) = (part("default"), part("min"), part("max"));
        let words: Vec<&str> = path.split('.').collect();
        if words.len() < 2 || !SOURCES.contains(&words[0]) || words.iter().any(|w| w.is_empty()) {
            let message = format!("`from: {path}` is not a path that a number can come from");
            self.out
                .hinted(from.place, message, "write `context.k` or `input.k`");
        }
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            self.out.fault(node.place, "`min` is larger than `max`");
        } else if default
            .is_some_and(|it| min.is_some_and(|m| it < m) || max.is_some_and(|m| it > m))
        {
            self.out
                .fault(node.place, "`default` is not between `min` and `max`");
        }
        Some(Number::From {
            path,
            default,
            min,
            max,
        })
    }
}

fn millis(node: &Node) -> Option<u64> {
    let time = parse_duration(node.text()?).ok()?;
    u64::try_from(time.as_millis()).ok()
}
