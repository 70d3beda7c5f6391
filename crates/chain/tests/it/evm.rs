//! The client of EVM chains: one suite for every network that can be driven, and hostile nodes that no network is.

mod delegated;
mod fake;
mod heads;
mod hostile;
mod lies;
mod net;
mod second_node;
mod suite;

/// Makes a test of every case on every network.
macro_rules! on_networks {
    ($($case:ident)*) => {
        mod anvil {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::suite::$case(&super::net::Net::anvil().await).await;
                }
            )*
        }

        mod devnet {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::suite::$case(&super::net::Net::devnet().await).await;
                }
            )*
        }
    };
}

on_networks! {
    a_payment_of_the_native_coin_is_found_and_proven
    a_token_that_returns_nothing_is_found_by_its_log
    what_reverted_is_told_as_not_ok
    a_token_that_returns_false_pays_nothing
    a_fee_on_transfer_is_not_credited
    a_token_that_was_delisted_is_judged_as_before
    an_unlisted_contract_is_not_believed
    logs_are_counted_within_their_transaction
    internal_transfers_are_found_and_undone_ones_are_not
    every_balance_is_what_came_less_what_left
    transactions_of_all_types_are_proven
    ten_payments_of_one_transaction_stay_ten
    a_reorg_of_twenty_blocks_is_seen
    the_loser_of_a_replacement_becomes_impossible
    a_nonce_that_moved_on_proves_nothing_before_it_is_settled
    what_was_never_sent_is_unknown
    what_waits_is_in_the_mempool
    a_broadcast_can_be_repeated
    refusals_are_understood
    a_failed_call_is_mined_and_costs_its_fee
    balances_of_five_hundred_accounts
    quotes_stay_below_their_cap
    many_at_once_are_told_what_each_alone_is_told
    nonces_count_what_waits
    the_network_is_checked
    a_block_above_the_tip_is_missing
    blocks_are_read_in_any_batch
}
