//! What a payment may cost.
//!
//! | | asks for | unless |
//! |---|---|---|
//! | every transaction | bandwidth: so much for each byte | the account's free or staked bandwidth covers all of it |
//! | TRX to a new account | the fee for a new account, and a fixed fee in place of bandwidth | staked bandwidth covers that |
//! | a token | energy: what the call takes now, and a margin | (never counted: staked energy may be gone when it is mined) |

use std::collections::{BTreeSet, HashMap};

use alloy_primitives::U256;
use domain::{RawAmount, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use tx::tron::TronAddress;
use tx::tron::transaction::{self, MOST_FEE_LIMIT, bandwidth, transfer_call};
use tx::{Address, BlockHash, BlockRef, Coin, Draft, Fee, Payment};

use super::{balance, wire};
use crate::client::Quote;
use crate::endpoint::{CallError, Node};

#[derive(Deserialize)]
struct Parameters {
    #[serde(rename = "chainParameter", default)]
    list: Vec<Parameter>,
}

#[derive(Deserialize)]
struct Parameter {
    key: String,
    #[serde(default)]
    value: i64,
}

impl Parameters {
    /// Left out when it is zero; a network without this price cannot be quoted, so its name must be there.
    fn price(&self, node: &Node, name: &str) -> Result<u64, CallError> {
        let found = self.list.iter().find(|one| one.key == name);
        let price = found.and_then(|one| u64::try_from(one.value).ok()).filter(|price| *price < 1 << 40);
        price.ok_or_else(|| node.bad(format!("no usable {name}")))
    }
}

/// Bandwidth of an account: fields that are zero are left out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Net {
    #[serde(rename = "freeNetUsed")]
    free_used: i64,
    #[serde(rename = "freeNetLimit")]
    free_limit: i64,
    #[serde(rename = "NetUsed")]
    staked_used: i64,
    #[serde(rename = "NetLimit")]
    staked_limit: i64,
}

impl Net {
    /// One of the two must cover all bytes: they are never added.
    fn staked_covers(&self, bytes: i64) -> bool {
        self.staked_limit.saturating_sub(self.staked_used) >= bytes
    }

    fn free_covers(&self, bytes: i64) -> bool {
        self.free_limit.saturating_sub(self.free_used) >= bytes
    }
}

/// The price of energy may rise so many times before a payment runs out of it.
const PRICE_RESERVE: i64 = 2;

/// A payment that is to be quoted. `cap` is the highest fee limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub from: TronAddress,
    pub payment: &'a Payment,
    pub cap: i64,
}

/// What all payments of a moment have in common.
struct Terms {
    parameters: Parameters,
    reference: (BlockRef, Timestamp),
    /// In percent of the energy.
    margin: u32,
}

/// From one node, as many calls at a time. What it says to one payment is that one's alone.
pub(super) async fn quotes(
    node: &Node,
    wanted: &[Wanted<'_>],
    margin: u32,
    calls: usize,
) -> Result<Vec<Result<Quote, CallError>>, CallError> {
    let parameters: Parameters = wire::call(node, "/wallet/getchainparameters", &json!({})).await?;
    let answer = wire::ask(node, "/walletsolidity/getnowblock", &json!({})).await?;
    let solid: wire::Block<'_> = wire::read(node, &answer)?;
    let solid = solid.header(node)?.ok_or_else(|| node.bad("no solidified block"))?;
    // A solidified block is a good reference: no reorganisation can take it away, and it is a minute old where 65,536
    // blocks are allowed.
    let terms = &Terms { parameters, reference: (solid.at(), solid.time), margin };
    let senders: BTreeSet<TronAddress> = wanted.iter().map(|one| one.from).collect();
    let mut asked: Vec<BoxFuture<'_, (TronAddress, Result<Net, CallError>)>> = Vec::with_capacity(senders.len());
    for from in senders {
        asked.push(Box::pin(async move {
            let body = json!({ "address": from.wire(), "visible": false });
            (from, wire::call(node, "/wallet/getaccountnet", &body).await)
        }));
    }
    let nets: HashMap<TronAddress, Result<Net, CallError>> = stream::iter(asked).buffered(calls).collect().await;
    let nets = &nets;
    let mut asked: Vec<BoxFuture<'_, Result<Quote, CallError>>> = Vec::with_capacity(wanted.len());
    for one in wanted {
        asked.push(Box::pin(async move {
            let net = nets.get(&one.from).ok_or_else(|| node.bad("no account of the sender"))?;
            quoted(node, *one, net.as_ref().map_err(Clone::clone)?, terms).await
        }));
    }
    Ok(stream::iter(asked).buffered(calls).collect().await)
}

async fn quoted(node: &Node, wanted: Wanted<'_>, net: &Net, terms: &Terms) -> Result<Quote, CallError> {
    let Wanted { from, payment, cap } = wanted;
    let (parameters, reference) = (&terms.parameters, Some(terms.reference));
    let bytes = i64::try_from(bandwidth_of(&from, payment)).unwrap_or(i64::MAX);
    let byte_price = parameters.price(node, "getTransactionFee")?;
    let for_bytes = || u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(byte_price);
    let covered = net.staked_covers(bytes) || net.free_covers(bytes);

    let (Coin::Token(Address::Tron(token)), Address::Tron(to)) = (&payment.coin, &payment.to) else {
        let most = match &payment.to {
            Address::Tron(to) if balance::account(node, to).await?.address.is_none() => {
                let account = parameters.price(node, "getCreateNewAccountFeeInSystemContract")?;
                let fixed = parameters.price(node, "getCreateAccountFee")?;
                account.saturating_add(if net.staked_covers(bytes) { 0 } else { fixed })
            }
            _ if covered => 0,
            _ => for_bytes(),
        };
        // Free bandwidth may be used up when its turn comes.
        let needs = sun(most.max(for_bytes()));
        return Ok(Quote {
            fee: Fee::FeeLimit(0),
            capped: false,
            gas: 0,
            most: sun(most),
            expected: sun(most),
            needs,
            reference,
        });
    };
    let call = alloy_primitives::hex::encode(transfer_call(to, payment.amount.to_u256()).split_off(4));
    let tried = balance::try_call(node, &from, token, ("transfer(address,uint256)", call)).await?;
    let energy_price = parameters.price(node, "getEnergyFee")?;
    // The price of a busy contract's energy rises between now and then; what is not used is not burnt.
    let energy = tried.energy.saturating_add(tried.energy.saturating_mul(u64::from(terms.margin)).div_ceil(100));
    let asked = i64::try_from(energy.saturating_mul(energy_price)).unwrap_or(i64::MAX).max(1);
    // A vote of the network may change the price between now and then, and a payment that runs out of energy burns all of it for nothing.
    // So twice as much may be burnt, as far as was agreed.
    let bytes = i64::try_from(if covered { 0 } else { for_bytes() }).unwrap_or(i64::MAX);
    let room = cap.saturating_sub(bytes).max(asked);
    let limit = asked.saturating_mul(PRICE_RESERVE).min(room).min(cap.max(0)).min(MOST_FEE_LIMIT);
    let burnt = u64::try_from(limit).unwrap_or(0);
    let most = sun(burnt.saturating_add(if covered { 0 } else { for_bytes() }));
    // An account may have less than its limit: it burns what the call takes, at the price that holds then.
    let now = tried.energy.saturating_mul(energy_price);
    let expected = sun(now.saturating_add(if covered { 0 } else { for_bytes() })).min(most);
    let needs = sun(u64::try_from(asked).unwrap_or(u64::MAX).min(burnt).saturating_add(for_bytes()));
    Ok(Quote { fee: Fee::FeeLimit(limit), capped: limit < asked, gas: energy, most, expected, needs, reference })
}

fn sun(amount: u64) -> RawAmount {
    RawAmount::from_u256(U256::from(amount))
}

/// The bytes that the payment will be charged for. Times and the reference always have the same length.
fn bandwidth_of(from: &TronAddress, payment: &Payment) -> usize {
    let now = domain::Timestamp::from_micros(1_700_000_000_000_000);
    let fee_limit = if payment.coin == Coin::Native { 0 } else { MOST_FEE_LIMIT };
    let draft = Draft::Tron {
        from: Address::Tron(*from),
        payment: payment.clone(),
        fee_limit,
        reference: BlockRef { height: 0, hash: BlockHash::default() },
        created: now,
        expires: now.plus_micros(60_000_000),
    };
    // What cannot be built costs nothing either; the longest transfer is a safe guess until somebody tries to.
    transaction::build(&draft).map_or(420, |unsigned| bandwidth(unsigned.bytes.len()))
}
