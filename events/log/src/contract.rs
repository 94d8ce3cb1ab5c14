//! What a ledger promises, as cases that every backend has to pass. Each is named for what would go wrong.
//!
//! The PostgreSQL half needs `MIDWATCH_TEST_POSTGRES`; see [`crate::testing`].

mod appends;
mod chains;
mod crowds;
mod erasing;
mod faults;
mod guards;
mod keys;
mod load;
mod outages;
mod processes;
mod reading;
mod rows;
mod server;
pub(crate) mod support;
mod trouble;
mod verifying;

use std::{future::Future, pin::Pin};

use crate::testing::{fresh_postgres, fresh_simulated, fresh_sqlite};
use support::Backend;

type Run = fn(Backend) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! cases {
    ($($module:ident :: $case:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($case)), |backend| Box::pin($module::$case(backend)))),*]
    };
}

const CASES: &[(&str, Run)] = cases![
    appends::an_append_gets_the_next_positions_and_versions,
    appends::every_column_comes_back_as_it_was_given,
    appends::a_wrong_version_writes_nothing_and_consumes_no_position,
    appends::a_stale_append_of_three_writes_none_of_them,
    appends::one_append_spans_streams_and_sees_its_own_events,
    appends::a_condition_is_checked_and_writes_nothing,
    appends::conditions_alone_are_answered_with_the_head,
    appends::what_the_ledger_never_takes_is_refused,
    appends::the_largest_event_and_the_largest_append_fit,
    appends::an_event_id_stands_once,
    appends::a_reader_appends_nothing,
    chains::a_chain_stands_in_the_order_it_was_submitted,
    chains::what_follows_an_append_that_was_not_made_is_not_made,
    chains::chains_of_two_processes_make_one_stream,
    chains::who_does_not_wait_for_the_answer_has_appended_all_the_same,
    keys::the_same_request_gets_its_original_positions,
    keys::another_request_under_the_same_key_is_refused,
    keys::each_of_several_keys_stands_for_the_append,
    keys::a_key_is_known_after_many_events,
    keys::a_key_is_known_within_its_own_batch,
    crowds::twenty_at_the_same_version_make_one_event,
    crowds::many_callers_share_commits_and_each_gets_its_own_answer,
    crowds::opposite_orders_of_streams_do_not_deadlock,
    crowds::two_processes_share_one_order,
    crowds::a_poller_between_two_processes_skips_nothing,
    crowds::who_stops_waiting_loses_and_doubles_nothing,
    crowds::one_bad_append_spoils_no_other,
    crowds::interleaved_writers_agree_with_a_model,
    reading::a_stream_is_read_both_ways_in_pages,
    reading::many_streams_are_read_at_once,
    reading::all_is_read_by_type_and_category,
    reading::a_filter_that_matches_nothing_scans_to_the_head,
    reading::filters_use_their_index,
    reading::own_appends_wake_followers_at_once,
    reading::appends_of_other_processes_wake_followers,
    reading::followers_share_one_tailer,
    reading::ledger_time_never_goes_back,
    rows::blobs_come_back_and_are_kept_once,
    rows::leases_are_renewed_by_the_newest_take_only,
    guards::events_are_only_added_at_the_head,
    guards::events_are_never_changed_or_removed,
    guards::keys_are_never_changed_or_removed,
    guards::content_and_salt_can_be_erased_together_only,
    faults::what_is_absent_or_foreign_or_newer_is_said,
    faults::a_reader_makes_nothing,
    faults::two_processes_open_an_empty_database_at_once,
    faults::a_ledger_is_found_again_after_closing,
    erasing::an_erasure_takes_content_and_salt_and_leaves_the_rest,
    erasing::an_erasure_that_is_not_recorded_does_not_happen,
    erasing::what_is_erased_cannot_be_read_in_the_file,
    erasing::what_waits_for_vacuum_is_counted,
    verifying::a_ledger_as_written_verifies,
    verifying::erased_content_verifies,
    verifying::every_kind_of_tampering_is_found,
];

/// What only a database can be tried with: SQL behind the ledger's back, files, commits that are shared.
const OF_DATABASES: &[&str] = &[
    "crowds::many_callers_share_commits_and_each_gets_its_own_answer",
    "reading::appends_of_other_processes_wake_followers",
    "reading::filters_use_their_index",
    "reading::followers_share_one_tailer",
    "reading::ledger_time_never_goes_back",
    "rows::blobs_come_back_and_are_kept_once",
    "guards::",
    "faults::what_is_absent_or_foreign_or_newer_is_said",
    "faults::a_reader_makes_nothing",
    "erasing::what_is_erased_cannot_be_read_in_the_file",
    "verifying::erased_content_verifies",
    "verifying::every_kind_of_tampering_is_found",
];

/// Runs all cases but those `without`, each on a database of its own, and names those that fail.
async fn hold<F: Future<Output = Backend>>(without: &[&str], fresh: impl Fn() -> F) {
    let only = std::env::var("MIDWATCH_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    let asked = |name: &str| name.contains(&only) && !without.iter().any(|left_out| name.starts_with(left_out));
    for (name, run) in CASES.iter().filter(|(name, _)| asked(name)) {
        let backend = fresh().await;
        if tokio::spawn(run(backend)).await.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:#?}", failed.len(), CASES.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_holds_the_contract() {
    hold(&[], || async {
        let (url, guard) = fresh_sqlite();
        Backend { name: "sqlite", url, guard }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_holds_the_contract() {
    hold(&[], || async {
        let (url, guard) = fresh_postgres().await;
        Backend { name: "postgres", url, guard }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_store_holds_the_contract() {
    hold(OF_DATABASES, || async {
        let (url, guard) = fresh_simulated();
        Backend { name: "simulated", url, guard }
    })
    .await;
}
