//! The chains as they are. Nothing here knows what our program makes of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chain::Header;
use chain::status::Paid;
use domain::random::Random;
use domain::{RawAmount, Timestamp};
use ruint::aliases::U256;
use tx::{Address, BlockHash, BlockRef, Coin, Fee, Meaning, Payment, Slot, TxHash};

use super::treasury::{Inside, Insides};

/// So many of the newest blocks are kept. No branch is so long, and nobody is so far behind.
const KEPT: usize = 200;
/// So much of what pools have dropped is remembered.
const REMEMBERED: usize = 200;
pub(crate) const NODES: usize = 3;
/// A block of TRON with so many above it is solidified.
pub(crate) const SOLID: u64 = 3;
pub(crate) const GAS: u64 = 21_000;
pub(crate) const TOKEN_GAS: u64 = 60_000;
/// What a transfer of a token burns on TRON, and one of the coin costs.
pub(crate) const TRON_FEE: u64 = 2_000_000;

/// A transaction as a pool has it.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub hash: TxHash,
    pub from: Address,
    pub meaning: Meaning,
    /// Bitcoin: itself, for whoever reads whole blocks.
    pub bytes: Arc<[u8]>,
}

/// One that is in a block, and what it did.
#[derive(Clone, Debug)]
pub(crate) struct Mined {
    pub hash: TxHash,
    pub from: Address,
    pub nonce: Option<u64>,
    pub ok: bool,
    pub fee: u128,
    pub meaning: Meaning,
    pub bytes: Arc<[u8]>,
    /// Bitcoin: what it spent.
    pub spent: Vec<(Outpoint, Owned)>,
}

impl Mined {
    /// It took a nonce, and paid nobody.
    pub fn is_cancel(&self) -> bool {
        let nothing = |payment: &Payment| payment.to == self.from && units(payment.amount) == 0;
        self.nonce.is_some() && self.meaning.payments.iter().all(nothing)
    }
}

/// An output of Bitcoin, and whose it is.
pub(crate) type Outpoint = (TxHash, u32);
pub(crate) type Owned = (Address, u128);

#[derive(Debug)]
pub(crate) struct Block {
    pub height: u64,
    pub hash: BlockHash,
    pub parent: BlockHash,
    pub time: Timestamp,
    pub transactions: Vec<Mined>,
    /// How many transactions of each wallet of ours are in the chain up to here.
    pub nonces: BTreeMap<Address, u64>,
}

impl Block {
    pub const fn at(&self) -> BlockRef {
        BlockRef { height: self.height, hash: self.hash }
    }

    pub const fn header(&self) -> Header {
        Header { height: self.height, hash: self.hash, parent: self.parent, time: self.time }
    }
}

/// Blocks in a row.
#[derive(Clone, Debug)]
pub(crate) struct Branch(pub Vec<Arc<Block>>);

impl Branch {
    pub fn tip(&self) -> &Arc<Block> {
        self.0.last().expect("a branch is never empty")
    }

    pub fn at(&self, height: u64) -> Option<&Arc<Block>> {
        let lowest = self.0.first()?.height;
        self.0.get(usize::try_from(height.checked_sub(lowest)?).ok()?)
    }

    pub fn has(&self, block: BlockRef) -> bool {
        self.at(block.height).is_some_and(|mine| mine.hash == block.hash)
    }

    pub fn find(&self, hash: TxHash) -> Option<(&Arc<Block>, &Mined)> {
        self.0.iter().rev().find_map(|block| Some((block, block.transactions.iter().find(|one| one.hash == hash)?)))
    }
}

#[derive(Debug)]
pub(crate) struct SimNode {
    pub view: Branch,
    pub down: bool,
    pub stuck: bool,
}

/// What a wallet or a destination has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purse {
    pub native: u128,
    pub token: u128,
}

/// Whose an address of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    User,
    Gas,
    Hot,
    Treasury,
}

#[derive(Debug)]
pub(crate) struct Net {
    pub confirmations: u64,
    pub final_confirmations: u64,
    pub truth: Branch,
    pub nodes: Vec<SimNode>,
    pub pool: Vec<Waiting>,
    /// What this pool has dropped and nodes elsewhere may have still, the newest last: a miner of theirs takes it.
    pub elsewhere: Vec<Waiting>,
    pub purses: HashMap<Address, Purse>,
    /// Bitcoin: what is unspent.
    pub coins: HashMap<Outpoint, Owned>,
    /// The hot wallets.
    pub wallets: Vec<Address>,
    /// All addresses of ours.
    pub owners: HashMap<Address, Owner>,
    /// The users' that are paid now.
    pub users: Vec<Address>,
    /// Wei for a unit of gas that a miner wants now.
    pub price: u128,
    /// Transfers of the token do not run to their end.
    pub paused: bool,
    /// The token's contract keeps what our hot wallets have.
    pub kept: bool,
    /// What each destination was paid on the chain as it is: how often, and how much.
    pub paid: HashMap<Address, (u32, u128)>,
    /// What moved between wallets of ours, and what jobs have asked for.
    pub inside: Insides,
    /// Fees that our wallets have paid on the chain as it is.
    pub fees: u128,
    /// Transactions of somebody else who has our keys.
    pub foreign: HashSet<TxHash>,
    /// Those of ours that a node has heard of since somebody last looked.
    pub fresh: HashSet<TxHash>,
    /// What each nonce of ours is to pay, by what nodes were told since everything last came to its end.
    pub given: HashMap<(Address, u64), Payment>,
    /// What was broken, seen by the chain itself.
    pub broken: Option<String>,
}

pub(crate) fn units(raw: RawAmount) -> u128 {
    u128::try_from(raw.to_u256()).unwrap_or(u128::MAX)
}

pub(crate) fn raw(units: u128) -> RawAmount {
    RawAmount::from_u256(U256::from(units))
}

fn bytes(random: &mut Random) -> [u8; 32] {
    let mut bytes = [0; 32];
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&random.next_u64().to_be_bytes());
    }
    bytes
}

/// As TRON's, whose first bytes are the height.
fn numbered(height: u64, mut hash: [u8; 32]) -> BlockHash {
    hash[..8].copy_from_slice(&height.to_be_bytes());
    BlockHash(hash)
}

/// At most, and of it for the producer.
pub(crate) const fn price_of(fee: Fee) -> (u128, u128) {
    match fee {
        Fee::Legacy { gas_price } => (gas_price, gas_price),
        Fee::Eip1559 { max_fee, max_priority } => (max_fee, max_priority),
        Fee::PerKvb(_) | Fee::FeeLimit(_) => (0, 0),
    }
}

impl Net {
    pub fn new(
        (confirmations, final_confirmations): (u64, u64),
        owners: HashMap<Address, Owner>,
        wallets: Vec<Address>,
        now: Timestamp,
    ) -> Self {
        let nonces = BTreeMap::new();
        let hash = numbered(100, [u8::try_from(confirmations).unwrap_or(9); 32]);
        let first =
            Block { height: 100, hash, parent: BlockHash::default(), time: now, transactions: Vec::new(), nonces };
        let truth = Branch(vec![Arc::new(first)]);
        let node = || SimNode { view: truth.clone(), down: false, stuck: false };
        let nodes = (0..NODES).map(|_| node()).collect();
        Self {
            confirmations,
            final_confirmations,
            nodes,
            truth,
            pool: Vec::new(),
            elsewhere: Vec::new(),
            purses: HashMap::new(),
            coins: HashMap::new(),
            wallets,
            owners,
            users: Vec::new(),
            price: 1_000_000_000,
            paused: false,
            kept: false,
            paid: HashMap::new(),
            inside: Insides::default(),
            fees: 0,
            foreign: HashSet::new(),
            fresh: HashSet::new(),
            given: HashMap::new(),
            broken: None,
        }
    }

    /// The newest block that two nodes that are up have. `None`: no two are.
    pub fn agreed(&self) -> Option<Branch> {
        let up: Vec<&SimNode> = self.nodes.iter().filter(|node| !node.down).collect();
        let mut best: Option<Branch> = None;
        for (at, one) in up.iter().enumerate() {
            for other in &up[at + 1..] {
                let mut height = one.view.tip().height.min(other.view.tip().height);
                while one.view.at(height).map(|block| block.hash) != other.view.at(height).map(|block| block.hash) {
                    height = height.checked_sub(1)?;
                }
                let lowest = one.view.0.first()?.height;
                let count = usize::try_from(height.checked_sub(lowest)? + 1).ok()?;
                if best.as_ref().is_none_or(|best| best.tip().height < height) {
                    best = Some(Branch(one.view.0[..count].to_vec()));
                }
            }
        }
        best
    }

    pub fn spread(&mut self, random: &mut Random) {
        for node in self.nodes.iter_mut().filter(|node| !node.down && !node.stuck) {
            if random.below(10) != 0 {
                node.view = self.truth.clone();
            }
        }
    }

    pub fn heal(&mut self) {
        for node in &mut self.nodes {
            (node.down, node.stuck) = (false, false);
            node.view = self.truth.clone();
        }
        (self.paused, self.kept, self.price) = (false, false, 1_000_000_000);
    }

    fn nonce(&self, account: &Address) -> u64 {
        self.truth.tip().nonces.get(account).copied().unwrap_or(0)
    }

    /// What a pool says to a transaction, as nodes do. `Ok`: it is in.
    pub fn take(&mut self, waiting: Waiting) -> Result<(), &'static str> {
        self.fresh.insert(waiting.hash);
        self.give_once(&waiting);
        if self.truth.find(waiting.hash).is_some() || self.pool.iter().any(|one| one.hash == waiting.hash) {
            return Err("already known");
        }
        match &waiting.meaning.slot {
            Slot::Nonce(nonce) => {
                if *nonce < self.nonce(&waiting.from) {
                    return Err("nonce too low");
                }
                let same = |one: &Waiting| one.from == waiting.from && one.meaning.slot == waiting.meaning.slot;
                if let Some(at) = self.pool.iter().position(same) {
                    let (old, new) = (price_of(self.pool[at].meaning.fee), price_of(waiting.meaning.fee));
                    // A tenth more in both fields, as geth has it; some ask for an eighth.
                    if new.0 < old.0 + old.0.div_ceil(8) || new.1 < old.1 + old.1.div_ceil(8) {
                        // What offers less came late. What offers more was meant to take its place.
                        if new.0 > old.0 && !self.foreign.contains(&self.pool[at].hash) {
                            self.broken
                                .get_or_insert_with(|| "a replacement offers less than an eighth more".to_owned());
                        }
                        return Err("replacement transaction underpriced");
                    }
                    let old = self.pool.remove(at);
                    self.dropped([old]);
                }
            }
            Slot::Expiry(expiry) => {
                if *expiry <= self.truth.tip().time {
                    return Err("Transaction expired");
                }
            }
            Slot::Inputs(_) => self.make_room(&waiting)?,
        }
        self.pool.push(waiting);
        Ok(())
    }

    /// A slot is one job's: whatever nodes are told with one nonce pays the same, or nothing. Two that pay different jobs are not paid twice, but one
    /// of them waits for what can never be mined.
    fn give_once(&mut self, waiting: &Waiting) {
        let (Slot::Nonce(nonce), [payment]) = (&waiting.meaning.slot, waiting.meaning.payments.as_slice()) else {
            return;
        };
        if payment.to == waiting.from && units(payment.amount) == 0 {
            return;
        }
        let given = self.given.entry((waiting.from.clone(), *nonce)).or_insert_with(|| payment.clone());
        if *given != *payment {
            let what =
                format!("nonce {nonce} of {} was given twice: to {} and to {}", waiting.from, given.to, payment.to);
            self.broken.get_or_insert(what);
        }
    }

    /// What it would cost, and whether it can be paid now.
    fn can(&self, one: &Waiting) -> Option<u128> {
        if let Slot::Inputs(inputs) = &one.meaning.slot {
            let there = inputs.iter().all(|input| self.coins.contains_key(input));
            return self.fee_of(one).filter(|_| there);
        }
        if !self.owners.contains_key(&one.from) {
            // Strangers have enough, and pay their fees.
            return Some(0);
        }
        let [payment] = one.meaning.payments.as_slice() else { return None };
        let purse = self.purses.get(&one.from).copied().unwrap_or_default();
        let fee = match &one.meaning.slot {
            Slot::Nonce(nonce) => {
                let (most, tip) = price_of(one.meaning.fee);
                if *nonce != self.nonce(&one.from) || most < self.price || tip == 0 {
                    return None;
                }
                let gas = if payment.coin == Coin::Native { GAS } else { TOKEN_GAS };
                u128::from(gas).checked_mul(self.price.saturating_add(tip).min(most))?
            }
            Slot::Expiry(expiry) => {
                if *expiry <= self.truth.tip().time {
                    return None;
                }
                u128::from(TRON_FEE)
            }
            Slot::Inputs(_) => return None,
        };
        let value = if payment.coin == Coin::Native { units(payment.amount) } else { 0 };
        (purse.native >= fee.checked_add(value)?).then_some(fee)
    }

    /// The next block, with some of what waits; of one wallet in the order of nonces.
    pub fn mine(&mut self, random: &mut Random, now: Timestamp) -> (u64, u64) {
        let mut taken = Vec::new();
        let (mut paid, mut reverted) = (0, 0);
        let mut nonces = self.truth.tip().nonces.clone();
        let worth: HashSet<TxHash> = self.pool.iter().filter(|one| self.is_worth(one)).map(|one| one.hash).collect();
        let mut left = std::mem::take(&mut self.pool);
        left.sort_by_key(|one| match one.meaning.slot {
            Slot::Nonce(nonce) => nonce,
            Slot::Expiry(_) | Slot::Inputs(_) => 0,
        });
        for one in left {
            let fits = match one.meaning.slot {
                Slot::Nonce(nonce) => nonces.get(&one.from).copied().unwrap_or(0) == nonce,
                Slot::Expiry(_) => true,
                Slot::Inputs(_) => worth.contains(&one.hash),
            };
            // `can` looks at the tip's nonces, so those of this block stand in for them.
            let fee =
                if fits && taken.len() < 40 && random.below(6) != 0 { self.can_with(&one, &nonces) } else { None };
            let Some(fee) = fee else {
                self.pool.push(one);
                continue;
            };
            let mined = self.apply(&one, fee);
            if mined.nonce.is_some() {
                *nonces.entry(one.from.clone()).or_default() += 1;
            }
            (paid, reverted) = (paid + u64::from(mined.ok), reverted + u64::from(!mined.ok));
            taken.push(mined);
        }
        // What can never be mined any more leaves the pool. It can be again when the block that took its slot leaves the chain.
        let (stay, gone): (Vec<Waiting>, Vec<Waiting>) =
            std::mem::take(&mut self.pool).into_iter().partition(|one| match &one.meaning.slot {
                Slot::Nonce(nonce) => *nonce >= nonces.get(&one.from).copied().unwrap_or(0),
                Slot::Expiry(expiry) => *expiry > now,
                Slot::Inputs(_) => true,
            });
        self.pool = stay;
        self.dropped(gone);
        self.drop_impossible();
        let parent = self.truth.tip();
        let time = now.max(parent.time.plus_micros(1_000));
        let (height, parent) = (parent.height + 1, parent.hash);
        let block = Block { height, hash: numbered(height, bytes(random)), parent, time, transactions: taken, nonces };
        self.truth.0.push(Arc::new(block));
        if self.truth.0.len() > KEPT {
            self.truth.0.remove(0);
        }
        (paid, reverted)
    }

    fn can_with(&self, one: &Waiting, nonces: &BTreeMap<Address, u64>) -> Option<u128> {
        match one.meaning.slot {
            Slot::Nonce(nonce) if nonces.get(&one.from).copied().unwrap_or(0) == nonce => {
                let mut first = one.clone();
                first.meaning.slot = Slot::Nonce(self.nonce(&one.from));
                self.can(&first)
            }
            Slot::Nonce(_) => None,
            Slot::Expiry(_) | Slot::Inputs(_) => self.can(one),
        }
    }

    /// Carries out what can be paid.
    fn apply(&mut self, one: &Waiting, fee: u128) -> Mined {
        let token = self.owners.get(&one.from).map(|_| self.tokens(&one.from));
        let has = |amount: u128| token.is_none_or(|token| token >= amount);
        let runs = |payment: &Payment| payment.coin == Coin::Native || (!self.paused && has(units(payment.amount)));
        let ok = one.meaning.payments.iter().all(runs);
        let (nonce, spent) = match &one.meaning.slot {
            Slot::Nonce(nonce) => (Some(*nonce), Vec::new()),
            Slot::Expiry(_) => (None, Vec::new()),
            Slot::Inputs(inputs) => {
                (None, inputs.iter().filter_map(|input| Some((*input, self.coins.get(input)?.clone()))).collect())
            }
        };
        let (from, bytes) = (one.from.clone(), Arc::clone(&one.bytes));
        let mined = Mined { hash: one.hash, from, nonce, ok, fee, meaning: one.meaning.clone(), bytes, spent };
        self.book(&mined, true);
        mined
    }

    /// Does what a transaction does, or takes it back.
    fn book(&mut self, one: &Mined, forward: bool) {
        if let Slot::Inputs(_) = one.meaning.slot {
            self.move_coins(one, forward);
        } else {
            self.move_purses(one, forward);
        }
        if self.foreign.contains(&one.hash) {
            return;
        }
        let ours = self.owners.contains_key(&one.from);
        if ours {
            self.fees = if forward { self.fees + one.fee } else { self.fees.saturating_sub(one.fee) };
        }
        for payment in &one.meaning.payments {
            let amount = units(payment.amount);
            if !one.ok || amount == 0 {
                continue;
            }
            if self.owners.contains_key(&payment.to) {
                // What comes back to a wallet of Bitcoin is nobody's payout.
                if ours && payment.to != one.from && !matches!(one.meaning.slot, Slot::Inputs(_)) {
                    let native = payment.coin == Coin::Native;
                    let key = Inside { from: one.from.clone(), to: payment.to.clone(), native, amount };
                    if let Err(what) = self.inside.book(key, forward) {
                        self.broken.get_or_insert(format!("{what}: {}", one.hash));
                    }
                }
                continue;
            }
            let (count, sum) = self.paid.entry(payment.to.clone()).or_default();
            (*count, *sum) = if forward {
                (*count + 1, *sum + amount)
            } else {
                (count.saturating_sub(1), sum.saturating_sub(amount))
            };
            if *count > 1 {
                let what = format!("{} was paid twice: by {} and before", payment.to, one.hash);
                self.broken.get_or_insert(what);
            }
        }
    }

    /// What an address of ours can send of the token now.
    pub fn tokens(&self, of: &Address) -> u128 {
        let kept = self.kept && self.owners.get(of) == Some(&Owner::Hot);
        if kept { 0 } else { self.purses.get(of).map_or(0, |purse| purse.token) }
    }

    /// What a transaction changes at addresses of ours: native or token, and how much.
    pub fn effects<'a>(&'a self, one: &'a Mined) -> impl Iterator<Item = (&'a Address, bool, i128)> {
        let signed = |amount: u128| i128::try_from(amount).unwrap_or(i128::MAX);
        let fee = std::iter::once((&one.from, true, -signed(one.fee)));
        let moved = one.meaning.payments.iter().filter(|_| one.ok).flat_map(move |payment| {
            let (native, amount) = (payment.coin == Coin::Native, signed(units(payment.amount)));
            [(&one.from, native, -amount), (&payment.to, native, amount)]
        });
        fee.chain(moved).filter(|(address, ..)| self.owners.contains_key(*address))
    }

    fn move_purses(&mut self, one: &Mined, forward: bool) {
        let effects: Vec<(Address, bool, i128)> =
            self.effects(one).map(|(address, native, change)| (address.clone(), native, change)).collect();
        for (address, native, change) in effects {
            let purse = self.purses.entry(address).or_default();
            let units = if native { &mut purse.native } else { &mut purse.token };
            let more = (change > 0) == forward;
            let change = change.unsigned_abs();
            *units = if more { units.saturating_add(change) } else { units.saturating_sub(change) };
        }
    }

    /// The newest blocks leave the chain; what was in them waits again, or is forgotten.
    pub fn leave(&mut self, depth: u64, keep: bool, random: &mut Random) {
        for _ in 0..depth {
            if self.truth.0.len() < 2 {
                return;
            }
            let Some(block) = self.truth.0.pop() else { return };
            for one in block.transactions.iter().rev() {
                self.book(one, false);
                let (from, meaning, bytes) = (one.from.clone(), one.meaning.clone(), Arc::clone(&one.bytes));
                let mut back = Waiting { hash: one.hash, from, meaning, bytes };
                // Who mines the other branch may have heard of what this one took the place of, and not of this one.
                let often = if one.is_cancel() { 8 } else { 2 };
                if random.below(often) != 0
                    && let Some(rival) = self.rival_elsewhere(&back)
                {
                    let other = self.elsewhere.remove(rival);
                    self.dropped([std::mem::replace(&mut back, other)]);
                }
                // Of two that spend the same, the pool has one.
                if keep && !self.conflicts(&back) {
                    self.pool.push(back);
                } else {
                    self.dropped([back]);
                }
            }
        }
    }

    /// How many blocks would have to leave for the newest cancel to leave.
    pub fn depth_of_cancel(&self) -> Option<u64> {
        let has = self.truth.0.iter().rev().find(|block| block.transactions.iter().any(Mined::is_cancel))?;
        Some(self.truth.tip().height - has.height + 1)
    }

    /// The newest of what pools have dropped that has the same nonce.
    fn rival_elsewhere(&self, of: &Waiting) -> Option<usize> {
        let Slot::Nonce(_) = of.meaning.slot else { return None };
        let same = |one: &Waiting| one.from == of.from && one.meaning.slot == of.meaning.slot && one.hash != of.hash;
        self.elsewhere.iter().rposition(same)
    }

    pub fn dropped(&mut self, some: impl IntoIterator<Item = Waiting>) {
        self.elsewhere.extend(some);
        let beyond = self.elsewhere.len().saturating_sub(REMEMBERED);
        self.elsewhere.drain(..beyond);
    }

    /// Whether something that waits has its slot.
    fn conflicts(&self, new: &Waiting) -> bool {
        match &new.meaning.slot {
            Slot::Nonce(_) => self.pool.iter().any(|one| one.from == new.from && one.meaning.slot == new.meaning.slot),
            Slot::Expiry(_) => false,
            Slot::Inputs(_) => !self.rivals(&new.meaning).is_empty(),
        }
    }

    /// Something that was dropped is what miners have, instead of whatever took its place: they never heard of that one. Whatever was signed
    /// and told may be mined as long as its slot is open, however cheap it is.
    pub fn come_back(&mut self, random: &mut Random) -> bool {
        let may = |(_, one): &(usize, &Waiting)| {
            let waits = self.pool.iter().any(|other| other.hash == one.hash);
            self.is_possible(one) && !waits && self.truth.find(one.hash).is_none()
        };
        let some: Vec<usize> = self.elsewhere.iter().enumerate().filter(may).map(|(at, _)| at).collect();
        if some.is_empty() {
            return false;
        }
        let one = self.elsewhere.remove(some[random.index(some.len())]);
        let leaves: HashSet<TxHash> = match &one.meaning.slot {
            Slot::Nonce(_) => {
                let same = |other: &&Waiting| other.from == one.from && other.meaning.slot == one.meaning.slot;
                self.pool.iter().filter(same).map(|other| other.hash).collect()
            }
            Slot::Expiry(_) => HashSet::new(),
            Slot::Inputs(_) => self.rivals(&one.meaning),
        };
        let (gone, mut stay): (Vec<Waiting>, Vec<Waiting>) =
            std::mem::take(&mut self.pool).into_iter().partition(|other| leaves.contains(&other.hash));
        stay.push(one);
        self.pool = stay;
        self.dropped(gone);
        true
    }

    /// A stranger pays an address of ours.
    pub fn pay(&mut self, random: &mut Random, from: Address, payment: Payment) {
        let hash = TxHash(bytes(random));
        let meaning = Meaning {
            hash: Some(hash),
            from: Some(from.clone()),
            payments: vec![payment],
            most_fee: None,
            fee: Fee::FeeLimit(0),
            slot: Slot::Expiry(Timestamp::from_micros(i64::MAX)),
            chain_id: None,
        };
        self.pool.push(Waiting { hash, from, meaning, bytes: Vec::new().into() });
    }

    /// Whether a block of the chain as it is could still have it, now or later.
    pub fn is_possible(&self, one: &Waiting) -> bool {
        match &one.meaning.slot {
            Slot::Nonce(nonce) => *nonce >= self.nonce(&one.from),
            Slot::Expiry(expiry) => *expiry > self.truth.tip().time,
            Slot::Inputs(_) => self.fee_of(one).is_some(),
        }
    }

    pub fn judged(one: &Mined) -> Paid {
        if one.ok { Paid::InFull } else { Paid::Nothing }
    }
}
