//! Every row derived again from the pinned keys.

use std::sync::Arc;

use domain::GroupId;
use store::entry::ChainRow;
use store::wallet::read_wallet_settings;
use store::wallet::users::{count_user_wallets, list_user_wallets};
use store::{Db, StoreError, Tx};

use super::users::check_rows;
use super::{Difference, Pinned, WalletError, compare_settings};

/// How many rows are held in memory: one page that is checked while the next is read.
const PAGE: i64 = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Groups and operation wallets of the treasury file and of the database.
    pub groups: u64,
    pub operation_wallets: u64,
    pub user_wallets: u64,
    pub differ: u64,
}

/// Whether somebody has applied another treasury file than the one that a worker of a chain goes by.
pub async fn is_outdated(db: &Db, chain: &ChainRow, pinned: &Pinned) -> Result<bool, StoreError> {
    let rows = read_wallet_settings(&mut db.read().await?).await?;
    Ok(db.chain(&chain.name).await?.as_ref() != Some(chain) || !compare_settings(pinned, &rows).is_empty())
}

/// Holds all rows of one snapshot against the pinned keys: groups, operation wallets, and users' wallets, of one group if it
/// is named. `found` gets each that differs; `progress` is told how many users' wallets there are, and how many are done.
pub async fn verify(
    db: &Db,
    pinned: &Arc<Pinned>,
    group: Option<&GroupId>,
    mut found: impl FnMut(Difference),
    mut progress: impl FnMut(u64, u64),
) -> Result<Verified, WalletError> {
    let mut tx = db.read().await?;
    let rows = read_wallet_settings(&mut tx).await?;
    let mut verified = Verified {
        groups: length(rows.groups.len()),
        operation_wallets: length(rows.wallets.len()),
        ..Verified::default()
    };
    for difference in compare_settings(pinned, &rows) {
        difference.log();
        verified.differ += 1;
        found(difference);
    }
    let all = count_user_wallets(&mut tx, group).await?;
    progress(all, 0);
    let mut page = read(&mut tx, group, i64::MIN).await?;
    while let Some(last) = page.last().map(|row| row.id) {
        let (checked, next) = tokio::join!(check_rows(pinned, page), read(&mut tx, group, last));
        let checked = checked?;
        verified.user_wallets += length(checked.wallets.len() + checked.differ.len());
        verified.differ += length(checked.differ.len());
        checked.differ.into_iter().for_each(&mut found);
        progress(all, verified.user_wallets);
        page = next?;
    }
    Ok(verified)
}

async fn read(
    tx: &mut Tx,
    group: Option<&GroupId>,
    after: i64,
) -> Result<Vec<store::wallet::UserWalletRow>, WalletError> {
    Ok(list_user_wallets(tx, group, after, PAGE).await?)
}

fn length(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
