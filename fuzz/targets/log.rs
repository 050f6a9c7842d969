//! `log`: see `tests/it/readers/log.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::log::holds(bytes));
