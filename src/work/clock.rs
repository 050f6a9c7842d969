//! The present moment, for everything that is written down: the only clock of this room.

use jiff::Timestamp;

/// The present moment as events carry it.
#[must_use]
pub fn now() -> String {
    format!("{:.3}", Timestamp::now())
}
