//! What happened in a run, counted.

counters! {
    happened {
        /// Mined on both chains, also those that left again.
        blocks;
        transactions;
        /// Rounds that workers ended.
        rounds;
        turns;
        /// Times that the judge looked, at the moment and at rest.
        judged;
        judged_at_rest;
        audits;
        addresses;
        /// Paid in the next block after they were shown.
        addresses_paid_at_once;
        credited;
        /// The same payment, mined again.
        credited_again;
        became_final;
        refused;
        orphaned;
        reversed;
        /// Of those: when they were as deep as can be withdrawn.
        reversed_after_final;
        receivables;
        accounts_frozen;
        /// A payment that was mined again repaid what its user owed.
        debts_repaid;
        left_house_wallet;
        left_below_minimum;
        left_beyond_ledger;
        left_account_disabled;
        left_row_differs;
        assigned;
        with_remainder;
        several_outputs;
        inside_contracts;
        top_ups;
        sweeps;
        foreign_spends;
        fees_of_ours;
        failed_transactions;
        air;
        /// By a token that is listed.
        logged_without_paying;
        /// Not credited, because the address has not got the coins that a log says it was paid.
        left_balance_differs;
        /// 2^256 - 1.
        largest_amounts;
        spent_by_users;
        balances_looked_at;
        /// By a worker that had to begin anew with other settings.
        settings_changed;
    }
    faults {
        killed_at_statement;
        killed_before_commit;
        killed_after_commit;
        killed_before_call;
        killed_after_call;
        killed_at_rest;
        database_unavailable;
        database_cut_off;
        transactions_retried;
        commit_unknown_done;
        commit_unknown_undone;
        calls_failed;
        scans_too_long;
        no_quorum;
        blocks_missing;
        blocks_not_proven;
        nodes_down;
        nodes_stuck;
        nodes_from_an_older_state;
        lies_left_out;
        lies_inflated;
        lies_invented;
        lies_misplaced;
        lies_forked;
        proof_took_in;
        proof_disproved;
        reorganisations;
        deeper_than_confirmations;
        deeper_than_final;
        went_back;
        mined_again;
        replaced;
        dropped;
        fenced;
        waited_for_the_lease;
        clock_jumps;
        clock_set_back;
        suspended;
        rows_spoilt;
        /// A user whose address a thief's row has was shown none.
        addresses_refused;
        status_changes;
    }
}
