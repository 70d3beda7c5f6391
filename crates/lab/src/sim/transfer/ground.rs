//! What a run begins with: two assets, forty users with money in funding, nothing at the engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use domain::asset::TransferLimits;
use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::{AccountId, AccountKind, Amount, Asset, AssetId, Availability, Precision, Timestamp, UserId};
use store::catalog::{Author, Catalog, read_assets};
use store::ledger::{NewAccount, Opened};
use store::{Db, Options};

use super::clients::{DAILY_AMOUNT, USERS};
use super::laws::{FUNDS, Ground};
use super::run::SimError;

const AUTHOR: Author<'static> = Author { actor: "simulator", reason: "a simulated treasury" };

pub(crate) async fn lay(folder: &Path, now: Timestamp, freezes: bool) -> Result<(Db, Ground), SimError> {
    let url = store::db::sqlite_url(&folder.join("simulation.db"));
    // The run must not depend on how slow the machine is, so no wait for a connection may time out.
    let options =
        Options { create: true, max_connections: 2, acquire_timeout: Duration::from_secs(3_600), ..Options::default() };
    let db = Db::connect(&url, &options).await?;
    db.migrate(now).await?;
    db.apply_catalog(&catalog()?, &AUTHOR, now).await.map_err(|error| SimError::SetUp(error.to_string()))?;
    let known = read_assets(&mut db.read().await?).await?;
    let assets: BTreeMap<String, AssetId> =
        known.into_iter().map(|(id, asset)| (asset.symbol.as_str().to_owned(), id)).collect();
    let external = AccountKind::External("bsc".parse().map_err(|_| broken("a chain's name"))?);
    let mut accounts = BTreeMap::new();
    for asset in assets.values() {
        let source = NewAccount::system(&external, *asset).ok_or_else(|| broken("a system account"))?;
        let users: Vec<UserId> = (1..=USERS).filter_map(UserId::new).collect();
        let wanted: Vec<NewAccount> =
            std::iter::once(source).chain(users.iter().map(|user| NewAccount::funding(*user, *asset))).collect();
        let opened = db.open(&wanted, now).await?.into_iter().filter_map(|opened| match opened {
            Opened::Account(account) => Some(account),
            Opened::UnknownAsset => None,
        });
        let opened: Vec<AccountId> = opened.collect();
        let (Some(source), true) = (opened.first(), opened.len() == wanted.len()) else {
            return Err(broken("the accounts"));
        };
        let funded = opened[1..].iter().map(|account| fund(*source, *account, *asset));
        let funded = funded.collect::<Result<Vec<_>, _>>().map_err(|_| broken("the first money"))?;
        if !db.post(&funded, now).await?.iter().all(|reply| reply.applied()) {
            return Err(broken("the first money"));
        }
        accounts.extend(users.into_iter().map(|user| (user, *asset)).zip(opened[1..].iter().copied()));
    }
    Ok((db, Ground { assets, accounts, freezes }))
}

fn fund(from: AccountId, to: AccountId, asset: AssetId) -> Result<Operation, domain::ledger::BadOperation> {
    let movement = Movement { from, to, asset, amount: Amount::from_units(FUNDS) };
    Operation::move_available(OpKey::new(format!("fund-{}", to.0))?, vec![movement], Reference::new("funds")?)
}

fn catalog() -> Result<Catalog, SimError> {
    let mut catalog = Catalog::default();
    let limits = TransferLimits {
        min: Amount::from_units(10),
        max: Amount::from_units(FUNDS),
        daily: Amount::from_units(DAILY_AMOUNT),
    };
    for symbol in ["USDT", "BTC"] {
        let symbol: domain::Symbol = symbol.parse().map_err(|_| broken("a symbol"))?;
        let asset = Asset {
            symbol: symbol.clone(),
            precision: Precision::new(2).ok_or_else(|| broken("a precision"))?,
            status: Availability::Active,
            internal_transfer_enabled: true,
            transfer: limits,
        };
        catalog.assets.insert(symbol, asset);
    }
    Ok(catalog)
}

fn broken(what: &str) -> SimError {
    SimError::SetUp(format!("{what} could not be made"))
}
