//! What needs a person is told, again and again while it lasts, and a crash loses nothing of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::Clock;
use serde_json::{Value, json};
use server::alerts::webhook::Webhook;
use server::alerts::{Alerts, Intervals, Sink};
use store::db_test;
use store::entry::{Finding, FindingKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::*;

/// Somebody's webhook: it keeps what it is told, and answers as the test wants.
pub struct Hook {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    told: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hook = Self { address, status: Arc::new(AtomicU16::new(204)), told: Arc::default() };
        let (status, told) = (Arc::clone(&hook.status), Arc::clone(&hook.told));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut text = Vec::new();
                let body = loop {
                    let mut part = [0; 4096];
                    let count = stream.read(&mut part).await.unwrap();
                    text.extend_from_slice(&part[..count]);
                    let all = String::from_utf8(text.clone()).unwrap();
                    let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
                    assert!(head.starts_with("POST /told HTTP/1.1"), "{head}");
                    if let Ok(body) = serde_json::from_str::<Value>(body) {
                        break body;
                    }
                };
                let status = status.load(Ordering::SeqCst);
                if status < 300 {
                    told.lock().unwrap().push(body);
                }
                stream.write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
            }
        });
        hook
    }

    pub fn alerts(&self, server: &Server) -> Alerts {
        let webhook = Webhook::new(&format!("http://{}/told", self.address)).unwrap();
        let intervals = Intervals {
            check: Duration::from_secs(5),
            repeat: Duration::from_secs(60),
            lasting: Duration::from_secs(10),
        };
        let coordinator = Arc::clone(server.app.intake.coordinator());
        Alerts::new(coordinator, vec![Sink::Log, Sink::Webhook(webhook)], intervals)
    }

    /// What it was told since it was asked last.
    pub fn told(&self) -> Vec<Value> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

db_test! {
    async fn rows_of_wallets_that_differ_are_told_and_counted(db: TestDb) {
        let server = Server::with(db, Choice::default()).await;
        let hook = Hook::listen().await;
        let rows = Arc::clone(&server.app.wallet_rows);
        let mut alerts = hook.alerts(&server).with_wallet_rows(Arc::clone(&rows));
        rows.look(db, &Arc::default()).await.unwrap();
        assert!(alerts.check().await.is_empty());
        // A group that no file pins.
        let group = "INSERT INTO wallet_groups (name, family, purpose, xpub, derivation_path_template, is_active,
            created_at, updated_at) VALUES ('users', 'evm', 'deposit', 'xpub', '', TRUE, 0, 0)";
        db.by_hand(group).await.unwrap();
        rows.look(db, &Arc::default()).await.unwrap();
        alerts.check().await;
        let told = hook.told();
        assert_eq!(told[0]["alerts"][0]["code"], "WALLET_ROW_DIFFERS");
        assert_eq!(told[0]["alerts"][0]["details"]["row"], "wallet_groups, users");
        assert!(!told[0].to_string().contains("xpub"), "{}", told[0]);
        let text = server.send(&Ask::get("/metrics")).await.body;
        assert!(text.contains("\nbursar_wallet_rows_differ 1\n"), "{text}");
    }

    /// A gas wallet that gave sixty of its hundred coins in the last day has less left than that.
    async fn a_gas_wallet_that_runs_dry_is_told_and_shown(db: TestDb) {
        let server = Server::with(db, Choice::default()).await;
        let hook = Hook::listen().await;
        let watch = Arc::clone(&server.app.treasury);
        let mut alerts = hook.alerts(&server).with_treasury(Arc::clone(&watch));
        let now = server.clock.now();
        let made = now.plus_micros(-3_600_000_000).micros();
        let (bytes, hash) = match db.engine() {
            store::Engine::Postgres => ("'\\x00'::bytea".to_owned(), format!("'\\x{}'::bytea", "07".repeat(32))),
            store::Engine::Sqlite => ("X'00'".to_owned(), format!("X'{}'", "07".repeat(32))),
        };
        let rows = format!("INSERT INTO chains (id, name, kind, network, confirmations, status, created_at, updated_at) VALUES (70, 'gasnet', 'tron', 'mainnet', 19, 'active', 0, 0);
            INSERT INTO asset_on_chain (id, asset_id, chain_id, contract, decimals, min_deposit_amount, status, created_at, updated_at)
                SELECT 70, MIN(id), 70, NULL, 6, 1, 'active', 0, 0 FROM assets;
            INSERT INTO wallet_groups (id, name, family, purpose, xpub, derivation_path_template, is_active, created_at, updated_at)
                VALUES (70, 'gas', 'tron', 'gas', 'xpub', '', TRUE, 0, 0);
            INSERT INTO operation_wallet_addresses (chain_id, wallet_group_id, derivation_index, address, role, is_active, created_at, updated_at)
                VALUES (70, 70, 3, 'Tgas', 'gas', TRUE, 0, 0);
            INSERT INTO wallet_balances (chain_id, address, listing_id, on_chain_balance_raw, needs_gas, needs_consolidation, changed_height, checked_height, updated_at)
                VALUES (70, 'Tgas', 70, '100000000', FALSE, FALSE, 1, 1, 0);
            INSERT INTO outbound_lanes (id, chain_id, wallet_group_id, derivation_index, address, updated_at) VALUES (70, 70, 70, 3, 'Tgas', 0);
            INSERT INTO outbound_slots (id, lane_id, nonce, since_height, state, reason, created_at, updated_at) VALUES (70, 70, NULL, 1, 'open', '', 0, 0);
            INSERT INTO outbound_jobs (id, chain_id, lane_id, listing_id, kind, reference, to_address, amount_raw, most_fee_raw, priority, requester, expires_at,
                state, version, tries, rounds, slot_id, give_up, bump, reason, due_at, created_at, updated_at)
                VALUES (70, 70, 70, 70, 'gas_topup', 'x', 'Tuser', '59000000', '9', 1, 'rules', 0, 'confirmed', 1, 0, 1, 70, FALSE, FALSE, '', 0, 0, 0);
            INSERT INTO treasury_jobs VALUES (70, 'gas_topup', 70, 'Tuser', 70, 0, NULL, '1100000', 0);
            INSERT INTO outbound_slot_jobs VALUES (70, 70, 0);
            INSERT INTO outbound_attempts (slot_id, number, kind, payload, signed, tx_hash, mined_height, mined_block, paid, fee_raw, created_at, updated_at)
                VALUES (70, 1, 'pay', {bytes}, {bytes}, {hash}, 7, {hash}, 'in_full', '1000000', {made}, 0)");
        db.by_hand(&rows).await.unwrap();
        assert!(alerts.check().await.is_empty(), "nobody has looked yet");
        watch.look(db, now).await.unwrap();
        assert!(alerts.check().await.is_empty(), "100 are more than the 60 of the last day");
        let text = server.send(&Ask::get("/metrics")).await.body;
        for line in [
            "bursar_treasury_jobs_day{chain=\"gasnet\",kind=\"gas_topup\",asset=\"",
            "bursar_treasury_gas_coins{chain=\"gasnet\",group=\"gas\",index=\"3\"} 100\n",
            "bursar_treasury_gas_lasts_seconds{chain=\"gasnet\",group=\"gas\",index=\"3\"} 144000\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.lines().any(|line| line.starts_with("bursar_treasury_fees_coins_day{") && line.ends_with(" 1")), "{text}");
        assert!(text.lines().any(|line| line.starts_with("bursar_treasury_fees_expected_coins_day{") && line.ends_with(" 1.1")), "{text}");
        db.by_hand("UPDATE wallet_balances SET on_chain_balance_raw = '59999999' WHERE address = 'Tgas'").await.unwrap();
        watch.look(db, now).await.unwrap();
        alerts.check().await;
        let told = hook.told();
        assert_eq!(told[0]["alerts"][0]["code"], "GAS_RUNS_DRY");
        let wallet = &told[0]["alerts"][0]["details"]["wallets"][0];
        assert_eq!((&wallet["chain"], &wallet["index"], &wallet["lasts_minutes"]), (&"gasnet".into(), &3.into(), &1_439.into()));
        // A day later nothing of it is of the last day.
        watch.look(db, now.plus_micros(24 * 3_600_000_000)).await.unwrap();
        assert!(alerts.check().await.is_empty());
        assert_eq!(hook.told()[0]["status"], "over");
    }

    async fn a_stuck_transfer_is_told_at_every_interval_and_a_crash_loses_no_alert(db: TestDb) {
        let server = Server::with(db, Choice { wait: Duration::from_millis(10), ..Choice::default() }).await;
        let hook = Hook::listen().await;
        let mut alerts = hook.alerts(&server);
        server.leg.close();
        let reply = server.transfer(1, to_spot("1.00")).await;
        assert_eq!(reply.status, 202);
        assert!(alerts.check().await.is_empty());
        // The process that had it is gone: no try is ever counted, and no row says that somebody was alerted.
        server.pass(Duration::from_secs(301));
        alerts.check().await;
        let told = hook.told();
        assert_eq!(told.len(), 1);
        assert_eq!((&told[0]["status"], &told[0]["alerts"][0]["code"]), (&"alert".into(), &"TRANSFERS_STUCK".into()));
        let details = &told[0]["alerts"][0]["details"];
        assert_eq!(details["transfers"][0]["id"], reply.json()["req_id"]);
        assert_eq!((&details["open"], &details["stuck"], &details["oldest_age_s"]), (&1.into(), &1.into(), &301.into()));
        assert_eq!(details["by_state"]["TARGET_PENDING"], 1);
        assert!(!told[0].to_string().contains("USDT"), "no amounts, no users: {}", told[0]);
        alerts.check().await;
        assert_eq!(hook.told().len(), 0, "not more often than the interval");
        server.pass(Duration::from_secs(60));
        alerts.check().await;
        assert_eq!(hook.told().len(), 1, "told again while it lasts");
        // Another process, which knows nothing of the first.
        alerts = hook.alerts(&server);
        hook.status.store(500, Ordering::SeqCst);
        alerts.check().await;
        assert_eq!(hook.told().len(), 0);
        hook.status.store(200, Ordering::SeqCst);
        alerts.check().await;
        assert_eq!(hook.told().len(), 1, "what was not taken is told at the next check");
        server.leg.open();
        let coordinator = server.app.intake.coordinator();
        while server.usdt(1).await.2 == 0 || coordinator.open_transfers(1).await.unwrap().count() > 0 {
            transfer::scanner::scan_once(coordinator).await.unwrap();
        }
        alerts.check().await;
        assert_eq!(hook.told()[0]["status"], "over");
        alerts.check().await;
        assert_eq!(hook.told().len(), 0);
        assert_eq!(server.usdt(1).await, (9_900, 0, 100));
    }

    async fn a_stopped_asset_is_told_until_two_people_resume_it(db: TestDb) {
        let server = Server::start(db).await;
        let hook = Hook::listen().await;
        let mut alerts = hook.alerts(&server);
        let (asset, now) = (domain::AssetId(1), store::testing::NOW);
        assert!(db.stop_asset(asset, "a check", "the books differ", now).await.unwrap());
        let told = alerts.check().await;
        assert!(told.iter().any(|alert| alert.code == "TRANSFER_STOPPED"), "{told:?}");
        let people = domain::Approval::new("ana", "bo", "mended").unwrap();
        assert!(db.resume_asset(asset, &people, now).await.unwrap());
        assert!(alerts.check().await.iter().all(|alert| alert.code != "TRANSFER_STOPPED"));
    }

    async fn what_was_found_on_a_chain_is_told_until_somebody_has_seen_to_it(db: TestDb) {
        let server = crate::withdrawals::start(db).await;
        let hook = Hook::listen().await;
        let mut alerts = hook.alerts(&server);
        assert!(alerts.check().await.is_empty());
        let chain = db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap();
        let now = server.clock.now();
        let find = async |number: usize| {
            let (subject, detail) = (format!("0x{number:064x}"), "nothing of ours explains it".to_owned());
            let found = Finding { kind: FindingKind::ForeignSpend, subject, detail };
            db.add_finding_once(chain.id, &found, now).await.unwrap();
        };
        find(1).await;
        alerts.check().await;
        let told = hook.told();
        assert_eq!((told.len(), &told[0]["status"], &told[0]["alerts"][0]["code"]), (1, &"alert".into(), &"CHAIN_FINDING".into()));
        assert!(told[0]["alerts"].as_array().unwrap().len() == 1, "{}", told[0]);
        let open = db.open_findings(0, 100).await.unwrap();
        assert_eq!(told[0]["alerts"][0]["details"], json!({ "findings": [{
            "id": open[0].id, "chain": "bsc", "kind": "foreign_spend", "subject": format!("0x{:064x}", 1),
            "detail": "nothing of ours explains it", "at": now.to_string(),
        }] }));
        // More of them are no news before the interval is over; then so many are named, and no more.
        for number in 2..=25 {
            find(number).await;
        }
        alerts.check().await;
        assert_eq!(hook.told().len(), 0);
        server.pass(Duration::from_secs(60));
        alerts.check().await;
        assert_eq!(hook.told()[0]["alerts"][0]["details"]["findings"].as_array().unwrap().len(), 20);
        let all: Vec<i64> = db.open_findings(0, 100).await.unwrap().iter().map(|one| one.id).collect();
        let (last, others) = all.split_last().unwrap();
        db.resolve_findings(others, "ann", now).await.unwrap().unwrap();
        let left = alerts.check().await;
        assert!(left.iter().any(|alert| alert.code == "CHAIN_FINDING"), "one is left: {left:?}");
        db.resolve_findings(&[*last], "ann", now).await.unwrap().unwrap();
        assert!(alerts.check().await.is_empty());
        assert_eq!(hook.told()[0]["status"], "over");
    }

    async fn open_and_stuck_transfers_are_gauges(db: TestDb) {
        let server = Server::with(db, Choice { wait: Duration::from_millis(10), ..Choice::default() }).await;
        let hook = Hook::listen().await;
        let mut alerts = hook.alerts(&server);
        server.leg.close();
        server.transfer(1, to_spot("1.00")).await;
        server.pass(Duration::from_secs(100));
        server.transfer(2, to_spot("1.00")).await;
        server.pass(Duration::from_secs(250));
        alerts.check().await;
        let text = server.send(&Ask::get("/metrics")).await.body;
        for line in [
            "bursar_transfers_open{state=\"TARGET_PENDING\"} 2",
            "bursar_transfers_open{state=\"INIT\"} 0",
            "bursar_transfers_stuck{state=\"TARGET_PENDING\"} 1",
            "bursar_transfers_oldest_age_seconds 350",
            "bursar_ready 1",
            "bursar_engine_up 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        server.leg.open();
    }
}

#[test]
fn the_wallets_are_in_the_metrics_once_there_is_one() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let now = server.app.clock.now();
        server.app.wallets.round(db, None, now).await.unwrap();
        let text = server.send(&Ask::get("/metrics")).await.body;
        assert!(!text.contains("bursar_utxo_"), "{text}");
        db.create_wallet("hot", store::utxo::Network::Regtest, now).await.unwrap();
        server.app.wallets.round(db, None, now).await.unwrap();
        let text = server.send(&Ask::get("/metrics")).await.body;
        for line in [
            "bursar_utxo_leases{state=\"active\"} 0",
            "bursar_utxo_leases{state=\"ended\"} 0",
            "bursar_utxo_leases{state=\"rescan\"} 0",
            "bursar_utxo_claimed 0",
            "bursar_utxo_lease_oldest_ended_age_seconds 0",
            "bursar_utxo_leases_swept_total 0",
            "bursar_utxo_lease_cleanup_seconds 0",
            "bursar_utxo_unspent 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    });
}

#[test]
fn a_part_that_stays_in_trouble_is_told() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let hook = Hook::listen().await;
        let mut alerts = hook.alerts(&server);
        let readiness = server.app.intake.coordinator().readiness();
        readiness.trouble("engine", "LEG_UNREACHABLE", "gone");
        alerts.check().await;
        assert_eq!(hook.told().len(), 0, "it may be over in a moment");
        server.pass(Duration::from_secs(10));
        alerts.check().await;
        let told = hook.told();
        assert_eq!(told[0]["alerts"][0]["part"], "engine");
        assert_eq!((&told[0]["alerts"][0]["code"], told.len()), (&"LEG_UNREACHABLE".into(), 1));
        let text = server.send(&Ask::get("/metrics")).await.body;
        for line in ["bursar_ready 0", "bursar_engine_up 0", "bursar_part_ready{part=\"engine\"} 0"] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        readiness.well("engine");
        alerts.check().await;
        assert_eq!(hook.told()[0]["status"], "over");
    });
}

/// It is started again at once and looks well a moment later: whoever waits for it to last hears of no panic.
#[test]
fn a_panic_is_told_at_once() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let hook = Hook::listen().await;
        let mut alerts = hook.alerts(&server);
        server.app.intake.coordinator().readiness().trouble("scanner", "TASK_PANICKED", "on purpose");
        alerts.check().await;
        let told = hook.told();
        assert_eq!(
            (&told[0]["alerts"][0]["code"], &told[0]["alerts"][0]["part"]),
            (&"TASK_PANICKED".into(), &"scanner".into())
        );
    });
}

#[test]
fn what_cannot_be_read_is_not_over() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let hook = Hook::listen().await;
        let mut alerts = hook.alerts(&server);
        assert!(db.stop_asset(domain::AssetId(1), "a check", "the books differ", store::testing::NOW).await.unwrap());
        alerts.check().await;
        assert_eq!(hook.told().len(), 1);
        server.db.close().await;
        alerts.check().await;
        assert_eq!(hook.told().len(), 0, "nobody knows whether it goes on");
    });
}

/// A request that is refused because of what is known has learned nothing: it must not keep the trouble alive.
#[test]
fn a_refusal_is_no_evidence() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        let readiness = server.app.intake.coordinator().readiness();
        readiness.trouble("database", "DATABASE_FULL", "full");
        let token = server.token(1);
        for _ in 0..3 {
            let reply = server.send(&Ask::post(TRANSFERS, to_spot("1.00")).token(&token)).await;
            assert_eq!((reply.status, reply.code().as_str()), (503, "SYSTEM_ERROR"));
        }
        let (_, trouble) = readiness.first_trouble().unwrap();
        assert_eq!(trouble.words, "full");
    });
}

/// As Prometheus' own parser is: each family once, with a type, its samples together, and histograms that add up.
#[test]
fn the_metrics_are_what_prometheus_reads() {
    on_sqlite(async |db| {
        let server = Server::start(db).await;
        look_once(&server).await;
        server.moved(1, &to_spot("1.00")).await;
        // The wallets' families too.
        db.create_wallet("hot", store::utxo::Network::Regtest, server.app.clock.now()).await.unwrap();
        server.app.wallets.round(db, None, server.app.clock.now()).await.unwrap();
        let text = server.send(&Ask::get("/metrics")).await.body;
        assert!(text.ends_with('\n'));
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let mut samples: BTreeMap<String, u64> = BTreeMap::new();
        let mut family = "";
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split_once(' ').expect("a help has words").0;
                assert!(!kinds.contains_key(family), "{family} is there twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type");
                assert_eq!(name, family);
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(kinds.insert(name, kind).is_none());
            } else {
                let (name, value) = line.rsplit_once(' ').expect("a value");
                let plain = name.split('{').next().unwrap();
                let rest = plain.strip_prefix(family).unwrap_or_else(|| panic!("{line} is not of {family}"));
                let fits = rest.is_empty() && kinds[family] != "histogram";
                assert!(
                    fits || (kinds[family] == "histogram" && ["_bucket", "_sum", "_count"].contains(&rest)),
                    "{line}"
                );
                assert_eq!(kinds[family] == "counter", family.ends_with("_total"), "{line}");
                let value: f64 = value.parse().expect("a number");
                assert!(samples.insert(name.to_owned(), value as u64).is_none(), "{name} is there twice");
            }
        }
        assert!(kinds.len() > 15, "{kinds:?}");
        for (name, _) in kinds.iter().filter(|(_, kind)| **kind == "histogram") {
            let buckets = samples.iter().filter(|(key, _)| key.starts_with(&format!("{name}_bucket{{")));
            let most = buckets.map(|(_, value)| *value).max().expect("buckets");
            assert_eq!(samples[&format!("{name}_bucket{{le=\"+Inf\"}}")], most);
            assert_eq!(samples[&format!("{name}_count")], most);
            assert!(most > 0, "{name} has counted nothing");
        }
        assert!(text.contains(&format!("bursar_build_info{{version=\"{}\",commit=\"", env!("CARGO_PKG_VERSION"))));
        assert!(text.contains("bursar_database_connections{pool=\"write\",state=\"most\"} 1"), "{text}");
    });
}

/// So that the gauges of open transfers are there.
async fn look_once(server: &Server) {
    let every = Duration::from_secs(60);
    let coordinator = Arc::clone(server.app.intake.coordinator());
    let intervals = Intervals { check: every, repeat: every, lasting: every };
    Alerts::new(coordinator, Vec::new(), intervals).check().await;
}
