//! Answers from nodes that lie, lag and break off: a quorum of the others says the truth, or there is no answer.

mod at_block;
mod honest;
mod left_out;
mod payments;
mod proven;

use std::time::Duration;

use chain::endpoint::{CallError, Event};
use chain::{Chain, ChainError, Scan, Watched};
use devnet::{Connection, Garbage, Lie, View, WireFaults};
use domain::ChainKind;
use tx::{Address, Coin, TxHash};

use crate::rig::{ENDPOINTS, Rig, SignedPayment, happened, on_every_chain, was_found_lying, watch};

const GARBAGE: [Garbage; 7] = [
    Garbage::Html,
    Garbage::HtmlOk,
    Garbage::Empty,
    Garbage::Truncated,
    Garbage::WrongType,
    Garbage::Absurd,
    Garbage::Huge,
];

on_every_chain! { hasty:
    one_liar_changes_no_answer
    two_liars_of_three_make_no_wrong_answer_where_all_must_agree
    a_lagging_node_changes_no_answer
    a_node_that_lags_far_is_set_aside_until_it_has_caught_up
    a_contradicting_node_changes_no_answer
    a_broken_node_changes_no_answer
    from_broken_nodes_alone_nothing_is_made
    a_gigabyte_is_not_read
}

fn faulty(garbage: Option<Garbage>, connection: Connection) -> WireFaults {
    WireFaults { garbage, connection, ..WireFaults::default() }
}

fn wire_faults() -> Vec<WireFaults> {
    let garbage = GARBAGE.into_iter().map(|garbage| faulty(Some(garbage), Connection::Whole));
    let connections = [Connection::HalfClosed, Connection::Silent].map(|connection| faulty(None, connection));
    garbage.chain(connections).chain([WireFaults { rate_limit: Some(0), ..WireFaults::default() }]).collect()
}

/// What is asked here: a deposit, a payment that was made, and a payment that nobody has heard of.
struct Questions {
    owner: Address,
    watched: Watched,
    deposit: TxHash,
    paid: SignedPayment,
    unheard: SignedPayment,
    heights: Vec<u64>,
}

impl Questions {
    async fn new(rig: &Rig) -> Self {
        let owner = rig.address(50);
        let watched = watch(&[&owner]);
        rig.mine(6);
        let deposit = rig.deposit(&owner, &rig.coin(), 700_000).await;
        let paid = rig.pay(0, 51, 1_000_000).await;
        rig.send(&paid).await;
        rig.mine(2);
        let unheard = rig.pay(1, 51, 1_000_000).await;
        let height = rig.height();
        Self { owner, watched, deposit, paid, unheard, heights: vec![height, height - 1, height - 4, height - 2] }
    }

    /// What credits or finalizes money.
    async fn decisive(&self, chain: &dyn Chain) -> Vec<(&'static str, Result<String, ChainError>)> {
        vec![
            ("headers", said(chain.headers(&self.heights).await)),
            ("prove", said(chain.prove(self.deposit, &self.watched).await)),
            ("prove nothing", said(chain.prove(self.unheard.sent.hash, &self.watched).await)),
            ("status", said(chain.status(&self.paid.sent).await)),
            ("status of the unheard", said(chain.status(&self.unheard.sent).await)),
        ]
    }

    /// Everything that can be asked.
    async fn all(&self, rig: &Rig, chain: &dyn Chain) -> Vec<(&'static str, Result<String, ChainError>)> {
        let (from, payment) = (rig.address(2), rig.payment(51, rig.coin(), 5_000));
        let wanted = [(self.owner.clone(), rig.coin()), (rig.address(0), Coin::Native)];
        let mut answers = self.decisive(chain).await;
        answers.push(("head", said(chain.head().await)));
        let (first, last) = (self.heights[2], self.heights[0]);
        answers.push(("scan", said(chain.scan(first, last, &self.watched).await.map(unsigned))));
        answers.push(("balances", said(chain.balances(&wanted).await)));
        answers.push(("quote", said(chain.quote(&from, &payment, rig.cap()).await)));
        if rig.kind == ChainKind::Evm {
            answers.push(("nonces", said(chain.nonces(&[rig.address(0), rig.address(1)]).await)));
        }
        answers.push(("network", said(chain.check_network().await)));
        answers
    }
}

/// Without the name of the node that it came from.
fn unsigned(scan: Scan) -> Scan {
    Scan { source: String::new(), ..scan }
}

fn said<T: std::fmt::Debug>(answer: Result<T, ChainError>) -> Result<String, ChainError> {
    answer.map(|answer| format!("{answer:?}"))
}

async fn in_time<T>(seconds: u64, asked: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), asked).await.expect("an answer in bounded time")
}

async fn one_liar_changes_no_answer(rig: Rig) {
    let questions = Questions::new(&rig).await;
    let truth = questions.decisive(&*rig.truth).await;
    assert!(truth.iter().all(|(_, answer)| answer.is_ok()), "{truth:?}");
    for lie in [Lie::Missing, Lie::Flipped, Lie::Inflated] {
        for endpoint in 0..ENDPOINTS {
            let (chain, mut events) = rig.client(2);
            rig.view(endpoint, View { lie, ..View::default() });
            assert_eq!(questions.decisive(&*chain).await, truth, "{lie:?} on {endpoint}");
            rig.heal();
            let events = happened(&mut events);
            // Bitcoin's client reads the block itself, so nobody is asked for what could be a lie. The last one is not
            // asked at all where the first two agree.
            if rig.kind != ChainKind::Bitcoin && endpoint < 2 {
                assert!(was_found_lying(&events, endpoint), "{lie:?} on {endpoint}: {events:?}");
            }
            let slandered = (0..ENDPOINTS).any(|other| other != endpoint && was_found_lying(&events, other));
            assert!(!slandered, "{lie:?} on {endpoint}: {events:?}");
        }
    }
}

async fn two_liars_of_three_make_no_wrong_answer_where_all_must_agree(rig: Rig) {
    let questions = Questions::new(&rig).await;
    let truth = questions.decisive(&*rig.truth).await;
    for lie in [Lie::Missing, Lie::Flipped, Lie::Inflated] {
        for honest in 0..ENDPOINTS {
            let (chain, _) = rig.client(3);
            for liar in (0..ENDPOINTS).filter(|endpoint| *endpoint != honest) {
                rig.view(liar, View { lie, ..View::default() });
            }
            let mut refused = 0;
            for ((question, answer), (_, right)) in questions.decisive(&*chain).await.into_iter().zip(&truth) {
                // On Bitcoin the cost is not in the block: where not all name it, it is left out.
                let costless = |text: String| text.replace("fee: Some(RawAmount(2000))", "fee: None");
                let right = &right.clone().map(costless);
                match answer.map(costless) {
                    Err(ChainError::NoQuorum { wanted: 3, .. }) => refused += 1,
                    answer => assert_eq!(&answer, right, "{question}, {lie:?}, {honest} is honest"),
                }
            }
            assert!(refused > 0 || rig.kind == ChainKind::Bitcoin, "{lie:?}");
            rig.heal();
        }
    }
}

async fn a_lagging_node_changes_no_answer(rig: Rig) {
    let questions = Questions::new(&rig).await;
    let truth = questions.decisive(&*rig.truth).await;
    for lag in [1, 2, 4, 9] {
        for endpoint in 0..ENDPOINTS {
            let (chain, _) = rig.client(2);
            rig.view(endpoint, View { lag, ..View::default() });
            assert_eq!(questions.decisive(&*chain).await, truth, "{lag} blocks on {endpoint}");
            rig.heal();
        }
    }
}

async fn a_node_that_lags_far_is_set_aside_until_it_has_caught_up(rig: Rig) {
    rig.mine(20);
    for endpoint in 0..ENDPOINTS {
        let (chain, mut events) = rig.client(2);
        rig.view(endpoint, View { lag: 15, ..View::default() });
        let name = format!("node {endpoint}");
        // Whom else is asked for a head, and when, is left to chance.
        for _ in 0..300 {
            chain.head().await.unwrap();
        }
        let height = rig.height() - 15;
        let lags = Event::Lags { endpoint: name.clone(), height, confirmed: rig.height() };
        let said = happened(&mut events);
        assert!(said.contains(&lags), "{said:?}");
        for _ in 0..50 {
            assert_eq!(chain.head().await.unwrap().tip.height, rig.height());
        }
        rig.heal();
        rig.wait(1);
        for _ in 0..3 {
            chain.head().await.unwrap();
        }
        assert_eq!(happened(&mut events), [Event::Back { endpoint: name }]);
    }
}

async fn a_contradicting_node_changes_no_answer(rig: Rig) {
    let questions = Questions::new(&rig).await;
    let truth = questions.decisive(&*rig.truth).await;
    for below in [0, 2, 5] {
        for endpoint in 0..ENDPOINTS {
            let (chain, _) = rig.client(2);
            rig.view(endpoint, View { contradict: Some(rig.height() - below), ..View::default() });
            assert_eq!(questions.decisive(&*chain).await, truth, "{below} below on {endpoint}");
            rig.heal();
        }
    }
}

async fn a_broken_node_changes_no_answer(rig: Rig) {
    let questions = Questions::new(&rig).await;
    let truth = questions.all(&rig, &*rig.truth).await;
    assert!(truth.iter().all(|(_, answer)| answer.is_ok()), "{truth:?}");
    for faults in wire_faults() {
        for endpoint in 0..ENDPOINTS {
            let (chain, _) = rig.client(2);
            rig.wire(endpoint, faults);
            let answers = in_time(60, questions.all(&rig, &*chain)).await;
            for (answer, right) in answers.iter().zip(&truth) {
                assert_eq!(answer, right, "{faults:?} on {endpoint}");
            }
            rig.heal();
        }
    }
}

async fn from_broken_nodes_alone_nothing_is_made(rig: Rig) {
    let questions = Questions::new(&rig).await;
    let truth = questions.all(&rig, &*rig.truth).await;
    for faults in wire_faults() {
        let (chain, _) = rig.client(2);
        rig.wire_all(faults);
        let answers = in_time(60, questions.all(&rig, &*chain)).await;
        rig.heal();
        for ((question, answer), (_, right)) in answers.into_iter().zip(&truth) {
            // What such a node has not spoilt may still be true. An offer at the cap is always safe.
            let unspoilt = faults.garbage == Some(Garbage::Absurd)
                && (answer == *right
                    || question == "quote" && answer.as_ref().is_ok_and(|it| it.contains("capped: true")));
            assert!(answer.is_err() || unspoilt, "{question} by {faults:?}: {answer:?}");
        }
        // And when they are well again, everything is as it was.
        rig.wait(1_000);
        let answers = questions.all(&rig, &*chain).await;
        assert_eq!(answers, truth, "after {faults:?}");
    }
}

async fn a_gigabyte_is_not_read(rig: Rig) {
    rig.mine(2);
    rig.wire_all(faulty(Some(Garbage::Huge), Connection::Whole));
    let error = in_time(10, rig.chain.head()).await.unwrap_err();
    assert!(matches!(error, ChainError::Unreachable(CallError::TooLong { .. })), "{error:?}");
}
