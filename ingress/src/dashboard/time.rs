//! Instants and spans for people. Every instant carries its zone.

use chrono::DateTime;
use midwatch_commands::calendar::{Dst, Window, Zone};
use midwatch_events::Micros;

/// An instant as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct When {
    /// RFC 3339, for machines.
    pub(crate) datetime: String,
    /// With its zone, for people: `30 Nov 2026, 14:45:17 UTC`.
    pub(crate) text: String,
    /// From here: `3 min ago`, `in 2 h`.
    pub(crate) relative: String,
}

impl When {
    /// In UTC, seen from `now`.
    pub(crate) fn utc(at: Micros, now: Micros) -> Self {
        // What is a whole minute was meant as one.
        let format = if at.0 % 60_000_000 == 0 { "%-d %b %Y, %H:%M UTC" } else { "%-d %b %Y, %H:%M:%S UTC" };
        let text =
            DateTime::from_timestamp_micros(at.0).map_or_else(|| at.to_string(), |at| at.format(format).to_string());
        Self { datetime: at.to_string(), text, relative: relative(at, now) }
    }

    /// A window in its routine's zone, seen from `now`.
    pub(crate) fn in_zone(at: Micros, zone: &Zone, now: Micros) -> Self {
        let local = zone.local(at);
        let text = local_text(&local, zone.name());
        Self { datetime: at.to_string(), text, relative: relative(at, now) }
    }

    /// The same for an instant that may be absent.
    pub(crate) fn maybe(at: Option<Micros>, now: Micros) -> Option<Self> {
        at.map(|at| Self::utc(at, now))
    }
}

/// A window that comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Previewed {
    /// In the routine's zone.
    pub(crate) local: String,
    /// That zone.
    pub(crate) zone: String,
    /// The same instant in UTC, with how far it is.
    pub(crate) utc: When,
    /// The same in the reader's zone, where that says something else.
    pub(crate) reader: Option<String>,
    /// What daylight saving did to it.
    pub(crate) dst: Option<&'static str>,
    /// When it starts with the routine's jitter, where that is later.
    pub(crate) starts: Option<String>,
}

impl Previewed {
    pub(crate) fn new(window: &Window, zone: &Zone, reader: &Zone, now: Micros) -> Self {
        let dst = match window.dst {
            Dst::None => None,
            Dst::Moved => Some("this time does not exist on that day and moves forward"),
            Dst::FirstOfTwo => Some("this time comes twice on that day; it runs the first time"),
        };
        let elsewhere = reader.canonical() != zone.canonical();
        let reader = elsewhere.then(|| local_text(&reader.local(window.at), reader.name()));
        Self {
            local: wall_clock(&window.local),
            zone: zone_text(zone.name()),
            utc: When::utc(window.at, now),
            reader,
            dst,
            starts: None,
        }
    }

    /// With the instant at which it starts.
    pub(crate) fn starting(mut self, window: &Window, effective: Micros, zone: &Zone) -> Self {
        if effective > window.at {
            let local = zone.local(effective);
            self.starts = local.get(11..19).map(str::to_owned);
        }
        self
    }
}

/// `Tue 1 Dec 2026, 09:00 Europe/Berlin`.
fn local_text(rfc3339: &str, zone: &str) -> String {
    format!("{} {}", wall_clock(rfc3339), zone_text(zone))
}

/// `Tue 1 Dec 2026, 09:00`.
fn wall_clock(rfc3339: &str) -> String {
    let Ok(local) = DateTime::parse_from_rfc3339(rfc3339) else { return rfc3339.to_owned() };
    let second = if local.timestamp() % 60 == 0 { "" } else { ":%S" };
    local.format(&format!("%a %-d %b %Y, %H:%M{second}")).to_string()
}

/// A fixed offset is its own name.
fn zone_text(zone: &str) -> String {
    if zone.starts_with(['+', '-']) { format!("UTC{zone}") } else { zone.to_owned() }
}

/// From `now`: `just now`, `3 min ago`, `in 2 h`.
pub(crate) fn relative(at: Micros, now: Micros) -> String {
    let seconds = at.since(now) / 1_000_000;
    let span = rough(seconds.unsigned_abs());
    match seconds {
        -9..=0 => "just now".to_owned(),
        1.. => format!("in {span}"),
        _ => format!("{span} ago"),
    }
}

fn rough(seconds: u64) -> String {
    match seconds {
        0..100 => format!("{seconds} s"),
        100..5_400 => format!("{} min", (seconds + 30) / 60),
        5_400..129_600 => format!("{} h", (seconds + 1_800) / 3_600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// How long something took: `412 µs`, `38 ms`, `2.4 s`, `3 min 20 s`.
pub(crate) fn span(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..60_000_000 => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
        60_000_000..3_600_000_000 => two(us / 60_000_000, "min", us / 1_000_000 % 60, "s"),
        _ => two(us / 3_600_000_000, "h", us / 60_000_000 % 60, "min"),
    }
}

fn two(large: u64, unit: &str, small: u64, part: &str) -> String {
    if small == 0 { format!("{large} {unit}") } else { format!("{large} {unit} {small} {part}") }
}

#[cfg(test)]
mod tests {
    use midwatch_commands::calendar::Zone;

    use super::*;

    const NOW: Micros = Micros(1_796_049_917_000_000);

    #[test]
    fn every_time_carries_its_zone() {
        assert_eq!(When::utc(NOW, NOW).text, "30 Nov 2026, 14:45:17 UTC");
        let zone = Zone::named("Europe/Berlin").expect("a zone");
        assert_eq!(
            When::in_zone(Micros(1_796_050_800_000_000), &zone, NOW).text,
            "Mon 30 Nov 2026, 16:00 Europe/Berlin"
        );
    }

    #[test]
    fn distances_are_rough() {
        for (seconds, text) in [
            (0, "just now"),
            (-5, "just now"),
            (-20, "20 s ago"),
            (40, "in 40 s"),
            (3_600, "in 60 min"),
            (86_400, "in 24 h"),
        ] {
            assert_eq!(relative(NOW.plus_s(seconds), NOW), text);
        }
        assert_eq!(span(2_412_000), "2.4 s");
        assert_eq!(span(200_000_000), "3 min 20 s");
        assert_eq!(span(86_400_000_000), "24 h");
    }
}
