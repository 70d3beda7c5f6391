//! The house's own wallets on Bitcoin: the wallet store knows only what it was told to watch.

use std::collections::BTreeMap;

use domain::{ChainName, Timestamp};
use store::Db;
use store::utxo::{AddressKind, NewAddress, Paths, is_watched};
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
        // Its path is not one of receiving and change, as those of users: whoever spends from it finds it by its address. One whose
        // key is elsewhere is never selected, and its wallet has a name that no group can have.
        let (name, account, kind) = match place {
            Place::Derived { group, .. } => {
                let account = pinned.group(group).map_or(0, |found| found.group.account());
                (group.to_string(), account, kind_of_script(&script))
            }
            Place::Written(_) => (format!("house {}", wallet.role.as_str()), 0, AddressKind::Other),
        };
        let address = NewAddress { account, path: None, kind, script };
        missing.entry((name, account)).or_default().push(address);
    }
    for ((name, _), addresses) in missing {
        let wallet = db.create_wallet(&name, stored_network(network), at).await?;
        db.add_addresses(wallet, &addresses, Paths::Exact, at).await?;
    }
    Ok(())
}
