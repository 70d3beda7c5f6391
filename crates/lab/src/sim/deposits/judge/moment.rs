//! What must hold after every turn of a worker: nothing is credited but what a quorum has deep enough in the chain, once; nothing
//! is taken back but what has left it; and each user has what that comes to.

use std::collections::{BTreeMap, BTreeSet};

use domain::deposit::DepositState;
use domain::{AccountStatus, AssetId, UserId};
use store::Db;
use store::deposit::{DepositFilter, DepositRow};
use store::ledger::balances::funding_of;

use super::super::model::Money;
use super::super::report::Report;
use super::super::world::{Shared, World};
use super::verdict::{Verdict, block_of, claim, decide, key_of, may_go, money_of};
use super::{Account, Judge, Seen, is_dead, is_posted, unread};

/// Rows that are read at a time, besides those that are open.
const MORE: i64 = 40;

/// What a user lost in this turn, of one asset.
#[derive(Default)]
struct Loss {
    before: Account,
    given: i128,
    taken: i128,
    receivable: bool,
    /// The user owed something from an earlier mining: what that froze gives nothing more.
    owed: bool,
}

impl Judge {
    /// Looks at what a worker has done. Most turns change no deposit, and one short text tells that: [`Judge::judge`] says nothing of
    /// deposits whose states are what they were.
    pub async fn look(&mut self, db: &Db, world: &Shared) -> Result<(), String> {
        let glance = Some((self.low, db.glance_at_deposits(self.low).await.map_err(|error| unread(&error))?));
        if self.glance == glance {
            world.lock().report.judged += 1;
            return Ok(());
        }
        self.look_closely(db, world).await?;
        self.glance = glance;
        Ok(())
    }

    /// Reads every deposit that may have changed, whatever a glance says.
    pub(super) async fn look_closely(&mut self, db: &Db, world: &Shared) -> Result<(), String> {
        let rows = self.read(db).await?;
        let touched = {
            let mut world = world.lock();
            world.report.judged += 1;
            self.judge(&rows, &mut world)?
        };
        for user in touched {
            self.compare_accounts(db, user).await?;
        }
        Ok(())
    }

    /// Deposits that may have changed, oldest first.
    async fn read(&self, db: &Db) -> Result<Vec<DepositRow>, String> {
        let (mut rows, mut before): (Vec<DepositRow>, i64) = (Vec::new(), i64::MAX);
        let above = self.highest + 1 - self.low;
        let most = MORE + above.max(0);
        loop {
            let page = db.deposits(&DepositFilter::default(), before, most).await.map_err(|error| unread(&error))?;
            let full = i64::try_from(page.len()) == Ok(most);
            before = page.last().map_or(0, |row| row.id);
            rows.extend(page.into_iter().filter(|row| row.id >= self.low));
            if !full || before < self.low {
                rows.reverse();
                return Ok(rows);
            }
        }
    }

    async fn compare_accounts(&self, db: &Db, user: i64) -> Result<(), String> {
        let Some(id) = UserId::new(user) else { return Err(format!("{user} is no user")) };
        let mut tx = db.read().await.map_err(|error| unread(&error))?;
        for (_, state) in funding_of(&mut tx, id).await.map_err(|error| unread(&error))? {
            let mine = self.accounts.get(&(user, state.asset)).copied().unwrap_or_default();
            let found = Account { available: state.available.units(), status: state.status };
            if mine != found {
                return Err(format!("user {user} must have {mine:?} of asset {}, and has {found:?}", state.asset.0));
            }
        }
        Ok(())
    }

    /// Says whose accounts have changed.
    fn judge(&mut self, rows: &[DepositRow], world: &mut World) -> Result<BTreeSet<i64>, String> {
        let mut touched = BTreeSet::new();
        let mut losses: BTreeMap<(i64, AssetId), Loss> = BTreeMap::new();
        let mut there = self.open.len();
        for row in rows {
            let before = self.open.get(&row.id).cloned();
            there -= usize::from(before.is_some());
            if before.as_ref().is_some_and(|seen| seen.state == row.state) || self.closed.contains_key(&row.id) {
                continue;
            }
            let mut seen = match before {
                Some(seen) => seen,
                None => first_seen(row, world)?,
            };
            let was = std::mem::replace(&mut seen.state, row.state);
            world.note(5, &[row.id.unsigned_abs(), row.state as u64]);
            match (is_posted(was), row.state) {
                (false, DepositState::Credited | DepositState::Final | DepositState::Unattributed) => {
                    self.booked(row, &mut seen, world)?;
                    touched.extend(seen.user);
                }
                (true, DepositState::Reversed) => {
                    self.reversed(row, &seen, world, &mut losses)?;
                    world.report.reversed_after_final += u64::from(was == DepositState::Final);
                    touched.extend(seen.user);
                }
                (true, DepositState::Final) if was == DepositState::Credited => {}
                (false, DepositState::Orphaned) => {
                    let net = &world.nets[seen.key.0];
                    if !may_go(&claim(net, seen.key.0, row), &seen) {
                        return Err(format!("dp-{} was given up, and its block is in the chain", row.id));
                    }
                    world.report.orphaned += 1;
                }
                (false, DepositState::Detected | DepositState::Proven) => {}
                (false, DepositState::Refused) => world.report.refused += 1,
                (was_posted, state) => {
                    return Err(format!("dp-{} went from {was} (in the books: {was_posted}) to {state}", row.id));
                }
            }
            if row.state == DepositState::Final {
                deep_enough(row, &seen, world)?;
            }
            self.highest = self.highest.max(row.id);
            self.open.insert(row.id, seen);
        }
        if there > 0 {
            return Err(format!("{there} deposits are no longer there"));
        }
        for ((user, asset), loss) in losses {
            self.weigh(user, asset, &loss, &mut world.report)?;
        }
        Ok(touched)
    }

    /// The ledger has it now.
    fn booked(&mut self, row: &DepositRow, seen: &mut Seen, world: &mut World) -> Result<(), String> {
        let (at, id) = (seen.key.0, row.id);
        let net = &world.nets[at];
        let claim = claim(net, at, row);
        let Some(record) = claim.record else {
            return Err(format!("dp-{id} is in the books, and its block was never mined"));
        };
        let Some(effect) = claim.effect else {
            return Err(format!("dp-{id} is in the books, and its block has no such payment: {row:?}"));
        };
        let depth = net.depth_of(record);
        if depth < net.spec.confirmations {
            return Err(format!(
                "dp-{id} is in the books with {depth} of {} confirmations by a quorum",
                net.spec.confirmations
            ));
        }
        if self.suspended && seen.money == Money::Token {
            return Err(format!("dp-{id} is in the books, and its asset is suspended"));
        }
        if let Some(other) = self.standing.insert(seen.key.clone(), id) {
            return Err(format!("dp-{id} and dp-{other} are one payment, and both are in the books"));
        }
        let asset = seen.asset;
        let account = |user| self.accounts.get(&(user, asset)).copied().unwrap_or_default();
        let verdict = decide(net, &effect, account);
        let owed = if let Verdict::User { user, .. } = verdict { self.debt(&seen.key, user) } else { 0 };
        let report = &mut world.report;
        match verdict {
            Verdict::User { user, units } => {
                let repaid = owed.min(units);
                let wanted = (Some(user), units - repaid, 0);
                let found = (row.user, row.amount.units(), row.left_over.units());
                if row.state == DepositState::Unattributed || wanted != found {
                    return Err(format!("dp-{id} must give {wanted:?}, and is {} with {found:?}", row.state));
                }
                (seen.user, seen.given, seen.repaid, seen.left_over) = (Some(user), units - repaid, repaid, 0);
                self.accounts.entry((user, asset)).or_default().available += units - repaid;
                self.suspense(asset, repaid);
                report.credited += 1;
                report.credited_again += u64::from(seen.generation > 0);
                report.debts_repaid += u64::from(repaid > 0);
            }
            Verdict::Nobody { reason, units } => {
                let found = (row.reason.as_deref(), row.amount.units(), row.left_over.units());
                if row.state != DepositState::Unattributed || found != (Some(reason), 0, units) {
                    return Err(format!("dp-{id} must be nobody's for {reason}, {units}: {} {found:?}", row.state));
                }
                (seen.user, seen.given, seen.repaid, seen.left_over) = (None, 0, 0, units);
                count_left(report, reason);
                self.suspense(asset, units);
                self.logs(seen, units);
            }
        }
        Ok(())
    }

    /// The ledger has it no longer.
    fn reversed(
        &mut self,
        row: &DepositRow,
        seen: &Seen,
        world: &mut World,
        losses: &mut BTreeMap<(i64, AssetId), Loss>,
    ) -> Result<(), String> {
        let net = &world.nets[seen.key.0];
        let (id, receivable) = (row.id, row.receivable.units());
        if !may_go(&claim(net, seen.key.0, row), seen) {
            return Err(format!("dp-{id} was taken back, and its block is in the chain"));
        }
        if self.standing.remove(&seen.key) != Some(id) {
            return Err(format!("dp-{id} was taken back, and was not in the books"));
        }
        let owed = seen.user.map_or(0, |user| self.debt(&seen.key, user));
        let short = receivable - owed;
        if !(0..=seen.given).contains(&short) {
            return Err(format!("dp-{id} gave {}, {owed} was owed before, and {receivable} is owed now", seen.given));
        }
        let taken = seen.given - short;
        self.suspense(seen.asset, -(short + seen.repaid + seen.left_over));
        self.logs(seen, -seen.left_over);
        if let Some(user) = seen.user {
            let account = self.accounts.entry((user, seen.asset)).or_default();
            let loss = losses.entry((user, seen.asset)).or_insert_with(|| Loss { before: *account, ..Loss::default() });
            account.available -= taken;
            loss.given += i128::from(seen.given);
            loss.taken += i128::from(taken);
            loss.receivable |= receivable > 0;
            loss.owed |= owed > 0;
            if receivable > 0 {
                self.debts.insert((seen.key.clone(), user), receivable);
            }
        }
        world.report.reversed += 1;
        world.report.receivables += u64::from(receivable > 0);
        Ok(())
    }

    /// As far as the user had it, it was taken; if something is owed, the account is frozen.
    fn weigh(&mut self, user: i64, asset: AssetId, loss: &Loss, report: &mut Report) -> Result<(), String> {
        let Loss { before, given, taken, receivable, owed } = loss;
        let active = before.status == AccountStatus::Active;
        let most = if active { i128::from(before.available).min(*given) } else { 0 };
        if *taken > most || (*taken < most && !owed) {
            return Err(format!("of user {user} {taken} was taken back of {given}, and there was {before:?}"));
        }
        if *receivable && active {
            self.accounts.entry((user, asset)).or_default().status = AccountStatus::Frozen;
            report.accounts_frozen += 1;
        }
        Ok(())
    }
}

fn first_seen(row: &DepositRow, world: &World) -> Result<Seen, String> {
    let at = world.nets.iter().position(|net| net.spec.name.as_str() == row.chain);
    let at = at.ok_or_else(|| format!("dp-{} is of a chain that is none", row.id))?;
    let net = &world.nets[at];
    if net.owners.by_text(&row.address).is_none() {
        return Err(format!("dp-{} pays {}, which is not ours", row.id, row.address));
    }
    let money = money_of(row);
    Ok(Seen {
        key: key_of(at, row),
        block: block_of(row),
        money,
        asset: net.spec.asset.get(&money).copied().unwrap_or(AssetId(0)),
        generation: row.generation,
        state: DepositState::Detected,
        user: None,
        given: 0,
        repaid: 0,
        left_over: 0,
        since: world.turn,
    })
}

/// Whether a quorum has had it as deep as can be withdrawn.
fn deep_enough(row: &DepositRow, seen: &Seen, world: &mut World) -> Result<(), String> {
    let net = &world.nets[seen.key.0];
    let depth = claim(net, seen.key.0, row).record.map_or(0, |record| net.depth_of(record));
    if depth < net.spec.final_confirmations {
        return Err(format!("dp-{} is final with {depth} of {}", row.id, net.spec.final_confirmations));
    }
    world.report.became_final += 1;
    Ok(())
}

fn count_left(report: &mut Report, reason: &str) {
    match reason {
        "house_wallet" => report.left_house_wallet += 1,
        "below_minimum" => report.left_below_minimum += 1,
        "beyond_ledger" => report.left_beyond_ledger += 1,
        "account_disabled" => report.left_account_disabled += 1,
        "row_differs" => report.left_row_differs += 1,
        "balance_differs" => report.left_balance_differs += 1,
        _ => {}
    }
}

impl Judge {
    /// What can no longer change is put away.
    pub(super) fn close(&mut self, world: &World) {
        let over = |seen: &Seen| {
            let deep = seen.block.height + 80 < world.nets[seen.key.0].height();
            is_dead(seen.state) || deep
        };
        let ids: Vec<i64> = self.open.iter().filter(|(_, seen)| over(seen)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(seen) = self.open.remove(&id) {
                if self.standing.get(&seen.key) == Some(&id) {
                    self.standing.remove(&seen.key);
                }
                self.low = self.low.max(id + 1);
                self.closed.insert(id, seen.state);
            }
        }
        // Nothing below the oldest that is open changes; what is above it is read, and known to be over.
        self.low = self.open.keys().next().copied().unwrap_or(self.low);
    }
}
