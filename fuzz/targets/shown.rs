//! `shown`: see `tests/it/readers/shown.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::shown::holds(bytes));
