//! The end: the customers' own records held against the server and the chains, balances, costs, audit.

use std::cmp::Ordering;
use std::fmt::Display;

use domain::RawAmount;
use serde_json::{Value, json};
use terminal::audit::AuditReport;
use terminal::failure::Failure;
use terminal::output::{table, thousands};

use super::Stage;
use super::people::coins;
use super::withdrawals::DemoWithdrawal;
use crate::rig::program;

/// What was found when the records were held against server and chains.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub checked: u64,
    /// Balances that are less than they must be, and payments that are not there.
    pub lost: u64,
    /// Balances that are more, and payments that are there twice.
    pub doubled: u64,
    /// The first few, in words.
    pub first: Vec<String>,
}

impl Records {
    pub const fn is_clean(&self) -> bool {
        self.lost == 0 && self.doubled == 0
    }

    /// One of theirs in ledger units: what it must be, and what it is.
    pub fn hold(&mut self, what: impl FnOnce() -> String, must: i64, is: i64) {
        self.count(what, must.cmp(&is), (&must, &is));
    }

    /// The same in a chain's units.
    pub fn hold_raw(&mut self, what: impl FnOnce() -> String, must: RawAmount, is: RawAmount) {
        self.count(what, must.cmp(&is), (&must, &is));
    }

    fn count(&mut self, what: impl FnOnce() -> String, must_to_is: Ordering, (must, is): (&dyn Display, &dyn Display)) {
        self.checked += 1;
        match must_to_is {
            Ordering::Equal => return,
            Ordering::Greater => self.lost += 1,
            Ordering::Less => self.doubled += 1,
        }
        if self.first.len() < 8 {
            self.first.push(format!("{}: must be {must}, and is {is}", what()));
        }
    }
}

/// What the demo ends with.
pub struct Ending {
    pub records: Records,
    pub balances: Value,
    pub costs: Value,
    pub audit: AuditReport,
}

impl Stage<'_> {
    /// What each customer must have by their own records: what they paid in, less what left.
    fn must_have(&self, user: domain::UserId, asset: &str) -> i64 {
        let paid = self.people.payments.iter().filter(|one| one.user == user && one.net.paid_in() == asset);
        let paid: i64 = paid.map(|one| one.amount.units()).sum();
        let of_asset = || self.asked.iter().filter(|one| one.net.paid_in() == asset);
        let gone: i64 = of_asset().filter(|one| one.user == user).map(DemoWithdrawal::gone).sum();
        let given: i64 = of_asset().map(|one| one.given_to(user)).sum();
        paid - gone + given
    }

    pub async fn end(&mut self) -> Result<Ending, Failure> {
        let mut records = Records::default();
        for user in self.people.users.clone() {
            let has = self.people.has(user).await?;
            for coin in coins()? {
                let asset = coin.symbol.as_str();
                let (funding, spot) = has.get(asset).copied().unwrap_or_default();
                let must = self.must_have(user, asset);
                records.hold(|| format!("customer {} has {asset} units", user.get()), must, funding + spot);
            }
        }
        self.check_destinations(&mut records).await?;
        let audit = program::audit(&self.files.config).await?;
        let balances = program::balances(&self.files.config).await?;
        let costs = program::told(&self.files.config, &["treasury", "costs"]).await?;
        Ok(Ending { records, balances, costs, audit })
    }

    pub async fn tell_end(&self, ending: &Ending) -> Result<(), Failure> {
        let verdict = &self.found.trading.verdict;
        let rows = [
            ("transfers told committed, and so they are", verdict.committed),
            ("told on their way, and they have ended", verdict.pending),
            ("refused", verdict.refused),
            ("payments and balances held against server and chains", ending.records.checked),
            ("lost", verdict.lost + ending.records.lost),
            ("doubled", verdict.doubled + ending.records.doubled),
            ("stranded", verdict.stranded),
        ];
        let cells: Vec<Vec<String>> =
            rows.iter().map(|(name, count)| vec![(*name).to_owned(), thousands(*count)]).collect();
        self.screen.tell("8. the customers' own records, held against the server and the chains\n");
        self.screen.tell(format!("{}\n", table(&["by their own records", "count"], &[1], &cells)));
        self.screen.tell("9. balances (what is owed to each account; custody is negative by the coins it holds)\n");
        self.screen.tell(format!("{}\n", program::shown(&self.files.config, &["balances"]).await?));
        self.screen.tell("10. what it has cost\n");
        self.screen.tell(format!("{}\n", program::shown(&self.files.config, &["treasury", "costs"]).await?));
        let movements = thousands(ending.audit.movements);
        self.screen.tell(format!(
            "11. audit of {movements} movements, of the chains' own books and of the spot engine\n\n{}",
            ending.audit.text()
        ));
        Ok(())
    }

    pub fn as_json(&self, ending: &Ending) -> Value {
        let (found, verdict) = (&self.found, &self.found.trading.verdict);
        json!({
            "transfers": {
                "committed": verdict.committed, "pending": verdict.pending, "refused": verdict.refused,
                "sent_again": found.trading.resent,
            },
            "transfers_per_s": found.trading.per_s,
            "faults": {
                "server_killed": found.trading.server_killed, "worker_killed": found.trading.worker_killed,
                "wire_held": found.trading.wire_held,
            },
            "lost": verdict.lost + ending.records.lost,
            "doubled": verdict.doubled + ending.records.doubled,
            "stranded": verdict.stranded,
            "records": { "checked": ending.records.checked, "first": ending.records.first },
            "deposits": {
                "paid": found.deposits.paid, "credited": found.deposits.credited,
                "made_up": found.deposits.made_up,
                "taken_back": found.deposits.taken_back, "credited_again": found.deposits.credited_again,
            },
            "treasury": { "gas": found.home.gas, "brought_home": found.home.sweeps, "costs": ending.costs["costs"] },
            "withdrawals": {
                "asked": found.withdrawals.asked, "completed": found.withdrawals.completed,
                "called_off": found.withdrawals.called_off, "inside": found.withdrawals.inside,
                "approvals": found.withdrawals.approvals, "replaced": found.withdrawals.replaced,
            },
            "balances": ending.balances,
            "audit": ending.audit,
        })
    }
}
