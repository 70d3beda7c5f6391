//! What transactions have cost, beside what was expected, and what each wallet has spent of its chain's own coin; and the house's gas wallets beside that.

use std::collections::{BTreeMap, HashMap};

use domain::treasury::{GasSupply, Price, Worth, share_bps};
use domain::{AssetId, RawAmount, RawSum, Timestamp};

use super::malformed;
use crate::db::{Db, Tx};
use crate::error::StoreError;

/// What a transaction was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CostKind {
    Withdrawal,
    GasTopup,
    Consolidation,
    /// What hot wallets had too much of.
    Surplus,
    Refill,
    /// It paid nothing and filled a nonce.
    Filler,
}

impl CostKind {
    pub const ALL: [Self; 6] =
        [Self::Withdrawal, Self::GasTopup, Self::Consolidation, Self::Surplus, Self::Refill, Self::Filler];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawal => "withdrawal",
            Self::GasTopup => "gas_topup",
            Self::Consolidation => "consolidation",
            Self::Surplus => "surplus",
            Self::Refill => "refill",
            Self::Filler => "filler",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A coin on a chain, as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostCoin {
    pub asset: AssetId,
    pub symbol: String,
    pub decimals: u8,
}

impl CostCoin {
    fn worth(&self, prices: &HashMap<AssetId, Price>) -> Worth {
        let coin = domain::treasury::CoinId(self.asset.0);
        Worth { coin, decimals: self.decimals, price: prices.get(&self.asset).copied() }
    }

    /// In millionths of the unit of all prices. `None`: nobody has said what the coin is worth.
    pub fn micros(&self, amount: RawAmount, prices: &HashMap<AssetId, Price>) -> Option<u128> {
        self.worth(prices).micros(amount)
    }
}

/// Of one chain, one kind of job and one coin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRow {
    pub chain: String,
    pub kind: CostKind,
    /// What was moved.
    pub coin: CostCoin,
    /// The chain's own coin.
    pub fee_coin: CostCoin,
    /// Jobs that were paid.
    pub jobs: u64,
    /// What was moved, in chain units.
    pub moved: RawAmount,
    /// In the chain's own coin; also of transactions that paid nothing.
    pub fee: RawAmount,
    /// Of the jobs that rules and bands have made. `None`: there is none of them.
    pub expected: Option<RawAmount>,
}

impl CostRow {
    /// What it cost for each ten thousand units of value. `None`: a price is missing, or nothing was moved.
    pub fn cost_bps(&self, prices: &HashMap<AssetId, Price>) -> Option<u64> {
        share_bps(self.fee_coin.micros(self.fee, prices)?, self.coin.micros(self.moved, prices)?)
    }
}

/// What it cost a chain to bring coins home: gas and sweeps, for each ten thousand units of swept value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptCost {
    pub chain: String,
    pub value_micros: u128,
    pub cost_micros: u128,
    pub cost_bps: Option<u64>,
}

/// What was spent since a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    pub rows: Vec<CostRow>,
    /// By chain and wallet: fees, and what was paid of the chain's own coin.
    spent: BTreeMap<(i64, String), RawAmount>,
}

impl Costs {
    /// Of the chains on which something was swept, and whose coins all have a price.
    pub fn swept(&self, prices: &HashMap<AssetId, Price>) -> Vec<SweptCost> {
        let mut chains: BTreeMap<&str, Option<(u128, u128)>> = BTreeMap::new();
        for row in &self.rows {
            let swept = match row.kind {
                CostKind::Consolidation => row.coin.micros(row.moved, prices),
                CostKind::GasTopup => Some(0),
                CostKind::Withdrawal | CostKind::Surplus | CostKind::Refill | CostKind::Filler => continue,
            };
            let sum = chains.entry(&row.chain).or_insert(Some((0, 0)));
            *sum = sum.and_then(|(value, cost)| {
                let fee = row.fee_coin.micros(row.fee, prices)?;
                Some((value.checked_add(swept?)?, cost.checked_add(fee)?))
            });
        }
        let known = chains.into_iter().filter_map(|(chain, sum)| Some((chain, sum?)));
        let swept = |(chain, (value_micros, cost_micros)): (&str, (u128, u128))| SweptCost {
            chain: chain.to_owned(),
            value_micros,
            cost_micros,
            cost_bps: share_bps(cost_micros, value_micros),
        };
        known.filter(|(_, (value, _))| *value > 0).map(swept).collect()
    }
}

/// A gas wallet of the house.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GasWallet {
    pub chain: String,
    pub group: String,
    pub index: i64,
    pub address: String,
    pub coin: CostCoin,
    pub supply: GasSupply,
}

/// Transactions that are in memory at a time.
const PAGE: i64 = 2_000;

statements! {
    /// All coins, and whether each is its chain's own.
    READ_COINS = "SELECT k.id, k.chain_id, c.name, k.asset_id, s.symbol, k.decimals, k.contract IS NULL
        FROM asset_on_chain k JOIN chains c ON c.id = k.chain_id JOIN assets s ON s.id = k.asset_id";
    /// Whole transactions, each with all jobs that it was for, behind a time and a slot.
    PAGE_COSTS = "SELECT a.created_at, a.slot_id, l.chain_id, l.address, COALESCE(t.kind, j.kind, 'filler'), COALESCE(j.listing_id, 0),
            COALESCE(j.amount_raw, '0'), COALESCE(a.fee_raw, '0'), t.expected_cost_raw, a.kind = 'pay' AND a.paid = 'in_full' AND j.id IS NOT NULL
        FROM (SELECT slot_id, created_at, kind, fee_raw, paid FROM outbound_attempts
                WHERE paid IS NOT NULL AND (created_at, slot_id) > ($1, $2) ORDER BY created_at, slot_id LIMIT $3) a
            JOIN outbound_slots s ON s.id = a.slot_id JOIN outbound_lanes l ON l.id = s.lane_id
            LEFT JOIN outbound_slot_jobs o ON o.slot_id = a.slot_id LEFT JOIN outbound_jobs j ON j.id = o.job_id
            LEFT JOIN treasury_jobs t ON t.job_id = j.id
        ORDER BY a.created_at, a.slot_id, o.job_id";
    READ_GAS_WALLETS = "SELECT w.chain_id, g.name, w.derivation_index, w.address, k.id, COALESCE(b.on_chain_balance_raw, '0')
        FROM operation_wallet_addresses w JOIN wallet_groups g ON g.id = w.wallet_group_id
            JOIN asset_on_chain k ON k.chain_id = w.chain_id AND k.contract IS NULL
            LEFT JOIN wallet_balances b ON b.chain_id = w.chain_id AND b.address = w.address AND b.listing_id = k.id
        WHERE w.role = 'gas' AND w.is_active ORDER BY w.id";
    READ_GAS_LEAVING = "SELECT l.chain_id, l.address, j.amount_raw FROM operation_wallet_addresses w
            JOIN outbound_lanes l ON l.chain_id = w.chain_id AND l.address = w.address
            JOIN outbound_jobs j ON j.chain_id = l.chain_id AND j.lane_id = l.id AND j.waiting
            JOIN asset_on_chain k ON k.id = j.listing_id AND k.contract IS NULL
        WHERE w.role = 'gas' AND w.is_active
        UNION ALL SELECT l.chain_id, l.address, j.amount_raw FROM operation_wallet_addresses w
            JOIN outbound_lanes l ON l.chain_id = w.chain_id AND l.address = w.address
            JOIN outbound_slots s ON s.lane_id = l.id AND s.state = 'open'
            JOIN outbound_jobs j ON j.slot_id = s.id AND j.state IN ('signing', 'broadcasting', 'broadcasted')
            JOIN asset_on_chain k ON k.id = j.listing_id AND k.contract IS NULL
        WHERE w.role = 'gas' AND w.is_active";
}

/// A coin, the number and the name of its chain, and whether it is the chain's own.
struct KnownCoin {
    coin: CostCoin,
    chain: i64,
    chain_name: String,
    native: bool,
}

impl Db {
    /// What transactions that were made since a time, and are in a block, have cost. In one pass over them.
    pub async fn costs(&self, since: Timestamp) -> Result<Costs, StoreError> {
        self.costs_in_pages(since, PAGE).await
    }

    /// The same, with so many transactions in memory at a time.
    pub async fn costs_in_pages(&self, since: Timestamp, page: i64) -> Result<Costs, StoreError> {
        type Row = (i64, i64, i64, String, String, i64, String, String, Option<String>, bool);
        let tx = &mut self.read().await?;
        let coins = read_coins(tx).await?;
        let native: HashMap<i64, i64> =
            coins.iter().filter(|(_, one)| one.native).map(|(listing, one)| (one.chain, *listing)).collect();
        let mut rows: BTreeMap<(i64, CostKind, i64), CostRow> = BTreeMap::new();
        let mut spent: BTreeMap<(i64, String), RawAmount> = BTreeMap::new();
        // Every slot of that very time is behind this one.
        let mut after = (since.micros(), i64::MIN);
        loop {
            let found = fetch_all!(tx, PAGE_COSTS => Row, after.0, after.1, page)?;
            let Some(last) = found.last().map(|row| (row.0, row.1)) else { break };
            let mut slot = None;
            for (at, number, chain, wallet, kind, listing, amount, fee, expected, paid) in found {
                // The fee of a transaction that pays several jobs counts once, with the first of them.
                let first = slot.replace((at, number)) != Some((at, number));
                let kind = CostKind::parse(&kind).ok_or_else(|| malformed("kind"))?;
                let own = *native.get(&chain).ok_or_else(|| malformed("chain"))?;
                let listing = if listing == 0 { own } else { listing };
                let fee_coin = coins.get(&own).ok_or_else(|| malformed("coin"))?;
                let coin = coins.get(&listing).ok_or_else(|| malformed("coin"))?;
                let row = rows.entry((chain, kind, listing)).or_insert_with(|| CostRow {
                    chain: coin.chain_name.clone(),
                    kind,
                    coin: coin.coin.clone(),
                    fee_coin: fee_coin.coin.clone(),
                    jobs: 0,
                    moved: RawAmount::ZERO,
                    fee: RawAmount::ZERO,
                    expected: None,
                });
                let spent = spent.entry((chain, wallet)).or_insert(RawAmount::ZERO);
                if paid {
                    let amount = raw(&amount)?;
                    row.jobs += 1;
                    row.moved = sum(row.moved, amount)?;
                    if listing == own {
                        *spent = sum(*spent, amount)?;
                    }
                    if let Some(expected) = expected {
                        row.expected = Some(sum(row.expected.unwrap_or(RawAmount::ZERO), raw(&expected)?)?);
                    }
                }
                if first {
                    let fee = raw(&fee)?;
                    row.fee = sum(row.fee, fee)?;
                    *spent = sum(*spent, fee)?;
                }
            }
            after = last;
        }
        Ok(Costs { rows: rows.into_values().collect(), spent })
    }

    /// The house's active gas wallets: what each has by the chain's own books, what open jobs will take, and what it spent of late.
    pub async fn gas_wallets(&self, costs: &Costs) -> Result<Vec<GasWallet>, StoreError> {
        let tx = &mut self.read().await?;
        let coins = read_coins(tx).await?;
        let mut leaving: HashMap<(i64, String), RawAmount> = HashMap::new();
        for (chain, address, amount) in fetch_all!(tx, READ_GAS_LEAVING => (i64, String, String))? {
            let entry = leaving.entry((chain, address)).or_insert(RawAmount::ZERO);
            *entry = sum(*entry, raw(&amount)?)?;
        }
        type Row = (i64, String, i64, String, i64, String);
        let wallet = |(chain, group, index, address, listing, balance): Row| {
            let balance: RawSum = balance.parse().map_err(|_| malformed("balance"))?;
            let coin = coins.get(&listing).ok_or_else(|| malformed("coin"))?;
            let key = (chain, address);
            let supply = GasSupply {
                // A balance below zero is the books' trouble: nothing of it can be spent.
                has: balance.to_raw().unwrap_or(RawAmount::ZERO),
                leaving: leaving.get(&key).copied().unwrap_or(RawAmount::ZERO),
                used: costs.spent.get(&key).copied().unwrap_or(RawAmount::ZERO),
            };
            let chain = coin.chain_name.clone();
            Ok(GasWallet { chain, group, index, address: key.1, coin: coin.coin.clone(), supply })
        };
        fetch_all!(tx, READ_GAS_WALLETS => Row)?.into_iter().map(wallet).collect()
    }
}

/// By the number of the asset on the chain.
async fn read_coins(tx: &mut Tx) -> Result<HashMap<i64, KnownCoin>, StoreError> {
    type Row = (i64, i64, String, i64, String, i64, bool);
    let known = |(listing, chain, chain_name, asset, symbol, decimals, native): Row| {
        let decimals = u8::try_from(decimals).map_err(|_| malformed("number of decimals"))?;
        let coin = CostCoin { asset: AssetId(asset), symbol, decimals };
        Ok((listing, KnownCoin { coin, chain, chain_name, native }))
    };
    fetch_all!(tx, READ_COINS => Row)?.into_iter().map(known).collect()
}

fn raw(text: &str) -> Result<RawAmount, StoreError> {
    text.parse().map_err(|_| malformed("amount"))
}

/// More than a chain can have is no amount.
fn sum(one: RawAmount, other: RawAmount) -> Result<RawAmount, StoreError> {
    one.checked_add(other).ok_or_else(|| malformed("sum"))
}
