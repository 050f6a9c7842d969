//! The commands on a run that a test has written, each by its words.

use clap::Parser;

use super::run;
use crate::disk::store::tests::{Bed, RUN};
use crate::run::state::RunStatus;
use crate::text::error::{Result, exit};
use crate::ui::cli::Cli;

fn orch(bed: &Bed, words: &[&str]) -> Result<u8> {
    let root = bed.temp.path().display().to_string();
    let all = ["orch", "--root", &root]
        .into_iter()
        .chain(words.iter().copied());
    run(Cli::try_parse_from(all).unwrap())
}

#[test]
fn a_run_is_shown_and_its_state_untouched() {
    let bed = Bed::new();
    let state = bed.three();
    let table: &[&[&str]] = &[
        &["status"],
        &["status", "last", "--json"],
        &["status", "w-0001"],
        &["show", RUN],
        &["show", "last", "--json"],
        &["show", "last/one"],
        &["show", "last/two"],
        &["log", "last"],
        &["log", RUN, "--json", "--failed"],
        &["graph", "last"],
        &["audit", "last"],
        &["audit", "last", "--json"],
    ];
    for words in table {
        assert_eq!(orch(&bed, words), Ok(exit::DONE), "{words:?}");
    }
    assert_eq!(
        orch(&bed, &["show", "last/three"]).unwrap_err().exit_code(),
        exit::FAILED
    );
    assert_eq!(bed.load().unwrap(), state);
}

#[test]
fn a_run_starts_over_with_empty_folders_and_is_cancelled_once() {
    let bed = Bed::new();
    bed.three();
    std::fs::write(bed.file("files/old"), "x").unwrap();
    assert_eq!(orch(&bed, &["reset", "last"]), Ok(exit::DONE));
    let state = bed.load().unwrap();
    assert_eq!(state.pending[0].step, "one");
    assert!(!bed.file("files/old").exists());
    assert_eq!(orch(&bed, &["cancel", RUN]), Ok(exit::DONE));
    assert_eq!(bed.load().unwrap().status, RunStatus::Cancelled);
    for words in [["cancel", "last"], ["resume", "last"]] {
        assert_eq!(
            orch(&bed, &words).unwrap_err().exit_code(),
            exit::USAGE,
            "{words:?}"
        );
    }
}
