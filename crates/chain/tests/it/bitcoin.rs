//! The client of Bitcoin. One suite of cases over [`Net`], run on every kind of node that there is.

mod answers;
mod devnet;
mod search;
mod shown;

use ::bitcoin::consensus::{deserialize, serialize};
use ::bitcoin::{Amount, Network, ScriptBuf, Transaction, Witness};
use ::devnet::Key;
use chain::bitcoin::{BitcoinChain, BitcoinSettings, Prospect};
use chain::client::Sent;
use chain::endpoint::CallError;
use chain::status::{Paid, Reason};
use chain::{Broadcast, Chain, ChainError, NodeRefusal, Place, Status, Watched};
use serde_json::{Value, json};
use tx::Input;
use tx::bitcoin::{PackageFacts, cpfp_fee, finalize};
use tx::{Address, Coin, Draft, Fee, FeeCap, TxHash};

use crate::nodes::bitcoind::{Bitcoind, client, input_of, pay, pool};
use shown::{
    a_block_comes_as_bytes, what_may_still_be_mined_is_told_from_what_lost_an_input, what_waits_is_listed_and_shown,
};

const REGTEST: Network = Network::Regtest;
/// A block with so many above it is settled.
const CONFIRMATIONS: u64 = 3;
const BTC: u64 = 100_000_000;

/// A network of one node that does as it is told.
trait Net {
    /// A client with one endpoint and [`CONFIRMATIONS`].
    fn client(&self) -> BitcoinChain;
    /// Blocks with what waits, paid to nobody.
    async fn mine(&mut self, blocks: u64);
    /// Blocks whose new coins go to the address.
    async fn mine_to(&mut self, blocks: u64, address: &Address);
    /// One transaction that pays these, in one new block.
    async fn fund(&mut self, payments: &[(Address, u64)]);
    /// Replaces the newest blocks by one more. The first new one holds these transactions; what else was mined waits
    /// again.
    async fn reorg(&mut self, depth: u64, with: &[Vec<u8>]);
}

impl Net for Bitcoind {
    fn client(&self) -> BitcoinChain {
        Bitcoind::client(self, CONFIRMATIONS)
    }

    async fn mine(&mut self, blocks: u64) {
        Bitcoind::mine(self, blocks).await;
    }

    async fn mine_to(&mut self, blocks: u64, address: &Address) {
        Bitcoind::mine_to(self, blocks, address).await;
    }

    async fn fund(&mut self, payments: &[(Address, u64)]) {
        Bitcoind::fund(self, payments).await;
    }

    async fn reorg(&mut self, depth: u64, with: &[Vec<u8>]) {
        Bitcoind::reorg(self, depth, with).await;
    }
}

macro_rules! suite {
    ($($name:ident)*) => {
        /// The suite on a real Bitcoin Core.
        mod bitcoind_suite {
            use super::Bitcoind;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(Bitcoind::start().await).await;
                }
            )*
        }

        /// The same on the devnet.
        mod devnet_suite {
            use super::devnet::Devnet;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(Devnet::start().await).await;
                }
            )*
        }
    };
}

suite! {
    deposits_to_every_type_are_found_and_proven
    new_coins_are_flagged
    a_batched_payout_is_built_signed_taken_and_mined
    a_transaction_lives_unknown_waiting_mined
    a_replaced_transaction_is_impossible_only_when_its_winner_is_settled
    a_double_spend_after_a_reorg_is_impossible_only_when_settled
    a_reorg_of_depth_twenty_is_seen
    balances_are_found_by_script
    fees_fall_back_and_are_capped
    a_replacement_is_taken_at_the_least_fee_and_not_below
    a_child_pushes_its_parent_at_the_exact_fee
    refusals_are_understood
    what_waits_is_listed_and_shown
    a_block_comes_as_bytes
    what_may_still_be_mined_is_told_from_what_lost_an_input
}

fn address(number: u32) -> Address {
    Key::numbered(number).bitcoin(REGTEST)
}

fn watching(addresses: &[Address]) -> Watched {
    let mut watched = Watched::default();
    for address in addresses {
        watched.insert(chain::WatchKey::of(address));
    }
    watched
}

async fn height(chain: &BitcoinChain) -> u64 {
    chain.head().await.expect("a head").tip.height
}

/// Coins of these amounts for the key, in the newest block.
async fn coins(net: &mut impl Net, key: u32, amounts: &[u64]) -> Vec<Input> {
    let payments: Vec<_> = amounts.iter().map(|&satoshi| (address(key), satoshi)).collect();
    net.fund(&payments).await;
    let chain = net.client();
    let tip = height(&chain).await;
    let scan = chain.scan(tip, tip, &watching(&[address(key)])).await.expect("the newest block");
    let coins: Vec<Input> = scan.outputs.iter().map(input_of).collect();
    assert_eq!(coins.len(), amounts.len());
    coins
}

struct Signed {
    bytes: Vec<u8>,
    sent: Sent,
}

async fn signed(chain: &BitcoinChain, key: u32, inputs: &[Input], payments: &[(Address, u64)]) -> Signed {
    let since = height(chain).await;
    let draft = Draft::Bitcoin {
        inputs: inputs.to_vec(),
        payments: payments.iter().map(|(to, satoshi)| pay(to, *satoshi)).collect(),
        lock_time: 0,
    };
    let unsigned = chain.build(&draft).expect("a good draft");
    let bytes = finalize(&Key::numbered(key).sign_psbt(&unsigned.bytes)).expect("its owner signed");
    let meaning = chain.decode_signed(&bytes).expect("signed");
    assert_eq!(meaning.hash, unsigned.meaning.hash);
    let hash = meaning.hash.expect("known once signed");
    Signed { bytes, sent: Sent { meaning, hash, since } }
}

async fn take(chain: &BitcoinChain, signed: &Signed) {
    assert_eq!(chain.broadcast(&signed.bytes).await, Ok(Broadcast::Taken));
}

async fn status(chain: &BitcoinChain, signed: &Signed) -> Status {
    chain.status(&signed.sent).await.expect("an answer")
}

fn weight(bytes: &[u8]) -> u64 {
    deserialize::<Transaction>(bytes).expect("a transaction").weight().to_wu()
}

fn bitcoin_address(script: &ScriptBuf) -> Address {
    Address::Bitcoin(::bitcoin::Address::from_script(script, REGTEST).expect("a standard script"))
}

async fn deposits_to_every_type_are_found_and_proven(mut net: impl Net) {
    let key = ::bitcoin::CompressedPublicKey(Key::numbered(7).public());
    let types = [
        bitcoin_address(&ScriptBuf::new_p2pkh(&key.pubkey_hash())),
        Address::Bitcoin(::bitcoin::Address::p2shwpkh(&key, REGTEST)),
        address(7),
        bitcoin_address(&ScriptBuf::new_p2wsh(&::bitcoin::WScriptHash::from_raw_hash(::bitcoin::hashes::Hash::hash(
            b"",
        )))),
        Key::numbered(7).taproot(REGTEST),
    ];
    let payments: Vec<_> = types.iter().cloned().zip(1..).map(|(to, n)| (to, n * 10_000)).collect();
    let chain = net.client();
    let from = height(&chain).await;
    net.mine(2).await;
    net.fund(&payments).await;
    net.mine(1).await;
    let watched = watching(&types);
    let to = height(&chain).await;
    let scan = chain.scan(from, to, &watched).await.expect("these blocks are there");

    assert_eq!(scan.headers.len() as u64, to - from + 1);
    assert!(scan.headers.windows(2).all(|pair| pair[1].parent == pair[0].hash && pair[1].height == pair[0].height + 1));
    let heights: Vec<u64> = (from..=to).collect();
    assert_eq!(chain.headers(&heights).await, Ok(scan.headers.clone()));
    assert_eq!(chain.head().await.expect("a head").tip, *scan.headers.last().expect("not empty"));
    assert_eq!(scan.outputs.len(), 5);
    for (number, output) in (0_u32..).zip(&scan.outputs) {
        assert_eq!(output.watched, number);
        assert_eq!(output.to, types[number as usize]);
        assert_eq!(output.amount.to_string(), ((u64::from(number) + 1) * 10_000).to_string());
        assert_eq!((output.ok, output.coinbase, &output.coin), (true, false, &Coin::Native));
        assert!(matches!(output.place, Place::Output(_)));
    }
    let transaction = scan.outputs[0].transaction;
    let proven = chain.prove(transaction, &watched).await.expect("an answer").expect("it is mined");
    assert_eq!((proven.ok, proven.outputs, proven.block), (true, scan.outputs.clone(), scan.outputs[0].block));
    assert_eq!(chain.prove(TxHash([9; 32]), &watched).await, Ok(None));
    let all = chain.prove_blocks(from, to, &watched).await.expect("they are proven");
    assert_eq!((&all.headers, &all.outputs, &all.spends), (&scan.headers, &scan.outputs, &Vec::new()));
    let wanted: Vec<_> = types.iter().map(|address| (address.clone(), Coin::Native)).collect();
    let tip = scan.headers.last().expect("not empty").at();
    let (at, held) = chain.balances_at(&wanted, tip).await.expect("a quorum");
    assert_eq!((at, held), (tip, chain.balances(&wanted).await.expect("one node")));
    let above = chain.scan(from, to + 1, &watched).await;
    assert_eq!(above, Err(ChainError::BlockMissing { height: to + 1 }));
    assert_eq!(chain.headers(&[to + 1]).await, Err(ChainError::BlockMissing { height: to + 1 }));
}

async fn new_coins_are_flagged(mut net: impl Net) {
    let chain = net.client();
    net.mine_to(1, &address(8)).await;
    let tip = height(&chain).await;
    let scan = chain.scan(tip, tip, &watching(&[address(8)])).await.expect("the newest block");
    assert_eq!(scan.outputs.len(), 1);
    assert!(scan.outputs[0].coinbase);
}

async fn a_batched_payout_is_built_signed_taken_and_mined(mut net: impl Net) {
    let chain = net.client();
    net.fund(&[(address(1), BTC), (Key::numbered(1).taproot(REGTEST), BTC)]).await;
    let tip = height(&chain).await;
    let own = [address(1), Key::numbered(1).taproot(REGTEST)];
    let found = chain.scan(tip, tip, &watching(&own)).await.expect("the newest block").outputs;
    let inputs: Vec<Input> = found.iter().map(input_of).collect();
    let mut payments: Vec<_> = (0..50).map(|n| (address(100 + n), 1_000_000 + u64::from(n))).collect();
    let paid: u64 = payments.iter().map(|(_, satoshi)| satoshi).sum();
    payments.push((own[1].clone(), 2 * BTC - paid - 25_000));
    let payout = signed(&chain, 1, &inputs, &payments).await;

    let rehearsed = chain.rehearse(&payout.bytes).await.expect("an answer");
    assert_eq!((rehearsed.fee, rehearsed.refusal), (Some(25_000), None));
    assert_eq!(rehearsed.size, Some(weight(&payout.bytes).div_ceil(4)));
    take(&chain, &payout).await;
    take(&chain, &payout).await;
    assert_eq!(status(&chain, &payout).await, Status::Mempool);
    net.mine(1).await;
    take(&chain, &payout).await;
    let Status::Mined(mined) = status(&chain, &payout).await else { panic!("it is mined") };
    assert_eq!(mined.block, chain.head().await.expect("a head").tip.at());
    assert_eq!(mined.fee.map(|fee| fee.to_string()), Some("25000".to_owned()));
    assert_eq!(mined.paid, Paid::InFull);
    let to: Vec<Address> = payments.iter().map(|(to, _)| to.clone()).collect();
    let proven = chain.prove(payout.sent.hash, &watching(&to)).await.expect("an answer").expect("it is mined");
    assert_eq!(proven.outputs.len(), 51);
}

async fn a_transaction_lives_unknown_waiting_mined(mut net: impl Net) {
    let chain = net.client();
    let coin = coins(&mut net, 2, &[BTC]).await;
    let payment = signed(&chain, 2, &coin, &[(address(3), BTC - 5_000)]).await;
    assert_eq!(status(&chain, &payment).await, Status::Unknown);
    take(&chain, &payment).await;
    assert_eq!(status(&chain, &payment).await, Status::Mempool);
    // A child of what waits waits too, though its input is in no block.
    let output = Input {
        transaction: payment.sent.hash,
        index: 0,
        amount_sat: BTC - 5_000,
        script: ScriptBuf::new_p2wpkh(&::bitcoin::CompressedPublicKey(Key::numbered(3).public()).wpubkey_hash())
            .into_bytes(),
        sequence: 0xffff_fffd,
    };
    let child = signed(&chain, 3, &[output], &[(address(4), BTC - 10_000)]).await;
    assert_eq!(status(&chain, &child).await, Status::Unknown);
    take(&chain, &child).await;
    assert_eq!(status(&chain, &child).await, Status::Mempool);
    net.mine(1).await;
    let block = chain.head().await.expect("a head").tip.at();
    for one in [&payment, &child] {
        let Status::Mined(mined) = status(&chain, one).await else { panic!("it is mined") };
        assert_eq!((mined.block, mined.fee.map(|fee| fee.to_string())), (block, Some("5000".to_owned())));
    }
    // Back to waiting when its block is gone, and mined elsewhere afterwards.
    net.reorg(1, &[]).await;
    assert_eq!(status(&chain, &payment).await, Status::Mempool);
    assert_eq!(chain.prove(payment.sent.hash, &watching(&[address(3)])).await, Ok(None));
    net.mine(1).await;
    let Status::Mined(mined) = status(&chain, &payment).await else { panic!("it is mined again") };
    assert_eq!(mined.block.height, block.height + 2);
}

async fn a_replaced_transaction_is_impossible_only_when_its_winner_is_settled(mut net: impl Net) {
    let chain = net.client();
    let coin = coins(&mut net, 2, &[BTC, BTC]).await;
    let loser = signed(&chain, 2, &coin, &[(address(3), BTC), (address(2), BTC - 5_000)]).await;
    // It shares one input only: enough.
    let winner = signed(&chain, 2, &coin[1..], &[(address(3), BTC - 20_000)]).await;
    take(&chain, &loser).await;
    take(&chain, &winner).await;
    assert_eq!(status(&chain, &loser).await, Status::Unknown, "only replaced: it may come back");
    assert_eq!(status(&chain, &winner).await, Status::Mempool);
    net.mine(1).await;
    let block = chain.head().await.expect("a head").tip.at();
    for _ in 0..CONFIRMATIONS {
        assert_eq!(status(&chain, &loser).await, Status::Unknown, "the winner's block may still go");
        assert!(matches!(status(&chain, &winner).await, Status::Mined(_)));
        net.mine(1).await;
    }
    let Status::Impossible(proof) = status(&chain, &loser).await else { panic!("the winner is settled") };
    let input = (coin[1].transaction, coin[1].index);
    assert_eq!(proof.reason(), Reason::InputSpent { input, by: winner.sent.hash, block });
    assert!(matches!(status(&chain, &winner).await, Status::Mined(_)), "the winner never is");
    let Ok(Broadcast::Refused(refusal, _)) = chain.broadcast(&loser.bytes).await else { panic!("it is refused") };
    assert_eq!(refusal, NodeRefusal::InputMissing);
}

async fn a_double_spend_after_a_reorg_is_impossible_only_when_settled(mut net: impl Net) {
    let chain = net.client();
    let coin = coins(&mut net, 2, &[BTC]).await;
    let first = signed(&chain, 2, &coin, &[(address(3), BTC - 5_000)]).await;
    let second = signed(&chain, 2, &coin, &[(address(4), BTC - 5_000)]).await;
    take(&chain, &first).await;
    net.mine(2).await;
    let watched = watching(&[address(3), address(4)]);
    assert!(chain.prove(first.sent.hash, &watched).await.expect("an answer").is_some());
    net.reorg(2, std::slice::from_ref(&second.bytes)).await;
    assert_eq!(chain.prove(first.sent.hash, &watched).await, Ok(None), "the deposit is gone");
    assert_eq!(status(&chain, &first).await, Status::Unknown);
    let Status::Mined(mined) = status(&chain, &second).await else { panic!("the other one is mined") };
    net.mine(1).await;
    let Status::Impossible(proof) = status(&chain, &first).await else { panic!("three blocks are above") };
    let input = (coin[0].transaction, coin[0].index);
    assert_eq!(proof.reason(), Reason::InputSpent { input, by: second.sent.hash, block: mined.block });
}

async fn a_reorg_of_depth_twenty_is_seen(mut net: impl Net) {
    let chain = net.client();
    net.mine(25).await;
    let tip = height(&chain).await;
    let heights: Vec<u64> = (tip - 24..=tip).collect();
    let before = chain.headers(&heights).await.expect("they are there");
    net.reorg(20, &[]).await;
    let after = chain.headers(&heights).await.expect("they are there");
    let same: Vec<u64> = before.iter().zip(&after).filter(|(a, b)| a.hash == b.hash).map(|(a, _)| a.height).collect();
    assert_eq!(same, (tip - 24..=tip - 20).collect::<Vec<_>>(), "the fork is right above these");
    assert_eq!(height(&chain).await, tip + 1);
    let scan = chain.scan(tip - 21, tip + 1, &Watched::default()).await.expect("the new branch");
    assert_eq!(scan.headers[2..22], after[5..], "a scan follows the new branch");
    assert_eq!(chain.head().await.expect("a head").settled, Some(tip + 1 - CONFIRMATIONS));
}

async fn balances_are_found_by_script(mut net: impl Net) {
    let chain = net.client();
    let taproot = Key::numbered(11).taproot(REGTEST);
    net.fund(&[(address(11), 70_000), (address(11), 5_000), (taproot.clone(), 9_000)]).await;
    let wanted: Vec<_> =
        [address(11), address(12), taproot, address(11)].into_iter().map(|address| (address, Coin::Native)).collect();
    let balances = chain.balances(&wanted).await.expect("an answer");
    let balances: Vec<String> = balances.iter().map(ToString::to_string).collect();
    assert_eq!(balances, ["75000", "0", "9000", "75000"]);
    let many: Vec<_> = (0..6_000).map(|n| (address(20_000 + n), Coin::Native)).chain(wanted[..1].to_vec()).collect();
    let balances = chain.balances(&many).await.expect("an answer");
    assert_eq!(balances.iter().filter(|balance| balance.to_string() != "0").count(), 1);
    assert_eq!(balances.last().map(ToString::to_string), Some("75000".to_owned()));
    let token = [(address(1), Coin::Token(address(2)))];
    assert_eq!(chain.balances(&token).await, Err(ChainError::ForeignAddress));
    let evm = [(Key::numbered(1).evm(), Coin::Native)];
    assert_eq!(chain.balances(&evm).await, Err(ChainError::ForeignAddress));
    assert_eq!(chain.nonces(&[address(1), address(2)]).await.map(|nonces| nonces.len()), Ok(2));
}

async fn fees_fall_back_and_are_capped(net: impl Net) {
    let chain = net.client();
    let payment = pay(&address(2), 10_000);
    let quote = chain.quote(&address(1), &payment, FeeCap(Fee::PerKvb(50_000))).await.expect("an answer");
    let fallback = chain.settings().fallback_fee;
    assert_eq!((quote.fee, quote.capped), (Fee::PerKvb(fallback), false), "nobody can estimate on a young chain");
    let quote = chain.quote(&address(1), &payment, FeeCap(Fee::PerKvb(2_000))).await.expect("an answer");
    assert_eq!((quote.fee, quote.capped), (Fee::PerKvb(2_000), true));
    let foreign = FeeCap(Fee::Legacy { gas_price: 1 });
    assert_eq!(chain.quote(&address(1), &payment, foreign).await, Err(ChainError::ForeignAddress));
}

async fn a_replacement_is_taken_at_the_least_fee_and_not_below(mut net: impl Net) {
    let chain = net.client();
    let coin = coins(&mut net, 2, &[BTC, BTC, BTC]).await;

    // As large as the one that it replaces: rule 4 decides.
    let first = signed(&chain, 2, &coin[..1], &[(address(3), BTC - 5_000)]).await;
    take(&chain, &first).await;
    let facts = chain.mempool_facts(first.sent.hash).await.expect("an answer").expect("it waits");
    assert_eq!((facts.fee, facts.weight), (5_000, weight(&first.bytes)));
    assert_eq!((facts.ancestors.count, facts.descendants.count, facts.spent_by.len()), (1, 1, 0));
    let spent = [(coin[0].transaction, coin[0].index), (coin[1].transaction, coin[1].index)];
    assert_eq!(chain.spenders(&spent).await, Ok(vec![Some(first.sent.hash), None]));
    replace_exactly(&chain, &[&first], &coin[..1], &[address(4)]).await;

    // Heavier: the rate decides.
    let second = signed(&chain, 2, &coin[1..2], &[(address(3), BTC - 5_000)]).await;
    take(&chain, &second).await;
    let to: Vec<Address> = (30..40).map(address).collect();
    replace_exactly(&chain, &[&second], &coin[1..2], &to).await;

    // With a child that leaves too.
    let third = signed(&chain, 2, &coin[2..], &[(address(2), BTC - 5_000)]).await;
    take(&chain, &third).await;
    let output = Input { transaction: third.sent.hash, index: 0, amount_sat: BTC - 5_000, ..coin[2].clone() };
    let child = signed(&chain, 2, &[output], &[(address(5), BTC - 25_000)]).await;
    take(&chain, &child).await;
    let facts = chain.mempool_facts(third.sent.hash).await.expect("an answer").expect("it waits");
    assert_eq!((facts.descendants.fee, facts.spent_by), (25_000, vec![child.sent.hash]));
    replace_exactly(&chain, &[&third], &coin[2..], &[address(4)]).await;
    assert_eq!(chain.replacement_fee(&[third.sent.hash], 440).await, Ok(None), "it waits no more");
}

/// Offers the least fee less one satoshi, and then the least fee.
async fn replace_exactly(chain: &BitcoinChain, old: &[&Signed], coin: &[Input], to: &[Address]) {
    let held: u64 = coin.iter().map(|coin| coin.amount_sat).sum();
    let share = held / (to.len() as u64 + 1);
    let with_fee = |fee: u64| {
        let mut payments: Vec<(Address, u64)> = to.iter().map(|to| (to.clone(), share)).collect();
        let others = share * (to.len() as u64 - 1);
        payments.last_mut().expect("not empty").1 = held - others - fee;
        payments
    };
    let hashes: Vec<TxHash> = old.iter().map(|old| old.sent.hash).collect();
    // A signature is 71 or 72 bytes: the fee depends on the transaction, which depends on the fee. Other sequence
    // numbers give other signatures, until all three are alike.
    for sequence in (0xffff_ff00..=0xffff_fffd).rev() {
        let coin: Vec<Input> = coin.iter().map(|coin| Input { sequence, ..coin.clone() }).collect();
        let heavy = weight(&signed(chain, 2, &coin, &with_fee(30_000)).await.bytes);
        let fee = chain.replacement_fee(&hashes, heavy).await.expect("an answer").expect("they wait");
        let below = signed(chain, 2, &coin, &with_fee(fee - 1)).await;
        let exact = signed(chain, 2, &coin, &with_fee(fee)).await;
        if weight(&below.bytes) != heavy || weight(&exact.bytes) != heavy {
            continue;
        }
        let Ok(Broadcast::Refused(refusal, words)) = chain.broadcast(&below.bytes).await else {
            panic!("{fee} is the least, and one less was taken")
        };
        assert_eq!(refusal, NodeRefusal::Underpriced, "{words}");
        take(chain, &exact).await;
        return;
    }
    panic!("no two signatures are of one size");
}

async fn a_child_pushes_its_parent_at_the_exact_fee(mut net: impl Net) {
    let chain = net.client();
    let coin = coins(&mut net, 2, &[BTC, BTC]).await;
    let facts = chain.fee_facts().await.expect("an answer");
    assert!(facts.estimate.is_none() && facts.increment > 0 && facts.mempool_minimum >= facts.relay_minimum);

    // A parent that pays nothing is taken with a child that brings both to the least rate, and not with one less.
    let parent = signed(&chain, 2, &coin[..1], &[(address(2), BTC)]).await;
    let Ok(Broadcast::Refused(refusal, _)) = chain.broadcast(&parent.bytes).await else { panic!("it pays nothing") };
    assert_eq!(refusal, NodeRefusal::FeeTooLow);
    let output = Input { transaction: parent.sent.hash, index: 0, amount_sat: BTC, ..coin[0].clone() };
    let probe = signed(&chain, 2, std::slice::from_ref(&output), &[(address(6), BTC - 1_000)]).await;
    let size = weight(&probe.bytes).div_ceil(4);
    let ancestors = PackageFacts { count: 1, size: weight(&parent.bytes).div_ceil(4), fee: 0 };
    let fee = cpfp_fee(ancestors, size, facts.mempool_minimum, facts.relay_minimum);
    let below = signed(&chain, 2, std::slice::from_ref(&output), &[(address(6), BTC - fee + 1)]).await;
    let exact = signed(&chain, 2, &[output], &[(address(6), BTC - fee)]).await;
    assert_eq!(weight(&below.bytes).div_ceil(4), size);
    assert_eq!(weight(&exact.bytes).div_ceil(4), size);
    let refused = chain.broadcast_package(&[parent.bytes.clone(), below.bytes]).await.expect("an answer");
    assert!(refused.iter().any(|(_, refusal, _)| *refusal == NodeRefusal::FeeTooLow), "{refused:?}");
    assert_eq!(chain.broadcast_package(&[parent.bytes.clone(), exact.bytes.clone()]).await, Ok(Vec::new()));
    assert_eq!(status(&chain, &parent).await, Status::Mempool);
    assert_eq!(status(&chain, &exact).await, Status::Mempool);

    // One that waits with too little, pushed to ten times the rate.
    let slow = signed(&chain, 2, &coin[1..], &[(address(2), BTC - 200)]).await;
    take(&chain, &slow).await;
    let output = Input { transaction: slow.sent.hash, index: 0, amount_sat: BTC - 200, ..coin[1].clone() };
    let fee = chain.push_fee(slow.sent.hash, weight(&probe.bytes), 10_000).await.expect("an answer").expect("it waits");
    let child = signed(&chain, 2, &[output], &[(address(6), BTC - 200 - fee)]).await;
    take(&chain, &child).await;
    let facts = chain.mempool_facts(child.sent.hash).await.expect("an answer").expect("it waits");
    assert_eq!(facts.ancestors.fee, (facts.ancestors.size * 10_000).div_ceil(1_000));
}

async fn refusals_are_understood(mut net: impl Net) {
    let chain = net.client();
    let coin = coins(&mut net, 2, &[BTC]).await;
    let good = signed(&chain, 2, &coin, &[(address(3), BTC - 5_000)]).await;
    let with = |change: &dyn Fn(&mut Transaction)| {
        let mut transaction: Transaction = deserialize(&good.bytes).expect("a transaction");
        change(&mut transaction);
        serialize(&transaction)
    };
    let no_fee = signed(&chain, 2, &coin, &[(address(3), BTC)]).await.bytes;
    let cases = [
        ("no fee", NodeRefusal::FeeTooLow, no_fee),
        (
            "changed after signing",
            NodeRefusal::BadSignature,
            with(&|one| one.output[0].value = Amount::from_sat(BTC - 6_000)),
        ),
        ("without a signature", NodeRefusal::BadSignature, with(&|one| one.input[0].witness = Witness::new())),
        ("an output that is not there", NodeRefusal::InputMissing, with(&|one| one.input[0].previous_output.vout = 77)),
        (
            "more than it has",
            NodeRefusal::InsufficientFunds,
            with(&|one| one.output[0].value = Amount::from_sat(2 * BTC)),
        ),
        ("dust", NodeRefusal::Malformed, with(&|one| one.output[0].value = Amount::from_sat(100))),
        ("nothing", NodeRefusal::Malformed, with(&|one| one.output.clear())),
        ("an input twice", NodeRefusal::Malformed, with(&|one| one.input.push(one.input[0].clone()))),
        (
            "a script that nobody knows",
            NodeRefusal::Malformed,
            with(&|one| one.output[0].script_pubkey = ScriptBuf::from_bytes(vec![0x6a_u8 + 5; 9])),
        ),
        (
            "a version that nobody knows",
            NodeRefusal::Malformed,
            with(&|one| one.version = ::bitcoin::transaction::Version(9)),
        ),
        ("garbage", NodeRefusal::Malformed, vec![1, 2, 3]),
        (
            "too early",
            NodeRefusal::Other,
            with(&|one| one.lock_time = ::bitcoin::absolute::LockTime::from_consensus(9_999)),
        ),
    ];
    for (what, wanted, bytes) in cases {
        match chain.broadcast(&bytes).await.expect("an answer") {
            Broadcast::Refused(refusal, words) => assert_eq!(refusal, wanted, "{what}: {words}"),
            Broadcast::Taken => panic!("{what} was taken"),
        }
    }
    take(&chain, &good).await;
    assert_eq!(chain.rehearse(&good.bytes).await.expect("an answer").refusal, None, "it has it already");
    let cheap = signed(&chain, 2, &coin, &[(address(4), BTC - 5_001)]).await;
    let rehearsed = chain.rehearse(&cheap.bytes).await.expect("an answer").refusal;
    assert_eq!(rehearsed.map(|(refusal, _)| refusal), Some(NodeRefusal::Underpriced));
}

// What only a real node can show.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bitcoind_without_an_index_is_enough_for_status() {
    let mut node = Bitcoind::with(&[]).await;
    let chain = Net::client(&node);
    let coin = coins(&mut node, 2, &[BTC]).await;
    let first = signed(&chain, 2, &coin, &[(address(2), BTC - 5_000)]).await;
    assert_eq!(status(&chain, &first).await, Status::Unknown);
    take(&chain, &first).await;
    assert_eq!(status(&chain, &first).await, Status::Mempool);
    node.mine(1).await;
    let block = chain.head().await.expect("a head").tip.at();
    let is_there =
        |status: Status| matches!(status, Status::Mined(mined) if mined.block == block && mined.fee.is_some());
    assert!(is_there(status(&chain, &first).await), "its output is unspent");
    let watched = watching(&[address(2)]);
    assert_eq!(chain.prove(first.sent.hash, &watched).await.expect("an answer").expect("found").block, block);

    // Once all its outputs are spent the node cannot find it any more; the blocks still hold it.
    let output = Input { transaction: first.sent.hash, index: 0, amount_sat: BTC - 5_000, ..coin[0].clone() };
    let second = signed(&chain, 2, &[output], &[(address(3), BTC - 10_000)]).await;
    take(&chain, &second).await;
    node.mine(1).await;
    assert!(is_there(status(&chain, &first).await), "found by reading the blocks");
    let unsure = chain.prove(first.sent.hash, &watched).await;
    assert_eq!(unsure, Err(ChainError::NoQuorum { wanted: 1, agreed: 0 }), "none is not what it says");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitcoind_alone_is_no_quorum() {
    let mut node = Bitcoind::start().await;
    let other = Bitcoind::empty(&["-txindex=1"]).await;
    let alone = Net::client(&node);
    let coin = coins(&mut node, 2, &[BTC, BTC]).await;
    let loser = signed(&alone, 2, &coin, &[(address(3), BTC), (address(2), BTC - 5_000)]).await;
    let winner = signed(&alone, 2, &coin[1..], &[(address(3), BTC - 20_000)]).await;
    take(&alone, &winner).await;
    node.mine(10).await;
    assert!(matches!(status(&alone, &loser).await, Status::Impossible(_)));
    let both = client(&[node.endpoint(), other.endpoint()], 2, CONFIRMATIONS);
    for one in [&winner, &loser] {
        let answer = both.status(&one.sent).await;
        assert!(matches!(answer, Ok(Status::Unknown) | Err(ChainError::NoQuorum { .. })), "{answer:?}");
    }
    let proven = both.prove(winner.sent.hash, &watching(&[address(3)])).await;
    assert!(!matches!(proven, Ok(Some(_))), "{proven:?}");
    let tip = height(&alone).await;
    assert!(matches!(both.headers(&[tip]).await, Err(ChainError::NoQuorum { .. })));

    // Two that are of one mind, and of another: what one has in a good block of its own is mined for nobody.
    let elsewhere = Bitcoind::empty(&["-txindex=1"]).await;
    elsewhere.mine(tip + 5).await;
    let three = client(&[node.endpoint(), elsewhere.endpoint(), elsewhere.second_endpoint()], 2, CONFIRMATIONS);
    assert_eq!(three.prove(winner.sent.hash, &watching(&[address(3)])).await, Ok(None));
    for one in [&winner, &loser] {
        assert_eq!(three.status(&one.sent).await, Ok(Status::Unknown));
    }

    // The other one gets the same blocks, and now they are two.
    for at in 1..=tip {
        let hash: String = node.call("getblockhash", json!([at])).await;
        let block: String = node.call("getblock", json!([hash, 0])).await;
        let _taken: Value = other.call("submitblock", json!([block])).await;
    }
    assert!(matches!(both.status(&winner.sent).await, Ok(Status::Mined(mined)) if mined.fee.is_some()));
    assert!(matches!(both.status(&loser.sent).await, Ok(Status::Impossible(_))));
    assert!(both.prove(winner.sent.hash, &watching(&[address(3)])).await.expect("an answer").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitcoind_of_another_network_is_refused() {
    let node = Bitcoind::empty(&[]).await;
    Net::client(&node).check_network().await.expect("regtest");
    let settings = BitcoinSettings::new(Network::Signet);
    let signet = BitcoinChain::new(settings, pool(&[node.endpoint()], 1));
    let wrong = ChainError::WrongNetwork { wanted: "signet".to_owned(), found: "regtest".to_owned() };
    assert_eq!(signet.check_network().await, Err(wrong));
    assert!(signet.head().await.is_err());
}

/// The same payment with other signatures or sequence numbers has another hash. It paid: calling the first one
/// impossible would pay twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_in_a_bitcoind_block_never_makes_a_payment_impossible() {
    let mut node = Bitcoind::start().await;
    let chain = Net::client(&node);
    let coin = coins(&mut node, 2, &[BTC]).await;
    let first = signed(&chain, 2, &coin, &[(address(3), BTC - 5_000)]).await;
    let resigned = [Input { sequence: 0xffff_fffe, ..coin[0].clone() }];
    let twin = signed(&chain, 2, &resigned, &[(address(3), BTC - 5_000)]).await;
    assert_ne!(first.sent.hash, twin.sent.hash);
    take(&chain, &twin).await;
    node.mine(10).await;
    assert!(matches!(status(&chain, &twin).await, Status::Mined(_)));
    assert_eq!(status(&chain, &first).await, Status::Unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pruned_bitcoind_sends_the_asker_elsewhere() {
    let mut pruned = Bitcoind::with(&["-prune=1", "-fastprune"]).await;
    let full = Bitcoind::empty(&[]).await;
    for _ in 0..8 {
        pruned.fund(&(0..400).map(|n| (address(5_000 + n), 1_000)).collect::<Vec<_>>()).await;
    }
    pruned.mine(600).await;
    let tip = height(&Net::client(&pruned)).await;
    for at in 1..=tip {
        let hash: String = pruned.call("getblockhash", json!([at])).await;
        let block: String = pruned.call("getblock", json!([hash, 0])).await;
        let _taken: Value = full.call("submitblock", json!([block])).await;
    }
    let last: u64 = pruned.call("pruneblockchain", json!([tip - 300])).await;
    assert!(last > 1, "something was pruned: up to {last}");
    let alone = Net::client(&pruned);
    let answer = alone.scan(1, 1, &Watched::default()).await;
    assert!(matches!(answer, Err(ChainError::Refused(CallError::Lacks { .. }))), "{answer:?}");
    assert!(alone.scan(tip - 10, tip, &Watched::default()).await.is_ok());
    let both = client(&[pruned.endpoint(), full.endpoint()], 1, CONFIRMATIONS);
    let scan = both.scan(1, 5, &Watched::default()).await.expect("the other one keeps all");
    assert_eq!(scan.headers.len(), 5);
}
