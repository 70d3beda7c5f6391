//! Users' wallets. No address leaves this module unless it was derived from the pinned key just now, and is what the row
//! says. A row that differs is refused, and is in the log.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZero;
use std::sync::Arc;

use bitcoin::Network;
use domain::{GroupId, Purpose, Timestamp, UserId};
use store::Db;
use store::utxo::{self, is_watched};
use store::wallet::users::{MOST, list_user_wallets, user_wallets_at, user_wallets_in, user_wallets_of};
use store::wallet::{AssignedRows, BitcoinGroup, NewBitcoinWallet, NewUserWallet, UserWalletRow};
use tx::{Address, AddressPath, DerivationError, Family, Group};

use super::{Difference, Pinned, WalletError};

/// A user's wallet that was derived again and found to be as its row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserWallet {
    pub id: i64,
    pub group: GroupId,
    pub user: UserId,
    pub address: Address,
}

/// Rows that were read and checked, in the order in which they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub wallets: Vec<UserWallet>,
    pub differ: Vec<Difference>,
    /// The id of the last row, good or not.
    pub last: Option<i64>,
    /// There are rows behind it.
    pub more: bool,
}

impl Checked {
    fn into_parts(self) -> (Vec<UserWallet>, Vec<Difference>) {
        (self.wallets, self.differ)
    }
}

/// What came of giving users wallets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// How many are new.
    pub added: u64,
    /// All that were asked for and are right, by user.
    pub wallets: Vec<UserWallet>,
    pub differ: Vec<Difference>,
}

/// Holds a row against the pinned key. **This is the only way from a row to an address.**
pub fn check_row(pinned: &Pinned, row: &UserWalletRow) -> Result<UserWallet, Difference> {
    let differs = |what: String| Difference::new(format!("user_wallets, {}", row.id), what);
    let id: GroupId = row.group.parse().map_err(|_| differs(format!("its group {:?} is none", row.group)))?;
    let Some(group) = pinned.group(&id).map(|pinned| &pinned.group) else {
        return Err(differs(format!("its group {id} is not in the treasury file")));
    };
    if group.purpose != Purpose::Deposit {
        return Err(differs(format!("its group {id} is for {}, not for users", group.purpose.as_str())));
    }
    let user = UserId::new(row.user).ok_or_else(|| differs(format!("{} is no user", row.user)))?;
    if row.index != row.user {
        return Err(differs(format!("user {} has the derivation index {}", row.user, row.index)));
    }
    let path = AddressPath::of_user(user);
    let address = path.and_then(|path| group.key.address(path)).map_err(|error| differs(error.to_string()))?;
    if !row.address.is(&address.to_string()) {
        let claimed = row.address.claimed();
        return Err(differs(format!("user {} in {id}: the row has {claimed}, the key gives {address}", row.user)));
    }
    Ok(UserWallet { id: row.id, group: id, user, address })
}

/// Fewer than this are not worth a thread.
const FEW: usize = 64;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Checks rows on all cores, and logs what differs.
pub(super) async fn check_rows(pinned: &Arc<Pinned>, rows: Vec<UserWalletRow>) -> Result<Checked, WalletError> {
    let last = rows.last().map(|row| row.id);
    let results = in_parallel(rows, {
        let pinned = Arc::clone(pinned);
        move |row: &UserWalletRow| check_row(&pinned, row)
    })
    .await?;
    let mut checked = Checked { last, ..Checked::default() };
    for result in results {
        match result {
            Ok(wallet) => checked.wallets.push(wallet),
            Err(difference) => {
                difference.log();
                checked.differ.push(difference);
            }
        }
    }
    Ok(checked)
}

/// Every item through the function, in order, on as many threads as there are cores.
async fn in_parallel<T, R>(
    mut items: Vec<T>,
    work: impl Fn(&T) -> R + Clone + Send + 'static,
) -> Result<Vec<R>, WalletError>
where
    T: Send + 'static,
    R: Send + 'static,
{
    if items.len() < FEW {
        return Ok(items.iter().map(work).collect());
    }
    let share = items.len().div_ceil(threads());
    let mut tasks = Vec::new();
    while !items.is_empty() {
        let rest = items.split_off(share.min(items.len()));
        let part = std::mem::replace(&mut items, rest);
        let work = work.clone();
        tasks.push(tokio::task::spawn_blocking(move || part.iter().map(work).collect::<Vec<R>>()));
    }
    let mut results = Vec::new();
    for task in tasks {
        results.extend(task.await?);
    }
    Ok(results)
}

/// Gives users their wallets in a deposit group: those that have one keep it, whoever else is giving at the same time. Each
/// ten thousand are three statements. What is wrong with one user's row does not keep the others from theirs.
pub async fn assign(
    db: &Db,
    pinned: &Arc<Pinned>,
    group: &GroupId,
    users: &[UserId],
    at: Timestamp,
) -> Result<Assigned, WalletError> {
    let unusable = |why| WalletError::GroupUnusable { group: group.clone(), why };
    let found = pinned.group(group).ok_or_else(|| unusable("the treasury file has no such group"))?;
    if found.group.purpose != Purpose::Deposit {
        return Err(unusable("it is not for users' deposits"));
    }
    if !found.active {
        return Err(unusable("it is not active: users get no new wallets of it"));
    }
    let key = found.group.key.clone();
    let users: Vec<UserId> = users.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    // The largest number last: nothing is written if one of them has no address.
    users.last().map(|user| AddressPath::of_user(*user)).transpose()?;
    let mut assigned = Assigned::default();
    for part in users.chunks(MOST) {
        let key = key.clone();
        let derived = in_parallel(part.to_vec(), move |user: &UserId| {
            let address = key.address(AddressPath::of_user(*user)?)?;
            Ok::<_, DerivationError>((*user, address))
        });
        let derived = derived.await?.into_iter().collect::<Result<Vec<_>, _>>()?;
        assign_derived(db, pinned, &found.group, derived, at, &mut assigned).await?;
    }
    Ok(assigned)
}

/// One user's deposit wallet on the chains of a family, in the group that is active there. It is made if it is not there yet;
/// after that it is only read. Nothing is returned that a row says and the key does not.
pub async fn deposit_wallet(
    db: &Db,
    pinned: &Arc<Pinned>,
    family: Family,
    user: UserId,
    at: Timestamp,
) -> Result<UserWallet, WalletError> {
    let found = pinned.deposit_group(family).map_err(|why| WalletError::NoDepositGroup { family, why })?;
    let id = &found.group.id;
    let mut tx = db.read().await?;
    let rows = user_wallets_in(&mut tx, id, &[user]).await?;
    if !rows.is_empty() {
        let wallet = only(check_rows(pinned, rows).await?.into_parts(), id)?;
        let watched = match wallet.address.script_bytes() {
            Some(script) => is_watched(&mut tx, &script).await?,
            None => true,
        };
        if watched {
            return Ok(wallet);
        }
    }
    // Else this reader would keep its connection while it waits for another one.
    drop(tx);
    let assigned = assign(db, pinned, id, &[user], at).await?;
    only((assigned.wallets, assigned.differ), id)
}

fn only((wallets, differ): (Vec<UserWallet>, Vec<Difference>), group: &GroupId) -> Result<UserWallet, WalletError> {
    if let Some(difference) = differ.into_iter().next() {
        return Err(WalletError::Differs(difference));
    }
    let why = "the database has no such group";
    wallets.into_iter().next().ok_or_else(|| WalletError::GroupUnusable { group: group.clone(), why })
}

async fn assign_derived(
    db: &Db,
    pinned: &Arc<Pinned>,
    of: &Group,
    derived: Vec<(UserId, Address)>,
    at: Timestamp,
    assigned: &mut Assigned,
) -> Result<(), WalletError> {
    let group = &of.id;
    let (mut wanted, mut differ) = (Vec::new(), Vec::new());
    let of_the_house = pinned.addresses();
    for (user, address) in derived {
        // A cold wallet that is written down as an address of a user: what is swept there would be the user's.
        if of_the_house.contains(&address) {
            let what = format!("the address of user {} in {group} is an operation wallet's", user.get());
            differ.push(Difference::new("treasury file", what));
        } else {
            wanted.push((NewUserWallet { user, address: address.to_string() }, address));
        }
    }
    let rows = write(db, of, &wanted, at).await?;
    let wanted: Vec<NewUserWallet> = wanted.into_iter().map(|(wallet, _)| wallet).collect();
    let there: BTreeSet<i64> = rows.rows.iter().map(|row| row.user).collect();
    for one in wanted.iter().filter(|one| !there.contains(&one.user.get())) {
        let Some(holder) = rows.holders.iter().find(|row| row.address.is(&one.address)) else {
            let why = "the database has no such group";
            return Err(WalletError::GroupUnusable { group: group.clone(), why });
        };
        let (user, other) = (one.user.get(), holder.user);
        let what =
            format!("user {other} in {} has {}, the address of user {user} in {group}", holder.group, one.address);
        differ.push(Difference::new(format!("user_wallets, {}", holder.id), what));
    }
    differ.iter().for_each(Difference::log);
    assigned.differ.append(&mut differ);
    let mut checked = check_rows(pinned, rows.rows).await?;
    checked.wallets.sort_by_key(|wallet| wallet.user);
    assigned.added += rows.added;
    assigned.wallets.append(&mut checked.wallets);
    assigned.differ.append(&mut checked.differ);
    Ok(())
}

/// On Bitcoin, what is watched is written in the same transaction.
async fn write(
    db: &Db,
    group: &Group,
    wanted: &[(NewUserWallet, Address)],
    at: Timestamp,
) -> Result<AssignedRows, WalletError> {
    let Family::Bitcoin(network) = group.family() else {
        let wallets: Vec<NewUserWallet> = wanted.iter().map(|(wallet, _)| wallet.clone()).collect();
        return Ok(db.assign_user_wallets(&group.id, &wallets, at).await?);
    };
    let of = BitcoinGroup { network: stored_network(network), account: group.account() };
    let with_script = |(wallet, address): &(NewUserWallet, Address)| {
        address.script_bytes().map(|script| NewBitcoinWallet { wallet: wallet.clone(), script })
    };
    let wallets: Option<Vec<NewBitcoinWallet>> = wanted.iter().map(with_script).collect();
    let why = "its key gives addresses of another chain";
    let wallets = wallets.ok_or_else(|| WalletError::GroupUnusable { group: group.id.clone(), why })?;
    Ok(db.assign_bitcoin_wallets(&group.id, of, &wallets, at).await?)
}

pub(super) const fn stored_network(network: Network) -> utxo::Network {
    match network {
        Network::Bitcoin => utxo::Network::Bitcoin,
        Network::Testnet => utxo::Network::Testnet,
        Network::Testnet4 => utxo::Network::Testnet4,
        Network::Signet => utxo::Network::Signet,
        Network::Regtest => utxo::Network::Regtest,
    }
}

/// One user's wallets in all groups.
pub async fn show(db: &Db, pinned: &Arc<Pinned>, user: UserId) -> Result<Checked, WalletError> {
    let rows = user_wallets_of(&mut db.read().await?, user).await?;
    check_rows(pinned, rows).await
}

/// A page of all wallets, or of a group's, by their ids: for people, and for a scan that loads what it watches.
pub async fn list(
    db: &Db,
    pinned: &Arc<Pinned>,
    group: Option<&GroupId>,
    after: i64,
    most: i64,
) -> Result<Checked, WalletError> {
    // One more than is wanted: only then is there a next page.
    let mut rows = list_user_wallets(&mut db.read().await?, group, after, most.saturating_add(1)).await?;
    let wanted = usize::try_from(most).unwrap_or(0);
    let more = rows.len() > wanted;
    rows.truncate(wanted);
    Ok(Checked { more, ..check_rows(pinned, rows).await? })
}

/// Whose these addresses are: what is paid to one is credited to nobody else. An address that no row has is missing; so is
/// one whose row differs.
pub async fn owners(
    db: &Db,
    pinned: &Arc<Pinned>,
    addresses: &[Address],
) -> Result<(HashMap<Address, UserWallet>, Vec<Difference>), WalletError> {
    let texts: BTreeSet<String> = addresses.iter().map(ToString::to_string).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let rows = user_wallets_at(&mut db.read().await?, &texts).await?;
    let checked = check_rows(pinned, rows).await?;
    let found = checked.wallets.into_iter().map(|wallet| (wallet.address.clone(), wallet)).collect();
    Ok((found, checked.differ))
}
