//! Given what happened, when this is asked, then that follows.

use midwatch_events::Micros;

use crate::{Decider, Refusal};

mod any_order;
mod folds;
mod values;

pub(crate) use values::{at, id};

/// A stream's past, folded.
#[derive(Clone, Default)]
pub(crate) struct Given<D>(pub(crate) D);

/// What was decided.
#[must_use]
pub(crate) struct Then<E>(Result<Vec<E>, Refusal>);

pub(crate) fn given<D: Decider>(events: impl IntoIterator<Item = D::Event>) -> Given<D> {
    let mut state = D::default();
    events.into_iter().for_each(|event| state.evolve(&event, Micros(0)));
    Given(state)
}

impl<D: Decider<Event: PartialEq>> Given<D> {
    pub(crate) fn and(mut self, event: D::Event) -> Self {
        self.0.evolve(&event, Micros(0));
        self
    }

    /// This was asked next, and what followed was appended.
    #[track_caller]
    pub(crate) fn after(self, command: D::Command) -> Self {
        self.when(command).events().into_iter().fold(self, Self::and)
    }

    pub(crate) fn when(&self, command: D::Command) -> Then<D::Event> {
        Then(self.0.decide(command).map(|events| events.into_iter().map(|event| event.facts).collect()))
    }
}

impl<E: PartialEq + std::fmt::Debug> Then<E> {
    #[track_caller]
    pub(crate) fn events(self) -> Vec<E> {
        self.0.expect("no refusal")
    }
    #[track_caller]
    pub(crate) fn then(self, expected: impl IntoIterator<Item = E>) {
        assert_eq!(self.0, Ok(expected.into_iter().collect()));
    }
    #[track_caller]
    pub(crate) fn refused(self, why: &Refusal) {
        assert_eq!(self.0.as_ref(), Err(why));
    }
    #[track_caller]
    pub(crate) fn invalid(self, words: &str) {
        assert!(matches!(&self.0, Err(Refusal::Invalid(sentence)) if sentence.contains(words)), "{:?}", self.0);
    }
}
