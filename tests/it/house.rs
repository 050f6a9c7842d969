//! The house itself: where code may stand, and what it may touch there.
//!
//! Reads `src/` as text. A rule that fails prints every place that breaks it, and for imports the
//! whole graph of modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The rooms, the lowest first. A room imports itself and lower ones.
const ROOMS: &[&str] = &["text", "spec", "run", "disk", "agents", "work", "ui"];
/// The rooms without files, processes, clocks and chance.
const PURE: &[&str] = &["text", "spec", "run"];
/// The longest file that is still read in one go.
const MAX_LINES: usize = 600;

/// A file of `src/`, as a path from there, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn room(&self) -> &str {
        self.path.split('/').next().unwrap()
    }

    /// `room::module`; none for the pages of rooms and for what lies above them.
    fn module(&self) -> Option<String> {
        let (room, rest) = self.path.split_once('/')?;
        let name = rest.split('/').next()?.trim_end_matches(".rs");
        (name != "mod").then(|| format!("{room}::{name}"))
    }

    fn is_test(&self) -> bool {
        self.path.contains("tests")
    }

    /// The code without comments and without the tests at its end.
    fn code(&self) -> String {
        let code = self.text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn sources() -> Vec<Source> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![base.clone()];
    let mut all = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(&base).unwrap().display().to_string();
                let text = fs::read_to_string(&path).unwrap();
                all.push(Source { path: name, text });
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(all.len() > 100, "src/ was not found");
    all
}

/// Who imports whom, by module.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules that a text names after `crate::room::`, braces included.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let Some(room) = ROOMS.iter().find(|room| {
            rest.strip_prefix(**room)
                .is_some_and(|rest| rest.starts_with("::"))
        }) else {
            continue;
        };
        let rest = &rest[room.len() + 2..];
        for name in first_words(rest) {
            found.insert(format!("{room}::{name}"));
        }
    }
    found
}

/// The first word of a path, or of each path in a group of braces.
fn first_words(rest: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
        text.trim_start().chars().take_while(is_word).collect()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![word(rest)];
    };
    let mut words = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                words.push(word(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    words.retain(|word| !word.is_empty() && word != "self");
    words
}

fn graph(sources: &[Source]) -> Graph {
    let modules: BTreeSet<String> = sources.iter().filter_map(Source::module).collect();
    let mut graph = Graph::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let Some(module) = source.module() else {
            continue;
        };
        let mut all = imports(&source.code());
        // A file directly in a room reaches its neighbours by `super` as well.
        if source.path.matches('/').count() == 1 {
            let room = source.room();
            for (at, _) in source.code().match_indices("super::") {
                for name in first_words(&source.code()[at + "super::".len()..]) {
                    all.insert(format!("{room}::{name}"));
                }
            }
        }
        all.retain(|name| modules.contains(name) && *name != module);
        graph.entry(module).or_default().extend(all);
    }
    graph
}

fn shown(graph: &Graph) -> String {
    let mut text = String::from("the graph of modules:\n");
    for (module, all) in graph {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        writeln!(text, "  {module} -> {}", all.join(" ")).unwrap();
    }
    text
}

fn height(module: &str) -> usize {
    let room = module.split("::").next().unwrap();
    ROOMS.iter().position(|name| *name == room).unwrap()
}

/// A way from a module back to itself, if there is one.
fn cycle(graph: &Graph) -> Option<Vec<String>> {
    fn visit(graph: &Graph, at: &str, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(start) = path.iter().position(|name| name == at) {
            path.drain(..start);
            path.push(at.to_owned());
            return true;
        }
        if done.contains(at) {
            return false;
        }
        path.push(at.to_owned());
        for next in graph.get(at).into_iter().flatten() {
            if visit(graph, next, path, done) {
                return true;
            }
        }
        path.pop();
        done.insert(at.to_owned());
        false
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|module| {
        let mut path = Vec::new();
        visit(graph, module, &mut path, &mut done).then_some(path)
    })
}

#[test]
fn a_lower_room_never_imports_a_higher_one() {
    let graph = graph(&sources());
    let mut upwards = Vec::new();
    for (module, all) in &graph {
        for other in all.iter().filter(|other| height(other) > height(module)) {
            upwards.push(format!("{module} imports {other}"));
        }
    }
    assert!(upwards.is_empty(), "{upwards:#?}\n{}", shown(&graph));
}

#[test]
fn no_module_imports_itself_by_way_of_others() {
    let graph = graph(&sources());
    assert!(graph.len() > 30, "{}", shown(&graph));
    if let Some(path) = cycle(&graph) {
        panic!("a cycle: {}\n{}", path.join(" -> "), shown(&graph));
    }
}

#[test]
fn every_file_stands_in_a_room() {
    for source in sources() {
        let top = matches!(source.path.as_str(), "lib.rs" | "main.rs");
        assert!(top || ROOMS.contains(&source.room()), "{}", source.path);
    }
}

/// The files whose code has one of these words, outside of where it may stand.
fn outside(words: &[&str], may: impl Fn(&Source) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources() {
        if source.is_test() || may(&source) {
            continue;
        }
        let code = source.code();
        for word in words.iter().filter(|word| code.contains(**word)) {
            found.push(format!("src/{}: {word}", source.path));
        }
    }
    found
}

#[track_caller]
fn only(words: &[&str], may: impl Fn(&Source) -> bool) {
    let found = outside(words, may);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn pure_rooms_have_no_file_process_clock_or_chance() {
    let words = [
        "std::fs",
        "std::process",
        "std::env",
        "std::net",
        "std::thread::sleep",
        "Instant::now",
        "SystemTime",
        "Timestamp::now",
        "Zoned::now",
        "Uuid::now",
        "Uuid::new",
        "rustix::",
        "libc::",
        "println!",
    ];
    only(&words, |source| !PURE.contains(&source.room()));
}

/// What opens, changes or looks at a file by its path.
const BY_PATH: &[&str] = &[
    "fs::canonicalize(",
    "fs::copy(",
    "fs::create_dir",
    "fs::metadata(",
    "fs::read(",
    "fs::read_dir(",
    "fs::read_link(",
    "fs::read_to_string(",
    "fs::remove_dir",
    "fs::remove_file(",
    "fs::rename(",
    "fs::symlink_metadata(",
    "fs::write(",
    "File::create(",
    "File::open(",
    "OpenOptions::new(",
];

/// Under the root everything goes by handle. What is left for paths: where the root is, the user's own
/// `specs/`, programs, what a policy names, and the kernel's files in `/proc` and `/sys`.
#[test]
fn disk_and_agents_go_by_handle_under_the_root() {
    let by_path = [
        "disk/root.rs",
        "disk/specs/",
        "disk/sys.rs",
        "agents/catalogue",
        "agents/confine/",
        "agents/program.rs",
        "agents/process/cgroup.rs",
        "agents/process/procfs.rs",
        "agents/process/signals.rs",
        "agents/process/spawn.rs",
        "agents/process/tree.rs",
    ];
    only(BY_PATH, |source| {
        let named = by_path.iter().any(|start| source.path.starts_with(start));
        !matches!(source.room(), "disk" | "agents") || named
    });
}

#[test]
fn only_disk_and_agents_open_files_by_path() {
    // A job works where `dirs` of the settings says, `init` and `demo` make a root, `input` reads a file that the user names, the archive is
    // written where the user says, `reset` empties a folder, `doctor` looks at the system.
    let by_path = [
        "work/job.rs",
        "ui/commands/init.rs",
        "ui/commands/demo",
        "ui/commands/input.rs",
        "ui/commands/clean_processed/archive.rs",
        "ui/commands/reset.rs",
        "ui/commands/doctor/",
    ];
    only(BY_PATH, |source| {
        let named = by_path.iter().any(|start| source.path.starts_with(start));
        matches!(source.room(), "disk" | "agents") || named
    });
}

#[test]
fn only_agents_start_processes() {
    let words = ["process::Command", "Command::new("];
    // The demo starts orch itself.
    only(&words, |source| {
        source.room() == "agents" || source.path.starts_with("ui/commands/demo")
    });
}

#[test]
fn only_the_ui_prints() {
    let words = ["println!(", "eprintln!(", "print!(", "eprint!(", "dbg!("];
    only(&words, |source| source.room() == "ui");
}

#[test]
fn each_of_these_stands_behind_one_module() {
    only(&["serde_yaml::"], |source| {
        source.path.starts_with("text/yaml")
    });
    only(&["fs2::"], |source| source.path == "disk/lock.rs");
    only(&["unsafe {", "unsafe fn", "unsafe impl"], |source| {
        source.path == "disk/sys.rs"
    });
}

#[test]
fn every_file_says_what_it_is_for_and_can_be_read_in_one_go() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > MAX_LINES {
            wrong.push(format!("src/{} has {lines} lines", source.path));
        }
        if !source.text.starts_with("//! ") {
            wrong.push(format!("src/{} does not open with `//!`", source.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
