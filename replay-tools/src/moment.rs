//! A moment in the ledger: a position, or an instant.

use std::{fmt, str::FromStr};

use midwatch_events::{Micros, Recorded};
use midwatch_projections::projection::rfc3339;

/// Up to where the ledger is read. Both include what stands exactly there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Up to this position.
    Position(u64),
    /// Up to what was recorded at this instant. Ledger time never goes back, so this is a position too.
    Time(Micros),
}

impl Moment {
    /// Whether an event had happened by then.
    #[must_use]
    pub fn includes(self, recorded: &Recorded) -> bool {
        match self {
            Self::Position(position) => recorded.position <= position,
            Self::Time(at) => recorded.recorded_at <= at,
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    /// A whole number is a position; everything else is an instant with its offset, or a date (its midnight in UTC).
    fn from_str(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Position).map_err(|_| format!("{text} is beyond every position"));
        }
        rfc3339::parse(text).map(Self::Time).ok_or_else(|| {
            format!("`{text}` is no moment; write a position such as 1234, or a time such as 2026-12-01T03:00:00+01:00")
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => write!(f, "position {position}"),
            Self::Time(at) => write!(f, "{at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions_and_times_carry_an_offset() {
        assert_eq!("17".parse(), Ok(Moment::Position(17)));
        assert_eq!("2026-11-30T15:45:17.357+01:00".parse(), Ok(Moment::Time(Micros(1_796_049_917_357_000))));
        for bad in ["", "-1", "now", "2026-11-30T15:45:17", "99999999999999999999"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
