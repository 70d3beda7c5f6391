//! A database and a model that are told the same events, and what the tests make events of.

use std::collections::{BTreeMap, BTreeSet};

use domain::{Approval, Timestamp};
use store::Db;
use store::testing::{NOW, TestDb};
use store::utxo::*;

use super::model::{Answer, Event, Model, short};
use super::rows::Reader;

pub const ACCOUNTS: u32 = 2;
pub const ADDRESSES: u32 = 3;
/// The height of the first block of every test.
pub const BASE: u32 = 1_000;

/// Number `index` of an account's receiving addresses.
pub fn script(wallet: usize, account: u32, index: u32) -> Vec<u8> {
    format!("wallet {wallet} account {account} address {index}").into_bytes()
}

pub fn foreign_script() -> Vec<u8> {
    b"somebody else".to_vec()
}

/// A hash for each name.
pub fn hash(name: &str) -> Hash {
    let mut bytes = [0; 32];
    let mut random = domain::random::Random::from_seed(0);
    for byte in name.bytes() {
        random = domain::random::Random::from_seed(random.next_u64() ^ u64::from(byte));
    }
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.next_u64().to_be_bytes());
    }
    Hash(bytes)
}

pub fn tx(name: &str, inputs: &[OutPoint], outputs: &[(Vec<u8>, i64)]) -> NewTx {
    let outputs = outputs.iter().map(|(script, amount)| NewOutput { script: script.clone(), amount: *amount });
    NewTx {
        hash: hash(name),
        raw: format!("raw {name}").into_bytes(),
        coinbase: false,
        inputs: inputs.to_vec(),
        outputs: outputs.collect(),
    }
}

pub fn coinbase(name: &str, outputs: &[(Vec<u8>, i64)]) -> NewTx {
    NewTx { coinbase: true, ..tx(name, &[], outputs) }
}

pub fn output(tx: &NewTx, index: u32) -> OutPoint {
    OutPoint { hash: tx.hash, index }
}

/// An output of somebody else's transaction that nobody here has seen.
pub fn elsewhere(name: &str) -> OutPoint {
    OutPoint { hash: hash(&format!("elsewhere {name}")), index: 0 }
}

pub fn block(height: u32, name: &str, parent: Hash) -> Block {
    Block { height, hash: hash(&format!("block {name}")), parent, time: 1_700_000_000 + height }
}

pub fn addresses(wallet: usize) -> Vec<NewAddress> {
    let mut addresses = Vec::new();
    for account in 0..ACCOUNTS {
        for index in 0..ADDRESSES {
            let kind = if index % 2 == 0 { AddressKind::P2wpkh } else { AddressKind::P2tr };
            let path = Some(Path { branch: 0, index });
            addresses.push(NewAddress { account, path, kind, script: script(wallet, account, index) });
        }
    }
    addresses
}

/// A model with so many wallets, and nothing in them.
pub fn model(wallets: usize) -> Model {
    let mut model = Model::default();
    for wallet in 0..wallets {
        let scripts = addresses(wallet).into_iter();
        model.scripts.extend(scripts.map(|address| (address.script, (wallet, address.account))));
    }
    model
}

pub async fn open_wallets(db: &Db, count: usize) -> Vec<WalletId> {
    let mut wallets = Vec::new();
    for number in 0..count {
        let wallet = db.create_wallet(&format!("wallet {number}"), Network::Regtest, NOW).await.unwrap();
        assert_eq!(wallet.0, i64::try_from(number).unwrap() + 1, "the rows are read by these numbers");
        db.add_addresses(wallet, &addresses(number), Paths::Exact, NOW).await.unwrap();
        wallets.push(wallet);
    }
    wallets
}

pub async fn deliver(db: &Db, wallets: &[WalletId], event: &Event, at: Timestamp) -> Result<Changes, UtxoError> {
    match event {
        Event::Connect(block, txs) => db.connect_block(block, txs, at).await,
        Event::Disconnect(down_to, stale) => match db.tip().await? {
            Some(tip) => db.disconnect_blocks(tip, *down_to, stale, at).await,
            None => Ok(Changes::default()),
        },
        Event::See(txs) => db.see_transactions(txs, at).await,
        Event::Mempool(txs) => db.see_mempool(txs, &txs.iter().map(|tx| tx.hash).collect(), at).await,
        Event::Pending(wallet, tx) => db.add_pending(wallets[*wallet], tx, None, at).await,
        Event::Replace(wallet, tx) => db.replace(wallets[*wallet], tx, None, at).await,
        Event::Publish(hash) => db.publish(*hash, at).await,
        Event::Abandon(hash) => db.abandon(*hash, "test", "the test says so", at).await,
        Event::GiveUp(hash) => {
            let people = Approval::new("ann", "bob", "the test says so").unwrap();
            db.give_up(*hash, &people, at).await
        }
    }
}

/// What the database answered, in the model's words.
pub fn answer_of(wallets: &[WalletId], result: Result<Changes, UtxoError>) -> Result<Answer, String> {
    match result {
        Ok(changes) => {
            let number = |id: WalletId| wallets.iter().position(|wallet| *wallet == id).unwrap();
            let changed = changes.transactions.iter();
            Ok(Ok(changed.map(|one| (number(one.wallet), one.hash, one.status, one.height)).collect()))
        }
        Err(UtxoError::Refused(refusal)) => Ok(Err(refusal.code())),
        Err(UtxoError::Store(error)) => Err(format!("{error:?}")),
    }
}

pub struct Stage<'a> {
    pub db: &'a TestDb,
    pub wallets: Vec<WalletId>,
    pub model: Model,
    pub reader: Reader,
    pub now: Timestamp,
}

impl<'a> Stage<'a> {
    pub async fn open(db: &'a TestDb, count: usize) -> Self {
        let wallets = open_wallets(db, count).await;
        Self { db, wallets, model: model(count), reader: Reader::open(db).await, now: NOW }
    }

    /// Tells both, and says where they differ.
    pub async fn try_play(&mut self, event: &Event) -> Result<Answer, String> {
        // Mempools are read long after whatever was published before.
        let pause = if matches!(event, Event::Mempool(_)) { 61_000_000 } else { 1_000_000 };
        self.now = self.now.plus_micros(pause);
        let expected = self.model.apply(event);
        let result = deliver(self.db, &self.wallets, event, self.now).await;
        let answer = answer_of(&self.wallets, result)?;
        if answer != expected {
            return Err(differing_answers(&answer, &expected));
        }
        self.compare().await?;
        Ok(answer)
    }

    /// Tells both; they must agree.
    pub async fn play(&mut self, event: Event) -> Answer {
        match self.try_play(&event).await {
            Ok(answer) => answer,
            Err(difference) => panic!("after {event:?}:\n{difference}"),
        }
    }

    /// The same without a look at the rows, where there are many.
    pub async fn play_unseen(&mut self, event: &Event) {
        self.model.apply(event).unwrap();
        deliver(self.db, &self.wallets, event, self.now).await.unwrap();
    }

    pub async fn compare(&mut self) -> Result<(), String> {
        let difference = difference(&self.reader.rows().await, &self.model.rows());
        if !difference.is_empty() {
            return Err(difference);
        }
        let mut balances = BTreeMap::new();
        for (number, wallet) in self.wallets.iter().enumerate() {
            let accounts = self.db.balance(*wallet, self.now).await.map_err(|error| format!("{error:?}"))?;
            let accounts = accounts.into_iter().filter(|(_, balance)| *balance != Balance::default());
            balances.extend(accounts.map(|(account, balance)| ((number, account), balance)));
        }
        let expected = self.model.balances();
        if balances == expected { Ok(()) } else { Err(format!("balances {balances:?}\ninstead of {expected:?}")) }
    }

    pub async fn assert_same(&mut self) {
        if let Err(difference) = self.compare().await {
            panic!("{difference}");
        }
    }

    pub async fn assert_checked(&self) {
        let findings = self.db.check_utxo().await.unwrap();
        assert!(findings.is_empty(), "{findings:?}");
    }

    /// The next block on the tip, named after its height and `branch`.
    pub fn next_block(&self, branch: &str) -> Block {
        match self.model.tip() {
            None => block(BASE, branch, hash("before all")),
            Some(tip) => block(tip.height + 1, &format!("{branch} {}", tip.height + 1), tip.hash),
        }
    }

    pub async fn mine(&mut self, branch: &str, txs: &[NewTx]) -> Answer {
        let block = self.next_block(branch);
        self.play(Event::Connect(block, txs.to_vec())).await
    }

    pub fn status(&self, tx: &NewTx) -> Status {
        self.model.txs[&tx.hash].status
    }
}

pub fn difference(found: &BTreeSet<String>, expected: &BTreeSet<String>) -> String {
    let extra = found.difference(expected).map(|row| format!("  has      {row}\n"));
    let missing = expected.difference(found).map(|row| format!("  has not  {row}\n"));
    extra.chain(missing).collect()
}

fn differing_answers(found: &Answer, expected: &Answer) -> String {
    let (Ok(found), Ok(expected)) = (found, expected) else {
        let print = |answer: &Answer| answer.as_ref().map_or_else(|code| (*code).to_owned(), |_| "changes".to_owned());
        return format!("answered {}\ninstead of {}", print(found), print(expected));
    };
    let print = |(wallet, hash, status, height): &_| format!("{wallet} {} {status} {height:?}\n", short(hash));
    let extra = found.difference(expected).map(|one| format!("reports      {}", print(one)));
    let missing = expected.difference(found).map(|one| format!("reports not  {}", print(one)));
    extra.chain(missing).collect()
}
