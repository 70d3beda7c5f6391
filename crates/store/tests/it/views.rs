//! The sources' own queries, taken from copies of the sources, run as they are printed and tell the truth. The database has jobs in every state, on two
//! chains, with locks that are held, that are stale and that nobody has; what the answers should be is counted from the list that the rows were made of.

use std::collections::{BTreeMap, BTreeSet};

use domain::outbound::MOST_TRIES;
use domain::{AssetOnChain, Availability, ChainKind, GroupId, Purpose, Timestamp, WalletRole};
use store::testing::{NOW, PrintedRow, TestDb, fresh, on, views};
use store::wallet::{OperationWallet, Place, WalletGroup, WalletSettings};
use store::{Engine, db_test};

use crate::support::*;

pub const SOURCE_000: &str = include_str!("sources/000.txt");
pub const SOURCE_001: &str = include_str!("sources/001.txt");

/// What whoever asks in the sources' words sets first: tables of ours have the names of some of their views.
const SOURCES_FIRST: &str = "SET search_path = sources, public";

// ---- what the sources print -----------------------------------------------------------------------------------

/// The text of a source from a heading on, to the next one that is as high or higher.
pub fn section<'a>(source: &'a str, heading: &str) -> &'a str {
    let (mut begin, mut level, mut at, mut in_code) = (None, 0, 0, false);
    for line in source.split_inclusive('\n') {
        let text = line.trim_end();
        in_code ^= text.starts_with("```");
        let hashes = if in_code { 0 } else { text.chars().take_while(|c| *c == '#').count() };
        match begin {
            None if hashes > 0 && text.ends_with(heading) => (begin, level) = (Some(at), hashes),
            Some(begin) if (1..=level).contains(&hashes) => return &source[begin..at],
            None | Some(_) => {}
        }
        at += line.len();
    }
    &source[begin.unwrap_or_else(|| panic!("no heading ends with {heading}"))..]
}

/// The statements of the SQL blocks of a text, without comments that stand alone.
pub fn statements(text: &str) -> Vec<String> {
    let blocks = text.split("```sql").skip(1).map(|rest| rest.split("```").next().unwrap());
    let spoken = |block: &str| {
        let lines = block.lines().filter(|line| !line.trim_start().starts_with("--"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let all = blocks.map(spoken).collect::<Vec<_>>().join(";");
    all.split(';').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

/// The columns of a table as a source writes them, with the first word of their types.
fn columns(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in statements(text).join("\n").lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(kind)) = (words.next(), words.next()) else { continue };
        let kind = kind.split(['(', ',']).next().unwrap().to_lowercase();
        if ["uuid", "text", "numeric", "integer", "jsonb", "timestamptz", "boolean", "varchar"].contains(&kind.as_str())
        {
            found.push((name.to_owned(), kind));
        }
    }
    found
}

// ---- jobs in every state --------------------------------------------------------------------------------------

const STATES: [&str; 10] = [
    "queued",
    "picked",
    "building_tx",
    "signing",
    "broadcasting",
    "broadcasted",
    "confirming",
    "confirmed",
    "failed_retryable",
    "failed_final",
];
const MINUTE: i64 = 60_000_000;
const HOUR: i64 = 60 * MINUTE;

/// A job as it is put into the tables, in the words of the sources.
#[derive(Clone, Debug)]
pub struct Planted {
    pub id: i64,
    pub chain: &'static str,
    pub kind: &'static str,
    pub state: &'static str,
    /// Who pays it, and how its lock is.
    pub from: String,
    lock: Lock,
    to: String,
    pub created: i64,
    /// When it came to its state.
    came: i64,
    tries: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Held,
    Stale,
    Left,
}

impl Lock {
    const ALL: [Self; 3] = [Self::Held, Self::Stale, Self::Left];

    /// Who sends from a lane and who watches it are two.
    fn worker(self, duty: &str) -> String {
        match self {
            Self::Held => format!("one {duty}"),
            Self::Stale => format!("dead {duty}"),
            Self::Left => String::new(),
        }
    }

    fn until(self, duty: &str, now: i64) -> i64 {
        let later = if duty == "send" { 0 } else { 1_000_000 };
        match self {
            Self::Held => now + MINUTE + later,
            Self::Stale => now - 11 * MINUTE + later,
            Self::Left => 0,
        }
    }
}

impl Planted {
    fn is_worked_on(&self) -> bool {
        let at_work = ["picked", "building_tx", "signing", "broadcasting", "broadcasted", "confirming"];
        at_work.contains(&self.state) && self.lock != Lock::Left
    }

    fn duty(&self) -> &'static str {
        if ["broadcasted", "confirming"].contains(&self.state) { "watch" } else { "send" }
    }

    fn has_slot(&self) -> bool {
        ["signing", "broadcasting", "broadcasted", "confirming", "confirmed"].contains(&self.state)
    }

    fn is_signed(&self) -> bool {
        self.has_slot() && self.state != "signing"
    }

    /// The states on its way, in the order in which it came to them.
    fn way(&self) -> Vec<&'static str> {
        match self.state {
            "failed_retryable" => vec!["queued", "picked", "building_tx", "failed_retryable"],
            "failed_final" => vec!["queued", "picked", "building_tx", "failed_retryable", "failed_final"],
            state => STATES[..=STATES.iter().position(|one| *one == state).unwrap()].to_vec(),
        }
    }

    fn hash(&self) -> String {
        format!("{:064x}", self.id)
    }
}

/// BNB and USDT on bsc, TRX on tron, three gas wallets and three hot ones on each, users' addresses.
async fn treasury(db: &TestDb) {
    let mut catalog = catalog();
    let (usdt, bsc) =
        (catalog.assets[&"USDT".parse().unwrap()].clone(), catalog.chains[&"bsc".parse().unwrap()].clone());
    let mut tron = bsc.clone();
    (tron.name, tron.kind, tron.network) = ("tron".parse().unwrap(), ChainKind::Tron, "mainnet".to_owned());
    catalog.chains.insert(tron.name.clone(), tron);
    for (symbol, chain, decimals) in [("BNB", "bsc", 18), ("TRX", "tron", 6)] {
        let (symbol, chain): (domain::Symbol, domain::ChainName) = (symbol.parse().unwrap(), chain.parse().unwrap());
        let mut asset = usdt.clone();
        asset.symbol = symbol.clone();
        let listing = domain::Listing {
            asset: symbol.clone(),
            chain: chain.clone(),
            form: AssetOnChain::new(asset.precision, decimals, None).unwrap(),
            min_deposit: domain::Amount::from_units(1),
            status: Availability::Active,
        };
        catalog.assets.insert(symbol.clone(), asset);
        catalog.listings.insert((symbol, chain), listing);
    }
    let mut settings = WalletSettings::default();
    for (family, chain) in [("evm", "bsc"), ("tron", "tron")] {
        for (purpose, role) in
            [(Purpose::Gas, Some(WalletRole::Gas)), (Purpose::Hot, Some(WalletRole::Hot)), (Purpose::Deposit, None)]
        {
            let group: GroupId = format!("{}-{family}", purpose.as_str()).parse().unwrap();
            let (path, xpub) = ("m/44'/60'/0'/hi/lo".to_owned(), format!("xpub-{group}"));
            let keys = WalletGroup { family: family.into(), purpose, xpub, path, active: true };
            settings.groups.insert(group.clone(), keys);
            let Some(role) = role else { continue };
            for index in 0..3 {
                let place = (chain.parse().unwrap(), Place::Derived { group: group.clone(), index });
                let address = format!("{chain}-{}-{index}", role.as_str());
                settings.wallets.insert(place, OperationWallet::new(role, address, true));
            }
        }
    }
    db.apply_treasury(&catalog, &settings, &AUTHOR, NOW).await.unwrap();
    for family in ["evm", "tron"] {
        db.by_hand(&format!(
            "INSERT INTO user_wallets (wallet_group_id, user_id, derivation_index, address, created_at)
             SELECT g.id, u.n, u.n, '{family}-user-' || u.n, 0 FROM wallet_groups g, (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3) u
             WHERE g.name = 'deposit-{family}'"
        ))
        .await
        .unwrap();
    }
}

/// One or more jobs of each kind, chain, lock and state, and some that were confirmed the day before yesterday.
fn jobs(now: i64) -> Vec<Planted> {
    let mut jobs = Vec::new();
    // Snowflakes: more than 48 bits.
    let mut id = 1_734_912_345_678_901_000;
    for (chain, family) in [("bsc", "evm"), ("tron", "tron")] {
        for kind in ["gas_topup", "withdrawal", "consolidation"] {
            for (number, lock) in Lock::ALL.into_iter().enumerate() {
                for (place, state) in STATES.into_iter().enumerate() {
                    for copy in 0..=i64::try_from((place + number) % 3).unwrap() {
                        id += 1;
                        let user = format!("{family}-user-{}", number + 1);
                        let (from, to) = match kind {
                            "gas_topup" => (format!("{chain}-gas-{number}"), user),
                            "withdrawal" => (format!("{chain}-hot-{number}"), format!("0xstranger{id}")),
                            _ => (user, format!("{chain}-hot-{number}")),
                        };
                        let old = if state == "confirmed" && copy == 1 { 48 * HOUR } else { 0 };
                        let created = now - HOUR - old - copy * 7 * MINUTE;
                        let came = if state == "queued" { created } else { created + 11_000_000 + id % 997 * 1_001 };
                        let tries = match state {
                            "failed_final" => 5,
                            "failed_retryable" => 2,
                            _ => copy,
                        };
                        jobs.push(Planted { id, chain, kind, state, from, lock, to, created, came, tries });
                    }
                }
            }
        }
    }
    jobs
}

async fn plant(db: &TestDb, jobs: &[Planted], now: i64) {
    let bytes = |digits: &str| match db.engine() {
        Engine::Postgres => format!("'\\x{digits}'::bytea"),
        Engine::Sqlite => format!("X'{digits}'"),
    };
    let mut script = String::new();
    let lanes: BTreeMap<(&str, &str), Lock> =
        jobs.iter().map(|job| ((job.chain, job.from.as_str()), job.lock)).collect();
    for ((chain, address), lock) in lanes {
        let group = "(SELECT MIN(g.id) FROM wallet_groups g)";
        script += &format!(
            "INSERT INTO outbound_lanes (chain_id, wallet_group_id, derivation_index, address, updated_at)
                SELECT c.id, {group}, 0, '{address}', 0 FROM chains c WHERE c.name = '{chain}';\n"
        );
        for duty in ["send", "watch"] {
            script += &format!(
                "INSERT INTO outbound_leases (lane_id, duty, worker, fence, lease_until)
                    SELECT l.id, '{duty}', '{}', 1, {} FROM outbound_lanes l JOIN chains c ON c.id = l.chain_id
                    WHERE l.address = '{address}' AND c.name = '{chain}';\n",
                lock.worker(duty),
                lock.until(duty, now)
            );
        }
    }
    for job in jobs {
        let Planted { id, chain, kind, state, from, to, created, came, tries, .. } = job;
        let lane = format!("(SELECT l.id FROM outbound_lanes l WHERE l.address = '{from}' AND l.chain_id = c.id)");
        if job.has_slot() {
            script += &format!(
                "INSERT INTO outbound_slots (id, lane_id, nonce, since_height, state, reason, created_at, updated_at)
                    SELECT {id}, {lane}, {}, 1, 'open', '', 0, 0 FROM chains c WHERE c.name = '{chain}';\n",
                if *chain == "bsc" { format!("{id} % 100000") } else { "NULL".to_owned() }
            );
        }
        script += &format!(
            "INSERT INTO outbound_jobs (id, chain_id, lane_id, listing_id, kind, reference, to_address, amount_raw, most_fee_raw, priority, requester,
                expires_at, state, version, tries, rounds, slot_id, give_up, bump, reason, due_at, created_at, updated_at)
             SELECT {id}, c.id, {lane}, k.id, '{kind}', 'for {id}', '{to}', '{id}', '9', {id} % 3 + 99, 'rules', 0, '{state}', {}, {tries}, 0,
                {}, FALSE, FALSE, 'says {id}', {came}, {created}, {came}
             FROM chains c JOIN asset_on_chain k ON k.chain_id = c.id AND k.contract IS NULL WHERE c.name = '{chain}';\n",
            job.way().len(),
            if job.has_slot() { id.to_string() } else { "NULL".to_owned() }
        );
        for (place, step) in job.way().into_iter().enumerate() {
            let at = if step == *state { *came } else { *created + i64::try_from(place).unwrap() };
            script += &format!(
                "INSERT INTO outbound_job_events VALUES ({id}, {}, '{step}', '{step} {id}', {at});\n",
                place + 1
            );
        }
        if *kind != "withdrawal" {
            script += &format!(
                "INSERT INTO treasury_jobs SELECT {id}, '{kind}', j.chain_id, '{to}', j.listing_id, {id}, {id} % 5, '3', {created}
                    FROM outbound_jobs j WHERE j.id = {id};\n"
            );
        }
        if job.is_signed() {
            script += &format!("INSERT INTO outbound_slot_jobs VALUES ({id}, {id}, 0);\n");
            // One that was replaced, and the one that counts.
            for (number, digits) in [(1, format!("ff{:062x}", job.id)), (2, job.hash())] {
                let mined = number == 2 && *state == "confirmed";
                let (height, block, paid, fee) = if mined {
                    ("77".to_owned(), bytes(&job.hash()), "'in_full'".to_owned(), "'21000'".to_owned())
                } else {
                    ("NULL".to_owned(), "NULL".to_owned(), "NULL".to_owned(), "NULL".to_owned())
                };
                script += &format!(
                    "INSERT INTO outbound_attempts (slot_id, number, kind, payload, signed, tx_hash, mined_height, mined_block, paid, fee_raw,
                        created_at, updated_at) SELECT {id}, {number}, 'pay', {payload}, {payload}, {}, {height}, {block}, {paid}, {fee}, {created}, 0;\n",
                    bytes(&digits),
                    payload = bytes("00"),
                );
            }
        }
    }
    db.by_hand(&script).await.unwrap();
}

/// The database's own clock: the sources' queries ask it.
async fn now(db: &TestDb) -> i64 {
    let query = match db.engine() {
        Engine::Postgres => "SELECT (EXTRACT(EPOCH FROM NOW()) * 1000000)::BIGINT",
        Engine::Sqlite => "SELECT unixepoch() * 1000000",
    };
    printed(db, "", query).await[0][0].as_ref().unwrap().parse().unwrap()
}

pub async fn printed(db: &TestDb, before: &str, query: &str) -> Vec<PrintedRow> {
    db.ask(before, query).await.unwrap_or_else(|error| panic!("{query}\n{error}"))
}

pub async fn planted(db: &TestDb) -> (Vec<Planted>, i64) {
    treasury(db).await;
    let now = now(db).await;
    let jobs = jobs(now);
    plant(db, &jobs, now).await;
    (jobs, now)
}

/// Names to the UUIDs that stand for them.
async fn names(db: &TestDb, view: &str, name: &str) -> BTreeMap<String, String> {
    let prefix = if db.engine() == Engine::Postgres { "sources." } else { "sources_" };
    let rows = printed(db, "", &format!("SELECT id, {name} FROM {prefix}{view}")).await;
    rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
}

/// One number of one row.
fn count(rows: &[PrintedRow]) -> usize {
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0][0].as_ref().unwrap().parse().unwrap()
}

// ---- the queries ----------------------------------------------------------------------------------------------

/// Every query under "Monitoring" of 001, unchanged.
#[test]
fn postgres_monitoring_queries_of_the_gas_workers_run_as_they_are_printed() {
    on(Engine::Postgres, async |db| {
        let (jobs, now) = planted(db).await;
        let gas: Vec<&Planted> = jobs.iter().filter(|job| job.kind == "gas_topup").collect();
        let chains = names(db, "chains", "name").await;
        let queries = statements(section(SOURCE_001, "Monitoring"));
        assert_eq!(queries.len(), 4, "{queries:#?}");
        for before in ["", SOURCES_FIRST] {
            let mut answers = Vec::new();
            for query in &queries {
                answers.push(printed(db, before, query).await);
            }

            let mut pending = BTreeMap::new();
            for job in &gas {
                if ["queued", "picked", "building_tx", "signing", "broadcasting"].contains(&job.state) {
                    *pending.entry(job.chain.to_owned()).or_insert(0) += 1;
                }
            }
            let told = answers[0].iter().map(|row| {
                (chains[row[0].as_ref().unwrap()].clone(), row[1].as_ref().unwrap().parse::<i32>().unwrap())
            });
            assert_eq!(told.collect::<BTreeMap<_, _>>(), pending);

            assert_eq!(count(&answers[1]), gas.iter().filter(|job| job.state == "failed_final").count());

            let mut times: BTreeMap<String, (i64, i64)> = BTreeMap::new();
            for job in gas.iter().filter(|job| job.state == "confirmed" && job.came > now - 24 * HOUR) {
                let time = times.entry(job.chain.to_owned()).or_default();
                *time = (time.0 + job.came - job.created, time.1 + 1);
            }
            assert_eq!(answers[2].len(), times.len());
            for row in &answers[2] {
                let (sum, jobs) = times[&chains[row[0].as_ref().unwrap()]];
                // The server rounds the mean at the sixteenth place.
                let micros = row[1].as_ref().unwrap().replace('.', "");
                let places = row[1].as_ref().unwrap().split('.').nth(1).map_or(0, str::len);
                let told: i128 = micros.parse().unwrap();
                let scale = 10_i128.pow(u32::try_from(places).unwrap());
                let difference = told * i128::from(jobs) * 1_000_000 - i128::from(sum) * scale;
                assert!(difference.abs() <= i128::from(jobs) * 1_000_000, "{row:?} is not {sum}/{jobs} µs");
            }

            let stale = gas.iter().filter(|job| job.is_worked_on() && job.lock == Lock::Stale).count();
            assert!(stale > 0);
            assert_eq!(count(&answers[3]), stale);
        }
    });
}

/// What 001 says of locks: a condition that finds jobs to take, and a statement that would take one, which is refused.
#[test]
fn postgres_locks_are_seen_in_the_sources_words_and_taken_only_in_ours() {
    on(Engine::Postgres, async |db| {
        let (jobs, _) = planted(db).await;
        let condition = statements(section(SOURCE_001, "Stale Lock Recovery"));
        assert_eq!(condition.len(), 1);
        let free = printed(db, "", &format!("SELECT COUNT(*) FROM gas_topup_queue {}", condition[0])).await;
        let gas = jobs.iter().filter(|job| job.kind == "gas_topup");
        assert_eq!(count(&free), gas.filter(|job| !job.is_worked_on() || job.lock == Lock::Stale).count());
        let take = statements(section(SOURCE_001, "Locking Mechanism"));
        assert_eq!(take.len(), 1);
        let error = db.by_hand(&take[0].replace('?', "gen_random_uuid()")).await.unwrap_err();
        assert!(error.to_string().contains("cannot update view"), "{error}");
    });
}

/// Of the queries of 000, those over `withdrawal_queue`; the one over requests counts none here, and runs in `withdrawals.rs`.
#[test]
fn postgres_queries_over_the_withdrawal_queue_run_as_they_are_printed() {
    on(Engine::Postgres, async |db| {
        let (jobs, now) = planted(db).await;
        let payouts: Vec<&Planted> = jobs.iter().filter(|job| job.kind == "withdrawal").collect();
        let queries = statements(section(SOURCE_000, "Queries"));
        assert_eq!(queries.len(), 4, "{queries:#?}");
        let queries: Vec<&String> = queries.iter().filter(|query| query.contains("FROM withdrawal_queue")).collect();
        assert_eq!(queries.len(), 3);

        let open = payouts.iter().filter(|job| !["confirmed", "failed_final"].contains(&job.state)).count();
        assert_eq!(count(&printed(db, "", queries[0]).await), open);

        let failed = printed(db, "", queries[1]).await;
        let mut newest: Vec<&&Planted> = payouts.iter().filter(|job| job.state == "failed_final").collect();
        newest.sort_by_key(|job| -job.created);
        assert_eq!(failed.len(), newest.len().min(10));
        let known: BTreeSet<String> = newest.iter().map(|job| format!("failed_final {}", job.id)).collect();
        assert!(failed.iter().all(|row| known.contains(row[2].as_ref().unwrap()) && row[3].as_deref() == Some("5")));

        let stuck: BTreeSet<String> =
            printed(db, "", queries[2]).await.into_iter().map(|row| row[0].clone().unwrap()).collect();
        let building = ["picked", "building_tx", "signing", "broadcasting"];
        let late = payouts.iter().filter(|job| building.contains(&job.state) && job.created < now - 5 * MINUTE);
        assert_eq!(stuck, late.map(|job| uuid(7, job.id)).collect());
        // And how a worker of the source would look for work.
        let worker = statements(section(SOURCE_000, "Step 4: Withdrawal Worker Executes"));
        let next = printed(db, "", &worker[0].replace("'bsc'", &format!("'{}'", uuid(1, 0)))).await;
        assert!(next.is_empty(), "there is no chain 0");
        let confirming = statements(section(SOURCE_000, "Step 5: Confirmation Worker Confirms"));
        let waiting = printed(db, "", &confirming[0]).await;
        assert_eq!(
            waiting.len(),
            payouts.iter().filter(|job| ["broadcasted", "confirming"].contains(&job.state)).count()
        );
    });
}

// ---- the columns ----------------------------------------------------------------------------------------------

/// The sources' columns, in their order and with their types. NUMERIC stands for NUMERIC(28,18), which refuses ten thousand million coins.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_views_have_the_sources_columns_and_types() {
    let db = fresh(Engine::Postgres).await;
    db.migrate(NOW).await.unwrap();
    let ours = views(&db).await;
    let of = |view: &str| -> Vec<(String, String)> {
        ours.iter().filter(|one| one.0 == view).map(|(_, column, kind)| (column.clone(), kind.clone())).collect()
    };
    let queue = columns(section(SOURCE_001, "gas_topup_queue (Source of Truth)"));
    assert_eq!(queue.len(), 24, "{queue:?}");
    assert_eq!(of("gas_topup_queue"), queue);
    let wallets = columns(section(SOURCE_001, "operation_wallet_addresses (Funding Wallets)"));
    assert_eq!((wallets.len(), of("sources_operation_wallet_addresses")), (8, wallets));
    let balances = columns(section(SOURCE_001, "wallet_balances (Target State)"));
    assert_eq!((balances.len(), of("sources_wallet_balances")), (6, balances));
    let payouts = section(SOURCE_000, "Layer 2: Execution Layer (`withdrawal_queue`)");
    let payouts = columns(section(payouts, "Schema"));
    assert_eq!((payouts.len(), of("withdrawal_queue")), (19, payouts));
    let requests = section(SOURCE_000, "Layer 1: Intent Layer (`withdrawal_requests`)");
    let requests = columns(section(requests, "Schema"));
    assert_eq!((requests.len(), of("sources_withdrawal_requests")), (11, requests));
    // In a drawing of 001: no types.
    let groups: Vec<String> = of("sources_wallet_groups").into_iter().map(|(column, _)| column).collect();
    assert_eq!(groups, ["id", "wallet_group_id", "chain_id", "purpose", "xpub", "derivation_path_template"]);
    assert!(groups.iter().skip(1).all(|column| SOURCE_001.contains(column)));
    // Nowhere: alike.
    let sweeps: BTreeSet<String> = of("consolidation_queue").into_iter().map(|(column, _)| column).collect();
    let gas: BTreeSet<String> = queue.into_iter().map(|(column, _)| column).collect();
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect::<Vec<_>>();
    assert_eq!(only(&gas, &sweeps), ["gas_asset_id", "topup_amount_human", "topup_amount_raw"]);
    assert_eq!(only(&sweeps, &gas), ["amount_human", "amount_raw", "asset_on_chain_id"]);
    store::testing::drop_database(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_and_sqlite_have_the_same_views() {
    let mut found = Vec::new();
    for engine in [Engine::Postgres, Engine::Sqlite] {
        let db = fresh(engine).await;
        db.migrate(NOW).await.unwrap();
        let all = views(&db).await;
        found.push(all.into_iter().map(|(view, column, _)| (view, column)).collect::<Vec<_>>());
        store::testing::drop_database(&db).await;
    }
    assert!(found[0].len() > 100, "{:?}", found[0]);
    // The order of columns counts; that of views does not.
    for all in &mut found {
        all.sort_by(|one, other| one.0.cmp(&other.0));
    }
    assert_eq!(found[0], found[1]);
}

pub fn uuid(kind: i64, number: i64) -> String {
    format!("{kind:02x}000000-{:04x}-8000-8000-{:012x}", number >> 48, number & 0xffff_ffff_ffff)
}

fn time(micros: i64) -> Option<String> {
    Some(Timestamp::from_micros(micros).to_string().replace('T', " ").replace('Z', ""))
}

/// Chain units in whole coins.
fn human(raw: &str, decimals: usize) -> String {
    let padded = format!("{raw:0>width$}", width = decimals + 1);
    let (whole, part) = padded.split_at(padded.len() - decimals);
    format!("{whole}.{part}")
}

/// A query's columns in words that both engines print alike.
async fn table(db: &TestDb, view: &str, columns: &[&str]) -> BTreeMap<String, BTreeMap<String, Option<String>>> {
    let asked = |column: &&str| match db.engine() {
        Engine::Postgres if column.ends_with("_at") => {
            format!("to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')")
        }
        Engine::Postgres | Engine::Sqlite => (*column).to_owned(),
    };
    let list: Vec<String> = columns.iter().map(asked).collect();
    let rows = printed(db, "", &format!("SELECT {} FROM {view}", list.join(", "))).await;
    let mut table = BTreeMap::new();
    for row in rows {
        let cells: BTreeMap<String, Option<String>> = columns.iter().map(|one| (*one).to_owned()).zip(row).collect();
        let before = table.insert(cells["id"].clone().unwrap(), cells);
        assert!(before.is_none(), "{view} has one row for each id");
    }
    table
}

const GAS: [&str; 24] = [
    "id",
    "chain_id",
    "wallet_id",
    "operation_wallet_address_id",
    "gas_asset_id",
    "topup_amount_raw",
    "topup_amount_human",
    "priority",
    "status",
    "reason",
    "rule_id",
    "tx_hash",
    "tx_meta",
    "locked_by",
    "locked_at",
    "attempt_count",
    "max_attempts",
    "last_error",
    "last_error_at",
    "created_at",
    "picked_at",
    "broadcasted_at",
    "confirmed_at",
    "failed_at",
];

db_test! {
    /// Cell by cell, on both engines: what each view shows of a job is what the job was made of.
    async fn every_cell_of_a_queue_is_what_the_rows_say(db: TestDb) {
        let (jobs, now) = planted(db).await;
        let numbers = async |query: &str| -> BTreeMap<String, i64> {
            let rows = printed(db, "", query).await.into_iter();
            rows.map(|row| (row[0].clone().unwrap(), row[1].as_ref().unwrap().parse().unwrap())).collect()
        };
        let chains = numbers("SELECT name, id FROM chains").await;
        let own = "FROM asset_on_chain k JOIN chains c ON c.id = k.chain_id WHERE k.contract IS NULL";
        let listings = numbers(&format!("SELECT c.name, k.id {own}")).await;
        let assets = numbers(&format!("SELECT c.name, k.asset_id {own}")).await;
        let house_wallets = numbers("SELECT address, id FROM operation_wallet_addresses").await;
        let user_wallets = numbers("SELECT address, id FROM user_wallets").await;
        let gas = table(db, "gas_topup_queue", &GAS).await;
        let sweep_columns: Vec<&str> = GAS.iter().map(|column| match *column {
            "gas_asset_id" => "asset_on_chain_id",
            "topup_amount_raw" => "amount_raw",
            "topup_amount_human" => "amount_human",
            other => other,
        }).collect();
        let sweeps = table(db, "consolidation_queue", &sweep_columns).await;
        let payouts = table(db, "withdrawal_queue", &["id", "withdrawal_request_id", "chain_id", "asset_on_chain_id", "operation_wallet_address_id",
            "to_address", "amount_raw", "amount_human", "status", "priority", "tx_hash", "gas_used", "gas_price", "retry_count", "max_retries",
            "error_message", "scheduled_at", "processed_at", "created_at"]).await;
        assert_eq!(gas.len() + sweeps.len() + payouts.len(), jobs.len());
        for job in &jobs {
            let (chain, listing, asset) = (chains[job.chain], listings[job.chain], assets[job.chain]);
            let house = if job.kind == "consolidation" { &job.to } else { &job.from };
            let house = house_wallets[house];
            let id = uuid(7, job.id);
            let view = match job.kind {
                "gas_topup" => &gas,
                "withdrawal" => &payouts,
                _ => &sweeps,
            };
            let row = &view[&id];
            let is = |column: &str, wanted: Option<String>| assert_eq!(row[column], wanted, "{column} of {job:?}");
            let decimals = if job.chain == "bsc" { 18 } else { 6 };
            is("chain_id", Some(uuid(1, chain)));
            is("operation_wallet_address_id", Some(uuid(5, house)));
            is("created_at", time(job.created));
            let hash = if job.chain == "bsc" { format!("0x{}", job.hash()) } else { job.hash() };
            is("tx_hash", job.is_signed().then_some(hash));
            let failed = ["failed_retryable", "failed_final"].contains(&job.state);
            let error = failed.then(|| format!("{} {}", job.state, job.id));
            let under_way = job.tries + i64::from(!failed && job.state != "queued");
            if job.kind == "withdrawal" {
                is("withdrawal_request_id", Some(uuid(10, job.id)));
                is("asset_on_chain_id", Some(uuid(3, listing)));
                is("to_address", Some(job.to.clone()));
                is("amount_raw", Some(job.id.to_string()));
                is("amount_human", Some(human(&job.id.to_string(), decimals)));
                is("status", Some(match job.state {
                    "queued" | "failed_retryable" => "pending",
                    "picked" | "building_tx" | "signing" | "broadcasting" => "processing",
                    "broadcasted" | "confirming" => "confirming",
                    "confirmed" => "confirmed",
                    _ => "failed",
                }.to_owned()));
                is("priority", Some(["high", "normal", "low"][usize::try_from(job.id % 3).unwrap()].to_owned()));
                is("retry_count", Some(under_way.to_string()));
                is("max_retries", Some(MOST_TRIES.to_string()));
                is("error_message", error);
                is("scheduled_at", time(job.came));
                is("processed_at", ["confirmed", "failed_final"].contains(&job.state).then(|| time(job.came)).flatten());
                continue;
            }
            let user = if job.kind == "gas_topup" { &job.to } else { &job.from };
            let user = user_wallets[user];
            is("wallet_id", Some(uuid(6, user)));
            let (raw, whole, coin, rule) = if job.kind == "gas_topup" {
                ("topup_amount_raw", "topup_amount_human", ("gas_asset_id", uuid(2, asset)), 8)
            } else {
                ("amount_raw", "amount_human", ("asset_on_chain_id", uuid(3, listing)), 9)
            };
            is(coin.0, Some(coin.1));
            is(raw, Some(job.id.to_string()));
            is(whole, Some(human(&job.id.to_string(), decimals)));
            is("priority", Some((job.id % 3 + 99).to_string()));
            is("status", Some(job.state.to_owned()));
            is("reason", Some(format!("says {}", job.id)));
            is("rule_id", Some(uuid(rule, job.id % 5)));
            is("locked_by", job.is_worked_on().then(|| job.lock.worker(job.duty())));
            is("locked_at", job.is_worked_on().then(|| time(job.lock.until(job.duty(), now))).flatten());
            is("attempt_count", Some(under_way.to_string()));
            is("max_attempts", Some(MOST_TRIES.to_string()));
            is("last_error", error);
            is("last_error_at", failed.then(|| time(job.came)).flatten());
            let way = job.way();
            let came = |state: &str| {
                let place = way.iter().position(|one| *one == state)?;
                time(if state == job.state { job.came } else { job.created + i64::try_from(place).unwrap() })
            };
            is("picked_at", came("picked"));
            is("broadcasted_at", came("broadcasted"));
            is("confirmed_at", came("confirmed"));
            is("failed_at", came("failed_final"));
            let meta = row["tx_meta"].as_ref().map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
            let mined = job.state == "confirmed";
            let nonce = (job.chain == "bsc").then_some(job.id % 100_000);
            let wanted = serde_json::json!({ "nonce": nonce, "attempt": 2, "fee_raw": mined.then_some("21000"), "block": mined.then_some(77) });
            assert_eq!(meta, job.is_signed().then_some(wanted), "{job:?}");
        }
    }

    /// Wallets and balances under the sources' names and columns. Each id that one view names is one row of the view that it names.
    async fn wallets_and_balances_refer_to_each_other(db: TestDb) {
        planted(db).await;
        let prefix = if db.engine() == Engine::Postgres { "sources." } else { "sources_" };
        for (address, raw) in [("evm-user-1", "480000000000000000001"), ("evm-user-2", "-7"), ("bsc-gas-0", "0"), ("somebody", "5")] {
            db.by_hand(&format!("INSERT INTO wallet_balances (chain_id, address, listing_id, on_chain_balance_raw, needs_gas, needs_consolidation,
                changed_height, checked_height, updated_at) SELECT c.id, '{address}', k.id, '{raw}', TRUE, FALSE, 1, 1, 0
                FROM chains c JOIN asset_on_chain k ON k.chain_id = c.id AND k.contract IS NULL WHERE c.name = 'bsc'")).await.unwrap();
        }
        let rows = printed(db, "", &format!("SELECT b.on_chain_balance_raw, b.on_chain_balance_human, b.needs_gas, b.needs_consolidation, b.wallet_id,
            w.address, s.symbol, c.name FROM {prefix}wallet_balances b JOIN {prefix}asset_on_chain k ON k.id = b.asset_on_chain_id
            JOIN {prefix}assets s ON s.id = k.asset_id JOIN {prefix}chains c ON c.id = k.chain_id
            LEFT JOIN {prefix}operation_wallet_addresses w ON w.id = b.wallet_id ORDER BY length(b.on_chain_balance_raw) DESC, 1")).await;
        let (yes, no) = if db.engine() == Engine::Postgres { ("t", "f") } else { ("1", "0") };
        let user = async |address: &str| {
            let row = printed(db, "", &format!("SELECT id FROM user_wallets WHERE address = '{address}'")).await;
            Some(uuid(6, row[0][0].as_ref().unwrap().parse().unwrap()))
        };
        let gas = printed(db, "", &format!("SELECT id FROM {prefix}operation_wallet_addresses WHERE address = 'bsc-gas-0'")).await[0][0].clone();
        let wanted = [
            ("480000000000000000001", "480.000000000000000001", user("evm-user-1").await, None),
            ("-7", "-0.000000000000000007", user("evm-user-2").await, None),
            ("0", "0.000000000000000000", gas, Some("bsc-gas-0")),
            ("5", "0.000000000000000005", None, None),
        ];
        assert_eq!(rows.len(), wanted.len());
        for (row, (raw, whole, wallet, address)) in rows.iter().zip(wanted) {
            let text = |text: &str| Some(text.to_owned());
            let wanted = vec![text(raw), text(whole), text(yes), text(no), wallet, address.map(str::to_owned), text("BNB"), text("bsc")];
            assert_eq!(*row, wanted);
        }
        // A group of EVM keys serves one chain here, and each wallet is of one group on its own chain.
        let joined = printed(db, "", &format!("SELECT w.address, g.purpose, w.role, w.derivation_index FROM {prefix}operation_wallet_addresses w
            JOIN {prefix}wallet_groups g ON g.id = w.wallet_group_id AND g.chain_id = w.chain_id ORDER BY 1")).await;
        assert_eq!(joined.len(), 12);
        assert!(joined.iter().all(|row| row[1] == row[2]), "{joined:?}");
        let rule = printed(db, "", &format!("SELECT COUNT(*) FROM {prefix}gas_topup_rules")).await;
        assert_eq!(count(&rule), 0);
    }
}

/// Whoever asks in the sources' words sees the sources' `wallet_balances`; everybody else sees the table.
#[test]
fn postgres_the_search_path_says_whose_words_are_meant() {
    on(Engine::Postgres, async |db| {
        planted(db).await;
        let query = "SELECT pg_typeof(id)::TEXT FROM operation_wallet_addresses LIMIT 1";
        assert_eq!(printed(db, "", query).await[0][0].as_deref(), Some("bigint"));
        assert_eq!(printed(db, SOURCES_FIRST, query).await[0][0].as_deref(), Some("uuid"));
        let back = "SELECT sources.number_of(id) FROM gas_topup_queue ORDER BY 1 LIMIT 1";
        assert_eq!(printed(db, "", back).await[0][0].as_deref(), Some("1734912345678901001"));
        db.check_schema().await.unwrap();
    });
}
