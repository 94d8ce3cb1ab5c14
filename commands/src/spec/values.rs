//! Ids and instants that read well.

use midwatch_events::{Micros, id::Id};

/// The n-th id of a kind.
pub(crate) fn id<Of>(n: u128) -> Id<Of> {
    Id::new(uuid::Uuid::from_u128(n))
}

/// A time of 2026-12-01, a Tuesday, in UTC; or a whole RFC 3339 instant.
pub(crate) fn at(text: &str) -> Micros {
    let text = if text.contains('T') { text.to_owned() } else { format!("2026-12-01T{text}Z") };
    Micros(chrono::DateTime::parse_from_rfc3339(&text).expect("an instant").timestamp_micros())
}
