//! Slots that are not as they should be, on the devnets of EVM and TRON: one that the signer refused leaves a gap, coins are there for one job of
//! two, and people have not approved. What was paid is asked of the chain.

use std::sync::atomic::Ordering;

use devnet::BroadcastFault;
use domain::outbound::{JobKind, JobState};
use domain::{Approval, ChainKind, Clock, WalletRole};
use store::Engine;
use store::outbound::read::{JobReply, JobVerdict};
use store::outbound::{Added, AttemptKind, JobId, LaneId, NewJob, OpenSlot, Payer, SignedAs, SlotsRead};
use store::testing::on;
use tx::{Address, Coin, Payment, Slot};

use crate::deposits::raw;
use crate::outbound::Desk;
use crate::withdrawals::careful;

/// A job that lives so many hours. The signer's policy allows 48.
async fn add_for(desk: &Desk<'_>, amount: u64, hours: i64) -> (JobId, Address) {
    let to = desk.fresh();
    let now = desk.rig.clock.now();
    let job = NewJob {
        id: desk.ids.next().unwrap(),
        listing: desk.rig.row.listings.iter().find(|one| one.symbol.as_str() == "COIN").unwrap().id,
        kind: JobKind::Withdrawal,
        reference: to.to_string(),
        to: to.to_string(),
        owner: None,
        amount: raw(amount),
        most_fee: desk.rig.row.outbound.fee_cap,
        priority: JobKind::Withdrawal.priority(),
        requester: "alice".to_owned(),
        expires: now.plus_micros(hours * 3_600 * 1_000_000),
        payer: Payer::Role(WalletRole::Hot),
    };
    let added = desk.rig.db.add_jobs(desk.rig.row.id, std::slice::from_ref(&job), now).await.unwrap();
    assert!(matches!(added.as_slice(), [Added::New { .. }]), "{added:?}");
    (job.id, to)
}

fn pass_seconds(desk: &Desk<'_>, seconds: i64) {
    desk.rig.clock.set(desk.rig.clock.now().plus_micros(seconds * 1_000_000));
}

/// Nothing was signed for the lower of two nonces, so the higher one could never be mined. A payment of nothing to oneself takes the lower one.
#[test]
fn a_gap_that_a_refused_slot_leaves_is_filled_by_a_payment_of_nothing() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Evm, 1).await;
        let (bad, unpaid) = add_for(&desk, 5, 100).await;
        let (good, paid) = add_for(&desk, 6, 24).await;
        let sent = desk.round().await;
        assert_eq!((sent.slots, sent.signed, sent.refused), (2, 1, 1), "{sent:?}");
        let refused = desk.job(bad).await.job;
        assert_eq!(refused.state, JobState::FailedRetryable);
        assert!(refused.reason.contains("the signer refused"), "{}", refused.reason);
        assert_eq!(desk.state(good).await, JobState::Broadcasted);
        let lane = desk.rig.db.lanes(None, None, 0, 9).await.unwrap()[0].lane.id;
        let open = async || desk.rig.db.open_slots_of(&[lane], SlotsRead::All).await.unwrap();
        let nonces: Vec<Option<u64>> = open().await.iter().map(|slot| slot.nonce).collect();
        assert_eq!(nonces, [Some(1)], "nobody has the lower one");
        // No block takes the higher one alone.
        desk.rig.mine(1);
        assert_eq!(desk.paid(&paid, &Coin::Native).await, raw(0));

        let sent = desk.round().await;
        assert_eq!((sent.slots, sent.signed, sent.told), (1, 1, 1), "{sent:?}");
        let mut slots = open().await;
        slots.sort_by_key(|slot| slot.nonce);
        let [filler, _] = slots.as_slice() else { panic!("{slots:#?}") };
        assert!(filler.jobs.is_empty(), "{filler:#?}");
        let meaning = desk.rig.chain.decode_unsigned(&filler.attempts[0].payload).unwrap();
        let nothing = Payment { to: desk.hot(), coin: Coin::Native, amount: raw(0) };
        assert_eq!((meaning.slot, meaning.payments), (Slot::Nonce(0), vec![nothing]));

        desk.pass(7).await;
        let confirmed = desk.job(good).await;
        assert_eq!((confirmed.job.state, confirmed.lane_stopped), (JobState::Confirmed, None));
        assert_eq!(desk.paid(&paid, &Coin::Native).await, raw(6));
        let nonces = desk.rig.chain.nonces(&[desk.hot()]).await.unwrap()[0];
        assert_eq!(nonces.mined, 2, "the payment, and the one of nothing");
        // The signer never pays the other one. It takes no slot for good, and ends by itself.
        for _ in 0..8 {
            pass_seconds(&desk, 20 * 60);
            desk.rig.mine(6);
            desk.pass(1).await;
        }
        let refused = desk.job(bad).await.job;
        assert_eq!((refused.state, refused.tries), (JobState::FailedFinal, 5), "{refused:#?}");
        assert_eq!(desk.paid(&unpaid, &Coin::Native).await, raw(0));
        let lanes = desk.rig.db.lanes(None, None, 0, 9).await.unwrap();
        assert_eq!(lanes.iter().map(|lane| lane.open + lane.waiting).sum::<u64>(), 0, "every slot has come to its end");
        desk.assert_true().await;
    });
}

/// What the first payment may still take is not counted on for the second, whichever round asks.
#[test]
fn of_two_jobs_with_coins_for_one_the_other_waits_for_coins() {
    for kind in [ChainKind::Evm, ChainKind::Tron] {
        on(Engine::Sqlite, async |db| {
            let desk = Desk::start(db, kind, 1).await;
            // The wallet has five of these.
            let unit = if kind == ChainKind::Evm { 1_000_000_000_000_000_000 } else { 1_000_000_000 };
            let (first, paid) = desk.add(&Coin::Native, 3 * unit).await;
            let (second, waits) = desk.add(&Coin::Native, 3 * unit + 1).await;
            let sent = desk.round().await;
            assert_eq!((sent.slots, sent.put_off), (1, 1), "{sent:?}");
            // It is asked again while the first is in no block: the chain still shows all five.
            pass_seconds(&desk, 31);
            let sent = desk.round().await;
            assert_eq!((sent.slots, sent.put_off), (0, 1), "{sent:?}");
            assert_eq!(desk.state(first).await, JobState::Broadcasted);
            let (job, slots, _) = desk.rig.db.job(second).await.unwrap().unwrap();
            assert_eq!((job.job.state, job.job.tries, slots.len()), (JobState::FailedRetryable, 2, 0), "{job:#?}");
            let why = &job.job.reason;
            assert!(why.contains("its wallet has") && why.contains("of the chain's coin to spare"), "{why}");
            desk.pass(2).await;
            assert_eq!(desk.paid(&paid, &Coin::Native).await, raw(3 * unit));
            assert_eq!(desk.paid(&waits, &Coin::Native).await, raw(0));
            // Coins come.
            desk.rig.pay(&desk.hot(), &Coin::Native, 2 * unit);
            desk.rig.mine(1);
            pass_seconds(&desk, 61);
            desk.pass(8).await;
            for (job, to, amount) in [(first, &paid, 3 * unit), (second, &waits, 3 * unit + 1)] {
                let shown = desk.job(job).await;
                assert_eq!((shown.job.state, shown.job.rounds), (JobState::Confirmed, 1), "{shown:#?}");
                assert_eq!(desk.paid(to, &Coin::Native).await, raw(amount));
            }
            desk.assert_true().await;
        });
    }
}

/// No slot is kept for it, no try is counted, and nobody behind it waits.
#[test]
fn a_job_above_what_the_signer_pays_waits_for_people() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::with_policy(db, ChainKind::Evm, 1, careful).await;
        let (waits, unpaid) = desk.add(&desk.rig.token(), 5).await;
        let (behind, paid) = desk.add(&Coin::Native, 6).await;
        desk.round().await;
        for _ in 0..6 {
            let job = desk.job(waits).await.job;
            assert_eq!((job.state, job.tries, job.rounds), (JobState::FailedRetryable, 0, 0), "{job:#?}");
            let why = &job.reason;
            assert!(why.starts_with("the signer refused: 0 of 2 approvals"), "{why}");
            pass_seconds(&desk, 61);
            desk.pass(2).await;
        }
        assert_eq!((desk.state(behind).await, desk.paid(&paid, &Coin::Native).await), (JobState::Confirmed, raw(6)));
        assert_eq!(desk.paid(&unpaid, &desk.rig.token()).await, raw(0));
        desk.assert_true().await;
    });
}

async fn lane(desk: &Desk<'_>) -> LaneId {
    desk.rig.db.lanes(None, None, 0, 9).await.unwrap()[0].lane.id
}

async fn resume(desk: &Desk<'_>) {
    let people = Approval::new("ann", "bob", "we looked").unwrap();
    assert!(desk.rig.db.resume_lane(lane(desk).await, &people, desk.rig.clock.now()).await.unwrap());
}

/// The wallet is stopped, and says whose its next nonce is.
async fn assert_held(desk: &Desk<'_>, waits: JobId, by: JobId) {
    let shown = desk.job(waits).await;
    let why = shown.lane_stopped.unwrap_or_default();
    assert!(why.contains("SIGNER_SLOT_TAKEN") && why.contains(&by.to_string()), "{why}");
}

/// The slot that cancels what holds the nonce.
async fn cancel_of(desk: &Desk<'_>, nonce: u64) -> OpenSlot {
    let open = desk.rig.db.open_slots_of(&[lane(desk).await], SlotsRead::All).await.unwrap();
    let slot = open.into_iter().find(|slot| slot.nonce == Some(nonce)).expect("a slot");
    assert!(slot.jobs.is_empty() && matches!(slot.attempts[0].kind, AttemptKind::Cancel(_)), "{slot:#?}");
    slot
}

async fn assert_nothing_open(desk: &Desk<'_>) {
    let lanes = desk.rig.db.lanes(None, None, 0, 9).await.unwrap();
    assert_eq!(lanes.iter().map(|lane| lane.open + lane.waiting).sum::<u64>(), 0, "{lanes:#?}");
}

/// The signer has signed and its answer was lost; people stopped the wallet and judged the payout unpaid, so that no row says whose its nonce is. Whatever
/// comes next to that nonce stops the wallet. When two people let it go on, a cancel of the judged payout takes the nonce, and the wallet pays again.
#[test]
fn a_nonce_that_was_signed_for_what_people_have_judged_goes_to_its_cancel() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Evm, 1).await;
        let (judged, unpaid) = desk.add(&Coin::Native, 5).await;
        desk.pen.loses.store(true, Ordering::Relaxed);
        desk.round().await;
        desk.pen.loses.store(false, Ordering::Relaxed);
        assert_eq!(desk.state(judged).await, JobState::Signing);
        db.stop_lane(lane(&desk).await, "a test", desk.rig.clock.now()).await.unwrap();
        let people = Approval::new("ann", "bob", "it was not paid").unwrap();
        let said = db.judge_job(judged, JobVerdict::Unpaid, &people, desk.rig.clock.now()).await.unwrap();
        assert_eq!(said, JobReply::Done);
        resume(&desk).await;
        let (next, paid) = desk.add(&Coin::Native, 6).await;
        desk.round().await;
        assert_held(&desk, next, judged).await;
        // Nobody but people lets it go on, and nothing of it is sent.
        desk.pass(3).await;
        assert_held(&desk, next, judged).await;
        assert_eq!(desk.state(next).await, JobState::Signing);
        resume(&desk).await;
        desk.round().await;
        let cancel = cancel_of(&desk, 0).await;
        assert_eq!(cancel.holder, Some(SignedAs::Job(judged)), "{cancel:#?}");
        assert!(cancel.attempts[0].told.is_some(), "{cancel:#?}");
        desk.pass(8).await;
        let shown = desk.job(next).await;
        assert_eq!((shown.job.state, shown.job.rounds, shown.job.tries), (JobState::Confirmed, 1, 0), "{shown:#?}");
        assert_eq!(shown.lane_stopped, None);
        assert_eq!(desk.paid(&paid, &Coin::Native).await, raw(6));
        assert_eq!(desk.paid(&unpaid, &Coin::Native).await, raw(0));
        assert_eq!(desk.rig.chain.nonces(&[desk.hot()]).await.unwrap()[0].mined, 2, "the cancel and the payment");
        assert_nothing_open(&desk).await;
        desk.assert_true().await;
    });
}

/// A database that is older than its signer: the next nonce is signed for a payout that no row knows. Its bytes come to the nodes too late, or before its cancel.
/// Each is paid at most once, and what came next is paid by another nonce.
#[test]
fn a_nonce_that_was_signed_for_what_no_row_knows_goes_to_its_cancel() {
    for comes_first in [false, true] {
        on(Engine::Sqlite, async |db| {
            let desk = Desk::start(db, ChainKind::Evm, 1).await;
            let (bytes, theirs, forgotten) = desk.forgotten(0);
            let (next, paid) = desk.add(&Coin::Native, 6).await;
            desk.round().await;
            assert_held(&desk, next, forgotten).await;
            if comes_first {
                desk.rig.chain.broadcast(&bytes).await.unwrap();
                desk.rig.mine(1);
            }
            resume(&desk).await;
            desk.round().await;
            assert_eq!(cancel_of(&desk, 0).await.holder, Some(SignedAs::Job(forgotten)));
            desk.pass(1).await;
            if !comes_first {
                // No node takes a nonce again that a block has used.
                desk.rig.chain.broadcast(&bytes).await.unwrap();
            }
            desk.pass(9).await;
            if comes_first {
                // The payment that no row knows has used the nonce of a slot: that is for people, as always.
                let why = desk.job(next).await.lane_stopped.unwrap_or_default();
                assert!(why.contains("none that this database knows"), "{why}");
                resume(&desk).await;
                desk.pass(8).await;
            }
            let shown = desk.job(next).await;
            assert_eq!((shown.job.state, shown.lane_stopped), (JobState::Confirmed, None));
            assert_eq!(desk.paid(&paid, &Coin::Native).await, raw(6));
            assert_eq!(desk.paid(&theirs, &Coin::Native).await, raw(if comes_first { 9 } else { 0 }));
            assert_eq!(desk.rig.chain.nonces(&[desk.hot()]).await.unwrap()[0].mined, 2);
            assert_nothing_open(&desk).await;
            if !comes_first {
                desk.assert_true().await;
            }
        });
    }
}

/// The same of a gap: what is to fill it is asked for again as the cancel of what the signer has signed there, and what waits behind is mined.
#[test]
fn a_gap_that_was_signed_for_what_no_row_knows_is_filled_by_its_cancel() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Evm, 1).await;
        let (_, unpaid) = add_for(&desk, 5, 100).await;
        let (good, paid) = add_for(&desk, 6, 24).await;
        let sent = desk.round().await;
        assert_eq!((sent.slots, sent.signed, sent.refused), (2, 1, 1), "{sent:?}");
        let (bytes, theirs, forgotten) = desk.forgotten(0);
        desk.round().await;
        assert_held(&desk, good, forgotten).await;
        resume(&desk).await;
        desk.round().await;
        assert_eq!(cancel_of(&desk, 0).await.holder, Some(SignedAs::Job(forgotten)));
        desk.pass(1).await;
        desk.rig.chain.broadcast(&bytes).await.unwrap();
        desk.pass(7).await;
        let shown = desk.job(good).await;
        assert_eq!((shown.job.state, shown.lane_stopped), (JobState::Confirmed, None));
        for (to, amount) in [(&paid, 6), (&unpaid, 0), (&theirs, 0)] {
            assert_eq!(desk.paid(to, &Coin::Native).await, raw(amount));
        }
        desk.assert_true().await;
    });
}

/// A job that is to be tried again, and that cannot leave the slot where it was: people are told, and nothing waits behind it in silence.
#[test]
fn a_job_whose_slot_before_cannot_be_cancelled_stops_its_wallet_with_a_word() {
    on(Engine::Sqlite, async |db| {
        let desk = Desk::start(db, ChainKind::Evm, 1).await;
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::Drop));
        let (again, _) = desk.add(&Coin::Native, 5).await;
        desk.round().await;
        desk.rig.model(|model, _| model.broadcasts(BroadcastFault::None));
        // Somebody else has the key, and uses the nonce.
        desk.rig.chain.broadcast(&desk.stolen(0)).await.unwrap();
        desk.pass(8).await;
        let people = Approval::new("ann", "bob", "the thief is gone").unwrap();
        let said = db.judge_job(again, JobVerdict::Again, &people, desk.rig.clock.now()).await.unwrap();
        assert_eq!(said, JobReply::Done);
        // Its row makes no sense any more.
        db.by_hand("DROP TRIGGER trg_outbound_slot_fixed").await.unwrap();
        db.by_hand("UPDATE outbound_slots SET nonce = NULL WHERE state = 'settled'").await.unwrap();
        let (_, behind) = desk.add(&Coin::Native, 6).await;
        resume(&desk).await;
        // Until nothing remembers what the thief has paid for gas, and the job is tried again.
        for _ in 0..3 {
            pass_seconds(&desk, 3_600);
            desk.rig.mine(10);
            desk.round().await;
        }
        let (shown, slots, _) = db.job(again).await.unwrap().unwrap();
        let why = shown.lane_stopped.clone().unwrap_or_default();
        assert!(why.contains(&again.to_string()) && why.contains("cannot be cancelled"), "{shown:#?} {slots:#?}");
        let open = db.open_findings(0, 100).await.unwrap();
        assert!(open.iter().any(|one| one.kind == "lane_stopped" && one.detail == why), "{open:#?}");
        assert_eq!(desk.paid(&behind, &Coin::Native).await, raw(0));
    });
}
