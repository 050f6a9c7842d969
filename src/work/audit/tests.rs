//! A sound run has no findings; one changed byte, wherever it is, has its place named.

use serde_json::json;

use super::*;
use crate::disk::store::STATE_FILE;
use crate::disk::store::tests::{Bed, result};
use crate::run::record::FileEntry;
use crate::run::state::RunState;

/// A finished run with an artifact and issues.
fn finished() -> (Bed, RunState) {
    let bed = Bed::new();
    std::fs::create_dir_all(bed.temp.path().join("artifacts/shell")).unwrap();
    std::fs::write(bed.temp.path().join("artifacts/shell/a.out"), "done").unwrap();
    let state = bed.enter(bed.three());
    let mut two = result("two");
    two.json_data = Some(
        json!({"review": {"issues": [{"severity": "BLOCKER", "text": "bad\u{1b}[2J"}]}, "fixes": ["none"]}),
    );
    two.artifacts = vec![FileEntry {
        path: "artifacts/shell/a.out".to_owned(),
        bytes: 4,
        sha256: crate::disk::store::sha256(b"done"),
    }];
    let state = bed.finish(state, two);
    (bed, state)
}

fn places(bed: &Bed) -> Vec<String> {
    let found = audit(&bed.run, &bed.workflow).unwrap().findings;
    found.into_iter().map(|finding| finding.place).collect()
}

#[test]
fn a_sound_run_answers_the_questions() {
    let (bed, _) = finished();
    let audit = audit(&bed.run, &bed.workflow).unwrap();
    assert!(audit.is_sound(), "{}", audit.render());
    assert_eq!(audit.events, 5);
    assert_eq!(audit.issues[0].issue["severity"], "BLOCKER");
    assert_eq!(audit.fixes[0].fix, "none");
    let steps: Vec<_> = audit
        .transitions
        .iter()
        .map(|t| (t.step.as_str(), t.next.as_str()))
        .collect();
    assert_eq!(steps, [("one", "two"), ("two", "_end")]);
    let text = audit.render();
    assert!(text.contains("sound (succeeded, 5 events"), "{text}");
    assert!(
        text.contains("BLOCKER") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn a_changed_byte_anywhere_is_found_and_named() {
    let (bed, _) = finished();
    let root = bed.temp.path().to_path_buf();
    let files = [
        (bed.log(), "logs/"),
        (bed.file(STATE_FILE), STATE_FILE),
        (bed.file("spec/specs/w.yaml"), "spec/specs/w.yaml"),
        (bed.file("spec/specs/prompts/deep/p.md"), "deep/p.md"),
        (bed.file("spec/MANIFEST.json"), "spec/"),
        (root.join("artifacts/shell/a.out"), "artifacts/shell/a.out"),
    ];
    for (path, name) in files {
        let whole = std::fs::read(&path).unwrap();
        let stride = (whole.len() / 150).max(1);
        for at in (0..whole.len()).step_by(stride).chain([whole.len() - 1]) {
            for change in [1, 0x20] {
                let mut changed = whole.clone();
                changed[at] ^= change;
                std::fs::write(&path, &changed).unwrap();
                // A state whose version grew is refused instead.
                let found = match audit(&bed.run, &bed.workflow) {
                    Ok(audit) => audit.findings,
                    Err(fault) => {
                        assert_eq!(fault.kind, Kind::NewerVersion, "{name} {at}: {fault}");
                        continue;
                    }
                };
                let named = found.iter().any(|finding| finding.place.contains(name));
                assert!(named, "{name} byte {at}: {found:?}");
            }
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(places(&bed).is_empty());
}

#[test]
fn what_is_missing_or_cut_is_found() {
    let (bed, _) = finished();
    let log = std::fs::read_to_string(bed.log()).unwrap();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    for gone in 0..5 {
        let rest: String = (0..5)
            .filter(|line| *line != gone)
            .map(|line| lines[line])
            .collect();
        std::fs::write(bed.log(), rest).unwrap();
        assert!(!places(&bed).is_empty(), "{gone}");
    }
    std::fs::write(bed.log(), format!("{log}{{\"seq\"")).unwrap();
    assert!(places(&bed).iter().any(|place| place.ends_with("line 6")));
    assert!(
        std::fs::read_to_string(bed.log())
            .unwrap()
            .ends_with("{\"seq\"")
    );
    std::fs::write(bed.log(), &log).unwrap();
    std::fs::remove_file(bed.temp.path().join("artifacts/shell/a.out")).unwrap();
    std::fs::remove_file(bed.file("spec/specs/w.yaml")).unwrap();
    std::fs::remove_file(bed.file("lock")).unwrap();
    std::fs::write(bed.file("snapshots/x.json"), "{}").unwrap();
    let places = places(&bed);
    for part in ["a.out", "w.yaml", "lock", "snapshots/x.json"] {
        assert!(
            places.iter().any(|place| place.contains(part)),
            "{part}: {places:?}"
        );
    }
    std::fs::remove_file(bed.log()).unwrap();
    assert!(!audit(&bed.run, &bed.workflow).unwrap().is_sound());
}

#[test]
fn every_field_that_differs_is_named() {
    let (bed, state) = finished();
    let mut document = serde_json::to_value(&state).unwrap();
    document["visits"]["one"] = json!(7);
    document["step_results"]["two"]["output"] = json!("other");
    document["extra"] = json!(1);
    document.as_object_mut().unwrap().remove("tasks");
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    std::fs::write(bed.file(STATE_FILE), text).unwrap();
    let places = places(&bed);
    for part in [
        " visits.one",
        " step_results.two.output",
        " extra",
        " tasks",
    ] {
        assert!(
            places.iter().any(|place| place.ends_with(part)),
            "{part}: {places:?}"
        );
    }
}

#[test]
fn a_snapshot_is_held_against_its_hash() {
    let (bed, mut state) = finished();
    std::fs::write(bed.file("snapshots/decision.json"), "{\"a\":1}").unwrap();
    let sha256 = crate::disk::store::sha256(b"{\"a\":1}");
    state.snapshots.insert(
        "decision".to_owned(),
        json!({"status": "LOCKED", "sha256": sha256, "locked_at": "t", "step": "one"}),
    );
    let mut audit = audit(&bed.run, &bed.workflow).unwrap();
    audit.findings.clear();
    verify::snapshots(&bed.run, &state, &mut audit);
    audit.decisions = decisions(&bed.run, &state);
    assert!(audit.is_sound(), "{}", audit.render());
    assert_eq!(audit.decisions[0].content, Some(json!({"a": 1})));
    std::fs::write(bed.file("snapshots/decision.json"), "{\"a\":2}").unwrap();
    verify::snapshots(&bed.run, &state, &mut audit);
    assert!(audit.findings[0].place.ends_with("snapshots/decision.json"));
}
