//! An exchange's own engine behind HTTP: a real socket, and every way to answer badly.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::transfer::{Direction::*, State};
use serde_json::{Value, json};
use store::db_test;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use transfer::Assets;
use transfer::leg::http::HttpLeg;
use transfer::leg::{Answer, Call, Leg, Record, Verb};

use crate::support::*;

/// How the engine answers its next call. It has carried it out before all of these.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Fails500,
    Garbage,
    HangsUp,
    Silent,
    AnotherTransfer,
    /// As it should.
    Well,
}

#[derive(Default)]
struct Books {
    /// What stands under each id: the verb and the answer.
    known: HashMap<String, (String, Value)>,
    committed: Vec<String>,
    balances: HashMap<i64, i64>,
    manners: VecDeque<Manner>,
    refuses_deposits: bool,
}

/// Idempotent by `req_id`, with a withdrawal that freezes: what the contract asks for.
struct ForeignEngine {
    address: String,
    books: Arc<Mutex<Books>>,
    connections: Arc<AtomicUsize>,
}

impl ForeignEngine {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/engine", listener.local_addr().unwrap());
        let (books, connections) = (Arc::<Mutex<Books>>::default(), Arc::<AtomicUsize>::default());
        let (shared, counted) = (books.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, books, connections }
    }

    fn plan(&self, manners: &[Manner]) {
        self.books.lock().unwrap().manners.extend(manners);
    }
}

async fn serve(mut stream: TcpStream, books: Arc<Mutex<Books>>) {
    let mut bytes = Vec::new();
    loop {
        let (head, length) = loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some(end) = text.find("\r\n\r\n") {
                let length = text
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
                    .unwrap_or(0);
                if bytes.len() >= end + 4 + length {
                    break (end, length);
                }
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let request = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let body: Value = serde_json::from_slice(&bytes[head + 4..head + 4 + length]).unwrap_or_default();
        bytes.drain(..head + 4 + length);
        assert!(request.contains("uthorization: Bearer engine-token"), "{request}");
        let path = request.split_whitespace().nth(1).unwrap().trim_start_matches("/engine/").to_owned();
        let (answer, manner) = {
            let mut books = books.lock().unwrap();
            let answer = books.answer(&path, &body);
            (answer, if path.starts_with("query") { None } else { books.manners.pop_front() })
        };
        let (status, text) = match manner {
            None | Some(Manner::Well) => answer,
            Some(Manner::Fails500) => (500, "oops".to_owned()),
            Some(Manner::Garbage) => (200, "<html>".to_owned()),
            Some(Manner::AnotherTransfer) => (200, json!({ "success": true, "req_id": "sr-1" }).to_string()),
            Some(Manner::HangsUp) => return,
            Some(Manner::Silent) => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                return;
            }
        };
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl Books {
    fn answer(&mut self, path: &str, body: &Value) -> (u16, String) {
        if let Some(id) = path.strip_prefix("query/") {
            return match self.known.get(id) {
                None => (404, json!({ "error": "unknown" }).to_string()),
                Some((verb, _)) if verb == "rollback" => (200, json!({ "rolled_back": true }).to_string()),
                Some((_, answer)) => (200, answer.to_string()),
            };
        }
        let id = body["req_id"].as_str().unwrap().to_owned();
        let user: i64 = body["user_id"].as_str().expect("an id is a text").parse().unwrap();
        let units = (body["amount"].as_str().unwrap().replace('.', "")).parse::<i64>().unwrap();
        assert_eq!(body["asset"], "USDT");
        let yes = json!({ "success": true, "req_id": id });
        let answer = match path {
            "commit" => {
                self.committed.push(id);
                yes
            }
            "rollback" => match self.known.insert(id, ("rollback".to_owned(), yes.clone())) {
                Some((verb, _)) if verb == "withdraw" => {
                    *self.balances.entry(user).or_default() += units;
                    yes
                }
                _ => yes,
            },
            verb => match self.known.get(&id) {
                Some((_, first)) => first.clone(),
                None => {
                    let balance = self.balances.entry(user).or_default();
                    let answer = if verb == "deposit" && self.refuses_deposits {
                        json!({ "error": "Account closed", "code": "ACCOUNT_DISABLED" })
                    } else if verb == "withdraw" && *balance < units {
                        json!({ "error": "Insufficient funds", "code": "INSUFFICIENT_BALANCE" })
                    } else {
                        *balance += if verb == "deposit" { units } else { -units };
                        yes
                    };
                    self.known.insert(id, (verb.to_owned(), answer.clone()));
                    answer
                }
            },
        };
        (200, answer.to_string())
    }
}

async fn with_http(db: &store::testing::TestDb) -> (World, ForeignEngine, Arc<HttpLeg>, transfer::Coordinator) {
    let world = World::open(db, 2).await;
    let engine = ForeignEngine::start().await;
    let assets = Arc::new(Assets::load(&world.db).await.unwrap());
    let patience = Duration::from_millis(200);
    let leg = HttpLeg::new(&engine.address, Some("engine-token"), patience, true, assets).unwrap();
    let leg = Arc::new(leg);
    let coordinator = coordinator(world.db.clone(), leg.clone(), world.clock.clone(), 30, settings());
    (world, engine, leg, coordinator)
}

async fn move_money(coordinator: &transfer::Coordinator, order: transfer::TransferOrder) -> domain::transfer::Transfer {
    let created = coordinator.create(&[order], transfer::Begin::Now).await.unwrap();
    let transfer::Created::New(new) = created[0].clone() else { panic!("{created:?}") };
    coordinator.step(vec![new]).await.unwrap().remove(0)
}

/// Reads each body as JavaScript does, carries nothing out, and tells its standard output what it read.
const NODE_ENGINE: &str = r#"
require("http").createServer((request, response) => {
    let body = "";
    request.on("data", (part) => { body += part; });
    request.on("end", () => {
        const read = JSON.parse(body);
        const seen = Object.entries(read).map(([name, value]) => `${name} ${typeof value} ${String(value)}`);
        console.log(seen.sort().join(", "));
        response.end(JSON.stringify({ success: true, req_id: read.req_id }));
    });
}).listen(0, "127.0.0.1", function () { console.log(this.address().port); });
"#;

db_test! {
    async fn an_engine_in_javascript_reads_every_digit_of_an_id(db: TestDb) {
        let world = World::open(db, 1).await;
        let mut node = tokio::process::Command::new("node")
            .args(["-e", NODE_ENGINE])
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node is installed: the documents' examples need it too");
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        let address = format!("http://127.0.0.1:{}", lines.next_line().await.unwrap().unwrap());
        let assets = Arc::new(Assets::load(&world.db).await.unwrap());
        let leg = HttpLeg::new(&address, None, Duration::from_secs(20), false, assets).unwrap();
        // One more than the largest whole number that a JavaScript number tells from its neighbours, and one more.
        let call = Call {
            verb: Verb::Deposit,
            id: domain::id::Id::new(i64::MAX).unwrap(),
            user: user(9_007_199_254_740_993),
            asset: world.usdt,
            amount: domain::transfer::MOST,
        };
        assert_eq!(leg.call(&[call]).await, [Answer::Success]);
        assert_eq!(
            lines.next_line().await.unwrap().unwrap(),
            "amount string 23058430092136939.51, asset string USDT, req_id string sr-9223372036854775807, \
             user_id string 9007199254740993",
        );
    }

    async fn an_adapter_sends_nothing_that_makes_no_sense(db: TestDb) {
        let (world, engine, http, _) = with_http(db).await;
        let good = Call {
            verb: Verb::Deposit,
            id: domain::id::Id::new(7).unwrap(),
            user: user(1),
            asset: world.usdt,
            amount: domain::Amount::from_units(100),
        };
        let more = domain::Amount::from_units(domain::transfer::MOST.units() + 1);
        let bad = [
            (Call { amount: domain::Amount::ZERO, ..good }, "INVALID_AMOUNT"),
            (Call { amount: domain::Amount::from_units(-100), ..good }, "INVALID_AMOUNT"),
            (Call { amount: more, ..good }, "OVERFLOW"),
            (Call { asset: domain::AssetId(-1), ..good }, "INVALID_ASSET"),
            (Call { asset: domain::AssetId(world.usdt.0 + (1 << 32)), ..good }, "INVALID_ASSET"),
        ];
        let legs: [&dyn Leg; 2] = [&*http, &*world.leg];
        for leg in legs {
            for (call, code) in bad {
                let answers = leg.call(&[call]).await;
                let [Answer::Pending(reason)] = &answers[..] else { panic!("{call:?}: {answers:?}") };
                assert_eq!(reason.code(), code, "{call:?}");
            }
        }
        assert!(engine.books.lock().unwrap().known.is_empty(), "nothing was sent");
        assert_eq!(world.leg.query(&[good.id]).await, [Record::Nothing], "nothing stands at the engine");
    }

    async fn a_row_that_makes_no_sense_waits_alone(db: TestDb) {
        let world = World::open(db, 2).await;
        let orders = [world.order(1, ToSpot, 100), world.order(2, ToSpot, 100)];
        let created = world.coordinator.create(&orders, transfer::Begin::Later).await.unwrap();
        let [transfer::Created::New(broken), transfer::Created::New(whole)] = &created[..] else { panic!("{created:?}") };
        let more = domain::transfer::MOST.units() + 1;
        db.by_hand(&format!("UPDATE transfers SET amount = {more} WHERE id = {}", broken.id.number())).await.unwrap();
        let (broken, whole) = (world.read(broken.id).await, world.read(whole.id).await);
        world.coordinator.step(vec![broken.clone(), whole.clone()]).await.unwrap();
        let (broken, whole) = (world.read(broken.id).await, world.read(whole.id).await);
        assert_eq!((broken.state, broken.error.as_deref()), (State::SourcePending, Some("OVERFLOW")));
        assert_eq!(whole.state, State::Committed, "its neighbour goes on");
        assert_eq!(world.books(1).await, (FUNDS, 0, 0), "nothing was held");
        assert_eq!(world.books(2).await, (FUNDS - 100, 0, 100));
    }

    async fn any_engine_can_be_the_other_side(db: TestDb) {
        let (world, engine, leg, coordinator) = with_http(db).await;
        let there = move_money(&coordinator, world.order(1, ToSpot, 1_000)).await;
        assert_eq!(there.state, State::Committed);
        let back = move_money(&coordinator, world.order(1, ToFunding, 300)).await;
        assert_eq!(back.state, State::Committed);
        assert_eq!(engine.books.lock().unwrap().committed, [back.id.to_string()], "the source is settled");
        assert_eq!(engine.books.lock().unwrap().balances[&1], 700);
        // It does not tell balances, so a refusal comes from itself.
        let refused = move_money(&coordinator, world.order(1, ToFunding, 701)).await;
        assert_eq!((refused.state, refused.error.as_deref()), (State::Failed, Some("INSUFFICIENT_BALANCE")));
        engine.books.lock().unwrap().refuses_deposits = true;
        let closed = move_money(&coordinator, world.order(2, ToSpot, 500)).await;
        assert_eq!((closed.state, closed.error.as_deref()), (State::RolledBack, Some("ACCOUNT_DISABLED")));
        assert_eq!(leg.query(&[there.id]).await, [Record::Applied]);
        assert!(matches!(leg.query(&[refused.id]).await[..], [Record::Refused(_)]));
        assert_eq!(leg.query(&[domain::id::Id::new(5).unwrap()]).await, [Record::Nothing]);
        assert!(engine.connections.load(Ordering::SeqCst) <= 3, "connections are kept: there were more calls than that");
    }

    async fn a_bad_answer_is_no_answer(db: TestDb) {
        let (world, engine, _, coordinator) = with_http(db).await;
        move_money(&coordinator, world.order(1, ToSpot, 2_000)).await;
        for manner in
            [Manner::Fails500, Manner::Garbage, Manner::HangsUp, Manner::Silent, Manner::AnotherTransfer]
        {
            engine.plan(&[manner]);
            let there = move_money(&coordinator, world.order(2, ToSpot, 100)).await;
            assert_eq!(there.state, State::TargetPending, "{manner:?}");
            engine.plan(&[manner]);
            let back = move_money(&coordinator, world.order(1, ToFunding, 100)).await;
            assert_eq!(back.state, State::SourcePending, "{manner:?}");
            world.recover_with(&coordinator).await;
            for id in [there.id, back.id] {
                assert_eq!(world.read(id).await.state, State::Committed, "{manner:?}");
            }
        }
        let books = engine.books.lock().unwrap();
        assert_eq!((books.balances[&1], books.balances[&2]), (2_000 - 500, 500), "each once");
    }

    /// From a seed: batches both ways, while the engine answers badly half of the time.
    async fn whatever_the_engine_answers_each_transfer_takes_effect_once(db: TestDb) {
        let (world, engine, _, coordinator) = with_http(db).await;
        for round in 0..crate::storm::rounds(3) {
            let mut random = domain::random::Random::from_seed(round);
            let bad = [Manner::Fails500, Manner::Garbage, Manner::HangsUp, Manner::Silent, Manner::AnotherTransfer];
            let manners = (0..120).map(|_| if random.below(2) == 0 { Manner::Well } else { bad[random.index(bad.len())] });
            engine.plan(&manners.collect::<Vec<_>>());
            for _ in 0..6 {
                engine.books.lock().unwrap().refuses_deposits = random.below(4) == 0;
                let orders: Vec<_> = (0..1 + random.below(6))
                    .map(|_| {
                        let direction = if random.below(2) == 0 { ToSpot } else { ToFunding };
                        let user = 1 + i64::try_from(random.below(2)).unwrap();
                        world.order(user, direction, 10 + i64::try_from(random.below(400)).unwrap())
                    })
                    .collect();
                let created = coordinator.create(&orders, transfer::Begin::Now).await.unwrap();
                let new = created.into_iter().filter_map(|one| match one {
                    transfer::Created::New(transfer) => Some(transfer),
                    _ => None,
                });
                coordinator.step(new.collect()).await.unwrap();
                world.wait(Duration::from_secs(1));
                transfer::scanner::scan_once(&coordinator).await.unwrap();
            }
            engine.books.lock().unwrap().manners.clear();
            world.recover_with(&coordinator).await;
            for number in 1..=2 {
                let all = world.all().await.into_iter().filter(|one| one.user == user(number));
                let moved: i64 = all
                    .filter(|one| one.state == State::Committed)
                    .map(|one| if one.direction == ToSpot { one.amount.units() } else { -one.amount.units() })
                    .sum();
                let (available, frozen, _) = world.books(number).await;
                assert_eq!((available, frozen), (FUNDS - moved, 0), "round {round}, user {number}");
                let there = engine.books.lock().unwrap().balances.get(&number).copied().unwrap_or(0);
                assert_eq!(there, moved, "round {round}, user {number}: the engine");
            }
            // A withdrawal that the engine froze is settled there exactly if its transfer was committed here.
            let back = world.all().await.into_iter().filter(|one| one.direction == ToFunding);
            for transfer in back {
                let settled = engine.books.lock().unwrap().committed.contains(&transfer.id.to_string());
                assert_eq!(settled, transfer.state == State::Committed, "round {round}: {transfer:?}");
            }
            world.wait(Duration::from_secs(86_400));
        }
    }

    async fn nobody_listening_is_no_refusal(db: TestDb) {
        let (world, _, _, _) = with_http(db).await;
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", nobody.local_addr().unwrap());
        drop(nobody);
        let assets = Arc::new(Assets::load(&world.db).await.unwrap());
        let leg = HttpLeg::new(&address, None, Duration::from_millis(200), false, assets).unwrap();
        let lonely = coordinator(world.db.clone(), Arc::new(leg), world.clock.clone(), 31, settings());
        let there = move_money(&lonely, world.order(1, ToSpot, 100)).await;
        assert_eq!((there.state, there.error.as_deref()), (State::TargetPending, Some("LEG_UNREACHABLE")));
        assert_eq!(world.books(1).await.1, 100, "the money stays held");
    }
}
