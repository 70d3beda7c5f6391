//! A chain and its coins as rows know them, and entries as they are found.

use domain::deposit::{Cause, Place, Side};
use domain::outbound::OutboundLimits;
use domain::utxo::Hash;
use domain::{Amount, AssetId, AssetOnChain, Availability, ChainKind, ChainName, Precision, RawSum, Symbol};

use crate::catalog::outbound_limits;
use crate::db::{Db, Tx};
use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub i64);

/// An asset on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListingId(pub i64);

/// A chain with all that is listed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainRow {
    pub id: ChainId,
    pub name: ChainName,
    pub kind: ChainKind,
    pub network: String,
    pub confirmations: u32,
    /// At least as many.
    pub final_confirmations: u32,
    pub outbound: OutboundLimits,
    pub status: Availability,
    pub listings: Vec<ListingRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingRow {
    pub id: ListingId,
    pub asset: AssetId,
    pub symbol: Symbol,
    pub form: AssetOnChain,
    pub min_deposit: Amount,
    /// Neither the asset nor its listing is suspended.
    pub active: bool,
}

impl ChainRow {
    /// The chain's own coin, if it is listed: fees are paid in it.
    pub fn native(&self) -> Option<&ListingRow> {
        self.listings.iter().find(|listing| listing.form.contract().is_none())
    }

    pub fn listing(&self, id: ListingId) -> Option<&ListingRow> {
        self.listings.iter().find(|listing| listing.id == id)
    }
}

/// A block as it was passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow {
    pub height: u64,
    pub hash: Hash,
    pub parent: Hash,
}

/// What makes a change of a balance the same change when it is seen again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    pub transaction: Hash,
    pub place: Place,
    pub side: Side,
}

/// A change of a balance of ours in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    pub key: EntryKey,
    pub height: u64,
    pub block: Hash,
    /// As the chain writes it.
    pub address: String,
    pub listing: ListingId,
    /// With its sign. Zero of a transaction that did not run to its end.
    pub amount: RawSum,
    pub cause: Cause,
    /// Newly made coins, which cannot be spent until they are 100 blocks deep.
    pub coinbase: bool,
}

/// A coinbase can be spent in the hundredth block above its own.
pub(crate) const MATURITY: i64 = 99;

impl FoundEntry {
    /// What is paid to us by somebody else, run to its end or not.
    pub const fn is_deposit(&self) -> bool {
        matches!(self.cause, Cause::Deposit | Cause::Reverted)
    }
}

statements! {
    READ_CHAIN = "SELECT id, kind, network, confirmations, COALESCE(final_confirmations, confirmations), status,
            fee_price_cap, fee_cap, in_flight, stuck_after_s, gather_s, gather_most, join_below
        FROM chains WHERE name = $1";
    READ_CHAIN_LISTINGS = "SELECT l.id, a.id, a.symbol, a.precision, l.contract, l.decimals, l.min_deposit_amount,
            a.status = 'active' AND l.status = 'active'
        FROM asset_on_chain l JOIN assets a ON a.id = l.asset_id WHERE l.chain_id = $1 ORDER BY l.id";
    READ_CHAIN_NAMES = "SELECT name FROM chains ORDER BY name";
}

impl Db {
    /// `None`: there is no such chain.
    pub async fn chain(&self, name: &ChainName) -> Result<Option<ChainRow>, StoreError> {
        read_chain(&mut self.read().await?, name).await
    }

    pub async fn chain_names(&self) -> Result<Vec<ChainName>, StoreError> {
        let rows = fetch_all!(&mut self.read().await?, READ_CHAIN_NAMES => (String,))?;
        rows.into_iter().map(|(name,)| name.parse().map_err(|_| malformed("chain name"))).collect()
    }
}

pub(crate) fn malformed(what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("a chain's books have a malformed {what}") }
}

pub(crate) async fn read_chain(tx: &mut Tx, name: &ChainName) -> Result<Option<ChainRow>, StoreError> {
    type Number = Option<i64>;
    type Columns =
        (i64, String, String, i64, i64, String, Number, Option<String>, Number, Number, Number, Number, Number);
    let row = fetch_optional!(tx, READ_CHAIN => Columns, name.as_str())?;
    let Some((id, kind, network, confirmations, deeper, status, price, fee, in_flight, stuck, gather, most, join)) =
        row
    else {
        return Ok(None);
    };
    let kind = ChainKind::parse(&kind).ok_or_else(|| malformed("chain kind"))?;
    let depth = |number: i64| u32::try_from(number).map_err(|_| malformed("depth"));
    let listings = fetch_all!(tx, READ_CHAIN_LISTINGS => (i64, i64, String, i64, Option<String>, i64, i64, bool), id)?;
    Ok(Some(ChainRow {
        id: ChainId(id),
        name: name.clone(),
        kind,
        network,
        confirmations: depth(confirmations)?,
        final_confirmations: depth(deeper)?.max(depth(confirmations)?),
        outbound: outbound_limits(kind, (price, fee, in_flight, stuck, gather, most, join))?,
        status: Availability::parse(&status).ok_or_else(|| malformed("status"))?,
        listings: listings.into_iter().map(listing).collect::<Result<_, _>>()?,
    }))
}

type Listed = (i64, i64, String, i64, Option<String>, i64, i64, bool);

fn listing(
    (id, asset, symbol, precision, contract, decimals, least, active): Listed,
) -> Result<ListingRow, StoreError> {
    let precision = u8::try_from(precision).ok().and_then(Precision::new).ok_or_else(|| malformed("precision"))?;
    let decimals = u8::try_from(decimals).map_err(|_| malformed("decimals"))?;
    Ok(ListingRow {
        id: ListingId(id),
        asset: AssetId(asset),
        symbol: symbol.parse().map_err(|_| malformed("symbol"))?,
        form: AssetOnChain::new(precision, decimals, contract).map_err(|_| malformed("decimals"))?,
        min_deposit: Amount::from_units(least),
        active,
    })
}

/// Heights are never negative, and no chain passes 2^63 blocks.
pub(crate) fn row_height(height: u64) -> Result<i64, StoreError> {
    i64::try_from(height).map_err(|_| malformed("height"))
}

pub(crate) fn height_of(height: i64) -> Result<u64, StoreError> {
    u64::try_from(height).map_err(|_| malformed("height"))
}

pub(crate) fn hash_of(bytes: &[u8]) -> Result<Hash, StoreError> {
    <[u8; 32]>::try_from(bytes).map(Hash).map_err(|_| malformed("hash"))
}
