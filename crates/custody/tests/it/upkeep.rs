//! A wallet keeps itself in order: leases that ended go, and what an operator watches is there.

use custody::bitcoin::{Sweeps, Upkeep};
use store::db_test;
use store::testing::NOW;
use store::utxo::{Block, Hash, LeaseStat, LockId, Network, NewAddress, NewOutput, NewTx, OutPoint, Paths, UtxoError};

use crate::world::script_of;

const SECOND: i64 = 1_000_000;

fn coin(index: u32) -> OutPoint {
    OutPoint { hash: Hash([1; 32]), index }
}

db_test! {
    async fn ended_leases_are_swept_by_themselves(db: TestDb) {
        let upkeep = Upkeep::default();
        upkeep.round(db, None, NOW).await.unwrap();
        assert_eq!(upkeep.standing(), None, "there is no wallet");
        let wallet = db.create_wallet("hot", Network::Regtest, NOW).await.unwrap();
        let kind = store::utxo::AddressKind::P2wpkh;
        let ours = NewAddress { account: 0, path: None, kind, script: script_of(0, kind) };
        db.add_addresses(wallet, std::slice::from_ref(&ours), Paths::Exact, NOW).await.unwrap();
        let outputs = vec![NewOutput { script: ours.script, amount: 1_000 }; 3];
        let inputs = vec![OutPoint { hash: Hash([9; 32]), index: 0 }];
        let deposit = NewTx { hash: Hash([1; 32]), raw: vec![1], coinbase: false, inputs, outputs };
        let block = Block { height: 7, hash: Hash([7; 32]), parent: Hash([6; 32]), time: 0 };
        db.connect_block(&block, &[deposit], NOW).await.unwrap();
        for (index, seconds) in [(0, 10), (1, 20), (2, 500)] {
            let until = NOW.plus_micros(seconds * SECOND);
            db.lease(wallet, &[coin(index)], LockId([7; 32]), until, NOW).await.unwrap();
        }
        // Two have ended by our clock. Another's may be behind it, so they stay for a minute.
        let now = NOW.plus_micros(60 * SECOND);
        upkeep.round(db, None, now).await.unwrap();
        let standing = upkeep.standing().expect("a wallet");
        let oldest_end = Some(NOW.plus_micros(10 * SECOND));
        assert_eq!(standing.leases, LeaseStat { active: 1, ended: 2, oldest_end, ..LeaseStat::default() });
        assert_eq!((standing.sweeps, standing.unspent), (Sweeps::default(), 3));
        let now = NOW.plus_micros(81 * SECOND);
        upkeep.round(db, None, now).await.unwrap();
        let standing = upkeep.standing().expect("a wallet");
        assert_eq!(standing.leases, LeaseStat { active: 1, ..LeaseStat::default() });
        assert_eq!(standing.sweeps, Sweeps { swept: 2, latency_micros: 71 * SECOND });
        assert!(standing.rows_made.iter().any(|one| one.table == "utxos" && one.rows == 3), "{standing:?}");
        // Whoever holds one still holds it.
        let rival = db.lease(wallet, &[coin(2)], LockId([8; 32]), now, now).await;
        assert!(matches!(&rival, Err(UtxoError::Refused(refusal)) if refusal.code() == "UTXO_LEASED"), "{rival:?}");
        // A database that cannot be read leaves no old numbers behind.
        db.by_hand("ALTER TABLE utxo_leases RENAME TO elsewhere").await.unwrap();
        assert!(upkeep.round(db, None, now).await.is_err());
        assert_eq!(upkeep.standing(), None);
    }
}
