//! The house's own wallets on Bitcoin: the wallet store knows only what it was told to watch.

use std::collections::BTreeMap;

use domain::{ChainName, Timestamp};
use store::Db;
use store::utxo::{NewAddress, Paths, is_watched};
use store::wallet::Place;
use tx::{Address, Family};

use super::users::stored_network;
use super::{Pinned, WalletError};
use crate::bitcoin::kind_of_script;

/// Has the operation wallets of a Bitcoin chain watched, each in the Bitcoin wallet of its group; those whose keys are elsewhere in
/// one called after their role. What is watched already, by whatever wallet, stays there. Other chains need no such thing.
pub async fn watch_house(
    db: &Db,
    pinned: &Pinned,
    (chain, family): (&ChainName, Family),
    at: Timestamp,
) -> Result<(), WalletError> {
    let Family::Bitcoin(network) = family else { return Ok(()) };
    let mut missing: BTreeMap<(String, u32), Vec<NewAddress>> = BTreeMap::new();
    for (_, place, wallet) in pinned.wallets().filter(|(on, ..)| *on == chain) {
        let Some(script) = Address::script_bytes(&wallet.address) else { continue };
        if is_watched(&mut db.read().await?, &script).await? {
            continue;
        }
        let (name, account) = match place {
            Place::Derived { group, .. } => {
                (group.to_string(), pinned.group(group).map_or(0, |found| found.group.account()))
            }
            Place::Written(_) => (wallet.role.as_str().to_owned(), 0),
        };
        // Its path is not one of receiving and change, as those of users: whoever spends from it finds it by its address.
        let address = NewAddress { account, path: None, kind: kind_of_script(&script), script };
        missing.entry((name, account)).or_default().push(address);
    }
    for ((name, _), addresses) in missing {
        let wallet = db.create_wallet(&name, stored_network(network), at).await?;
        db.add_addresses(wallet, &addresses, Paths::Exact, at).await?;
    }
    Ok(())
}
