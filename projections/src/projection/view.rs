//! All projections, as a closed list: whoever applies them needs no type parameters.

use std::collections::BTreeMap;

use midwatch_events::{AnyEvent, Recorded};

use super::{Poison, Projection, Table, Write, apply};
use crate::{
    audit::Audit, bots::Bots, boundaries::Boundaries, deliveries::Deliveries, delivery_redeliveries::Redeliveries,
    due::Due, engine_deployment::Deployment, engine_notices::Notices, engine_processes::Processes,
    engine_receivers::Receivers, routines_list::RoutinesList, run_approvals::Approvals, run_timeline::RunTimeline,
    runs::Runs, triggers::Triggers, users::People,
};

/// One of the projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// [`crate::routines_list`].
    RoutinesList,
    /// [`crate::due`].
    Due,
    /// [`crate::runs`].
    Runs,
    /// [`crate::audit`].
    Audit,
    /// [`crate::run_approvals`].
    Approvals,
    /// [`crate::run_timeline`].
    RunTimeline,
    /// [`crate::triggers`].
    Triggers,
    /// [`crate::deliveries`].
    Deliveries,
    /// [`crate::bots`].
    Bots,
    /// [`crate::boundaries`].
    Boundaries,
    /// [`crate::users`].
    People,
    /// [`crate::engine_processes`].
    Processes,
    /// [`crate::engine_deployment`].
    Deployment,
    /// [`crate::delivery_redeliveries`].
    Redeliveries,
    /// [`crate::engine_receivers`].
    Receivers,
    /// [`crate::engine_notices`].
    Notices,
}

impl View {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::RoutinesList,
        Self::Due,
        Self::Runs,
        Self::Audit,
        Self::Approvals,
        Self::RunTimeline,
        Self::Triggers,
        Self::Deliveries,
        Self::Bots,
        Self::Boundaries,
        Self::People,
        Self::Processes,
        Self::Deployment,
        Self::Redeliveries,
        Self::Receivers,
        Self::Notices,
    ];

    /// Where its rows are kept.
    #[must_use]
    pub const fn table(self) -> Table {
        match self {
            Self::RoutinesList => RoutinesList::TABLE,
            Self::Due => Due::TABLE,
            Self::Runs => Runs::TABLE,
            Self::Audit => Audit::TABLE,
            Self::Approvals => Approvals::TABLE,
            Self::RunTimeline => RunTimeline::TABLE,
            Self::Triggers => Triggers::TABLE,
            Self::Deliveries => Deliveries::TABLE,
            Self::Bots => Bots::TABLE,
            Self::Boundaries => Boundaries::TABLE,
            Self::People => People::TABLE,
            Self::Processes => Processes::TABLE,
            Self::Deployment => Deployment::TABLE,
            Self::Redeliveries => Redeliveries::TABLE,
            Self::Receivers => Receivers::TABLE,
            Self::Notices => Notices::TABLE,
        }
    }

    /// The name of its table, and its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.table().name
    }

    /// The rows that must be loaded before [`View::apply`] takes in this event.
    #[must_use]
    pub fn keys(self, event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match self {
            Self::RoutinesList => RoutinesList::keys(event, recorded),
            Self::Due => Due::keys(event, recorded),
            Self::Runs => Runs::keys(event, recorded),
            Self::Audit => Audit::keys(event, recorded),
            Self::Approvals => Approvals::keys(event, recorded),
            Self::RunTimeline => RunTimeline::keys(event, recorded),
            Self::Triggers => Triggers::keys(event, recorded),
            Self::Deliveries => Deliveries::keys(event, recorded),
            Self::Bots => Bots::keys(event, recorded),
            Self::Boundaries => Boundaries::keys(event, recorded),
            Self::People => People::keys(event, recorded),
            Self::Processes => Processes::keys(event, recorded),
            Self::Deployment => Deployment::keys(event, recorded),
            Self::Redeliveries => Redeliveries::keys(event, recorded),
            Self::Receivers => Receivers::keys(event, recorded),
            Self::Notices => Notices::keys(event, recorded),
        }
    }

    /// Takes in one event. `rows` holds the documents of at least its [`View::keys`] (`None` for a row that does not
    /// exist), is brought up to date, and can be given to the next event of a batch.
    ///
    /// # Errors
    /// [`Poison`]; `rows` is as it was then.
    pub fn apply(
        self,
        rows: &mut BTreeMap<String, Option<Vec<u8>>>,
        event: &AnyEvent,
        recorded: &Recorded,
    ) -> Result<Vec<Write>, Poison> {
        match self {
            Self::RoutinesList => apply::<RoutinesList>(rows, event, recorded),
            Self::Due => apply::<Due>(rows, event, recorded),
            Self::Runs => apply::<Runs>(rows, event, recorded),
            Self::Audit => apply::<Audit>(rows, event, recorded),
            Self::Approvals => apply::<Approvals>(rows, event, recorded),
            Self::RunTimeline => apply::<RunTimeline>(rows, event, recorded),
            Self::Triggers => apply::<Triggers>(rows, event, recorded),
            Self::Deliveries => apply::<Deliveries>(rows, event, recorded),
            Self::Bots => apply::<Bots>(rows, event, recorded),
            Self::Boundaries => apply::<Boundaries>(rows, event, recorded),
            Self::People => apply::<People>(rows, event, recorded),
            Self::Processes => apply::<Processes>(rows, event, recorded),
            Self::Deployment => apply::<Deployment>(rows, event, recorded),
            Self::Redeliveries => apply::<Redeliveries>(rows, event, recorded),
            Self::Receivers => apply::<Receivers>(rows, event, recorded),
            Self::Notices => apply::<Notices>(rows, event, recorded),
        }
    }
}
