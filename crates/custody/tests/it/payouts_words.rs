//! What nodes say of a payout of Bitcoin is kept for people, and decides nothing.

use custody::bitcoin::tx_of;
use domain::Clock;
use domain::outbound::JobState;
use proptest::prelude::{Strategy, any, prop};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use store::testing::on;
use store::utxo::{Hash, ListFilter, OutPoint};

use crate::bent::{Bent, REFUSALS, words};
use crate::payouts::House;

/// Who has these coins of the wallet, or may still have them.
async fn spenders(house: &House<'_>, coins: &[OutPoint]) -> Vec<Option<Hash>> {
    let wallet = house.db.wallets().await.unwrap().into_iter().find(|one| one.name == "hot").unwrap().id;
    let filter = ListFilter { account: None, unspent_only: false, after: None, most: 99 };
    let outputs = house.db.list_outputs(wallet, &filter, house.clock.now()).await.unwrap();
    let ours = outputs.iter().filter(|one| coins.contains(&one.outpoint));
    ours.map(|one| one.spent_by.or(one.claimed_by)).collect()
}

/// Whatever nodes say to it, the payout may be out: its slot, its coins and its money stay as they are, and it is paid in the end, once.
#[test]
fn no_text_whatever_releases_a_slot_or_money_of_bitcoin() {
    for engine in crate::engines() {
        on(engine, async |db| {
            let house = House::start(db, &[5_000_000]).await;
            let jobs = [house.add_with(30_000, 1).await, house.add_with(30_000, 1).await];
            let mut runner = TestRunner::new(Config::default());
            let texts = (any::<prop::sample::Index>(), words());
            for round in 0..40 {
                let (kind, words) = texts.new_tree(&mut runner).unwrap().current();
                let says = (*kind.get(&REFUSALS), words);
                let sent = house.round_with(&Bent::talking(&house.chain, says.clone())).await;
                assert_eq!((sent.slots, sent.told), (usize::from(round == 0), 1), "{says:?}: {sent:?}");
                for (job, _) in &jobs {
                    let (shown, slots, _) = house.db.job(*job).await.unwrap().unwrap();
                    assert_eq!((shown.job.state, shown.job.rounds), (JobState::Broadcasted, 1), "{says:?}: {shown:#?}");
                    assert_eq!(slots.len(), 1, "{says:?}: {slots:#?}");
                    let said = slots[0].attempts.last().and_then(|attempt| attempt.said.clone());
                    assert!(said.is_some_and(|said| said.contains(&says.1)), "it was told: {says:?} {slots:#?}");
                    assert_eq!(shown.lane_stopped, None, "{says:?}");
                }
                let made = house.signed(jobs[0].0).await;
                let (first, newest) = (tx_of(&made[0]).unwrap(), tx_of(made.last().unwrap()).unwrap());
                assert_eq!(spenders(&house, &first.inputs).await, [Some(newest.hash)], "{says:?}");
                house.pass(61);
                house.follow().await;
            }
            house.settle().await;
            house.agree(&jobs, 30_000).await;
        });
    }
}
