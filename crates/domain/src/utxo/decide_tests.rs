//! The decision without a database: a graph is filled by hand, one event is told, and the states are read.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::*;

const WALLET: WalletId = WalletId(1);

fn hash(name: u8) -> Hash {
    Hash([name; 32])
}

fn out(tx: u8, index: u32) -> OutPoint {
    OutPoint { hash: hash(tx), index }
}

fn tx(name: u8, inputs: &[OutPoint]) -> NewTx {
    let outputs = vec![NewOutput { script: vec![name], amount: 1_000 }];
    NewTx { hash: hash(name), raw: vec![name], coinbase: inputs.is_empty(), inputs: inputs.to_vec(), outputs }
}

/// As a store would fill it.
fn add(graph: &mut Graph<'_>, tx: &NewTx, state: State, once_published: bool, age: i64) {
    let mut entry = TxEntry::stored(state, tx.coinbase, false, age);
    entry.stored_in.insert(WALLET);
    entry.inputs.clone_from(&tx.inputs);
    entry.once_published |= once_published;
    graph.entries.insert(tx.hash, entry);
    for (index, input) in (0_u32..).zip(&tx.inputs) {
        graph.add_claim(*input, tx.hash, index);
    }
}

fn own_output(graph: &mut Graph<'_>, outpoint: OutPoint) {
    let spender = graph.spender(&outpoint);
    graph
        .coins
        .insert(outpoint, Ours { wallet: WALLET, account: 0, amount: 1_000, row: Row::Stored { id: 1, spender } });
}

const fn at(height: u32) -> State {
    State { status: Status::Published, height: Some(height) }
}

const REPLACED: State = State { status: Status::Replaced, height: None };

fn status(graph: &Graph<'_>, name: u8) -> Status {
    graph.state(hash(name)).expect("it is in the graph").status
}

#[test]
fn what_a_block_spends_fails_with_all_that_depends_on_it_and_frees_what_it_held() {
    let mut graph = Graph::default();
    let (paid, victim, child) = (tx(1, &[out(9, 0)]), tx(2, &[out(1, 0), out(8, 0)]), tx(3, &[out(2, 0)]));
    add(&mut graph, &paid, at(5), false, 1);
    add(&mut graph, &victim, UNCONFIRMED, false, 2);
    add(&mut graph, &child, UNCONFIRMED, false, 3);
    own_output(&mut graph, out(1, 0));
    let winner = tx(4, &[out(8, 0)]);
    graph.connected(&winner, (6, hash(60)), Word::New).expect("it is possible");
    assert_eq!((status(&graph, 2), status(&graph, 3)), (Status::Failed, Status::Failed));
    assert_eq!(graph.spender(&out(1, 0)), None);
    assert_eq!(graph.edges, [(hash(2), hash(4))]);
    let deltas = graph.deltas().expect("no overflow");
    assert_eq!(deltas[&(WALLET, 0)].confirmed, 1_000, "the output is there to be spent again");
}

#[test]
fn what_was_replaced_and_is_in_the_mempool_again_takes_over_only_from_one_that_is_not_there() {
    let (first, second) = (tx(1, &[out(9, 0)]), tx(2, &[out(9, 0), out(8, 0)]));
    for (absent, expected) in [(false, Status::Replaced), (true, Status::Published)] {
        let mut graph = Graph::default();
        add(&mut graph, &first, REPLACED, true, 1);
        add(&mut graph, &second, UNCONFIRMED, false, 2);
        let gone: HashSet<Hash> = absent.then_some(hash(2)).into_iter().collect();
        graph.seen(&first, &gone).expect("it is possible");
        assert_eq!(status(&graph, 1), expected);
        assert_eq!(graph.is_valid(hash(2)), !absent);
    }
}

#[test]
fn a_rival_that_was_never_sent_or_is_in_a_block_does_not_give_way() {
    let (first, second) = (tx(1, &[out(9, 0)]), tx(2, &[out(9, 0)]));
    for standing in [State { status: Status::Pending, height: None }, at(7)] {
        let mut graph = Graph::default();
        add(&mut graph, &first, REPLACED, true, 1);
        add(&mut graph, &second, standing, false, 2);
        graph.seen(&first, &HashSet::from([hash(2)])).expect("it is possible");
        assert_eq!((status(&graph, 1), graph.state(hash(2))), (Status::Replaced, Some(standing)));
    }
}

#[test]
fn an_unconfirmed_parent_of_ours_is_kept_and_its_fall_ends_the_child() {
    let mut graph = Graph::default();
    let (parent, deposit) = (tx(1, &[out(9, 0)]), tx(2, &[out(1, 0)]));
    add(&mut graph, &deposit, UNCONFIRMED, false, 1);
    graph.seen(&parent, &HashSet::new()).expect("it is possible");
    assert_eq!(graph.entries[&hash(1)].joins, BTreeSet::from([WALLET]));
    let rival = tx(3, &[out(9, 0)]);
    graph.connected(&rival, (6, hash(60)), Word::New).expect("it is possible");
    assert_eq!((status(&graph, 1), status(&graph, 2)), (Status::Failed, Status::Failed));
}

#[test]
fn a_parent_whose_child_is_in_a_block_is_of_no_interest() {
    let mut graph = Graph::default();
    let (parent, deposit) = (tx(1, &[out(9, 0)]), tx(2, &[out(1, 0)]));
    add(&mut graph, &deposit, at(4), false, 1);
    graph.seen(&parent, &HashSet::new()).expect("it is possible");
    assert_eq!(graph.state(hash(1)), None);
}

#[test]
fn a_strangers_coinbase_that_is_orphaned_ends_what_spends_it() {
    let (coinbase, deposit) = (tx(1, &[]), tx(2, &[out(1, 0)]));
    let mut graph = Graph::default();
    add(&mut graph, &deposit, at(120), false, 1);
    let stale = [coinbase.clone(), deposit];
    graph.gone(&BTreeSet::from([hash(2)]), &stale).expect("it is possible");
    assert_eq!((status(&graph, 1), status(&graph, 2)), (Status::Orphaned, Status::Failed));
    // The block comes back.
    graph.connected(&coinbase, (20, hash(60)), Word::New).expect("it is possible");
    assert_eq!((graph.state(hash(1)), status(&graph, 2)), (Some(at(20)), Status::Published));
}

#[test]
fn whose_own_a_transaction_is_follows_its_parents_through_a_reorganisation() {
    let mut graph = Graph::default();
    let (deposit, payout, change) = (tx(1, &[out(9, 0)]), tx(2, &[out(1, 0)]), tx(3, &[out(2, 0)]));
    add(&mut graph, &deposit, at(5), false, 1);
    for (one, age) in [(&payout, 2), (&change, 3)] {
        add(&mut graph, one, UNCONFIRMED, false, age);
        let entry = graph.entries.get_mut(&one.hash).expect("just added");
        (entry.own, entry.own_before) = (true, true);
    }
    own_output(&mut graph, out(1, 0));
    own_output(&mut graph, out(2, 0));
    graph.gone(&BTreeSet::from([hash(1)]), &[]).expect("it is possible");
    graph.settle();
    assert!(!graph.entries[&hash(2)].own && !graph.entries[&hash(3)].own, "a stranger can take the deposit back");
    graph.connected(&deposit, (5, hash(60)), Word::New).expect("it is possible");
    graph.settle();
    assert!(graph.entries[&hash(2)].own && graph.entries[&hash(3)].own);
}

#[test]
fn a_line_that_is_too_long_is_refused() {
    let mut graph = Graph::default();
    let name = |number: usize| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(number + 1).to_be_bytes());
        Hash(bytes)
    };
    for number in 0..=MOST_GENERATIONS {
        let spent = if number == 0 { out(255, 0) } else { OutPoint { hash: name(number - 1), index: 0 } };
        let one = NewTx { hash: name(number), ..tx(1, &[spent]) };
        add(&mut graph, &one, UNCONFIRMED, false, 1);
    }
    let winner = tx(255, &[out(255, 0)]);
    let winner = NewTx { hash: hash(254), ..winner };
    let refusal = graph.connected(&winner, (6, hash(60)), Word::New).expect_err("too deep");
    assert!(matches!(refusal, UtxoRefusal::CascadeTooDeep { .. }), "{refusal}");
}

/// T spends A and B, a child of T our C; T' spends A only and waits, and T does not.
#[test]
fn what_a_replaced_transaction_spent_besides_is_claimed_until_a_block_decides() {
    let (dropping, old) = (tx(1, &[out(9, 0)]), tx(2, &[out(9, 0), out(8, 0)]));
    let child = tx(3, &[out(2, 0), out(7, 0)]);
    let mut graph = Graph::default();
    for (maker, age) in [(9, 1), (8, 2), (7, 3)] {
        add(&mut graph, &tx(maker, &[out(maker + 100, 0)]), at(5), false, age);
    }
    add(&mut graph, &dropping, REPLACED, true, 4);
    add(&mut graph, &old, UNCONFIRMED, false, 5);
    add(&mut graph, &child, UNCONFIRMED, false, 6);
    for ours in [out(9, 0), out(8, 0), out(7, 0)] {
        own_output(&mut graph, ours);
        graph.in_question.insert(ours);
    }
    assert!(graph.claimed().is_empty(), "all of them are spent");
    graph.seen(&dropping, &HashSet::from([hash(2), hash(3)])).expect("it is possible");
    assert_eq!(
        (status(&graph, 1), status(&graph, 2), status(&graph, 3)),
        (Status::Published, Status::Replaced, Status::Failed)
    );
    let both = BTreeMap::from([(out(7, 0), hash(3)), (out(8, 0), hash(2))]);
    assert_eq!(graph.claimed(), both);
    // A block has T': T can never be mined, nor its child.
    graph.connected(&dropping, (6, hash(60)), Word::New).expect("it is possible");
    assert!(graph.claimed().is_empty());
    // A reorganisation takes it out again.
    graph.gone(&BTreeSet::from([hash(1)]), &[]).expect("it is possible");
    assert_eq!(graph.claimed(), both);
    // Two people know better than the rows.
    graph.given_up(hash(2)).expect("it may still be mined");
    assert!(graph.claimed().is_empty());
    assert_eq!(graph.given_up(hash(3)).expect_err("its parent was given up").code(), "UTXO_NOT_WAITING");
    // A node shows it, but T' stands.
    graph.seen(&old, &HashSet::new()).expect("it is possible");
    assert_eq!((status(&graph, 2), graph.claimed()), (Status::Replaced, both));
    // T is mined after all.
    graph.connected(&old, (6, hash(61)), Word::New).expect("it is possible");
    assert_eq!((status(&graph, 1), status(&graph, 3)), (Status::Failed, Status::Published));
    assert!(graph.claimed().is_empty());
}

#[test]
fn what_was_never_broadcast_claims_nothing() {
    let (first, second) = (tx(1, &[out(9, 0), out(8, 0)]), tx(2, &[out(9, 0)]));
    for broadcast in [false, true] {
        let mut graph = Graph::default();
        add(&mut graph, &tx(8, &[out(108, 0)]), at(5), false, 1);
        add(&mut graph, &first, State { status: Status::Pending, height: None }, broadcast, 2);
        own_output(&mut graph, out(8, 0));
        own_output(&mut graph, out(9, 0));
        graph.in_question.insert(out(8, 0));
        graph.made(WALLET, &second, true).expect("it replaces the first");
        assert_eq!(graph.claimed().len(), usize::from(broadcast));
    }
}

#[test]
fn what_two_people_gave_up_comes_back_only_when_it_is_shown() {
    let (deposit, payout) = (tx(1, &[out(9, 0)]), tx(2, &[out(1, 0), out(8, 0)]));
    let mut graph = Graph::default();
    add(&mut graph, &deposit, UNCONFIRMED, false, 1);
    add(&mut graph, &payout, UNCONFIRMED, false, 2);
    graph.given_up(hash(1)).expect("it waits");
    assert_eq!((status(&graph, 1), status(&graph, 2)), (Status::Failed, Status::Failed));
    assert_eq!(graph.spender(&out(8, 0)), None, "the payout's other coin is free");
    graph.given_up(hash(1)).expect("once more is nothing new");
    graph.seen(&deposit, &HashSet::new()).expect("it is possible");
    assert_eq!((status(&graph, 1), status(&graph, 2)), (Status::Published, Status::Published));
    assert!(!graph.entries[&hash(1)].given_up);
}

/// Another one has the inputs by now: the node's word that it is about counts from when that one falls.
#[test]
fn what_was_given_up_and_is_shown_beside_a_rival_comes_back_when_the_rival_falls() {
    let (first, second) = (tx(1, &[out(9, 0)]), tx(2, &[out(9, 0), out(8, 0)]));
    for shown in [false, true] {
        let mut graph = Graph::default();
        add(&mut graph, &first, State { status: Status::Failed, height: None }, true, 1);
        graph.entries.entry(hash(1)).and_modify(|entry| entry.given_up = true);
        add(&mut graph, &second, UNCONFIRMED, false, 2);
        if shown {
            graph.seen(&first, &HashSet::new()).expect("it is possible");
        }
        let rival = tx(3, &[out(8, 0)]);
        graph.connected(&rival, (6, hash(60)), Word::New).expect("it is possible");
        assert_eq!((graph.is_valid(hash(1)), graph.is_valid(hash(2))), (shown, false));
    }
}

#[test]
fn what_is_in_a_block_or_was_never_sent_or_can_never_be_mined_is_not_given_up() {
    let (one, winner) = (tx(1, &[out(9, 0)]), tx(2, &[out(9, 0)]));
    for state in [at(7), State { status: Status::Pending, height: None }, REPLACED] {
        let mut graph = Graph::default();
        add(&mut graph, &one, state, true, 1);
        if state == REPLACED {
            add(&mut graph, &winner, at(8), false, 2);
        }
        let refusal = graph.given_up(hash(1)).expect_err("it does not wait");
        assert_eq!((refusal.code(), graph.state(hash(1))), ("UTXO_NOT_WAITING", Some(state)));
    }
}

/// A block had it when it concerned nobody here, so it looks as if it waited. What spends it is in a block.
#[test]
fn what_is_mined_by_what_depends_on_it_is_neither_given_up_nor_replaced() {
    let (parent, child, rival) = (tx(1, &[out(9, 0)]), tx(2, &[out(1, 0)]), tx(3, &[out(9, 0)]));
    let mut graph = Graph::default();
    add(&mut graph, &parent, UNCONFIRMED, false, 1);
    add(&mut graph, &child, at(5), false, 2);
    assert_eq!(graph.given_up(hash(1)).expect_err("it is mined").code(), "UTXO_NOT_WAITING");
    graph.seen(&rival, &HashSet::new()).expect("it is possible");
    assert_eq!((graph.state(hash(3)), graph.state(hash(2))), (None, Some(at(5))));
    add(&mut graph, &rival, REPLACED, true, 3);
    graph.seen(&rival, &HashSet::from([hash(1)])).expect("it is possible");
    assert_eq!((status(&graph, 1), graph.state(hash(2))), (Status::Published, Some(at(5))));
}

/// The child takes what an older rival wants as well. It can come back only after its parent, and must not lose its place for that.
#[test]
fn what_a_fallen_transaction_had_replaced_comes_back_whole_before_an_older_rival_does() {
    let (rival, parent) = (tx(1, &[out(8, 0)]), tx(2, &[out(9, 0)]));
    let child = tx(3, &[out(2, 0), out(8, 0)]);
    let replacement = tx(4, &[out(9, 0), out(8, 0)]);
    // Whichever of the two replacements was noted first.
    for numbers in [[1, 2], [2, 1]] {
        let mut graph = Graph::default();
        for (one, age) in [(&rival, 1), (&parent, 2), (&child, 3)] {
            add(&mut graph, one, REPLACED, true, age);
        }
        add(&mut graph, &replacement, State { status: Status::Pending, height: None }, false, 4);
        graph.had_replaced.insert(hash(4), BTreeMap::from([(hash(2), numbers[0]), (hash(3), numbers[1])]));
        graph.abandoned(hash(4)).expect("it was never broadcast");
        let now = [1, 2, 3].map(|name| status(&graph, name));
        assert_eq!(now, [Status::Replaced, Status::Published, Status::Published], "numbers {numbers:?}");
    }
}

/// A grandchild needs two to come back before it, and an older rival wants what it spends besides.
#[test]
fn a_line_that_a_fallen_transaction_had_replaced_is_followed_to_its_end() {
    let (rival, parent, child) = (tx(1, &[out(8, 0)]), tx(2, &[out(9, 0)]), tx(3, &[out(2, 0)]));
    let grandchild = tx(5, &[out(3, 0), out(8, 0)]);
    let replacement = tx(4, &[out(9, 0), out(8, 0)]);
    let mut graph = Graph::default();
    for (one, age) in [(&rival, 1), (&parent, 2), (&child, 3), (&grandchild, 4)] {
        add(&mut graph, one, REPLACED, true, age);
    }
    add(&mut graph, &replacement, State { status: Status::Pending, height: None }, false, 5);
    graph.had_replaced.insert(hash(4), BTreeMap::from([(hash(2), 1), (hash(5), 2)]));
    graph.abandoned(hash(4)).expect("it was never broadcast");
    // The child fell with its parent and was not replaced itself: it is as old as its age says, and still before the rival.
    let now = [1, 2, 3, 5].map(|name| graph.is_valid(hash(name)));
    assert_eq!(now, [false, true, true, true]);
}

/// Which input of the winner comes first says nothing about which of its victims comes back first.
#[test]
fn replacements_are_noted_in_the_order_of_the_victims_age() {
    let (older, newer) = (tx(1, &[out(9, 0)]), tx(2, &[out(8, 0)]));
    for inputs in [[out(9, 0), out(8, 0)], [out(8, 0), out(9, 0)]] {
        let winner = tx(3, &inputs);
        let mut graph = Graph::default();
        add(&mut graph, &older, UNCONFIRMED, false, 1);
        add(&mut graph, &newer, UNCONFIRMED, false, 2);
        graph.seen(&winner, &HashSet::new()).expect("it is possible");
        assert_eq!(graph.edges, [(hash(1), hash(3)), (hash(2), hash(3))]);
    }
}
