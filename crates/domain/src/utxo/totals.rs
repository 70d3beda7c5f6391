//! What an event does to the accounts' totals.

use std::collections::BTreeMap;

use super::graph::{Graph, Row, State};
use super::types::WalletId;

/// The change of an account's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    pub confirmed: i64,
    pub confirmed_count: i64,
    pub unconfirmed: i64,
    pub unconfirmed_count: i64,
}

impl Graph<'_> {
    /// The change of the accounts' totals, over all outputs loaded. `None`: more money than there can be.
    pub fn deltas(&self) -> Option<BTreeMap<(WalletId, u32), Delta>> {
        let mut deltas: BTreeMap<(WalletId, u32), Delta> = BTreeMap::new();
        for (outpoint, coin) in self.coins.iter().filter(|(outpoint, coin)| self.is_real(outpoint, coin)) {
            let Some(entry) = self.entries.get(&outpoint.hash) else { continue };
            let before = match coin.row {
                Row::New { .. } => None,
                Row::Stored { spender, .. } => entry.before.filter(|_| spender.is_none()),
            };
            let after = Some(entry.now).filter(|_| self.spender_after(outpoint, coin).is_none());
            let delta = deltas.entry((coin.wallet, coin.account)).or_default();
            delta.add(before, coin.amount, -1)?;
            delta.add(after, coin.amount, 1)?;
        }
        deltas.retain(|_, delta| *delta != Delta::default());
        Some(deltas)
    }
}

impl Delta {
    fn add(&mut self, state: Option<State>, amount: i64, sign: i64) -> Option<()> {
        let Some(state) = state.filter(|state| state.status.is_valid()) else { return Some(()) };
        let (total, count) = match state.height {
            Some(_) => (&mut self.confirmed, &mut self.confirmed_count),
            None => (&mut self.unconfirmed, &mut self.unconfirmed_count),
        };
        *total = total.checked_add(sign * amount)?;
        *count += sign;
        Some(())
    }
}
