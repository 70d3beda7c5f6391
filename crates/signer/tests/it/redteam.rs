//! The red team. It owns the server and its database: it has the server's API keys, sees every approval that people ever gave, and asks for
//! whatever it likes, in any order, for days. It can start the signer again, but has neither its keys, nor its folder, nor people's keys.
//!
//! What it got signed is then judged without a line of the signer: which of these transactions can be mined beside each other, what they pay to
//! strangers, what they cost, and whether people approved that. **It gets no more than the window that the policy leaves open.**
//!
//! `BURSAR_TEST_REDTEAM=20000` for a long run. `tests/mutants` takes the guards away one by one, and this test must notice.

mod judge;
mod plays;

use std::collections::BTreeMap;

use domain::Timestamp;
use domain::random::Random;
use signer::approval::GivenApproval;
use signer::digest::Digest32;
use signer::{Authorizer, SignRequest, Verdict};
use tx::Input;

use crate::faulty::FaultyFolder;
use crate::world::*;

/// What one of its requests got.
struct Got {
    at: i64,
    request: SignRequest,
}

struct Team {
    signer: Authorizer<FaultyFolder>,
    folder: FaultyFolder,
    random: Random,
    now: i64,
    next: i64,
    got: Vec<Got>,
    asked: u64,
    /// All that people ever signed, and what they meant by it: the digest, and how many transactions.
    approvals: Vec<GivenApproval>,
    meant: BTreeMap<Digest32, u32>,
    /// What each Bitcoin output really holds. Only the chain knows.
    truth: BTreeMap<(tx::TxHash, u32), u64>,
    coins: Vec<(Input, u64)>,
}

impl Team {
    fn new(seed: u64) -> Self {
        let (signer, folder) = signer();
        let (approvals, meant, truth) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let random = Random::from_seed(seed);
        Self {
            signer,
            folder,
            random,
            now: 0,
            next: 1,
            got: Vec::new(),
            asked: 0,
            approvals,
            meant,
            truth,
            coins: Vec::new(),
        }
    }

    fn number(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.below(most)
    }

    /// Asks under a new id. Whether it was signed.
    fn ask(&mut self, mut request: SignRequest) -> bool {
        self.asked += 1;
        request.id = format!("r-{}", self.asked).parse().unwrap();
        self.ask_as_it_is(request)
    }

    fn ask_as_it_is(&mut self, request: SignRequest) -> bool {
        let verdicts = self.signer.decide(std::slice::from_ref(&request), after(self.now), &Wallets).unwrap().verdicts;
        let Verdict::Approved { approved, .. } = &verdicts[0] else { return false };
        assert_eq!(approved.payload(), request.payload);
        self.got.push(Got { at: self.now, request });
        true
    }

    /// An intent that ends a day from now.
    fn fresh(&self, mut request: SignRequest) -> SignRequest {
        for intent in &mut request.intents {
            intent.expires = Timestamp::from_micros(NOW + self.now + DAY);
        }
        request
    }

    fn evm(&mut self, amount: u128) -> Evm {
        let number = self.number();
        evm(number, u64::try_from(number).unwrap(), amount).at(self.now)
    }

    /// People approve a large payment, as they do every day. Their signatures are in the team's hands from then on.
    fn approved_by_people(&mut self, request: &mut SignRequest, people: &[&str]) {
        let digest = request.intents[0].digest();
        self.meant.insert(digest, request.intents[0].builds);
        request.approvals = people.iter().map(|name| approve(name, digest)).collect();
        self.approvals.extend(request.approvals.clone());
    }

    fn input(&mut self, held: u64) -> (Input, u64) {
        let number = self.number();
        let mut hash = [3; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        let index = self.below(9);
        let coin = input_of("hot-btc", hash, index, held);
        self.truth.insert((coin.0.transaction, coin.0.index), held);
        self.coins.push(coin.clone());
        coin
    }

    fn bitcoin(&mut self, inputs: &[(Input, u64)], satoshi: u64, fee: u64, change: Option<u64>) -> SignRequest {
        let number = self.number();
        self.fresh(bitcoin_of("hot-btc", change, fee, "b", inputs, &[(number, satoshi)]))
    }
}

#[test]
fn whoever_owns_the_server_gets_no_more_than_the_window() {
    let steps: u64 = std::env::var("BURSAR_TEST_REDTEAM").map_or(300, |text| text.parse().unwrap());
    for seed in 0..3 {
        let mut team = Team::new(seed);
        for _ in 0..steps {
            let play = plays::PLAYS[team.random.index(plays::PLAYS.len())];
            play(&mut team);
            // Minutes, or up to just before and just after a full hour.
            let to_the_hour = HOUR - (NOW + team.now).rem_euclid(HOUR);
            team.now += match team.random.below(4) {
                0 => 0,
                1 => i64::try_from(team.random.below(20)).unwrap() * MINUTE,
                2 => to_the_hour - 1,
                _ => to_the_hour + 1,
            };
        }
        let (asked, got) = (team.asked, team.got.len());
        let verdict = judge::judge(&team.got, &team.meant, &team.truth);
        println!("seed {seed}: {asked} requests in {} days, {got} signed: {verdict}", team.now / DAY);
    }
}
