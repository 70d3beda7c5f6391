//! What the model says that is to be read: rows, outputs that are free, balances.

use std::collections::{BTreeMap, BTreeSet};

use store::utxo::*;

use super::model::{Model, Tx};

impl Model {
    /// Every row that the store must have, as `rows::Reader` prints them.
    pub fn rows(&self) -> BTreeSet<String> {
        let mut rows = BTreeSet::new();
        for block in &self.blocks {
            rows.insert(format!("block {} {}", block.height, block.hash));
        }
        let spenders = self.spenders();
        for tx in self.txs.values() {
            for wallet in &tx.wallets {
                self.rows_of(tx, *wallet, &spenders, &mut rows);
            }
        }
        for edge in &self.edges {
            for wallet in &edge.wallets {
                rows.insert(format!("edge {wallet} {} -> {}", edge.victim, edge.winner));
            }
        }
        for (outpoint, claimant) in self.claimed() {
            let (wallet, _) = self.owner(&outpoint).unwrap();
            rows.insert(format!("claim {wallet} {outpoint} by {claimant}"));
        }
        rows.extend(self.totals());
        rows
    }

    /// Whether it is in the way of nothing: valid, or broadcast once, and neither a block nor two people say that it, or something
    /// that it depends on, can never be mined.
    pub fn may_be_mined(&self, hash: &Hash) -> bool {
        let Some(tx) = self.txs.get(hash).filter(|tx| !tx.status.is_valid()) else { return true };
        let spends_too = |other: &Tx, input: &OutPoint| other.height.is_some() && other.content.inputs.contains(input);
        let lost = |input: &OutPoint| self.txs.values().any(|other| spends_too(other, input));
        let stands = tx.was_published && !tx.given_up && tx.status != Status::Orphaned;
        stands && tx.content.inputs.iter().all(|input| !lost(input) && self.may_be_mined(&input.hash))
    }

    /// Our free outputs that a transaction spends which is not valid and may still be mined.
    pub fn claimed(&self) -> BTreeMap<OutPoint, Hash> {
        let free: BTreeSet<OutPoint> = self.unspent().into_iter().map(|(outpoint, ..)| outpoint).collect();
        let mut claimed = BTreeMap::new();
        // In the order of their hashes: the first one is told.
        for (hash, tx) in self.txs.iter().filter(|(_, tx)| !tx.status.is_valid()) {
            let wanted: Vec<&OutPoint> = tx.content.inputs.iter().filter(|input| free.contains(input)).collect();
            if !wanted.is_empty() && self.may_be_mined(hash) {
                for outpoint in wanted {
                    claimed.entry(*outpoint).or_insert(*hash);
                }
            }
        }
        claimed
    }

    /// By wallet and account: amount and count of what is in a block, and of what is in none.
    fn totals(&self) -> Vec<String> {
        let mut totals: BTreeMap<(usize, u32), [(i64, u32); 2]> = BTreeMap::new();
        for (outpoint, wallet, account, amount) in self.unspent() {
            let place = usize::from(!self.is_confirmed(&outpoint.hash));
            let (sum, count) = &mut totals.entry((wallet, account)).or_default()[place];
            *sum += amount;
            *count += 1;
        }
        let mut rows = Vec::new();
        for ((wallet, account), [(sum, count), (more, more_count)]) in totals {
            rows.push(format!(
                "total {wallet} account {account} confirmed {sum} in {count} unconfirmed {more} in {more_count}"
            ));
        }
        rows
    }

    fn rows_of(
        &self,
        tx: &Tx,
        wallet: usize,
        spenders: &BTreeMap<OutPoint, (Hash, usize)>,
        rows: &mut BTreeSet<String>,
    ) {
        let hash = tx.content.hash;
        let height = tx.height.map_or_else(|| "-".to_owned(), |height| height.to_string());
        let [coinbase, own, given_up] = [tx.content.coinbase, tx.own, tx.given_up].map(u8::from);
        let flags = format!("coinbase {coinbase} own {own} given up {given_up}");
        rows.insert(format!("tx {wallet} {hash} {} {height} {flags}", tx.status));
        let valid = u8::from(tx.status.is_valid());
        for (index, input) in tx.content.inputs.iter().enumerate() {
            rows.insert(format!("input {wallet} {hash} {index} {input} active {valid}"));
        }
        for (index, output) in tx.content.outputs.iter().enumerate() {
            let Some((_, account)) = self.scripts.get(&output.script).filter(|(owner, _)| *owner == wallet) else {
                continue;
            };
            let outpoint = OutPoint { hash, index: u32::try_from(index).unwrap() };
            let spender = spenders.get(&outpoint);
            let spender = spender.map_or_else(|| "-".to_owned(), |(hash, index)| format!("{hash}:{index}"));
            let amount = output.amount;
            rows.insert(format!(
                "output {wallet} {outpoint} {amount} account {account} valid {valid} spent by {spender}"
            ));
        }
    }

    /// Our valid unspent outputs, in the order of their outpoints.
    pub fn unspent(&self) -> Vec<(OutPoint, usize, u32, i64)> {
        let mut unspent = Vec::new();
        let spenders = self.spenders();
        for tx in self.txs.values().filter(|tx| tx.status.is_valid()) {
            for (index, output) in tx.content.outputs.iter().enumerate() {
                let outpoint = OutPoint { hash: tx.content.hash, index: u32::try_from(index).unwrap() };
                let owner = self.scripts.get(&output.script);
                if let Some((wallet, account)) = owner
                    && !spenders.contains_key(&outpoint)
                {
                    unspent.push((outpoint, *wallet, *account, output.amount));
                }
            }
        }
        unspent
    }

    /// By wallet and account; those with nothing are left out.
    pub fn balances(&self) -> BTreeMap<(usize, u32), Balance> {
        let mut balances: BTreeMap<(usize, u32), Balance> = BTreeMap::new();
        let tip = self.tip().map_or(0, |tip| tip.height);
        let claimed = self.claimed();
        for (outpoint, wallet, account, amount) in self.unspent() {
            let tx = &self.txs[&outpoint.hash];
            let balance = balances.entry((wallet, account)).or_default();
            balance.outputs += 1;
            if claimed.contains_key(&outpoint) {
                balance.leased += amount;
            }
            match tx.height {
                None => balance.unconfirmed += amount,
                Some(height) => {
                    balance.confirmed += amount;
                    if tx.content.coinbase && !is_mature(height, tip) {
                        balance.immature += amount;
                    }
                }
            }
        }
        balances
    }
}
