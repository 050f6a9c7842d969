//! The tables of rules: each rule has tests, and every test that a table names is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    rule: String,
    held_by: Vec<String>,
}

type Table = BTreeMap<String, Vec<Row>>;

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder with this ending, in order.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![home().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.insert(path);
            }
        }
    }
    found.into_iter().collect()
}

fn tables() -> Vec<(String, Table)> {
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let table = orch::text::yaml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        (name, table)
    };
    files("tests/fixtures/rules", "yaml")
        .into_iter()
        .map(read)
        .collect()
}

/// Every unit test by its path, every integration test as `it::...`, every scenario as `flow/...`.
fn all_tests() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (folder, prefix) in [("src", None), ("tests/it", Some("it"))] {
        let sources: Vec<(PathBuf, String)> = files(folder, "rs")
            .into_iter()
            .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
            .collect();
        let renamed = renamed(&sources);
        for (path, text) in &sources {
            let below = path.strip_prefix(home().join(folder)).unwrap();
            let mut modules: Vec<String> = prefix.iter().map(|&p| p.to_owned()).collect();
            match renamed.get(path) {
                Some(name) => modules.extend(name.clone()),
                None => modules.extend(modules_of(below)),
            }
            all.extend(tests_in(text, &modules));
        }
    }
    for path in files("tests/fixtures/flow", "yaml") {
        all.insert(format!("flow/{}", path.file_name().unwrap().display()));
    }
    all
}

/// The modules of a source file: `a/b.rs` and `a/b/mod.rs` are `a`, `b`.
fn modules_of(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let parts = path.iter().map(|part| part.to_str().unwrap().to_owned());
    parts
        .filter(|part| !["mod", "lib", "main"].contains(&part.as_str()))
        .collect()
}

/// The modules whose file has another name than they: `#[path = "x.rs"]`, then `mod y;`.
fn renamed(sources: &[(PathBuf, String)]) -> BTreeMap<PathBuf, Vec<String>> {
    let mut all = BTreeMap::new();
    for (path, text) in sources {
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let file = pair[0].strip_prefix("#[path = \"");
            let module = pair[1].strip_prefix("mod ");
            if let (Some(file), Some(module)) = (file, module) {
                let target = path.with_file_name(file.trim_end_matches("\"]"));
                let Ok(below) = path.strip_prefix(home().join("src")) else {
                    continue;
                };
                let mut modules = modules_of(below);
                modules.push(module.trim_end_matches(';').to_owned());
                all.insert(target, modules);
            }
        }
    }
    all
}

/// The tests of one file; those after `mod tests {` are in that module.
fn tests_in(text: &str, modules: &[String]) -> Vec<String> {
    let mut modules = modules.to_vec();
    let mut marked = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line == "mod tests {" {
            modules.push("tests".to_owned());
        }
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("fn ") {
            let name = rest.split('(').next().unwrap();
            if std::mem::take(&mut marked) {
                found.push(format!("{}::{name}", modules.join("::")));
            }
        }
        marked |= line == "#[test]";
    }
    found
}

#[test]
fn every_rule_is_held_by_tests_that_there_are() {
    let there = all_tests();
    assert!(there.contains("it::rules::every_rule_is_held_by_tests_that_there_are"));
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (table, sections) in tables() {
        assert!(!sections.is_empty(), "{table}");
        for (section, rows) in sections {
            for row in &rows {
                let place = format!("{table}: {section}: {}", row.rule);
                if row.held_by.is_empty() {
                    faults.push(format!("{place}: no test"));
                }
                if row.rule.trim().is_empty() || !seen.insert(place.clone()) {
                    faults.push(format!("{place}: empty, or there twice"));
                }
                for test in &row.held_by {
                    if !there.contains(test) {
                        faults.push(format!("{place}: there is no test {test}"));
                    }
                }
            }
            assert!(!rows.is_empty(), "{table}: {section}");
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
