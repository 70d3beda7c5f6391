//! An engine that is away, or does not want this server: the process says so, and nothing is lost by it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use domain::transfer::{Direction::*, State};
use spot::Engine;
use spot::net::{Client, Credentials, Role, Server, Token};
use store::db_test;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use transfer::leg::http::HttpLeg;
use transfer::leg::spot::SpotLeg;
use transfer::{Assets, Begin, Coordinator, CoordinatorError, Created, Settings};

use crate::support::*;

fn token(role: Role) -> Token {
    Token::new(&format!("{role}-of-the-tests")).unwrap()
}

/// Lets clients with this role's token in.
async fn serve(engine: &Engine, role: Role) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(Server::new(listener, engine.clone(), Credentials::one(role, token(role))).run()))
}

/// The wire to an engine. Cut, it refuses connections and those that were open are gone.
struct Wire {
    address: SocketAddr,
    task: Option<JoinHandle<()>>,
}

impl Wire {
    async fn to(engine: SocketAddr) -> Self {
        let mut wire = Self { address: "127.0.0.1:0".parse().unwrap(), task: None };
        wire.mend(engine).await;
        wire
    }

    async fn mend(&mut self, engine: SocketAddr) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        self.task = Some(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                connections.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(engine).await else { return };
                    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
                });
            }
        }));
    }

    async fn cut(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
}

fn quick() -> Settings {
    Settings { call_timeout: Duration::from_millis(200), ..settings() }
}

/// A coordinator whose engine is at that address.
fn remote(world: &World, address: SocketAddr) -> Arc<Coordinator> {
    let leg = SpotLeg::elsewhere(|accept| Client::start(address, token(Role::Coordinator), 1, accept));
    let leg = Arc::new(leg);
    Arc::new(coordinator(world.db.clone(), leg, world.clock.clone(), 40, quick()))
}

fn watch(coordinator: &Arc<Coordinator>) {
    let coordinator = Arc::clone(coordinator);
    tokio::spawn(async move { coordinator.watch_engine().await });
}

/// The trouble with the engine, when it has become this.
async fn until(coordinator: &Coordinator, expected: Option<&str>) {
    let seen = || coordinator.readiness().first_trouble().map(|(part, trouble)| (part, trouble.code));
    let wanted = expected.map(|code| ("engine", code));
    let arrives = async {
        // An engine that nobody has looked at yet is not known to be well.
        while coordinator.readiness().read().is_empty() || seen() != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let arrived = tokio::time::timeout(Duration::from_secs(20), arrives).await;
    assert!(arrived.is_ok(), "{:?} instead of {wanted:?}", coordinator.readiness().read());
}

async fn begin(world: &World, coordinator: &Coordinator, user: i64) -> domain::transfer::Transfer {
    let created = coordinator.create(&[world.order(user, ToSpot, 100)], Begin::Now).await.unwrap();
    let [Created::New(transfer)] = &created[..] else { panic!("{created:?}") };
    coordinator.step(vec![transfer.clone()]).await.unwrap().remove(0)
}

db_test! {
    async fn a_server_is_not_ready_while_its_engine_is_away_and_loses_nothing(db: TestDb) {
        let world = World::open(db, 2).await;
        let (engine, _serving) = serve(&world.engine, Role::Coordinator).await;
        let mut wire = Wire::to(engine).await;
        let coordinator = remote(&world, wire.address);
        watch(&coordinator);
        until(&coordinator, None).await;
        assert_eq!(begin(&world, &coordinator, 1).await.state, State::Committed);
        wire.cut().await;
        let held = begin(&world, &coordinator, 2).await;
        assert_eq!(held.state, State::TargetPending, "unknown is not failed");
        until(&coordinator, Some("LEG_UNREACHABLE")).await;
        // No holds pile up behind it.
        for _ in 0..50 {
            let refused = coordinator.create(&[world.order(1, ToSpot, 100)], Begin::Now).await;
            assert!(matches!(refused, Err(CoordinatorError::NotReady { part: "engine", .. })), "{refused:?}");
        }
        assert_eq!(world.all().await.iter().filter(|one| !one.state.is_terminal()).count(), 1, "only the first one");
        wire.mend(engine).await;
        until(&coordinator, None).await;
        world.recover_with(&coordinator).await;
        assert_eq!(world.read(held.id).await.state, State::Committed);
        assert_eq!(begin(&world, &coordinator, 2).await.state, State::Committed, "and it goes on as before");
        assert_eq!((world.books(1).await, world.books(2).await), ((FUNDS - 100, 0, 100), (FUNDS - 200, 0, 200)));
        world.assert_whole().await;
    }

    async fn a_server_whose_token_the_engine_rejects_is_not_ready_until_it_is_let_in(db: TestDb) {
        let world = World::open(db, 1).await;
        // The engine knows an observer's token only.
        let (stranger, _serving) = serve(&world.engine, Role::Observer).await;
        let mut wire = Wire::to(stranger).await;
        let coordinator = remote(&world, wire.address);
        let held = begin(&world, &coordinator, 1).await;
        assert_eq!((held.state, held.error.as_deref()), (State::TargetPending, Some("SPOT_UNAUTHORIZED")));
        assert_eq!(world.books(1).await, (FUNDS - 100, 100, 0), "a rejection refuses no transfer");
        watch(&coordinator);
        until(&coordinator, Some("SPOT_UNAUTHORIZED")).await;
        // The operator of the engine puts it right.
        let (friend, _serving) = serve(&world.engine, Role::Coordinator).await;
        wire.cut().await;
        wire.mend(friend).await;
        until(&coordinator, None).await;
        world.recover_with(&coordinator).await;
        world.assert_whole().await;
    }

    async fn a_server_whose_http_engine_is_away_is_not_ready_until_it_is_back(db: TestDb) {
        let world = World::open(db, 1).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let assets = Arc::new(Assets::load(&world.db).await.unwrap());
        let patience = Duration::from_millis(200);
        let leg = HttpLeg::new(&format!("http://{address}"), None, patience, false, assets).unwrap();
        let coordinator = coordinator(world.db.clone(), Arc::new(leg), world.clock.clone(), 41, quick());
        assert!(!coordinator.check_engine().await, "before the first call, too");
        until(&coordinator, Some("LEG_UNREACHABLE")).await;
        // It answers queries: that is enough to be there.
        let listener = TcpListener::bind(address).await.unwrap();
        let engine = tokio::spawn(answer(listener, "404 Not Found", r#"{"error": "unknown"}"#));
        assert!(coordinator.check_engine().await);
        until(&coordinator, None).await;
        // Calls that fail one after the other make it doubtful again, and a refused token is not a working engine.
        engine.abort();
        assert!(engine.await.unwrap_err().is_cancelled());
        for _ in 0..5 {
            assert_eq!(begin(&world, &coordinator, 1).await.state, State::TargetPending);
        }
        assert!(!coordinator.check_engine().await);
        until(&coordinator, Some("LEG_UNREACHABLE")).await;
        let listener = TcpListener::bind(address).await.unwrap();
        let engine = tokio::spawn(answer(listener, "401 Unauthorized", r#"{"error": "token"}"#));
        assert!(!coordinator.check_engine().await);
        until(&coordinator, Some("LEG_ANSWER_INVALID")).await;
        engine.abort();
        assert_eq!(world.books(1).await, (FUNDS - 500, 500, 0), "everything that began is held");
    }
}

/// Answers every request in the same way, and hangs up.
async fn answer(listener: TcpListener, status: &'static str, body: &'static str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 4_096];
        if stream.read(&mut request).await.unwrap_or(0) == 0 {
            continue;
        }
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await.ok();
        stream.shutdown().await.ok();
    }
}
