//! Printed files: paths stay inside, and a file or a diff that is printed in good order comes out as
//! it went in.
//!
//! A line `=====` parts the file before from what was printed.

use orch::run::printed::{Change, Patch, apply, inside, read};
use serde_json::json;

use super::place;

pub fn holds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (before, printed) = text.split_once("=====\n").unwrap_or(("", text));
    match read(printed) {
        Ok(changes) => changes.iter().for_each(|change| applied(change, before)),
        Err(why) => {
            assert!(!why.contains('\n'), "{why:?}");
            let lines = place::numbers_after(&why, "line ");
            assert!(
                lines.iter().all(|line| *line <= place::lines(printed)),
                "{why}"
            );
        }
    }
    as_document(before);
    as_block(before);
    as_diff(before, printed);
    as_diff(printed, before);
}

fn applied(change: &Change, before: &str) {
    if let Ok(path) = inside(change.path()) {
        assert!(
            !path.is_empty() && !path.starts_with('/') && !path.contains('\0'),
            "{path:?}"
        );
        let bad = |part: &str| matches!(part, "" | "." | "..");
        assert!(!path.split('/').any(bad), "{path:?}");
        assert_eq!(inside(&path).as_ref(), Ok(&path));
    }
    if let Change::Patch(patch) = change {
        for before in [None, Some(""), Some(before)] {
            assert_eq!(apply(patch, before), apply(patch, before));
            if let Err(why) = apply(patch, before) {
                assert!(!why.contains('\n'), "{why:?}");
            }
        }
    }
}

fn written(printed: &str) -> Result<Vec<(String, String)>, String> {
    let one = |change| match change {
        Change::Write { path, text } => (path, text),
        Change::Patch(patch) => panic!("{patch:?} in {printed:?}"),
    };
    Ok(read(printed)?.into_iter().map(one).collect())
}

fn as_document(text: &str) {
    let printed = json!({"files": {"a/b.txt": text}}).to_string();
    let expected = vec![("a/b.txt".to_owned(), text.to_owned())];
    assert_eq!(written(&printed), Ok(expected));
}

/// A block with a fence that is longer than any mark inside of it. What is a diff or a document
/// itself is read as that.
fn as_block(text: &str) {
    let special =
        text.contains("+++ ") || text.contains("diff --git") || text.trim_start().starts_with('{');
    let whole = text.is_empty() || text.ends_with('\n');
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    if special || !whole {
        return;
    }
    let fence = "`".repeat(longest.max(2) + 1);
    let printed = format!("Here it is:\n\n{fence}txt a/b.txt\n{text}{fence}\nDone.\n");
    let expected = vec![("a/b.txt".to_owned(), text.to_owned())];
    assert_eq!(written(&printed), Ok(expected), "{printed:?}");
}

/// All old lines out, all new ones in.
fn as_diff(old: &str, new: &str) {
    if old == new || old.is_empty() || new.is_empty() {
        return;
    }
    let side = |text: &str, mark: char| -> (usize, String) {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut out: String = lines.iter().map(|line| format!("{mark}{line}")).collect();
        if !text.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
        (lines.len(), out)
    };
    let ((removed, minus), (added, plus)) = (side(old, '-'), side(new, '+'));
    let printed = format!("--- a/x.txt\n+++ b/x.txt\n@@ -1,{removed} +1,{added} @@\n{minus}{plus}");
    let changes = read(&printed).unwrap_or_else(|why| panic!("{printed:?}: {why}"));
    let [Change::Patch(patch)] = changes.as_slice() else {
        panic!("{printed:?} is {changes:?}");
    };
    let Patch { path, .. } = patch;
    assert_eq!(path, "x.txt");
    assert_eq!(
        apply(patch, Some(old)),
        Ok(Some(new.to_owned())),
        "{printed:?}"
    );
}
