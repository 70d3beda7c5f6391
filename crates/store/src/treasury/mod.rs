//! What the house does by itself with coins, as rows: rules, bands and prices, how far they were evaluated, and the jobs that came of them.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | rules and bands of the treasury file: read, compared, written by `bursar apply` |
//! | [`pass`] | addresses to evaluate, with all that a decision rests on; who evaluates a chain |
//! | [`act`] | what was decided: flags, reasons and jobs, in one transaction |
//! | [`house`] | hot wallets with their bands |
//! | [`price`] | what coins are worth, as people say |
//! | [`cost`] | what jobs have cost |
//!
//! | | |
//! |---|---|
//! | reads | `wallet_balances`, `chain_entries`, `user_wallets`, `outbound_jobs` |
//! | writes | `rule_cursors`, `treasury_jobs`, `asset_prices`, new `outbound_jobs`; of `wallet_balances` only the flags and why an address waits |
//! | may never do | change a balance; make a second job of an address before it knows how the first has ended |

pub mod act;
pub mod cost;
pub mod house;
pub mod pass;
pub mod price;
pub mod settings;

pub use act::{Acted, NewTreasuryJob, TreasuryKind};
pub use pass::{EvaluatedWallet, RuleWorker};
pub use settings::{BandSetting, GasRuleSetting, RuleSettings, SweepRuleSetting};

use crate::error::StoreError;

pub(crate) fn malformed(what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("the treasury's rows have a malformed {what}") }
}

#[cfg(feature = "testing")]
pub(crate) mod statements {
    use crate::rows::RowsSql;
    use crate::sql::Sql;

    pub(crate) const ALL: [&[Sql]; 6] = [
        super::act::STATEMENTS,
        super::cost::STATEMENTS,
        super::house::STATEMENTS,
        super::pass::STATEMENTS,
        super::price::STATEMENTS,
        super::settings::STATEMENTS,
    ];

    pub(crate) fn rows() -> Vec<&'static RowsSql> {
        let groups: [&'static [&'static RowsSql]; 3] =
            [&super::act::ROWS_STATEMENTS, &super::pass::ROWS_STATEMENTS, &super::settings::ROWS_STATEMENTS];
        groups.into_iter().flatten().copied().collect()
    }
}
