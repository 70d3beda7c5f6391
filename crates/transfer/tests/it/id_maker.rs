//! Node numbers: no two processes have the same one, and without a good lease no id is made.

use std::sync::Arc;

use domain::{Clock, ManualClock};
use store::db_test;
use store::testing::NOW;
use transfer::IdMaker;

db_test! {
    async fn a_number_is_lent_to_one_at_a_time(db: TestDb) {
        let manual = Arc::new(ManualClock::at(NOW));
        let clock: Arc<dyn Clock> = manual.clone();
        let later = |seconds: i64| manual.set(manual.now().plus_micros(seconds * 1_000_000));
        let one = IdMaker::lease(db, clock.clone(), "one".into()).await.unwrap().unwrap();
        let two = IdMaker::lease(db, clock.clone(), "two".into()).await.unwrap().unwrap();
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
        let three = IdMaker::lease(db, clock.clone(), "three".into()).await.unwrap().unwrap();
        assert!(one.next(&*clock).is_err());
        one.renew(db, &clock).await.unwrap();
        two.renew(db, &clock).await.unwrap();
        let ids = [one.next(&*clock).unwrap(), two.next(&*clock).unwrap(), three.next(&*clock).unwrap()];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
        assert!(ids.iter().all(|id| *id > first));
    }
}
