//! A chain that parts from ours below the oldest block that is kept: it is halted, people say how far to go back, and what was paid counts once.

use chain::follow::FollowError;
use custody::deposit::{DepositError, DepositWorker};
use devnet::Fate;
use domain::deposit::DepositState;
use domain::{Approval, Clock};
use store::entry::{CursorError, OrderRefusal};
use store::utxo::Hash;
use tx::Coin;

use crate::deposits::{Rig, on_both_loose, states};

/// The worker finds the fork, and says so to people: it writes nothing, and nobody goes on.
async fn halts(rig: &Rig<'_>, worker: &mut DepositWorker<'_>, oldest: u64) {
    let parts = worker.round(&*rig.clock).await;
    let Err(DepositError::Follow(FollowError::ForkTooDeep { oldest: block })) = &parts else { panic!("{parts:?}") };
    assert_eq!(block.height, oldest);
    assert_eq!(parts.unwrap_err().code(), "CHAIN_FORK_TOO_DEEP");
    let why = rig.db.chain_standing(&rig.row).await.unwrap().unwrap().halted.expect("the chain is halted");
    assert!(why.contains(&format!("below block {oldest}")), "{why}");
    let again = worker.round(&*rig.clock).await;
    assert!(matches!(again, Err(DepositError::Cursor(CursorError::Halted { .. }))), "{again:?}");
}

#[test]
fn a_fork_below_what_is_kept_halts_the_chain_until_two_people_take_it_back() {
    on_both_loose(async |rig| {
        let address = rig.address(7).await;
        let mut before = rig.worker("one").await;
        rig.mine(5);
        rig.work(&mut before).await;
        rig.pay(&address, &Coin::Native, 1_000_000);
        rig.mine(4);
        assert_eq!(rig.work(&mut before).await.posted.credited, 1);
        before.leave(rig.clock.now()).await.unwrap();
        let paid = u64::try_from(rig.deposits().await[0].height).unwrap();
        assert_eq!(paid, rig.first + 6);
        // As it is two thousand blocks later: nothing older is kept.
        let oldest = paid - 2;
        rig.db.by_hand(&format!("DELETE FROM chain_blocks WHERE height < {oldest}")).await.unwrap();

        // The block below the oldest is another one as well. The payment is mined again, at another height.
        rig.reorg(rig.height() - oldest + 2, Fate::Moved);
        let mut worker = rig.worker("two").await;
        halts(&rig, &mut worker, oldest).await;
        let findings = rig.db.open_findings(0, 10).await.unwrap();
        let told: Vec<(&str, &str)> = findings.iter().map(|one| (one.kind.as_str(), one.subject.as_str())).collect();
        assert_eq!(told, [("halted", "net")], "{findings:#?}");
        assert_eq!(rig.has(7, "COIN").await, 10_000, "nothing was taken back without people");

        // One person may say that the nodes were wrong. They are not, so it halts again.
        let now = rig.clock.now();
        rig.db.resume_chain(&rig.row, ("ann", "the nodes are mended"), now).await.unwrap().unwrap();
        halts(&rig, &mut worker, oldest).await;

        // Two people say how far. A block that is kept and is another one now is refused; below it what a quorum has is taken.
        let people = Approval::new("ann", "bob", "case 4711").unwrap();
        let to = async |height: u64| {
            let header = rig.chain.headers(&[height]).await.unwrap()[0];
            rig.db.rewind_chain(&rig.row, (height, Hash(header.hash.0)), &people, now).await.unwrap()
        };
        assert_eq!(to(oldest).await, Err(OrderRefusal::PartsBelow { height: oldest }));
        assert!(
            matches!(to(rig.first - 1).await, Err(OrderRefusal::OutOfRange { .. })),
            "the books do not begin there"
        );
        assert_eq!(to(oldest - 2).await, Ok(1), "the payment is taken back");
        let fenced = worker.round(&*rig.clock).await;
        assert!(matches!(fenced, Err(DepositError::Cursor(CursorError::Fenced))), "{fenced:?}");
        let mut after = rig.worker("three").await;
        rig.mine(6);
        let worked = rig.work(&mut after).await;
        assert_eq!((worked.posted.taken_back, worked.posted.credited), (1, 1));
        assert_eq!(rig.has(7, "COIN").await, 10_000);
        let mut ends = states(&rig.deposits().await);
        ends.sort_by_key(|state| *state == DepositState::Final);
        assert_eq!(ends, [DepositState::Reversed, DepositState::Final], "it is credited once");
        rig.assert_true().await;
    });
}
