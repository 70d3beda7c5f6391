//! Whose a payment is, by the keys. Nothing is credited by the word of a row.

use std::collections::{BTreeSet, HashMap};

use bitcoin::ScriptBuf;
use domain::deposit::{Attribution, Reason};
use store::deposit::DueEntry;
use store::wallet::users::user_wallets_at;
use store::{Db, StoreError};
use tx::Family;

use super::read::House;
use crate::wallet::Pinned;
use crate::wallet::users::check_row;

/// The address of an entry. Bitcoin's entries have the script that the chain shows: what it is called is worked out here, not read
/// from a row.
pub fn address_of(text: &str, family: Family) -> String {
    let script = text.strip_prefix("script:").and_then(|hex| ScriptBuf::from_hex(hex).ok());
    match (script, family) {
        (Some(script), Family::Bitcoin(network)) => bitcoin::Address::from_script(&script, network)
            .map_or_else(|_| text.to_owned(), |address| address.to_string()),
        (_, Family::Bitcoin(_) | Family::Evm | Family::Tron) => text.to_owned(),
    }
}

/// For each deposit among these its user, if the row of its address and the key of its group agree; else why it is nobody's.
pub async fn attribute(
    db: &Db,
    pinned: &Pinned,
    (house, family): (&House, Family),
    due: &[DueEntry],
) -> Result<HashMap<i64, Attribution>, StoreError> {
    let deposits: Vec<&DueEntry> = due.iter().filter(|entry| entry.is_deposit).collect();
    let named: HashMap<i64, String> =
        deposits.iter().map(|entry| (entry.id, address_of(&entry.address, family))).collect();
    let texts: BTreeSet<&str> = named.values().map(String::as_str).collect();
    let owners = owners(db, pinned, house, &texts.into_iter().collect::<Vec<_>>()).await?;
    let owner = |entry: &DueEntry| {
        named.get(&entry.id).and_then(|text| owners.get(text)).copied().unwrap_or(Attribution::Nobody(Reason::NoUser))
    };
    Ok(deposits.into_iter().map(|entry| (entry.id, owner(entry))).collect())
}

/// Whose these addresses are, by the keys. One that no row knows is missing.
pub async fn owners(
    db: &Db,
    pinned: &Pinned,
    house: &House,
    texts: &[&str],
) -> Result<HashMap<String, Attribution>, StoreError> {
    let rows = user_wallets_at(&mut db.read().await?, texts).await?;
    let mut owners: HashMap<String, Attribution> =
        house.addresses().map(|address| (address.to_string(), Attribution::Nobody(Reason::HouseWallet))).collect();
    for row in &rows {
        let (text, owner) = match check_row(pinned, row) {
            Ok(wallet) => (wallet.address.to_string(), Attribution::User(wallet.user)),
            Err(difference) => {
                difference.log();
                (row.address.claimed().to_owned(), Attribution::Nobody(Reason::RowDiffers))
            }
        };
        // An address of the house is never a user's, whatever a row says.
        owners.entry(text).or_insert(owner);
    }
    Ok(owners)
}
