//! The engine over TCP: who is let in, what is answered, and what survives a lost connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::ManualClock;
use spot::net::{Client, ClientError, ConnectionState, Credentials, Role, Server, Token, Welcome};
use spot::service::Limits;
use spot::sim::FaultyDisk;
use spot::{Answer, Decision, Engine, NoAnswer, Operation, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{NOW, applied, create, deposit, of, open, withdraw};

fn token() -> Token {
    token_of(Role::Coordinator)
}

/// A token for each role: its name, and enough behind it.
fn token_of(role: Role) -> Token {
    Token::new(&format!("{role}-of-the-tests")).expect("long enough")
}

fn credentials() -> Credentials {
    let line = |role: Role| format!("{role} {role}-of-the-tests\n");
    Credentials::parse(&Role::ALL.into_iter().map(line).collect::<String>()).expect("well formed")
}

fn engine(disk: &FaultyDisk) -> Engine {
    let core = open(disk).map_or_else(|_| create(disk), |(core, _)| core);
    Engine::start(core, Limits { queue: 8_192, ..Limits::default() }, Arc::new(ManualClock::at(NOW))).expect("threads")
}

async fn serve(engine: &Engine, address: &str) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    (address, tokio::spawn(Server::new(listener, engine.clone(), credentials()).run()))
}

#[tokio::test]
async fn many_frames_in_flight_are_each_answered() {
    let engine = engine(&FaultyDisk::new(1));
    let (address, _server) = serve(&engine, "127.0.0.1:0").await;
    let client = Client::start(address, token(), 1, |_| Ok(()));
    let tasks: Vec<_> = (0..50_i64)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    let first = task * 1_000 + round * 10;
                    let requests: Vec<Request> =
                        (first..first + 10).map(|number| deposit(number, task + 1, 1).into()).collect();
                    assert_eq!(client.submit(&requests).await.expect("answered"), applied(10));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(client.ask(withdraw(90_000, 7, 200)).await, Ok(Answer::First(Decision::Applied)));
    assert_eq!(client.ask(withdraw(90_000, 7, 200)).await, Ok(Answer::Replay(Decision::Applied)));
    assert_eq!(
        client.ask(Request::Total(domain::AssetId(1))).await.map(|answer| format!("{answer:?}")),
        Ok("Total(Amount(9800))".into())
    );
    let operator = Client::start(address, token_of(Role::Operator), 1, |_| Ok(()));
    let (snapshot, beside) = tokio::join!(operator.snapshot(), client.ask(deposit(90_001, 7, 200)));
    assert!(snapshot.expect("taken") > 0);
    assert_eq!(beside, Ok(Answer::First(Decision::Applied)));
    assert_eq!(client.submit(&[]).await, Err(ClientError::NotTaken(NoAnswer::Size)));
}

/// Whoever may only ask must not be able to stop those who move money.
#[tokio::test]
async fn many_observers_leave_a_place_for_the_coordinator() {
    let engine = engine(&FaultyDisk::new(1));
    let (address, _server) = serve(&engine, "127.0.0.1:0").await;
    let total = Request::Total(domain::AssetId(1));
    let observers: Vec<Client> =
        (0..64).map(|seed| Client::start(address, token_of(Role::Observer), seed, |_| Ok(()))).collect();
    for observer in &observers {
        observer.ask(total).await.expect("answered");
    }
    let one_more = Client::start(address, token_of(Role::Observer), 64, |_| Ok(()));
    assert!(timeout(Duration::from_millis(300), one_more.ask(total)).await.is_err(), "there is no place for it");
    let coordinator = Client::start(address, token(), 65, |_| Ok(()));
    assert_eq!(coordinator.ask(deposit(1, 7, 200)).await, Ok(Answer::First(Decision::Applied)));
}

#[tokio::test]
async fn a_wrong_token_is_told_at_once_and_let_in_when_the_engine_takes_it() {
    let disk = FaultyDisk::new(2);
    let running = engine(&disk);
    let (address, server) = serve(&running, "127.0.0.1:0").await;
    let other = Token::new("another token, longer").expect("long enough");
    let client = Client::start(address, other.clone(), 1, |_| Ok(()));
    assert_eq!(client.ask(deposit(1, 1, 1)).await, Err(ClientError::Unauthorized));
    assert_eq!(client.ask(deposit(2, 1, 1)).await, Err(ClientError::Unauthorized));
    assert_eq!(*client.state().borrow(), ConnectionState::Rejected(ClientError::Unauthorized));
    assert_eq!(running.counters().requests.load(Ordering::Relaxed), 0);
    // The operator gives the engine this client's token. The client finds out by itself.
    server.abort();
    assert!(server.await.expect_err("aborted").is_cancelled());
    let listener = TcpListener::bind(address).await.expect("the same port");
    let _server =
        tokio::spawn(Server::new(listener, running.clone(), Credentials::one(Role::Coordinator, other)).run());
    let mut state = client.state();
    let connected = state.wait_for(|state| matches!(state, ConnectionState::Connected(_)));
    drop(timeout(Duration::from_secs(20), connected).await.expect("in time").expect("the client lives"));
    assert_eq!(client.ask(deposit(1, 1, 1)).await, Ok(Answer::First(Decision::Applied)));
    assert!(Token::new("short").is_err());
    assert!(!format!("{:?}", token()).contains("tests"));
}

/// Every role tries everything, alone and hidden behind requests that it may make. Only the coordinator makes money.
#[tokio::test]
async fn a_token_does_what_its_role_may_and_nothing_else() {
    let running = engine(&FaultyDisk::new(9));
    let (address, _server) = serve(&running, "127.0.0.1:0").await;
    let coordinator = Client::start(address, token(), 1, |_| Ok(()));
    assert_eq!(coordinator.ask(deposit(1, 7, 100)).await, Ok(Answer::First(Decision::Applied)));
    let of = |number: i64| of(number, 7, 10);
    let status = |number: i64| {
        let of = of(number);
        Operation::SetStatus { id: of.id, user: of.user, asset: of.asset, status: domain::AccountStatus::Frozen }
    };
    let asset = domain::AssetId(1);
    let total = async || format!("{:?}", coordinator.ask(Request::Total(asset)).await.expect("answered"));
    for (place, role) in Role::ALL.into_iter().enumerate() {
        let client = Client::start(address, token_of(role), 1, |_| Ok(()));
        let first = 100 * i64::try_from(place + 1).expect("small");
        let requests: [(Operation, Role); 6] = [
            (Operation::Deposit(of(first)), Role::Coordinator),
            (Operation::Withdraw(of(first + 1)), Role::Coordinator),
            (Operation::Rollback(of(first + 2)), Role::Coordinator),
            (Operation::Reserve(of(first + 3)), Role::OrderEngine),
            (Operation::Release(of(first + 4)), Role::OrderEngine),
            (status(first + 5), Role::Operator),
        ];
        let before = total().await;
        for (operation, allowed) in requests.into_iter().filter(|(_, allowed)| *allowed != role) {
            let hidden = [Request::Total(asset), operation.into(), Request::Total(asset)];
            assert_eq!(client.submit(&hidden).await, Err(ClientError::Forbidden), "{role} as {allowed}");
            assert_eq!(client.ask(operation).await, Err(ClientError::Forbidden), "{role} as {allowed}");
            let standing = client.ask(Request::Query(operation.id())).await;
            assert_eq!(standing, Ok(Answer::Standing(None)), "{role}: nothing of the frame was run");
        }
        assert_eq!(total().await, before, "{role}");
        for (operation, _) in requests.into_iter().filter(|(_, allowed)| *allowed == role) {
            assert!(matches!(client.ask(operation).await, Ok(Answer::First(_))), "{role} {operation:?}");
        }
        let snapshot = client.snapshot().await;
        assert_eq!(snapshot.err(), (role != Role::Operator).then_some(ClientError::Forbidden), "{role}");
        assert!(
            matches!(*client.state().borrow(), ConnectionState::Connected(Welcome { role: told, .. }) if told == role)
        );
    }
}

#[tokio::test]
async fn nothing_is_sent_to_an_engine_that_the_client_does_not_accept() {
    let running = engine(&FaultyDisk::new(7));
    let (address, _server) = serve(&running, "127.0.0.1:0").await;
    let wanted = Arc::new(AtomicU64::new(running.log_id() + 1));
    let asked = Arc::clone(&wanted);
    let client = Client::start(address, token(), 1, move |welcome: &Welcome| {
        assert_eq!(welcome.time, NOW, "the engine's clock");
        let words = || "another engine".to_owned();
        let fits = welcome.pair.log_id == asked.load(Ordering::Relaxed);
        fits.then_some(()).ok_or_else(|| ClientError::Unacceptable { code: "ANOTHER_ENGINE", words: words() })
    });
    let error = client.ask(deposit(1, 1, 1)).await.expect_err("not accepted");
    assert_eq!((error.code(), error.to_string().as_str()), ("ANOTHER_ENGINE", "another engine"));
    assert_eq!(running.counters().sequence.load(Ordering::Relaxed), 0, "nothing was sent");
    // What is wrong may be put right: the next connection is accepted.
    wanted.store(running.log_id(), Ordering::Relaxed);
    let mut state = client.state();
    let connected = state.wait_for(|state| matches!(state, ConnectionState::Connected(_)));
    drop(timeout(Duration::from_secs(20), connected).await.expect("in time").expect("the client lives"));
    assert_eq!(client.ask(deposit(1, 1, 1)).await, Ok(Answer::First(Decision::Applied)));
}

#[tokio::test]
async fn a_client_says_why_its_engine_is_away() {
    let disk = FaultyDisk::new(8);
    let running = engine(&disk);
    let (address, server) = serve(&running, "127.0.0.1:0").await;
    let client = Client::start(address, token(), 1, |_| Ok(()));
    assert_eq!(client.ask(deposit(1, 1, 1)).await, Ok(Answer::First(Decision::Applied)));
    running.stop().await;
    server.abort();
    assert!(server.await.expect_err("aborted").is_cancelled());
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.ask(deposit(2, 1, 1)).await }
    });
    let mut state = client.state();
    let refused = state.wait_for(|state| matches!(state, ConnectionState::Away(why) if why.contains("refused")));
    drop(timeout(Duration::from_secs(20), refused).await.expect("in time").expect("the client lives"));
    // The call outlives the outage, and is done once.
    drop(running);
    let running = engine(&disk);
    let (_, _server) = serve(&running, &address.to_string()).await;
    let answer = timeout(Duration::from_secs(20), waiting).await.expect("in time").expect("no panic");
    assert_eq!(answer, Ok(Answer::First(Decision::Applied)));
    assert!(matches!(*client.state().borrow(), ConnectionState::Connected(_)));
}

/// A raw connection that has said hello.
async fn greeted(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let token = b"coordinator-of-the-tests";
    let mut hello = Vec::new();
    hello.extend_from_slice(&u32::try_from(10 + token.len()).expect("small").to_le_bytes());
    hello.extend_from_slice(&0_u64.to_le_bytes());
    hello.extend_from_slice(&[1, 2]);
    hello.extend_from_slice(token);
    stream.write_all(&hello).await.expect("sent");
    let mut welcome = [0; 65];
    stream.read_exact(&mut welcome).await.expect("welcome");
    assert_eq!(welcome[12..14], [4, 2]);
    stream
}

fn frame(number: u64, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(9 + body.len()).expect("small").to_le_bytes().to_vec();
    frame.extend_from_slice(&number.to_le_bytes());
    frame.push(kind);
    frame.extend_from_slice(body);
    frame
}

#[tokio::test]
async fn garbage_ends_its_own_connection_and_nothing_else() {
    let engine = engine(&FaultyDisk::new(3));
    let (address, _server) = serve(&engine, "127.0.0.1:0").await;
    let closed = async |mut stream: TcpStream| {
        let mut rest = Vec::new();
        timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.expect("closed").ok();
        rest
    };
    // No hello, a hello of another version, an endless frame.
    for bytes in
        [frame(1, 2, &[0; 32]), frame(1, 1, &[9, 9]), vec![0xff; 64], vec![0; 64], b"GET / HTTP/1.1\r\n\r\n".to_vec()]
    {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(&bytes).await.expect("sent");
        closed(stream).await;
    }
    // After the hello: an unknown frame, an unknown request, half a request. Each is answered, then the end.
    for bytes in [frame(7, 99, &[]), frame(7, 2, &[77; 32]), frame(7, 2, &[1; 31])] {
        let mut stream = greeted(address).await;
        stream.write_all(&bytes).await.expect("sent");
        assert_eq!(closed(stream).await, frame(7, 6, &[5]), "malformed");
    }
    // An empty submission is refused, and the connection lives.
    let mut stream = greeted(address).await;
    stream.write_all(&frame(8, 2, &[])).await.expect("sent");
    let mut answer = [0; 14];
    stream.read_exact(&mut answer).await.expect("answered");
    assert_eq!(answer[..], frame(8, 6, &[2])[..]);
    let client = Client::start(address, token(), 1, |_| Ok(()));
    assert_eq!(client.ask(deposit(1, 1, 1)).await, Ok(Answer::First(Decision::Applied)));
}

#[tokio::test]
async fn a_client_that_never_reads_stalls_only_itself() {
    let engine = engine(&FaultyDisk::new(4));
    let (address, _server) = serve(&engine, "127.0.0.1:0").await;
    let mut dead = greeted(address).await;
    let mut body = Vec::new();
    for _ in 0..4_096 {
        Request::Total(domain::AssetId(1)).encode(&mut body);
    }
    // It sends until it is stuck, because it never takes the answers.
    let stuck = async {
        for number in 1.. {
            if dead.write_all(&frame(number, 2, &body)).await.is_err() {
                break;
            }
        }
    };
    assert!(timeout(Duration::from_secs(3), stuck).await.is_err(), "its frames are not taken without end");
    let client = Client::start(address, token(), 1, |_| Ok(()));
    for number in 1..50 {
        let answer = timeout(Duration::from_secs(5), client.ask(deposit(number, 1, 1))).await.expect("no stall");
        assert_eq!(answer, Ok(Answer::First(Decision::Applied)));
    }
}

#[tokio::test]
async fn a_client_reconnects_and_sends_again_and_nothing_is_done_twice() {
    let disk = FaultyDisk::new(5);
    let mut running = engine(&disk);
    let (address, mut server) = serve(&running, "127.0.0.1:0").await;
    let client = Client::start(address, token(), 1, |_| Ok(()));
    let asking = {
        let client = client.clone();
        tokio::spawn(async move {
            for number in 0..400_i64 {
                let answer = client.ask(deposit(number, 1, 3)).await.expect("answered in the end");
                assert!(
                    matches!(answer, Answer::First(Decision::Applied) | Answer::Replay(Decision::Applied)),
                    "{answer:?}"
                );
            }
        })
    };
    // The engine is stopped, and another one takes its place on the same port, again and again.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        running.stop().await;
        server.abort();
        assert!(server.await.expect_err("aborted").is_cancelled());
        drop(running);
        running = engine(&disk);
        server = serve(&running, &address.to_string()).await.1;
    }
    timeout(Duration::from_secs(60), asking).await.expect("in time").expect("no panic");
    assert_eq!(
        client.ask(Request::Total(domain::AssetId(1))).await.map(|answer| format!("{answer:?}")),
        Ok("Total(Amount(1200))".into())
    );
}

/// A proxy that cuts each connection after a while loses requests and answers; both come through in the end, once.
#[tokio::test]
async fn answers_that_are_lost_on_the_way_are_asked_for_again() {
    let engine = engine(&FaultyDisk::new(6));
    let (address, _server) = serve(&engine, "127.0.0.1:0").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let proxy = listener.local_addr().expect("bound");
    let cuts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&cuts);
    tokio::spawn(async move {
        let mut random = domain::random::Random::from_seed(6);
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(address).await.expect("connected");
            let time = Duration::from_micros(500 + random.below(20_000));
            timeout(time, tokio::io::copy_bidirectional(&mut near, &mut far)).await.ok();
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let client = Client::start(proxy, token(), 1, |_| Ok(()));
    for round in 0..40_i64 {
        let requests: Vec<Request> = (0..50).map(|number| deposit(round * 50 + number, 1, 1).into()).collect();
        let answers =
            timeout(Duration::from_secs(30), client.submit(&requests)).await.expect("in time").expect("answered");
        let applied =
            |answer: &Answer| matches!(answer, Answer::First(Decision::Applied) | Answer::Replay(Decision::Applied));
        assert!(answers.iter().all(applied), "{answers:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(
        client.ask(Request::Total(domain::AssetId(1))).await.map(|answer| format!("{answer:?}")),
        Ok("Total(Amount(2000))".into())
    );
    assert!(cuts.load(Ordering::Relaxed) > 3, "connections were cut");
}
