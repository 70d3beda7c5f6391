//! What leaves watched addresses, and what contracts move, from answers in the shapes of a node that keeps internal
//! transactions.

use chain::{Chain, Place, Scan};
use domain::RawAmount;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tx::Coin;

use super::stub::{Book, Stub, Tx, address, call, call_with, internal, log_from, other, token, trx};
use super::{client, watching};

const TOKEN: [u8; 20] = [0xee; 20];
/// Who sends all transactions of the stub.
const SENDER: u32 = 90;

/// One block with these transactions, scanned for these accounts.
async fn scanned(transactions: Vec<Tx>, watched: &[u32], tokens: bool) -> Scan {
    let mut book = Book::new(2);
    book.blocks[1].transactions = transactions;
    let node = Stub::of(&Arc::new(Mutex::new(book))).await;
    let tokens = if tokens { vec![token()] } else { Vec::new() };
    let watched: Vec<_> = watched.iter().map(|number| address(*number)).collect();
    client(&[&node.url], 1, tokens).scan(0, 2, &watching(&watched)).await.expect("a scan")
}

fn raw(amount: u64) -> RawAmount {
    amount.to_string().parse().expect("digits")
}

fn spent(scan: &Scan) -> Vec<(Place, u32, RawAmount, bool)> {
    scan.spends.iter().map(|one| (one.place, one.watched, one.amount, one.ok)).collect()
}

fn paid(scan: &Scan) -> Vec<(Place, u32, RawAmount, bool)> {
    scan.outputs.iter().map(|one| (one.place, one.watched, one.amount, one.ok)).collect()
}

#[tokio::test]
async fn fees_of_every_kind_of_transaction_are_told_and_value_only_of_those_that_ran() {
    let costly = |transaction: Tx, fee| Tx { fee, ..transaction };
    let transactions = vec![
        costly(trx(1, 5, "SUCCESS", 1), 1_100_000),
        costly(trx(1, 6, "OUT_OF_TIME", 2), 7),
        costly(call_with(8, "SUCCESS", 3), 9),
        costly(call_with(10, "REVERT", 4), 11),
        costly(other(5), 12),
        costly(other(6), 0),
    ];
    for tokens in [true, false] {
        let scan = scanned(transactions.clone(), &[SENDER], tokens).await;
        assert_eq!(
            spent(&scan),
            [
                (Place::Value, 0, raw(5), true),
                (Place::Fee, 0, raw(1_100_000), true),
                (Place::Fee, 0, raw(7), false),
                (Place::Value, 0, raw(8), true),
                (Place::Fee, 0, raw(9), true),
                (Place::Fee, 0, raw(11), false),
                (Place::Fee, 0, raw(12), true),
            ]
        );
        assert_eq!(scan.spends[0].to, Some(address(1)));
        assert_eq!((&scan.spends[1].to, &scan.spends[1].coin), (&None, &Coin::Native));
        assert_eq!(scan.outputs, []);
        assert_eq!(scan.source, "node 0");
    }
}

#[tokio::test]
async fn a_transfer_of_a_token_leaves_one_and_reaches_another() {
    let most = format!("{:f>64}", "");
    let mut huge = log_from(TOKEN, 1, 2, 0);
    huge["data"] = json!(most);
    let logs = vec![log_from(TOKEN, 1, 2, 7), log_from([0xdd; 20], 1, 2, 8), log_from(TOKEN, 1, 1, 9), huge];
    let scan = scanned(vec![call(logs, "SUCCESS", 1)], &[1, 2], true).await;
    let all = RawAmount::from_u256(alloy_primitives::U256::MAX);
    assert_eq!(
        spent(&scan),
        [(Place::Log(0), 0, raw(7), true), (Place::Log(2), 0, raw(9), true), (Place::Log(3), 0, all, true)]
    );
    assert_eq!(
        paid(&scan),
        [(Place::Log(0), 1, raw(7), true), (Place::Log(2), 0, raw(9), true), (Place::Log(3), 1, all, true)]
    );
    assert_eq!(scan.spends[0].to, Some(address(2)));
}

fn with(internals: Vec<Value>, ret: &'static str) -> Tx {
    Tx { internals, ..call(Vec::new(), ret, 1) }
}

#[tokio::test]
async fn what_contracts_move_is_told_and_what_was_rejected_is_not() {
    let trx = |sun: i64| json!([{ "callValue": sun }]);
    let mut rejected = internal(40, 1, "call", trx(3));
    rejected["rejected"] = json!(true);
    let internals = vec![
        internal(40, 41, "call", json!([{}])),
        internal(40, 1, "call", trx(5)),
        rejected,
        internal(40, 1, "call", json!([{ "callValue": 9, "tokenId": "1000001" }])),
        internal(40, 1, "freezeForEnergy", trx(9)),
        internal(40, 41, "create", trx(6)),
        internal(2, 1, "suicide", trx(7)),
        internal(40, 1, "call", json!([{}, { "callValue": 8 }])),
    ];
    for tokens in [true, false] {
        let scan = scanned(vec![with(internals.clone(), "SUCCESS")], &[1, 2], tokens).await;
        let places = [(1, raw(5)), (3, raw(7)), (4, raw(8))];
        assert_eq!(paid(&scan), places.map(|(place, amount)| (Place::Internal(place), 0, amount, true)));
        assert_eq!(spent(&scan), [(Place::Internal(3), 1, raw(7), true)]);
    }
    let failed = scanned(vec![with(internals, "REVERT")], &[1, 2], true).await;
    assert_eq!((paid(&failed), spent(&failed)), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn an_internal_transfer_of_an_impossible_form_is_refused() {
    let mut nobody = internal(40, 1, "call", json!([{ "callValue": 5 }]));
    nobody.as_object_mut().expect("an object").remove("caller_address");
    for bad in [nobody, internal(40, 1, "call", json!([{ "callValue": -5 }]))] {
        let mut book = Book::new(2);
        book.blocks[1].transactions = vec![with(vec![bad], "SUCCESS")];
        let node = Stub::of(&Arc::new(Mutex::new(book))).await;
        assert!(client(&[&node.url], 1, vec![]).scan(0, 2, &watching(&[address(1)])).await.is_err());
    }
}
