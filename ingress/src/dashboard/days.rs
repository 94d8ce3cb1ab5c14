//! The days and kinds a schedule's form offers.

/// The weekdays: their word in a schedule and their name.
pub(crate) const WEEKDAYS: [(&str, &str); 7] =
    [("mon", "Mon"), ("tue", "Tue"), ("wed", "Wed"), ("thu", "Thu"), ("fri", "Fri"), ("sat", "Sat"), ("sun", "Sun")];

/// The kinds of schedule: their word in the form and what they are called there.
pub(crate) const KINDS: [(&str, &str); 6] = [
    ("weekly", "On weekdays"),
    ("monthly", "On days of the month"),
    ("every", "Every so often"),
    ("once", "Once"),
    ("cron", "Cron"),
    ("json", "As JSON"),
];

/// One thing that can be chosen, and whether it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice<Value = &'static str, Name = &'static str> {
    pub(crate) value: Value,
    pub(crate) name: Name,
    pub(crate) chosen: bool,
}

/// Choices of which those in `chosen` are chosen.
pub(crate) fn choices(all: &[(&'static str, &'static str)], chosen: &[&str]) -> Vec<Choice> {
    all.iter().map(|&(value, name)| Choice { value, name, chosen: chosen.contains(&value) }).collect()
}
