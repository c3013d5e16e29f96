//! The conformance suite of [`Store`]: one list of cases, run against every store by one call.
//! A case that is in the list runs on all of them; each gets a fresh database of its own.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use outhaul_core::store::{Store, StoreSettings};

use crate::suite::{Case, Run, cases};

mod announcement_times;
mod announcements;
mod base_paths;
mod bench;
mod budget;
mod claim;
mod dead_letters;
mod delivery_storm;
mod dependencies;
mod ending;
mod files;
mod finish;
mod history;
mod identity;
mod leases;
mod lists;
mod model;
mod named_claims;
mod outbox;
mod priority;
mod probe;
mod progress;
mod races;
mod schedule_fires;
mod schedules;
mod shown_version;
mod steps;
mod storm;
mod submit;
mod text;
mod trigger_fires;
mod trigger_sets;
mod triggers;
mod unique;
mod upkeep;

use bench::Kit;
pub use probe::Probe;

/// A fresh, empty store on a database of its own, and what the suite may do with it.
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same database as another process would open it; `None`: the store serves one process only,
    /// and races are between tasks of that one.
    pub second: Option<Arc<dyn Store>>,
    /// A way past the store, to compare what it says with what the rows say.
    pub probe: Probe,
    /// What must live as long as the database: a folder, a database that is dropped with it.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Every case. The compiler warns of a case that is written and not listed: it is never used.
fn all() -> Vec<Case<Kit>> {
    cases![
        submit::a_job_is_stored_and_read_back,
        submit::an_unknown_queue_stores_nothing,
        submit::the_same_request_finds_the_same_job,
        submit::another_request_under_the_key_conflicts,
        submit::keys_belong_to_their_owner,
        submit::twenty_at_once_make_one_job,
        submit::a_key_is_free_after_the_window,
        submit::a_key_is_held_while_the_window_lasts,
        submit::a_future_run_at_waits_for_the_stager,
        submit::a_large_job_is_one_submission,
        unique::an_equal_job_is_there_once_while_unfinished,
        unique::an_ended_job_makes_room_for_an_equal_one,
        unique::the_idempotency_key_is_looked_at_first,
        unique::fifty_equal_jobs_at_once_make_one,
        unique::a_redrive_waits_for_a_newer_equal_job,
        unique::a_skipped_job_holds_no_other_back,
        unique::redrive_against_an_equal_submission,
        unique::a_batch_answers_in_its_order,
        unique::a_batch_is_stored_whole_or_not_at_all,
        unique::a_thousand_jobs_are_one_batch,
        unique::batches_that_cross_store_each_key_once,
        dependencies::a_job_waits_for_the_last_of_its_parents,
        dependencies::a_parent_that_has_ended_holds_nobody_up,
        dependencies::a_bad_end_does_what_the_policy_says,
        dependencies::a_parent_that_completes_after_all_releases_its_child,
        dependencies::a_child_that_ran_all_the_same_is_not_released_twice,
        dependencies::after_a_bad_end_nothing_is_waited_for,
        dependencies::a_parent_is_kept_while_another_waits_for_it,
        dependencies::a_parent_that_was_pruned_meanwhile_releases_its_child,
        dependencies::a_large_child_is_released_in_batches,
        dependencies::unknown_parents_store_nothing,
        dependencies::cancelling_what_waits_ends_it,
        dependencies::a_diamond_closes_once,
        dependencies::submitting_against_the_parents_end,
        identity::who_asked_is_stored_and_read_back,
        identity::a_list_shows_what_may_be_seen,
        identity::anothers_job_is_not_read,
        identity::an_owner_never_passes_the_quota,
        identity::a_quota_hides_no_job_that_is_there,
        identity::the_audit_trail_is_kept_in_order,
        identity::submissions_are_on_record,
        schedules::a_schedule_is_stored_and_read_back,
        schedules::a_repeated_put_changes_nothing,
        schedules::a_parked_schedule_goes_on_when_it_is_put_again,
        schedules::what_it_says_raises_the_version,
        schedules::the_configuration_goes_before_the_api,
        schedules::configured_schedules_are_these_and_no_others,
        schedules::a_paused_schedule_is_not_due_until_resumed,
        schedules::the_longest_overdue_comes_first,
        schedule_fires::a_firing_is_recorded_and_moves_on,
        schedule_fires::a_firing_that_lost_stores_nothing,
        schedule_fires::by_hand_it_fires_also_while_paused,
        schedule_fires::eight_at_once_fire_a_slot_once,
        schedule_fires::firing_against_changes,
        schedule_fires::overlap_skip_leaves_slots_out,
        schedule_fires::overlap_queue_waits_for_the_earlier_job,
        schedule_fires::overlap_queue_waits_whosever_the_earlier_job_is,
        schedule_fires::overlap_allow_waits_for_nobody,
        schedule_fires::slots_of_one_firing_do_not_skip_each_other,
        schedule_fires::what_stands_in_the_way_of_a_job_is_recorded,
        schedule_fires::a_recorded_slot_is_left_out,
        schedule_fires::deleting_takes_the_slots_along,
        schedule_fires::old_slots_are_pruned,
        triggers::a_trigger_is_stored_and_read_back,
        triggers::the_configuration_goes_before_the_api,
        trigger_sets::one_term_fires_for_every_job,
        trigger_sets::a_pair_fires_in_either_order,
        trigger_sets::waiting_is_shown_newest_first,
        trigger_sets::values_that_differ_make_no_set,
        trigger_sets::what_is_too_far_apart_makes_no_set,
        trigger_sets::a_parent_that_ran_again_fires_a_new_set,
        trigger_sets::completions_are_judged_in_their_order,
        trigger_sets::judging_at_once_fires_each_set_once,
        triggers::a_cycle_is_refused,
        triggers::halves_of_a_cycle_at_once,
        triggers::deleting_takes_arrivals_and_firings_along,
        triggers::a_trigger_does_not_look_back,
        triggers::another_label_begins_anew,
        triggers::a_parent_that_completes_after_all_arrives,
        triggers::a_job_that_a_repair_completes_arrives,
        trigger_fires::a_job_that_is_gone_fires_nothing,
        trigger_fires::a_due_firing_submits_its_job_once,
        trigger_fires::what_stands_in_the_way_of_a_job_is_recorded,
        trigger_fires::what_is_due_does_not_outlive_what_was_asked_for,
        trigger_fires::sets_are_of_one_owner_unless_the_trigger_has_its_own,
        trigger_fires::one_term_remembers_no_arrivals,
        trigger_fires::a_diamond_of_triggers_closes_once,
        trigger_fires::old_firings_are_pruned,
        claim::a_worker_can_ask_what_runs_under_its_name,
        claim::a_claim_tells_all_that_a_worker_needs,
        claim::what_is_claimed_together_starts_together,
        claim::limits_hold_per_queue_and_in_all,
        claim::priority_goes_first_then_turn,
        claim::large_jobs_share_and_small_ones_do_not_wait,
        claim::a_step_of_zero_is_first_come_first_served,
        claim::turns_are_those_of_core,
        claim::a_turn_is_kept_through_retries,
        claim::stopped_jobs_and_paused_queues_give_nothing,
        claim::wanting_nothing_gives_nothing,
        priority::a_raised_job_is_claimed_first,
        priority::what_waits_has_it_when_it_is_staged,
        priority::ended_jobs_keep_their_priority,
        priority::prioritising_against_claims,
        progress::progress_is_summed_up_by_job,
        progress::only_the_owner_records_progress,
        progress::progress_never_goes_backwards,
        progress::running_chunks_show_how_far_they_are,
        progress::what_is_settled_is_in_the_counts_alone,
        progress::recording_against_finishing,
        progress::reports_that_cross_do_not_deadlock,
        shown_version::a_larger_number_is_a_newer_state,
        finish::finishing_counts_and_completes,
        finish::a_batch_records_what_is_still_owned,
        finish::a_result_is_kept_with_its_job,
        finish::a_lease_named_twice_counts_once,
        finish::a_stale_lease_beside_the_current_one_changes_nothing,
        finish::one_batch_may_finish_several_jobs,
        finish::a_retry_waits_for_its_backoff,
        finish::giving_back_is_free_three_times_in_a_row,
        finish::a_snooze_is_not_an_attempt,
        finish::only_cancelled_jobs_have_chunks_stopped,
        ending::the_first_dead_chunk_stops_the_job,
        ending::continue_fails_when_all_are_settled,
        ending::a_chunk_without_key_fails_with_its_cause,
        ending::a_step_that_fails_is_named,
        ending::cancelling_settles_when_nothing_runs,
        ending::of_many_cancellations_one_cancels,
        ending::cancelling_an_ended_job_is_too_late,
        ending::redrive_queues_dead_and_held_chunks,
        ending::redrive_goes_on_with_a_continuing_job,
        ending::redrive_has_nothing_to_do_elsewhere,
        steps::later_attempts_find_what_was_recorded,
        steps::a_result_is_returned_byte_for_byte,
        steps::a_step_is_recorded_once,
        steps::only_the_owner_records_steps,
        steps::a_step_changes_the_jobs_version,
        steps::internal_steps_are_not_listed,
        steps::recording_against_reaping,
        steps::params_are_claimed_intact,
        steps::params_that_cannot_be_read_fail_alone,
        history::a_plain_success_writes_no_history,
        history::a_full_life_is_that_of_the_state_machine,
        history::waiting_and_giving_back_are_told,
        history::holding_and_redriving_are_told,
        history::cancelling_is_told,
        history::lost_leases_are_told,
        history::history_pages_completely,
        dead_letters::a_dead_chunk_is_a_letter_until_it_is_redriven,
        dead_letters::operators_are_told_more,
        dead_letters::letters_page_newest_first,
        dead_letters::letters_are_filtered,
        dead_letters::a_redrive_takes_the_oldest_first,
        dead_letters::other_dead_chunks_of_a_job_stay_dead,
        dead_letters::letters_of_cancelled_jobs_stay,
        dead_letters::a_redrive_is_on_record_with_each_of_its_jobs,
        dead_letters::twenty_redrives_at_once_move_each_letter_once,
        leases::a_heartbeat_moves_the_lease_on,
        leases::a_stale_fence_is_refused_by_every_verb,
        leases::only_a_lease_that_ran_out_expires,
        leases::expired_chunks_that_nobody_may_judge_hide_no_others,
        leases::lost_leases_are_counted_in_a_row,
        leases::an_expired_chunk_of_a_cancelled_job_is_cancelled,
        leases::an_expired_lease_may_not_publish,
        races::claimers_share_no_chunk,
        races::claim_against_reap,
        races::finish_against_reap,
        races::heartbeat_against_reap,
        races::cancel_against_finish,
        races::two_last_finishes_complete_the_job_once,
        races::two_last_failures_end_the_job_once,
        races::batches_that_cross_do_not_deadlock,
        races::fifty_redrives_redrive_once,
        races::redrive_against_stage,
        budget::queues_are_made_once_and_keep_their_keys,
        budget::slots_are_never_more_than_the_budget,
        budget::a_slot_is_handed_over_when_its_lease_ran_out,
        budget::a_heartbeat_keeps_slots,
        budget::a_leaving_worker_frees_its_slots,
        budget::a_changed_budget_changes_the_slots,
        budget::queues_show_what_waits_and_runs,
        budget::workers_are_known_by_their_start,
        files::a_writer_publishes_and_is_recorded,
        files::one_writer_at_a_time,
        files::what_may_be_reused,
        files::a_newer_generation_supersedes,
        files::equal_bytes_of_a_later_generation_are_current,
        files::a_replaced_record_has_no_file,
        files::only_the_writer_records_a_file,
        files::the_next_writer_gets_the_leftover,
        files::leftovers_are_listed_until_removed,
        files::leases_that_ended_are_told_from_those_that_run,
        files::recorded_files_are_found_by_key_and_date,
        files::a_file_is_got_by_its_own_job_only,
        base_paths::the_first_writer_makes_a_base_path_its_datasets,
        base_paths::datasets_that_race_for_a_base_path_do_not_both_win,
        lists::jobs_page_newest_first,
        lists::jobs_are_filtered,
        lists::jobs_are_got_by_their_ids,
        lists::chunks_page_completely,
        lists::files_page_completely,
        upkeep::the_store_is_ready_and_has_a_name,
        upkeep::wakeups_reach_other_processes,
        upkeep::staging_holds_and_cancels_in_batches,
        upkeep::counts_are_repaired,
        upkeep::a_job_stuck_by_wrong_counts_ends,
        upkeep::busy_jobs_are_left_alone_by_repair,
        upkeep::pruning_takes_old_finished_jobs_only,
        upkeep::pruning_keeps_files_and_leftovers,
        upkeep::pruning_takes_steps_and_history_along,
        upkeep::pruning_leaves_no_progress,
        upkeep::workers_that_are_gone_are_pruned,
        text::hostile_text_is_stored_and_read_back,
        text::nul_breaks_nothing,
        announcements::an_announcement_tells_all_that_a_message_needs,
        announcements::the_window_holds_per_queue,
        announcements::the_window_counts_only_what_is_announced,
        announcements::announcements_go_in_claim_order,
        announcements::only_what_may_start_is_announced,
        announcements::what_comes_back_is_announced_at_once,
        announcements::what_was_told_in_vain_is_announced_again,
        announcements::a_confirm_that_comes_late_harms_nothing,
        announcements::a_pruned_job_is_not_announced,
        announcements::relays_at_once_never_pass_the_window,
        announcement_times::every_repetition_lasts_twice_as_long,
        announcement_times::what_has_no_slot_is_deferred_with_the_claim,
        announcement_times::what_could_not_be_deferred_is_busy,
        announcement_times::only_ones_own_mark_is_confirmed,
        announcement_times::a_batch_is_confirmed_whole,
        announcement_times::what_is_cleared_is_announced_at_once,
        announcement_times::what_is_deferred_waits_twice_as_long_each_time,
        announcement_times::what_is_deferred_before_the_confirm_stays_so,
        announcement_times::a_doubt_shortens_all,
        named_claims::a_named_claim_is_like_any_other,
        named_claims::a_named_claim_is_told,
        named_claims::a_named_claim_expires,
        named_claims::what_is_left_is_told_why,
        named_claims::what_must_wait_is_told_why,
        named_claims::limits_hold_in_the_order_of_the_names,
        named_claims::foreign_text_names_nothing,
        named_claims::named_claimers_share_no_chunk,
        outbox::a_death_leaves_one_message,
        outbox::only_a_death_is_parked,
        outbox::a_lease_lost_for_good_is_parked,
        outbox::chunks_that_die_with_a_parent_are_parked,
        outbox::a_chunk_that_dies_again_is_parked_again,
        outbox::a_death_and_its_message_are_one,
        outbox::hostile_text_is_parked_as_it_is,
        outbox::messages_are_taken_in_order_by_one_at_a_time,
        outbox::the_lag_tells_what_waits,
        outbox::relays_at_once_share_no_message,
        outbox::deaths_at_once_are_parked_once_each,
        model::stores_agree_with_the_state_machine,
        storm::a_mixed_storm_loses_nothing,
        delivery_storm::messages_lost_and_repeated_lose_no_chunk,
    ]
}

/// Cases at work at one moment: enough to overlap waiting, few enough for a small server.
const AT_ONCE: usize = 4;

/// Runs every case against stores that `make` opens, each on an empty database of its own, and panics
/// with the names of all that failed. `OUTHAUL_SUITE_ONLY=<part of a name>` picks cases while working
/// on a store; `OUTHAUL_SUITE_SEED` repeats the random ones.
pub async fn exercise<F, Made>(make: F)
where
    F: Fn(StoreSettings) -> Made + Send + Sync + 'static,
    Made: Future<Output = Fixture> + Send + 'static,
{
    let make: Arc<bench::Make> = Arc::new(move |settings| Box::pin(make(settings)));
    let mut run = Run::from_environment();
    run.cases(all(), AT_ONCE, |notes| Kit::new(make.clone(), notes)).await;
    run.end();
}
