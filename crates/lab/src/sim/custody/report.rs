//! What happened in a run, counted.

counters! {
    happened {
        /// Payouts, and what rules have made.
        jobs;
        payouts;
        withdrawals;
        /// To another customer's address.
        withdrawals_inside;
        /// In the same words, because no answer had come.
        withdrawals_asked_again;
        /// While policies were switched off.
        withdrawals_refused;
        /// Because a limit of the policies was used up.
        withdrawals_limited;
        /// While their chain or their asset was suspended.
        withdrawals_suspended;
        withdrawals_approved;
        withdrawals_called_off;
        withdrawals_completed;
        withdrawals_failed;
        policies_changed;
        /// Accounts of customers that were held against the judge's own books.
        customers_compared;
        top_ups;
        token_sweeps;
        /// Of tokens, for which gas was brought first.
        waited_for_gas;
        coin_sweeps;
        surpluses;
        /// Hot wallets below their floor, filled from the treasury.
        refills;
        /// By people, of refills.
        approvals;
        /// To users' addresses, by strangers.
        deposits;
        deposits_credited;
        users;
        /// Wallets whose entries were held against the chain.
        balances_compared;
        /// Mined on all chains, also those that left again.
        blocks;
        turns;
        rounds;
        rests;
        audits;
        paid;
        confirmed;
        failed_for_good;
        /// By people, before or after it was out.
        cancel_asked;
        cancelled_in_its_slot;
        bump_asked;
        replacements;
        /// On Bitcoin, of what spends several coins: none of them may be left out.
        several_coins_replaced;
        /// That strangers paid to wallets of Bitcoin.
        small_coins;
        sent_again;
        reverted;
        expired;
        moved_to_another_slot;
        lanes_stopped;
        /// By two people: somebody else had used its slot.
        judged;
        fees_counted;
        /// The books took blocks back.
        books_went_back;
        books_taken_over;
        /// Of those who keep books, who began anew with other settings.
        settings_changed;
    }
    faults {
        killed_at_statement;
        killed_before_commit;
        killed_after_commit;
        killed_before_call;
        killed_after_call;
        killed_at_rest;
        /// In the middle of a round, longer than their leases.
        stalled;
        /// Lanes that another had when one that stood still went on, at each of its turns.
        lanes_lost;
        database_unavailable;
        transactions_retried;
        commit_unknown_done;
        commit_unknown_undone;
        calls_failed;
        no_quorum;
        nodes_down;
        nodes_stuck;
        balances_lied;
        nonces_lied;
        broadcasts_lost;
        broadcasts_forgotten;
        taken_and_refused;
        answers_lost;
        signer_away;
        /// One of several requests, because its cap was reached.
        signer_refused;
        pools_emptied;
        /// Replaced or forgotten, and taken by a miner all the same.
        came_back;
        price_spikes;
        above_the_cap;
        contracts_paused;
        chains_suspended;
        assets_suspended;
        reorganisations;
        deeper_than_confirmations;
        clock_jumps;
        clock_set_back;
        stolen_keys;
        token_shortages;
    }
}
