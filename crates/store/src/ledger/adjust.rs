//! Adjustments: money that two people move by hand, under a key of their own.

use std::collections::BTreeMap;

use domain::adjustment::{Adjustment, PREFIX, Party, may_be_between, spot_user};
use domain::ledger::{Movement, Operation, Outcome, Reference, Reply};
use domain::{AccountId, AccountKind, Approval, AssetId, ChainName, Timestamp, UserId};

use super::balances::system_balances;
use super::post::{lock_accounts, post};
use crate::audit::{Violation, violation};
use crate::db::{Db, Tx};
use crate::dialect::LOCK_MIGRATIONS;
use crate::error::StoreError;

statements! {
    READ_IS_KEPT = "SELECT k.chain_id FROM chain_cursors k JOIN chains c ON c.id = k.chain_id WHERE c.name = $1";
    FIND_ACCOUNT = "SELECT id FROM accounts WHERE owner = $1 AND kind = $2 AND asset_id = $3";
    /// Every movement with an adjustment's key ($1 to $2), and what its accounts are.
    READ_ADJUSTMENTS = "SELECT m.id, m.op_key, m.leg, m.action, m.reference, COALESCE(f.kind, ''), COALESCE(t.kind, '')
        FROM movements m LEFT JOIN accounts f ON f.id = m.from_account LEFT JOIN accounts t ON t.id = m.to_account
        WHERE m.op_key >= $1 AND m.op_key < $2 ORDER BY m.id";
    /// Those that gave to clearing:spot (1) or took from it (-1).
    READ_SPOT_ADJUSTMENTS = "SELECT m.op_key, m.asset_id, m.amount, CAST(CASE WHEN t.kind = 'clearing:spot' THEN 1 ELSE -1 END AS BIGINT)
        FROM movements m JOIN accounts f ON f.id = m.from_account JOIN accounts t ON t.id = m.to_account
        WHERE m.op_key >= $1 AND m.op_key < $2 AND m.outcome = 0 AND 'clearing:spot' IN (f.kind, t.kind)";
}

/// What became of an adjustment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adjusted {
    /// The ledger decided it, now or before.
    Decided(Reply),
    /// One of its accounts does not exist. Nothing is recorded.
    NoAccount(Party),
    /// The books of this chain follow what its blocks show: custody is not moved by hand any more. Nothing is recorded.
    Kept(ChainName),
    /// The house would pay what it does not have. Nothing is recorded: the key is still free.
    TooLow { kind: AccountKind, balance: i128 },
}

impl Db {
    /// Posts the adjustment, or only says what would become of it. The same adjustment again is a replay.
    pub async fn adjust(&self, wanted: &Adjustment, dry_run: bool, at: Timestamp) -> Result<Adjusted, StoreError> {
        let mut tries = self.tries();
        loop {
            let mut tx = tries.begin().await?;
            let result = adjust(&mut tx, wanted, at).await;
            let undo = dry_run || !matches!(result, Ok(Adjusted::Decided(_)));
            if result.is_ok() && undo {
                tx.rollback().await;
                return result;
            }
            if let Some(done) = tries.end(tx, result).await {
                return done;
            }
        }
    }
}

async fn adjust(tx: &mut Tx, wanted: &Adjustment, at: Timestamp) -> Result<Adjusted, StoreError> {
    let Some(from) = find(tx, wanted, wanted.from()).await? else {
        return Ok(Adjusted::NoAccount(wanted.from().clone()));
    };
    let Some(to) = find(tx, wanted, wanted.to()).await? else {
        return Ok(Adjusted::NoAccount(wanted.to().clone()));
    };
    let custody = [wanted.from(), wanted.to()].into_iter().find_map(|party| match party {
        Party::House(AccountKind::Custody(chain)) => Some(chain),
        Party::House(_) | Party::User(_) => None,
    });
    if custody.is_some() {
        // Whoever begins a chain's books writes down what custody has, and waits here too.
        fetch_optional!(tx, LOCK_MIGRATIONS => (String,))?;
    }
    // The house's accounts too: two adjustments at once must not both spend the last of one. In the order of ids, as
    // everywhere.
    lock_accounts(tx, &[from, to]).await?;
    let broken = |_| StoreError::Corrupt { what: format!("adjustment {} makes no operation", wanted.key()) };
    let movement = Movement { from, to, asset: wanted.asset(), amount: wanted.amount() };
    let reference = Reference::new(wanted.approval().to_string()).map_err(broken)?;
    let operation = Operation::move_available(wanted.key().clone(), vec![movement], reference).map_err(broken)?;
    let reply = post(tx, &[operation], at).await?.into_iter().next();
    let reply = reply.ok_or_else(|| StoreError::Corrupt { what: "an operation has no reply".to_owned() })?;
    if reply == Reply::First(Outcome::Applied) {
        // What its addresses have is in the books by its entries: moved by hand as well, the same coins would count twice.
        if let Some(chain) = custody
            && fetch_optional!(tx, READ_IS_KEPT => (i64,), chain.as_str())?.is_some()
        {
            return Ok(Adjusted::Kept(chain.clone()));
        }
        let balances = system_balances(tx).await?;
        for (account, party) in [(from, wanted.from()), (to, wanted.to())] {
            let balance = balances.get(&account).copied().unwrap_or(0);
            if let Party::House(kind) = party
                && !wanted.makes_sense(party, balance)
            {
                return Ok(Adjusted::TooLow { kind: kind.clone(), balance });
            }
        }
    }
    Ok(Adjusted::Decided(reply))
}

async fn find(tx: &mut Tx, wanted: &Adjustment, party: &Party) -> Result<Option<AccountId>, StoreError> {
    let (owner, kind) = match party {
        Party::User(user) => (user.get(), AccountKind::Funding.to_string()),
        Party::House(kind) => (0, kind.to_string()),
    };
    let found = fetch_optional!(tx, FIND_ACCOUNT => (i64,), owner, kind.as_str(), wanted.asset().0)?;
    Ok(found.map(|(id,)| AccountId(id)))
}

/// The character after the prefix's last one.
const END: &str = "adjust;";

/// What people accepted that the engine has more of a user's money than transfers brought there, or less, in ledger
/// units. Only people make these rows, so there are few.
pub async fn spot_adjustments(tx: &mut Tx) -> Result<BTreeMap<(UserId, AssetId), i128>, StoreError> {
    let rows = fetch_all!(tx, READ_SPOT_ADJUSTMENTS => (String, i64, i64, i64), PREFIX, END)?;
    let mut sums = BTreeMap::new();
    for (key, asset, amount, sign) in rows {
        // The check of adjustments names a row whose key says nothing.
        let Some(user) = spot_user(&key) else { continue };
        *sums.entry((user, AssetId(asset))).or_default() += i128::from(amount) * i128::from(sign);
    }
    Ok(sums)
}

/// Each adjustment names two people and a reason, and is between accounts that people may move.
pub(crate) async fn check_adjustments(tx: &mut Tx) -> Result<Option<Violation>, StoreError> {
    type Row = (i64, String, i64, i64, String, String, String);
    for (id, key, position, action, reference, from, to) in fetch_all!(tx, READ_ADJUSTMENTS => Row, PREFIX, END)? {
        let movable = match (from.parse::<AccountKind>(), to.parse::<AccountKind>()) {
            (Ok(from), Ok(to)) => may_be_between(&key, &from, &to),
            _ => false,
        };
        let problem = if position != 0 || action != 1 {
            "an adjustment is one movement of available money"
        } else if Approval::parse(&reference).is_none() {
            "an adjustment does not name two people and a reason"
        } else if !movable {
            "an adjustment moves an account that is not moved by hand"
        } else {
            continue;
        };
        return Ok(violation(format!("movements id={id}"), problem));
    }
    Ok(None)
}
