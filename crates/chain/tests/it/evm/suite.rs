//! The suite. Each case starts from a fresh network.

use alloy_consensus::{SignableTransaction, TxEip2930};
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_primitives::{Address as Account, B256, TxKind, U256};
use chain::client::Sent;
use chain::evm::{BlockProof, EvmChain};
use chain::status::{Mined, Paid, Reason};
use chain::{Broadcast, Chain, ChainError, NodeRefusal, Output, Place, QuoteRequest, Spend, Status};
use devnet::Key;
use serde_json::json;
use tx::evm::replacement;
use tx::{Coin, Draft, Fee, FeeCap, Payment, Unsigned};

use super::net::{CHAIN_ID, CONFIRMATIONS, Net, account, call_of, evm, fresh, raw, scan_all, sign, watch, word, words};

const GWEI: u128 = 1_000_000_000;
const FEE: Fee = Fee::Eip1559 { max_fee: 50 * GWEI, max_priority: GWEI };

/// What is paid where, in the order of the scan.
fn told(outputs: &[Output]) -> Vec<(Place, u32, String, bool)> {
    outputs.iter().map(|one| (one.place, one.watched, one.amount.to_string(), one.ok)).collect()
}

fn native(to: Account, amount: u64) -> Payment {
    Payment { to: evm(to), coin: Coin::Native, amount: raw(amount) }
}

fn draft(key: &Key, nonce: u64, payment: Payment, fee: Fee) -> Draft {
    Draft::Evm { from: key.evm(), nonce, payment, gas_limit: 100_000, fee }
}

/// Built, signed and read back, as custody does it; not sent.
async fn prepare(net: &Net, chain: &EvmChain, draft: &Draft, key: &Key) -> (Vec<u8>, Sent) {
    let Unsigned { bytes, .. } = chain.build(draft).expect("a good draft");
    let signed = sign(key, &bytes);
    let meaning = chain.decode_signed(&signed).expect("our own");
    assert_eq!(meaning.from, Some(key.evm()));
    let hash = meaning.hash.expect("signed");
    (signed, Sent { meaning, hash, since: net.height().await })
}

async fn pay(net: &Net, chain: &EvmChain, key: &Key, payment: Payment) -> Sent {
    let draft = draft(key, net.nonce(account(key)).await, payment, FEE);
    let (signed, sent) = prepare(net, chain, &draft, key).await;
    assert_eq!(chain.broadcast(&signed).await, Ok(Broadcast::Taken));
    sent
}

pub async fn a_payment_of_the_native_coin_is_found_and_proven(net: &Net) {
    let (chain, key, to) = (net.chain(|_| {}), Key::numbered(0), fresh(1));
    let watched = watch(&[fresh(9), to]);
    let sent = pay(net, &chain, &key, native(to, 7)).await;
    pay(net, &chain, &key, native(fresh(2), 8)).await;
    net.mine(3).await;
    let scan = scan_all(net, &chain, &watched).await;
    assert_eq!(scan.headers.len(), 4);
    assert_eq!(told(&scan.outputs), [(Place::Value, 1, "7".to_owned(), true)]);
    let output = &scan.outputs[0];
    assert_eq!((output.transaction, &output.coin, output.coinbase), (sent.hash, &Coin::Native, false));
    assert_eq!(output.block, scan.headers[1].at());
    let proven = chain.prove(sent.hash, &watched).await.expect("an answer").expect("mined");
    assert_eq!((proven.block, proven.ok, &proven.outputs), (output.block, true, &scan.outputs));
    assert_eq!(chain.prove(tx::TxHash([1; 32]), &watched).await, Ok(None));
    let heights: Vec<u64> = (0..4).collect();
    assert_eq!(chain.headers(&heights).await.expect("headers"), scan.headers);
    assert_eq!(chain.scan(2, 1, &watched).await, Ok(chain::Scan::default()));
}

pub async fn a_token_that_returns_nothing_is_found_by_its_log(net: &Net) {
    let (key, to) = (Key::numbered(0), fresh(1));
    // Tether(string, uint8, uint256): the text stands behind the other two.
    let mut name = [0; 32];
    name[..4].copy_from_slice(b"USDT");
    let arguments = [96, 6, 1_000_000, 4].map(U256::from).into_iter().chain([U256::from_be_bytes(name)]);
    let token = net.deploy(&key, "Tether", &arguments.collect::<Vec<_>>()).await;
    let chain = net.chain(|settings| settings.tokens = vec![token]);
    let coin = Coin::Token(evm(token));
    let payment = Payment { to: evm(to), coin: coin.clone(), amount: raw(250) };
    let quote = chain.quote(&key.evm(), &payment, FeeCap(FEE)).await.expect("a quote");
    assert!(quote.gas > 21_000 && quote.gas < 200_000, "{quote:?}");
    let sent = pay(net, &chain, &key, payment).await;
    net.mine(1).await;
    let watched = watch(&[to]);
    let scan = scan_all(net, &chain, &watched).await;
    assert_eq!(told(&scan.outputs), [(Place::Log(0), 0, "250".to_owned(), true)]);
    assert_eq!((&scan.outputs[0].coin, scan.outputs[0].transaction), (&coin, sent.hash));
    let proven = chain.prove(sent.hash, &watched).await.expect("an answer").expect("mined");
    assert_eq!(proven.outputs, scan.outputs);
    let wanted = [(evm(to), coin.clone()), (key.evm(), coin)];
    assert_eq!(chain.balances(&wanted).await, Ok(vec![raw(250), raw(999_750)]));
}

pub async fn what_reverted_is_told_as_not_ok(net: &Net) {
    let key = Key::numbered(0);
    // It takes no coin.
    let contract = net.deploy(&key, "Plain", &[U256::from(1_000)]).await;
    let chain = net.chain(|settings| settings.tokens = vec![contract]);
    let sent = pay(net, &chain, &key, native(contract, 5)).await;
    net.mine(1).await;
    let watched = watch(&[contract, fresh(1)]);
    let scan = scan_all(net, &chain, &watched).await;
    assert_eq!(told(&scan.outputs), [(Place::Value, 0, "5".to_owned(), false)]);
    assert!(!chain.prove(sent.hash, &watched).await.expect("an answer").expect("mined").ok);
    // A transfer of more than there is: no log, so nothing to tell.
    let payment = Payment { to: evm(fresh(1)), coin: Coin::Token(evm(contract)), amount: raw(2_000) };
    let sent = pay(net, &chain, &key, payment).await;
    net.mine(1).await;
    let proven = chain.prove(sent.hash, &watched).await.expect("an answer").expect("mined");
    assert_eq!((proven.ok, proven.outputs), (false, Vec::new()));
}

pub async fn a_token_that_returns_false_pays_nothing(net: &Net) {
    let key = Key::numbered(0);
    let token = net.deploy(&key, "False", &[U256::from(100), U256::ZERO]).await;
    let chain = net.chain(|settings| settings.tokens = vec![token]);
    let coin = Coin::Token(evm(token));
    pay(net, &chain, &key, Payment { to: evm(fresh(1)), coin: coin.clone(), amount: raw(60) }).await;
    net.mine(1).await;
    let refused = pay(net, &chain, &key, Payment { to: evm(fresh(1)), coin, amount: raw(60) }).await;
    net.mine(1).await;
    let watched = watch(&[fresh(1)]);
    assert_eq!(told(&scan_all(net, &chain, &watched).await.outputs), [(Place::Log(0), 0, "60".to_owned(), true)]);
    let proven = chain.prove(refused.hash, &watched).await.expect("an answer").expect("mined");
    assert!(proven.ok && proven.outputs.is_empty(), "it ran to its end and paid nothing: {proven:?}");
    // A payout that moved nothing must not count as paid, however well it ended.
    let status = chain.status(&refused).await.expect("an answer");
    assert!(matches!(status, Status::Mined(Mined { paid: Paid::Nothing, .. })), "{status:?}");
}

pub async fn a_fee_on_transfer_is_not_credited(net: &Net) {
    let key = Key::numbered(0);
    let token = net.deploy(&key, "Taxed", &[U256::from(10_000), word(fresh(5))]).await;
    let chain = net.chain(|settings| settings.tokens = vec![token]);
    let payment = Payment { to: evm(fresh(1)), coin: Coin::Token(evm(token)), amount: raw(1_000) };
    let sent = pay(net, &chain, &key, payment).await;
    net.mine(1).await;
    let scan = scan_all(net, &chain, &watch(&[fresh(1)])).await;
    assert_eq!(told(&scan.outputs), [(Place::Log(1), 0, "990".to_owned(), true)]);
    // As a payout it is neither paid in full nor unpaid, whether or not the token is still listed.
    let delisted = net.chain(|_| {});
    for chain in [&chain, &delisted] {
        let status = chain.status(&sent).await.expect("an answer");
        assert!(matches!(status, Status::Mined(Mined { paid: Paid::Otherwise, .. })), "{status:?}");
    }
}

pub async fn a_token_that_was_delisted_is_judged_as_before(net: &Net) {
    let key = Key::numbered(0);
    let token = net.deploy(&key, "False", &[U256::from(100), U256::ZERO]).await;
    let delisted = net.chain(|_| {});
    for (amount, expected) in [(60, Paid::InFull), (60, Paid::Nothing)] {
        let payment = Payment { to: evm(fresh(1)), coin: Coin::Token(evm(token)), amount: raw(amount) };
        let sent = pay(net, &delisted, &key, payment).await;
        net.mine(1).await;
        let Ok(Status::Mined(mined)) = delisted.status(&sent).await else { panic!("it is mined") };
        assert_eq!(mined.paid, expected);
    }
}

pub async fn an_unlisted_contract_is_not_believed(net: &Net) {
    let key = Key::numbered(0);
    let token = net.deploy(&key, "Plain", &[U256::from(1_000)]).await;
    let liar = net.deploy(&key, "Liar", &[U256::from(1_000)]).await;
    let lie = call_of("lie(address,address,uint256)", &[word(fresh(3)), word(fresh(1)), U256::from(900)]);
    net.send(&key, TxKind::Call(liar), 0, lie).await;
    net.mine(1).await;
    let watched = watch(&[fresh(1)]);
    for tokens in [vec![], vec![token]] {
        let chain = net.chain(|settings| settings.tokens = tokens);
        assert_eq!(told(&scan_all(net, &chain, &watched).await.outputs), []);
    }
    // Who lists it believes it: that the list is right is the operator's duty.
    let chain = net.chain(|settings| settings.tokens = vec![liar]);
    assert_eq!(scan_all(net, &chain, &watched).await.outputs.len(), 1);
}

pub async fn logs_are_counted_within_their_transaction(net: &Net) {
    let key = Key::numbered(0);
    let token = net.deploy(&key, "Plain", &[U256::from(1_000)]).await;
    let chain = net.chain(|settings| settings.tokens = vec![token]);
    for amount in [1, 2, 3] {
        let payment = Payment { to: evm(fresh(1)), coin: Coin::Token(evm(token)), amount: raw(amount) };
        pay(net, &chain, &key, payment).await;
    }
    net.mine(1).await;
    let scan = scan_all(net, &chain, &watch(&[fresh(1)])).await;
    let expected = ["1", "2", "3"].map(|amount| (Place::Log(0), 0, amount.to_owned(), true));
    assert_eq!(told(&scan.outputs), expected, "the node counts 0, 1, 2 within the block");
    assert_eq!(scan.headers.len(), 3);
}

pub async fn internal_transfers_are_found_and_undone_ones_are_not(net: &Net) {
    let key = Key::numbered(0);
    let contract = net.deploy(&key, "Disperse", &[]).await;
    let (kept, undone, many) = (fresh(1), fresh(2), [fresh(3), fresh(4)]);
    let pretend = call_of("pretend(address,address,uint256)", &[word(kept), word(undone), U256::from(5)]);
    let first = net.send(&key, TxKind::Call(contract), 10, pretend).await;
    // Two arrays of two: where they stand, then each with its length.
    let arrays = [U256::from(64), U256::from(160), U256::from(2), word(many[0]), word(many[1])];
    let arrays = [&words(&arrays)[..], &words(&[2, 30, 40].map(U256::from))].concat();
    let disperse = [call_of("disperse(address[],uint256[])", &[]), arrays].concat();
    net.send(&key, TxKind::Call(contract), 100, disperse).await;
    net.mine(1).await;
    let watched = watch(&[kept, undone, many[0], many[1], contract]);
    let chain = net.chain(|settings| settings.internal_transfers = true);
    let scan = scan_all(net, &chain, &watched).await;
    let found: Vec<_> = scan.outputs.iter().map(|one| (one.watched, one.amount.to_string())).collect();
    let expected = [(4, "10"), (0, "5"), (4, "100"), (2, "30"), (3, "40")];
    assert_eq!(found, expected.map(|(number, amount)| (number, amount.to_owned())));
    assert_eq!((scan.outputs[0].place, scan.outputs[1].place), (Place::Value, Place::Internal(1)));
    let proven = chain.prove(first, &watched).await.expect("an answer").expect("mined");
    assert_eq!(proven.outputs, scan.outputs[..2]);
    // Who does not ask for them is told of the value alone.
    let plain = scan_all(net, &net.chain(|_| {}), &watched).await;
    assert!(plain.outputs.iter().all(|one| one.place == Place::Value && one.watched == 4));
    assert_eq!(plain.outputs.len(), 2);
}

/// What must be in the chain's own books: each balance is what it was, and what came, less what left.
pub async fn assert_books(
    chain: &EvmChain,
    from: u64,
    to: u64,
    (accounts, coins): (&[Account], &[Coin]),
    before: &[U256],
) {
    let scan = chain.scan(from, to, &watch(accounts)).await.expect("a scan");
    let now = balances(chain, accounts, coins).await;
    let mut expected = before.to_vec();
    let place = |address: &tx::Address, coin: &Coin| {
        let owner = accounts.iter().position(|account| evm(*account) == *address).expect("watched");
        owner * coins.len() + coins.iter().position(|one| one == coin).expect("a known coin")
    };
    for output in scan.outputs.iter().filter(|output| output.ok) {
        expected[place(&output.to, &output.coin)] += output.amount.to_u256();
    }
    for spend in &scan.spends {
        expected[place(&spend.from, &spend.coin)] -= spend.amount.to_u256();
    }
    assert_eq!(now, expected, "{:#?}", scan.spends);
}

/// Of each account each coin.
pub async fn balances(chain: &EvmChain, accounts: &[Account], coins: &[Coin]) -> Vec<U256> {
    let wanted: Vec<_> =
        accounts.iter().flat_map(|account| coins.iter().map(|coin| (evm(*account), coin.clone()))).collect();
    chain.balances(&wanted).await.expect("balances").iter().map(|amount| amount.to_u256()).collect()
}

fn spent(spends: &[Spend]) -> Vec<(Place, u32, bool)> {
    spends.iter().map(|one| (one.place, one.watched, one.ok)).collect()
}

pub async fn every_balance_is_what_came_less_what_left(net: &Net) {
    let (key, other) = (Key::numbered(0), Key::numbered(1));
    let token = net.deploy(&key, "Plain", &[U256::from(1_000)]).await;
    let disperse = net.deploy(&key, "Disperse", &[]).await;
    let chain = net.chain(|settings| {
        settings.tokens = vec![token];
        settings.internal_transfers = true;
    });
    let accounts = [account(&key), account(&other), fresh(1), disperse];
    let coins = [Coin::Native, Coin::Token(evm(token))];
    let (before, from) = (balances(&chain, &accounts, &coins).await, net.height().await + 1);
    let pays = |to: Account, amount: u64| Payment { to: evm(to), coin: coins[1].clone(), amount: raw(amount) };
    pay(net, &chain, &key, native(accounts[1], 7)).await;
    pay(net, &chain, &key, native(accounts[0], 5)).await;
    // It takes no coin, so this fails; and so does a transfer of more than there is.
    pay(net, &chain, &key, native(token, 5)).await;
    pay(net, &chain, &key, pays(fresh(1), 5_000)).await;
    pay(net, &chain, &key, pays(accounts[1], 250)).await;
    net.mine(1).await;
    pay(net, &chain, &other, pays(accounts[1], 40)).await;
    pay(net, &chain, &other, pays(fresh(1), 10)).await;
    let pretend = call_of("pretend(address,address,uint256)", &[word(fresh(1)), word(fresh(2)), U256::from(5)]);
    net.send(&key, TxKind::Call(disperse), 11, pretend).await;
    net.mine(2).await;
    let to = net.height().await;
    assert_books(&chain, from, to, (&accounts, &coins), &before).await;
    let scan = chain.scan(from, to, &watch(&accounts)).await.expect("a scan");
    assert!(!scan.source.is_empty());
    // The same by the roots of the headers, and by agreement.
    assert_eq!(chain.prove_blocks(from, to, &watch(&accounts)).await.as_ref(), Ok(&scan));
    let agreeing = net.chain(|settings| {
        settings.tokens = vec![token];
        settings.internal_transfers = true;
        settings.proof = BlockProof::SecondNode;
    });
    let agreed = agreeing.prove_blocks(from, to, &watch(&accounts)).await.expect("agreement");
    assert_eq!((&agreed.headers, &agreed.outputs, &agreed.spends), (&scan.headers, &scan.outputs, &scan.spends));
    let mut of_key: Vec<_> = scan.spends.iter().filter(|one| one.watched == 0).cloned().collect();
    of_key.truncate(7);
    assert_eq!(
        spent(&of_key),
        [
            (Place::Value, 0, true),
            (Place::Fee, 0, true),
            (Place::Value, 0, true),
            (Place::Fee, 0, true),
            (Place::Fee, 0, false),
            (Place::Fee, 0, false),
            (Place::Log(0), 0, true),
        ]
    );
    let inside: Vec<_> = scan.spends.iter().filter(|one| one.watched == 3).collect();
    assert!(inside.iter().any(|one| matches!(one.place, Place::Internal(_)) && one.to == Some(evm(fresh(1)))));
    // Strangers cost nobody anything, and no receipt is asked for.
    let strangers = chain.scan(from, to, &watch(&[fresh(77)])).await.expect("a scan");
    assert_eq!((strangers.outputs, strangers.spends), (Vec::new(), Vec::new()));
}

/// Of every type that both networks take: the oldest, with an access list, and with a priority fee.
pub async fn transactions_of_all_types_are_proven(net: &Net) {
    let key = Key::numbered(0);
    let chain = net.chain(|_| {});
    let from = net.height().await + 1;
    net.send(&key, TxKind::Call(fresh(1)), 7, Vec::new()).await;
    pay(net, &chain, &key, native(fresh(1), 8)).await;
    let listed = TxEip2930 {
        chain_id: CHAIN_ID,
        nonce: net.nonce(account(&key)).await,
        gas_price: 50 * GWEI,
        gas_limit: 100_000,
        to: TxKind::Call(fresh(1)),
        value: U256::from(9),
        access_list: AccessList(vec![AccessListItem { address: fresh(3), storage_keys: vec![B256::repeat_byte(5)] }]),
        input: vec![1, 2, 3].into(),
    };
    net.send_raw(&sign(&key, &listed.encoded_for_signing())).await;
    net.mine(1).await;
    let watched = watch(&[fresh(1), account(&key)]);
    let to = net.height().await;
    let scan = chain.scan(from, to, &watched).await.expect("a scan");
    assert_eq!((scan.outputs.len(), scan.spends.len()), (3, 6));
    assert_eq!(chain.prove_blocks(from, to, &watched).await, Ok(scan));
}

pub async fn ten_payments_of_one_transaction_stay_ten(net: &Net) {
    let key = Key::numbered(0);
    let disperse = net.deploy(&key, "Disperse", &[]).await;
    let chain = net.chain(|settings| settings.internal_transfers = true);
    let from = net.height().await + 1;
    let ten = |head: u64| [U256::from(head), U256::from(64 + 11 * 32)];
    let mut arguments = ten(64).to_vec();
    arguments.push(U256::from(10));
    arguments.extend([word(fresh(1)); 10]);
    arguments.push(U256::from(10));
    arguments.extend([U256::from(3); 10]);
    let call = call_of("disperse(address[],uint256[])", &arguments);
    net.send(&key, TxKind::Call(disperse), 30, call).await;
    net.mine(1).await;
    let scan = chain.scan(from, net.height().await, &watch(&[fresh(1), disperse])).await.expect("a scan");
    let to_it: Vec<_> = scan.outputs.iter().filter(|one| one.watched == 0).map(|one| one.place).collect();
    assert_eq!(to_it, (1..=10).map(Place::Internal).collect::<Vec<_>>());
    let from_it: Vec<_> = scan.spends.iter().map(|one| one.place).collect();
    assert_eq!(from_it, to_it);
}

pub async fn a_reorg_of_twenty_blocks_is_seen(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    let watched = watch(&[fresh(1)]);
    pay(net, &chain, &key, native(fresh(1), 1)).await;
    net.mine(5).await;
    let lost = pay(net, &chain, &key, native(fresh(1), 2)).await;
    net.mine(20).await;
    let before = scan_all(net, &chain, &watched).await;
    assert_eq!((before.headers.len(), before.outputs.len()), (26, 2));
    net.reorg(20).await;
    let after = scan_all(net, &chain, &watched).await;
    let same = before.headers.iter().zip(&after.headers).take_while(|(one, other)| one.hash == other.hash).count();
    assert_eq!(same, 6, "the fork is at block 5");
    assert_eq!(after.headers[6].parent, before.headers[5].hash);
    assert!(before.headers[6..].iter().zip(&after.headers[6..]).all(|(one, other)| one.hash != other.hash));
    assert_eq!(told(&after.outputs), told(&before.outputs[..1]));
    assert_eq!(chain.prove(lost.hash, &watched).await, Ok(None));
    let status = chain.status(&lost).await.expect("an answer");
    assert!(matches!(status, Status::Unknown | Status::Mempool), "{status:?}");
}

pub async fn the_loser_of_a_replacement_becomes_impossible(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    pay(net, &chain, &key, native(fresh(3), 1)).await;
    net.mine(2).await;
    let nonce = net.nonce(account(&key)).await;
    let slow = draft(&key, nonce, native(fresh(1), 1), Fee::Eip1559 { max_fee: 3 * GWEI, max_priority: GWEI });
    let (signed, loser) = prepare(net, &chain, &slow, &key).await;
    assert_eq!(chain.broadcast(&signed).await, Ok(Broadcast::Taken));
    let Draft::Evm { fee, payment, .. } = &slow else { unreachable!() };
    let fee = replacement(*fee, *fee, FeeCap(FEE));
    assert_eq!(fee, None, "the cap on the priority fee does not allow it");
    let cap = FeeCap(Fee::Eip1559 { max_fee: 50 * GWEI, max_priority: 50 * GWEI });
    let fee = replacement(loser.meaning.fee, FEE, cap).expect("below the cap");
    let fast = draft(&key, nonce, payment.clone(), fee);
    let (signed, winner) = prepare(net, &chain, &fast, &key).await;
    assert_eq!(chain.broadcast(&signed).await, Ok(Broadcast::Taken));
    net.mine(1).await;
    let Ok(Status::Mined(Mined { block, paid: Paid::InFull, fee })) = chain.status(&winner).await else {
        panic!("not mined")
    };
    let receipt = net.rpc("eth_getTransactionReceipt", json!([format!("0x{}", winner.hash)])).await;
    let cost = super::net::number(&receipt["gasUsed"]) * super::net::number(&receipt["effectiveGasPrice"]);
    assert_eq!(fee, Some(raw(cost)));
    for _ in 0..CONFIRMATIONS {
        assert_eq!(chain.status(&loser).await, Ok(Status::Unknown));
        net.mine(1).await;
    }
    let expected = Reason::NonceTaken { by: winner.hash, block };
    for since in [loser.since, 0, block.height, block.height + 1, block.height + 100] {
        let status = chain.status(&Sent { since, ..loser.clone() }).await.expect("an answer");
        let Status::Impossible(proof) = status else { panic!("{status:?}, since {since}") };
        assert_eq!(proof.reason(), expected);
    }
    assert!(matches!(chain.status(&winner).await, Ok(Status::Mined(_))));
}

pub async fn a_nonce_that_moved_on_proves_nothing_before_it_is_settled(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    let (_, loser) = prepare(net, &chain, &draft(&key, 0, native(fresh(1), 1), FEE), &key).await;
    pay(net, &chain, &key, native(fresh(2), 1)).await;
    net.mine(CONFIRMATIONS).await;
    assert_eq!(chain.status(&loser).await, Ok(Status::Unknown));
    // The block that took the nonce goes away again, and with it the reason.
    net.reorg(CONFIRMATIONS).await;
    net.mine(CONFIRMATIONS * 2).await;
    assert!(!matches!(chain.status(&loser).await, Ok(Status::Impossible(_))));
}

pub async fn what_was_never_sent_is_unknown(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    for nonce in [0, 5] {
        let (_, sent) = prepare(net, &chain, &draft(&key, nonce, native(fresh(1), 1), FEE), &key).await;
        assert_eq!(chain.status(&sent).await, Ok(Status::Unknown));
        net.mine(CONFIRMATIONS * 2).await;
        assert_eq!(chain.status(&sent).await, Ok(Status::Unknown));
    }
}

pub async fn what_waits_is_in_the_mempool(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    let sent = pay(net, &chain, &key, native(fresh(1), 1)).await;
    assert_eq!(chain.status(&sent).await, Ok(Status::Mempool));
    assert_eq!(chain.prove(sent.hash, &watch(&[fresh(1)])).await, Ok(None));
    net.mine(1).await;
    assert!(matches!(chain.status(&sent).await, Ok(Status::Mined(Mined { paid: Paid::InFull, .. }))));
}

pub async fn a_broadcast_can_be_repeated(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    let (signed, sent) = prepare(net, &chain, &draft(&key, 0, native(fresh(1), 1), FEE), &key).await;
    for _ in 0..3 {
        assert_eq!(chain.broadcast(&signed).await, Ok(Broadcast::Taken));
    }
    net.mine(1).await;
    assert_eq!(chain.broadcast(&signed).await, Ok(Broadcast::Taken), "mined: the nonce is too low for itself");
    net.mine(1).await;
    assert_eq!(told(&scan_all(net, &chain, &watch(&[fresh(1)])).await.outputs).len(), 1);
    assert!(matches!(chain.status(&sent).await, Ok(Status::Mined(_))));
}

pub async fn refusals_are_understood(net: &Net) {
    let (chain, key, poor) = (net.chain(|_| {}), Key::numbered(0), Key::numbered(77));
    let refusal = async |draft: Draft, key: &Key| {
        let (signed, _) = prepare(net, &chain, &draft, key).await;
        match chain.broadcast(&signed).await {
            Ok(Broadcast::Refused(refusal, words)) => (refusal, words),
            other => panic!("{other:?}"),
        }
    };
    let (why, words) = refusal(draft(&poor, 0, native(fresh(1), 1), FEE), &poor).await;
    assert_eq!(why, NodeRefusal::InsufficientFunds, "{words}");
    pay(net, &chain, &key, native(fresh(1), 1)).await;
    net.mine(1).await;
    let (why, words) = refusal(draft(&key, 0, native(fresh(2), 1), FEE), &key).await;
    assert_eq!(why, NodeRefusal::NonceTooLow, "{words}");
    pay(net, &chain, &key, native(fresh(1), 1)).await;
    let cheap = Fee::Eip1559 { max_fee: 50 * GWEI, max_priority: GWEI - 1 };
    let (why, words) = refusal(draft(&key, 1, native(fresh(2), 1), cheap), &key).await;
    assert_eq!(why, NodeRefusal::Underpriced, "{words}");
    // Another network's transaction is not even shown to a node.
    let foreign = net.chain(|settings| settings.chain_id = CHAIN_ID + 1);
    let unsigned = foreign.build(&draft(&key, 2, native(fresh(1), 1), FEE)).expect("good there");
    let said = chain.broadcast(&sign(&key, &unsigned.bytes)).await;
    assert!(matches!(said, Ok(Broadcast::Refused(NodeRefusal::WrongNetwork, _))), "{said:?}");
    let said = chain.broadcast(&[1, 2, 3]).await;
    assert!(matches!(said, Ok(Broadcast::Refused(NodeRefusal::Malformed, _))), "{said:?}");
}

pub async fn a_failed_call_is_mined_and_costs_its_fee(net: &Net) {
    let key = Key::numbered(0);
    let contract = net.deploy(&key, "Plain", &[U256::from(1_000)]).await;
    let chain = net.chain(|_| {});
    let sent = pay(net, &chain, &key, native(contract, 5)).await;
    net.mine(1).await;
    let status = chain.status(&sent).await.expect("an answer");
    let Status::Mined(Mined { paid: Paid::Nothing, fee: Some(fee), .. }) = status else { panic!("{status:?}") };
    assert!(fee > raw(0) && Some(fee) < sent.meaning.most_fee);
}

pub async fn balances_of_five_hundred_accounts(net: &Net) {
    let key = Key::numbered(0);
    let token = net.deploy(&key, "Plain", &[U256::from(1_000_000)]).await;
    let chain = net.chain(|_| {});
    let accounts: Vec<Account> =
        (0..250_u64).map(|number| Account::left_padding_from(&(number + 1_000).to_be_bytes())).collect();
    for (account, wei) in accounts.iter().zip(1..) {
        net.fund(*account, wei).await;
    }
    for (account, amount) in accounts.iter().zip(1..).step_by(50) {
        let transfer = call_of("transfer(address,uint256)", &[word(*account), U256::from(amount)]);
        net.send(&key, TxKind::Call(token), 0, transfer).await;
    }
    net.mine(1).await;
    // Both coins of each, turn by turn, so that the order of the answers counts.
    let wanted: Vec<_> = accounts
        .iter()
        .flat_map(|account| [Coin::Native, Coin::Token(evm(token))].map(|coin| (evm(*account), coin)))
        .collect();
    let balances = chain.balances(&wanted).await.expect("balances");
    assert_eq!(balances.len(), 500);
    for (number, pair) in (0..).zip(balances.chunks(2)) {
        let tokens = if number % 50 == 0 { number + 1 } else { 0 };
        assert_eq!(pair, [raw(number + 1), raw(tokens)], "{number}");
    }
    // No token is there, so no balance is: not zero.
    let nobody = chain.balances(&[(key.evm(), Coin::Token(evm(fresh(1))))]).await;
    assert!(matches!(nobody, Err(ChainError::Unreachable(_))), "{nobody:?}");
    assert_eq!(chain.balances(&[(key.tron(), Coin::Native)]).await, Err(ChainError::ForeignAddress));
    assert_eq!(chain.balances(&[]).await, Ok(Vec::new()));
}

pub async fn quotes_stay_below_their_cap(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    let payment = native(fresh(1), 5);
    let quote = async |cap| chain.quote(&key.evm(), &payment, FeeCap(cap)).await.expect("a quote");
    let wide = quote(Fee::Eip1559 { max_fee: 1_000 * GWEI, max_priority: 100 * GWEI }).await;
    let Fee::Eip1559 { max_fee, max_priority } = wide.fee else { panic!("{wide:?}") };
    assert!(!wide.capped && max_priority <= max_fee && max_fee < 100 * GWEI, "{wide:?}");
    assert_eq!((wide.gas, wide.most), (21_000, raw(u64::try_from(max_fee * 21_000).expect("small"))));
    let tight = quote(Fee::Eip1559 { max_fee: 1_000, max_priority: 10 }).await;
    assert_eq!((tight.fee, tight.capped), (Fee::Eip1559 { max_fee: 1_000, max_priority: 10 }, true));
    let legacy = quote(Fee::Legacy { gas_price: 1_000 * GWEI }).await;
    assert!(matches!(legacy.fee, Fee::Legacy { .. }) && !legacy.capped, "{legacy:?}");
    assert_eq!(quote(Fee::Legacy { gas_price: 7 }).await.fee, Fee::Legacy { gas_price: 7 });
    // What is quoted is taken and mined.
    let draft = Draft::Evm { from: key.evm(), nonce: 0, payment: payment.clone(), gas_limit: wide.gas, fee: wide.fee };
    let (signed, sent) = prepare(net, &chain, &draft, &key).await;
    assert_eq!(chain.broadcast(&signed).await, Ok(Broadcast::Taken));
    net.mine(1).await;
    let Ok(Status::Mined(Mined { paid: Paid::InFull, fee: Some(fee), .. })) = chain.status(&sent).await else {
        panic!("not mined")
    };
    assert!(fee <= wide.most);
    // A transfer that would revert cannot be quoted.
    let token = net.deploy(&key, "Plain", &[U256::from(10)]).await;
    let too_much = Payment { to: evm(fresh(1)), coin: Coin::Token(evm(token)), amount: raw(11) };
    let refused = chain.quote(&key.evm(), &too_much, FeeCap(FEE)).await;
    assert!(matches!(refused, Err(ChainError::Refused(_))), "{refused:?}");
}

/// What is asked of many at once has for each the answer that it has alone.
pub async fn many_at_once_are_told_what_each_alone_is_told(net: &Net) {
    let (chain, key) = (net.chain(|settings| settings.batch = 3), Key::numbered(0));
    let token = net.deploy(&key, "Plain", &[U256::from(10)]).await;
    let tokens = |amount| Payment { to: evm(fresh(1)), coin: Coin::Token(evm(token)), amount: raw(amount) };
    let payments = [native(fresh(1), 5), tokens(3), tokens(11), native(fresh(2), 7), native(token, 1), tokens(10)];
    let caps = [FeeCap(FEE), FeeCap(Fee::Legacy { gas_price: 50 * GWEI })];
    let from = key.evm();
    let requests: Vec<QuoteRequest<'_>> = payments
        .iter()
        .enumerate()
        .map(|(n, payment)| QuoteRequest { from: &from, payment, cap: caps[n % 2] })
        .collect();
    let quotes = chain.quotes(&requests).await;
    assert_eq!(quotes.len(), payments.len());
    for (quote, one) in quotes.iter().zip(&requests) {
        let alone = chain.quote(one.from, one.payment, one.cap).await;
        match (quote, &alone) {
            // More than there is, and a contract that takes no coin: only these are refused.
            (Err(ChainError::Refused(_)), Err(ChainError::Refused(_))) => {}
            _ => assert_eq!(quote, &alone),
        }
    }
    let refused: Vec<bool> = quotes.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, false, true, false, true, false]);
    assert!(chain.quotes(&[]).await.is_empty());

    let first = net.nonce(account(&key)).await;
    let (mut all, mut sent) = (Vec::new(), Vec::new());
    for number in 0..5 {
        let draft = draft(&key, first + number, native(fresh(1), number + 1), FEE);
        let (signed, one) = prepare(net, &chain, &draft, &key).await;
        all.push(signed);
        sent.push(one);
    }
    all.insert(2, vec![1, 2, 3]);
    let bytes: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let said = chain.broadcast_all(&bytes).await;
    let taken: Vec<bool> = said.iter().map(|said| *said == Ok(Broadcast::Taken)).collect();
    assert_eq!(taken, [true, true, false, true, true, true], "{said:?}");
    assert!(matches!(said[2], Ok(Broadcast::Refused(NodeRefusal::Malformed, _))), "{said:?}");
    // Again: whoever has it says so.
    assert!(chain.broadcast_all(&bytes[3..]).await.iter().all(|said| *said == Ok(Broadcast::Taken)));

    // Never sent: one whose nonce another takes, and one whose nonce is free.
    for (nonce, to) in [(first, 8), (first + 50, 9)] {
        sent.push(prepare(net, &chain, &draft(&key, nonce, native(fresh(to), 1), FEE), &key).await.1);
    }
    let expect = async |what: &str| {
        let statuses = chain.statuses(&sent).await;
        let mut words = String::new();
        for (status, one) in statuses.iter().zip(&sent) {
            assert_eq!(*status, chain.status(one).await, "{what}");
            words.push(match status.as_ref().expect("an answer") {
                Status::Unknown => 'u',
                Status::Mempool => 'p',
                Status::Mined(_) => 'm',
                Status::Impossible(_) => 'x',
            });
        }
        words
    };
    assert_eq!(expect("before a block").await, "pppppuu");
    net.mine(1).await;
    assert_eq!(expect("in a block").await, "mmmmmuu");
    net.mine(CONFIRMATIONS).await;
    assert_eq!(expect("settled").await, "mmmmmxu");
    assert!(chain.statuses(&[]).await.is_empty());
}

pub async fn nonces_count_what_waits(net: &Net) {
    let (chain, key) = (net.chain(|_| {}), Key::numbered(0));
    pay(net, &chain, &key, native(fresh(1), 1)).await;
    net.mine(1).await;
    pay(net, &chain, &key, native(fresh(1), 1)).await;
    pay(net, &chain, &key, native(fresh(1), 1)).await;
    let nonces = chain.nonces(&[evm(fresh(1)), key.evm()]).await.expect("nonces");
    let nonces: Vec<_> = nonces.iter().map(|one| (one.mined, one.pending)).collect();
    assert_eq!(nonces, [(0, 0), (1, 3)]);
}

pub async fn the_network_is_checked(net: &Net) {
    assert_eq!(net.chain(|_| {}).check_network().await, Ok(()));
    let foreign = net.chain(|settings| settings.chain_id = 56).check_network().await;
    let expected = ChainError::WrongNetwork { wanted: "56".to_owned(), found: CHAIN_ID.to_string() };
    assert_eq!(foreign, Err(expected));
}

pub async fn a_block_above_the_tip_is_missing(net: &Net) {
    let chain = net.chain(|_| {});
    net.mine(3).await;
    let head = chain.head().await.expect("a head");
    assert_eq!((head.tip.height, head.settled), (3, None));
    assert_eq!(chain.headers(&[2, 4]).await, Err(ChainError::BlockMissing { height: 4 }));
    assert_eq!(chain.scan(2, 9, &watch(&[])).await, Err(ChainError::BlockMissing { height: 4 }));
    net.mine(4).await;
    assert_eq!(chain.head().await.expect("a head").settled, Some(2));
}

pub async fn blocks_are_read_in_any_batch(net: &Net) {
    let key = Key::numbered(0);
    let token = net.deploy(&key, "Plain", &[U256::from(1_000)]).await;
    let whole = net.chain(|settings| settings.tokens = vec![token]);
    for amount in 1..=6 {
        pay(net, &whole, &key, native(fresh(1), amount)).await;
        pay(net, &whole, &key, Payment { to: evm(fresh(2)), coin: Coin::Token(evm(token)), amount: raw(amount) }).await;
        net.mine(3).await;
    }
    let watched = watch(&[fresh(1), fresh(2)]);
    let expected = scan_all(net, &whole, &watched).await;
    assert_eq!((expected.headers.len(), expected.outputs.len()), (20, 12));
    for (batch, concurrency, log_window) in [(1, 1, 1), (1, 8, 3), (3, 2, 2), (7, 3, 100), (0, 0, 0), (100, 1, 4)] {
        let chain = net.chain(|settings| {
            (settings.batch, settings.concurrency, settings.log_window) = (batch, concurrency, log_window);
            settings.tokens = vec![token];
        });
        assert_eq!(scan_all(net, &chain, &watched).await, expected, "{batch} {concurrency} {log_window}");
    }
}
