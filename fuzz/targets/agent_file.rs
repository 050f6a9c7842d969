//! `agent_file`: see `tests/it/readers/agent_file.rs` for what is promised.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orch_fuzz::promises::agent_file::holds(bytes));
