//! What a schedule comes to, before it is saved.

use askama::Template;
use axum::extract::State;
use midwatch_commands::calendar::{Schedule, Zone, disagreements, tzdb_version};
use midwatch_events::Micros;

use super::{ScheduleFields, Wrong};
use crate::{
    app::App,
    dashboard::{
        fields::Fields,
        frame::{Page, ok},
        text::Shown,
        time::Previewed,
        viewing::Viewing,
        visitor::Visitor,
    },
};

/// Windows a preview shows.
const PREVIEWED: usize = 6;

const YEAR_S: i64 = 365 * 86_400;

/// What a schedule comes to.
#[derive(Debug)]
pub(crate) struct Preview {
    pub(crate) words: String,
    pub(crate) windows: Vec<Previewed>,
    pub(crate) per_week: String,
    pub(crate) recording: bool,
    pub(crate) notes: Vec<String>,
    pub(crate) tzdb: &'static str,
}

impl Preview {
    /// # Errors
    /// The field that is wrong.
    fn new(form: &ScheduleFields, recording: bool, reader: &Zone, now: Micros) -> Result<Self, Wrong> {
        let schedule = form.schedule()?;
        let windows = schedule.preview(now, None, PREVIEWED);
        let mut notes = schedule.notes();
        notes.extend(second_opinion(&schedule, now));
        Ok(Self {
            words: schedule.in_words(),
            windows: windows.iter().map(|window| Previewed::new(window, schedule.zone(), reader, now)).collect(),
            per_week: a_week(schedule.runs_per_week(now, None)),
            recording,
            notes,
            tzdb: tzdb_version(),
        })
    }
}

/// Where an older copy of the time-zone data says something else within a year, in words.
pub(crate) fn second_opinion(schedule: &Schedule, now: Micros) -> Option<String> {
    if schedule.once_at().is_some() {
        return None;
    }
    let zone = schedule.zone().name();
    let spans = disagreements(zone, now, now.plus_s(YEAR_S)).unwrap_or_default();
    spans.first().map(|first| first.in_words(zone))
}

/// A mean over four weeks, so quarters.
pub(crate) fn a_week(runs: f64) -> String {
    let text = format!("{runs:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A preview, or why there is none.
#[derive(Debug)]
pub(crate) struct Previewing {
    pub(crate) preview: Option<Preview>,
    pub(crate) wrong: Option<Shown>,
}

impl Previewing {
    pub(crate) fn of(form: &ScheduleFields, recording: bool, reader: &Zone, now: Micros) -> Self {
        match Preview::new(form, recording, reader, now) {
            Ok(preview) => Self { preview: Some(preview), wrong: None },
            Err(wrong) => Self { preview: None, wrong: Some(Shown::line(&wrong.sentence)) },
        }
    }
}

#[derive(Template)]
#[template(path = "preview.html")]
struct PreviewFragment {
    previewing: Previewing,
}

/// `GET /routines/preview`: the fragment that the form shows while somebody types.
pub(crate) async fn preview(State(app): State<App>, _: Visitor, viewing: Viewing, query: Fields) -> Page {
    let now = app.engine.world().clock.now();
    let form = ScheduleFields::typed(&query);
    let recording = query.get("work") == "recording";
    ok(&PreviewFragment { previewing: Previewing::of(&form, recording, &viewing.zone, now) })
}
