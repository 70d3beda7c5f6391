//! What a selection is shown: by default confirmed and mature outputs and our own published change, nothing that
//! somebody has leased.

use store::db_test;
use store::testing::TestDb;
use store::utxo::*;

use super::model::Event;
use super::stage::*;

pub fn want(allow: Allow) -> Want {
    Want { target: 1, allow, seed: 7 }
}

/// With every opt-in.
pub fn everything() -> Want {
    want(Allow { pending: true, unconfirmed_foreign: true, settled: None })
}

/// One output of every kind, told apart by their amounts, all in account 0 of wallet 0.
const MATURE: i64 = 1_000;
const IMMATURE: i64 = 2_000;
const CONFIRMED: i64 = 3_000;
const FOREIGN: i64 = 4_000;
const CHANGE: i64 = 5_000;
const PENDING_CHANGE: i64 = 6_000;
const LEASED: i64 = 7_000;
const CHANGE_OF_FOREIGN: i64 = 8_000;
const INVALID: i64 = 9_000;

struct Kinds<'a> {
    stage: Stage<'a>,
    coins: NewTx,
}

async fn one_of_each(db: &TestDb) -> Kinds<'_> {
    let mut stage = Stage::open(db, 2).await;
    let ours = |amount| (script(0, 0, 0), amount);
    stage.mine("root", &[coinbase("mature", &[ours(MATURE)])]).await.unwrap();
    for _ in 0..99 {
        let next = Event::Connect(stage.next_block("on"), vec![]);
        stage.play_unseen(&next).await;
    }
    // Three to spend, one to keep, one to lease, and some that are not of this account.
    let coins = tx(
        "coins",
        &[elsewhere("coins")],
        &[ours(100), ours(200), ours(300), ours(CONFIRMED), ours(LEASED), (script(0, 1, 0), 11), (script(1, 0, 0), 12)],
    );
    stage.mine("on", &[coinbase("immature", &[ours(IMMATURE)]), coins.clone()]).await.unwrap();
    let foreign = tx("foreign", &[elsewhere("foreign")], &[ours(FOREIGN), ours(400)]);
    stage.play(Event::See(vec![foreign.clone()])).await.unwrap();
    let change = tx("change", &[output(&coins, 0)], &[ours(CHANGE)]);
    stage.play(Event::Pending(0, change.clone())).await.unwrap();
    stage.play(Event::Publish(change.hash)).await.unwrap();
    let pending = tx("pending", &[output(&coins, 1)], &[ours(PENDING_CHANGE)]);
    stage.play(Event::Pending(0, pending)).await.unwrap();
    let chained = tx("chained", &[output(&foreign, 1)], &[ours(CHANGE_OF_FOREIGN)]);
    stage.play(Event::See(vec![chained])).await.unwrap();
    let invalid = tx("invalid", &[output(&coins, 2)], &[ours(INVALID)]);
    stage.play(Event::Pending(0, invalid.clone())).await.unwrap();
    stage.play(Event::Abandon(invalid.hash)).await.unwrap();
    let until = stage.now.plus_micros(60_000_000);
    db.lease(stage.wallets[0], &[output(&coins, 4)], LockId([1; 32]), until, stage.now).await.unwrap();
    Kinds { stage, coins }
}

impl Kinds<'_> {
    async fn amounts(&self, allow: Allow) -> Vec<i64> {
        let coins = self.stage.db.candidates(self.stage.wallets[0], 0, &want(allow), self.stage.now).await.unwrap();
        let mut amounts: Vec<i64> = coins.iter().map(|coin| coin.amount).collect();
        amounts.sort_unstable();
        amounts
    }
}

db_test! {
    async fn only_what_is_surely_ours_is_shown_unless_more_is_asked_for(db: TestDb) {
        let kinds = one_of_each(db).await;
        let surely = [300, MATURE, CONFIRMED, CHANGE];
        assert_eq!(kinds.amounts(Allow::default()).await, surely);
        let pending = Allow { pending: true, ..Allow::default() };
        assert_eq!(kinds.amounts(pending).await, [300, MATURE, CONFIRMED, CHANGE, PENDING_CHANGE]);
        let foreign = Allow { unconfirmed_foreign: true, settled: None, ..Allow::default() };
        assert_eq!(kinds.amounts(foreign).await, [300, MATURE, CONFIRMED, FOREIGN, CHANGE, CHANGE_OF_FOREIGN]);
        let both = Allow { pending: true, unconfirmed_foreign: true, settled: None };
        let all = [300, MATURE, CONFIRMED, FOREIGN, CHANGE, PENDING_CHANGE, CHANGE_OF_FOREIGN];
        assert_eq!(kinds.amounts(both).await, all);
    }

    async fn a_candidate_says_whether_it_is_in_a_block(db: TestDb) {
        let kinds = one_of_each(db).await;
        let coins = db.candidates(kinds.stage.wallets[0], 0, &everything(), kinds.stage.now).await.unwrap();
        for coin in coins {
            let confirmed = [300, MATURE, CONFIRMED].contains(&coin.amount);
            assert_eq!((coin.confirmed, coin.kind), (confirmed, AddressKind::P2wpkh), "{coin:?}");
        }
    }

    async fn a_lease_that_ended_hides_nothing(db: TestDb) {
        let mut kinds = one_of_each(db).await;
        let balance = db.balance(kinds.stage.wallets[0], kinds.stage.now).await.unwrap()[&0];
        assert_eq!(balance.leased, LEASED);
        kinds.stage.now = kinds.stage.now.plus_micros(60_000_000);
        assert_eq!(kinds.amounts(Allow::default()).await, [300, MATURE, CONFIRMED, CHANGE, LEASED]);
        let balance = db.balance(kinds.stage.wallets[0], kinds.stage.now).await.unwrap()[&0];
        assert_eq!(balance.leased, 0);
    }

    async fn a_fork_hides_what_it_makes_uncertain(db: TestDb) {
        let mut kinds = one_of_each(db).await;
        let down_to = kinds.stage.model.tip().unwrap().height - 1;
        kinds.stage.play_unseen(&Event::Disconnect(down_to, vec![])).await;
        // The coins are somebody else's unconfirmed transaction now, the reward of the first block is unripe again.
        // The change of what we spent of it can be taken back with it.
        assert!(kinds.amounts(Allow::default()).await.is_empty());
        let foreign = Allow { unconfirmed_foreign: true, settled: None, ..Allow::default() };
        assert!(kinds.amounts(foreign).await.contains(&CHANGE));
    }

    async fn a_script_that_we_cannot_spend_from_is_counted_but_not_shown(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let unknown = b"some other script".to_vec();
        let address = NewAddress { account: 0, path: None, kind: AddressKind::Other, script: unknown.clone() };
        assert_eq!(db.add_addresses(stage.wallets[0], &[address], Paths::Exact, stage.now).await.unwrap().new, 1);
        stage.model.scripts.insert(unknown.clone(), (0, 0));
        stage.mine("root", &[tx("coin", &[elsewhere("x")], &[(unknown, 5_000)])]).await.unwrap();
        assert_eq!(db.balance(stage.wallets[0], stage.now).await.unwrap()[&0].confirmed, 5_000);
        assert!(db.candidates(stage.wallets[0], 0, &everything(), stage.now).await.unwrap().is_empty());
    }

    async fn the_same_question_has_the_same_answer(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let outputs: Vec<_> = (0..300).map(|number| (script(0, 0, number % 3), 1_000 + i64::from(number))).collect();
        stage.mine("root", &[tx("coins", &[elsewhere("x")], &outputs)]).await.unwrap();
        let want = Want { target: 30_000, allow: Allow::default(), seed: 3 };
        let first = db.candidates(stage.wallets[0], 0, &want, stage.now).await.unwrap();
        let ids: std::collections::BTreeSet<UtxoId> = first.iter().map(|coin| coin.id).collect();
        assert_eq!(first.len(), ids.len(), "none twice");
        assert!(first.iter().map(|coin| coin.amount).sum::<i64>() >= 2 * want.target, "enough with the fees");
        assert!(first.len() < 200, "{} are more than it takes", first.len());
        for _ in 0..3 {
            assert_eq!(db.candidates(stage.wallets[0], 0, &want, stage.now).await.unwrap(), first);
        }
    }

    /// However many there are, a bounded set of candidates that can pay the target is found: it may take the one large
    /// output, or most of the small ones.
    async fn a_bounded_set_of_candidates_can_pay_the_target(db: TestDb) {
        let mut stage = Stage::open(db, 1).await;
        let mut outputs: Vec<_> = (0..3_000).map(|number| (script(0, 0, 0), 1_000 + number)).collect();
        outputs.push((script(0, 0, 1), 50_000_000));
        let coins = tx("coins", &[elsewhere("x")], &outputs);
        stage.play_unseen(&Event::Connect(stage.next_block("root"), vec![coins])).await;
        for (seed, target) in (0..).zip([1, 1_500, 100_000, 1_000_000, 40_000_000]) {
            let want = Want { target, allow: Allow::default(), seed };
            let coins = db.candidates(stage.wallets[0], 0, &want, stage.now).await.unwrap();
            let ids: std::collections::BTreeSet<UtxoId> = coins.iter().map(|coin| coin.id).collect();
            assert_eq!(ids.len(), coins.len(), "none twice");
            assert!(coins.len() < 2_000, "{} candidates", coins.len());
            assert!(coins.iter().map(|coin| coin.amount).sum::<i64>() >= target, "{} for {target}", coins.len());
        }
    }

    async fn an_unknown_wallet_is_refused(db: TestDb) {
        let kinds = one_of_each(db).await;
        let (nobody, now) = (WalletId(99), kinds.stage.now);
        let error = db.candidates(nobody, 0, &everything(), now).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_UNKNOWN_WALLET");
        let error = db.balance(nobody, now).await.unwrap_err();
        assert_eq!(error.code(), "UTXO_UNKNOWN_WALLET");
        let error = db.lease(nobody, &[output(&kinds.coins, 3)], LockId([2; 32]), now, now).await.unwrap_err();
        assert!(matches!(error, UtxoError::Refused(_)), "{error:?}");
    }
}
