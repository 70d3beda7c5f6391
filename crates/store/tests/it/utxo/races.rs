//! Two that want the same output at once on PostgreSQL, interrupted at every point: one of them gets it.

use store::testing::races::{Shell, meet};
use store::testing::{NOW, drop_database, fresh, on};
use store::utxo::*;
use store::{Db, Engine};

use super::candidates::want;
use super::lease::{MINUTE, first, funded, lock};
use super::stage::*;

/// No piece of writing has more points than this.
const MOST_POINTS: i64 = 80;

fn number(at: i64) -> u32 {
    u32::try_from(at).unwrap()
}

#[test]
fn postgres_of_two_selections_of_the_last_output_one_gets_it() {
    on(Engine::Postgres, async |db| {
        let (stage, _) = funded(db, 1).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let select = async |db: Db, holder| {
            db.select_and_lease(wallet, 0, &want(Allow::default()), lock(holder), until, now, first(1)).await.unwrap()
        };
        for at in 0.. {
            let met = meet(db, at, async |db| select(db, 1).await, async |db| select(db, 2).await).await;
            let got = [&met.first, &met.second].iter().filter(|coins| coins.is_some()).count();
            assert_eq!(got, 1, "point {at}: {met:?}");
            for holder in [1, 2] {
                db.release(wallet, lock(holder)).await.unwrap();
            }
            if !met.reached {
                break;
            }
        }
        stage.assert_checked().await;
    });
}

#[test]
fn postgres_of_two_leases_of_an_output_one_stands() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, 1).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let lease = async |db: Db, holder| db.lease(wallet, &[output(&coins, 0)], lock(holder), until, now).await;
        for at in 0.. {
            let met = meet(db, at, async |db| lease(db, 1).await, async |db| lease(db, 2).await).await;
            let (winner, loser) = if met.first.is_ok() { (1, &met.second) } else { (2, &met.first) };
            let error = loser.as_ref().expect_err("one of them is refused");
            assert_eq!(error.code(), "UTXO_LEASED", "point {at}: {met:?}");
            assert_eq!(db.release(wallet, lock(winner)).await.unwrap(), 1, "point {at}");
            if !met.reached {
                break;
            }
        }
    });
}

/// Either way round: what is leased is not spent by another, and what is spent is not leased.
#[test]
fn postgres_an_output_is_either_leased_or_spent() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, 2 * MOST_POINTS).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let lease = async |db: Db, index| db.lease(wallet, &[output(&coins, index)], lock(1), until, now).await;
        let spend = async |db: Db, index: u32| {
            let payment = tx(&format!("payment {index}"), &[output(&coins, index)], &[(foreign_script(), 900)]);
            db.add_pending(wallet, &payment, None, now).await
        };
        let (mut ends, mut index) = ([false; 2], 0);
        for at in 0.. {
            for (which, ended) in ends.iter_mut().enumerate() {
                let (leased, spent, reached) = if which == 0 {
                    let met = meet(db, at, async |db| lease(db, index).await, async |db| spend(db, index).await).await;
                    (met.first, met.second, met.reached)
                } else {
                    let met = meet(db, at, async |db| spend(db, index).await, async |db| lease(db, index).await).await;
                    (met.second, met.first, met.reached)
                };
                match (&leased, &spent) {
                    (Ok(()), Err(error)) => assert_eq!(error.code(), "UTXO_LEASED", "point {at}"),
                    (Err(error), Ok(_)) => assert_eq!(error.code(), "UTXO_NOT_SPENDABLE", "point {at}"),
                    _ => panic!("point {at}: leased {leased:?} and spent {spent:?}"),
                }
                *ended |= !reached;
                index += 1;
            }
            if ends == [true; 2] {
                break;
            }
        }
        stage.assert_checked().await;
    });
}

#[test]
fn postgres_of_two_payments_with_an_output_one_is_taken() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, MOST_POINTS).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        for at in 0.. {
            let spend = async |db: Db, name: &str| {
                let name = format!("{name} {at}");
                let payment = tx(&name, &[output(&coins, number(at))], &[(foreign_script(), 900)]);
                db.add_pending(wallet, &payment, None, now).await
            };
            let met = meet(db, at, async |db| spend(db, "one").await, async |db| spend(db, "two").await).await;
            let refused: Vec<_> = [&met.first, &met.second].into_iter().filter_map(|one| one.as_ref().err()).collect();
            assert_eq!(refused.len(), 1, "point {at}: {met:?}");
            assert_eq!(refused[0].code(), "UTXO_CONFLICT", "point {at}: {met:?}");
            if !met.reached {
                break;
            }
        }
        stage.assert_checked().await;
    });
}

#[test]
fn postgres_two_first_wallets_are_on_one_network() {
    on(Engine::Postgres, async |_| {
        for at in 0.. {
            let db = &fresh(Engine::Postgres).await;
            db.migrate(NOW).await.unwrap();
            let make = async |db: Db, name, network| db.create_wallet(name, network, NOW).await;
            let met = meet(
                db,
                at,
                async |db| make(db, "one", Network::Regtest).await,
                async |db| make(db, "two", Network::Bitcoin).await,
            )
            .await;
            let made = [&met.first, &met.second].iter().filter(|one| one.is_ok()).count();
            assert_eq!(made, 1, "point {at}: {met:?}");
            db.close().await;
            drop_database(db).await;
            if !met.reached {
                break;
            }
        }
    });
}

/// Whoever wants several outputs locks them in the order of their ids. In any other order two could wait for each other.
#[test]
fn postgres_outputs_are_locked_in_one_order() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, 2).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let [mut one, mut other] = [Shell::open(db).await, Shell::open(db).await];
        let both = [output(&coins, 1), output(&coins, 0)];
        let (low, high) = ("output_index = 0", "output_index = 1");
        let lease = db.lease(wallet, &both, lock(1), now.plus_micros(MINUTE), now);
        one.assert_order(&mut other, "utxos", low, high, lease).await.unwrap();
        let payment = tx("payment", &both, &[(foreign_script(), 900)]);
        let spend = db.add_pending(wallet, &payment, Some(lock(1)), now);
        one.assert_order(&mut other, "utxos", low, high, spend).await.unwrap();
    });
}

/// A selection that lost its outputs too often waits in line. Nobody in the line can take them from it again.
#[test]
fn postgres_selections_that_lost_too_often_wait_in_line() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, 1).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        db.lease(wallet, &[output(&coins, 0)], lock(9), until, now).await.unwrap();
        let [mut line, mut other] = [Shell::open(db).await, Shell::open(db).await];
        line.run(&format!("BEGIN; SELECT pg_advisory_xact_lock(4848274, {})", wallet.0)).await.unwrap();
        let id = UtxoId(other.number("SELECT id FROM utxos").await);
        // It insists on an output that another has, and so loses it each time.
        let mut asked = 0;
        let choose = |_: &[Candidate]| {
            asked += 1;
            (asked <= 3).then(|| vec![id])
        };
        let want = want(Allow::default());
        let mut select = Box::pin(db.select_and_lease(wallet, 0, &want, lock(1), until, now, choose));
        tokio::select! {
            got = &mut select => panic!("it did not wait in line: {got:?}"),
            () = other.until_somebody_waits() => {}
        }
        line.run("COMMIT").await.unwrap();
        assert_eq!(select.await.unwrap(), None);
    });
}

/// Either way round: what a selection was given is not spent by another, and what is spent is not given to a selection.
#[test]
fn postgres_an_output_is_either_selected_or_spent() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, 2 * MOST_POINTS).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let until = now.plus_micros(MINUTE);
        let select = async |db: Db, index: u32| {
            let id = db.coins_of(wallet, &[output(&coins, index)]).await.unwrap()[0].id;
            // It insists, and gives up when it has lost it as often as a selection tries.
            let mut asked = 0;
            let choose = |_: &[Candidate]| {
                asked += 1;
                (asked <= 3).then(|| vec![id])
            };
            db.select_and_lease(wallet, 0, &want(Allow::default()), lock(1), until, now, choose).await.unwrap()
        };
        let spend = async |db: Db, index: u32| {
            let payment = tx(&format!("payment {index}"), &[output(&coins, index)], &[(foreign_script(), 900)]);
            db.add_pending(wallet, &payment, None, now).await
        };
        let (mut ends, mut index) = ([false; 2], 0);
        for at in 0.. {
            for (which, ended) in ends.iter_mut().enumerate() {
                let (got, spent, reached) = if which == 0 {
                    let met = meet(db, at, async |db| select(db, index).await, async |db| spend(db, index).await).await;
                    (met.first, met.second, met.reached)
                } else {
                    let met = meet(db, at, async |db| spend(db, index).await, async |db| select(db, index).await).await;
                    (met.second, met.first, met.reached)
                };
                match (&got, &spent) {
                    (Some(_), Err(error)) => assert_eq!(error.code(), "UTXO_LEASED", "point {at}"),
                    (None, Ok(_)) => {}
                    _ => panic!("point {at}: selected {got:?} and spent {spent:?}"),
                }
                *ended |= !reached;
                index += 1;
            }
            if ends == [true; 2] {
                break;
            }
        }
        stage.assert_checked().await;
    });
}

/// An output that another has in its hands is passed over: a block that is being connected holds up no payment.
#[test]
fn postgres_a_selection_waits_for_nobody() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, 2).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let [mut holder, mut other] = [Shell::open(db).await, Shell::open(db).await];
        holder.run("BEGIN; SELECT 1 FROM utxos WHERE output_index = 0 FOR UPDATE").await.unwrap();
        let mut ids = Vec::new();
        for index in 0..2 {
            ids.push(db.coins_of(wallet, &[output(&coins, index)]).await.unwrap()[0].id);
        }
        let mut asked = 0;
        let choose = |_: &[Candidate]| {
            asked += 1;
            Some(vec![ids[usize::from(asked > 1)]])
        };
        let (want, until) = (want(Allow::default()), now.plus_micros(MINUTE));
        let select = db.select_and_lease(wallet, 0, &want, lock(1), until, now, choose);
        let got = tokio::select! {
            got = select => got.unwrap().unwrap(),
            () = other.until_somebody_waits() => panic!("it waits for an output that it could do without"),
        };
        assert_eq!(got[0].outpoint, output(&coins, 1));
        holder.run("COMMIT").await.unwrap();
    });
}

/// A lease that ended may be in another's hands by the time that it is swept.
#[test]
fn postgres_a_sweep_waits_for_nobody_and_leaves_what_is_taken_over() {
    on(Engine::Postgres, async |db| {
        let (stage, coins) = funded(db, 2).await;
        let (wallet, now) = (stage.wallets[0], stage.now);
        let (ended, later) = (now.plus_micros(MINUTE), now.plus_micros(9 * MINUTE));
        db.lease(wallet, &[output(&coins, 0), output(&coins, 1)], lock(1), ended, now).await.unwrap();
        let [mut taker, mut other] = [Shell::open(db).await, Shell::open(db).await];
        let low = taker.number("SELECT MIN(utxo_id) FROM utxo_leases").await;
        let take = format!("BEGIN; UPDATE utxo_leases SET expires_at = {} WHERE utxo_id = {low}", later.micros());
        taker.run(&take).await.unwrap();
        let swept = tokio::select! {
            swept = db.sweep_leases(ended) => swept.unwrap(),
            () = other.until_somebody_waits() => panic!("it waits for a lease that is being taken over"),
        };
        assert_eq!(swept, 1);
        taker.run("COMMIT").await.unwrap();
        assert_eq!(db.sweep_leases(ended).await.unwrap(), 0);
        let left = db.leases(wallet, None, 10).await.unwrap();
        assert_eq!(left.iter().map(|one| (one.id.0, one.until)).collect::<Vec<_>>(), [(low, Some(later))]);
    });
}
