//! Every case of the delivery suite, by theme: the one list of them. The suite and the tests that run it are both made
//! from the list, and a case that is written and not listed does not compile: it is never used.

/// Calls the macro `$then` with `$with` and one of the two lists: `every` delivery, or those with a broker besides.
#[doc(hidden)]
#[macro_export]
macro_rules! delivery_cases {
    (every; $then:path; $($with:tt)*) => {
        $then! { $($with)*;
            hints {
                a_waiting_worker_is_woken,
                what_comes_between_arming_and_waiting_is_not_missed,
                what_was_queued_before_anybody_ran_is_found,
                another_process_hears,
            }
            competing {
                every_chunk_is_claimed_once,
            }
        }
    };
    (brokered; $then:path; $($with:tt)*) => {
        $then! { $($with)*;
            competing {
                a_message_is_held_until_its_receipt_is_dropped,
                what_is_not_wanted_goes_to_others,
                a_stop_acknowledges_what_is_done_with,
            }
            window {
                no_more_than_the_window_is_announced,
                a_paused_queue_blocks_no_other,
                a_relay_that_died_delays_its_batch,
            }
            foreign {
                what_is_not_ours_is_parked_and_others_go_on,
                the_short_form_is_understood,
            }
            parking {
                a_dead_chunk_is_parked_once,
            }
            outages {
                a_broker_that_is_killed_and_comes_back,
                a_broker_that_was_away_for_the_whole_submission,
                a_broker_that_lost_everything,
            }
        }
    };
}
