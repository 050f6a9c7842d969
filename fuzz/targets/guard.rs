//! `guard`: see `tests/it/readers/guard.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::guard::holds(bytes));
