//! How `orch show` looks to a person.

use std::fmt::Write as _;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;

use jiff::Timestamp;

use super::{Earlier, View, earlier_tasks, moment};
use crate::disk::mailbox::{ERR, OUT, Peek, Place, RAW, file_name};
use crate::run::record::Record;
use crate::spec::task::TaskName;
use crate::ui::report::{
    Align, Paint, Table, age, ago, clean, clean_line, count, short_duration, size, status_word,
};

/// So much of the answer is shown.
const ANSWER_LINES: usize = 40;
const ANSWER_BYTES: u64 = 16 << 10;
/// So much of stderr is shown, from its end.
const STDERR_LINES: usize = 15;
const STDERR_BYTES: u64 = 4 << 10;

/// The whole page.
pub(super) fn page(view: &View, peek: &Peek) -> String {
    let paint = Paint::stdout();
    let now = Timestamp::now();
    let mut text = format!(
        "{}  {}\n",
        paint.strong(&view.task),
        standing(view, now, paint)
    );
    if let Some(why) = &view.damaged {
        let _ = writeln!(text, "\n{} {}", paint.bad("damaged:"), clean_line(why));
    }
    if let Some(record) = &view.record {
        text.push('\n');
        text.push_str(&facts(record, now, paint));
    }
    write_files(&mut text, view, peek, paint);
    write_earlier(&mut text, view, paint);
    write_answer(&mut text, view, peek, paint);
    if matches!(view.place, Place::Failed(_)) {
        write_stderr(&mut text, &view.name, peek, paint);
    }
    text
}

fn standing(view: &View, now: Timestamp, paint: Paint) -> String {
    let time = short_duration(age(now, moment(view.place)));
    match view.place {
        Place::Waiting(_) => format!("{} for {time}", paint.odd("waiting")),
        Place::Running(_) => format!("{} for {time}", paint.good("running")),
        Place::Interrupted(_) if view.record.is_some() => {
            format!(
                "{} but not put away: its watcher died, and the next one does it",
                paint.odd("finished")
            )
        }
        Place::Interrupted(_) => {
            format!(
                "{} (its watcher died; the next one takes it over)",
                paint.odd("interrupted")
            )
        }
        Place::Done(_) => format!("{} {time} ago", paint.good("done")),
        Place::Failed(_) => match &view.record {
            Some(record) => format!("{} {time} ago", status_word(record.status, paint, 0)),
            None => format!("{} {time} ago", paint.bad("failed")),
        },
    }
}

fn facts(record: &Record, now: Timestamp, paint: Paint) -> String {
    let mut rows: Vec<(&str, String)> = vec![("status", record.status.as_str().to_owned())];
    if let Some(fault) = &record.error {
        rows.push(("error", format!("{:?}: {}", fault.kind, fault.message)));
        rows.extend(fault.hint.clone().map(|hint| ("hint", hint)));
    }
    if !record.provider.is_empty() {
        rows.push(("provider", record.provider.clone()));
    }
    rows.extend(
        record
            .command
            .as_ref()
            .map(|words| ("command", shell_words(words))),
    );
    rows.extend(record.cwd.clone().map(|cwd| ("cwd", cwd)));
    let ended = ago(now, &record.end_time)
        .map(|ago| format!("  ({ago})"))
        .unwrap_or_default();
    rows.push(("started", record.start_time.clone()));
    rows.push(("ended", format!("{}{ended}", record.end_time)));
    rows.push(("took", short_duration(seconds(record.duration))));
    if record.attempt > 1 {
        rows.push(("attempt", record.attempt.to_string()));
    }
    rows.extend(record.exit_code.map(|code| ("exit code", code.to_string())));
    rows.extend(record.signal.clone().map(|signal| ("signal", signal)));
    rows.extend(usage(record));
    rows.extend(record.session_id.clone().map(|id| ("session", id)));
    rows.extend(record.next.clone().map(|next| ("next", next)));
    let mut text = String::new();
    for (key, value) in rows {
        let value = clean(&value).trim_end().replace('\n', "\n            ");
        let _ = writeln!(text, "  {}  {value}", paint.dim(format!("{key:9}")));
    }
    text
}

fn usage(record: &Record) -> Vec<(&'static str, String)> {
    let Some(usage) = &record.usage else {
        return Vec::new();
    };
    let tokens = |n: Option<u64>, way: &str| n.map(|n| format!("{n} {way}"));
    let both = [
        tokens(usage.input_tokens, "in"),
        tokens(usage.output_tokens, "out"),
    ];
    let both: Vec<String> = both.into_iter().flatten().collect();
    let mut rows = Vec::new();
    if !both.is_empty() {
        rows.push(("tokens", both.join(", ")));
    }
    rows.extend(usage.cost_usd.map(|cost| ("cost", format!("${cost:.4}"))));
    rows
}

/// A command line that could be pasted into a shell.
fn shell_words(words: &[String]) -> String {
    let is_plain = |word: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
        !word.is_empty() && word.chars().all(good)
    };
    let quoted = words.iter().map(|word| match is_plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn write_files(text: &mut String, view: &View, peek: &Peek, paint: Paint) {
    let mut table = Table::new(&[Align::Left, Align::Right]);
    for file in &view.files {
        table.row([clean_line(&file.path), size(file.bytes)]);
    }
    let _ = writeln!(text, "\n{}", paint.strong("files"));
    for line in table.lines() {
        let _ = writeln!(text, "  {line}");
    }
    let kept = earlier_tasks(peek, &view.name);
    if kept > 0 {
        let note = format!(
            "{} of this name in processed/{}",
            count(kept, "earlier task"),
            peek.agent
        );
        let _ = writeln!(text, "  {}", paint.dim(note));
    }
}

fn write_earlier(text: &mut String, view: &View, paint: Paint) {
    if view.earlier.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", paint.strong("earlier"));
    for earlier in &view.earlier {
        let _ = writeln!(
            text,
            "  {}~{}  {}",
            view.name,
            earlier.number,
            earlier_line(earlier, paint)
        );
    }
}

fn earlier_line(earlier: &Earlier, paint: Paint) -> String {
    let Some(record) = &earlier.record else {
        return format!(
            "{}  ended by a crash, without a record",
            paint.odd("interrupted")
        );
    };
    let error = record
        .error
        .as_ref()
        .map(|fault| format!("  {}", clean_line(&fault.message)));
    format!(
        "{}  {}  {}{}",
        status_word(record.status, paint, 9),
        clean_line(&record.end_time),
        short_duration(seconds(record.duration)),
        error.unwrap_or_default(),
    )
}

fn write_answer(text: &mut String, view: &View, peek: &Peek, paint: Paint) {
    let is_live = matches!(view.place, Place::Running(_));
    let (agent, name) = (&peek.agent, &view.name);
    let out = file_name(name, OUT);
    let Ok(Some((bytes, cut))) = head(peek, &out) else {
        if is_live
            && peek
                .artifacts
                .as_ref()
                .is_some_and(|d| d.has(&file_name(name, RAW)).unwrap_or(false))
        {
            let how =
                format!("it prints JSON: `tail -f artifacts/{agent}/{name}{RAW}` shows it live");
            let _ = writeln!(text, "\n{}", paint.dim(how));
        }
        return;
    };
    let shown = String::from_utf8_lossy(&bytes);
    let shown = clean(&shown);
    let lines: Vec<&str> = shown.lines().collect();
    let heading = if is_live { "answer so far" } else { "answer" };
    let _ = writeln!(text, "\n{}", paint.strong(heading));
    if lines.is_empty() {
        let _ = writeln!(text, "  {}", paint.dim("(empty)"));
    }
    for line in lines.iter().take(ANSWER_LINES) {
        let _ = writeln!(text, "  {line}");
    }
    if cut || lines.len() > ANSWER_LINES {
        let _ = writeln!(
            text,
            "  {}",
            paint.dim(format!("... the whole of it is in artifacts/{agent}/{out}"))
        );
    }
}

fn write_stderr(text: &mut String, name: &TaskName, peek: &Peek, paint: Paint) {
    let Ok(Some(bytes)) = tail(peek, &file_name(name, ERR)) else {
        return;
    };
    let shown = String::from_utf8_lossy(&bytes);
    let shown = clean(&shown);
    let lines: Vec<&str> = shown.lines().collect();
    let _ = writeln!(text, "\n{}", paint.strong("stderr, its end"));
    for line in &lines[lines.len().saturating_sub(STDERR_LINES)..] {
        let _ = writeln!(text, "  {line}");
    }
}

/// The beginning of a result file, and whether there is more.
fn head(peek: &Peek, file: &str) -> io::Result<Option<(Vec<u8>, bool)>> {
    let Some(file) = open(peek, file)? else {
        return Ok(None);
    };
    let more = file.metadata()?.len() > ANSWER_BYTES;
    let mut bytes = Vec::new();
    file.take(ANSWER_BYTES).read_to_end(&mut bytes)?;
    Ok(Some((bytes, more)))
}

/// The end of a result file.
fn tail(peek: &Peek, file: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(mut file) = open(peek, file)? else {
        return Ok(None);
    };
    let from = file.metadata()?.len().saturating_sub(STDERR_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(STDERR_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn open(peek: &Peek, file: &str) -> io::Result<Option<std::fs::File>> {
    let Some(dir) = &peek.artifacts else {
        return Ok(None);
    };
    match dir.open(file) {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn seconds(time: f64) -> Duration {
    Duration::try_from_secs_f64(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["claude", "-p", "a b", "it's", ""].map(str::to_owned);
        assert_eq!(shell_words(&words), r"claude -p 'a b' 'it'\''s' ''");
    }
}
