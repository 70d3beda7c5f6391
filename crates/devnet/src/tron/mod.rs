//! A TRON chain with java-tron's HTTP API.
//!
//! | module | holds |
//! |---|---|
//! | `proto` | the protobuf messages |
//! | `transaction` | a signed transaction, from bytes or from JSON |
//! | `check` | signature, reference block, size, time: what is checked before a transaction is run |
//! | `execute` | bandwidth, transfers, calls, energy |
//! | `token` | the TRC-20 contract |
//! | `state` | who owns what, and the undo of it |
//! | `block` | headers and ids |
//! | `refusal` | java-tron's codes and texts |
//! | `calls`, `build`, `accounts`, `events`, `render` | the HTTP calls and their JSON |
//!
//! Differences from a real node, all on purpose: a balance does not show what the pool would change; nobody stakes,
//! votes or deploys; all accounts have the default permissions; fields of a message that nobody knows are dropped, not
//! kept, when it is encoded again. A transaction may be mined in any block whose parent is older than its expiration,
//! which is the rule of all versions of java-tron; newer ones are stricter by one slot.

mod accounts;
mod block;
mod build;
mod calls;
mod check;
mod events;
mod execute;
mod proto;
mod refusal;
mod render;
mod state;
mod token;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alloy_primitives::{U256, hex};
use domain::{RawAmount, Timestamp};

use self::block::{Block, Mined};
use self::check::{LIFE_MS, prefixed, unprefixed};
use self::execute::{Rules, execute};
use self::proto::{Raw, Transfer, Trigger};
use self::refusal::TronRefusal;
use self::state::{Account, Cell, History, Journal, Owner, Slot, State};
use self::transaction::{Id, Received, address_bytes};
use super::{BroadcastFault, Fate, Key, Model, PREFUNDED, View, Wire, WireReply};
use tx::tron::TronAddress;

pub use self::execute::{ACCOUNT_BANDWIDTH_FEE, ACCOUNT_FEE, FREE_BYTES, MEMO_FEE};
pub use self::token::{ENERGY_TO_HOLDER, ENERGY_TO_NEW, Returns};

/// The contract of the token.
pub const TOKEN: TronAddress = TronAddress(token::TOKEN);
/// What each of the first [`PREFUNDED`] keys owns, in sun and in units of the token: a million of each.
pub const PREFUND: i64 = 1_000_000_000_000;
/// Between two blocks.
pub const SLOT_MS: i64 = 3_000;

/// Pays for [`Model::fund`].
const FAUCET: u32 = 900;
const FAUCET_SUN: i64 = 50_000_000_000_000_000;
const FAUCET_TOKENS: u64 = 1_000_000_000_000_000_000;
/// States of so many blocks are kept, for endpoints that lag and for reorganisations.
const KEPT_BLOCKS: u64 = 256;
/// No call of `mine` makes more.
const BLOCKS_AT_ONCE: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When block 0 was. Block 1 is three seconds later.
    pub genesis: Timestamp,
    /// A block is solidified when so many have come after it. 19 in real life: more than two thirds of 27 witnesses.
    pub solid_depth: u64,
    /// Sun per unit of energy (`getEnergyFee`).
    pub energy_price: i64,
    /// Sun per byte (`getTransactionFee`).
    pub bandwidth_price: i64,
    /// What `transfer` of the token answers when it worked.
    pub returns: Returns,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // 2026-01-01.
            genesis: Timestamp::from_micros(1_767_225_600_000_000),
            solid_depth: 19,
            energy_price: 100,
            bandwidth_price: 1_000,
            returns: Returns::False,
        }
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    sent: Arc<Received>,
    /// The first height at which it may be mined.
    not_before: u64,
}

#[derive(Clone, Debug)]
pub struct TronDevnet {
    settings: Settings,
    rules: Rules,
    /// (since when, price), for `getenergyprices` and `getbandwidthprices`.
    prices: Vec<(i64, Rules)>,
    /// By height.
    blocks: Vec<Block>,
    /// What the newest blocks changed.
    history: History,
    /// As of the newest block, with what waits in the pool on top.
    state: State,
    /// What the pool changed.
    pending: Journal,
    pool: Vec<Waiting>,
    /// Where each transaction was mined: height and place.
    index: BTreeMap<Id, (u64, usize)>,
    fault: BroadcastFault,
    /// How many reorganisations there were: their blocks come from other witnesses.
    branch: u64,
    /// Makes the faucet's transactions differ.
    funded: i64,
    /// The blocks that endpoints which contradict show, by the height at which they begin to.
    contradictions: BTreeMap<u64, Vec<(Id, proto::Header, [u8; 65])>>,
}

impl TronDevnet {
    /// With block 0 and block 1: java-tron leaves out a `number` of zero, which no client expects of the newest block.
    pub fn new(settings: Settings) -> Self {
        let genesis_ms = settings.genesis.millis();
        let mut state = State::default();
        let supply = U256::from(FAUCET_TOKENS) + U256::from(PREFUND) * U256::from(PREFUNDED);
        let account = Account { created_ms: genesis_ms, ..Account::default() };
        for number in 0..PREFUNDED {
            let owner = Key::numbered(number).account();
            state.set_account(&owner, Account { balance: PREFUND, ..account });
            state.set_amount(Slot::Holding(owner), U256::from(PREFUND));
        }
        let faucet = Key::numbered(FAUCET).account();
        state.set_account(&faucet, Account { balance: FAUCET_SUN, ..account });
        state.set_amount(Slot::Holding(faucet), U256::from(FAUCET_TOKENS));
        state.set_account(&token::TOKEN, Account { is_contract: true, ..account });
        state.checkpoint();
        let rules = Rules {
            bandwidth_price: settings.bandwidth_price,
            energy_price: settings.energy_price,
            supply,
            returns: settings.returns,
        };
        let mut devnet = Self {
            settings,
            rules,
            prices: vec![(0, rules)],
            blocks: vec![Block::seal(0, [0; 32], genesis_ms, 0, Vec::new())],
            history: History::keeping(KEPT_BLOCKS.max(settings.solid_depth.saturating_add(1))),
            state,
            pending: Journal::new(),
            pool: Vec::new(),
            index: BTreeMap::new(),
            fault: BroadcastFault::None,
            branch: 0,
            funded: 0,
            contradictions: BTreeMap::new(),
        };
        devnet.append(genesis_ms + SLOT_MS, &[]);
        devnet
    }

    fn tip(&self) -> u64 {
        self.blocks.len() as u64 - 1
    }

    fn head(&self) -> &Block {
        // There is always block 0.
        &self.blocks[self.blocks.len() - 1]
    }

    fn block(&self, height: u64) -> Option<&Block> {
        usize::try_from(height).ok().and_then(|height| self.blocks.get(height))
    }

    /// The newest height that cannot be reorganised.
    pub fn solid_height(&self) -> u64 {
        self.tip().saturating_sub(self.settings.solid_depth)
    }

    /// The id of a block, for tests.
    pub fn block_id(&self, height: u64) -> Option<[u8; 32]> {
        self.block(height).map(|block| block.id)
    }

    /// What a cell holds at a height, as far back as states are kept.
    fn cell_at(&self, height: u64, slot: Slot) -> Option<Cell> {
        self.history.read(&self.state, &self.pending, self.tip().saturating_sub(height), slot)
    }

    /// Takes a transaction from the network.
    fn broadcast(&mut self, sent: Received) -> Result<(), TronRefusal> {
        match self.fault {
            BroadcastFault::None => self.submit(sent, 0),
            BroadcastFault::Delay(blocks) => self.submit(sent, blocks),
            BroadcastFault::Drop => {
                let id = sent.id;
                self.submit(sent, 0)?;
                self.pool.retain(|waiting| waiting.sent.id != id);
                self.repool();
                Ok(())
            }
            BroadcastFault::Duplicate => {
                let again = sent.clone();
                self.submit(sent, 0)?;
                // The second delivery is refused as a duplicate, and the sender hears of the first.
                self.submit(again, 0).err();
                Ok(())
            }
        }
    }

    fn submit(&mut self, sent: Received, delay: u64) -> Result<(), TronRefusal> {
        self.check(&sent)?;
        if self.pool.iter().any(|waiting| waiting.sent.id == sent.id) {
            return Err(TronRefusal::duplicate());
        }
        self.run_in_pool(&sent)?;
        let not_before = self.tip().saturating_add(1).saturating_add(delay);
        self.pool.push(Waiting { sent: Arc::new(sent), not_before });
        Ok(())
    }

    /// Runs it on top of what waits already.
    fn run_in_pool(&mut self, sent: &Received) -> Result<(), TronRefusal> {
        let head_ms = self.head().header.timestamp;
        let before = self.state.checkpoint();
        execute(&mut self.state, &self.rules, sent, head_ms)?;
        for (slot, old) in self.state.checkpoint() {
            self.pending.entry(slot).or_insert(old);
        }
        debug_assert!(before.is_empty());
        Ok(())
    }

    fn leave_pool(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.state.undo(&pending);
    }

    /// Runs the pool again on the newest block. What has become impossible is dropped.
    fn repool(&mut self) {
        self.leave_pool();
        for waiting in std::mem::take(&mut self.pool) {
            if self.check_place(&waiting.sent).is_ok() && self.run_in_pool(&waiting.sent).is_ok() {
                self.pool.push(waiting);
            }
        }
    }

    /// A block with those of the transactions that can be run. The pool must have been left.
    fn append(&mut self, timestamp: i64, transactions: &[Arc<Received>]) {
        let head_ms = self.head().header.timestamp;
        let mut mined = Vec::new();
        let mut seen = BTreeSet::new();
        for sent in transactions {
            if self.check_place(sent).is_ok()
                && seen.insert(sent.id)
                && let Ok(outcome) = execute(&mut self.state, &self.rules, sent, head_ms)
            {
                mined.push(Mined { sent: Arc::clone(sent), outcome });
            }
        }
        let height = self.tip() + 1;
        for (place, mined) in mined.iter().enumerate() {
            self.index.insert(mined.sent.id, (height, place));
        }
        let turn = height.wrapping_add(self.branch);
        self.blocks.push(Block::seal(height, self.head().id, timestamp, turn, mined));
        self.history.push(self.state.checkpoint());
    }

    fn mine_one(&mut self, now: Timestamp) {
        let timestamp = now.millis().max(self.head().header.timestamp.saturating_add(SLOT_MS));
        self.leave_pool();
        let height = self.tip() + 1;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pool).into_iter().partition(|waiting| waiting.not_before <= height);
        let due: Vec<_> = due.into_iter().map(|waiting| waiting.sent).collect();
        self.append(timestamp, &due);
        self.pool = later;
        self.repool();
    }

    fn replace_blocks(&mut self, depth: u64, fate: Fate, with: &[Arc<Received>], now: Timestamp) -> Result<(), String> {
        self.leave_pool();
        let mut removed = Vec::new();
        for _ in 0..depth {
            let journal = self.history.pop().ok_or("the state before is not kept any more")?;
            self.state.undo(&journal);
            let block = self.blocks.pop().ok_or("there is no such block")?;
            for mined in &block.transactions {
                self.index.remove(&mined.sent.id);
            }
            removed.push(block);
        }
        removed.reverse();
        self.branch += 1;
        self.contradictions.clear();
        let was: Vec<_> = removed.iter().flat_map(|block| &block.transactions).map(|m| Arc::clone(&m.sent)).collect();
        for (place, block) in removed.iter().enumerate() {
            // The same slot, by another witness.
            self.append(block.header.timestamp, if place == 0 { with } else { &[] });
        }
        let timestamp = now.millis().max(self.head().header.timestamp.saturating_add(SLOT_MS));
        self.append(timestamp, if fate == Fate::Moved { &was } else { &[] });
        if fate == Fate::Returned {
            let not_before = self.tip() + 1;
            let again = was.into_iter().map(|sent| Waiting { sent, not_before });
            self.pool = again.chain(std::mem::take(&mut self.pool)).collect();
        }
        self.repool();
        match with.iter().find(|sent| !self.index.contains_key(&sent.id)) {
            Some(sent) => Err(format!("the new branch cannot hold transaction {}", hex::encode(sent.id))),
            None => Ok(()),
        }
    }

    /// The reference block, expiration and time of a transaction that is made now.
    fn stamp(&self, raw: &mut Raw, reference: &Block, life_ms: i64, now: Timestamp) {
        let number = reference.header.number.to_be_bytes();
        raw.ref_block_bytes = number[6..].to_vec();
        raw.ref_block_hash = reference.id[8..16].to_vec();
        raw.expiration = self.head().header.timestamp.saturating_add(life_ms);
        raw.timestamp = now.millis();
    }
}

impl Model for TronDevnet {
    fn answer(&mut self, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply {
        self.call(view, wire, now)
    }

    fn height(&self) -> u64 {
        self.tip()
    }

    fn mine(&mut self, blocks: u64, now: Timestamp) {
        for _ in 0..blocks.min(BLOCKS_AT_ONCE) {
            self.mine_one(now);
        }
    }

    /// Two rules of TRON show here. A solidified block cannot be replaced. And what referred to a removed block, or
    /// has expired by the time of its new block, is dropped whatever `fate` says.
    fn reorg(&mut self, depth: u64, fate: Fate, with: &[Vec<u8>], now: Timestamp) -> Result<(), String> {
        if depth == 0 {
            return Err("the depth must be at least 1".to_owned());
        }
        let open = self.tip() - self.solid_height();
        if depth > open {
            return Err(format!("only {open} blocks are not solidified"));
        }
        let decoded = with.iter().map(|bytes| decode_signed(bytes)).collect::<Result<Vec<_>, _>>()?;
        // Only what it is told to hold can make it fail.
        let before = (!decoded.is_empty()).then(|| self.clone());
        let replaced = self.replace_blocks(depth, fate, &decoded, now);
        if let (Err(_), Some(before)) = (&replaced, before) {
            *self = before;
        }
        replaced
    }

    fn fund(&mut self, address: &str, token: Option<&str>, amount: RawAmount, now: Timestamp) -> Result<(), String> {
        let to = parse_address(address).ok_or("this is not an address of TRON")?;
        let key = Key::numbered(FAUCET);
        let owner_address = prefixed(&key.account()).to_vec();
        let mut raw = match token {
            None => {
                let amount = i64::try_from(amount.to_u256()).map_err(|_| "more than there is TRX")?;
                let transfer = Transfer { owner_address, to_address: prefixed(&to).to_vec(), amount };
                Raw::holding(proto::TRANSFER, Transfer::URL, &transfer)
            }
            Some(name) => {
                if name != token::SYMBOL && parse_address(name) != Some(token::TOKEN) {
                    return Err(format!("there is no token {name}"));
                }
                let mut data = token::TRANSFER.to_vec();
                data.extend([0; 12]);
                data.extend(to);
                data.extend(amount.to_u256().to_be_bytes::<32>());
                let contract_address = prefixed(&token::TOKEN).to_vec();
                let trigger = Trigger { owner_address, contract_address, data, ..Trigger::default() };
                let fee_limit = execute::FEE_LIMIT;
                Raw { fee_limit, ..Raw::holding(proto::TRIGGER, Trigger::URL, &trigger) }
            }
        };
        let reference = self.block(self.solid_height()).unwrap_or_else(|| self.head());
        self.stamp(&mut raw, reference, LIFE_MS - SLOT_MS, now);
        self.funded += 1;
        raw.timestamp = raw.timestamp.saturating_add(self.funded);
        let unsigned = Received::new(raw, Vec::new());
        let (rs, odd) = key.sign(unsigned.id);
        let signature = [&rs[..], &[27 + u8::from(odd)]].concat();
        self.submit(unsigned.signed(vec![signature]), 0).map_err(|refusal| refusal.message)
    }

    fn broadcasts(&mut self, fault: BroadcastFault) {
        self.fault = fault;
    }

    fn fee_factor(&mut self, times: u32) {
        self.rules.energy_price = self.settings.energy_price.saturating_mul(i64::from(times));
        self.rules.bandwidth_price = self.settings.bandwidth_price.saturating_mul(i64::from(times));
        self.prices.push((self.head().header.timestamp, self.rules));
    }
}

/// Bytes, or the hex of them.
fn decode_signed(bytes: &[u8]) -> Result<Arc<Received>, String> {
    let text = std::str::from_utf8(bytes).ok().map(str::trim);
    let decoded = text.and_then(transaction::unhex).unwrap_or_else(|| bytes.to_vec());
    Received::decode(&decoded).map(Arc::new).map_err(|error| error.to_string())
}

/// base58check, or hex with its 41.
fn parse_address(text: &str) -> Option<Owner> {
    address_bytes(text, true).or_else(|| address_bytes(text, false)).as_deref().and_then(unprefixed)
}
