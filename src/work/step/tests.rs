//! Steps prepared and their results read, each in a root of its own.

mod bed;
mod plans;
mod prompts;
mod results;
