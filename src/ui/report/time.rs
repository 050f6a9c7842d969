//! Times as people read and write them. Everything is UTC unless an offset is given.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;

use super::short_duration;
use crate::text::error::{Fault, Kind, Result};
use crate::text::units::parse_duration;

/// How long ago a time is; zero if it is in the future.
#[must_use]
pub fn age(now: Timestamp, then_ns: i128) -> Duration {
    let ns = u64::try_from(now.as_nanosecond() - then_ns).unwrap_or(0);
    Duration::from_nanos(ns)
}

/// `5m12s ago`, for a time from a record; `None` if the text is not a time.
#[must_use]
pub fn ago(now: Timestamp, time: &str) -> Option<String> {
    let then: Timestamp = time.parse().ok()?;
    Some(format!(
        "{} ago",
        short_duration(age(now, then.as_nanosecond()))
    ))
}

/// The time that `--since` means: a duration before now, a date, or a time.
pub fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp> {
    let text = text.trim();
    if let Ok(time) = parse_duration(text) {
        return Ok(now.checked_sub(time).unwrap_or(Timestamp::MIN));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let civil = text
        .parse::<civil::DateTime>()
        .ok()
        .filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
    civil
        .and_then(|time| TimeZone::UTC.to_timestamp(time).ok())
        .ok_or_else(|| {
            Fault::new(Kind::Usage, format!("`{text}` is neither a duration nor a time"))
                .hint("write it like `2h`, `2026-05-01` or `2026-05-01T12:00Z`; without an offset it is UTC")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_takes_durations_dates_and_times() {
        let now: Timestamp = "2026-05-02T00:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2h", "2026-05-01T22:00:00Z"),
            ("1d", "2026-05-01T00:00:00Z"),
            ("2026-05-01", "2026-05-01T00:00:00Z"),
            ("2026-05-01T12:00Z", "2026-05-01T12:00:00Z"),
            ("2026-05-01T12:00:30.5Z", "2026-05-01T12:00:30.5Z"),
            ("2026-05-01T12:00+02:00", "2026-05-01T10:00:00Z"),
            ("2026-05-01T12:00", "2026-05-01T12:00:00Z"),
            ("2026-05-01 12:00", "2026-05-01T12:00:00Z"),
        ] {
            assert_eq!(
                parse_since(text, now).unwrap().to_string(),
                expected,
                "{text}"
            );
        }
        for text in ["", "yesterday", "2026-13-01", "12", "2h ago", "-1d"] {
            assert_eq!(
                parse_since(text, now).unwrap_err().kind,
                Kind::Usage,
                "{text}"
            );
        }
    }

    #[test]
    fn ages_are_never_negative() {
        let now: Timestamp = "2026-05-02T00:00:00Z".parse().unwrap();
        assert_eq!(
            ago(now, "2026-05-01T23:59:00Z").as_deref(),
            Some("1m00s ago")
        );
        assert_eq!(ago(now, "2026-05-03T00:00:00Z").as_deref(), Some("0ms ago"));
        assert_eq!(ago(now, "soon"), None);
    }
}
