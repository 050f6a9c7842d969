//! Workflows good and bad, by the sections of the dialect, with the place of every fault.
//!
//! `support` plays the disk and reads just enough of expressions; nothing here touches a file.

mod bounds;
mod drawn;
mod flow;
mod head;
mod hostile;
pub(crate) mod support;
mod variables;
mod work;
