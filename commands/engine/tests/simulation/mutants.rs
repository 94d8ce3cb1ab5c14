//! Faults put in on purpose, and how soon the checker finds each.

use midwatch_commands::mutant::{Mutant, put_in};

use crate::play::play;

/// How many seeds a fault may take to be found. Most are found by the first few.
const SEEDS_MAX: u64 = 60;

/// Takes the fault out again, also when a play panics.
struct PutIn;

impl Drop for PutIn {
    fn drop(&mut self) {
        put_in(None);
    }
}

fn is_found(mutant: Mutant) {
    let _out = PutIn;
    put_in(Some(mutant));
    let found = (1..=SEEDS_MAX).find_map(|seed| Some((seed, play(seed).failure?.0)));
    let Some((seed, failure)) = found else { panic!("{mutant:?} was not found in {SEEDS_MAX} seeds") };
    eprintln!("{mutant:?} was found by seed {seed}: {failure}");
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            is_found(Mutant::$mutant);
        })*

        #[test]
        fn all_are_tried() {
            assert_eq!([$(Mutant::$mutant),*], Mutant::ALL);
        }
    };
}

mutants! {
    a_grace_that_ends_early_is_found: GraceEndsEarly,
    lateness_by_the_wall_clock_is_found: LatenessByWallClock,
    a_live_run_that_is_not_looked_at_is_found: LiveIsNotLookedAt,
    a_next_window_from_now_is_found: NextFromNow,
    a_count_of_missed_windows_that_is_short_is_found: MissedCountIsShort,
    a_catch_up_on_each_missed_window_is_found: CatchesUpOnEach,
    a_high_water_mark_that_is_forgotten_is_found: HighWaterIsForgotten,
    one_run_more_than_allowed_is_found: OneRunMore,
    a_queued_window_that_is_forgotten_is_found: QueuedIsForgotten,
    a_claim_without_its_key_is_found: ClaimWithoutKey,
    a_claim_that_ignores_a_halt_is_found: ClaimIgnoresHalt,
    a_settle_that_is_forgotten_is_found: SettleIsForgotten,
    a_take_that_is_not_checked_is_found: TakeIsNotChecked,
    open_calls_that_are_forgotten_are_found: OpenCallsAreForgotten,
    a_deadline_that_is_ignored_is_found: DeadlineIsIgnored,
    an_act_before_its_decision_is_found: ActsBeforeItIsDecided,
    a_lease_by_the_wall_clock_is_found: LeaseByWallClock,
    a_holder_given_up_too_soon_is_found: GivesUpTooSoon,
    a_reaction_without_its_key_is_found: ReactsWithoutKey,
    a_checkpoint_that_moves_first_is_found: CheckpointMovesFirst,
    a_durable_gate_that_is_open_is_found: DurableGateIsOpen,
    the_newest_delivery_first_is_found: NewestDeliveryFirst,
    a_delivery_without_its_key_is_found: IntakeWithoutKey,
    a_delivery_through_a_closed_door_is_found: IntakeIgnoresTheDoor,
    a_delivery_under_a_halt_is_found: IntakeIgnoresHalt,
}
