//! Workflows good and bad, by the sections of the dialect, with the place of every fault.
//!
//! `support` plays the disk and reads just enough of expressions; nothing here touches a file.

#[cfg(test)]
mod adhoc;
mod support;
