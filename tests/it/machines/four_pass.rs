//! `specs/four-pass.yaml`: every rule of it as a case.

mod chance;

use super::Stage;

#[test]
fn it_can_be_started_and_shows_its_first_step() {
    let stage = Stage::new();
    let ran = stage.orch(&["check", "four-pass"]).expect(0);
    assert!(ran.stdout.contains(": fine, "), "{ran:?}");
    assert!(stage.calls().is_empty());
}
