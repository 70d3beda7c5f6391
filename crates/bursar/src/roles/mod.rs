//! What runs for ever, in a process of its own (`bursar run`) or within the server.
//!
//! | role | worker of the sources | does |
//! |---|---|---|
//! | [`deposits`] | deposit listeners, confirmation worker | reads a chain, proves its blocks, credits what is deep enough |
//! | [`balance_sync`] | balance sync worker | looks at all wallets on their chain, in turn |
//! | [`outbound`], sending | withdrawal worker, gas top-up workers | gives jobs their slots, has them signed, tells the nodes |
//! | [`checks`] | (external check) | asks somebody outside about withdrawals before anybody may agree to them |
//! | [`rules`] | rule execution worker | asks for gas and sweeps, keeps `needs_gas`, `needs_consolidation` and why an address waits |
//! | [`withdrawals`] | what stands between the sources' API and their queue | gives approved withdrawals their jobs, settles or releases what became of them |
//! | [`outbound`], confirming | confirmation of what they sent | asks the chain what became of it, until that is final |

pub mod balance_sync;
mod base;
pub mod checks;
pub mod deposits;
pub mod outbound;
pub mod rules;
pub mod withdrawals;

pub use base::RoleBase;

use std::sync::Arc;
use std::time::Duration;

use custody::wallet::Pinned;
use domain::{ChainName, Clock};
use store::Db;
use store::entry::ChainRow;
use terminal::clock::SystemClock;
use terminal::failure::Failure;
use tokio::sync::watch;

use crate::config::Config;
use crate::{chains, pins};

/// The chain as the database has it.
pub async fn row_of(db: &Db, name: &ChainName) -> Result<ChainRow, Failure> {
    let gone = || Failure::bad_input("INVALID_CHAIN", format!("there is no chain {name}"), "see bursar chain status");
    db.chain(name).await?.ok_or_else(gone)
}

/// A chain's wallets, client and row, as the files and the database have them now.
async fn reopen(
    config: &Config,
    db: &Db,
    name: &ChainName,
) -> Result<(Arc<Pinned>, Arc<dyn chain::Chain>, ChainRow), Failure> {
    // Before the client is made: what is applied in between is noticed.
    let row = row_of(db, name).await?;
    let pinned = pins::pinned(config, db).await?;
    pins::check(config, db, &pinned).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let followed = chains::open(config, db, &clock).await?;
    let mine = followed.into_iter().find(|chain| chain.row.name == *name);
    let mine = mine.ok_or_else(|| {
        Failure::bad_input("INVALID_CHAIN", format!("{name} has no nodes any more"), "see bursar chain check")
    })?;
    Ok((pinned, mine.client.shared(), row))
}

/// Whether it was told to stop, at the latest after so long.
async fn is_stopped_within(stopped: &mut watch::Receiver<bool>, pause: Duration) -> bool {
    if *stopped.borrow() {
        return true;
    }
    // A sender that is gone has ended with everything else.
    tokio::time::timeout(pause, stopped.wait_for(|stop| *stop)).await.is_ok()
}
