//! Checks printed paths: whether they stay inside their folder and name a file.

/// Why a printed path is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadPath {
    /// It leads out of the folder, and how.
    Leads(&'static str),
    /// It names no file.
    NoFile,
    /// One of its parts is this many bytes long, longer than a file name can be.
    TooLong(usize),
}

/// The path, normalised: names separated by single slashes, none of them `..`.
///
/// # Errors
/// Why the path is refused.
pub fn inside(path: &str) -> Result<String, BadPath> {
    if path.starts_with('/') {
        return Err(BadPath::Leads("is absolute"));
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err(BadPath::Leads("leads upwards by `..`"));
    }
    if path.contains('\0') {
        return Err(BadPath::Leads("contains a NUL byte"));
    }
    let names = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = names.collect();
    if parts.is_empty() || path.ends_with('/') {
        return Err(BadPath::NoFile);
    }
    match parts.iter().find(|part| part.len() > 255) {
        Some(long) => Err(BadPath::TooLong(long.len())),
        None => Ok(parts.join("/")),
    }
}
