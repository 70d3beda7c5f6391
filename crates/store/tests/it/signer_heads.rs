//! The newest head of a signer's log: it never goes back, whoever writes it and in whatever order.

use store::grants::DatabaseRole;
use store::signer_head::SignerHead;
use store::testing::{NOW, on};
use store::{Engine, db_test};

fn head(entries: u64, hash: &str) -> SignerHead {
    SignerHead { entries, hash: hash.repeat(64), proof: entries.is_multiple_of(2).then(|| "a".repeat(64)) }
}

db_test! {
    async fn the_newest_head_stays_whatever_comes_later(db: TestDb) {
        assert_eq!(db.signer_head("one").await.unwrap(), None);
        assert_eq!(db.keep_signer_head("one", &head(5, "b"), NOW).await.unwrap(), head(5, "b"));
        // An answer that was under way for longer, and the same number with another hash: the first stays, and is told.
        for (later, stays) in [(head(4, "c"), head(5, "b")), (head(5, "d"), head(5, "b")), (head(8, "e"), head(8, "e"))] {
            assert_eq!(db.keep_signer_head("one", &later, NOW).await.unwrap(), stays);
            assert_eq!(db.signer_head("one").await.unwrap(), Some(stays));
        }
        // Another signer has its own.
        assert_eq!(db.signer_head("two").await.unwrap(), None);
        db.keep_signer_head("two", &head(1, "f"), NOW).await.unwrap();
        assert_eq!(db.signer_head("one").await.unwrap(), Some(head(8, "e")));
        assert_eq!(db.keep_signer_head("two", &head(u64::MAX, "f"), NOW).await.unwrap_err().code(), "BOOKS_BROKEN");
    }

    /// Nor by hand: a row that is put back would let a log pass that was put back.
    async fn a_head_only_grows_whoever_writes_it(db: TestDb) {
        db.keep_signer_head("one", &head(8, "e"), NOW).await.unwrap();
        for change in ["entries = 7", "entries = 0", "hash = 'other'", "proof = NULL", "updated_at = 0", "name = 'two', entries = 9"] {
            assert!(db.by_hand(&format!("UPDATE signer_heads SET {change}")).await.is_err(), "{change}");
        }
        assert_eq!(db.signer_head("one").await.unwrap(), Some(head(8, "e")));
        assert_eq!(db.keep_signer_head("one", &head(9, "f"), NOW).await.unwrap(), head(9, "f"));
    }

    async fn many_servers_at_once_keep_the_newest(db: TestDb) {
        let keep = |entries: u64| {
            let db = db.db.clone();
            tokio::spawn(async move { db.keep_signer_head("one", &head(entries, "b"), NOW).await.unwrap() })
        };
        let tasks: Vec<_> = (1..=32).map(|number| keep(number * 7 % 33)).collect();
        for task in tasks {
            assert!(task.await.unwrap().entries > 0);
        }
        assert_eq!(db.signer_head("one").await.unwrap().unwrap().entries, 32);
    }
}

/// `bursar withdrawal judge` keeps what the signer says after a restore, when no worker has done so: its people may.
#[test]
fn postgres_who_judges_may_keep_what_the_signer_says() {
    on(Engine::Postgres, async |db| {
        db.with_roles().await;
        for (entries, role) in [(5, DatabaseRole::Operator), (6, DatabaseRole::Administrator), (7, DatabaseRole::Api)] {
            let kept = db.of(role).keep_signer_head("one", &head(entries, "b"), NOW).await;
            assert_eq!(kept.unwrap(), head(entries, "b"), "{}", role.name());
        }
    });
}
