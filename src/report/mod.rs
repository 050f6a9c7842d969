//! Speaking: how things look to a person or to a program that reads them. Decides nothing.

mod live;
mod text;

pub use live::Live;
pub use text::{Paint, clean, clean_line, count, short_duration};

use crate::error::Fault;

/// Prints what ended a command: one line of what and where, then what to do about it.
pub fn print_fault(fault: &Fault) {
    let paint = Paint::stderr();
    eprintln!("{} {}", paint.bad("error:"), clean(&fault.message));
    if let Some(hint) = &fault.hint {
        eprintln!("{} {}", paint.strong("hint:"), clean(hint));
    }
}
