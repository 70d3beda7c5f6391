//! Blocks and waiting transactions as bytes, for whoever keeps a wallet's outputs.

use tx::{BlockHash, BlockRef};

use super::*;

const UNKNOWN: TxHash = TxHash([0x5a; 32]);

pub async fn what_waits_is_listed_and_shown(mut net: impl Net) {
    let coin = coins(&mut net, 2, &[BTC, BTC]).await;
    let chain = net.client();
    assert_eq!(chain.mempool().await, Ok(Vec::new()));
    assert_eq!(chain.waiting(&[]).await, Ok(Vec::new()));
    assert_eq!(chain.waiting(&[UNKNOWN]).await, Ok(vec![None]));

    let parent = signed(&chain, 2, &coin[..1], &[(address(3), BTC - 5_000)]).await;
    take(&chain, &parent).await;
    let output = Input { transaction: parent.sent.hash, index: 0, amount_sat: BTC - 5_000, ..input_to(&address(3)) };
    let child = signed(&chain, 3, &[output], &[(address(4), BTC - 10_000)]).await;
    take(&chain, &child).await;
    let other = signed(&chain, 2, &coin[1..], &[(address(5), BTC - 90_000)]).await;
    take(&chain, &other).await;

    let listed = chain.mempool().await.expect("a list");
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    let mut expected = [&parent, &child, &other].map(|one| one.sent.hash);
    expected.sort_unstable();
    assert_eq!(sorted, expected);
    let place = |one: &Signed| listed.iter().position(|hash| *hash == one.sent.hash);
    assert!(place(&parent) < place(&child), "parents come first");
    let asked = [child.sent.hash, UNKNOWN, other.sent.hash, parent.sent.hash, child.sent.hash];
    let bytes = |one: &Signed| Some(one.bytes.clone());
    let shown = vec![bytes(&child), None, bytes(&other), bytes(&parent), bytes(&child)];
    assert_eq!(chain.waiting(&asked).await, Ok(shown), "in the order asked for");

    // What was replaced waits no more.
    let dearer = signed(&chain, 2, &coin[..1], &[(address(3), BTC - 50_000)]).await;
    take(&chain, &dearer).await;
    let shown = chain.waiting(&[parent.sent.hash, child.sent.hash, dearer.sent.hash]).await;
    assert_eq!(shown, Ok(vec![None, None, bytes(&dearer)]));
    net.mine(1).await;
    assert_eq!(chain.mempool().await, Ok(Vec::new()));
}

pub async fn a_block_comes_as_bytes(mut net: impl Net) {
    let coin = coins(&mut net, 2, &[BTC]).await;
    let chain = net.client();
    let payment = signed(&chain, 2, &coin, &[(address(3), BTC - 5_000)]).await;
    take(&chain, &payment).await;
    net.mine(1).await;
    let tip = chain.head().await.expect("a head").tip.at();
    let block: ::bitcoin::Block = deserialize(&chain.block_bytes(tip).await.expect("the tip")).expect("a block");
    assert_eq!(block.block_hash().to_string(), tip.hash.to_string());
    assert!(block.txdata.iter().any(|one| serialize(one) == payment.bytes));

    // A block that was left: a node may still have it, or not. It never has another one under its hash.
    net.reorg(1, &[]).await;
    match chain.block_bytes(tip).await {
        Ok(bytes) => assert_eq!(bytes, serialize(&block)),
        Err(error) => assert_eq!(error, ChainError::BlockMissing { height: tip.height }),
    }
    let unknown = BlockRef { height: tip.height, hash: BlockHash([0x5a; 32]) };
    assert_eq!(chain.block_bytes(unknown).await, Err(ChainError::BlockMissing { height: tip.height }));
}

fn input_to(address: &Address) -> Input {
    let Address::Bitcoin(address) = address else { panic!("{address}") };
    let script = address.script_pubkey().into_bytes();
    Input { transaction: UNKNOWN, index: 0, amount_sat: 0, script, sequence: 0xffff_fffd }
}

pub async fn what_may_still_be_mined_is_told_from_what_lost_an_input(mut net: impl Net) {
    let chain = net.client();
    let coin = coins(&mut net, 2, &[BTC]).await;
    let spent = [(coin[0].transaction, coin[0].index)];
    let first = signed(&chain, 2, &coin, &[(address(2), BTC - 5_000)]).await;
    let rival = signed(&chain, 2, &coin, &[(address(3), BTC - 9_000)]).await;
    assert_eq!(chain.prospect(first.sent.hash, &spent).await, Ok(Some(Prospect::Unspent)), "nobody has sent it yet");
    take(&chain, &first).await;
    assert_eq!(chain.prospect(first.sent.hash, &spent).await, Ok(Some(Prospect::Waits)));
    assert_eq!(chain.prospect(rival.sent.hash, &spent).await, Ok(Some(Prospect::Unspent)), "a miner may have it");
    let child = [(first.sent.hash, 0)];
    let nobody = UNKNOWN;
    assert_eq!(chain.prospect(nobody, &child).await, Ok(Some(Prospect::Unspent)), "its parent waits");
    assert_eq!(chain.prospect(nobody, &[child[0], (nobody, 0)]).await, Ok(None), "nobody has made what it spends");
    net.mine(1).await;
    assert_eq!(chain.prospect(rival.sent.hash, &spent).await, Ok(None));
}
