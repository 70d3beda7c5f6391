//! The plain transfer is a fair yardstick only if it does what the design documents say.

use domain::id::Id;
use domain::transfer::State;
use domain::{Amount, AssetId, UserId};
use store::db_test;
use store::testing::NOW;
use store::yardstick::{Direction, PlainTransfer};

const ASSET: AssetId = AssetId(1);

fn transfer(number: i64, direction: Direction, amount: i64) -> PlainTransfer {
    let (id, user) = (Id::new(number).unwrap(), UserId::new(1).unwrap());
    PlainTransfer { id, direction, user, asset: ASSET, amount: Amount::from_units(amount) }
}

db_test! {
    async fn a_plain_transfer_is_six_commits_and_moves_the_money_once(db: TestDb) {
        db.prepare_plain(2, ASSET, Amount::from_units(100)).await.unwrap();
        // Again is no other: what is there stays.
        db.prepare_plain(2, ASSET, Amount::from_units(500)).await.unwrap();
        let mut lines = db.plain_lines(4).await.unwrap();
        let line = lines.last_mut().unwrap();
        let (into, out) = (transfer(1, Direction::FundingToSpot, 60), transfer(2, Direction::SpotToFunding, 60));
        let steps = [State::Init, State::SourcePending, State::SourceDone, State::TargetPending, State::Committed];
        for one in [&into, &out] {
            line.insert(one, NOW).await.unwrap();
            for pair in steps.windows(2) {
                assert!(line.advance(one.id, [pair[0], pair[1]], NOW).await.unwrap());
                assert!(!line.advance(one.id, [pair[0], pair[1]], NOW).await.unwrap(), "a step is taken once");
            }
        }
        assert!(line.insert(&into, NOW).await.is_err(), "an id is used once");
        assert!(line.withdraw(&into).await.unwrap());
        assert!(!line.withdraw(&into).await.unwrap(), "40 are left");
        line.deposit(&out).await.unwrap();
        assert!(line.withdraw(&transfer(3, Direction::FundingToSpot, 100)).await.unwrap(), "all of it is there again");
        assert!(!line.withdraw(&transfer(4, Direction::FundingToSpot, 1)).await.unwrap());
    }
}
