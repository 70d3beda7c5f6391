//! The demo's customers: what they asked for, what they were told, and what they found. They believe nothing but what they were told, and at the
//! end their records are held against the server and the chains.

use std::collections::HashMap;
use std::net::SocketAddr;

use domain::{Amount, Precision, RawAmount, Symbol, UserId};
use ruint::aliases::U256;
use serde_json::{Value, json};
use terminal::failure::Failure;

use super::chains::Net;
use super::wrong;
use crate::rig::Coin;
use crate::rig::client::Client;

/// Customers of the demo: user 1 to this one.
pub const CUSTOMERS: i64 = 24;

/// The assets that they move, with their decimals and the least that a transfer moves.
const ASSETS: [(&str, u8, i64); 2] = [("USDT", 6, 1_000_000), ("BTC", 8, 10_000)];

/// Ledger units of an asset by its symbol.
pub fn precision(asset: &str) -> Result<Precision, Failure> {
    let found = ASSETS.iter().find(|(symbol, ..)| *symbol == asset);
    found.and_then(|(_, decimals, _)| Precision::new(*decimals)).ok_or_else(|| wrong(format!("the asset {asset}")))
}

/// The assets as the customers of a rig need them.
pub fn coins() -> Result<Vec<Coin>, Failure> {
    let coin = |(symbol, _, smallest): &(&str, u8, i64)| {
        let symbol_of: Symbol = symbol.parse().map_err(wrong)?;
        Ok(Coin { symbol: symbol_of, precision: precision(symbol)?, smallest: Amount::from_units(*smallest) })
    };
    ASSETS.iter().map(coin).collect()
}

/// A payment to a customer's own deposit address.
#[derive(Clone, Debug)]
pub struct Payment {
    pub user: UserId,
    pub net: Net,
    pub address: String,
    pub amount: Amount,
}

impl Payment {
    /// On its chain.
    pub fn raw(&self) -> Result<RawAmount, Failure> {
        raw(self.net, self.amount)
    }
}

/// A ledger amount of what customers pay in on this chain, in the chain's units.
pub fn raw(net: Net, amount: Amount) -> Result<RawAmount, Failure> {
    let finer = net.decimals().saturating_sub(u32::from(precision(net.paid_in())?.decimals()));
    let units = U256::from(u64::try_from(amount.units()).map_err(wrong)?);
    Ok(RawAmount::from_u256(units.saturating_mul(U256::from(10).saturating_pow(U256::from(finer)))))
}

/// As people write it.
pub fn shown(asset: &str, amount: Amount) -> Result<String, Failure> {
    Ok(amount.display(precision(asset)?).to_string())
}

/// What the customers know.
pub struct People {
    client: Client,
    pub users: Vec<UserId>,
    pub payments: Vec<Payment>,
}

/// What a customer has, in ledger units, by asset: in the funding account and in the spot account, with what is held.
pub type Holdings = HashMap<String, (i64, i64)>;

impl People {
    pub fn new(address: SocketAddr, secret: Vec<u8>) -> Self {
        let users = (1..=CUSTOMERS).filter_map(UserId::new).collect();
        Self { client: Client::new(vec![address], 0, secret), users, payments: Vec::new() }
    }

    /// Asks the server as this user, until it answers at all: it may just have been killed.
    pub async fn ask(
        &mut self,
        user: UserId,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), Failure> {
        for _ in 0..600 {
            match self.client.ask(user, method, path, body).await {
                // Nothing was done.
                Ok((503, _)) | Err(_) => {
                    self.client.turn();
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
                Ok(answer) => return Ok(answer),
            }
        }
        Err(wrong(format!("the server does not answer {method} {path}")))
    }

    /// The customer's own address on this chain.
    pub async fn address(&mut self, user: UserId, net: Net) -> Result<String, Failure> {
        let asked = json!({ "chain": net.name() });
        let (status, body) = self.ask(user, "POST", "/api/v1/deposit_address", Some(&asked)).await?;
        let address = body["address"].as_str().filter(|_| status == 200);
        address.map(str::to_owned).ok_or_else(|| wrong(format!("no address: {status} {body}")))
    }

    /// What the customer is told to have.
    pub async fn has(&mut self, user: UserId) -> Result<Holdings, Failure> {
        for _ in 0..600 {
            let (status, body) = self.ask(user, "GET", "/api/v1/balances", None).await?;
            // A server that was killed may still be comparing its database with its engine.
            if status != 200 || body["spot_known"] != true {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
            let mut has = Holdings::new();
            for row in body["balances"].as_array().into_iter().flatten() {
                let asset = row["asset"].as_str().unwrap_or_default();
                let Ok(precision) = precision(asset) else { continue };
                let units = |side: &str, name: &str| {
                    let text = row[side][name].as_str().unwrap_or("0");
                    Amount::parse(text, precision).map(Amount::units).map_err(wrong)
                };
                let funding = units("funding", "available")? + units("funding", "frozen")?;
                has.insert(asset.to_owned(), (funding, units("spot", "available")? + units("spot", "reserved")?));
            }
            return Ok(has);
        }
        Err(wrong(format!("the balances of user {} could not be read", user.get())))
    }

    /// What each customer has paid in, in ledger units, by the number of the coin.
    pub fn opening(&self, coins: &[Coin]) -> HashMap<(UserId, usize), i64> {
        let mut opening: HashMap<(UserId, usize), i64> =
            self.users.iter().flat_map(|user| (0..coins.len()).map(|coin| ((*user, coin), 0))).collect();
        for payment in &self.payments {
            let coin = coins.iter().position(|coin| coin.symbol.as_str() == payment.net.paid_in());
            if let Some(has) = coin.and_then(|coin| opening.get_mut(&(payment.user, coin))) {
                *has += payment.amount.units();
            }
        }
        opening
    }
}
