//! Random batches against a model that is too simple to be wrong, on both engines.

use std::collections::HashMap;

use domain::ledger::{Operation, Outcome, Reply};
use domain::random::Random;
use store::db_test;
use store::testing::NOW;

use crate::support::*;

/// Balances and holds as plain numbers. Says what an operation comes to.
#[derive(Default)]
struct Model {
    available: HashMap<usize, i64>,
    frozen: HashMap<usize, i64>,
    open_holds: HashMap<String, (usize, i64)>,
    answers: HashMap<String, bool>,
}

#[derive(Clone)]
enum Step {
    Pay(usize, usize, i64),
    Deposit(usize, i64),
    Hold(usize, i64),
    Settle(String, usize, i64),
    Release(String, usize, i64),
}

impl Model {
    /// Whether it is applied.
    fn play(&mut self, name: &str, step: &Step) -> bool {
        if let Some(answer) = self.answers.get(name) {
            return *answer;
        }
        let applied = match step {
            Step::Deposit(user, units) => {
                *self.available.entry(*user).or_default() += units;
                true
            }
            Step::Pay(from, to, units) => {
                let enough = from != to && self.available.get(from).copied().unwrap_or(0) >= *units;
                if enough {
                    *self.available.entry(*from).or_default() -= units;
                    *self.available.entry(*to).or_default() += units;
                }
                enough
            }
            Step::Hold(user, units) => {
                let enough = self.available.get(user).copied().unwrap_or(0) >= *units;
                if enough {
                    *self.available.entry(*user).or_default() -= units;
                    *self.frozen.entry(*user).or_default() += units;
                    self.open_holds.insert(name.to_owned(), (*user, *units));
                }
                enough
            }
            Step::Settle(hold, user, units) | Step::Release(hold, user, units) => {
                let open = self.open_holds.get(hold) == Some(&(*user, *units));
                if open {
                    self.open_holds.remove(hold);
                    *self.frozen.entry(*user).or_default() -= units;
                    if matches!(step, Step::Release(..)) {
                        *self.available.entry(*user).or_default() += units;
                    }
                }
                open
            }
        };
        self.answers.insert(name.to_owned(), applied);
        applied
    }
}

fn random_step(random: &mut Random, users: usize, holds: &[(String, usize, i64)]) -> Step {
    let user = random.index(users);
    let units = 1 + random.below(60) as i64;
    match random.below(10) {
        0..=1 => Step::Deposit(user, units),
        2..=4 => Step::Pay(user, random.index(users), units),
        5..=6 => Step::Hold(user, units),
        kind => match holds.get(random.index(holds.len().max(1))) {
            None => Step::Hold(user, units),
            // Mostly the right end of the hold, sometimes with a wrong amount.
            Some((hold, user, units)) => {
                let units = if random.below(8) == 0 { units + 1 } else { *units };
                if kind == 7 {
                    Step::Release(hold.clone(), *user, units)
                } else {
                    Step::Settle(hold.clone(), *user, units)
                }
            }
        },
    }
}

fn operation(bank: &Bank, name: &str, step: &Step) -> Operation {
    match step {
        Step::Deposit(user, units) => bank.deposit(name, *user, *units),
        Step::Pay(from, to, units) => bank.post(name, &[(bank.users[*from], bank.users[*to], *units)]),
        Step::Hold(user, units) => bank.hold(name, *user, *units),
        Step::Settle(hold, user, units) => bank.settle(name, hold, *user, *units),
        Step::Release(hold, user, units) => bank.release(name, hold, *user, *units),
    }
}

db_test! {
    async fn every_batch_agrees_with_the_model(db: TestDb) {
        const USERS: usize = 6;
        let bank = Bank::open(db, USERS as i64, 0).await;
        for seed in 0..4 {
            let mut random = Random::from_seed(seed);
            let mut model = Model::default();
            // A new seed goes on with the balances of the last.
            for user in 0..USERS {
                let text = balance(db, bank.users[user]).await;
                let (available, frozen) = text.split_once('/').unwrap();
                model.available.insert(user, available.parse().unwrap());
                model.frozen.insert(user, frozen.parse().unwrap());
            }
            let mut steps: Vec<(String, Step)> = Vec::new();
            let mut holds: Vec<(String, usize, i64)> = Vec::new();
            for batch in 0..25 {
                let mut sent: Vec<(String, Step)> = Vec::new();
                for number in 0..1 + random.index(30) {
                    if random.below(6) == 0 && !steps.is_empty() {
                        sent.push(steps[random.index(steps.len())].clone());
                        continue;
                    }
                    let name = format!("{seed}-{batch}-{number}");
                    let step = random_step(&mut random, USERS, &holds);
                    if let Step::Hold(user, units) = &step {
                        holds.push((name.clone(), *user, *units));
                    }
                    steps.push((name.clone(), step.clone()));
                    sent.push((name, step));
                }
                let operations: Vec<_> = sent.iter().map(|(name, step)| operation(&bank, name, step)).collect();
                let replies = db.post(&operations, NOW).await.unwrap();
                for ((name, step), reply) in sent.iter().zip(&replies) {
                    let again = model.answers.contains_key(name);
                    let expected = model.play(name, step);
                    assert_eq!(reply.applied(), expected, "seed {seed}: {name} got {reply:?}");
                    assert_eq!(matches!(reply, Reply::Replay(_)), again, "seed {seed}: {name} got {reply:?}");
                    assert!(matches!(reply, Reply::First(_) | Reply::Replay(Outcome::Applied | Outcome::Refused(_))));
                }
            }
            for user in 0..USERS {
                let expected = format!("{}/{}", model.available[&user], model.frozen[&user]);
                assert_eq!(balance(db, bank.users[user]).await, expected, "seed {seed}, user {user}");
            }
            assert_clean(db).await;
        }
    }
}
