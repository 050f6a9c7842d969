//! Steps prepared and their results read, each in a root of its own.

mod bed;
mod globs;
mod plans;
mod prompts;
mod results;
