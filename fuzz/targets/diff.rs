//! `diff`: see `tests/it/readers/diff.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::diff::holds(bytes));
