//! The next window of schedules of each kind. The design asks for 300,000 a second.
#![expect(clippy::expect_used, reason = "what is measured is fixed here")]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use midwatch_commands::calendar::Schedule;
use midwatch_events::Micros;

const SCHEDULES: [(&str, &str); 5] = [
    ("weekly", r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","tue","wed","thu","fri"],"times":["09:00"]}"#),
    ("monthly", r#"{"kind":"monthly","zone":"Europe/Berlin","days":[1,15],"times":["06:30"]}"#),
    ("every", r#"{"kind":"every","zone":"Europe/Berlin","minutes":45}"#),
    ("cron, fixed", r#"{"kind":"cron","zone":"America/New_York","expr":"30 2 * * *"}"#),
    ("cron, steps", r#"{"kind":"cron","zone":"America/New_York","expr":"*/15 * * * *"}"#),
];

/// 2026-03-20T00:00:00Z: the changes to summer time lie ahead.
const FROM: Micros = Micros(1_773_964_800_000_000);

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("next window");
    group.throughput(Throughput::Elements(1));
    for (name, json) in SCHEDULES {
        let schedule = Schedule::parse(json).expect("the schedule is one");
        let mut after = FROM;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let window = schedule.next_after(black_box(after), FROM);
                // A year on, from the start again.
                after = window
                    .map_or(FROM, |window| if window.at.0 > FROM.0 + 31_536_000_000_000 { FROM } else { window.at });
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
