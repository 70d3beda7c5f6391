//! Node numbers: no two processes have the same one, and without a good lease no id is made.

use std::sync::Arc;

use domain::{Clock, ManualClock};
use store::db_test;
use store::testing::NOW;
use transfer::IdMaker;

async fn lease(db: &store::Db, clock: &Arc<dyn Clock>, holder: &str) -> IdMaker {
    let maker = IdMaker::new(holder.into());
    assert!(maker.renew(db, clock).await.unwrap());
    maker
}

db_test! {
    async fn a_number_is_lent_to_one_at_a_time(db: TestDb) {
        let manual = Arc::new(ManualClock::at(NOW));
        let clock: Arc<dyn Clock> = manual.clone();
        let later = |seconds: i64| manual.set(manual.now().plus_micros(seconds * 1_000_000));
        let one = lease(db, &clock, "one").await;
        let two = lease(db, &clock, "two").await;
        let first = one.next(&*clock).unwrap();
        assert_ne!(first, two.next(&*clock).unwrap());
        // A lease that is renewed in time stays good.
        later(50);
        one.renew(db, &clock).await.unwrap();
        later(50);
        assert!(one.next(&*clock).is_ok());
        assert!(two.next(&*clock).is_err(), "a lease that has run out makes no ids");
        // After its lease has run out, the number goes to another process. The first process borrows a new one.
        later(200);
        let three = lease(db, &clock, "three").await;
        assert!(one.next(&*clock).is_err());
        one.renew(db, &clock).await.unwrap();
        two.renew(db, &clock).await.unwrap();
        let ids = [one.next(&*clock).unwrap(), two.next(&*clock).unwrap(), three.next(&*clock).unwrap()];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        assert!(ids.iter().all(|id| *id > first));
    }

    async fn a_lease_never_gets_shorter(db: TestDb) {
        let manual = Arc::new(ManualClock::at(NOW.plus_micros(200_000_000)));
        let clock: Arc<dyn Clock> = manual.clone();
        let ahead = lease(db, &clock, "ahead").await;
        let made = ahead.next(&*clock).unwrap();
        // Its clock is corrected, it renews its lease once more, and is killed. Its ids are still in the future.
        manual.set(NOW);
        ahead.renew(db, &clock).await.unwrap();
        let last = ahead.next(&*clock).unwrap();
        assert!(last > made);
        let number = ahead.number();
        for (seconds, free) in [(125, false), (199, false), (319, false), (321, true)] {
            manual.set(NOW.plus_micros(seconds * 1_000_000));
            let next = lease(db, &clock, "next").await;
            assert_eq!(next.number() == number, free, "{seconds} s later");
            assert!(!free || next.next(&*clock).unwrap() > last);
        }
    }

    async fn a_number_that_is_given_back_is_lent_again_a_minute_after_its_last_id(db: TestDb) {
        let manual = Arc::new(ManualClock::at(NOW));
        let clock: Arc<dyn Clock> = manual.clone();
        let seconds = |seconds: i64| manual.set(NOW.plus_micros(seconds * 1_000_000));
        let idle = lease(db, &clock, "idle").await;
        let number = idle.number();
        seconds(55);
        idle.give_back(db).await.unwrap();
        assert!(idle.next(&*clock).is_err(), "it has none any more");
        seconds(59);
        assert_ne!(lease(db, &clock, "early").await.number(), number);
        seconds(61);
        let busy = lease(db, &clock, "busy").await;
        assert_eq!(busy.number(), number, "the lease would have ended at 60 s, and its minute at 120 s");
        // It makes an id while its clock is ahead: the number is not lent before that id's time.
        seconds(100);
        let last = busy.next(&*clock).unwrap();
        seconds(70);
        busy.give_back(db).await.unwrap();
        // What another process has taken over meanwhile cannot be given back.
        idle.give_back(db).await.unwrap();
        seconds(159);
        assert_ne!(lease(db, &clock, "early").await.number(), number);
        seconds(161);
        let next = lease(db, &clock, "next").await;
        assert_eq!(next.number(), number);
        assert!(next.next(&*clock).unwrap() > last);
    }
}
