//! Bitcoin's books follow from the wallet store, in the same transaction as its blocks.

use std::collections::HashMap;

use domain::deposit::{Attribution, DepositState};
use domain::utxo::Hash;
use domain::{Timestamp, UserId};
use store::deposit::{DepositFilter, PostedBatch};
use store::entry::{ChainRow, CursorError, Worker};
use store::testing::races::meet;
use store::testing::{NOW, TestDb, on};
use store::utxo::{AddressKind, Block, Network, NewAddress, NewOutput, NewTx, OutPoint, Paths, WalletId};
use store::{Db, Engine, db_test};

use crate::support::*;

const USER: [u8; 22] = [7; 22];
const HOT: [u8; 22] = [9; 22];

fn hash(branch: u8, number: u32) -> Hash {
    let mut bytes = [branch; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Hash(bytes)
}

fn tx(number: u32, inputs: &[(u32, u32)], outputs: &[(&[u8], i64)]) -> NewTx {
    NewTx {
        hash: hash(77, number),
        raw: vec![1],
        coinbase: false,
        inputs: inputs.iter().map(|(number, index)| OutPoint { hash: hash(77, *number), index: *index }).collect(),
        outputs: outputs
            .iter()
            .map(|(script, amount)| NewOutput { script: script.to_vec(), amount: *amount })
            .collect(),
    }
}

struct Books<'a> {
    db: &'a Db,
    chain: ChainRow,
    worker: Worker,
    wallet: WalletId,
    tip: (u32, Hash),
}

impl<'a> Books<'a> {
    async fn begin(db: &'a TestDb) -> Self {
        let mut catalog = catalog();
        for chain in catalog.chains.values_mut() {
            (chain.confirmations, chain.final_confirmations) = (2, 3);
        }
        db.apply_catalog(&catalog, &AUTHOR, NOW).await.unwrap();
        let wallet = db.create_wallet("hot", Network::Bitcoin, NOW).await.unwrap();
        let address = |script: [u8; 22]| NewAddress {
            account: 0,
            path: None,
            kind: AddressKind::P2wpkh,
            script: script.to_vec(),
        };
        db.add_addresses(wallet, &[address(USER), address(HOT)], Paths::Exact, NOW).await.unwrap();
        db.by_hand(
            "INSERT INTO wallet_groups (id, name, family, purpose, xpub, derivation_path_template, is_active, created_at, updated_at)
                VALUES (51, 'users', 'bitcoin', 'deposit', 'x1', '', TRUE, 0, 0);
            INSERT INTO user_wallets (id, wallet_group_id, user_id, derivation_index, address, created_at) VALUES (57, 51, 7, 7, 'u7', 0);
            INSERT INTO address_texts SELECT script_pub_key, 'u7' FROM addresses WHERE id = (SELECT MIN(id) FROM addresses)",
        )
        .await
        .unwrap();
        let chain = db.chain(&"bitcoin".parse().unwrap()).await.unwrap().unwrap();
        let mut books =
            Self { db, chain: chain.clone(), worker: dummy(db, &chain).await, wallet, tip: (100, hash(0, 100)) };
        books.connect_first().await;
        books
    }

    async fn connect_first(&mut self) {
        let block = Block { height: 100, hash: self.tip.1, parent: hash(0, 99), time: 0 };
        self.db.connect_block(&block, &[], NOW).await.unwrap();
    }

    async fn connect(&mut self, branch: u8, txs: &[NewTx]) {
        let height = self.tip.0 + 1;
        let block = Block { height, hash: hash(branch, height), parent: self.tip.1, time: 0 };
        self.db.connect_block(&block, txs, NOW).await.unwrap();
        self.tip = (height, block.hash);
    }

    async fn back_to(&mut self, height: u32) {
        self.db.disconnect_blocks(self.tip, height, &[], NOW).await.unwrap();
        self.tip = (height, hash(u8::from(height > 100), height));
    }

    async fn due(&self) -> Vec<i64> {
        let proven = self.db.chain_standing(&self.chain).await.unwrap().unwrap().proven_height.unwrap();
        self.db.due_entries(&self.chain, proven).await.unwrap().iter().map(|entry| entry.id).collect()
    }

    async fn post_on(&self, db: &Db, ids: &[i64]) -> PostedBatch {
        let user = Attribution::User(UserId::new(7).unwrap());
        let whose: HashMap<i64, Attribution> = ids.iter().map(|id| (*id, user)).collect();
        db.post_entries(&self.worker, &self.chain, ids, &whose, NOW).await.unwrap()
    }

    async fn states(&self) -> Vec<DepositState> {
        let mut rows = self.db.deposits(&DepositFilter::default(), i64::MAX, 100).await.unwrap();
        rows.reverse();
        rows.iter().map(|row| row.state).collect()
    }
}

/// Begins the chain at block 100, and takes it.
async fn dummy(db: &Db, chain: &ChainRow) -> Worker {
    db.begin_chain(chain, 100, hash(0, 100), NOW).await.unwrap();
    let until = Timestamp::from_micros(NOW.micros() + 60_000_000);
    db.take_chain(chain.id, "one", NOW, until).await.unwrap()
}

use DepositState::*;

db_test! {
    async fn a_block_of_bitcoin_is_booked_with_its_coins(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.connect(1, &[tx(1, &[(90, 0)], &[(&USER, 50_000), (&[1; 22], 7), (&HOT, 4_000)])]).await;
        assert!(books.due().await.is_empty());
        assert_eq!(db.mark_proven(&books.worker, NOW).await.unwrap(), 2);
        assert_eq!(books.states().await, [Proven, Proven]);
        // The user sees it on its way; nobody sees what is the house's.
        let user = DepositFilter { user: UserId::new(7), ..DepositFilter::default() };
        let seen = db.deposits(&user, i64::MAX, 100).await.unwrap();
        assert_eq!(seen.iter().map(|row| (row.state, row.amount_raw.as_str())).collect::<Vec<_>>(), [(Proven, "50000")]);
        books.connect(1, &[]).await;
        let due = books.due().await;
        assert_eq!(books.post_on(db, &due).await.credited, 2);
        // Our own transaction spends both, pays a stranger, and brings change home.
        books.connect(1, &[tx(2, &[(1, 0), (1, 2)], &[(&[1; 22], 30_000), (&HOT, 20_000)])]).await;
        books.connect(1, &[]).await;
        let due = books.due().await;
        assert_eq!(books.post_on(db, &due).await.booked, 3);
        // Nothing of ours made it: two inputs that left without an explanation are one finding.
        assert_eq!(db.open_findings(0, 10).await.unwrap().len(), 1);
        assert_clean(db).await;
        books.back_to(100).await;
        let due = books.due().await;
        // What is taken back comes first, the rest with the next batch.
        assert_eq!(books.post_on(db, &due).await, PostedBatch { taken_back: 2, ..PostedBatch::default() });
        let due = books.due().await;
        assert_eq!(books.post_on(db, &due).await.booked, 3);
        assert_eq!(books.states().await, [Reversed, Reversed]);
        assert_clean(db).await;
    }

    async fn what_was_read_before_the_books_began_is_taken_in(db: TestDb) {
        let mut books = Books::begin(db).await;
        books.connect(1, &[tx(1, &[(90, 0)], &[(&USER, 50_000)])]).await;
        // Somebody asks for another Bitcoin chain: there is one wallet store.
        let mut second = books.chain.clone();
        second.id.0 += 1_000;
        assert!(db.begin_chain(&second, 0, hash(0, 0), NOW).await.is_err());
        assert_eq!((books.states().await, books.wallet.0 > 0), (vec![Detected], true));
    }

    async fn an_address_that_is_added_later_brings_what_old_blocks_paid(db: TestDb) {
        let mut books = Books::begin(db).await;
        let late = [8; 22];
        let paid = [tx(1, &[(90, 0)], &[(&late, 50_000)])];
        books.connect(1, &paid).await;
        books.connect(1, &[]).await;
        let address = NewAddress { account: 0, path: None, kind: AddressKind::P2wpkh, script: late.to_vec() };
        db.add_addresses(books.wallet, &[address], Paths::Exact, NOW).await.unwrap();
        let again = Block { height: 101, hash: hash(1, 101), parent: hash(0, 100), time: 0 };
        db.connect_block(&again, &paid, NOW).await.unwrap();
        db.begin_rescan(101).await.unwrap();
        db.read_block_again(&again, &paid, NOW).await.unwrap();
        assert_eq!((books.states().await, books.due().await.len()), (vec![Detected], 1));
        // Its block has two confirmations of three: it is proven and credited in one, and not final.
        let due = books.due().await;
        assert_eq!(books.post_on(db, &due).await, PostedBatch { credited: 1, ..PostedBatch::default() });
        assert_eq!(books.states().await, [Credited]);
        assert_clean(db).await;
    }

    /// What an import only claims is in no books until its block was read whole; then it is.
    async fn blocks_that_an_import_brought_are_read_before_the_books_begin(db: TestDb) {
        let mut catalog = catalog();
        for chain in catalog.chains.values_mut() {
            (chain.confirmations, chain.final_confirmations) = (2, 3);
        }
        db.apply_catalog(&catalog, &AUTHOR, NOW).await.unwrap();
        let wallet = db.create_wallet("hot", Network::Bitcoin, NOW).await.unwrap();
        let address = NewAddress { account: 0, path: None, kind: AddressKind::P2wpkh, script: HOT.to_vec() };
        db.add_addresses(wallet, &[address], Paths::Exact, NOW).await.unwrap();
        let block = |height: u32| Block { height, hash: hash(1, height), parent: hash(1, height - 1), time: 0 };
        for height in 103..=104 {
            db.connect_block(&block(height), &[], NOW).await.unwrap();
        }
        let chain = db.chain(&"bitcoin".parse().unwrap()).await.unwrap().unwrap();
        let refused = db.begin_chain(&chain, 100, hash(1, 100), NOW).await;
        assert!(matches!(refused, Err(CursorError::NotRead { first: 101 })), "{refused:?}");
        db.begin_rescan(101).await.unwrap();
        let paid = [tx(1, &[(90, 0)], &[(&HOT, 50_000)])];
        db.read_block_again(&block(101), &paid, NOW).await.unwrap();
        let refused = db.begin_chain(&chain, 100, hash(1, 100), NOW).await;
        assert!(matches!(refused, Err(CursorError::NotRead { .. })), "one is still missing: {refused:?}");
        for height in 102..=104 {
            db.read_block_again(&block(height), &[], NOW).await.unwrap();
        }
        db.begin_chain(&chain, 100, hash(1, 100), NOW).await.unwrap();
        let deposits = db.deposits(&DepositFilter::default(), i64::MAX, 9).await.unwrap();
        assert_eq!(deposits.iter().map(|row| (row.height, row.state)).collect::<Vec<_>>(), [(101, Detected)]);
        assert_clean(db).await;
    }
}

/// A block goes while what it paid is being booked: the books and the entries tell one story.
#[test]
fn postgres_a_block_of_bitcoin_waits_for_who_books() {
    on(Engine::Postgres, async |db| {
        let mut books = Books::begin(db).await;
        for at in 0.. {
            let start = books.tip;
            let number = 1_000 + u32::try_from(at).unwrap();
            books.connect(1, &[tx(number, &[(90 + number, 0)], &[(&USER, 50_000)])]).await;
            books.connect(1, &[]).await;
            let (due, tip) = (books.due().await, books.tip);
            let book = async |db: Db| books.post_on(&db, &due).await.credited;
            let go = async |db: Db| db.disconnect_blocks(tip, start.0, &[], NOW).await.unwrap();
            let met = meet(db, at, book, go).await;
            let due = books.due().await;
            let back = books.post_on(db, &due).await.taken_back;
            assert_eq!(met.first, back, "point {at}: what was credited is taken back");
            books.tip = start;
            assert_clean(db).await;
            // The rows of the stale transaction must not be in the way of the next round.
            books.connect(1, &[]).await;
            if !met.reached {
                break;
            }
        }
    });
}
