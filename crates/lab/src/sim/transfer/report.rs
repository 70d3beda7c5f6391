//! What happened in a run, counted.

counters! {
    happened {
        /// Recorded, acknowledged or not.
        transfers;
        /// Orders that clients placed. The report prints this name, so it stays.
        wishes;
        batches;
        rejected;
        /// Rejected because a daily limit was used up: the number of transfers, and the sum of an asset.
        daily_counts_full;
        daily_amounts_full;
        duplicates;
        committed_to_spot;
        committed_to_funding;
        failed_to_spot;
        failed_to_funding;
        rolled_back_to_spot;
        rolled_back_to_funding;
        /// A transfer whose way back took more than one commit.
        compensating;
        /// Calls that make a withdrawal final: in one half of each run the engine is one that freezes first.
        commits_called;
        /// Turns that the scheduler gave.
        turns;
        law_checks;
        /// Transfers whose end was told to the client and looked up again later.
        ends_checked_again;
    }
    faults {
        killed_at_statement;
        killed_before_commit;
        killed_after_commit;
        /// Before the call was sent, and after it was carried out.
        killed_before_call;
        killed_after_call;
        /// While none of its tasks had the turn.
        killed_at_rest;
        /// A create whose process died or was not told, and whose transfers were there all the same.
        unacknowledged_kept;
        database_unavailable;
        database_cut_off;
        transactions_retried;
        commit_unknown_done;
        commit_unknown_undone;
        calls_lost;
        answers_lost;
        calls_twice;
        /// Calls that were sent, given up by the caller, and carried out later.
        calls_late;
        late_after_the_end;
        answers_miscounted;
        answers_undecided;
        /// Ids that the engine takes for ones from the future.
        answers_too_early;
        /// The coordinator's own patience ended.
        call_timeouts;
        leg_outages;
        calls_in_outage;
        /// Calls for a transfer that another worker was calling for at that moment.
        competing_calls;
        steps_on_old_rows;
        engine_crashes;
        engine_batches_lost;
        /// Batches that were on the engine's disk although their callers got no answer.
        engine_batches_kept;
        engine_interrupted_recoveries;
        engine_snapshots;
        status_changes;
        clock_jumps;
        names_sent_again;
        names_with_other_content;
    }
}
