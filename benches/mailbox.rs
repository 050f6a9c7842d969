//! Benchmarks of the mailbox.

fn main() {}
