//! The README and the pages in `docs/`: what they show is run here, page by page, in their order.
//!
//! - A line behind `$ ` in a block marked `console` is a command. It must succeed, or end with the
//!   code in its comment `# exit code N`. `cd` holds for the lines after it.
//! - What stands below a command is what it prints. Times, run ids and hashes may differ, and a line
//!   `...` stands for any lines.
//! - A block with a path behind its language, such as `yaml specs/mend.yaml`, is written to that file.
//!
//! A page without `orch init` starts in a root that was made with `--provider echo`. `reference` has
//! the tests of what pages list.

mod json;
mod pages;
mod reference;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::harness::{names, orch, program, write_executable};

/// A program that behaves like `claude -p` and does nothing.
const CLAUDE: &str = r#"#!/bin/sh
cat > /dev/null
echo '{"type":"result","subtype":"success","is_error":false,"result":"All done.","session_id":"5f1c","total_cost_usd":0.0421,"usage":{"input_tokens":1200,"output_tokens":310},"permission_denials":[]}'
"#;

/// The repository that these tests were built from.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a page, by its path in the repository.
fn page(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every page: the README, and what is in `docs/`.
fn all_pages() -> Vec<String> {
    let docs = names(&repository().join("docs"));
    let docs = docs.iter().map(|name| format!("docs/{name}"));
    std::iter::once("README.md".to_owned())
        .chain(docs)
        .collect()
}

/// Something that a page shows.
#[derive(Debug)]
enum Shown {
    Command {
        line: String,
        code: i32,
        prints: Vec<String>,
    },
    File {
        path: String,
        text: String,
    },
}

/// What a page shows, in its order.
fn shown(text: &str) -> Vec<Shown> {
    let mut all = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(mark) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match mark.split_once(' ') {
            Some((_, path)) => all.push(Shown::File {
                path: path.to_owned(),
                text: block.join("\n") + "\n",
            }),
            None if mark == "console" => all.extend(commands(&block)),
            None => {}
        }
    }
    all
}

fn commands(block: &[&str]) -> Vec<Shown> {
    static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"  +# (.*)$").unwrap());
    static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"exit code (\d+)").unwrap());
    let mut all = Vec::new();
    for text in block {
        match (text.strip_prefix("$ "), all.last_mut()) {
            (Some(line), _) => {
                let comment = COMMENT
                    .captures(line)
                    .map_or("", |found| found.get(1).unwrap().as_str());
                let code = CODE
                    .captures(comment)
                    .map_or(0, |found| found[1].parse().unwrap());
                all.push(Shown::Command {
                    line: COMMENT.replace(line, "").into_owned(),
                    code,
                    prints: Vec::new(),
                });
            }
            (None, Some(Shown::Command { prints, .. })) => prints.push((*text).to_owned()),
            (None, _) => panic!("a block begins with output: {text}"),
        }
    }
    all
}

/// A home folder with `orch` and the other programs that pages name.
struct Home {
    temp: tempfile::TempDir,
    folder: PathBuf,
}

impl Home {
    fn new() -> Home {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        for folder in ["bin", "home/src/app", "home/work"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        symlink(orch(), base.join("bin/orch")).unwrap();
        for (name, text) in [("claude", CLAUDE), ("git", "#!/bin/sh\nexit 0\n")] {
            write_executable(&base.join("bin").join(name), text);
        }
        let folder = base.join("home/work");
        Home { temp, folder }
    }

    fn base(&self) -> PathBuf {
        self.temp.path().canonicalize().unwrap()
    }

    /// Runs a line as a person would type it, and goes where it leads.
    fn run(&mut self, line: &str) -> (i32, String) {
        let base = self.base();
        let path = std::env::var("PATH").unwrap();
        let script = format!(
            "exec 2>&1\n{line}\ncode=$?\npwd > {}/cwd\nexit $code",
            base.display()
        );
        let ran = program("sh")
            .args(["-c", &script])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", base.join("bin").display()))
            .env("HOME", base.join("home"))
            .env("USER", "ana")
            .run()
            .any_code();
        if let Ok(folder) = fs::read_to_string(base.join("cwd")) {
            self.folder = folder.trim_end().into();
        }
        (ran.code(), ran.stdout)
    }

    /// The same in all runs: paths, times, ids and hashes have one form.
    fn steady(&self, text: &str) -> String {
        static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
            [
                (r"\d{8}T\d{6}Z-([a-z0-9-]+)-[0-9a-f]{4}", "RUN-$1"),
                (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
                (r"\d{8}T\d{6}\.\d+Z-[0-9a-f]+", "NAME"),
                (r"\b[0-9a-f]{64}\b", "HASH"),
                (r"\b\d+(\.\d+)?(ms|s)\b", "DURATION"),
                (r"\b\d+\.\d+ s\b", "DURATION"),
                (r"pid \d+", "pid N"),
                (r" +", " "),
            ]
            .map(|(rule, with)| (Regex::new(rule).unwrap(), with))
            .into()
        });
        let home = self.base().join("home").display().to_string();
        let text = text.replace(&home, "/home/ana");
        RULES.iter().fold(text, |text, (rule, with)| {
            rule.replace_all(&text, *with).into_owned()
        })
    }

    fn play(&mut self, shown: &Shown) {
        match shown {
            Shown::File { path, text } => {
                let file = self.folder.join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Shown::Command { line, code, prints } => {
                let line = match line.trim() {
                    // This is what runs these tests, and what they run is what it would build.
                    "cargo test" => return,
                    "cargo run --release -- demo" => "orch demo",
                    line => line,
                };
                let (ended, said) = self.run(line);
                assert_eq!(ended, *code, "$ {line}\n{said}");
                let printed: Vec<String> = self.steady(&said).lines().map(str::to_owned).collect();
                let wanted: Vec<String> = prints.iter().map(|text| self.steady(text)).collect();
                let fits = prints.is_empty() || matches(&wanted, &printed);
                assert!(
                    fits,
                    "$ {line}\nis to print\n{}\nand prints\n{said}",
                    prints.join("\n")
                );
            }
        }
    }
}

/// Whether these lines are those; `...` stands for any number of them.
fn matches(wanted: &[String], printed: &[String]) -> bool {
    match (wanted.split_first(), printed.split_first()) {
        (Some((dots, rest)), _) if dots == "..." => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        (Some((line, rest)), Some((first, others))) => {
            line.trim_end() == first.trim_end() && matches(rest, others)
        }
        (None, None) => true,
        _ => false,
    }
}

/// Plays a page from its beginning to its end.
fn play(path: &str) {
    let all = shown(&page(path));
    let is_init = |shown: &Shown| matches!(shown, Shown::Command { line, .. } if line.starts_with("orch init"));
    let mut home = Home::new();
    if !all.iter().any(is_init) {
        let (code, said) = home.run("orch init --provider echo");
        assert_eq!(code, 0, "{said}");
    }
    for shown in &all {
        home.play(shown);
    }
    if home.folder.join("specs/orch.yaml").exists() {
        let (code, said) = home.run("orch check");
        assert_eq!(
            code, 0,
            "{path}: a workflow that it shows is not valid\n{said}"
        );
    }
}

#[test]
fn a_page_is_played_as_it_is_written() {
    let text = "a\n```console\n$ cd /tmp      # there\n$ false  # exit code 1\n$ echo 'x  y'; date\nx y\n...\n```\n```yaml a/b.yaml\nk: v\n```\n";
    let mut home = Home::new();
    let all = shown(text);
    assert_eq!(all.len(), 4, "{all:?}");
    all[..3].iter().for_each(|shown| home.play(shown));
    assert_eq!(home.folder, Path::new("/tmp"));
    home.folder = home.base();
    home.play(&all[3]);
    assert_eq!(
        fs::read_to_string(home.base().join("a/b.yaml")).unwrap(),
        "k: v\n"
    );
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (wanted, printed, fits) in [
        ("a\n...\nd", "a\nb\nc\nd", true),
        ("a\n...", "a", true),
        ("a", "a\nb", false),
        ("a\nb", "a", false),
        ("...\nb", "a\nc", false),
    ] {
        assert_eq!(matches(&lines(wanted), &lines(printed)), fits, "{wanted:?}");
    }
}

/// A test for each page, so that they run side by side and a failure has the page's name.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        $(#[test] fn $name() { play($path); })*

        #[test]
        fn every_page_is_played() {
            let played: BTreeSet<&str> = [$($path),*].into();
            let there = all_pages();
            assert_eq!(played, there.iter().map(String::as_str).collect::<BTreeSet<_>>());
        }
    };
}

pages! {
    readme: "README.md",
    confinement: "docs/confinement.md",
    first_steps: "docs/first-steps.md",
    internals: "docs/internals.md",
    operations: "docs/operations.md",
    people_and_approvals: "docs/people-and-approvals.md",
    providers: "docs/providers.md",
    reference_page: "docs/reference.md",
    scripts_and_ci: "docs/scripts-and-ci.md",
    secrets: "docs/secrets.md",
    shipped_workflows: "docs/shipped-workflows.md",
    tasks_and_agents: "docs/tasks-and-agents.md",
    workflows: "docs/workflows.md",
}
