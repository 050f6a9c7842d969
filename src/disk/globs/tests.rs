//! Globs over a small tree.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{exists, facts, matches};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn tree() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let files = [
        "a.md",
        "b.md",
        "B.md",
        ".hidden.md",
        "src/x.rs",
        "src/deep/y.rs",
        "src/deep/er/z.rs",
        "src/.git/config.rs",
        ".dot/in.md",
        "d/[1].txt",
        "d/ü.txt",
    ];
    files.iter().for_each(|path| write(temp.path(), path, ""));
    temp
}

fn found(root: &Path, pattern: &str) -> String {
    matches(root, pattern).unwrap().join(" ")
}

#[test]
fn each_wildcard_has_its_meaning() {
    let temp = tree();
    let table = [
        ("*.md", "B.md a.md b.md"),
        ("?.md", "B.md a.md b.md"),
        ("[ab].md", "a.md b.md"),
        ("[!a].md", "B.md b.md"),
        ("./a.md", "a.md"),
        ("none.md", ""),
        ("none/*.md", ""),
        ("a.md/*", ""),
        ("src/*.rs", "src/x.rs"),
        ("src/*", "src/x.rs"),
        ("src/**/*.rs", "src/deep/er/z.rs src/deep/y.rs src/x.rs"),
        ("src/**", "src/deep/er/z.rs src/deep/y.rs src/x.rs"),
        ("**/deep/**/z.rs", "src/deep/er/z.rs"),
        ("**/**/x.rs", "src/x.rs"),
        ("*/deep/?.rs", "src/deep/y.rs"),
        ("src/**/er", "src/deep/er"),
        ("src", "src"),
        ("src/", "src"),
        ("s*", ""),
        (".*.md", ".hidden.md"),
        ("[.]hidden.md", ""),
        (".dot/*", ".dot/in.md"),
        ("**/.git/*", "src/.git/config.rs"),
        ("*/in.md", ""),
        ("d/[[]1].txt", "d/[1].txt"),
        ("d/?.txt", "d/ü.txt"),
        ("{a,b}.md", "a.md b.md"),
    ];
    for (pattern, expected) in table {
        assert_eq!(found(temp.path(), pattern), expected, "{pattern}");
        let any = exists(temp.path(), pattern).unwrap();
        assert_eq!(any, !expected.is_empty(), "{pattern}");
    }
}

#[test]
fn only_what_lies_in_the_root_is_looked_at() {
    let temp = tree();
    let root = temp.path().to_str().unwrap();
    assert_eq!(
        found(temp.path(), &format!("{root}/?.md")),
        "B.md a.md b.md"
    );
    let wrong = [
        "/etc/*".to_owned(),
        "../*".to_owned(),
        "src/../../x".to_owned(),
        format!("{root}x/*"),
        format!("{root}/../*"),
        String::new(),
        root.to_owned(),
        ".".to_owned(),
        "a[.md".to_owned(),
        "a\0b".to_owned(),
    ];
    for pattern in wrong {
        let error = matches(temp.path(), &pattern).expect_err(&pattern);
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{pattern}");
    }
}

#[test]
fn links_are_neither_followed_nor_matched() {
    let temp = tree();
    let other = tempfile::tempdir().unwrap();
    write(other.path(), "secret.md", "s");
    symlink(other.path(), temp.path().join("out")).unwrap();
    symlink(temp.path(), temp.path().join("src/loop")).unwrap();
    symlink(other.path().join("secret.md"), temp.path().join("l.md")).unwrap();
    for pattern in ["out/*", "out/secret.md", "**/secret.md", "l.md", "src/loop"] {
        assert_eq!(found(temp.path(), pattern), "", "{pattern}");
    }
    assert_eq!(found(temp.path(), "?.md"), "B.md a.md b.md");
}

#[test]
fn facts_have_an_answer_for_every_glob_that_is_one() {
    let temp = tree();
    let wanted = ["*.md", "*.none", "../x"].map(str::to_owned);
    let facts = facts(temp.path(), &BTreeSet::from(wanted)).unwrap();
    let told: Vec<_> = facts.exists.into_iter().collect();
    assert_eq!(
        told,
        [("*.md".to_owned(), true), ("*.none".to_owned(), false)]
    );
}
