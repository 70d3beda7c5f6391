//! Rows of groups and operation wallets, and what a signer says of its groups, held against what is pinned.

use store::wallet::{OperationWallet, WalletGroup, WalletSettings};
use tx::Group;

use super::{Difference, Pinned};

/// Every group and operation wallet that the rows have otherwise than the treasury file, or that only one of them has.
pub fn compare_settings(pinned: &Pinned, rows: &WalletSettings) -> Vec<Difference> {
    let wanted = pinned.settings();
    let mut found = Vec::new();
    for (id, group) in &wanted.groups {
        let row = format!("wallet_groups, {id}");
        match rows.groups.get(id) {
            None => found.push(Difference::new(row, "the treasury file has it, the database has not")),
            Some(other) => found.extend(differing_group(group, other).map(|what| Difference::new(row, what))),
        }
    }
    for id in rows.groups.keys().filter(|id| !wanted.groups.contains_key(*id)) {
        found.push(Difference::new(format!("wallet_groups, {id}"), NOT_PINNED));
    }
    for ((chain, place), wallet) in &wanted.wallets {
        let row = format!("operation_wallet_addresses, {place} on {chain}");
        match rows.wallets.get(&(chain.clone(), place.clone())) {
            None => found.push(Difference::new(row, "the treasury file has it, the database has not")),
            Some(other) => found.extend(differing_wallet(wallet, other).map(|what| Difference::new(row, what))),
        }
    }
    for (chain, place) in rows.wallets.keys().filter(|key| !wanted.wallets.contains_key(*key)) {
        found.push(Difference::new(format!("operation_wallet_addresses, {place} on {chain}"), NOT_PINNED));
    }
    found
}

const NOT_PINNED: &str = "the database has it, the treasury file has not";

fn says(field: &str, row: &str, file: &str) -> String {
    format!("its {field} is {row}; by the treasury file it is {file}")
}

/// The first field that is another.
fn differing_group(file: &WalletGroup, row: &WalletGroup) -> Option<String> {
    if row.xpub != file.xpub {
        return Some(says("xpub", &row.xpub, &file.xpub));
    }
    if row.family != file.family {
        return Some(says("chain", &row.family, &file.family));
    }
    if row.purpose != file.purpose {
        return Some(says("purpose", row.purpose.as_str(), file.purpose.as_str()));
    }
    if row.path != file.path {
        return Some(says("path", &row.path, &file.path));
    }
    (row.active != file.active).then(|| says("active", &row.active.to_string(), &file.active.to_string()))
}

fn differing_wallet(file: &OperationWallet, row: &OperationWallet) -> Option<String> {
    if row.address != file.address {
        return Some(says("address", row.address.claimed(), file.address.claimed()));
    }
    if row.role != file.role {
        return Some(says("role", row.role.as_str(), file.role.as_str()));
    }
    (row.active != file.active).then(|| says("active", &row.active.to_string(), &file.active.to_string()))
}

/// Every pinned group that the signer does not have, or has with another key. Whatever is paid to such a group cannot be
/// spent. Groups that only the signer has harm nobody: it may serve others too.
pub fn compare_groups(pinned: &Pinned, told: &[Group]) -> Vec<Difference> {
    let mut found = Vec::new();
    for pinned in pinned.groups() {
        let group = &pinned.group;
        let row = format!("signer, {}", group.id);
        let what = match told.iter().find(|other| other.id == group.id) {
            None => "the treasury file has it, the signer has not".to_owned(),
            Some(other) if other.key != group.key => says("xpub", &other.key.to_string(), &group.key.to_string()),
            Some(other) if other.purpose != group.purpose => {
                says("purpose", other.purpose.as_str(), group.purpose.as_str())
            }
            Some(_) => continue,
        };
        found.push(Difference::new(row, what));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Purpose;
    use tx::{AccountKey, Family};

    // Of BIP-39's published words "abandon … about": m/44'/60'/0' and m/44'/60'/1'.
    const FIRST: &str = "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPFsBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";

    fn group(id: &str, purpose: Purpose) -> Group {
        let key = AccountKey::parse(FIRST, Family::Evm).expect("a key");
        Group { id: id.parse().expect("a name"), purpose, key }
    }

    #[test]
    fn a_signer_with_another_key_or_without_the_group_differs() {
        let mut pinned = Pinned::default();
        pinned.add_group(group("users", Purpose::Deposit), true).expect("one group");
        let more = Group { id: "others".parse().expect("a name"), ..group("users", Purpose::Hot) };
        assert_eq!(compare_groups(&pinned, &[group("users", Purpose::Deposit), more.clone()]), []);
        let missing = compare_groups(&pinned, &[more]);
        assert_eq!(missing[0].what, "the treasury file has it, the signer has not");
        let purpose = compare_groups(&pinned, &[group("users", Purpose::Hot)]);
        assert_eq!(purpose[0].what, "its purpose is hot; by the treasury file it is deposit");
        let other = AccountKey::parse(FIRST, Family::Tron).expect("a key");
        let key = compare_groups(&pinned, &[Group { key: other, ..group("users", Purpose::Deposit) }]);
        assert!(key[0].what.starts_with("its xpub is "), "{key:?}");
    }
}
