//! What models print, and what becomes of it.

use super::*;

fn written(text: &str) -> Vec<(String, String)> {
    let changes = read(text).unwrap_or_else(|why| panic!("{text}\n{why}"));
    changes
        .into_iter()
        .map(|change| match change {
            Change::Write { path, text } => (path, text),
            Change::Patch(patch) => panic!("{patch:?}"),
        })
        .collect()
}

fn patched(diff: &str, old: Option<&str>) -> Result<Option<String>, String> {
    let changes = read(diff)?;
    let [Change::Patch(patch)] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    apply(patch, old)
}

#[test]
fn a_path_is_found_in_every_common_form() {
    let ways = [
        "```rust src/a.rs\nX\n```",
        "```rust:src/a.rs\nX\n```",
        "```src/a.rs\nX\n```",
        "```rust title=\"src/a.rs\"\nX\n```",
        "~~~rust filename=src/a.rs\nX\n~~~",
        "### src/a.rs\n```rust\nX\n```",
        "### File: `src/a.rs`\n\n```rust\nX\n```",
        "**src/a.rs**\n```\nX\n```",
        "**`src/a.rs`** (new):\n```\nX\n```",
        "`src/a.rs`:\n```\nX\n```",
        "src/a.rs:\n```\nX\n```",
        "1. **File: src/a.rs**\n   ```rust\n   X\n   ```",
        "```rust\n// file: src/a.rs\nX\n```",
        "```python\n# File: src/a.rs\nX\n```",
        "```html\n<!-- file: src/a.rs -->\nX\n```",
        "```\nsrc/a.rs\nX\n```",
        "Sure! Here it is:\n\n```rust src/a.rs\r\nX\r\n```\r\nDone.",
        "{\"files\": {\"src/a.rs\": \"X\\n\"}}",
        "Here:\n```json\n{\"files\": {\"src/a.rs\": \"X\\n\"}}\n```\n",
        "{\"files\": [{\"path\": \"src/a.rs\", \"content\": \"X\\n\"}]}",
    ];
    for way in ways {
        assert_eq!(
            written(way),
            [("src/a.rs".to_owned(), "X\n".to_owned())],
            "{way}"
        );
    }
}

#[test]
fn what_has_no_path_is_no_file() {
    let ways = [
        "",
        "I have done it.",
        "```sh\ncargo test\n```",
        "Run this:\n```\ncargo test --all\n```",
        "```rust ignore\nfn main() {}\n```",
        "### Running the tests in src/a.rs\n```sh\ncargo test\n```",
        "```json\n{\"name\": \"x\"}\n```",
        "- [ ] a list\n--- \nand +++ more",
        "See https://example.org/a.html:\n```\nx y\n```",
    ];
    for way in ways {
        assert_eq!(read(way), Ok(Vec::new()), "{way}");
    }
}

#[test]
fn blocks_in_markdown_belong_to_it() {
    let inner = "# T\n\n```sh\nmake\n```\n\nend\n";
    for text in [
        format!("````markdown README.md\n{inner}````\n"),
        format!("```markdown README.md\n{inner}```\n"),
        format!("**README.md**\n~~~\n{inner}~~~\n"),
    ] {
        assert_eq!(
            written(&text),
            [("README.md".to_owned(), inner.to_owned())],
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_understood_is_a_fault() {
    let table = [
        ("```rust src/a.rs\nfn main() {", "line 1 is not closed"),
        (
            "```x a.rs\n1\n```\n```x a.rs\n2\n```",
            "`a.rs` is given twice",
        ),
        ("{\"files\": {\"a\": 3}}", "content of `a` is not text"),
        ("{\"files\": 3}", "neither a map"),
        ("{\"files\": [{\"path\": \"a\"}]}", "no `content`"),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "renames a file"),
        (
            "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n",
            "renames or copies",
        ),
        (
            "diff --git a/x b/x\nBinary files a/x and b/x differ\n",
            "binary",
        ),
        ("--- a/x\n+++ b/x\nnothing\n", "`x` has no hunk"),
        (
            "```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
            "is not closed",
        ),
    ];
    for (text, expected) in table {
        let why = read(text).unwrap_err();
        assert!(why.contains(expected), "{text}\n{why}");
    }
}

#[test]
fn a_path_comes_out_as_it_was_printed() {
    for path in [
        "../x.rs",
        "/etc/x.rs",
        "a/../../x.rs",
        "a\\x.rs",
        ".git/hooks/x",
        "a//b.rs",
        "./a.rs",
    ] {
        assert_eq!(written(&format!("```x {path}\n1\n```"))[0].0, path);
        let diff = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n");
        assert_eq!(read(&diff).unwrap()[0].path(), path);
    }
    let quoted = "--- \"a/\\303\\274 \\\"x\\\".rs\"\n+++ \"b/\\303\\274 \\\"x\\\".rs\"\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(read(quoted).unwrap()[0].path(), "ü \"x\".rs");
    assert_eq!(written("{\"files\": {\"a\\u0000b\": \"\"}}")[0].0, "a\0b");
}

#[test]
fn a_diff_is_applied_exactly_or_not_at_all() {
    let old = "one\ntwo\nthree\nfour\nfive\n";
    let head = "--- a/f\n+++ b/f\n";
    let table: [(&str, &str, Result<&str, &str>); 14] = [
        (
            old,
            "@@ -2,2 +2,2 @@\n two\n-three\n+3\n",
            Ok("one\ntwo\n3\nfour\nfive\n"),
        ),
        // Moved, and the only place.
        (
            old,
            "@@ -40,2 +40,2 @@\n two\n-three\n+3\n",
            Ok("one\ntwo\n3\nfour\nfive\n"),
        ),
        // Counts that are wrong, and a header without any.
        (
            old,
            "@@ -2,9 +2,7 @@\n two\n-three\n+3\n",
            Ok("one\ntwo\n3\nfour\nfive\n"),
        ),
        (
            old,
            "@@ fn x @@\n two\n-three\n+3\n",
            Ok("one\ntwo\n3\nfour\nfive\n"),
        ),
        // Several hunks.
        (
            old,
            "@@ -1,1 +1,2 @@\n one\n+and\n@@ -5,1 +6,1 @@\n-five\n+5\n",
            Ok("one\nand\ntwo\nthree\nfour\n5\n"),
        ),
        (
            old,
            "@@ -2,0 +3,1 @@\n+between\n",
            Ok("one\ntwo\nbetween\nthree\nfour\nfive\n"),
        ),
        (
            old,
            "@@ -2,2 +2,2 @@\n tow\n-three\n+3\n",
            Err("does not apply"),
        ),
        (
            old,
            "@@ -2,2 +2,2 @@\n two \n-three\n+3\n",
            Err("does not apply"),
        ),
        (
            "x\ny\nx\n",
            "@@ -9 +9 @@\n-x\n+z\n",
            Err("could apply in line 1 and in line 3"),
        ),
        ("x\ny\nx\n", "@@ -3 +3 @@\n-x\n+z\n", Ok("x\ny\nz\n")),
        (
            "a\nb",
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n",
            Ok("a\nc\n"),
        ),
        (
            "a\nb\n",
            "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n",
            Ok("a\nc"),
        ),
        (
            "a\nb\n",
            "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n",
            Err("does not apply"),
        ),
        (
            "a\r\nb\r\n",
            "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n",
            Ok("a\r\nc\r\nd\r\n"),
        ),
    ];
    for (old, hunks, expected) in table {
        let found = patched(&format!("{head}{hunks}"), Some(old));
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), Some(expected), "{hunks}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{hunks}\n{why}"),
            other => panic!("{hunks}: {other:?}"),
        }
    }
    // A diff with long line ends for a file with short ones.
    let long = "--- a/f\r\n+++ b/f\r\n@@ -1 +1 @@\r\n-one\r\n+1\r\n";
    assert_eq!(
        patched(long, Some("one\ntwo\n")),
        Ok(Some("1\ntwo\n".to_owned()))
    );
}

#[test]
fn files_come_and_go_by_a_diff() {
    let new = "Here:\n```diff\ndiff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n```\n";
    assert_eq!(patched(new, None), Ok(Some("a\nb\n".to_owned())));
    assert!(
        patched(new, Some("x\n"))
            .unwrap_err()
            .contains("exists already")
    );
    let gone = "--- a/n\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n";
    assert_eq!(patched(gone, Some("a\nb\n")), Ok(None));
    assert!(
        patched(gone, None)
            .unwrap_err()
            .contains("`n`, which does not exist")
    );
    assert!(
        patched(gone, Some("a\nb\nc\n"))
            .unwrap_err()
            .contains("does not contain all")
    );
    let empty = "diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n";
    assert_eq!(patched(empty, None), Ok(Some(String::new())));
    let two = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(read(two).unwrap().len(), 2);
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// A diff of two texts as git would print it: one hunk for everything between the lines that both
/// begin and end with, with as much context as there is, up to three.
fn diff_of(old: &str, new: &str) -> String {
    let lines =
        |text: &str| -> Vec<String> { text.split_inclusive('\n').map(str::to_owned).collect() };
    let (a, b) = (lines(old), lines(new));
    let head = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let most = a.len().min(b.len()) - head;
    let tail = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take(most)
        .take_while(|(a, b)| a == b)
        .count();
    let (before, after) = (head.min(3), tail.min(3));
    let (from, a_end, b_end) = (head - before, a.len() - tail, b.len() - tail);
    let mut body = String::new();
    let mut push = |mark: char, line: &str| {
        body.push(mark);
        body.push_str(line);
        if !line.ends_with('\n') {
            body.push_str("\n\\ No newline at end of file\n");
        }
    };
    a[from..head].iter().for_each(|line| push(' ', line));
    a[head..a_end].iter().for_each(|line| push('-', line));
    b[head..b_end].iter().for_each(|line| push('+', line));
    a[a_end..a_end + after]
        .iter()
        .for_each(|line| push(' ', line));
    let (old_count, new_count) = (a_end + after - from, b_end + after - from);
    let start = |count: usize| if count == 0 { from } else { from + 1 };
    let (old_name, new_name) = (
        if a.is_empty() { "/dev/null" } else { "a/f" },
        if b.is_empty() { "/dev/null" } else { "b/f" },
    );
    format!(
        "--- {old_name}\n+++ {new_name}\n@@ -{},{old_count} +{},{new_count} @@\n{body}",
        start(old_count),
        start(new_count)
    )
}

#[test]
fn applying_the_difference_of_two_texts_gives_the_second() {
    let words = [
        "a", "b", "", "-- x", "++ y", "@@ z", " c", "\\ d", "e\r", "\r", "ü", "--- a/f", "+++ b/f",
    ];
    let mut dice = Dice(3);
    for _ in 0..5000 {
        let mut text = || {
            let count = dice.roll(9);
            let lines: Vec<&str> = (0..count).map(|_| words[dice.roll(words.len())]).collect();
            let mut text = lines.join("\n");
            if dice.roll(3) > 0 && !text.is_empty() {
                text.push('\n');
            }
            text
        };
        let (old, new) = (text(), text());
        if old == new {
            continue;
        }
        let diff = diff_of(&old, &new);
        let before = (!old.is_empty()).then_some(old.as_str());
        let expected = (!new.is_empty()).then(|| new.clone());
        let changes = diff::read(&diff, 1).unwrap_or_else(|why| panic!("{why}\n{diff}"));
        let [Change::Patch(patch)] = changes.as_slice() else {
            panic!("{diff}\n{changes:?}");
        };
        assert_eq!(
            apply(patch, before),
            Ok(expected),
            "{old:?} {new:?}\n{diff}"
        );
    }
}

#[test]
fn no_text_breaks_it() {
    let pieces = [
        "```",
        "````",
        "~~~",
        "rust ",
        "a/b.rs",
        "\n",
        "\n",
        "\r\n",
        "--- a/x",
        "+++ b/x",
        "@@ -1,2 +1 @@",
        "@@",
        "-",
        "+",
        " ",
        "\\",
        "diff --git a/x b/x",
        "{\"files\": {",
        "}",
        "\"",
        "ü",
        "**",
        "`",
        "# ",
        "file: ",
        "/dev/null",
        "new file mode 1",
        ":",
        "\0",
    ];
    let mut dice = Dice(5);
    for _ in 0..20_000 {
        let count = dice.roll(24);
        let text: String = (0..count)
            .map(|_| pieces[dice.roll(pieces.len())])
            .collect();
        let Ok(changes) = read(&text) else { continue };
        for change in changes {
            // Every path is a piece of what was printed.
            let path = change.path();
            assert!(
                text.contains(path) || path.contains('\0') || text.contains('"'),
                "{text:?} {path:?}"
            );
            if let Change::Patch(patch) = change {
                let _ = apply(&patch, Some("a\nb\n"));
                let _ = apply(&patch, None);
            }
        }
    }
}
