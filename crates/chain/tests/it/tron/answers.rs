//! What the client reads from answers, and which answers it refuses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chain::endpoint::CallError;
use chain::tron::Network;
use chain::{Broadcast, Chain, ChainError, NodeRefusal, Place, QuoteRequest};
use domain::RawAmount;
use serde_json::{Value, json};
use tx::tron::TronAddress;
use tx::{Coin, Fee, FeeCap, Payment};

use super::stub::{self, Book, Stub, address, call, log, other, token, trx};
use super::{client, client_of, watching};

const TOKEN: [u8; 20] = [0xee; 20];
const UNLISTED: [u8; 20] = [0xdd; 20];

fn raw(amount: u64) -> RawAmount {
    amount.to_string().parse().expect("digits")
}

fn shared(book: Book) -> Arc<Mutex<Book>> {
    Arc::new(Mutex::new(book))
}

/// Answers everything with one text, whatever is asked.
async fn saying(status: u16, text: &str) -> Stub {
    let text = text.to_owned();
    Stub::start(move |_, _| (status, text.clone())).await
}

fn is_bad<T: std::fmt::Debug>(answer: Result<T, ChainError>) -> bool {
    matches!(answer, Err(ChainError::Unreachable(CallError::BadAnswer { .. }) | ChainError::NoQuorum { agreed: 0, .. }))
}

/// Two watched accounts (1 and 2), with TRX and tokens in a row of 45 blocks.
fn paying() -> Book {
    let mut book = Book::new(45);
    book.blocks[3].transactions = vec![other(1), trx(1, 5, "SUCCESS", 2), trx(50, 6, "SUCCESS", 3)];
    book.blocks[21].transactions = vec![
        call(vec![log(UNLISTED, 1, 7), log(TOKEN, 50, 8), log(TOKEN, 2, 9)], "SUCCESS", 4),
        trx(2, 10, "SUCCESS", 5),
        call(vec![log(TOKEN, 1, 11), log(TOKEN, 1, 12)], "SUCCESS", 6),
    ];
    book.blocks[45].transactions = vec![trx(1, 13, "OUT_OF_TIME", 7), call(vec![], "REVERT", 8)];
    book
}

#[tokio::test]
async fn a_scan_finds_every_payment_to_watched_addresses_in_the_order_of_the_chain() {
    let book = paying();
    let node = Stub::of(&shared(book.clone())).await;
    let chain = client(&[&node.url], 1, vec![token()]);
    let watched = watching(&[address(1), address(2)]);
    let scan = chain.scan(0, 45, &watched).await.expect("a scan");
    assert_eq!(scan.headers.len(), 46);
    assert!(scan.headers.iter().zip(&scan.headers[1..]).all(|(before, next)| next.parent == before.hash));
    assert_eq!(scan.headers[45].time.millis(), book.blocks[45].time_ms);
    let found: Vec<_> = scan
        .outputs
        .iter()
        .map(|output| {
            let native = output.coin == Coin::Native;
            (output.block.height, output.place, output.watched, native, output.amount, output.ok)
        })
        .collect();
    assert_eq!(
        found,
        [
            (3, Place::Value, 0, true, raw(5), true),
            (21, Place::Log(2), 1, false, raw(9), true),
            (21, Place::Value, 1, true, raw(10), true),
            (21, Place::Log(0), 0, false, raw(11), true),
            (21, Place::Log(1), 0, false, raw(12), true),
            (45, Place::Value, 0, true, raw(13), false),
        ]
    );
    assert_eq!(scan.outputs[1].coin, Coin::Token(token()));
    assert_eq!(scan.outputs[1].transaction, book.blocks[21].transactions[0].hash());
    assert_eq!(scan.outputs[1].to, address(2));
    // The same when the scan is cut elsewhere.
    let mut parts = chain.scan(1, 20, &watched).await.expect("a scan").outputs;
    parts.extend(chain.scan(21, 45, &watched).await.expect("a scan").outputs);
    assert_eq!(parts, scan.outputs);
}

#[tokio::test]
async fn a_node_never_has_more_calls_at_a_time_than_were_allowed() {
    let mut book = Book::new(200);
    for (salt, block) in (0..).zip(&mut book.blocks[1..]) {
        block.transactions = vec![call(vec![log(TOKEN, 1, 7)], "SUCCESS", salt)];
    }
    let script = move |path: &str, body: &Value| match path {
        "/wallet/getaccount" => coins(path, body),
        _ => (200, book.answer(path, body).to_string()),
    };
    let node = Stub::slow(std::time::Duration::from_millis(2), script).await;
    let chain = client(&[&node.url], 1, vec![token()]);
    let scan = chain.scan(1, 200, &watching(&[address(1)])).await.expect("a scan");
    assert_eq!(scan.outputs.len(), 200);
    assert_eq!(node.busiest.load(Ordering::SeqCst), 16, "as many as allowed, and no more");
    node.busiest.store(0, Ordering::SeqCst);
    let wanted: Vec<_> = (0..100).map(|number| (address(number), Coin::Native)).collect();
    chain.balances(&wanted).await.expect("balances");
    assert_eq!(node.busiest.load(Ordering::SeqCst), 16);
}

#[tokio::test]
async fn fetching_only_makes_the_requests_of_a_scan() {
    let mut book = Book::new(70);
    for (salt, block) in (0..).zip(&mut book.blocks[1..]) {
        block.transactions = vec![call(vec![log(TOKEN, 1, 7)], "SUCCESS", salt)];
    }
    let asked: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let notes = Arc::clone(&asked);
    let script = move |path: &str, body: &Value| {
        let said = book.answer(path, body).to_string();
        let length = u64::try_from(said.len()).expect("not so long");
        notes.lock().expect("no test panics here").push((format!("{path} {body}"), length));
        (200, said)
    };
    let node = Stub::slow(std::time::Duration::from_millis(2), script).await;
    let taken = || {
        let mut taken = std::mem::take(&mut *asked.lock().expect("no test panics here"));
        taken.sort();
        taken
    };
    for tokens in [vec![], vec![token()]] {
        let chain = client(&[&node.url], 1, tokens);
        chain.scan(0, 70, &watching(&[])).await.expect("a scan");
        let of_the_scan = taken();
        node.busiest.store(0, Ordering::SeqCst);
        let bytes = chain.fetch_only(0, 70).await.expect("bytes");
        assert_eq!(bytes, of_the_scan.iter().map(|(_, length)| *length).sum::<u64>());
        assert_eq!(taken(), of_the_scan);
        // Receipts are read without tokens too: contracts may move TRX.
        assert_eq!(node.busiest.load(Ordering::SeqCst), 16);
        assert_eq!(chain.fetch_only(5, 4).await, Ok(0));
    }
}

#[tokio::test]
async fn a_block_that_is_not_there_is_missing_not_empty() {
    let node = Stub::of(&shared(Book::new(30))).await;
    let chain = client(&[&node.url], 1, vec![]);
    let watched = watching(&[]);
    assert_eq!(chain.scan(25, 40, &watched).await, Err(ChainError::BlockMissing { height: 31 }));
    assert_eq!(chain.scan(35, 40, &watched).await, Err(ChainError::BlockMissing { height: 35 }));
    let last = u64::MAX - 5;
    let far = chain.scan(last, u64::MAX, &watched).await;
    assert!(is_bad(far.clone()) || far == Err(ChainError::BlockMissing { height: last }), "{far:?}");
    assert_eq!(chain.scan(9, 8, &watched).await, Ok(chain::Scan::default()));
    assert_eq!(chain.headers(&[30, 31]).await, Err(ChainError::BlockMissing { height: 31 }));
    assert_eq!(chain.headers(&[30, 0]).await.expect("both are there").len(), 2);
    // Other blocks than were asked for are no blocks.
    let book = Book::new(30);
    let shifted = Stub::start(move |path, body| {
        let body = match path {
            "/wallet/getblock" => json!({ "id_or_num": "7", "detail": false }),
            _ => json!({ "startNum": body["startNum"].as_u64().expect("a number") + 1, "endNum": body["endNum"] }),
        };
        (200, book.answer(path, &body).to_string())
    })
    .await;
    let chain = client(&[&shifted.url], 1, vec![]);
    assert!(is_bad(chain.headers(&[8]).await));
    assert_eq!(chain.headers(&[7]).await.expect("this one it has").len(), 1);
    assert!(is_bad(chain.scan(3, 8, &watched).await));
}

#[tokio::test]
async fn who_does_not_have_the_blocks_leaves_them_to_those_who_do() {
    let (behind, ahead) = (Stub::of(&shared(Book::new(29))).await, Stub::of(&shared(Book::new(30))).await);
    let lite = Stub::start(|_, _| (200, "this API is closed because this node is a lite fullnode".to_owned())).await;
    let watched = watching(&[]);
    for short in [&behind, &lite] {
        for _ in 0..5 {
            let chain = client(&[&short.url, &ahead.url], 1, vec![]);
            assert_eq!(chain.scan(20, 30, &watched).await.expect("the other has them").headers.len(), 11);
            let missing = chain.scan(20, 31, &watched).await;
            assert!(matches!(missing, Err(ChainError::BlockMissing { .. })), "{missing:?}");
        }
    }
    let alone = client(&[&lite.url], 1, vec![]);
    for refused in
        [alone.scan(20, 30, &watched).await.map(|_| ()), alone.prove(tx::TxHash([7; 32]), &watched).await.map(|_| ())]
    {
        assert!(matches!(refused, Err(ChainError::Refused(CallError::Lacks { .. }))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_scan_that_meets_a_reorganisation_is_done_once_more() {
    let (old, mut new) = (paying(), paying());
    new.blocks.truncate(10);
    new.grow(36, 0xbb);
    new.blocks[21].transactions = vec![trx(1, 99, "SUCCESS", 40)];
    // Blocks above 20 are of the new branch from the start; those below only after some calls.
    let calls = AtomicUsize::new(0);
    let node = Stub::start(move |path, body| {
        let early = calls.fetch_add(1, Ordering::SeqCst) < 3;
        let first = body["startNum"] == 0 && early;
        (200, if first { old.answer(path, body) } else { new.answer(path, body) }.to_string())
    })
    .await;
    let chain = client(&[&node.url], 1, vec![]);
    let watched = watching(&[address(1)]);
    let scan = chain.scan(0, 45, &watched).await.expect("the second try is whole");
    assert_eq!(scan.headers[20].hash, stub::id(20, 0xbb));
    assert_eq!(scan.outputs.iter().map(|output| output.amount).collect::<Vec<_>>(), [raw(5), raw(99)]);

    let (old, new) = (paying(), {
        let mut new = Book::new(10);
        new.grow(36, 0xbb);
        new
    });
    let torn = Stub::start(move |path, body| {
        (200, if body["startNum"] == 0 { old.answer(path, body) } else { new.answer(path, body) }.to_string())
    })
    .await;
    assert!(is_bad(client(&[&torn.url], 1, vec![]).scan(0, 45, &watched).await), "it never joins");
}

#[tokio::test]
async fn receipts_of_another_block_are_never_taken_for_this_ones() {
    let book = paying();
    let elsewhere = Stub::start(move |path, body| {
        let mut answer = book.answer(path, body);
        if path == "/wallet/gettransactioninfobyblocknum" {
            answer[0]["blockNumber"] = json!(20);
        }
        (200, answer.to_string())
    })
    .await;
    assert!(is_bad(client(&[&elsewhere.url], 1, vec![token()]).scan(21, 21, &watching(&[address(1)])).await));
    for wrong in ["fewer", "others"] {
        let book = paying();
        let times = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&times);
        let node = Stub::start(move |path, body| {
            let mut answer = book.answer(path, body);
            if path == "/wallet/gettransactioninfobyblocknum"
                && body["num"] == 21
                && asked.fetch_add(1, Ordering::SeqCst) == 0
            {
                match wrong {
                    "fewer" => drop(answer.as_array_mut().expect("a list").pop()),
                    _ => answer[0]["id"] = json!("ab".repeat(32)),
                }
            }
            (200, answer.to_string())
        })
        .await;
        let chain = client(&[&node.url], 1, vec![token()]);
        let scan = chain.scan(20, 22, &watching(&[address(1), address(2)])).await.expect("the second try fits");
        assert_eq!(scan.outputs.len(), 4, "{wrong}");
        assert_eq!(times.load(Ordering::SeqCst), 2, "{wrong}");
    }
}

#[tokio::test]
async fn the_head_is_the_tip_and_what_is_solidified() {
    let book = shared(Book::new(45));
    let node = Stub::of(&book).await;
    let chain = client(&[&node.url], 1, vec![]);
    let head = chain.head().await.expect("a head");
    assert_eq!((head.tip.height, head.settled), (45, Some(26)));
    assert_eq!(head.tip.hash, stub::id(45, 0xaa));
    let above = Stub::start(|path, body| {
        let tip = if path.starts_with("/walletsolidity") { 31 } else { 30 };
        (200, Book::new(tip).answer("/wallet/getnowblock", body).to_string())
    })
    .await;
    assert!(is_bad(client(&[&above.url], 1, vec![]).head().await));
    let contradiction = Stub::start(|_, body| {
        let mut block = Book::new(30).answer("/wallet/getnowblock", body);
        block["blockID"] = json!(stub::id(31, 0xaa).to_string());
        (200, block.to_string())
    })
    .await;
    assert!(is_bad(client(&[&contradiction.url], 1, vec![]).head().await));
}

#[tokio::test]
async fn one_node_moves_neither_the_head_nor_what_is_settled() {
    let (one, other) = (Stub::of(&shared(Book::new(45))).await, Stub::of(&shared(Book::new(46))).await);
    let boasting = Stub::start(|path, body| {
        let (mut block, height) = (Book::new(45).answer(path, body), 1_000_045);
        block["blockID"] = json!(stub::id(height, 0xaa).to_string());
        block["block_header"]["raw_data"]["number"] = json!(height);
        block["block_header"]["raw_data"]["parentHash"] = json!(stub::id(height - 1, 0xaa).to_string());
        (200, block.to_string())
    })
    .await;
    let mut hasty = Book::new(46);
    hasty.solid = 46;
    let (hasty, behind) = (Stub::of(&shared(hasty)).await, Stub::of(&shared(Book::new(30))).await);
    for (name, node, tip) in [("boasting", &boasting, 46), ("hasty", &hasty, 46), ("behind", &behind, 45)] {
        for quorum in [1, 2] {
            let chain = client(&[&node.url, &one.url, &other.url], quorum, vec![]);
            for _ in 0..5 {
                let head = chain.head().await.expect("a head");
                // Nodes solidify at their own pace: the second highest of 26, 27 and what the one says.
                let settled = if name == "behind" { 26 } else { 27 };
                assert_eq!((head.tip.height, head.settled), (tip, Some(settled)), "{name} {quorum}");
            }
        }
    }
}

#[tokio::test]
async fn only_the_first_block_tells_networks_apart() {
    let genesis = |id: &str| {
        let parent = "957dc2d350daecc7bb6a38f3938ebde0a0c1cedafe15f0edae4256a2907449f6";
        json!({ "blockID": id, "block_header": { "raw_data": { "txTrieRoot": "ab", "parentHash": parent } } })
            .to_string()
    };
    let main = saying(200, &genesis("00000000000000001ebf88508a03865c71d452e25f4d51194196a1d22b6653dc")).await;
    let nile = saying(200, &genesis("0000000000000000d698d4192c56cb6be724a558448e2684802de4d6cd8690dc")).await;
    let own = saying(200, &genesis(&format!("{:064x}", 5))).await;
    let html = saying(200, "<html>").await;
    for (network, url, right) in [
        (Network::Mainnet, &main.url, true),
        (Network::Nile, &nile.url, true),
        (Network::Devnet, &own.url, true),
        (Network::Mainnet, &nile.url, false),
        (Network::Mainnet, &own.url, false),
        (Network::Shasta, &nile.url, false),
        (Network::Devnet, &main.url, false),
    ] {
        let answer = client_of(network, &[url], 1, vec![]).check_network().await;
        assert_eq!(answer.is_ok(), right, "{network:?}: {answer:?}");
        assert!(right || matches!(answer, Err(ChainError::WrongNetwork { .. })), "{answer:?}");
    }
    assert!(client_of(Network::Mainnet, &[&html.url, &main.url], 1, vec![]).check_network().await.is_ok());
    assert!(client_of(Network::Mainnet, &[&main.url, &nile.url], 1, vec![]).check_network().await.is_err());
    assert!(is_bad(client_of(Network::Mainnet, &[&html.url], 1, vec![]).check_network().await));
}

#[tokio::test]
async fn an_answer_that_cannot_be_is_refused_whatever_was_asked() {
    let payment = |coin: Coin| Payment { to: address(1), coin, amount: raw(5) };
    for text in [
        "",
        "<html><body>502 Bad Gateway</body></html>",
        "{\"blockID\":\"00",
        "[]",
        "7",
        "\"text\"",
        "{\"Error\":\"class java.lang.NullPointerException : null\"}",
        "{\"block\":7,\"blockID\":7,\"balance\":\"many\",\"chainParameter\":{},\"result\":7,\"id\":7,\"address\":7}",
    ] {
        let node = saying(200, text).await;
        let chain = client(&[&node.url], 1, vec![token()]);
        let watched = watching(&[address(1)]);
        assert!(is_bad(chain.head().await), "{text}");
        assert!(is_bad(chain.headers(&[1]).await), "{text}");
        assert!(is_bad(chain.scan(1, 2, &watched).await), "{text}");
        assert!(is_bad(chain.prove(tx::TxHash([1; 32]), &watched).await), "{text}");
        assert!(is_bad(chain.balances(&[(address(1), Coin::Native)]).await), "{text}");
        assert!(is_bad(chain.balances(&[(address(1), Coin::Token(token()))]).await), "{text}");
        let cap = FeeCap(Fee::FeeLimit(1));
        assert!(is_bad(chain.quote(&address(2), &payment(Coin::Native), cap).await), "{text}");
    }
    let down = saying(503, "{}").await;
    assert!(is_bad(client(&[&down.url], 1, vec![]).head().await), "a status that says it failed");
    let busy = "{\"Error\":\"class java.lang.IllegalAccessException : lack of computing resources\"}";
    let busy = saying(200, busy).await;
    let answer = client(&[&busy.url], 1, vec![]).head().await;
    assert!(matches!(answer, Err(ChainError::Unreachable(CallError::RateLimited { .. }))), "{answer:?}");
}

/// Changes one value of a good answer of blocks.
async fn scan_with(edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Result<chain::Scan, ChainError> {
    let book = paying();
    let node = Stub::start(move |path, body| {
        let mut answer = book.answer(path, body);
        if path == "/wallet/getblockbylimitnext" {
            edit(&mut answer["block"][1]);
        }
        (200, answer.to_string())
    })
    .await;
    client(&[&node.url], 1, vec![]).scan(2, 4, &watching(&[address(1)])).await
}

#[tokio::test]
async fn a_block_that_contradicts_itself_is_refused() {
    assert_eq!(scan_with(|_| {}).await.expect("nothing was changed").outputs.len(), 1);
    let raw = "/block_header/raw_data";
    let payment = "/transactions/1/raw_data/contract/0/parameter/value";
    for (path, value) in [
        ("/blockID".to_owned(), json!(stub::id(4, 0xaa).to_string())),
        ("/blockID".to_owned(), json!("ab")),
        ("/blockID".to_owned(), json!(format!("0x{}", stub::id(3, 0xaa)))),
        (format!("{raw}/number"), json!(4)),
        (format!("{raw}/number"), json!(-3)),
        (format!("{raw}/number"), json!(3.5)),
        (format!("{raw}/number"), json!("3")),
        (format!("{raw}/number"), json!(u64::MAX)),
        (format!("{raw}/timestamp"), json!(-1)),
        (format!("{raw}/timestamp"), json!(i64::MAX)),
        (format!("{raw}/parentHash"), json!(stub::id(7, 0xaa).to_string())),
        (format!("{raw}/parentHash"), Value::Null),
        ("/block_header".to_owned(), Value::Null),
        ("/transactions/0/txID".to_owned(), json!("xyz")),
        ("/transactions/0/txID".to_owned(), Value::Null),
        ("/transactions/1/raw_data/contract".to_owned(), json!([])),
        ("/transactions/1/raw_data/contract/0/type".to_owned(), Value::Null),
        (format!("{payment}/amount"), json!(-5)),
        (format!("{payment}/amount"), json!("5")),
        (format!("{payment}/amount"), json!(1e300)),
        (format!("{payment}/amount"), json!(u64::MAX)),
        (format!("{payment}/to_address"), json!("41ab")),
        (format!("{payment}/to_address"), json!("TEEzypREmBid4qC2bLH3ALRZJxiX6LqMdE")),
        (format!("{payment}/to_address"), json!(format!("a0{}", "ab".repeat(20)))),
    ] {
        let (at, put) = (path.clone(), value.clone());
        let answer = scan_with(move |block| *block.pointer_mut(&at).expect("there") = put.clone()).await;
        assert!(is_bad(answer.clone()), "{path} = {value}: {answer:?}");
    }
    // Absurd, but it fits itself.
    let height = 1_u64 << 60;
    let far = json!({ "blockID": stub::id(height, 1).to_string(), "block_header": { "raw_data": {
        "number": height, "timestamp": 1, "parentHash": stub::id(height - 1, 1).to_string() } } });
    let node = saying(200, &far.to_string()).await;
    assert!(is_bad(client(&[&node.url], 1, vec![]).head().await));
}

#[tokio::test]
async fn a_log_that_cannot_be_is_refused() {
    for (field, value) in [("address", json!("41eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee")), ("address", json!("zz"))] {
        let mut book = Book::new(5);
        let mut bad = log(TOKEN, 1, 5);
        bad[field] = value.clone();
        book.blocks[4].transactions = vec![call(vec![bad], "SUCCESS", 1)];
        let node = Stub::of(&shared(book)).await;
        let answer = client(&[&node.url], 1, vec![token()]).scan(4, 4, &watching(&[address(1)])).await;
        assert!(is_bad(answer), "{field} = {value}");
    }
}

/// A listed token may log what only looks like a transfer. All nodes say the same, so it must not stop the scan.
#[tokio::test]
async fn a_log_that_is_no_transfer_is_passed_over() {
    const TRANSFER: &str = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
    for (field, value) in [
        ("data", json!("ff")),
        ("data", json!("")),
        ("data", json!("00".repeat(32))),
        ("topics", json!([TRANSFER, "00".repeat(32), "01".repeat(32)])),
        ("topics", json!([TRANSFER])),
    ] {
        let mut book = Book::new(5);
        let mut odd = log(TOKEN, 1, 5);
        odd[field] = value.clone();
        book.blocks[4].transactions = vec![call(vec![odd, log(TOKEN, 1, 6)], "SUCCESS", 1)];
        let node = Stub::of(&shared(book)).await;
        let scan = client(&[&node.url], 1, vec![token()]).scan(4, 4, &watching(&[address(1)])).await;
        let places: Vec<Place> = scan.expect("a scan").outputs.iter().map(|output| output.place).collect();
        assert_eq!(places, [Place::Log(1)], "{field} = {value}");
    }
}

/// Millions of `{}` would take many times their own length.
#[tokio::test]
async fn lists_longer_than_any_block_are_refused() {
    let many = |count: usize| vec!["{}"; count].join(",");
    let node = saying(200, &format!(r#"{{"block":[{}]}}"#, many(101))).await;
    assert!(is_bad(client(&[&node.url], 1, vec![]).scan(1, 1, &watching(&[])).await));
    let node = saying(200, &format!(r#"{{"block":[{{"transactions":[{}]}}]}}"#, many(20_001))).await;
    assert!(is_bad(client(&[&node.url], 1, vec![]).scan(1, 1, &watching(&[])).await));
}

fn coins(path: &str, body: &Value) -> (u16, String) {
    let mine = alloy_primitives::hex::encode(stub::account(1).prefixed());
    let answer = match path {
        "/wallet/getaccount" if body["address"] == *mine => json!({ "address": mine, "balance": 1_500_000 }),
        "/wallet/getaccount" => json!({}),
        "/wallet/triggerconstantcontract" if body["function_selector"] == "balanceOf(address)" => {
            let parameter = body["parameter"].as_str().expect("text");
            assert_eq!(parameter.len(), 64);
            let word = if parameter.ends_with(&mine[2..]) { "f".repeat(64) } else { "0".repeat(64) };
            json!({ "result": { "result": true }, "energy_used": 935, "constant_result": [word] })
        }
        _ => json!({}),
    };
    (200, answer.to_string())
}

#[tokio::test]
async fn balances_come_in_the_order_they_were_asked_and_nobody_has_nothing() {
    let node = Stub::start(coins).await;
    let chain = client(&[&node.url], 1, vec![token()]);
    let wanted: Vec<_> = (0..200)
        .map(|number| (address(number % 3), if number % 2 == 0 { Coin::Native } else { Coin::Token(token()) }))
        .collect();
    let found = chain.balances(&wanted).await.expect("balances");
    for (amount, (owner, coin)) in found.iter().zip(&wanted) {
        let expected = match (owner == &address(1), coin) {
            (true, Coin::Native) => raw(1_500_000),
            (true, Coin::Token(_)) => RawAmount::MAX,
            (false, _) => RawAmount::ZERO,
        };
        assert_eq!(*amount, expected);
    }
    assert_eq!(found.len(), 200);
    for answer in [
        json!({ "balance": -1 }),
        json!({ "address": "41", "balance": 1 }),
        json!({ "address": format!("41{}", "ab".repeat(20)), "balance": 1 }),
    ] {
        let node = saying(200, &answer.to_string()).await;
        assert!(is_bad(client(&[&node.url], 1, vec![]).balances(&[(address(1), Coin::Native)]).await));
    }
    let foreign = tx::Address::Evm([1; 20].into());
    assert_eq!(chain.balances(&[(foreign, Coin::Native)]).await, Err(ChainError::ForeignAddress));
    assert_eq!(chain.nonces(&[address(1)]).await.expect("none").len(), 1);
}

/// Account 1 exists; account 7 does not. `net`: what getaccountnet says of the sender.
async fn priced(net: Value, call: Value) -> Stub {
    let book = Book::new(45);
    Stub::start(move |path, body| {
        let answer = match path {
            "/wallet/getchainparameters" => json!({ "chainParameter": [
                { "key": "getEnergyFee", "value": 100 },
                { "key": "getTransactionFee", "value": 1_000 },
                { "key": "getAllowCreationOfContracts" },
                { "key": "getCreateAccountFee", "value": 100_000 },
                { "key": "getCreateNewAccountFeeInSystemContract", "value": 1_000_000 },
            ]}),
            "/wallet/getaccountnet" => net.clone(),
            "/wallet/triggerconstantcontract" => call.clone(),
            "/wallet/getaccount" => return coins(path, body),
            _ => book.answer(path, body),
        };
        (200, answer.to_string())
    })
    .await
}

#[tokio::test]
async fn a_quote_is_what_the_payment_can_cost_and_never_above_the_cap() {
    let good = json!({ "result": { "result": true }, "energy_used": 13_045, "constant_result": ["0".repeat(64)] });
    let pay = |to: u32, coin: Coin| Payment { to: address(to), coin, amount: raw(5_000_000) };
    let bytes = 268;
    let free = json!({ "freeNetLimit": 600, "freeNetUsed": 600 - bytes });
    let short = json!({ "freeNetLimit": 600, "freeNetUsed": 600 - bytes + 1, "NetLimit": 267 });
    let staked = json!({ "freeNetLimit": 600, "freeNetUsed": 600, "NetLimit": 1_000, "NetUsed": 1_000 - bytes });
    let cap = FeeCap(Fee::FeeLimit(10_000_000));
    for (net, to, most) in [
        (&free, 1, 0),
        (&staked, 1, 0),
        (&short, 1, 268_000),
        (&json!({}), 1, 268_000),
        (&json!({ "NetLimit": 1_000, "NetUsed": 1_000 - bytes + 1 }), 1, 268_000),
        (&json!({ "NetLimit": -5, "NetUsed": i64::MAX, "freeNetUsed": i64::MIN }), 7, 1_100_000),
        (&free, 7, 1_100_000),
        (&staked, 7, 1_000_000),
    ] {
        let node = priced(net.clone(), good.clone()).await;
        let chain = client(&[&node.url], 1, vec![token()]);
        let quote = chain.quote(&address(2), &pay(to, Coin::Native), cap).await.expect("a quote");
        assert_eq!((quote.fee, quote.capped, quote.most), (Fee::FeeLimit(0), false, raw(most)), "{net} {to}");
        let (reference, time) = quote.reference.expect("TRON needs one");
        assert_eq!((reference.height, reference.hash), (26, stub::id(26, 0xaa)));
        assert_eq!(time.millis(), stub::START_MS + 26 * stub::SLOT_MS);
    }
    let node = priced(json!({}), good).await;
    let chain = client(&[&node.url], 1, vec![token()]);
    let payment = pay(7, Coin::Token(token()));
    let quote = chain.quote(&address(2), &payment, cap).await.expect("a quote");
    // 13,045 energy and a fifth more, at 100 sun, which may double; the bytes at 1,000 each.
    assert_eq!((quote.gas, quote.fee, quote.capped), (15_654, Fee::FeeLimit(3_130_800), false));
    let bandwidth = quote.most.checked_sub(raw(3_130_800)).expect("more than the energy");
    assert!(bandwidth > raw(340_000) && bandwidth < raw(350_000), "{bandwidth}");
    let low = chain.quote(&address(2), &payment, FeeCap(Fee::FeeLimit(1_000_000))).await.expect("a quote");
    assert_eq!((low.fee, low.capped), (Fee::FeeLimit(1_000_000), true));
    let nothing = chain.quote(&address(2), &payment, FeeCap(Fee::FeeLimit(-1))).await.expect("a quote");
    assert_eq!((nothing.fee, nothing.capped), (Fee::FeeLimit(0), true));
    let other = chain.quote(&address(2), &payment, FeeCap(Fee::PerKvb(1))).await;
    assert_eq!(other, Err(ChainError::ForeignAddress));

    // Many at once cost what each costs alone.
    let payments = [pay(1, Coin::Native), payment.clone(), pay(7, Coin::Native), pay(1, Coin::Token(token()))];
    let senders = [address(2), address(3)];
    let requests: Vec<QuoteRequest<'_>> = payments
        .iter()
        .enumerate()
        .map(|(number, payment)| QuoteRequest { from: &senders[number % 2], payment, cap })
        .collect();
    for (quote, one) in chain.quotes(&requests).await.into_iter().zip(&requests) {
        assert_eq!(quote, chain.quote(one.from, one.payment, cap).await);
    }

    let reverts = json!({ "result": { "result": true, "message": alloy_primitives::hex::encode("REVERT opcode executed") },
        "energy_used": 500, "transaction": { "ret": [{ "ret": "FAILED" }] } });
    let node = priced(json!({}), reverts).await;
    let answer = client(&[&node.url], 1, vec![token()]).quote(&address(2), &payment, cap).await;
    let Err(ChainError::Refused(CallError::Refused { message, .. })) = answer else { panic!("{answer:?}") };
    assert!(message.contains("REVERT opcode executed"), "{message}");
    // What would fail is refused alone: the others of the same moment are paid.
    let native = pay(1, Coin::Native);
    let from = address(2);
    let requests = [&payment, &native].map(|payment| QuoteRequest { from: &from, payment, cap });
    let quotes = client(&[&node.url], 1, vec![token()]).quotes(&requests).await;
    assert!(matches!(quotes[..], [Err(ChainError::Refused(_)), Ok(_)]), "{quotes:?}");
    let absurd = json!({ "result": { "result": true }, "energy_used": i64::MAX });
    let node = priced(json!({}), absurd).await;
    let quote =
        client(&[&node.url], 1, vec![token()]).quote(&address(2), &payment, FeeCap(Fee::FeeLimit(i64::MAX))).await;
    assert_eq!(quote.expect("the network's own bound").fee, Fee::FeeLimit(15_000_000_000));
}

#[tokio::test]
async fn a_broadcast_is_taken_when_one_node_takes_it_and_no_refusal_is_a_proof() {
    let said = |code: &str, message: &str| {
        json!({ "result": false, "code": code, "txid": "ab", "message": message, "transaction": "{}" }).to_string()
    };
    let hex = alloy_primitives::hex::encode("Contract validate error : balance is not sufficient.");
    for (answer, wanted) in [
        (json!({ "result": true, "code": "SUCCESS", "message": "", "txid": "ab" }).to_string(), None),
        (json!({ "result": true, "txid": "ab" }).to_string(), None),
        (said("DUP_TRANSACTION_ERROR", "Dup transaction."), None),
        (said("SIGERROR", "Validate signature error"), Some(NodeRefusal::BadSignature)),
        (said("TAPOS_ERROR", "Tapos check error."), Some(NodeRefusal::BadReference)),
        (said("TRANSACTION_EXPIRATION_ERROR", "Transaction expired"), Some(NodeRefusal::Expired)),
        (said("BANDWITH_ERROR", "Account resource insufficient error."), Some(NodeRefusal::InsufficientFunds)),
        (said("CONTRACT_VALIDATE_ERROR", &hex), Some(NodeRefusal::InsufficientFunds)),
        (said("CONTRACT_VALIDATE_ERROR", "No contract!"), Some(NodeRefusal::Other)),
        (said("TOO_BIG_TRANSACTION_ERROR", ""), Some(NodeRefusal::Malformed)),
        (said("SERVER_BUSY", ""), Some(NodeRefusal::Busy)),
        (said("NOT_ENOUGH_EFFECTIVE_CONNECTION", ""), Some(NodeRefusal::Busy)),
        (said("NO_CONNECTION", ""), Some(NodeRefusal::Busy)),
        (said("BLOCK_UNSOLIDIFIED", ""), Some(NodeRefusal::Busy)),
        (said("OTHER_ERROR", ""), Some(NodeRefusal::Other)),
        (said("A_CODE_OF_LATER_YEARS", ""), Some(NodeRefusal::Other)),
        (
            json!({ "Error": "class org.bouncycastle.DecoderException : no hex" }).to_string(),
            Some(NodeRefusal::Malformed),
        ),
    ] {
        let node = saying(200, &answer).await;
        let busy = [saying(200, &said("SERVER_BUSY", "")).await, saying(200, &said("NO_CONNECTION", "")).await];
        let took = client(&[&busy[0].url, &node.url, &busy[1].url], 1, vec![]).broadcast(b"bytes").await;
        match (took.expect("an answer"), wanted) {
            (Broadcast::Taken, None) => {}
            (Broadcast::Refused(refusal, _), Some(wanted)) => assert_eq!(refusal, wanted, "{answer}"),
            (other, _) => panic!("{answer}: {other:?}"),
        }
    }
    for text in ["<html>", "{}", "{\"result\":false}", "[]"] {
        let node = saying(200, text).await;
        let answer = client(&[&node.url], 1, vec![]).broadcast(b"bytes").await;
        assert!(is_bad(answer), "{text}: neither taken nor refused");
    }
    let gone = client(&["http://127.0.0.1:1", "http://127.0.0.1:2"], 1, vec![]).broadcast(b"bytes").await;
    assert!(matches!(gone, Err(ChainError::Unreachable(CallError::Unreachable { .. }))), "{gone:?}");
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let node = Stub::start(move |path, body| {
        log.lock().expect("one thread").push((path.to_owned(), body.clone()));
        (200, "{\"result\":true}".to_owned())
    })
    .await;
    let answer = client(&[&node.url], 1, vec![]).broadcast(&[0x0a, 0xff]).await;
    assert_eq!(answer, Ok(Broadcast::Taken));
    assert_eq!(
        *sent.lock().expect("one thread"),
        [("/wallet/broadcasthex".to_owned(), json!({ "transaction": "0aff" }))]
    );
}

#[tokio::test]
async fn another_chains_token_is_refused_when_the_client_is_made() {
    let settings = chain::tron::TronSettings::new(Network::Devnet, vec![tx::Address::Evm([1; 20].into())]);
    let endpoint = chain::endpoint::EndpointSettings {
        name: "one".to_owned(),
        url: "http://127.0.0.1:1".to_owned(),
        authorization: None,
        key: None,
        headers: Vec::new(),
        per_second: 0,
    };
    let clock = Arc::new(domain::ManualClock::default());
    let pool =
        chain::endpoint::Pool::new(&[endpoint], &chain::endpoint::PoolSettings::default(), clock).expect("a pool");
    assert!(matches!(chain::tron::TronChain::new(settings, pool), Err(ChainError::ForeignAddress)));
    assert_ne!(TronAddress([1; 20]), TronAddress([2; 20]));
}
