//! What a build is given: a specification that fits, and a number of retries within its bounds.

use super::*;

const YAML: &str = "name: word\ndescription: a good word\ntest: [grep, -qx, good, code.txt]\n";

fn given(text: &str) -> (Stage, Ran) {
    let stage = Stage::new();
    stage.answers("generate", GOOD);
    std::fs::write(stage.bed.outside.join("spec.json"), text).unwrap();
    let ran = stage.build(&[]);
    (stage, ran)
}

#[test]
fn a_specification_is_yaml_or_json() {
    for text in [
        YAML,
        r#"{"name": "word", "description": "a good word", "test": ["grep", "-qx", "good", "code.txt"]}"#,
    ] {
        let (_, ran) = given(text);
        ran.about(text).expect(0);
    }
}

#[test]
fn a_specification_that_does_not_fit_is_refused_with_its_place() {
    let yaml = |more: &str| format!("{YAML}{more}");
    let cases = [
        (yaml("colour: red\n"), "colour"),
        (yaml("timeout_sec: soon\n"), "/timeout_sec"),
        (yaml("timeout_sec: 0\n"), "/timeout_sec"),
        (yaml("max_retries: 3\n"), "max_retries"),
        ("name: word\ndescription: x\n".to_owned(), "test"),
        (
            "name: w\ndescription: x\ntest: make test\n".to_owned(),
            "/test",
        ),
        ("name: w\ndescription: x\ntest: []\n".to_owned(), "/test"),
        (
            "name: w\ndescription: x\ntest: [make, {}]\n".to_owned(),
            "/test/1",
        ),
        ("name: [w\n".to_owned(), "spec.json:"),
        ("just a text".to_owned(), "object"),
        (String::new(), "input"),
    ];
    for (text, part) in cases {
        let (stage, ran) = given(&text);
        ran.about(&text).says(part).expect(65);
        assert_eq!(stage.bed.ls("workspace").len(), 0, "{text}: nothing began");
        assert!(stage.calls().is_empty(), "{text}");
    }
}

#[test]
fn a_build_without_a_specification_is_bad_usage() {
    let stage = Stage::new();
    let ran = stage.orch(&["run", "build", "a good word"]).fails(64);
    assert!(ran.stderr.contains("needs an input"), "{ran:?}");
    let ran = stage
        .orch(&["run", "build", "--spec", "nowhere.yaml"])
        .fails_somehow();
    assert!(ran.stderr.contains("nowhere.yaml"), "{ran:?}");
}

/// The whole way to the ceiling is gone in `chance`.
#[test]
fn retries_are_clamped_and_that_is_told() {
    for (asked, taken) in [("0", 1), ("-3", 1), ("51", 50), ("99", 50)] {
        let stage = Stage::new();
        stage
            .checked()
            .answers("generate", BAD)
            .answers("patch", GOOD);
        let ran = stage
            .build(&["--max-retries", asked])
            .says("warning: ")
            .expect(0);
        let told = format!("warning: `context.max_retries` is {asked}; {taken} is taken instead");
        assert!(ran.stderr.contains(&told), "{ran:#?}");
        assert_eq!(stage.state()["state"]["max_retries"], taken);
    }
    for asked in ["1", "50"] {
        let stage = Stage::new();
        stage.checked().answers("generate", GOOD);
        let ran = stage.build(&["--max-retries", asked]).expect(0);
        assert!(!ran.stderr.contains("warning"), "{ran:#?}");
    }
}

#[test]
fn five_retries_are_usual() {
    let stage = Stage::new();
    stage.checked().answers("generate", GOOD);
    stage.build(&[]).expect(0);
    assert_eq!(stage.state()["state"]["max_retries"], 5);
}

#[test]
fn a_build_that_is_dropped_as_a_file_is_told_the_same() {
    let stage = Stage::new();
    stage.answers("generate", GOOD);
    let task = "---\nworkflow: build\ncontext: {max_retries: 99}\ninput: {name: w, description: d, test: [grep, -qx, good, code.txt]}\n---\n";
    stage.bed.drop_task("build", "x", task);
    let ran = stage.bed.drain().speaks().expect(0);
    assert!(
        ran.stderr
            .contains("`context.max_retries` is 99; 50 is taken instead"),
        "{ran:#?}"
    );
    assert_eq!(stage.state()["status"], "succeeded");
}
