//! What a quorum proves about a transaction, and what proves nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use chain::client::Sent;
use chain::status::{Mined, Paid, Reason};
use chain::{Chain, ChainError, Place, Status};
use domain::{RawAmount, Timestamp};
use serde_json::{Value, json};
use tx::tron::transaction;
use tx::{Address, Coin, Draft, Fee, Payment, TxHash};

use super::stub::{self, Book, SLOT_MS, START_MS, Stub, Tx, address, call, log, log_from, token, trx};
use super::{client, watching};

const TOKEN: [u8; 20] = [0xee; 20];

fn raw(amount: u64) -> RawAmount {
    amount.to_string().parse().expect("digits")
}

async fn nodes(books: &[Book]) -> Vec<Stub> {
    let mut nodes = Vec::new();
    for book in books {
        nodes.push(Stub::of(&Arc::new(Mutex::new(book.clone()))).await);
    }
    nodes
}

fn urls(nodes: &[Stub]) -> Vec<&str> {
    nodes.iter().map(|node| node.url.as_str()).collect()
}

/// A transfer of ours that expires at this time, ready to be mined.
fn ours(expires_ms: i64) -> (Sent, Tx) {
    let created = Timestamp::from_micros((START_MS + 1) * 1_000);
    let draft = Draft::Tron {
        from: address(0),
        payment: Payment { to: address(1), coin: Coin::Native, amount: raw(5) },
        fee_limit: 0,
        reference: tx::BlockRef { height: 1, hash: stub::id(1, 0xaa) },
        created,
        expires: Timestamp::from_micros(expires_ms * 1_000),
    };
    let unsigned = transaction::build(&draft).expect("a good draft");
    let hash = unsigned.meaning.hash.expect("known on TRON");
    let sent = Sent { meaning: unsigned.meaning, hash, since: 5 };
    (sent, Tx { raw: unsigned.bytes, ret: "SUCCESS", fee: 268_000, logs: Vec::new(), internals: Vec::new() })
}

/// The same in the token, with these logs.
fn ours_in_tokens(logs: Vec<Value>) -> (Sent, Tx) {
    let draft = Draft::Tron {
        from: address(0),
        payment: Payment { to: address(1), coin: Coin::Token(token()), amount: raw(5) },
        fee_limit: 1_000_000,
        reference: tx::BlockRef { height: 1, hash: stub::id(1, 0xaa) },
        created: Timestamp::from_micros((START_MS + 1) * 1_000),
        expires: Timestamp::from_micros((START_MS + 60_000) * 1_000),
    };
    let unsigned = transaction::build(&draft).expect("a good draft");
    let hash = unsigned.meaning.hash.expect("known on TRON");
    let sent = Sent { meaning: unsigned.meaning, hash, since: 5 };
    (sent, Tx { raw: unsigned.bytes, ret: "SUCCESS", fee: 268_000, logs, internals: Vec::new() })
}

/// A token may return false and end well, or keep a fee. Whether it is still listed changes nothing.
#[tokio::test]
async fn a_payout_is_judged_by_sender_recipient_and_exact_amount() {
    let sent = |to, amount| log_from(TOKEN, 0, to, amount);
    for (logs, paid) in [
        (vec![], Paid::Nothing),
        (vec![sent(1, 0)], Paid::Nothing),
        (vec![log_from([0xdd; 20], 0, 1, 5)], Paid::Nothing),
        (vec![log(TOKEN, 2, 5)], Paid::Nothing),
        (vec![sent(2, 5)], Paid::Otherwise),
        (vec![log(TOKEN, 1, 5)], Paid::Otherwise),
        (vec![sent(1, 4), sent(2, 1)], Paid::Otherwise),
        (vec![sent(1, 6)], Paid::Otherwise),
        (vec![sent(1, 5)], Paid::InFull),
    ] {
        let (sent, transaction) = ours_in_tokens(logs.clone());
        let mut book = Book::new(30);
        book.blocks[12].transactions = vec![transaction];
        let nodes = nodes(&[book]).await;
        for listed in [vec![token()], vec![]] {
            let found = client(&urls(&nodes), 1, listed).status(&sent).await;
            let Ok(Status::Mined(mined)) = found else { panic!("{found:?}") };
            assert_eq!(mined.paid, paid, "{logs:?}");
        }
    }
}

async fn status(books: &[Book], quorum: usize, sent: &Sent) -> Result<Status, ChainError> {
    let nodes = nodes(books).await;
    client(&urls(&nodes), quorum, vec![]).status(sent).await
}

fn paid() -> (Book, TxHash, TxHash) {
    let mut book = Book::new(30);
    let (token, native) = (call(vec![log([0xdd; 20], 1, 1), log(TOKEN, 1, 9)], "SUCCESS", 4), trx(2, 10, "SUCCESS", 5));
    let hashes = (token.hash(), native.hash());
    book.blocks[21].transactions = vec![token, native];
    (book, hashes.0, hashes.1)
}

/// The book, with something else said by one call.
async fn lying(book: &Book, at: &'static str, edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Stub {
    let book = book.clone();
    Stub::start(move |path, body| {
        let mut answer = book.answer(path, body);
        if path == at {
            edit(&mut answer);
        }
        (200, answer.to_string())
    })
    .await
}

#[tokio::test]
async fn a_deposit_is_proven_by_a_quorum_and_one_liar_changes_nothing() {
    let (book, token_hash, native_hash) = paid();
    let watched = watching(&[address(1), address(2)]);
    let honest = nodes(&[book.clone(), book.clone()]).await;
    let inflated = lying(&book, "/wallet/gettransactioninfobyid", |info| {
        info["log"][1]["data"] = json!(format!("{:064x}", 90));
    })
    .await;
    let mut three = urls(&honest);
    three.insert(0, &inflated.url);
    let chain = client(&three, 2, vec![token()]);
    let proven = chain.prove(token_hash, &watched).await.expect("a quorum").expect("mined");
    assert_eq!((proven.block, proven.ok), (book.at(21), true));
    assert_eq!(proven.outputs.len(), 1);
    let output = &proven.outputs[0];
    assert_eq!((output.place, output.amount, &output.coin), (Place::Log(1), raw(9), &Coin::Token(token())));
    let proven = chain.prove(native_hash, &watched).await.expect("a quorum").expect("mined");
    let output = &proven.outputs[0];
    assert_eq!((output.place, output.amount, &output.coin), (Place::Value, raw(10), &Coin::Native));
    assert_eq!((output.watched, &output.to), (1, &address(2)));

    // A scan and a proof say the same.
    let scan = chain.scan(21, 21, &watched).await.expect("a scan");
    assert!(scan.outputs.contains(output));

    let two = client(&[&inflated.url, &honest[0].url], 2, vec![token()]);
    assert_eq!(two.prove(token_hash, &watched).await, Err(ChainError::NoQuorum { wanted: 2, agreed: 1 }));
    assert_eq!(chain.prove(TxHash([3; 32]), &watched).await, Ok(None));
}

#[tokio::test]
async fn a_receipt_counts_only_with_the_block_that_holds_the_transaction() {
    let (book, token_hash, native_hash) = paid();
    let watched = watching(&[address(1), address(2)]);
    // The receipt is a leftover: the block at its height is of another branch now.
    let mut moved = book.clone();
    moved.blocks.truncate(21);
    moved.grow(10, 0xbb);
    let leftover = book.clone();
    let stale = Stub::start(move |path, body| {
        let book = if path == "/wallet/gettransactioninfobyid" { &leftover } else { &moved };
        (200, book.answer(path, body).to_string())
    })
    .await;
    assert_eq!(client(&[&stale.url], 1, vec![token()]).prove(token_hash, &watched).await, Ok(None));

    let other = alloy_primitives::hex::encode(trx(1, 1_000_000, "SUCCESS", 5).raw);
    for (at, path, value) in [
        ("/wallet/getblockbynum", "/transactions/0/raw_data_hex", json!("0a02")),
        ("/wallet/getblockbynum", "/transactions/0/raw_data_hex", json!(other)),
        ("/wallet/getblockbynum", "/transactions/0/raw_data_hex", Value::Null),
        ("/wallet/getblockbynum", "/transactions/0/ret/0/contractRet", json!("REVERT")),
        ("/wallet/getblockbynum", "/block_header/raw_data/number", json!(22)),
        ("/wallet/gettransactioninfobyid", "/receipt/result", json!("OUT_OF_ENERGY")),
        ("/wallet/gettransactioninfobyid", "/id", json!("ab".repeat(32))),
        ("/wallet/gettransactioninfobyid", "/blockNumber", json!(-1)),
        ("/wallet/gettransactioninfobyid", "/log/0/address", json!("zz")),
    ] {
        let node = lying(&book, at, move |answer| {
            if let Some(place) = answer.pointer_mut(path) {
                *place = value.clone();
            }
        })
        .await;
        let answer = client(&[&node.url], 1, vec![token()]).prove(token_hash, &watched).await;
        assert_eq!(answer, Err(ChainError::NoQuorum { wanted: 1, agreed: 0 }), "{path}");
    }
    // What a node writes out beside the bytes is not believed: the amount is in what was hashed.
    let node = lying(&book, "/wallet/getblockbynum", |block| {
        block["transactions"][1]["raw_data"]["contract"][0]["parameter"]["value"]["amount"] = json!(1_000_000);
    })
    .await;
    let proven = client(&[&node.url], 1, vec![token()]).prove(native_hash, &watched).await;
    assert_eq!(proven.expect("an answer").expect("mined").outputs[0].amount, raw(10));
}

#[tokio::test]
async fn a_transaction_is_followed_through_its_life() {
    let (sent, transaction) = ours(START_MS + 3_600_000);
    let mut book = Book::new(30);
    let status = |book: &Book| {
        let book = book.clone();
        let sent = sent.clone();
        async move { status(&[book], 1, &sent).await }
    };
    assert_eq!(status(&book).await, Ok(Status::Unknown));
    book.pending.push(sent.hash);
    assert_eq!(status(&book).await, Ok(Status::Mempool));
    book.pending.clear();
    book.blocks[29].transactions.push(transaction.clone());
    let mined = Mined { block: book.at(29), paid: Paid::InFull, fee: Some(raw(268_000)) };
    assert_eq!(status(&book).await, Ok(Status::Mined(mined)));
    book.blocks[29].transactions[0].ret = "OUT_OF_TIME";
    book.blocks[29].transactions[0].fee = 0;
    let mined = Mined { block: book.at(29), paid: Paid::Nothing, fee: Some(RawAmount::ZERO) };
    assert_eq!(status(&book).await, Ok(Status::Mined(mined)));
    // A reorganisation takes it back.
    book.blocks.truncate(28);
    book.grow(5, 0xbb);
    assert_eq!(status(&book).await, Ok(Status::Unknown));
}

/// A transfer of ours like [`ours`], of another amount.
fn ours_of(amount: u64) -> (Sent, Tx) {
    let draft = Draft::Tron {
        from: address(0),
        payment: Payment { to: address(1), coin: Coin::Native, amount: raw(amount) },
        fee_limit: 0,
        reference: tx::BlockRef { height: 1, hash: stub::id(1, 0xaa) },
        created: Timestamp::from_micros((START_MS + 1) * 1_000),
        expires: Timestamp::from_micros((START_MS + 3_600_000) * 1_000),
    };
    let unsigned = transaction::build(&draft).expect("a good draft");
    let hash = unsigned.meaning.hash.expect("known on TRON");
    let sent = Sent { meaning: unsigned.meaning, hash, since: 5 };
    (sent, Tx { raw: unsigned.bytes, ret: "SUCCESS", fee: 268_000, logs: Vec::new(), internals: Vec::new() })
}

#[tokio::test]
async fn many_at_once_are_told_what_each_alone_is_told() {
    let mut book = Book::new(30);
    let mut sent = Vec::new();
    // Three of a block, one of another, one that failed, one with a token, one that waits, one that nobody has heard of.
    for (amount, height) in [(1, 28), (2, 29), (3, 28), (4, 28), (5, 29)] {
        let (one, mut transaction) = ours_of(amount);
        transaction.ret = if amount == 5 { "OUT_OF_TIME" } else { "SUCCESS" };
        book.blocks[height].transactions.push(transaction);
        sent.push(one);
    }
    let (one, transaction) = ours_in_tokens(vec![log_from(TOKEN, 0, 1, 4)]);
    book.blocks[12].transactions.push(transaction);
    sent.push(one);
    for amount in [8, 9] {
        sent.push(ours_of(amount).0);
    }
    book.pending.push(sent[6].hash);
    let nodes = nodes(&[book.clone(), book.clone()]).await;
    let chain = client(&urls(&nodes), 2, vec![]);
    let statuses = chain.statuses(&sent).await;
    assert_eq!(statuses.len(), sent.len());
    for (status, one) in statuses.iter().zip(&sent) {
        assert_eq!(*status, chain.status(one).await);
    }
    let paid = |status: &Result<Status, ChainError>| match status {
        Ok(Status::Mined(mined)) => Some((mined.block.height, mined.paid)),
        _ => None,
    };
    let found: Vec<Option<(u64, Paid)>> = statuses.iter().map(paid).collect();
    let full = |height| Some((height, Paid::InFull));
    let others = [Some((29, Paid::Nothing)), Some((12, Paid::Otherwise)), None, None];
    assert_eq!(found[..4], [full(28), full(29), full(28), full(28)]);
    assert_eq!(found[4..], others);
    assert_eq!(statuses[6..], [Ok(Status::Mempool), Ok(Status::Unknown)]);

    // What the blocks show is what was mined in them.
    let seen = chain.glimpse(28, 30).await.expect("an answer").expect("TRON has nothing better");
    let mut heights: Vec<u64> = sent.iter().filter_map(|one| seen.get(&one.hash).copied()).collect();
    heights.sort_unstable();
    assert_eq!((heights, seen.len()), (vec![28, 28, 28, 29, 29], 5));

    // One node hides one of them: the others are as they were.
    let hidden = sent[2].hash.to_string();
    let hides = Stub::start(move |path, body| {
        let mut answer = book.answer(path, body);
        if path == "/wallet/gettransactioninfobyblocknum" {
            answer.as_array_mut().expect("a list").retain(|info| info["id"] != hidden.as_str());
        } else if path == "/wallet/gettransactioninfobyid" && body["value"] == hidden.as_str() {
            answer = json!({});
        }
        (200, answer.to_string())
    })
    .await;
    let chain = client(&[&hides.url, &nodes[0].url], 2, vec![]);
    for (number, (status, before)) in chain.statuses(&sent).await.iter().zip(&statuses).enumerate() {
        match number {
            2 => assert_eq!(*status, Err(ChainError::NoQuorum { wanted: 2, agreed: 1 })),
            _ => assert_eq!(status, before, "{number}"),
        }
    }
}

#[tokio::test]
async fn a_node_that_cannot_tell_its_pool_is_no_reason_to_fail() {
    let (sent, _) = ours(START_MS + 3_600_000);
    let (book, mut holding) = (Book::new(30), Book::new(30));
    holding.pending.push(sent.hash);
    let without = Stub::start(move |path, body| match path {
        "/wallet/gettransactionfrompending" => (404, "<html>not found</html>".to_owned()),
        _ => (200, book.answer(path, body).to_string()),
    })
    .await;
    assert_eq!(client(&[&without.url], 1, vec![]).status(&sent).await, Ok(Status::Unknown));
    let with = nodes(&[holding]).await;
    let chain = client(&[&without.url, &with[0].url], 2, vec![]);
    assert_eq!(chain.status(&sent).await, Ok(Status::Mempool));
}

#[tokio::test]
async fn mined_is_what_a_quorum_says_and_one_nodes_null_is_nothing() {
    let (sent, transaction) = ours(START_MS + 3_600_000);
    let without = Book::new(30);
    let mut with = without.clone();
    with.blocks[29].transactions.push(transaction);
    let lagging = status(&[without.clone(), with.clone(), with.clone()], 2, &sent).await;
    assert!(matches!(lagging, Ok(Status::Mined(_))), "{lagging:?}");
    let one = status(&[without.clone(), with.clone()], 2, &sent).await;
    assert_eq!(one, Err(ChainError::NoQuorum { wanted: 2, agreed: 1 }));
    // Of different branches: both have it, in different blocks.
    let mut other = with.clone();
    other.blocks[29].hash = stub::id(29, 0xbb);
    let split = status(&[with, other], 2, &sent).await;
    assert_eq!(split, Err(ChainError::NoQuorum { wanted: 2, agreed: 1 }));
}

/// Block 20 is the first that is as late as the expiry; blocks are read from 5 on.
fn expiring() -> (Sent, Tx, Book) {
    let (sent, transaction) = ours(START_MS + 20 * SLOT_MS - 1_000);
    let mut book = Book::new(80);
    book.solid = 60;
    (sent, transaction, book)
}

#[tokio::test]
async fn expired_and_solidified_and_in_no_block_is_impossible() {
    let (sent, _, book) = expiring();
    let over =
        Reason::Expired { solidified: book.at(20), time: Timestamp::from_micros((START_MS + 20 * SLOT_MS) * 1_000) };
    for books in [vec![book.clone()], vec![book.clone(), book.clone()]] {
        let found = status(&books, books.len(), &sent).await;
        let Ok(Status::Impossible(proof)) = found else { panic!("{found:?}") };
        assert_eq!(proof.reason(), over);
    }
    // A block as late as the expiry to the millisecond ends it: the next one's parent is not earlier.
    let (exact, _) = ours(START_MS + 20 * SLOT_MS);
    let found = status(std::slice::from_ref(&book), 1, &exact).await;
    let Ok(Status::Impossible(proof)) = found else { panic!("{found:?}") };
    assert_eq!(proof.reason(), over);
    // Just solidified: the block itself must be.
    let mut just = book.clone();
    just.solid = 20;
    assert!(matches!(status(&[just], 1, &sent).await, Ok(Status::Impossible(_))));
}

#[tokio::test]
async fn where_no_node_keeps_the_blocks_nothing_is_proven() {
    let (sent, _, book) = expiring();
    let lite = Stub::start(move |path, body| match path {
        "/wallet/getblockbylimitnext" => (200, "this API is closed because this node is a lite fullnode".to_owned()),
        _ => (200, book.answer(path, body).to_string()),
    })
    .await;
    assert_eq!(client(&[&lite.url], 1, vec![]).status(&sent).await, Ok(Status::Unknown));
}

#[tokio::test]
async fn nothing_less_than_that_is_impossible() {
    let (sent, transaction, book) = expiring();
    let edited = |edit: &dyn Fn(&mut Book)| {
        let mut book = book.clone();
        edit(&mut book);
        book
    };
    // A null receipt with an expiry long gone proves nothing while no block that late is solidified.
    let early = edited(&|book| book.solid = 19);
    assert_eq!(status(std::slice::from_ref(&early), 1, &sent).await, Ok(Status::Unknown));
    let exact = {
        let (sent, _) = ours(START_MS + 20 * SLOT_MS);
        status(&[edited(&|book| book.solid = 20)], 1, &sent).await
    };
    assert_eq!(exact, Ok(Status::Unknown), "not later than its expiry");
    // One of two nodes is not so far.
    assert_eq!(status(&[early, book.clone()], 2, &sent).await, Ok(Status::Unknown));
    // A node that has lost its blocks from before.
    let pruned = {
        let book = book.clone();
        Stub::start(move |path, body| {
            let gone = path == "/wallet/getblockbylimitnext" && body["startNum"] == 0;
            (200, if gone { json!({}) } else { book.answer(path, body) }.to_string())
        })
        .await
    };
    assert_eq!(client(&[&pruned.url], 1, vec![]).status(&sent).await, Ok(Status::Unknown));
    // The branch on which it was built may be gone, and the new one may hold it lower down: that is looked at too.
    for (since, height) in [(20, 10), (15, 14)] {
        let late = Sent { since, ..sent.clone() };
        assert!(matches!(status(std::slice::from_ref(&book), 1, &late).await, Ok(Status::Impossible(_))));
        let mut held = book.clone();
        held.blocks[height].transactions.push(transaction.clone());
        let node = lying(&held, "/wallet/gettransactioninfobyid", |info| *info = json!({})).await;
        assert_eq!(client(&[&node.url], 1, vec![]).status(&late).await, Ok(Status::Unknown), "{since} {height}");
    }
    let later = Sent { since: 70, ..sent.clone() };
    assert_eq!(status(std::slice::from_ref(&book), 1, &later).await, Ok(Status::Unknown));
    // Blocks that do not join.
    let torn = edited(&|book| book.blocks[12].hash = stub::id(12, 0xbb));
    assert_eq!(status(&[torn], 1, &sent).await, Ok(Status::Unknown));
    // The same where two answers meet: blocks 40 and up come with the third.
    let (longer, _) = ours(START_MS + 50 * SLOT_MS);
    assert!(matches!(status(std::slice::from_ref(&book), 1, &longer).await, Ok(Status::Impossible(_))));
    let torn = edited(&|book| book.blocks[40].parent = stub::id(39, 0xbb));
    assert_eq!(status(&[torn], 1, &longer).await, Ok(Status::Unknown));
    // A solidified block that claims to be later than the blocks after it.
    let late = lying(&edited(&|book| book.solid = 19), "/walletsolidity/getnowblock", |block| {
        block["block_header"]["raw_data"]["timestamp"] = json!(START_MS + 900_000);
    })
    .await;
    assert_eq!(client(&[&late.url], 1, vec![]).status(&sent).await, Ok(Status::Unknown));
    let back = edited(&|book| book.blocks[12].time_ms = START_MS);
    assert_eq!(status(&[back], 1, &sent).await, Ok(Status::Unknown));
    // A node that forgot the receipt, but whose blocks hold the transaction: in the first that is read, within, and in
    // the last, which is as late as the expiry and may hold it because its parent is not.
    for height in [1, 5, 19, 20] {
        let mut held = book.clone();
        held.blocks[height].transactions.push(transaction.clone());
        let node = lying(&held, "/wallet/gettransactioninfobyid", |info| *info = json!({})).await;
        assert_eq!(client(&[&node.url], 1, vec![]).status(&sent).await, Ok(Status::Unknown), "{height}");
    }
    // In a later block it cannot be.
    let mut held = book.clone();
    held.blocks[21].transactions.push(transaction.clone());
    let node = lying(&held, "/wallet/gettransactioninfobyid", |info| *info = json!({})).await;
    assert!(matches!(client(&[&node.url], 1, vec![]).status(&sent).await, Ok(Status::Impossible(_))));
}

#[tokio::test]
async fn an_expiry_that_would_take_too_many_blocks_to_read_proves_nothing() {
    let (sent, _) = ours(START_MS + 86_400_000);
    // Answers any height, so that only the client's own bound ends the reading.
    let furthest = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&furthest);
    let node = Stub::start(move |path, body| {
        let block = |height: u64| {
            json!({ "blockID": stub::id(height, 1).to_string(), "block_header": { "raw_data": {
            "number": height, "timestamp": START_MS, "parentHash": stub::id(height.saturating_sub(1), 1).to_string() } } })
        };
        let answer = match path {
            "/walletsolidity/getnowblock" => {
                let mut solid = block(900_000);
                solid["block_header"]["raw_data"]["timestamp"] = json!(START_MS + 900_000_000);
                solid
            }
            "/wallet/getblockbylimitnext" => {
                let (start, end) =
                    (body["startNum"].as_u64().expect("a number"), body["endNum"].as_u64().expect("a number"));
                seen.fetch_max(end, Ordering::SeqCst);
                json!({ "block": (start..end).map(block).collect::<Vec<_>>() })
            }
            _ => json!({}),
        };
        (200, answer.to_string())
    })
    .await;
    assert_eq!(client(&[&node.url], 1, vec![]).status(&sent).await, Ok(Status::Unknown));
    assert_eq!(furthest.load(Ordering::SeqCst), 30_001, "a day of blocks, and no further");
}

#[test]
fn a_draft_of_the_tests_is_what_it_says() {
    let (sent, transaction) = ours(START_MS + 60_000);
    assert_eq!(transaction.hash(), sent.hash);
    assert_eq!(sent.meaning.fee, Fee::FeeLimit(0));
    assert_eq!(sent.meaning.from, Some(Address::Tron(stub::account(0))));
}
