//! What the README shows is run here, in its order, in an empty folder; what it lists is compared
//! with the program.

use std::fs;
use std::os::unix::fs::symlink;

use orch::text::error::exit;

use crate::harness::{orch, program};

const README: &str = include_str!("../../README.md");

/// The lines behind `$ ` in the blocks marked `console`.
fn commands() -> Vec<&'static str> {
    let mut shown = false;
    let mut found = Vec::new();
    for line in README.lines() {
        if line.starts_with("```") {
            shown = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| shown) {
            found.push(command);
        }
    }
    found
}

#[test]
fn every_command_in_the_readme_works() {
    let temp = tempfile::tempdir().unwrap();
    let (bin, home) = (temp.path().join("bin"), temp.path().join("home"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&home).unwrap();
    symlink(orch(), bin.join("orch")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let all = commands();
    assert!(all.len() > 15, "{all:?}");
    for command in all {
        // This is what runs these tests, and what they run is what it would build.
        let line = match command.split('#').next().unwrap().trim() {
            "cargo test" => continue,
            "cargo run --release -- demo" => "orch demo",
            other => other,
        };
        program("sh")
            .args(["-c", line])
            .current_dir(&home)
            .env("PATH", &path)
            .run()
            .about(command)
            .noisy()
            .expect(0);
    }
}

#[test]
fn every_picture_in_the_readme_is_the_programs() {
    let temp = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let orch = program(orch()).args(words).current_dir(temp.path());
        orch.run().expect(0).stdout
    };
    run(&["init", "--provider", "echo"]);
    let pages = README.split("\n## The shipped workflows\n").nth(1).unwrap();
    let pages = pages.split("\n## ").next().unwrap();
    let mut names = Vec::new();
    for page in pages.split("\n### ").skip(1) {
        let (name, page) = page.split_once('\n').unwrap();
        let picture = page.split("```mermaid\n").nth(1).expect(name);
        let picture = picture.split("```").next().unwrap();
        assert_eq!(picture, run(&["graph", name]), "{name}");
        names.push(name);
    }
    assert!(names.is_sorted() && !names.is_empty(), "{names:?}");
}

#[test]
fn the_exit_codes_in_the_readme_are_the_programs() {
    let rows: Vec<(u8, &str)> = README
        .lines()
        .skip_while(|line| *line != "| code | meaning |")
        .skip(2)
        .map_while(|line| {
            line.strip_prefix("| ")?
                .strip_suffix(" |")?
                .split_once(" | ")
        })
        .map(|(code, meaning)| (code.parse().unwrap(), meaning))
        .collect();
    assert_eq!(rows, exit::TABLE);
}

#[test]
fn every_command_is_in_the_readme_and_has_help() {
    let help = program(orch()).args(["--help"]).run().expect(0).stdout;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 12, "{help}");
    for command in commands {
        assert!(
            README.contains(&format!("orch {command}")) || command == "demo",
            "{command}"
        );
        program(orch()).args([command, "--help"]).run().expect(0);
    }
}
