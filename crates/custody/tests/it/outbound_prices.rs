//! Prices that move while a payment waits, on the devnets of EVM and TRON: at the cap the same bytes are told again, a chain without a base fee is
//! paid by its one price, and the energy of TRON may cost twice as much when its block comes.

use devnet::BroadcastFault;
use domain::outbound::JobState;
use domain::{ChainKind, Clock};
use store::Engine;
use store::outbound::{AttemptRow, JobId};
use store::testing::on;
use tx::{Coin, Fee};

use crate::bent::Bent;
use crate::deposits::raw;
use crate::outbound::Desk;

fn pass_seconds(desk: &Desk<'_>, seconds: i64) {
    desk.rig.clock.set(desk.rig.clock.now().plus_micros(seconds * 1_000_000));
}

/// All that was ever tried in the one slot of a job.
async fn attempts(desk: &Desk<'_>, job: JobId) -> Vec<AttemptRow> {
    let (_, mut slots, _) = desk.rig.db.job(job).await.unwrap().unwrap();
    assert_eq!(slots.len(), 1, "{slots:#?}");
    slots.remove(0).attempts
}

fn fee_of(desk: &Desk<'_>, attempt: &AttemptRow) -> Fee {
    desk.rig.chain.decode_unsigned(&attempt.payload).unwrap().fee
}

/// More than the cap is not offered, whatever the network asks for; what is stuck there is mined when the price falls.
#[test]
fn at_the_cap_the_same_bytes_are_told_until_the_price_falls() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Evm, 1).await;
        let cap = u128::from(desk.rig.row.outbound.price_cap);
        let (id, to) = desk.add(&Coin::Native, 5).await;
        desk.round().await;
        assert_eq!(attempts(&desk, id).await.len(), 1);
        // By far more than the cap, for as many blocks as there will be.
        desk.rig.model(|model, _| model.fee_factor(1_000));
        pass_seconds(&desk, 31);
        assert_eq!(desk.round().await.replaced, 1, "as much as may be offered");
        let at_cap = attempts(&desk, id).await;
        let [_, newest] = at_cap.as_slice() else { panic!("{at_cap:#?}") };
        let Fee::Eip1559 { max_fee, .. } = fee_of(&desk, newest) else { panic!("{newest:#?}") };
        assert_eq!(max_fee, cap);
        let mut told = newest.told.unwrap();
        for _ in 0..4 {
            desk.rig.mine(2);
            pass_seconds(&desk, 31);
            let sent = desk.round().await;
            assert_eq!((sent.replaced, sent.told), (0, 1), "{sent:?}");
            let now = attempts(&desk, id).await;
            assert_eq!(now.len(), 2, "no other attempt: {now:#?}");
            assert_eq!(now[1].signed, newest.signed, "the same bytes");
            assert!(now[1].told.unwrap() > told);
            told = now[1].told.unwrap();
        }
        assert_eq!((desk.state(id).await, desk.paid(&to, &Coin::Native).await), (JobState::Broadcasted, raw(0)));
        // A new one is not even begun at such a price, and says why.
        let (late, unpaid) = desk.add(&Coin::Native, 6).await;
        assert_eq!(desk.round().await.slots, 0);
        let waits = desk.job(late).await.job;
        assert_eq!((waits.state, waits.tries, waits.rounds), (JobState::FailedRetryable, 0, 0), "{waits:#?}");
        assert!(waits.reason.contains("the network asks for a higher price than is allowed"), "{}", waits.reason);

        desk.rig.model(|model, _| model.fee_factor(1));
        desk.pass(7).await;
        assert_eq!((desk.state(id).await, attempts(&desk, id).await.len()), (JobState::Confirmed, 2));
        assert_eq!(desk.paid(&to, &Coin::Native).await, raw(5));
        assert_eq!(desk.paid(&unpaid, &Coin::Native).await, raw(0));
        pass_seconds(&desk, 61);
        desk.pass(7).await;
        assert_eq!(desk.state(late).await, JobState::Confirmed);
        assert_eq!(desk.paid(&unpaid, &Coin::Native).await, raw(6));
        desk.assert_true().await;
    });
}

/// Before EIP-1559: one price, one field. What is stuck offers an eighth more, rounded up, in the same slot and of the same kind.
#[test]
fn a_chain_without_a_base_fee_is_paid_by_its_one_price() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Evm, 1).await;
        let nodes = Bent::without_base_fee(&*desk.rig.chain);
        let round = async || desk.round_with(desk.rig.db, &nodes, "one").await.expect("a good round");
        // They take it and forget it.
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        let mut jobs = Vec::new();
        for (coin, amount) in [(Coin::Native, 5), (desk.rig.token(), 6)] {
            let (id, to) = desk.add(&coin, amount).await;
            jobs.push((id, to, coin, raw(amount)));
        }
        assert_eq!(round().await.slots, 2);
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::None));
        pass_seconds(&desk, 31);
        let sent = round().await;
        assert_eq!(sent.replaced, 1, "the first of its wallet; the one behind it offers enough: {sent:?}");
        for (id, ..) in &jobs {
            for attempt in attempts(&desk, *id).await {
                let (bytes, _) = attempt.signed.clone().unwrap();
                assert!(bytes[0] >= 0xc0, "a list, and no number of a type before it: {bytes:02x?}");
                let signed = desk.rig.chain.decode_signed(&bytes).unwrap();
                assert!(matches!(signed.fee, Fee::Legacy { .. }), "{signed:?}");
            }
        }
        let made = attempts(&desk, jobs[0].0).await;
        let price = |attempt: &AttemptRow| match fee_of(&desk, attempt) {
            Fee::Legacy { gas_price } => gas_price,
            other => panic!("{other:?}"),
        };
        let (before, after) = (price(&made[0]), price(&made[1]));
        assert_eq!(after, before + before.div_ceil(8));
        for _ in 0..8 {
            desk.rig.mine(1);
            round().await;
        }
        for (id, to, coin, amount) in &jobs {
            let job = desk.job(*id).await.job;
            assert_eq!((job.state, job.rounds), (JobState::Confirmed, 1), "{job:#?}");
            assert_eq!(desk.paid(to, coin).await, *amount);
        }
        let mined: Vec<bool> = attempts(&desk, jobs[0].0).await.iter().map(|one| one.mined.is_some()).collect();
        assert_eq!(mined, [false, true], "the one that offered more");
        desk.assert_true().await;
    });
}

/// A vote of the network doubles the price of energy when the transaction is signed and in no block: it pays all the same.
#[test]
fn energy_that_costs_twice_as_much_by_its_block_is_paid_for() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Tron, 1).await;
        let token = desk.rig.token();
        let has = async || desk.paid(&desk.hot(), &Coin::Native).await.to_u256();
        let before = has().await;
        let (usual, paid) = desk.add(&token, 1_000_000).await;
        desk.pass(7).await;
        assert_eq!((desk.state(usual).await, desk.paid(&paid, &token).await), (JobState::Confirmed, raw(1_000_000)));
        let usually = before - has().await;

        let (id, to) = desk.add(&token, 2_000_000).await;
        desk.round().await;
        assert_eq!(desk.state(id).await, JobState::Broadcasted);
        desk.rig.model(|model, _| model.fee_factor(2));
        let before = has().await;
        desk.pass(7).await;
        let (job, slots, _) = desk.rig.db.job(id).await.unwrap().unwrap();
        assert_eq!((job.job.state, job.job.rounds, slots.len()), (JobState::Confirmed, 1, 1), "{job:#?} {slots:#?}");
        assert_eq!(desk.paid(&to, &token).await, raw(2_000_000));
        let cost = before - has().await;
        assert!(cost >= usually + usually, "it was mined at the new price: {cost}, and {usually} before");
        desk.assert_true().await;
    });
}
