//! Printed paths: what leads out of the folder that they are meant for, and what names no file.

/// Why a printed path is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stray {
    /// It leads elsewhere, and how.
    Leads(&'static str),
    /// It names no file.
    NoFile,
    /// One of its parts has so many bytes, more than a file's name can have.
    TooLong(usize),
}

/// The path in the one way to write it: names with single slashes between them, none of which leads
/// upwards.
///
/// # Errors
/// Why it is not taken.
pub fn inside(path: &str) -> Result<String, Stray> {
    if path.starts_with('/') {
        return Err(Stray::Leads("is absolute"));
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err(Stray::Leads("leads upwards by `..`"));
    }
    if path.contains('\0') {
        return Err(Stray::Leads("holds a NUL byte"));
    }
    let names = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = names.collect();
    if parts.is_empty() || path.ends_with('/') {
        return Err(Stray::NoFile);
    }
    match parts.iter().find(|part| part.len() > 255) {
        Some(long) => Err(Stray::TooLong(long.len())),
        None => Ok(parts.join("/")),
    }
}
