//! What must hold on anything that speaks TRON's protocol. Each case is a function over a [`Net`], so that the devnet
//! and a real node run the same ones.
//!
//! Each case wants a net of its own: with [`Key::numbered`] 0 and 1 rich in TRX and in the token, and with blocks that
//! are solidified no sooner than 21 blocks later, so that 20 can be replaced.

use chain::client::Sent;
use chain::status::{Paid, Reason};
use chain::tron::TronChain;
use chain::{Broadcast, Chain, ChainError, NodeRefusal, Place, Status};
use devnet::{Fate, Key};
use domain::{RawAmount, Timestamp};
use prost::Message as _;
use tx::tron::proto::Envelope;
use tx::tron::transaction;
use tx::{Address, Coin, Draft, Fee, FeeCap, Payment, TxHash};

use super::{client, watching};

pub trait Net: Sync {
    /// Of at least two endpoints of the one chain.
    fn urls(&self) -> Vec<String>;
    fn token(&self) -> Address;
    fn mine(&self, blocks: u64);
    /// In the next block.
    fn fund(&self, to: &Address, coin: &Coin, amount: u64);
    fn reorg(&self, depth: u64, fate: Fate);
}

const CAP: FeeCap = FeeCap(Fee::FeeLimit(100_000_000));

fn raw(amount: u64) -> RawAmount {
    amount.to_string().parse().expect("digits")
}

fn chain_of(net: &dyn Net) -> TronChain {
    let urls = net.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    client(&urls, urls.len(), vec![net.token()])
}

fn rich(number: u32) -> Address {
    Key::numbered(number).tron()
}

/// Nobody has paid it yet.
fn fresh(number: u32) -> Address {
    Key::numbered(5_000 + number).tron()
}

struct Made {
    sent: Sent,
    raw: Vec<u8>,
    signed: Vec<u8>,
}

/// A payment by key 0, quoted, drafted at the tip's time and signed. `fee_limit`: in place of the quoted one.
async fn make(chain: &TronChain, payment: Payment, life_ms: i64, fee_limit: Option<i64>) -> Made {
    let head = chain.head().await.expect("a head");
    // What cannot work is not quoted; its reference is.
    let plain = Payment { to: rich(1), coin: Coin::Native, amount: raw(1) };
    let asked = if fee_limit.is_some() { &plain } else { &payment };
    let quote = chain.quote(&rich(0), asked, CAP).await.expect("a quote");
    let Fee::FeeLimit(quoted) = quote.fee else { panic!("{:?}", quote.fee) };
    let draft = Draft::Tron {
        from: rich(0),
        payment,
        fee_limit: fee_limit.unwrap_or(quoted),
        reference: quote.reference.expect("TRON needs one").0,
        created: head.tip.time,
        expires: head.tip.time.plus_micros(life_ms * 1_000),
    };
    sign(draft, head.tip.height)
}

fn sign(draft: Draft, since: u64) -> Made {
    let unsigned = transaction::build(&draft).expect("a good draft");
    let hash = unsigned.meaning.hash.expect("known on TRON");
    let (signature, odd) = Key::numbered(0).sign(hash.0);
    let signed = transaction::attach(&unsigned.bytes, &signature, odd).expect("the owner's");
    let meaning = transaction::decode_signed(&signed).expect("what was built");
    assert_eq!(meaning, unsigned.meaning);
    Made { sent: Sent { meaning, hash, since }, raw: unsigned.bytes, signed }
}

fn pay(to: Address, coin: Coin, amount: u64) -> Payment {
    Payment { to, coin, amount: raw(amount) }
}

async fn balance(chain: &TronChain, of: Address, coin: Coin) -> RawAmount {
    chain.balances(&[(of, coin)]).await.expect("a balance")[0]
}

pub async fn case_the_network_is_the_one_that_was_meant(net: &dyn Net) {
    let chain = chain_of(net);
    assert_eq!(chain.check_network().await, Ok(()));
    net.mine(30);
    let head = chain.head().await.expect("a head");
    let settled = head.settled.expect("old enough");
    assert!(settled < head.tip.height);
    let heights = [0, 1, settled, head.tip.height];
    let headers = chain.headers(&heights).await.expect("a quorum");
    assert_eq!(headers[3], head.tip);
    let above = head.tip.height + 1;
    assert_eq!(chain.headers(&[above]).await, Err(ChainError::BlockMissing { height: above }));
}

pub async fn case_deposits_are_found_and_proven(net: &dyn Net) {
    let chain = chain_of(net);
    let watched = watching(&[fresh(0), fresh(1)]);
    net.mine(3);
    let from = chain.head().await.expect("a head").tip.height + 1;
    net.fund(&fresh(0), &Coin::Native, 5_000_000);
    net.fund(&fresh(1), &Coin::Token(net.token()), 7_000_000);
    net.fund(&fresh(9), &Coin::Native, 9_000_000);
    net.mine(3);
    let scan = chain.scan(from, from + 2, &watched).await.expect("a scan");
    assert_eq!(scan.headers.len(), 3);
    let [native, token] = scan.outputs.as_slice() else { panic!("{:?}", scan.outputs) };
    assert_eq!((native.place, native.amount, &native.to, native.ok), (Place::Value, raw(5_000_000), &fresh(0), true));
    assert_eq!((token.place, token.amount, &token.to, token.ok), (Place::Log(0), raw(7_000_000), &fresh(1), true));
    assert_eq!(token.coin, Coin::Token(net.token()));
    for output in [native, token] {
        let proven = chain.prove(output.transaction, &watched).await.expect("a quorum").expect("mined");
        assert_eq!((proven.block, proven.ok), (output.block, true));
        assert_eq!(proven.outputs, std::slice::from_ref(output));
    }
    assert_eq!(chain.prove(TxHash([9; 32]), &watched).await, Ok(None));
    let whole = chain.scan(0, from + 2, &watched).await.expect("from the first block on");
    assert_eq!(whole.outputs, scan.outputs);
    // Without the token in the list its logs are anybody's.
    let urls = net.urls();
    let unlisted = client(&[&urls[0]], 1, vec![]).scan(from, from + 2, &watched).await.expect("a scan");
    assert_eq!(unlisted.outputs.len(), 1);
}

pub async fn case_a_payout_is_followed_through_its_life(net: &dyn Net) {
    let chain = chain_of(net);
    net.mine(25);
    for (coin, to) in [(Coin::Native, fresh(0)), (Coin::Native, rich(1)), (Coin::Token(net.token()), fresh(1))] {
        let payment = pay(to.clone(), coin.clone(), 2_000_000);
        let quote = chain.quote(&rich(0), &payment, CAP).await.expect("a quote");
        let before = (balance(&chain, to.clone(), coin.clone()).await, balance(&chain, rich(0), Coin::Native).await);
        let made = make(&chain, payment, 60_000, None).await;
        assert_eq!(chain.status(&made.sent).await, Ok(Status::Unknown));
        assert_eq!(chain.broadcast(&made.signed).await, Ok(Broadcast::Taken));
        assert_eq!(chain.status(&made.sent).await, Ok(Status::Mempool));
        // Once more, as after a timeout.
        assert_eq!(chain.broadcast(&made.signed).await, Ok(Broadcast::Taken));
        net.mine(1);
        let status = chain.status(&made.sent).await;
        let Ok(Status::Mined(mined)) = status else { panic!("{status:?}") };
        assert_eq!(mined.paid, Paid::InFull);
        assert_eq!(mined.block.height, made.sent.since + 1);
        let fee = mined.fee.expect("TRON says it");
        assert!(fee <= quote.most, "{fee} of at most {}", quote.most);
        assert!(fee <= made.sent.meaning.most_fee.expect("known on TRON"));
        assert_eq!(chain.broadcast(&made.signed).await, Ok(Broadcast::Taken), "it is there already");
        net.mine(1);
        let arrived = balance(&chain, to.clone(), coin.clone()).await.checked_sub(before.0);
        assert_eq!(arrived, Some(raw(2_000_000)), "once");
        let left = balance(&chain, rich(0), Coin::Native).await;
        let spent = if coin == Coin::Native { raw(2_000_000).checked_add(fee) } else { Some(fee) };
        assert_eq!(before.1.checked_sub(left), spent);
    }
}

pub async fn case_a_call_that_fails_pays_nothing(net: &dyn Net) {
    let chain = chain_of(net);
    let watched = watching(&[fresh(0)]);
    net.mine(2);
    let too_much = 900_000_000_000_000_000;
    let payment = pay(fresh(0), Coin::Token(net.token()), too_much);
    let quote = chain.quote(&rich(0), &payment, CAP).await;
    assert!(matches!(quote, Err(ChainError::Refused(_))), "{quote:?}");
    let made = make(&chain, payment, 60_000, Some(50_000_000)).await;
    assert_eq!(chain.broadcast(&made.signed).await, Ok(Broadcast::Taken));
    net.mine(1);
    let status = chain.status(&made.sent).await;
    let Ok(Status::Mined(mined)) = status else { panic!("{status:?}") };
    assert_eq!(mined.paid, Paid::Nothing);
    assert!(mined.fee > Some(RawAmount::ZERO));
    let scan = chain.scan(mined.block.height, mined.block.height, &watched).await.expect("a scan");
    assert!(scan.outputs.iter().all(|output| !output.ok));
    let proven = chain.prove(made.sent.hash, &watched).await.expect("a quorum").expect("mined");
    assert!(!proven.ok);
    assert_eq!(balance(&chain, fresh(0), Coin::Token(net.token())).await, RawAmount::ZERO);
}

pub async fn case_every_balance_is_what_came_less_what_left(net: &dyn Net) {
    let chain = chain_of(net);
    let accounts = [rich(0), rich(1), fresh(0), fresh(1)];
    let coins = [Coin::Native, Coin::Token(net.token())];
    net.mine(3);
    let from = chain.head().await.expect("a head").tip.height + 1;
    let wanted: Vec<_> = accounts.iter().flat_map(|one| coins.iter().map(|coin| (one.clone(), coin.clone()))).collect();
    let mut expected = chain.balances(&wanted).await.expect("balances");
    let too_much = 900_000_000_000_000_000;
    for (payment, limit) in [
        (pay(fresh(0), Coin::Native, 5_000_000), None),
        (pay(rich(1), Coin::Native, 7), None),
        (pay(fresh(1), coins[1].clone(), 9), None),
        (pay(rich(0), coins[1].clone(), 11), None),
        (pay(rich(1), coins[1].clone(), too_much), Some(50_000_000)),
        (pay(rich(1), coins[1].clone(), 13), Some(1)),
    ] {
        let made = make(&chain, payment, 60_000, limit).await;
        assert_eq!(chain.broadcast(&made.signed).await, Ok(Broadcast::Taken));
        net.mine(1);
    }
    net.fund(&fresh(1), &Coin::Native, 1_000_000);
    net.mine(1);
    let to = chain.head().await.expect("a head").tip.height;
    let scan = chain.scan(from, to, &watching(&accounts)).await.expect("a scan");
    let place = |address: &Address, coin: &Coin| {
        wanted.iter().position(|(owner, one)| owner == address && one == coin).expect("watched")
    };
    for output in scan.outputs.iter().filter(|output| output.ok) {
        let sum = &mut expected[place(&output.to, &output.coin)];
        *sum = sum.checked_add(output.amount).expect("no overflow");
    }
    for spend in &scan.spends {
        let sum = &mut expected[place(&spend.from, &spend.coin)];
        *sum = sum.checked_sub(spend.amount).expect("more than there was");
    }
    assert_eq!(chain.balances(&wanted).await, Ok(expected));
    let proven = chain.prove_blocks(from, to, &watching(&accounts)).await.expect("a proof");
    assert_eq!((&proven.headers, &proven.outputs, &proven.spends), (&scan.headers, &scan.outputs, &scan.spends));
    let failed: Vec<_> = scan.spends.iter().filter(|one| !one.ok).map(|one| (one.place, &one.from)).collect();
    assert_eq!(failed, [(Place::Fee, &rich(0)); 2], "one reverted, one ran out of energy");
    assert!(!scan.source.is_empty());
}

pub async fn case_only_expired_and_solidified_is_impossible(net: &dyn Net) {
    let chain = chain_of(net);
    net.mine(25);
    let lost = make(&chain, pay(rich(1), Coin::Native, 5), 30_000, None).await;
    let mined = make(&chain, pay(rich(1), Coin::Native, 6), 30_000, None).await;
    assert_eq!(chain.broadcast(&mined.signed).await, Ok(Broadcast::Taken));
    let mut seen = Vec::new();
    // Ten blocks until it expires, and those that must follow until the eleventh is solidified.
    for _ in 0..80 {
        net.mine(1);
        let head = chain.head().await.expect("a head");
        let status = chain.status(&lost.sent).await.expect("a quorum");
        if let Status::Impossible(proof) = status {
            let Reason::Expired { solidified, time } = proof.reason() else { panic!("{proof:?}") };
            assert!(solidified.height <= head.settled.expect("old enough"));
            let header = chain.headers(&[solidified.height]).await.expect("a quorum")[0];
            assert_eq!((header.at(), header.time), (solidified, time));
            assert!(time >= expiry(&lost));
            seen.push(head.tip.height);
            break;
        }
        assert_eq!(status, Status::Unknown);
    }
    assert_eq!(seen.len(), 1, "never proven");
    assert!(matches!(chain.status(&mined.sent).await, Ok(Status::Mined(_))));
    let refused = chain.broadcast(&lost.signed).await;
    assert!(matches!(refused, Ok(Broadcast::Refused(NodeRefusal::Expired, _))), "{refused:?}");
    net.mine(2);
    assert!(matches!(chain.status(&lost.sent).await, Ok(Status::Impossible(_))));
}

fn expiry(made: &Made) -> Timestamp {
    match made.sent.meaning.slot {
        tx::Slot::Expiry(time) => time,
        _ => panic!("TRON has nothing else"),
    }
}

pub async fn case_a_reorganisation_of_depth_20_is_seen(net: &dyn Net) {
    let chain = chain_of(net);
    let watched = watching(&[fresh(0)]);
    net.mine(30);
    let fork = chain.head().await.expect("a head").tip;
    let made = make(&chain, pay(fresh(0), Coin::Native, 5_000_000), 3_600_000, None).await;
    assert_eq!(chain.broadcast(&made.signed).await, Ok(Broadcast::Taken));
    net.mine(20);
    let (from, to) = (fork.height + 1, fork.height + 20);
    let old = chain.scan(from, to, &watched).await.expect("a scan");
    assert_eq!(old.outputs.len(), 1);
    net.reorg(20, Fate::Dropped);
    let new = chain.scan(fork.height, to + 1, &watched).await.expect("a scan");
    assert_eq!(new.headers[0], fork, "the fork is where it was");
    assert_eq!(new.headers[1].parent, fork.hash);
    assert!(new.headers[1..].iter().zip(&old.headers).all(|(new, old)| new.hash != old.hash));
    assert_eq!(new.outputs, []);
    assert_eq!(chain.prove(made.sent.hash, &watched).await, Ok(None));
    assert_eq!(chain.status(&made.sent).await, Ok(Status::Unknown), "it may be mined again");
    assert_eq!(chain.broadcast(&made.signed).await, Ok(Broadcast::Taken));
    net.mine(1);
    let status = chain.status(&made.sent).await;
    let Ok(Status::Mined(mined)) = status else { panic!("{status:?}") };
    let again = chain.scan(mined.block.height, mined.block.height, &watched).await.expect("a scan");
    // The key of a deposit does not depend on its block.
    assert_eq!(
        (again.outputs[0].transaction, again.outputs[0].place),
        (old.outputs[0].transaction, old.outputs[0].place)
    );
    net.mine(3);
    net.reorg(4, Fate::Moved);
    let status = chain.status(&made.sent).await;
    assert!(matches!(status, Ok(Status::Mined(moved)) if moved.block != mined.block), "{status:?}");
}

pub async fn case_what_is_wrong_is_refused_by_its_name(net: &dyn Net) {
    let chain = chain_of(net);
    net.mine(25);
    let good = make(&chain, pay(rich(1), Coin::Native, 5), 60_000, None).await;
    let refusal = |bytes: Vec<u8>| {
        let chain = &chain;
        async move {
            match chain.broadcast(&bytes).await.expect("an answer") {
                Broadcast::Refused(refusal, _) => Some(refusal),
                Broadcast::Taken => None,
            }
        }
    };
    let (other, odd) = Key::numbered(1).sign(good.sent.hash.0);
    let signature = [other.as_slice(), &[27 + u8::from(odd)]].concat();
    let forged = Envelope { raw_data: good.raw.clone(), signature: vec![signature], ret: Vec::new() };
    assert_eq!(refusal(forged.encode_to_vec()).await, Some(NodeRefusal::BadSignature));
    assert!(matches!(refusal(vec![0xff; 40]).await, Some(NodeRefusal::Malformed | NodeRefusal::Other)));

    let head = chain.head().await.expect("a head");
    let draft = |edit: &dyn Fn(&mut Draft)| {
        let mut draft = Draft::Tron {
            from: rich(0),
            payment: pay(rich(1), Coin::Native, 5),
            fee_limit: 0,
            reference: head.tip.at(),
            created: head.tip.time,
            expires: head.tip.time.plus_micros(60_000_000),
        };
        edit(&mut draft);
        sign(draft, head.tip.height).signed
    };
    let unknown_block = draft(&|draft| {
        let Draft::Tron { reference, .. } = draft else { return };
        reference.hash.0[8..16].fill(7);
    });
    assert_eq!(refusal(unknown_block).await, Some(NodeRefusal::BadReference));
    let late = draft(&|draft| {
        let Draft::Tron { created, expires, .. } = draft else { return };
        *created = head.tip.time.plus_micros(-60_000_000);
        *expires = head.tip.time;
    });
    assert_eq!(refusal(late).await, Some(NodeRefusal::Expired));
    let too_long = draft(&|draft| {
        let Draft::Tron { created, expires, .. } = draft else { return };
        *created = head.tip.time.plus_micros(60_000_000);
        *expires = created.plus_micros(86_400_000_000);
    });
    assert_eq!(refusal(too_long).await, Some(NodeRefusal::Expired));
    let poor = draft(&|draft| {
        let Draft::Tron { payment, .. } = draft else { return };
        payment.amount = raw(9_000_000_000_000_000_000);
    });
    assert_eq!(refusal(poor).await, Some(NodeRefusal::InsufficientFunds));
    assert_eq!(refusal(good.signed).await, None, "and nothing of that spoils the good one");
}

pub async fn case_balances_of_many_come_at_once(net: &dyn Net) {
    let chain = chain_of(net);
    for number in 0..5 {
        net.fund(&fresh(number), &Coin::Native, 1_000_000 + u64::from(number));
        net.fund(&fresh(number), &Coin::Token(net.token()), 2_000_000 + u64::from(number));
    }
    net.mine(2);
    let wanted: Vec<_> = (0..300)
        .map(|number| {
            let coin = if number % 2 == 0 { Coin::Native } else { Coin::Token(net.token()) };
            (fresh(number / 2 % 7), coin)
        })
        .collect();
    let found = chain.balances(&wanted).await.expect("balances");
    for (number, amount) in (0_u64..).zip(found) {
        let owner = number / 2 % 7;
        let expected = if owner < 5 { (1 + number % 2) * 1_000_000 + owner } else { 0 };
        assert_eq!(amount, raw(expected), "{number}");
    }
}
