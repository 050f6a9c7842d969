//! The words: command line, commands and reports. The only room that prints.
//!
//! A command parses its words, asks the rooms below, and prints. No decision about tasks or runs is made here.

pub mod cli;
pub mod commands;
pub mod report;
