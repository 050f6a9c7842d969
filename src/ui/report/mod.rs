//! How output looks, to a person and to a program. Nothing is decided here.

mod live;
mod out;
mod table;
mod text;
mod time;

pub use crate::text::clean::{clean, clean_json, clean_line, count};
pub use live::{Live, print_unheld};
pub use out::{Reader, print, print_json, print_line};
pub use table::{Align, Table};
pub use text::{Paint, short_duration, size, status_word};
pub use time::{age, ago, parse_since};

use crate::text::error::Fault;

/// Prints the error that ended a command, and its hint.
pub fn print_fault(fault: &Fault) {
    let paint = Paint::stderr();
    eprintln!("{} {}", paint.bad("error:"), clean(&fault.message));
    if let Some(hint) = &fault.hint {
        eprintln!("{} {}", paint.strong("hint:"), clean(hint));
    }
}
