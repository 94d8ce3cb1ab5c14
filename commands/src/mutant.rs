//! Deliberate faults, each one line at its place, that the simulation's checker must find. What is not found by a fault
//! put in on purpose would not be found when it comes by itself.
//!
//! They exist in test builds alone: without the feature, and in every build without debug assertions, [`active`] is
//! `false` for the compiler, and nothing of them is left.

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A window exactly as late as its grace is missed.
    GraceEndsEarly,
    /// Lateness goes by the process' time of day.
    LatenessByWallClock,
    /// A window is claimed although a run is live.
    LiveIsNotLookedAt,
    /// The next window is counted from now instead of from the last.
    NextFromNow,
    /// Windows missed at once are counted one short.
    MissedCountIsShort,
    /// Every missed window is caught up on, not the newest alone.
    CatchesUpOnEach,
    /// An edit or a resume forgets which windows have ended.
    HighWaterIsForgotten,
    /// A routine may run once more than it may.
    OneRunMore,
    /// A window that waits is forgotten when its routine is free.
    QueuedIsForgotten,
    /// A claim does not carry the key of its window.
    ClaimWithoutKey,
    /// A claim does not rest on the halt that was read.
    ClaimIgnoresHalt,
    /// A run ends and its target is not freed.
    SettleIsForgotten,
    /// A run that was taken is taken again.
    TakeIsNotChecked,
    /// Calls that are open when a run ends are left so.
    OpenCallsAreForgotten,
    /// Nobody closes a run at its deadline.
    DeadlineIsIgnored,
    /// A tool acts before its decision is recorded.
    ActsBeforeItIsDecided,
    /// The age of a lease goes by the time of day.
    LeaseByWallClock,
    /// A holder is given up after two looks.
    GivesUpTooSoon,
    /// A reaction has no key.
    ReactsWithoutKey,
    /// The reactor's checkpoint moves before what it appends.
    CheckpointMovesFirst,
    /// What is not durable yet is read like what is.
    DurableGateIsOpen,
    /// The newest delivery is taken first.
    NewestDeliveryFirst,
    /// A delivery is taken in without its key.
    IntakeWithoutKey,
    /// A delivery does not rest on the trigger that was read.
    IntakeIgnoresTheDoor,
    /// A delivery does not rest on the halt that was read.
    IntakeIgnoresHalt,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::GraceEndsEarly,
        Self::LatenessByWallClock,
        Self::LiveIsNotLookedAt,
        Self::NextFromNow,
        Self::MissedCountIsShort,
        Self::CatchesUpOnEach,
        Self::HighWaterIsForgotten,
        Self::OneRunMore,
        Self::QueuedIsForgotten,
        Self::ClaimWithoutKey,
        Self::ClaimIgnoresHalt,
        Self::SettleIsForgotten,
        Self::TakeIsNotChecked,
        Self::OpenCallsAreForgotten,
        Self::DeadlineIsIgnored,
        Self::ActsBeforeItIsDecided,
        Self::LeaseByWallClock,
        Self::GivesUpTooSoon,
        Self::ReactsWithoutKey,
        Self::CheckpointMovesFirst,
        Self::DurableGateIsOpen,
        Self::NewestDeliveryFirst,
        Self::IntakeWithoutKey,
        Self::IntakeIgnoresTheDoor,
        Self::IntakeIgnoresHalt,
    ];
}

#[cfg(all(feature = "mutants", debug_assertions))]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this fault is put in, on this thread.
#[cfg(all(feature = "mutants", debug_assertions))]
#[must_use]
pub fn active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// It never is.
#[cfg(not(all(feature = "mutants", debug_assertions)))]
#[must_use]
pub const fn active(_mutant: Mutant) -> bool {
    false
}

/// Puts one fault in, or takes it out again, on this thread.
#[cfg(all(feature = "mutants", debug_assertions))]
pub fn put_in(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
