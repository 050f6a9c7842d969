//! What the pages are: short where they must be, linked, with the program's own pictures and
//! commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread;

use regex::Regex;

use super::reference::{anchor, table};
use super::{Home, all_pages, page};
use crate::harness::{Bed, Ran, orch, program, shell};

/// What a page is there for is said in its first sentence.
#[test]
fn a_page_begins_with_what_it_helps_with() {
    for path in all_pages().iter().filter(|path| path.starts_with("docs/")) {
        let text = page(path);
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("# "), "{path}");
        assert_eq!(lines.next(), Some(""), "{path}");
        assert!(
            lines.next().unwrap().starts_with("This page helps you "),
            "{path}"
        );
    }
    assert!(page("README.md").lines().count() <= 200);
}

/// The anchors of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let headings = text.lines().filter(|line| {
        in_block ^= line.starts_with("```");
        line.starts_with('#') && !in_block
    });
    headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn every_link_leads_somewhere_and_every_page_can_be_reached() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let pages: BTreeMap<String, String> = all_pages()
        .into_iter()
        .map(|path| (path.clone(), page(&path)))
        .collect();
    let mut reached = BTreeSet::new();
    for (path, text) in &pages {
        for found in link.captures_iter(text) {
            let target = &found[1];
            if target.starts_with("https://") {
                continue;
            }
            let (file, at) = target.split_once('#').unwrap_or((target, ""));
            let file = match (file, path.as_str()) {
                ("", path) => path.to_owned(),
                (file, "README.md") => file.to_owned(),
                (file, _) => format!("docs/{file}"),
            };
            let text = pages
                .get(&file)
                .unwrap_or_else(|| panic!("{path} links to `{target}`"));
            assert!(
                at.is_empty() || anchors(text).contains(at),
                "{path} links to `{target}`"
            );
            if path == "README.md" {
                reached.insert(file);
            }
        }
    }
    let docs: BTreeSet<String> = pages
        .into_keys()
        .filter(|path| path != "README.md")
        .collect();
    assert_eq!(reached, docs, "what the README links to");
}

#[test]
fn every_picture_is_the_programs() {
    let text = page("docs/shipped-workflows.md");
    let mut home = Home::new();
    assert_eq!(home.run("orch init --provider echo").0, 0);
    let mut shown = Vec::new();
    for section in text.split("\n## ").skip(1) {
        let (name, section) = section.split_once('\n').unwrap();
        let picture = section.split("```mermaid\n").nth(1).expect(name);
        let picture = picture.split("```").next().unwrap();
        assert_eq!(picture, home.run(&format!("orch graph {name}")).1, "{name}");
        shown.push(name.to_owned());
    }
    let shipped = orch::spec::shipped::WORKFLOWS.iter();
    let shipped: Vec<_> = shipped
        .map(|(file, _)| file.trim_end_matches(".yaml"))
        .collect();
    assert_eq!(shown, shipped);
    let table = table(&page("README.md"), "The five workflows", 0);
    let mut listed: Vec<&str> = table.iter().map(|row| row[0].trim_matches('`')).collect();
    listed.sort_unstable();
    assert_eq!(listed, shipped);
}

#[test]
fn every_command_is_in_the_reference_and_has_help() {
    let help = program(orch()).args(["--help"]).run().expect(0).stdout;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    let rows = table(&page("docs/reference.md"), "Commands", 0);
    let listed: Vec<&str> = rows
        .iter()
        .map(|row| row[0].trim_matches('`').split_whitespace().nth(1).unwrap())
        .collect();
    assert_eq!(listed, commands);
    for command in commands {
        let help = program(orch()).args([command, "--help"]).run().expect(0);
        assert!(help.stdout.contains(&format!("orch {command}")));
    }
}

/// `orch guide` with these words, outside of any root.
fn guide(words: &[&str]) -> Ran {
    Bed::new()
        .orch(["guide"].iter().chain(words))
        .current_dir(Path::new("/"))
        .run()
        .noisy()
}

#[test]
fn the_guide_lists_every_page_and_prints_it_as_it_is() {
    let list = guide(&[]).expect(0).stdout;
    let topics: Vec<&str> = list
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_once("  ").unwrap().0)
        .collect();
    let in_readme = table(&page("README.md"), "Where to go next", 0);
    let link = Regex::new(r"\(docs/(.*)\.md\)").unwrap();
    let in_readme: Vec<String> = in_readme
        .iter()
        .map(|row| link.captures(&row[0]).unwrap()[1].to_owned())
        .collect();
    assert_eq!(topics, in_readme, "the same order as in the README");
    for topic in topics {
        let text = page(&format!("docs/{topic}.md"));
        assert_eq!(guide(&[topic]).expect(0).stdout, text, "{topic}");
        let purpose = list.lines().find(|line| line.starts_with(topic)).unwrap();
        let purpose = purpose.split_once("  ").unwrap().1.trim();
        let one_line = text.replace('\n', " ");
        assert!(
            one_line.contains(&format!("This page helps you {purpose}.")),
            "{topic}"
        );
    }
}

#[test]
fn the_guide_knows_parts_of_topics_and_suggests_the_nearest() {
    let secrets = page("docs/secrets.md");
    for word in ["secrets", "secrets.md", "secr"] {
        assert_eq!(guide(&[word]).expect(0).stdout, secrets, "{word}");
    }
    let ran = guide(&["secert"]).expect(64);
    assert_eq!(
        ran.stderr,
        "error: there is no page `secert`\nhint: did you mean `secrets`?\n"
    );
    // A part of several is none of them.
    assert!(
        guide(&["workflows"])
            .expect(0)
            .stdout
            .starts_with("# Workflows\n")
    );
    assert!(guide(&["s"]).expect(64).stderr.contains("hint: "));
}

/// What `orch guide TOPIC` writes to a terminal.
fn on_terminal(topic: &str, variable: (&str, &str)) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        // The end of a terminal that nobody writes to any more is an error.
        let _ = File::from(ours).read_to_end(&mut text);
        String::from_utf8(text).unwrap().replace('\r', "")
    });
    let script = format!(
        "exec {} guide {topic} > {}",
        orch().display(),
        name.to_str().unwrap()
    );
    let mut guide = shell(&script).env("TERM", "xterm");
    guide.command().env_remove("NO_COLOR");
    guide.env(variable.0, variable.1).run().expect(0);
    reader.join().unwrap()
}

#[test]
fn the_guide_has_bold_headings_in_a_terminal_but_not_with_no_color() {
    let text = page("docs/secrets.md");
    let shown = on_terminal("secrets", ("X", ""));
    assert!(shown.starts_with("\x1b[1mSecrets\x1b[0m\n"), "{shown:?}");
    assert!(
        shown.contains("\n\x1b[1mWhat is masked\x1b[0m\n"),
        "{shown:?}"
    );
    assert!(
        shown.contains("\n$ orch run publish"),
        "commands stay as they are"
    );
    assert_eq!(on_terminal("secrets", ("NO_COLOR", "1")), text);
}
