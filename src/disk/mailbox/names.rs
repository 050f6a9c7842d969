//! Parses the names of a task's files in `artifacts/` and `processed/`.
//!
//! A file that is not recognised here is not orch's, and is neither counted nor removed.

use super::finish::RESULTS;
use super::{FAILED, TASK};
use crate::spec::task::TaskName;

/// The suffixes of a task's results in `artifacts/`, the record last.
pub const RESULT_SUFFIXES: &[&str] = &RESULTS;
/// The suffixes of a retired task in `processed/`.
pub const RETIRED_SUFFIXES: &[&str] = &[TASK, FAILED];

/// The parts of a file name: `NAME.suffix` or `NAME~K.suffix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The task's name.
    pub name: &'a str,
    /// `K`, for an earlier attempt or an earlier task of the same name.
    pub earlier: Option<u32>,
    /// Its suffix.
    pub suffix: &'static str,
}

impl<'a> Part<'a> {
    /// Splits a file name; `None` if orch does not write such names.
    #[must_use]
    pub fn of(file: &'a str, suffixes: &[&'static str]) -> Option<Part<'a>> {
        let (stem, suffix) = suffixes
            .iter()
            .find_map(|suffix| Some((file.strip_suffix(suffix)?, *suffix)))?;
        let (name, earlier) = match stem.rsplit_once('~') {
            Some((name, number)) => (name, Some(number_of(number)?)),
            None => (stem, None),
        };
        TaskName::check(name).ok()?;
        Some(Part {
            name,
            earlier,
            suffix,
        })
    }
}

/// A number as orch writes it: from 1, without leading zeros.
fn number_of(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number > 0 && text.starts_with(|c: char| matches!(c, '1'..='9'))).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_orch_writes_are_recognised() {
        let results = |file| Part::of(file, RESULT_SUFFIXES).map(|p| (p.name, p.earlier, p.suffix));
        assert_eq!(results("x.out"), Some(("x", None, ".out")));
        assert_eq!(results("x.y.json"), Some(("x.y", None, ".json")));
        assert_eq!(results("x~12.err"), Some(("x", Some(12), ".err")));
        for other in [
            ".out",
            ".x.json",
            "x",
            "x.txt",
            "x~.out",
            "x~0.out",
            "x~01.out",
            "x~+1.out",
            "x~a.out",
            "x~1~2.out",
            "~1.out",
            "a b.out",
            "x~1.json.foreign",
            "x.next",
            "-x.out",
            "x~99999999999.out",
        ] {
            assert_eq!(results(other), None, "{other}");
        }
        let retired = |file| Part::of(file, RETIRED_SUFFIXES).map(|p| (p.name, p.suffix));
        assert_eq!(retired("x.failed"), Some(("x", ".failed")));
        assert_eq!(retired("x.claimed"), None);
    }
}
