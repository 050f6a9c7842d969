//! The command line, the commands and the reports. The only room that prints.
//!
//! A command reads its arguments, calls the rooms below, and prints. No decision about tasks or runs is
//! made here.

pub mod cli;
pub mod commands;
pub mod report;
