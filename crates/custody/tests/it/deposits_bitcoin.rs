//! Deposits of Bitcoin on three nodes of the devnet: every output is a deposit of its own, and what the chain takes back after the credit is
//! taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use chain::{Broadcast, Chain};
use custody::bitcoin::block_of_bytes;
use custody::deposit::{DepositWorker, Worked};
use custody::wallet::assign;
use devnet::{Fate, Key, Model};
use domain::deposit::DepositState;
use domain::random::Random;
use domain::{Clock, UserId};
use store::Engine;
use store::deposit::{DepositFilter, DepositRow};
use store::testing::on;
use tx::{Address, Input};

use crate::deposits::id;
use crate::devnet::coin_of;
use crate::payouts::House;
use crate::world::{NETWORK, spend};

const STRANGER: u32 = 3;

fn stranger() -> Address {
    Key::numbered(STRANGER).bitcoin(NETWORK)
}

/// The stranger gets so much, in a block.
async fn coin(house: &House<'_>, amount: u64) -> Input {
    house.fund(&stranger(), amount);
    house.mine(1).await;
    let height = house.act(|model| model.height());
    let header = house.chain.headers(&[height]).await.unwrap()[0];
    let bytes = house.chain.block_bytes(header.at()).await.unwrap();
    let (_, transactions) = block_of_bytes(u32::try_from(height).unwrap(), &bytes).unwrap();
    let (script, amount) = (stranger().script_bytes().unwrap(), i64::try_from(amount).unwrap());
    let pays = |one: &store::utxo::NewTx| {
        !one.coinbase && one.outputs.iter().any(|out| out.amount == amount && out.script == script)
    };
    let paid = transactions.into_iter().find(pays).expect("it is in the newest block");
    coin_of(&paid, &stranger(), amount)
}

async fn address(house: &House<'_>, number: i64) -> Address {
    let user = UserId::new(number).unwrap();
    let given = assign(house.db, &house.pinned, &id("users"), &[user], house.clock.now()).await.unwrap();
    given.wallets[0].address.clone()
}

async fn worker<'h>(house: &'h House<'_>) -> DepositWorker<'h> {
    let mut random = Random::from_seed(7);
    let (row, pinned) = (house.row.clone(), Arc::clone(&house.pinned));
    DepositWorker::take(house.db, &house.chain, row, pinned, "one", &mut random, house.clock.now()).await.unwrap()
}

/// Rounds until there is nothing to do.
async fn work(house: &House<'_>, worker: &mut DepositWorker<'_>) -> Worked {
    let mut sum = Worked::default();
    for _ in 0..50 {
        let worked = worker.round(&*house.clock).await.unwrap();
        if !worked.is_busy() {
            return sum;
        }
        sum.posted.credited += worked.posted.credited;
        sum.posted.taken_back += worked.posted.taken_back;
    }
    panic!("it never rests");
}

async fn deposits(house: &House<'_>) -> Vec<DepositRow> {
    house.db.deposits(&DepositFilter::default(), i64::MAX, 99).await.unwrap()
}

/// What a user has, in satoshi.
async fn has(house: &House<'_>, number: i64) -> i64 {
    let mut tx = house.db.read().await.unwrap();
    let accounts = store::ledger::balances::funding_of(&mut tx, UserId::new(number).unwrap()).await.unwrap();
    accounts.iter().map(|(_, account)| account.available.units()).sum()
}

async fn assert_clean(house: &House<'_>) {
    let report = house.db.audit(|_| {}).await.unwrap();
    assert!(report.clean(), "{report:?}");
}

/// By the transaction alone nine of ten would be lost; by address and amount as well.
#[test]
fn ten_outputs_of_one_transaction_to_one_address_are_ten_deposits() {
    for engine in crate::engines() {
        on(engine, async |db| {
            let house = House::start(db, &[]).await;
            let to = address(&house, 7).await;
            let coin = coin(&house, 9_000_000).await;
            let mut outputs = vec![(to.clone(), 100_000); 10];
            outputs.insert(4, (stranger(), 7_990_000));
            let raw = spend(STRANGER, &[coin], &outputs);
            assert_eq!(house.chain.broadcast(&raw).await.unwrap(), Broadcast::Taken);
            house.mine(8).await;
            let mut worker = worker(&house).await;
            assert_eq!(work(&house, &mut worker).await.posted.credited, 10);
            let rows = deposits(&house).await;
            let places: BTreeSet<&str> = rows.iter().map(|row| row.place.as_str()).collect();
            let hashes: BTreeSet<[u8; 32]> = rows.iter().map(|row| row.transaction.0).collect();
            assert_eq!((rows.len(), places.len(), hashes.len()), (10, 10, 1), "{rows:#?}");
            let of_seven = |row: &DepositRow| row.user == Some(7) && row.amount.units() == 100_000;
            assert!(rows.iter().all(|row| of_seven(row) && row.state == DepositState::Final), "{rows:#?}");
            assert_eq!((has(&house, 7).await, house.balance(&to).await), (1_000_000, 1_000_000));
            assert_clean(&house).await;
        });
    }
}

/// The stranger pays, gets the credit, and spends the same coin elsewhere on the branch that wins.
#[test]
fn a_credited_deposit_that_a_reorganisation_replaces_is_taken_back() {
    on(Engine::Sqlite, async |db| {
        let house = House::start(db, &[]).await;
        let to = address(&house, 7).await;
        let coin = coin(&house, 9_000_000).await;
        let pays = spend(STRANGER, std::slice::from_ref(&coin), &[(to.clone(), 1_000_000), (stranger(), 7_990_000)]);
        assert_eq!(house.chain.broadcast(&pays).await.unwrap(), Broadcast::Taken);
        house.mine(4).await;
        let mut worker = worker(&house).await;
        assert_eq!(work(&house, &mut worker).await.posted.credited, 1);
        assert_eq!((has(&house, 7).await, deposits(&house).await[0].state), (1_000_000, DepositState::Credited));

        let rival = spend(STRANGER, &[coin], &[(stranger(), 8_990_000)]);
        house.act(|model| model.reorg(4, Fate::Dropped, &[rival], house.clock.now())).unwrap();
        house.follow().await;
        assert_eq!(work(&house, &mut worker).await.posted.taken_back, 1);
        let rows = deposits(&house).await;
        assert_eq!((rows.len(), rows[0].state, has(&house, 7).await), (1, DepositState::Reversed, 0), "{rows:#?}");
        assert_clean(&house).await;
        // It can never be mined again, and nothing brings it back.
        assert!(house.chain.broadcast(&pays).await.is_ok_and(|said| said != Broadcast::Taken));
        house.mine(8).await;
        assert_eq!(work(&house, &mut worker).await.posted.credited, 0);
        assert_eq!((has(&house, 7).await, house.balance(&to).await), (0, 0));
        assert_clean(&house).await;
    });
}
