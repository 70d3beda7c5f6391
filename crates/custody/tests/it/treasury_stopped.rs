//! A key of the house may be stolen: what rules bring to its wallets would be the thief's. Nothing goes there, or waits in a lane, until two people have
//! looked. And one wallet that a token refuses keeps nobody else's coins from coming home.

use domain::outbound::{JobKind, JobState};
use domain::{Approval, Clock, WalletRole};
use store::grants::DatabaseRole;
use tx::{Address, Coin};

use crate::bent::Bent;
use crate::treasury::{USER, Yard, on_both};

impl Yard<'_> {
    /// An address with so many USDT, and gas for its sweep, in final blocks.
    async fn swept_next(&self, user: i64, usdt: u64) -> Address {
        let wallet = self.rig.address(user).await;
        self.rig.pay(&wallet, &self.rig.token(), usdt * 1_000_000);
        self.rig.pay(&wallet, &Coin::Native, 100 * self.one);
        self.rig.mine(1);
        self.pass(6).await;
        wallet
    }

    /// Somebody has the keys of this group. `None`: nobody has any.
    async fn stolen(&self, group: Option<&str>) {
        let all = "UPDATE wallet_groups SET outbound_stopped = NULL".to_owned();
        let one =
            group.map(|name| format!("; UPDATE wallet_groups SET outbound_stopped = 'stolen' WHERE name = '{name}'"));
        self.rig.db.by_hand(&(all + &one.unwrap_or_default())).await.unwrap();
    }

    /// Two people let the group of an address go on.
    async fn resume(&self, address: &Address) {
        let people = Approval::new("ann", "bob", "a drill").unwrap();
        let (db, row, now) = (self.rig.db.of(DatabaseRole::Operator), &self.rig.row, self.rig.clock.now());
        assert!(db.resume_group_of(row.id, &address.to_string(), &people, now).await.unwrap());
    }

    /// Where the sweeps go, the newest first.
    async fn sweeps_to(&self) -> Vec<String> {
        self.jobs(JobKind::Consolidation).await.into_iter().map(|shown| shown.job.to).collect()
    }
}

/// The hot wallet was emptied, so it is far below its target. What comes home goes to the treasury, no refill is proposed, and what was on its way there
/// waits.
#[test]
fn no_coins_flow_to_a_hot_wallet_whose_key_is_stolen() {
    on_both(async |yard| {
        let (usdt, hot) = (yard.rig.token(), yard.rig.house(WalletRole::Hot));
        let treasury = yard.rig.house(WalletRole::Treasury);
        yard.band().await;
        yard.stolen(Some("hot")).await;
        yard.swept_next(USER, 300).await;
        yard.evaluate().await;
        assert_eq!(yard.sweeps_to().await, [treasury.to_string()]);
        assert_eq!(yard.jobs(JobKind::Refill).await.len(), 0);
        // A false alarm, so the next one goes there; and then it is none.
        yard.stolen(None).await;
        yard.swept_next(USER + 1, 300).await;
        yard.evaluate().await;
        assert_eq!(yard.sweeps_to().await, [hot.to_string(), treasury.to_string()]);
        let refill = yard.only(JobKind::Refill).await;
        assert_eq!(refill.job.state, JobState::Queued, "decided beside it");
        yard.stolen(Some("hot")).await;
        for _ in 0..3 {
            yard.pass(1).await;
            yard.evaluate().await;
        }
        let waiting = yard.jobs(JobKind::Consolidation).await.remove(0);
        assert_eq!((waiting.job.state, waiting.job.tries), (JobState::Queued, 0), "{}", waiting.job.reason);
        assert_eq!(waiting.payee_stopped.as_deref(), Some("stolen"));
        assert_eq!(yard.only(JobKind::Refill).await.job.state, JobState::FailedFinal, "nobody need approve it");
        assert_eq!(yard.has(&hot, &usdt).await, 0);
        yard.resume(&hot).await;
        yard.pass(8).await;
        assert_eq!(yard.has(&hot, &usdt).await, 300_000_000);
        yard.rig.assert_true().await;
    });
}

#[test]
fn a_treasury_whose_key_is_stolen_is_no_home() {
    on_both(async |yard| {
        yard.stolen(Some("treasury")).await;
        let wallet = yard.swept_next(USER, 300).await;
        assert_eq!(yard.evaluate().await.jobs, 0);
        let (gas, needs, why) = yard.flags(&wallet).await;
        assert!(
            !gas && needs && why.as_ref().is_some_and(|why| why.contains("the treasury wallet is stopped")),
            "{why:?}"
        );
        yard.resume(&yard.rig.house(WalletRole::Treasury)).await;
        assert_eq!(yard.evaluate().await.jobs, 1);
        assert_eq!(yard.flags(&wallet).await, (false, true, None));
    });
}

/// A thief with users' keys would take each top-up, and the next one would come after every cool-down, for the sweep waits in its stopped lane.
#[test]
fn no_gas_is_brought_to_users_whose_keys_are_stolen() {
    on_both(async |yard| {
        let wallet = yard.low_gas_wallet(USER, 480).await;
        assert_eq!(yard.evaluate().await.jobs, 1);
        yard.stolen(Some("users")).await;
        yard.low_gas_wallet(USER + 1, 480).await;
        for _ in 0..3 {
            yard.pass(1).await;
            assert_eq!(yard.evaluate().await.jobs, 0);
            yard.rig.clock.set(yard.rig.clock.now().plus_micros(61_000_000));
        }
        let (gas, needs, why) = yard.flags(&wallet).await;
        assert!(
            !gas && needs && why.as_ref().is_some_and(|why| why.contains("its wallet group is stopped")),
            "{why:?}"
        );
        let queued = yard.only(JobKind::GasTopup).await;
        assert_eq!((queued.job.state, yard.has(&wallet, &Coin::Native).await), (JobState::Queued, 0), "{queued:?}");
        yard.resume(&wallet).await;
        yard.pass(12).await;
        assert_eq!(yard.only(JobKind::GasTopup).await.job.state, JobState::Confirmed);
        assert_eq!(yard.evaluate().await.jobs, 2, "its sweep, and gas for the other");
    });
}

/// A token's owner has frozen the hot wallet: the token goes to the treasury, and does not wait for that wallet.
#[test]
fn a_hot_wallet_that_a_token_refuses_keeps_nothing_from_coming_home() {
    on_both(async |yard| {
        yard.band().await;
        let (hot, treasury) = (yard.rig.house(WalletRole::Hot), yard.rig.house(WalletRole::Treasury));
        let db = yard.rig.db.of(DatabaseRole::Rules);
        let wallet = yard.swept_next(USER, 300).await;
        // Not even the treasury is paid: nobody can say what it costs.
        let chain = Bent::freezing(&*yard.rig.chain, treasury.clone());
        yard.rules_with(db, &chain, "rules").await.unwrap();
        let (_, needs, why) = yard.flags(&wallet).await;
        assert!(needs && why.as_ref().is_some_and(|why| why.contains("cannot be asked now")), "{why:?}");
        assert_eq!(yard.sweeps_to().await, [] as [String; 0]);
        let chain = Bent::freezing(&*yard.rig.chain, hot);
        yard.rules_with(db, &chain, "rules").await.unwrap();
        assert_eq!(yard.sweeps_to().await, [treasury.to_string()]);
    });
}
