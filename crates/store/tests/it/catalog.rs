//! Settings change whole or not at all, and never under live money.

use domain::{Amount, AssetOnChain, Availability};
use store::catalog::{Catalog, CatalogError, read_catalog};
use store::testing::{NOW, on};
use store::{Engine, db_test};

use crate::support::*;

fn usdt() -> domain::Symbol {
    "USDT".parse().expect("a symbol")
}

db_test! {
    async fn what_is_applied_reads_back_and_applies_again_as_nothing(db: TestDb) {
        let wanted = catalog();
        let planned = db.plan_catalog(&wanted).await.unwrap();
        let applied = db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap();
        assert_eq!(planned, applied);
        assert!(applied.iter().all(|change| change.before.is_none()));
        assert_eq!(read_catalog(&mut db.read().await.unwrap()).await.unwrap(), wanted);
        assert!(db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap().is_empty());
        // What a file leaves out stays.
        assert!(db.apply_catalog(&Catalog::default(), &AUTHOR, NOW).await.unwrap().is_empty());
        assert_eq!(read_catalog(&mut db.read().await.unwrap()).await.unwrap(), wanted);
    }

    async fn a_change_says_field_before_and_after(db: TestDb) {
        let mut wanted = catalog();
        db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap();
        let asset = wanted.assets.get_mut(&usdt()).unwrap();
        asset.status = Availability::Suspended;
        asset.transfer.min = Amount::from_units(2_500_000);
        let changes = db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap();
        let shown: Vec<String> = changes.iter().map(|change| {
            format!("{} {}: {} -> {}", change.entity, change.field, change.before.as_deref().unwrap_or("-"), change.after)
        }).collect();
        assert_eq!(shown, ["asset USDT status: active -> suspended", "asset USDT min_transfer: 0.000001 -> 2.500000"]);
    }

    async fn what_gives_amounts_their_meaning_stands_still_in_use(db: TestDb) {
        let wanted = catalog();
        db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap();
        let changed = |change: &dyn Fn(&mut Catalog)| { let mut other = wanted.clone(); change(&mut other); other };
        let precision = domain::Precision::new(4).unwrap();
        let coarser = changed(&|other| other.assets.get_mut(&usdt()).unwrap().precision = precision);
        let moved = changed(&|other| other.chains.get_mut(&"bsc".parse().unwrap()).unwrap().network = "97".into());
        let other_contract = changed(&|other| {
            let listing = other.listings.get_mut(&(usdt(), "bsc".parse().unwrap())).unwrap();
            listing.form = AssetOnChain::new(domain::Precision::new(6).unwrap(), 18, Some("0xother".into())).unwrap();
        });
        // Nobody holds any yet.
        db.plan_catalog(&coarser).await.unwrap();
        Bank::open(db, 1, 0).await;
        for (other, field) in [(&coarser, "precision"), (&moved, "network"), (&other_contract, "contract")] {
            let error = db.apply_catalog(other, &AUTHOR, NOW).await.unwrap_err();
            assert!(matches!(&error, CatalogError::InUse { field: found, .. } if *found == field), "{error:?}");
        }
        assert_eq!(read_catalog(&mut db.read().await.unwrap()).await.unwrap(), wanted, "nothing half-written");
    }

    async fn a_new_precision_needs_its_listings_said_anew(db: TestDb) {
        let mut wanted = catalog();
        db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap();
        let precision = domain::Precision::new(4).unwrap();
        wanted.assets.get_mut(&usdt()).unwrap().precision = precision;
        let mut left_out = wanted.clone();
        left_out.listings.clear();
        for error in [
            db.plan_catalog(&left_out).await.unwrap_err(),
            db.apply_catalog(&left_out, &AUTHOR, NOW).await.unwrap_err(),
        ] {
            assert_eq!(error.code(), "LISTING_LEFT_OUT");
        }
        let listing = wanted.listings.get_mut(&(usdt(), "bsc".parse().unwrap())).unwrap();
        listing.form = AssetOnChain::new(precision, 18, listing.form.contract().map(str::to_owned)).unwrap();
        let changes = db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap();
        let deposit = changes.iter().find(|change| change.field == "min_deposit").unwrap();
        assert_eq!((deposit.before.as_deref(), deposit.after.as_str()), (Some("0.000001"), "0.0001"));
        assert_eq!(read_catalog(&mut db.read().await.unwrap()).await.unwrap(), wanted);
    }

    async fn what_the_house_moved_is_in_use_too(db: TestDb) {
        let bank = Bank::open(db, 0, 0).await;
        assert_all_applied(&db.post(&[bank.post("p", &[(bank.custody, bank.clearing, 5)])], NOW).await.unwrap());
        let mut wanted = catalog();
        wanted.assets.get_mut(&usdt()).unwrap().precision = domain::Precision::new(4).unwrap();
        assert_eq!(db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap_err().code(), "SETTING_IN_USE");
    }

    async fn a_listing_of_nothing_is_refused(db: TestDb) {
        let mut wanted = catalog();
        wanted.assets.remove(&usdt());
        assert_eq!(db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap_err().code(), "INVALID_ASSET");
        let mut wanted = catalog();
        wanted.chains.clear();
        assert_eq!(db.apply_catalog(&wanted, &AUTHOR, NOW).await.unwrap_err().code(), "INVALID_CHAIN");
        assert_eq!(read_catalog(&mut db.read().await.unwrap()).await.unwrap(), Catalog::default());
    }
}

/// An account that is just being opened counts: the change waits for it, and is then refused.
#[test]
fn postgres_a_change_waits_for_an_account_that_is_being_opened() {
    on(Engine::Postgres, async |db| {
        let bank = Bank::open(db, 0, 0).await;
        let mut wanted = catalog();
        wanted.assets.get_mut(&usdt()).unwrap().precision = domain::Precision::new(4).unwrap();
        db.plan_catalog(&wanted).await.expect("nobody has an account yet");
        let mut opener = db.tries();
        let mut tx = opener.begin().await.unwrap();
        let account = store::ledger::NewAccount::funding(domain::UserId::new(7).unwrap(), bank.usdt);
        store::ledger::open(&mut tx, &[account], NOW).await.unwrap();
        let change = {
            let db = db.db.clone();
            tokio::spawn(async move { db.apply_catalog(&wanted, &AUTHOR, NOW).await })
        };
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert!(!change.is_finished());
        opener.end(tx, Ok(())).await.unwrap().unwrap();
        assert_eq!(change.await.unwrap().unwrap_err().code(), "SETTING_IN_USE");
    });
}
