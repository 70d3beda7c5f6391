//! What an operator reads of the Bitcoin wallet: leases, and what may be pruned; and what a path leads to.

use domain::Timestamp;
use store::db_test;
use store::testing::NOW;
use store::utxo::{
    Added, AddressKind, Allow, Block, Hash, LockId, Network, NewAddress, NewOutput, NewTx, OutPoint, Path, Paths,
    UtxoError, UtxoRefusal, WalletId, Want,
};
use store::{Db, Engine};

fn address(account: u32, byte: u8, path: Option<(u8, u32)>) -> NewAddress {
    let path = path.map(|(branch, index)| Path { branch, index });
    NewAddress { account, path, kind: AddressKind::P2wpkh, script: [&[0, 20][..], &[byte; 20]].concat() }
}

fn shown(address: &NewAddress) -> String {
    address.script.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, UtxoError>) -> UtxoRefusal {
    match result {
        Err(UtxoError::Refused(refusal)) => refusal,
        other => panic!("{other:?} is no refusal"),
    }
}

/// A wallet with a deposit of two outputs in block 100.
async fn wallet(db: &Db) -> WalletId {
    let wallet = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
    let ours = address(3, 7, None);
    db.add_addresses(wallet, std::slice::from_ref(&ours), Paths::Exact, NOW).await.unwrap();
    let output = |amount| NewOutput { script: ours.script.clone(), amount };
    let inputs = vec![OutPoint { hash: Hash([9; 32]), index: 0 }];
    let deposit =
        NewTx { hash: Hash([1; 32]), raw: vec![1], coinbase: false, inputs, outputs: vec![output(500), output(600)] };
    connect(db, 100, &[deposit]).await;
    wallet
}

async fn connect(db: &Db, height: u32, txs: &[NewTx]) {
    let hash = |height: u32| Hash([u8::try_from(height).expect("a low block"); 32]);
    let block = Block { height, hash: hash(height), parent: hash(height - 1), time: 0 };
    db.connect_block(&block, txs, NOW).await.unwrap();
}

fn coin(index: u32) -> OutPoint {
    OutPoint { hash: Hash([1; 32]), index }
}

fn minutes(count: i64) -> Timestamp {
    NOW.plus_micros(count * 60_000_000)
}

db_test! {
    async fn leases_are_listed_by_page_until_they_are_swept(db: TestDb) {
        let wallet = wallet(db).await;
        assert_eq!(db.leases(wallet, None, 10).await.unwrap(), []);
        db.lease(wallet, &[coin(0)], LockId([5; 32]), minutes(1), NOW).await.unwrap();
        db.lease(wallet, &[coin(1)], LockId([6; 32]), minutes(9), NOW).await.unwrap();
        let all = db.leases(wallet, None, 10).await.unwrap();
        let told: Vec<_> = all.iter().map(|one| (one.outpoint, one.amount, one.account, one.lock, one.until)).collect();
        assert_eq!(told, [
            (coin(0), 500, 3, Some(LockId([5; 32])), Some(minutes(1))),
            (coin(1), 600, 3, Some(LockId([6; 32])), Some(minutes(9))),
        ]);
        assert_eq!(db.leases(wallet, None, 1).await.unwrap(), all[..1]);
        assert_eq!(db.leases(wallet, Some(all[0].id), 10).await.unwrap(), all[1..]);
        assert_eq!(db.leases(WalletId(wallet.0 + 1), None, 10).await.unwrap(), [], "another wallet's");
        assert_eq!(db.sweep_leases(minutes(1)).await.unwrap(), 1);
        assert_eq!(db.leases(wallet, None, 10).await.unwrap(), all[1..]);
    }

    async fn a_path_leads_to_one_script_of_a_kind(db: TestDb) {
        let wallet = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        let path = Some((0, 7));
        db.add_addresses(wallet, &[address(0, 1, path)], Paths::Exact, NOW).await.unwrap();
        let taken = UtxoRefusal::PathTaken { account: 0, path: Path { branch: 0, index: 7 } };
        assert_eq!(refusal(db.add_addresses(wallet, &[address(0, 9, None), address(0, 2, path)], Paths::Exact, NOW).await), taken);
        let twice = [address(1, 3, Some((1, 1))), address(1, 4, Some((1, 1)))];
        assert!(matches!(refusal(db.add_addresses(wallet, &twice, Paths::Exact, NOW).await), UtxoRefusal::PathTaken { account: 1, .. }));
        // The same once more, another account, another branch, another kind, and another wallet.
        let taproot = NewAddress { kind: AddressKind::P2tr, ..address(0, 7, path) };
        let fine = [address(0, 1, path), address(1, 5, path), address(0, 6, Some((1, 7))), taproot];
        assert_eq!(db.add_addresses(wallet, &fine, Paths::Exact, NOW).await.unwrap(), Added { new: 3, learned: 0 });
        let other = db.create_wallet("cold", Network::Regtest, NOW).await.unwrap();
        assert_eq!(db.add_addresses(other, &[address(0, 8, path), address(0, 9, None)], Paths::Exact, NOW).await.unwrap().new, 2);
    }

    async fn an_address_gets_the_path_that_it_was_added_without(db: TestDb) {
        let wallet = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        let watched = NewAddress { kind: AddressKind::Other, ..address(0, 1, None) };
        db.add_addresses(wallet, &[watched.clone(), address(0, 2, Some((0, 7)))], Paths::Exact, NOW).await.unwrap();
        let output = NewOutput { script: watched.script.clone(), amount: 70_000 };
        let (foreign, hash) = (OutPoint { hash: Hash([9; 32]), index: 0 }, Hash([8; 32]));
        let deposit = NewTx { hash, raw: vec![8], coinbase: false, inputs: vec![foreign], outputs: vec![output] };
        connect(db, 100, &[deposit]).await;
        let want = Want { target: 50_000, allow: Allow::default(), seed: 1 };
        assert_eq!(db.candidates(wallet, 0, &want, NOW).await.unwrap(), [], "only watched");

        let script = shown(&watched);
        for (given, refused) in [
            (address(0, 1, Some((0, 7))), UtxoRefusal::PathTaken { account: 0, path: Path { branch: 0, index: 7 } }),
            (address(0, 2, Some((0, 8))), UtxoRefusal::OtherPath {
                script: shown(&address(0, 2, None)),
                path: Path { branch: 0, index: 7 },
            }),
            (address(1, 1, Some((0, 8))), UtxoRefusal::AddressTaken(script.clone())),
        ] {
            assert_eq!(refusal(db.add_addresses(wallet, &[given], Paths::Exact, NOW).await), refused);
        }
        let with_path = address(0, 1, Some((1, 8)));
        let both = [address(0, 3, None), with_path.clone(), address(0, 3, Some((0, 3))), watched.clone()];
        assert_eq!(db.add_addresses(wallet, &both, Paths::Exact, NOW).await.unwrap(), Added { new: 1, learned: 1 });
        assert_eq!(db.add_addresses(wallet, &both, Paths::Exact, NOW).await.unwrap(), Added::default());
        let other = UtxoRefusal::OtherPath { script, path: Path { branch: 1, index: 8 } };
        assert_eq!(refusal(db.add_addresses(wallet, &[address(0, 1, Some((1, 9)))], Paths::Exact, NOW).await), other);
        assert_eq!(db.candidates(wallet, 0, &want, NOW).await.unwrap().len(), 1, "it can be spent from");
    }

    /// A wallet of Bitcoin Core can have had several keys in turn, with the same paths.
    async fn where_a_path_is_taken_an_import_only_watches(db: TestDb) {
        let wallet = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        let first = [address(0, 1, Some((0, 0))), address(0, 2, None)];
        assert_eq!(db.add_addresses(wallet, &first, Paths::WhereFree, NOW).await.unwrap().new, 2);
        // The other key is the active one now, and has handed out more.
        let turned =
            [address(0, 2, Some((0, 0))), address(0, 3, Some((0, 1))), address(0, 4, Some((0, 1))), address(0, 1, None)];
        let added = db.add_addresses(wallet, &turned, Paths::WhereFree, NOW).await.unwrap();
        assert_eq!(added, Added { new: 2, learned: 0 });
        let other = [address(0, 1, Some((0, 5)))];
        assert_eq!(db.add_addresses(wallet, &other, Paths::WhereFree, NOW).await.unwrap(), Added::default());
        // 4 was given a path that 3 has: it is watched, and may get one that is free.
        let output = NewOutput { script: address(0, 4, None).script, amount: 70_000 };
        let inputs = vec![OutPoint { hash: Hash([9; 32]), index: 0 }];
        connect(db, 100, &[NewTx { hash: Hash([8; 32]), raw: vec![8], coinbase: false, inputs, outputs: vec![output] }]).await;
        let want = Want { target: 50_000, allow: Allow::default(), seed: 1 };
        assert_eq!(db.candidates(wallet, 0, &want, NOW).await.unwrap(), []);
        let free = [address(0, 4, Some((1, 1)))];
        assert_eq!(db.add_addresses(wallet, &free, Paths::Exact, NOW).await.unwrap(), Added { new: 0, learned: 1 });
        assert_eq!(db.candidates(wallet, 0, &want, NOW).await.unwrap().len(), 1);
    }

    /// What no rule of the database forbids, the check finds.
    async fn damage_is_found(db: TestDb) {
        let wallet = wallet(db).await;
        let spend = |byte: u8, from: OutPoint| {
            let outputs = vec![NewOutput { script: address(3, 7, None).script, amount: 400 }];
            NewTx { hash: Hash([byte; 32]), raw: vec![byte], coinbase: false, inputs: vec![from], outputs }
        };
        let parent = spend(5, coin(0));
        let child = spend(6, OutPoint { hash: parent.hash, index: 0 });
        db.see_transactions(&[parent, child], NOW).await.unwrap();
        let pending = spend(7, coin(1));
        db.add_pending(wallet, &pending, None, NOW).await.unwrap();
        db.abandon(pending.hash, "ann", "no longer wanted", NOW).await.unwrap();
        assert_eq!(db.check_utxo().await.unwrap(), []);
        let kinds = async || -> Vec<&'static str> {
            db.check_utxo().await.unwrap().iter().map(|finding| finding.check).collect()
        };
        for (damage, repair, found) in [
            (
                "UPDATE account_totals SET confirmed = confirmed + 1",
                "UPDATE account_totals SET confirmed = confirmed - 1",
                &["totals"][..],
            ),
            // A child without a cause for its end, which nothing keeps from being mined; then its parent, on which it spends.
            (
                "UPDATE transactions SET status = 'failed' WHERE tx_hash = $6",
                "UPDATE transactions SET status = 'published' WHERE tx_hash = $6",
                &["cause", "revived", "history", "unclaimed"],
            ),
            (
                "UPDATE transactions SET status = 'failed' WHERE tx_hash = $5",
                "",
                &["totals", "spender", "parent", "cause", "revived", "history", "unclaimed"],
            ),
        ] {
            let bytes = |number: &str| match db.engine() {
                Engine::Postgres => format!("decode('{}', 'hex')", number.repeat(32)),
                Engine::Sqlite => format!("x'{}'", number.repeat(32)),
            };
            let text = |sql: &str| sql.replace("$6", &bytes("06")).replace("$5", &bytes("05"));
            db.by_hand(&text(damage)).await.unwrap();
            assert_eq!(kinds().await, found, "{damage}");
            db.by_hand(&text(repair)).await.unwrap();
        }
    }

    async fn asking_what_may_be_pruned_prunes_nothing(db: TestDb) {
        let wallet = wallet(db).await;
        let (deposit, unknown) = (Hash([1; 32]), Hash([2; 32]));
        assert!(matches!(refusal(db.may_prune(wallet, deposit).await), UtxoRefusal::NotFinal(_)));
        assert_eq!(refusal(db.may_prune(wallet, unknown).await), UtxoRefusal::UnknownTransaction(unknown));
        let output = NewOutput { script: vec![0x51], amount: 1_000 };
        let inputs = vec![coin(0), coin(1)];
        let spend = NewTx { hash: Hash([3; 32]), raw: vec![3], coinbase: false, inputs, outputs: vec![output] };
        connect(db, 101, &[spend]).await;
        for height in 102..=200 {
            connect(db, height, &[]).await;
        }
        assert!(matches!(refusal(db.may_prune(wallet, deposit).await), UtxoRefusal::NotFinal(_)), "spent 99 blocks ago");
        connect(db, 201, &[]).await;
        db.may_prune(wallet, deposit).await.unwrap();
        assert!(db.transaction(wallet, deposit, NOW).await.unwrap().is_some(), "it is still there");
        db.prune(wallet, deposit, "ann", "case 4711", NOW).await.unwrap();
        assert_eq!(refusal(db.may_prune(wallet, deposit).await), UtxoRefusal::UnknownTransaction(deposit));
    }

    /// Were the winner pruned first, nothing would say any more that the loser cannot be mined; shown once more it would
    /// count as money.
    async fn what_lost_is_pruned_before_what_won(db: TestDb) {
        let wallet = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        let ours = address(0, 7, None);
        db.add_addresses(wallet, std::slice::from_ref(&ours), Paths::Exact, NOW).await.unwrap();
        let made = |number: u8, input: OutPoint, script: &[u8]| NewTx {
            hash: Hash([number; 32]),
            raw: vec![number],
            coinbase: false,
            inputs: vec![input],
            outputs: vec![NewOutput { script: script.to_vec(), amount: 500 }],
        };
        let foreign = OutPoint { hash: Hash([9; 32]), index: 0 };
        let (lost, between, won) =
            (made(1, foreign, &ours.script), made(2, foreign, &ours.script), made(3, foreign, &ours.script));
        for one in [&lost, &between] {
            db.see_transactions(std::slice::from_ref(one), NOW).await.unwrap();
        }
        connect(db, 100, std::slice::from_ref(&won)).await;
        connect(db, 101, &[made(4, OutPoint { hash: won.hash, index: 0 }, &[0x51])]).await;
        for height in 102..=201 {
            connect(db, height, &[]).await;
        }
        let first = refusal(db.prune(wallet, won.hash, "ann", "case 4711", NOW).await);
        assert_eq!(first, UtxoRefusal::NotFinal("others that wanted its inputs are still there; prune them first"));
        // The one in between had replaced the other, which stays replaced without it.
        for one in [&between, &lost, &won] {
            db.prune(wallet, one.hash, "ann", "case 4711", NOW).await.unwrap();
            assert_eq!(db.check_utxo().await.unwrap(), []);
        }
    }
}
