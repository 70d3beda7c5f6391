//! Outputs for a payment: chosen among a few, and leased.
//!
//! The choice is the caller's. It is shown a window of outputs, then, if it finds nothing among these, the largest ones of
//! the account, more and more of them. Outputs that hang on too many unconfirmed transactions are not shown (`cluster`).

use std::collections::{HashMap, HashSet};

use domain::Timestamp;

use super::cluster::Clusters;
use super::coins::{Offered, Terms, Window};
use super::events::refused;
use super::lease::refuse_rescans;
use super::lease_queue::{Chosen, lease_in_line};
use super::load::hash;
use super::types::{Candidate, ChainSize, Coin, Hash, LockId, UtxoError, UtxoId, UtxoRefusal, WalletId, Want};
use crate::db::{Db, Tx};
use crate::dialect::{LOCK_SELECTIONS, Many};
use crate::error::StoreError;
use crate::transact;

statements! {
    READ_HASHES = "SELECT id, tx_hash FROM transactions WHERE wallet_id = $1 AND id {in $2}";
}

/// How often a selection looks again, without a lock, when others took the outputs it had chosen.
const HOPEFUL_TRIES: u64 = 3;

impl Db {
    /// Offers candidates to `choose` and leases the outputs that it chooses, all or none. `None`: `choose` found
    /// nothing that would do.
    #[expect(clippy::too_many_arguments, reason = "each is said by name in the types")]
    pub async fn select_and_lease(
        &self,
        wallet: WalletId,
        account: u32,
        want: &Want,
        lock: LockId,
        until: Timestamp,
        now: Timestamp,
        mut choose: impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>>,
    ) -> Result<Option<Vec<Coin>>, UtxoError> {
        refuse_rescans(lock)?;
        for attempt in 0..HOPEFUL_TRIES {
            let want = Want { seed: want.seed.wrapping_add(attempt), ..*want };
            let mut tx = self.read().await?;
            let chosen = pick(&mut tx, wallet, account, &want, now, &mut choose).await?;
            drop(tx);
            let Some(ids) = chosen else { return Ok(None) };
            if let Some(coins) = self.lease_chosen(Chosen { wallet, ids, lock, until, now }).await? {
                return Ok(Some(coins));
            }
        }
        // Too many want the same outputs. From here on selections wait in line. One that loses its outputs even so
        // begins again with a new transaction, so that no lock is kept from one choice to the next.
        Ok(transact!(self, tx => {
            fetch_optional!(tx, LOCK_SELECTIONS => (String,), wallet.0)?;
            match refused(pick_largest(tx, wallet, account, want, now, &mut choose).await)? {
                Err(refusal) => Ok(Err(refusal)),
                Ok(None) => Ok(Ok(None)),
                Ok(Some(ids)) => match lease_in_line(tx, &Chosen { wallet, ids, lock, until, now }).await? {
                    None => Err(StoreError::NeedsHistory),
                    leased => Ok(Ok(leased)),
                },
            }
        })??)
    }
}

/// A choice among outputs around the amount, or among the largest.
async fn pick(
    tx: &mut Tx,
    wallet: WalletId,
    account: u32,
    want: &Want,
    now: Timestamp,
    choose: &mut impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>>,
) -> Result<Option<Vec<UtxoId>>, UtxoError> {
    let terms = Terms::read(tx, wallet).await?;
    let mut window = Window::around(wallet, account, want, now, terms);
    window.read_enough(tx).await?;
    let mut room = Room::of(terms.most);
    room.learn(tx, wallet, &window.offered).await?;
    match room.choose(&window.offered, choose) {
        None => among_largest(tx, Window::largest(wallet, account, want, now, terms), room, choose).await,
        chosen => Ok(chosen),
    }
}

async fn pick_largest(
    tx: &mut Tx,
    wallet: WalletId,
    account: u32,
    want: &Want,
    now: Timestamp,
    choose: &mut impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>>,
) -> Result<Option<Vec<UtxoId>>, UtxoError> {
    let terms = Terms::read(tx, wallet).await?;
    let window = Window::largest(wallet, account, want, now, terms);
    among_largest(tx, window, Room::of(terms.most), choose).await
}

/// From the largest output downwards: small ones may cost more than they hold. Each time four times as many are shown as
/// before, so that few choices are made in vain.
async fn among_largest(
    tx: &mut Tx,
    mut window: Window,
    mut room: Room,
    choose: &mut impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>>,
) -> Result<Option<Vec<UtxoId>>, UtxoError> {
    let mut pages = 1;
    loop {
        let mut more = true;
        for _ in 0..pages {
            more = more && window.read_smaller(tx).await?;
        }
        room.learn(tx, window.wallet, &window.offered).await?;
        if let Some(chosen) = room.choose(&window.offered, choose) {
            return Ok(Some(chosen));
        }
        if !more {
            return room.refuse(&window.offered, choose);
        }
        pages *= 4;
    }
}

/// Which of the unconfirmed outputs that are offered may be spent without making a cluster too large.
struct Room {
    most: ChainSize,
    clusters: Clusters,
    /// By their numbers in the wallet.
    hashes: HashMap<i64, Hash>,
}

impl Room {
    fn of(most: ChainSize) -> Self {
        Self { most, clusters: Clusters::default(), hashes: HashMap::new() }
    }

    async fn learn(&mut self, tx: &mut Tx, wallet: WalletId, offered: &[Offered]) -> Result<(), StoreError> {
        let new = offered.iter().filter(|one| !one.candidate.confirmed && !self.hashes.contains_key(&one.tx));
        let new: HashSet<i64> = new.map(|one| one.tx).collect();
        if new.is_empty() {
            return Ok(());
        }
        let ids = Many(new.into_iter().collect::<Vec<i64>>());
        let mut hashes = Vec::new();
        for (id, bytes) in fetch_all!(tx, READ_HASHES => (i64, Vec<u8>), wallet.0, ids.clone())? {
            hashes.push(hash(&bytes)?);
            self.hashes.insert(id, hash(&bytes)?);
        }
        self.clusters.load(tx, &hashes).await
    }

    /// The unconfirmed transaction that made it.
    fn parent(&self, one: &Offered) -> Option<Hash> {
        if one.candidate.confirmed { None } else { self.hashes.get(&one.tx).copied() }
    }

    /// How large the cluster of a transaction would be that spends outputs of these. How large it is itself is not known
    /// yet: a tenth of the room is left for it, and if that is too little, it is refused when it is to be stored.
    fn would(&self, parents: &[Hash]) -> ChainSize {
        if parents.is_empty() {
            return ChainSize::default();
        }
        self.clusters.with_one_more(parents, self.most.bytes / 10)
    }

    /// A choice that nodes would take. If it joins clusters that are too large together, the largest of them is left out
    /// and the choice is made again.
    fn choose(
        &self,
        offered: &[Offered],
        choose: &mut impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>>,
    ) -> Option<Vec<UtxoId>> {
        let parents: HashMap<UtxoId, Hash> =
            offered.iter().filter_map(|one| Some((one.candidate.id, self.parent(one)?))).collect();
        let distinct: HashSet<Hash> = parents.values().copied().collect();
        let mut full: HashSet<Hash> =
            distinct.into_iter().filter(|parent| !self.would(&[*parent]).fits(self.most)).collect();
        loop {
            let shown = offered.iter().filter(|one| self.parent(one).is_none_or(|parent| !full.contains(&parent)));
            let shown: Vec<Candidate> = shown.map(|one| one.candidate).collect();
            let chosen = choose(&shown)?;
            let joined: Vec<Hash> = chosen.iter().filter_map(|id| parents.get(id)).copied().collect();
            let largest = joined.iter().max_by_key(|parent| self.would(&[**parent]).transactions);
            match largest {
                Some(largest) if !self.would(&joined).fits(self.most) => {
                    full.extend(self.clusters.connected(&[*largest]));
                    full.insert(*largest);
                }
                Some(_) | None => return Some(chosen),
            }
        }
    }

    /// Nothing was found. If it would have been with the outputs that were left out, this is the reason.
    fn refuse(
        &self,
        offered: &[Offered],
        choose: &mut impl FnMut(&[Candidate]) -> Option<Vec<UtxoId>>,
    ) -> Result<Option<Vec<UtxoId>>, UtxoError> {
        let parents: HashMap<UtxoId, Hash> =
            offered.iter().filter_map(|one| Some((one.candidate.id, self.parent(one)?))).collect();
        if parents.is_empty() {
            return Ok(None);
        }
        let all: Vec<Candidate> = offered.iter().map(|one| one.candidate).collect();
        let Some(chosen) = choose(&all) else { return Ok(None) };
        let joined: Vec<Hash> = chosen.iter().filter_map(|id| parents.get(id)).copied().collect();
        Err(UtxoRefusal::ChainTooLong { would: self.would(&joined), most: self.most }.into())
    }
}
