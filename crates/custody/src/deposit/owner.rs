//! Whose a payment is, by the keys. Nothing is credited by the word of a row.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bitcoin::ScriptBuf;
use domain::UserId;
use domain::deposit::{Attribution, Reason};
use store::deposit::DueEntry;
use store::wallet::UserWalletRow;
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

/// Rows that were held against their keys, and whose they are. A key gives the same address every time, so a row that is what it was
/// need not be worked out again; one that was changed is.
#[derive(Debug, Default)]
pub struct Checked(Mutex<HashMap<i64, (UserWalletRow, UserId)>>);

/// So many rows are remembered, some 20 MB.
const REMEMBERED: usize = 100_000;

impl Checked {
    fn owner(&self, pinned: &Pinned, row: &UserWalletRow) -> Attribution {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, user)) = known.get(&row.id).filter(|(seen, _)| seen == row) {
            return Attribution::User(*user);
        }
        match check_row(pinned, row) {
            Ok(wallet) => {
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(row.id, (row.clone(), wallet.user));
                Attribution::User(wallet.user)
            }
            Err(difference) => {
                difference.log();
                Attribution::Nobody(Reason::RowDiffers)
            }
        }
    }
}

/// For each deposit among these its user, if the row of its address and the key of its group agree; else why it is nobody's.
pub async fn attribute(
    db: &Db,
    (pinned, checked): (&Pinned, &Checked),
    (house, family): (&House, Family),
    due: &[DueEntry],
) -> Result<HashMap<i64, Attribution>, StoreError> {
    let deposits: Vec<&DueEntry> = due.iter().filter(|entry| entry.is_deposit).collect();
    let named: HashMap<i64, String> =
        deposits.iter().map(|entry| (entry.id, address_of(&entry.address, family))).collect();
    let texts: BTreeSet<&str> = named.values().map(String::as_str).collect();
    let owners = owners(db, (pinned, checked), house, &texts.into_iter().collect::<Vec<_>>()).await?;
    let owner = |entry: &DueEntry| {
        named.get(&entry.id).and_then(|text| owners.get(text)).copied().unwrap_or(Attribution::Nobody(Reason::NoUser))
    };
    Ok(deposits.into_iter().map(|entry| (entry.id, owner(entry))).collect())
}

/// Whose these addresses are, by the keys. One that no row knows is missing.
pub async fn owners(
    db: &Db,
    (pinned, checked): (&Pinned, &Checked),
    house: &House,
    texts: &[&str],
) -> Result<HashMap<String, Attribution>, StoreError> {
    let rows = user_wallets_at(&mut db.read().await?, texts).await?;
    let mut owners: HashMap<String, Attribution> =
        house.addresses().map(|address| (address.to_string(), Attribution::Nobody(Reason::HouseWallet))).collect();
    for row in &rows {
        // If it is a user's, then the key gives what the row claims. An address of the house is never a user's, whatever a row says.
        owners.entry(row.address.claimed().to_owned()).or_insert_with(|| checked.owner(pinned, row));
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_address_of_its_network_and_anything_else_stays() {
        let bitcoin = Family::parse("bitcoin").unwrap();
        let script = "script:0014751e76e8199196d454941c45d1b3a323f1433bd6";
        assert_eq!(address_of(script, bitcoin), "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4");
        let regtest = Family::parse("bitcoin-regtest").unwrap();
        assert_eq!(address_of(script, regtest), "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080");
        for odd in ["script:6a", "script:zz", "u7"] {
            assert_eq!(address_of(odd, bitcoin), odd);
        }
        assert_eq!(address_of(script, Family::Evm), script);
    }
}
