//! A payment that no index knows is looked for block by block, for as long as it takes.

use chain::Status;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::status::Reason;

use super::devnet::Devnet;
use super::{BTC, CONFIRMATIONS, Net, REGTEST, address, coins, height, signed, status, take};
use crate::nodes::bitcoind::pool;

/// One call reads so many blocks at most.
const SEARCH: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_is_looked_for_without_an_end() {
    let mut net = Devnet::start().await;
    let settings =
        BitcoinSettings { confirmations: CONFIRMATIONS, search_blocks: SEARCH, ..BitcoinSettings::new(REGTEST) };
    let client = || BitcoinChain::new(settings, pool(&[net.endpoint()], 1));
    let chain = client();
    let fresh = client();
    let coin = coins(&mut net, 2, &[BTC]).await;
    let loser = signed(&chain, 2, &coin, &[(address(3), BTC - 5_000)]).await;
    // What takes its coin comes only much later than one call reads.
    net.mine(4 * SEARCH).await;
    let winner = signed(&chain, 2, &coin, &[(address(4), BTC - 20_000)]).await;
    take(&chain, &winner).await;
    net.mine(1).await;
    let at = height(&chain).await;
    net.mine(CONFIRMATIONS).await;
    let mut calls = 1;
    let proof = loop {
        match status(&chain, &loser).await {
            Status::Unknown => calls += 1,
            Status::Impossible(proof) => break proof,
            other => panic!("{other:?}"),
        }
        assert!(calls < 10, "it does not come to an end");
    };
    let Reason::InputSpent { by, block, .. } = proof.reason() else { panic!("{proof:?}") };
    assert_eq!((by, block.height), (winner.sent.hash, at));
    assert_eq!(calls, 5, "each call reads ten blocks and no more, and none of them twice");
    // A settled block that is replaced all the same: what was read of it does not count.
    assert_eq!(status(&fresh, &loser).await, Status::Unknown);
    assert_eq!(status(&fresh, &loser).await, Status::Unknown);
    let depth = height(&chain).await - loser.sent.since - SEARCH - 5;
    let loser_bytes = loser.bytes.clone();
    net.reorg(depth, &[loser_bytes]).await;
    for _ in 0..10 {
        if matches!(status(&fresh, &loser).await, Status::Mined(_)) {
            return;
        }
    }
    panic!("it is in a block");
}
