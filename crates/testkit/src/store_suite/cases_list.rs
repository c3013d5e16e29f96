//! Every case of the store suite, by theme: the one list of them. The suite and the tests that run it are both made
//! from the list, and a case that is written and not listed does not compile: it is never used.

/// Calls the macro `$then` with `$with` and the list.
#[doc(hidden)]
#[macro_export]
macro_rules! store_cases {
    ($then:path; $($with:tt)*) => {
        $then! { $($with)*;
            submit {
                a_job_is_stored_and_read_back,
                an_unknown_queue_stores_nothing,
                the_same_request_finds_the_same_job,
                another_request_under_the_key_conflicts,
                keys_belong_to_their_owner,
                twenty_at_once_make_one_job,
                a_key_is_free_after_the_window,
                a_key_is_held_while_the_window_lasts,
                a_future_run_at_waits_for_the_stager,
                a_large_job_is_one_submission,
            }
            unique {
                an_equal_job_is_there_once_while_unfinished,
                an_ended_job_makes_room_for_an_equal_one,
                the_idempotency_key_is_looked_at_first,
                fifty_equal_jobs_at_once_make_one,
                a_redrive_waits_for_a_newer_equal_job,
                a_skipped_job_holds_no_other_back,
                redrive_against_an_equal_submission,
                a_batch_answers_in_its_order,
                a_batch_is_stored_whole_or_not_at_all,
                a_thousand_jobs_are_one_batch,
                batches_that_cross_store_each_key_once,
            }
            dependencies {
                a_job_waits_for_the_last_of_its_parents,
                a_parent_that_has_ended_holds_nobody_up,
                a_bad_end_does_what_the_policy_says,
                a_parent_that_completes_after_all_releases_its_child,
                a_child_that_ran_all_the_same_is_not_released_twice,
                after_a_bad_end_nothing_is_waited_for,
                a_parent_is_kept_while_another_waits_for_it,
                a_parent_that_was_pruned_meanwhile_releases_its_child,
                a_large_child_is_released_in_batches,
                unknown_parents_store_nothing,
                cancelling_what_waits_ends_it,
                a_diamond_closes_once,
                submitting_against_the_parents_end,
            }
            identity {
                who_asked_is_stored_and_read_back,
                a_list_shows_what_may_be_seen,
                anothers_job_is_not_read,
                an_owner_never_passes_the_quota,
                a_quota_hides_no_job_that_is_there,
                the_audit_trail_is_kept_in_order,
                submissions_are_on_record,
            }
            schedules {
                a_schedule_is_stored_and_read_back,
                a_repeated_put_changes_nothing,
                a_parked_schedule_goes_on_when_it_is_put_again,
                what_it_says_raises_the_version,
                the_configuration_goes_before_the_api,
                configured_schedules_are_these_and_no_others,
                a_paused_schedule_is_not_due_until_resumed,
                the_longest_overdue_comes_first,
            }
            schedule_fires {
                a_firing_is_recorded_and_moves_on,
                a_firing_that_lost_stores_nothing,
                by_hand_it_fires_also_while_paused,
                eight_at_once_fire_a_slot_once,
                firing_against_changes,
                overlap_skip_leaves_slots_out,
                overlap_queue_waits_for_the_earlier_job,
                overlap_queue_waits_whosever_the_earlier_job_is,
                overlap_allow_waits_for_nobody,
                slots_of_one_firing_do_not_skip_each_other,
                what_stands_in_the_way_of_a_job_is_recorded,
                a_recorded_slot_is_left_out,
                deleting_takes_the_slots_along,
                old_slots_are_pruned,
            }
            triggers {
                a_trigger_is_stored_and_read_back,
                the_configuration_goes_before_the_api,
                a_cycle_is_refused,
                halves_of_a_cycle_at_once,
                deleting_takes_arrivals_and_firings_along,
                a_trigger_does_not_look_back,
                another_label_begins_anew,
                a_parent_that_completes_after_all_arrives,
                a_job_that_a_repair_completes_arrives,
            }
            trigger_sets {
                one_term_fires_for_every_job,
                a_pair_fires_in_either_order,
                waiting_is_shown_newest_first,
                values_that_differ_make_no_set,
                what_is_too_far_apart_makes_no_set,
                a_parent_that_ran_again_fires_a_new_set,
                completions_are_judged_in_their_order,
                judging_at_once_fires_each_set_once,
            }
            trigger_fires {
                a_job_that_is_gone_fires_nothing,
                a_due_firing_submits_its_job_once,
                what_stands_in_the_way_of_a_job_is_recorded,
                what_is_due_does_not_outlive_what_was_asked_for,
                sets_are_of_one_owner_unless_the_trigger_has_its_own,
                one_term_remembers_no_arrivals,
                a_diamond_of_triggers_closes_once,
                old_firings_are_pruned,
            }
            claim {
                a_worker_can_ask_what_runs_under_its_name,
                a_claim_tells_all_that_a_worker_needs,
                what_is_claimed_together_starts_together,
                limits_hold_per_queue_and_in_all,
                priority_goes_first_then_turn,
                large_jobs_share_and_small_ones_do_not_wait,
                a_step_of_zero_is_first_come_first_served,
                turns_are_those_of_core,
                a_turn_is_kept_through_retries,
                stopped_jobs_and_paused_queues_give_nothing,
                wanting_nothing_gives_nothing,
            }
            priority {
                a_raised_job_is_claimed_first,
                what_waits_has_it_when_it_is_staged,
                ended_jobs_keep_their_priority,
                prioritising_against_claims,
            }
            progress {
                progress_is_summed_up_by_job,
                only_the_owner_records_progress,
                progress_never_goes_backwards,
                running_chunks_show_how_far_they_are,
                what_is_settled_is_in_the_counts_alone,
                recording_against_finishing,
                reports_that_cross_do_not_deadlock,
            }
            shown_version {
                a_larger_number_is_a_newer_state,
            }
            finish {
                finishing_counts_and_completes,
                a_batch_records_what_is_still_owned,
                a_result_is_kept_with_its_job,
                a_lease_named_twice_counts_once,
                a_stale_lease_beside_the_current_one_changes_nothing,
                one_batch_may_finish_several_jobs,
                a_retry_waits_for_its_backoff,
                giving_back_is_free_three_times_in_a_row,
                a_snooze_is_not_an_attempt,
                only_cancelled_jobs_have_chunks_stopped,
            }
            ending {
                the_first_dead_chunk_stops_the_job,
                continue_fails_when_all_are_settled,
                a_chunk_without_key_fails_with_its_cause,
                a_step_that_fails_is_named,
                cancelling_settles_when_nothing_runs,
                of_many_cancellations_one_cancels,
                cancelling_an_ended_job_is_too_late,
                redrive_queues_dead_and_held_chunks,
                redrive_goes_on_with_a_continuing_job,
                redrive_has_nothing_to_do_elsewhere,
            }
            steps {
                later_attempts_find_what_was_recorded,
                a_result_is_returned_byte_for_byte,
                a_step_is_recorded_once,
                only_the_owner_records_steps,
                a_step_changes_the_jobs_version,
                internal_steps_are_not_listed,
                recording_against_reaping,
                params_are_claimed_intact,
                params_that_cannot_be_read_fail_alone,
            }
            history {
                a_plain_success_writes_no_history,
                a_full_life_is_that_of_the_state_machine,
                waiting_and_giving_back_are_told,
                holding_and_redriving_are_told,
                cancelling_is_told,
                lost_leases_are_told,
                history_pages_completely,
            }
            dead_letters {
                a_dead_chunk_is_a_letter_until_it_is_redriven,
                operators_are_told_more,
                letters_page_newest_first,
                letters_are_filtered,
                a_redrive_takes_the_oldest_first,
                other_dead_chunks_of_a_job_stay_dead,
                letters_of_cancelled_jobs_stay,
                a_redrive_is_on_record_with_each_of_its_jobs,
                twenty_redrives_at_once_move_each_letter_once,
            }
            leases {
                a_heartbeat_moves_the_lease_on,
                a_stale_fence_is_refused_by_every_verb,
                only_a_lease_that_ran_out_expires,
                expired_chunks_that_nobody_may_judge_hide_no_others,
                lost_leases_are_counted_in_a_row,
                an_expired_chunk_of_a_cancelled_job_is_cancelled,
                an_expired_lease_may_not_publish,
            }
            races {
                claimers_share_no_chunk,
                claim_against_reap,
                finish_against_reap,
                heartbeat_against_reap,
                cancel_against_finish,
                two_last_finishes_complete_the_job_once,
                two_last_failures_end_the_job_once,
                batches_that_cross_do_not_deadlock,
                fifty_redrives_redrive_once,
                redrive_against_stage,
            }
            budget {
                queues_are_made_once_and_keep_their_keys,
                slots_are_never_more_than_the_budget,
                a_slot_is_handed_over_when_its_lease_ran_out,
                a_heartbeat_keeps_slots,
                a_leaving_worker_frees_its_slots,
                a_changed_budget_changes_the_slots,
                queues_show_what_waits_and_runs,
                workers_are_known_by_their_start,
            }
            files {
                a_writer_publishes_and_is_recorded,
                one_writer_at_a_time,
                what_may_be_reused,
                a_newer_generation_supersedes,
                equal_bytes_of_a_later_generation_are_current,
                a_replaced_record_has_no_file,
                only_the_writer_records_a_file,
                the_next_writer_gets_the_leftover,
                leftovers_are_listed_until_removed,
                leases_that_ended_are_told_from_those_that_run,
                recorded_files_are_found_by_key_and_date,
                a_file_is_got_by_its_own_job_only,
            }
            base_paths {
                the_first_writer_makes_a_base_path_its_datasets,
                datasets_that_race_for_a_base_path_do_not_both_win,
            }
            lists {
                jobs_page_newest_first,
                jobs_are_filtered,
                jobs_are_got_by_their_ids,
                chunks_page_completely,
                files_page_completely,
            }
            upkeep {
                the_store_is_ready_and_has_a_name,
                wakeups_reach_other_processes,
                staging_holds_and_cancels_in_batches,
                what_sweeps_have_to_do_is_told,
                counts_are_repaired,
                a_job_stuck_by_wrong_counts_ends,
                busy_jobs_are_left_alone_by_repair,
                pruning_takes_old_finished_jobs_only,
                pruning_keeps_files_and_leftovers,
                pruning_takes_steps_and_history_along,
                pruning_leaves_no_progress,
                workers_that_are_gone_are_pruned,
            }
            text {
                hostile_text_is_stored_and_read_back,
                nul_breaks_nothing,
            }
            announcements {
                an_announcement_tells_all_that_a_message_needs,
                the_window_holds_per_queue,
                the_window_counts_only_what_is_announced,
                announcements_go_in_claim_order,
                only_what_may_start_is_announced,
                what_comes_back_is_announced_at_once,
                what_was_told_in_vain_is_announced_again,
                a_confirm_that_comes_late_harms_nothing,
                a_pruned_job_is_not_announced,
                relays_at_once_never_pass_the_window,
            }
            announcement_times {
                every_repetition_lasts_twice_as_long,
                what_has_no_slot_is_deferred_with_the_claim,
                what_could_not_be_deferred_is_busy,
                only_ones_own_mark_is_confirmed,
                a_batch_is_confirmed_whole,
                what_is_cleared_is_announced_at_once,
                what_is_deferred_waits_twice_as_long_each_time,
                what_is_deferred_before_the_confirm_stays_so,
                a_doubt_shortens_all,
            }
            named_claims {
                a_named_claim_is_like_any_other,
                a_named_claim_is_told,
                a_named_claim_expires,
                what_is_left_is_told_why,
                what_must_wait_is_told_why,
                limits_hold_in_the_order_of_the_names,
                foreign_text_names_nothing,
                named_claimers_share_no_chunk,
            }
            outbox {
                a_death_leaves_one_message,
                only_a_death_is_parked,
                a_lease_lost_for_good_is_parked,
                chunks_that_die_with_a_parent_are_parked,
                a_chunk_that_dies_again_is_parked_again,
                a_death_and_its_message_are_one,
                hostile_text_is_parked_as_it_is,
                messages_are_taken_in_order_by_one_at_a_time,
                the_lag_tells_what_waits,
                relays_at_once_share_no_message,
                deaths_at_once_are_parked_once_each,
            }
            model {
                stores_agree_with_the_state_machine,
            }
            storm {
                a_mixed_storm_loses_nothing,
            }
            delivery_storm {
                messages_lost_and_repeated_lose_no_chunk,
            }
        }
    };
}
