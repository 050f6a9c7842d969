//! Injects the files of `depends_on` before or after a prompt.
//!
//! Pure text: the caller has matched and read the files. File contents are never substituted or
//! parsed, and a file's name cannot break out of its line.

use crate::spec::workflow::model::{Inject, InjectMode, Position};
use crate::text::cut;
use crate::text::error::{Fault, Kind};

/// The most bytes that are injected, headers and list included.
pub const MAX_BYTES: usize = 256 * 1024;
/// The sentence above the files, unless `instruction` replaces it.
pub const INSTRUCTION: &str = "The following files are required inputs for this task:";

/// Space reserved for the line that says how many files are not shown.
const TRAILER_BYTES: usize = 64;

/// A file that a glob matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path as the agent may use it.
    pub path: String,
    /// Its size in bytes.
    pub total: u64,
    /// Its first bytes, at most [`MAX_BYTES`]; empty if only names are injected.
    pub start: Vec<u8>,
}

/// A required glob that no file matches is a fault.
///
/// # Errors
/// [`Kind::DependencyNotFoundError`], with all such globs.
pub fn require<'g>(globs: impl IntoIterator<Item = (&'g str, usize)>) -> Result<(), Fault> {
    let missing: Vec<&str> = globs
        .into_iter()
        .filter(|(_, matched)| *matched == 0)
        .map(|(glob, _)| glob)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("no file matches `{}`", missing.join("`, `"));
    Err(Fault::new(Kind::DependencyNotFoundError, message)
        .hint("an earlier step has to write it; list it under `optional` if it may be missing"))
}

/// The prompt with the files injected, sorted bytewise, each once. Without files the prompt is
/// unchanged.
#[must_use]
pub fn inject(prompt: &str, mut files: Vec<Found>, how: &Inject) -> String {
    files.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
    files.dedup_by(|a, b| a.path == b.path);
    if files.is_empty() {
        return prompt.to_owned();
    }
    let block = block(&files, how);
    match how.position {
        Position::Prepend => format!("{block}\n{prompt}"),
        Position::Append if prompt.is_empty() => block,
        Position::Append if prompt.ends_with('\n') => format!("{prompt}\n{block}"),
        Position::Append => format!("{prompt}\n\n{block}"),
    }
}

/// The sentence and the files, with a newline at the end.
fn block(files: &[Found], how: &Inject) -> String {
    let mut block = how.instruction.as_deref().unwrap_or(INSTRUCTION).to_owned();
    block.push('\n');
    let end = MAX_BYTES - TRAILER_BYTES;
    for (at, file) in files.iter().enumerate() {
        let room = end.saturating_sub(block.len());
        let entry = match how.mode {
            InjectMode::Content => content(file, room),
            InjectMode::List => format!("- {}\n", one_line(&file.path)),
        };
        if entry.len() > room {
            block.push_str(&left_out(files.len() - at));
            break;
        }
        block.push_str(&entry);
    }
    block
}

fn left_out(files: usize) -> String {
    let noun = if files == 1 { "file" } else { "files" };
    format!("({files} more {noun} not shown)\n")
}

/// One file under its header, cut to `room` bytes. The numbers in the header count bytes of the file.
fn content(file: &Found, room: usize) -> String {
    let total = file.total.max(file.start.len() as u64);
    let header = |shown: usize| {
        format!(
            "\n=== File: {} ({shown}/{total} bytes) ===\n",
            one_line(&file.path)
        )
    };
    let widest = header(usize::try_from(total).unwrap_or(usize::MAX)).len() + 1;
    let (text, shown) = fitting(&file.start, room.saturating_sub(widest));
    let mut entry = header(shown);
    entry.push_str(&text);
    if !entry.ends_with('\n') {
        entry.push('\n');
    }
    entry
}

/// As much text as fits, cut between characters, and how many bytes of the file it stands for.
fn fitting(bytes: &[u8], room: usize) -> (String, usize) {
    let mut text = String::new();
    let mut used = 0;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        let taken = cut::head(valid, room.saturating_sub(text.len()));
        text.push_str(taken);
        used += taken.len();
        if taken.len() < valid.len() {
            break;
        }
        if chunk.invalid().is_empty() {
            continue;
        }
        if text.len() + '\u{fffd}'.len_utf8() > room {
            break;
        }
        text.push('\u{fffd}');
        used += chunk.invalid().len();
    }
    (text, used)
}

/// A path that stays on its line.
fn one_line(path: &str) -> String {
    path.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Found {
        Found {
            path: path.into(),
            total: text.len() as u64,
            start: text.into(),
        }
    }

    fn how(mode: InjectMode, position: Position, instruction: Option<&str>) -> Inject {
        Inject {
            mode,
            position,
            instruction: instruction.map(str::to_owned),
        }
    }

    #[test]
    fn files_are_listed_or_carried_on_either_side() {
        use InjectMode::{Content, List};
        use Position::{Append, Prepend};
        let two = || {
            vec![
                file("b.md", "two\n"),
                file("a.md", "one"),
                file("b.md", "two\n"),
            ]
        };
        let table = [
            (
                how(List, Prepend, None),
                "The following files are required inputs for this task:\n- a.md\n- b.md\n\nDo.",
            ),
            (
                how(List, Append, Some("Read:")),
                "Do.\n\nRead:\n- a.md\n- b.md\n",
            ),
            (
                how(Content, Prepend, Some("Read:")),
                "Read:\n\n=== File: a.md (3/3 bytes) ===\none\n\n=== File: b.md (4/4 bytes) ===\ntwo\n\nDo.",
            ),
            (
                how(Content, Append, None),
                "Do.\n\nThe following files are required inputs for this task:\n\n=== File: a.md (3/3 bytes) ===\none\n\n=== File: b.md (4/4 bytes) ===\ntwo\n",
            ),
        ];
        for (how, expected) in table {
            assert_eq!(inject("Do.", two(), &how), expected, "{how:?}");
        }
        assert_eq!(inject("Do.", vec![], &Inject::default()), "Do.");
        assert_eq!(
            inject("Do.\n", vec![file("a", "")], &how(List, Append, Some("R"))),
            "Do.\n\nR\n- a\n"
        );
        assert_eq!(
            inject("", vec![file("a", "")], &how(List, Append, Some("R"))),
            "R\n- a\n"
        );
    }

    #[test]
    fn names_are_sorted_bytewise() {
        let files = ["b", "a/b", "a-b", "Z", "é", "a"]
            .map(|path| file(path, ""))
            .to_vec();
        let text = inject(
            "",
            files,
            &how(InjectMode::List, Position::Append, Some("x")),
        );
        assert_eq!(text, "x\n- Z\n- a\n- a-b\n- a/b\n- b\n- é\n");
    }

    #[test]
    fn contents_are_limited_in_all() {
        let half = "x".repeat(150 * 1024);
        let files = vec![file("a", &half), file("b", &half), file("c", &half)];
        let text = inject("", files, &how(InjectMode::Content, Position::Append, None));
        assert!(text.len() <= MAX_BYTES, "{}", text.len());
        assert!(text.contains("=== File: a (153600/153600 bytes) ==="));
        let cut = text.split("=== File: b (").nth(1).unwrap();
        let shown: usize = cut.split('/').next().unwrap().parse().unwrap();
        assert!(shown > 100_000 && shown < 153_600, "{shown}");
        assert_eq!(cut.matches('x').count(), shown);
        assert!(text.ends_with("(1 more file not shown)\n"));
    }

    #[test]
    fn lists_are_limited_too() {
        let files = (0..100_000)
            .map(|n| file(&format!("dir/file-{n:06}.md"), ""))
            .collect();
        let text = inject("", files, &Inject::default());
        assert!(text.len() <= MAX_BYTES + 1 && text.contains("more files not shown)"));
    }

    #[test]
    fn the_total_is_the_files_own_even_if_only_its_start_was_read() {
        let big = Found {
            path: "big".into(),
            total: 9_000_000,
            start: b"start".to_vec(),
        };
        let text = inject(
            "",
            vec![big],
            &how(InjectMode::Content, Position::Append, Some("R")),
        );
        assert_eq!(text, "R\n\n=== File: big (5/9000000 bytes) ===\nstart\n");
    }

    #[test]
    fn awkward_contents_and_names_stay_what_they_are() {
        for awkward in [
            "${run.id} $$ $",
            "\"'`\\",
            "a\r\nb",
            "=== File: x (1/1 bytes) ===",
            "é🦀\0",
        ] {
            let text = inject(
                "P",
                vec![file("f", awkward)],
                &how(InjectMode::Content, Position::Append, None),
            );
            assert!(text.ends_with(&format!("===\n{awkward}\n")), "{awkward}");
        }
        let raw = Found {
            path: "a\nb".into(),
            total: 4,
            start: b"a\xff\xfeb".to_vec(),
        };
        let text = inject(
            "",
            vec![raw],
            &how(InjectMode::Content, Position::Append, Some("R")),
        );
        assert_eq!(
            text,
            "R\n\n=== File: a\u{fffd}b (4/4 bytes) ===\na\u{fffd}\u{fffd}b\n"
        );
        let wide = "🦀".repeat(80_000);
        let text = inject(
            "",
            vec![file("w", &wide)],
            &how(InjectMode::Content, Position::Append, None),
        );
        assert!(text.len() <= MAX_BYTES && !text.contains('\u{fffd}'));
    }

    #[test]
    fn missing_required_files_are_all_named() {
        assert_eq!(require([("a/*.md", 2), ("b", 1)]), Ok(()));
        let fault = require([("a/*.md", 0), ("b", 1), ("c", 0)]).unwrap_err();
        assert_eq!(fault.kind, Kind::DependencyNotFoundError);
        assert_eq!(fault.message, "no file matches `a/*.md`, `c`");
    }
}
