//! Tasks: what is read is the text itself, and what orch writes is read as what it was.

use orch::spec::task::{AgentName, MAX_TASK_BYTES, Task, TaskName, render, split};
use orch::text::error::Kind;
use orch::text::yaml;

use super::place;

pub fn holds(bytes: &[u8]) {
    match Task::parse(bytes) {
        Ok(task) => read(&task, bytes),
        Err(fault) => {
            assert_eq!(fault.kind, Kind::InvalidTask);
            assert!(fault.hint.is_some(), "no hint: {fault}");
            let Some(rest) = fault.message.strip_prefix("line ") else {
                return;
            };
            let text = String::from_utf8_lossy(bytes);
            let line = place::numbers_after(&format!("line {rest}"), "line ")[0];
            assert!(line <= place::lines(&text), "{fault}");
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        names(text);
    }
}

fn read(task: &Task, bytes: &[u8]) {
    assert_eq!(task.text().as_bytes(), bytes);
    assert!(task.text().ends_with(task.body()));
    assert_eq!(task.body_offset() + task.body().len(), bytes.len());
    let written = render(&task.header, task.body());
    let front = split(&written).expect("what orch writes is closed").front;
    if written.len() > MAX_TASK_BYTES || front.is_some_and(|front| front.len() > yaml::MAX_BYTES) {
        return;
    }
    let again = Task::parse(written.as_bytes()).unwrap_or_else(|e| panic!("{written:?}: {e}"));
    assert_eq!(again.header, task.header, "{written:?}");
    assert_eq!(again.body(), task.body(), "{written:?}");
}

fn names(text: &str) {
    let line = text.lines().next().unwrap_or_default();
    if let Ok(name) = TaskName::parse(line) {
        assert!(!name.as_str().contains('/') && !name.as_str().starts_with('.'));
    }
    if let Ok(name) = AgentName::parse(line) {
        assert!(TaskName::check(name.as_str()).is_ok());
    }
}
