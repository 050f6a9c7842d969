//! Durations and sizes as people write them: `90s`, `1h30m`, `256MiB`.
//!
//! Pure text arithmetic. Where a unit is required, a bare number is an error.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::error::hinted;
use crate::text::error::{Fault, Kind};

const DURATION_HINT: &str = "write it like `90s`, `15m`, `2h`, `1d`, `500ms` or `1h30m`";
const SIZE_HINT: &str = "write it like `4096`, `64KiB`, `10MB` or `256MiB`";

/// Units of time in milliseconds, the longest first.
const TIMES: &[(&str, u64)] = &[
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units of size in bytes.
const SIZES: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads `90s`, `15m`, `2h`, `1d`, `500ms`, `1h30m`.
///
/// # Errors
/// A [`Kind::Usage`] fault with a hint if the text is anything else.
pub fn parse_duration(text: &str) -> Result<Duration, Fault> {
    let text = text.trim();
    let bad = |why: &str| {
        Fault::new(Kind::Usage, format!("`{text}` is not a duration: {why}")).hint(DURATION_HINT)
    };
    if text.is_empty() {
        return Err(bad("it is empty"));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut smallest_seen = u64::MAX;
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or_else(|| bad("a number is expected"))?;
        let unit_len = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_len);
        if unit.is_empty() {
            return Err(bad("the unit is missing"));
        }
        let &(_, millis) = TIMES
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| bad(&format!("`{unit}` is not a unit of time")))?;
        if millis >= smallest_seen {
            return Err(bad("units go from long to short, each once"));
        }
        smallest_seen = millis;
        total = number
            .checked_mul(millis)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| bad("it is too long"))?;
        rest = next;
    }
    Ok(Duration::from_millis(total))
}

/// Reads `256MiB`, `10MB`, `4096`; `K`, `M`, `G` alone are powers of 1024.
///
/// # Errors
/// A [`Kind::Usage`] fault with a hint if the text is anything else.
pub fn parse_size(text: &str) -> Result<u64, Fault> {
    let text = text.trim();
    let bad = |why: &str| {
        Fault::new(Kind::Usage, format!("`{text}` is not a size: {why}")).hint(SIZE_HINT)
    };
    let (number, unit) = split_number(text).ok_or_else(|| bad("a number is expected"))?;
    let unit = unit.trim_start();
    let &(_, bytes) = SIZES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .ok_or_else(|| bad(&format!("`{unit}` is not a unit of size")))?;
    number
        .checked_mul(bytes)
        .ok_or_else(|| bad("it is too large"))
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

/// Writes a duration so that [`parse_duration`] reads it back, to the millisecond.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut shown = String::new();
    for (unit, size) in TIMES {
        if millis >= *size {
            shown.push_str(&format!("{}{unit}", millis / size));
            millis %= size;
        }
    }
    shown
}

/// Writes a size for people: exact where a unit divides it, else with one decimal.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes < size {
            continue;
        }
        if bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
        let tenths = u128::from(bytes) * 10 / u128::from(size);
        return format!("{}.{}{unit}", tenths / 10, tenths % 10);
    }
    format!("{bytes}B")
}

/// A duration in a YAML file, with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Duration);

/// A number of seconds in a YAML file, for fields whose name ends in `_sec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(pub Duration);

/// A number of milliseconds in a YAML file, for fields whose name ends in `_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub Duration);

/// A size in a YAML file, with its unit or in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show_duration(self.0))
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = CountVisitor("seconds", 1_000);
        deserializer.deserialize_any(visitor).map(Seconds)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = CountVisitor("milliseconds", 1);
        deserializer.deserialize_any(visitor).map(Millis)
    }
}

// The visitors raise their errors while the reader still knows the scalar's line and column.

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a duration such as `15m`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        parse_duration(text).map(Time).map_err(located)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Time, E> {
        self.visit_str(&number.to_string())
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a size such as `256MiB`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        parse_size(text).map(Size).map_err(located)
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }
}

struct CountVisitor(&'static str, u64);

impl Visitor<'_> for CountVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a number of {}", self.0)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Duration, E> {
        let millis = number.checked_mul(self.1);
        millis
            .map(Duration::from_millis)
            .ok_or_else(|| E::custom(format!("{number} {} is too long", self.0)))
    }
}

fn located<E: de::Error>(fault: Fault) -> E {
    E::custom(hinted(&fault.message, fault.hint.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let table = [
            ("90s", 90_000),
            ("15m", 900_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1m500ms", 60_500),
            ("0s", 0),
            (" 5s ", 5_000),
        ];
        for (text, millis) in table {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_a_duration_says_why() {
        let table = [
            ("", "empty"),
            ("90", "unit is missing"),
            ("h", "number is expected"),
            ("5x", "`x` is not a unit"),
            ("1m1h", "long to short"),
            ("1m1m", "long to short"),
            ("-5s", "number is expected"),
            ("1.5h", "unit is missing"),
            ("99999999999999999999s", "number is expected"),
            ("999999999999999999d", "too long"),
        ];
        for (text, part) in table {
            let fault = parse_duration(text).unwrap_err();
            assert!(fault.message.contains(part), "{text}: {}", fault.message);
            assert!(fault.hint.is_some(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read() {
        let table = [
            ("4096", 4096),
            ("256MiB", 256 << 20),
            ("10MB", 10_000_000),
            ("1 KiB", 1024),
            ("2G", 2 << 30),
            ("7b", 7),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "5 apples", "99999999999GiB", "-1"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for millis in [0, 1, 500, 1_000, 61_001, 5_400_000, 90_061_007] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }
        assert_eq!(show_size(256 << 20), "256MiB");
        assert_eq!(show_size(1536), "1.5KiB");
        assert_eq!(show_size(12), "12B");
    }

    #[test]
    fn yaml_takes_units_and_refuses_a_bare_number_for_a_time() {
        assert_eq!(
            crate::text::yaml::from_str::<Time>("15m").map(|t| t.0),
            Ok(Duration::from_secs(900))
        );
        let fault = crate::text::yaml::from_str::<Time>("15").unwrap_err();
        assert!(
            fault.message.contains("unit is missing"),
            "{}",
            fault.message
        );
        assert_eq!(fault.hint.as_deref(), Some(DURATION_HINT));
        assert_eq!(
            crate::text::yaml::from_str::<Size>("10KiB"),
            Ok(Size(10240))
        );
        assert_eq!(crate::text::yaml::from_str::<Size>("10"), Ok(Size(10)));
        assert_eq!(
            crate::text::yaml::from_str::<Seconds>("3"),
            Ok(Seconds(Duration::from_secs(3)))
        );
        assert_eq!(
            crate::text::yaml::from_str::<Millis>("3"),
            Ok(Millis(Duration::from_millis(3)))
        );
    }
}
