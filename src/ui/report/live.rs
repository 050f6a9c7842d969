//! What `watch` prints while it works: one line per event.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use super::text::{Paint, short_duration, status_word};
use crate::run::record::Record;
use crate::run::state::RunStatus;
use crate::text::clean::{clean_json, clean_line};
use crate::text::error::{Fault, Kind};
use crate::work::notice::Notice;

/// Prints notices: finished tasks to standard output, problems to standard error.
#[derive(Debug, Clone, Copy)]
pub struct Live {
    json: bool,
    out: Paint,
    err: Paint,
}

impl Live {
    /// Lines for people, or JSON objects for programs.
    #[must_use]
    pub fn new(json: bool) -> Live {
        Live {
            json,
            out: Paint::stdout(),
            err: Paint::stderr(),
        }
    }

    /// Prints one notice. It is no error if the output was closed.
    pub fn print(&self, notice: &Notice<'_>) {
        let _ = if self.json {
            self.print_json(notice)
        } else {
            self.print_line(notice)
        };
    }

    fn print_line(&self, notice: &Notice<'_>) -> std::io::Result<()> {
        let (out, err) = (self.out, self.err);
        match notice {
            // The command that watches says so itself: it knows where, and how many at a time.
            Notice::Watching | Notice::Started { .. } => Ok(()),
            Notice::Finished { record } => {
                writeln!(std::io::stdout().lock(), "{}", finished(record, out))
            }
            Notice::Retrying {
                target,
                after,
                fault,
            } => writeln!(
                std::io::stderr().lock(),
                "{} {target}: {}; again in {}",
                err.odd("retry "),
                clean_line(&fault.message),
                short_duration(*after),
            ),
            Notice::Cancelled { target } => {
                writeln!(
                    std::io::stderr().lock(),
                    "{} {target}",
                    err.odd("cancelled")
                )
            }
            Notice::PutBack { target } => writeln!(
                std::io::stderr().lock(),
                "{} {target}: it waits in its inbox again",
                err.odd("put back"),
            ),
            Notice::TakenOver { target } => writeln!(
                std::io::stderr().lock(),
                "{} {target}: its watcher died",
                err.odd("take over"),
            ),
            Notice::Stray { path, why } => writeln!(
                std::io::stderr().lock(),
                "{} `{}` is not a task and is left alone: {}",
                err.odd("note:"),
                clean_line(path),
                clean_line(why),
            ),
            Notice::Checkpoint { run, line } => writeln!(
                std::io::stdout().lock(),
                "{} {}",
                out.dim(run),
                clean_line(line)
            ),
            Notice::RunEnded { run, status } => {
                let word = match status {
                    RunStatus::Succeeded => out.good(status.as_str()),
                    RunStatus::Blocked | RunStatus::Cancelled => out.odd(status.as_str()),
                    _ => out.bad(status.as_str()),
                };
                writeln!(std::io::stdout().lock(), "{} {word}", out.dim(run))
            }
            Notice::Trouble { fault } => {
                writeln!(std::io::stderr().lock(), "{}", trouble(fault, err))
            }
        }
    }

    fn print_json(&self, notice: &Notice<'_>) -> std::io::Result<()> {
        let value = match notice {
            Notice::Watching => json!({"event": "watching"}),
            Notice::Started {
                target,
                provider,
                attempt,
            } => {
                json!({"event": "started", "task": target, "provider": provider, "attempt": attempt})
            }
            Notice::Finished { record } => json!({"event": "finished", "record": record}),
            Notice::Retrying {
                target,
                after,
                fault,
            } => {
                json!({"event": "retrying", "task": target, "after": after.as_secs_f64(), "error": fault})
            }
            Notice::Cancelled { target } => json!({"event": "cancelled", "task": target}),
            Notice::PutBack { target } => json!({"event": "put_back", "task": target}),
            Notice::TakenOver { target } => json!({"event": "taken_over", "task": target}),
            Notice::Stray { path, why } => json!({"event": "stray", "path": path, "why": why}),
            Notice::Checkpoint { run, line } => {
                json!({"event": "checkpoint", "run": run, "line": line})
            }
            Notice::RunEnded { run, status } => {
                json!({"event": "run_ended", "run": run, "status": status})
            }
            Notice::Trouble { fault } => json!({"event": "trouble", "error": fault}),
        };
        writeln!(
            std::io::stdout().lock(),
            "{}",
            clean_json(&value.to_string())
        )
    }
}

fn finished(record: &Record, paint: Paint) -> String {
    let word = status_word(record.status, paint, 9);
    let time = Duration::try_from_secs_f64(record.duration).unwrap_or_default();
    let mut line = format!(
        "{word} {}/{}  {}",
        record.agent,
        record.task,
        paint.dim(short_duration(time)),
    );
    if let Some(cost) = record.usage.as_ref().and_then(|usage| usage.cost_usd) {
        line.push_str(&paint.dim(format!("  ${cost:.4}")));
    }
    if let Some(next) = &record.next {
        line.push_str(&format!("  -> {next}"));
    }
    if let Some(fault) = &record.error {
        line.push_str(&format!("\n          {}", clean_line(&fault.message)));
        if let Some(hint) = &fault.hint {
            line.push_str(&format!("\n          hint: {}", clean_line(hint)));
        }
    }
    line
}

/// Prints only the notice that an agent runs with less confinement than asked for: for commands that
/// report everything else in their own way.
pub fn print_unheld(notice: &Notice<'_>) {
    if let Notice::Trouble { fault } = notice
        && fault.kind == Kind::PermissionDenied
    {
        let text = trouble(fault, Paint::stderr());
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

fn trouble(fault: &Fault, paint: Paint) -> String {
    let mut text = format!("{} {}", paint.bad("trouble:"), clean_line(&fault.message));
    if let Some(hint) = &fault.hint {
        text.push_str(&format!("\nhint: {}", clean_line(hint)));
    }
    text
}
