//! The red team. It owns the server and its database: it has the server's API keys, sees every approval that people ever gave, and asks for
//! whatever it likes, in any order, for days. It can start the signer again, but has neither its keys, nor its folder, nor people's keys.
//!
//! What it got signed is then judged without a line of the signer: which of these transactions can be mined beside each other, what they pay to
//! strangers, what they cost, and whether people approved that. **It gets no more than the window that the policy leaves open.**
//!
//! `BURSAR_TEST_REDTEAM=20000` for a long run. `tests/mutants` takes the guards away one by one, and this test must notice.

use std::collections::{BTreeMap, BTreeSet};

use bitcoin::Psbt;
use domain::Timestamp;
use domain::random::Random;
use signer::approval::GivenApproval;
use signer::digest::Digest32;
use signer::names::JobId;
use signer::{Authorizer, IntentKind, Owner, SignRequest, Verdict};
use tx::{Coin, Input};

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

/// Of each job and round: to whom, how much, and which bytes.
type Rounds = BTreeMap<(JobId, u32), (BTreeSet<String>, i64, Vec<u8>)>;

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

/// Small payments, as many as it gets, on both sides of every hour and day.
fn many_small_ones(team: &mut Team) {
    for _ in 0..1 + team.below(6) {
        let amount = [1, 100_000, 999_999, 1_000_000, 1_000_001][team.random.index(5)];
        let of_tokens = team.below(2) == 0;
        let payment = team.evm(amount);
        team.ask(if of_tokens { payment.coin(Coin::Token(token())).request("x") } else { payment.request("x") });
        let (number, now) = (team.number(), team.now);
        team.ask(tron(number, amount, Coin::Native, now, HOUR));
    }
}

/// What was signed before, in another slot, for another amount, to somebody else, in another round, or again.
fn the_same_job_again(team: &mut Team) {
    if team.got.is_empty() {
        return;
    }
    let place = team.random.index(team.got.len());
    let before = team.got[place].request.clone();
    team.ask_as_it_is(before.clone());
    team.ask(before.clone());
    let JobId::Withdrawal(_) = before.intents[0].job else { return };
    let Some(payment) = before.intents[0].payment().cloned() else { return };
    let chain = before.chain.to_string();
    for change in 0..4 {
        let mut again = match chain.as_str() {
            "bsc" => {
                let nonce = u64::try_from(team.number()).unwrap();
                let group = if before.group.as_str() == "gas-bsc" { "gas-bsc" } else { "hot-bsc" };
                let mut other = evm(0, nonce, 1).from(group, before.index).at(team.now);
                other.payment = payment.clone();
                if let IntentKind::Pay { owner, .. } = &before.intents[0].kind {
                    other.owner.clone_from(owner);
                }
                other.request("x")
            }
            "tron" => {
                let mut other = tron(1, 1, payment.coin.clone(), team.now, HOUR);
                other = rebuilt_tron(&other, &payment, team.now);
                other
            }
            _ => {
                let held = 2_000_000;
                let input = team.input(held);
                let satoshi = u64::try_from(payment.amount.to_u256()).unwrap();
                let mut other = team.bitcoin(&[input], satoshi, 2_000, Some(CHANGE));
                // The job's own recipient follows from its number, so this is another payment of the same job.
                other.intents.truncate(1);
                other
            }
        };
        again.intents[0].job = before.intents[0].job;
        again.intents[0].round = before.intents[0].round + u32::from(change % 2 == 1);
        if change >= 2 {
            again.approvals.clone_from(&before.approvals);
            again.intents[0].expires = before.intents[0].expires;
            again.intents[0].most_fee = before.intents[0].most_fee;
            again.intents[0].requester = before.intents[0].requester.clone();
            again.intents[0].builds = before.intents[0].builds;
        }
        team.ask(again);
    }
}

/// The same TRON payment with other times.
fn rebuilt_tron(like: &SignRequest, payment: &tx::Payment, now: i64) -> SignRequest {
    let amount = u128::try_from(payment.amount.to_u256()).unwrap();
    let mut other = tron(1, amount, payment.coin.clone(), now, HOUR);
    other.intents[0].signer = like.intents[0].signer.clone();
    other
}

/// The signer's own cancel lets a job move; what then is signed counts again.
fn cancel_and_move(team: &mut Team) {
    let amount = u128::from(100_000 + team.below(900_000));
    let payment = team.evm(amount);
    if !team.ask(payment.request("x")) {
        return;
    }
    let number = team.number();
    let cancel = evm(number, payment.nonce, 1).at(team.now).gas_price(20).cancelling(vec![payment.job]);
    if team.below(3) > 0 {
        team.ask(cancel.request("x"));
    }
    let mut moved = payment.clone().round(1).at(team.now);
    moved.nonce = u64::try_from(team.number()).unwrap();
    team.ask(moved.request("x"));
    // And back, and on, without another cancel.
    let mut back = payment.clone().round(2).at(team.now);
    team.ask(back.request("x"));
    back.nonce = u64::try_from(team.number()).unwrap();
    team.ask(back.request("x"));
}

/// What was signed, with more in it: in the same slot, and under the same id.
fn more_in_the_slot(team: &mut Team) {
    let first = team.evm(1_000);
    let mut asked = first.request("x");
    team.ask(asked.clone());
    let mut more = first.clone();
    more.payment.amount = raw(90_000_000);
    team.ask(more.request("x"));
    more = first.to(stranger(9).evm());
    team.ask(more.request("x"));
    // The id that it was signed under.
    asked.id = format!("r-{}", team.asked - 2).parse().unwrap();
    let larger = team.evm(90_000_000).request("x");
    (asked.payload, asked.intents) = (larger.payload, larger.intents);
    team.ask_as_it_is(asked);
}

/// All that fees may cost.
fn burning(team: &mut Team) {
    for _ in 0..if team.below(4) == 0 { 130 } else { 3 } {
        let dear = team.evm(1).gas_price(149);
        if !team.ask(dear.request("x")) {
            return;
        }
    }
}

/// A nonce that is taken, for another job; with a lower and a higher price.
fn slots_of_others(team: &mut Team) {
    let amount = u128::from(1 + team.below(1_000_000));
    let first = team.evm(amount);
    team.ask(first.request("x"));
    let mut second = team.evm(amount);
    second.nonce = first.nonce;
    team.ask(second.gas_price(30).request("x"));
}

/// People's signatures for something else: another amount, recipient, job, round, network; the requester's own; one person's twice.
fn borrowed_approvals(team: &mut Team) {
    let mut real = team.evm(4_000_000).request("x");
    let who = if team.below(2) == 0 { "bob" } else { "carol" };
    team.approved_by_people(&mut real, &[who]);
    team.ask(real.clone());
    let larger = [4_000_001, 5_000_000, 5_000_001, 90_000_000][team.random.index(4)];
    let mut forged = team.evm(larger).request("x");
    forged.approvals.clone_from(&real.approvals);
    team.ask(forged.clone());
    // With the digest that would be needed written over it.
    for approval in &mut forged.approvals {
        approval.digest = forged.intents[0].digest();
    }
    team.ask(forged.clone());
    // One that people gave for this, and is one too few: the requester's own, and one person's second key.
    let mut large = team.evm(60_000_000).request("x");
    let digest = large.intents[0].digest();
    large.approvals = ["carol", "carol-2"].map(|name| approve(name, digest)).to_vec();
    team.ask(large.clone());
    large.approvals = ["erin", "dave"].map(|name| approve(name, digest)).to_vec();
    team.ask(large.clone());
    // All that it ever saw.
    let all = team.approvals.clone();
    let from = all.len().saturating_sub(40);
    large.approvals = all[from..].to_vec();
    team.ask(large);
    // What was approved once, in a second slot.
    let mut second = real.clone();
    let mut other = evm(0, u64::try_from(team.number()).unwrap(), 4_000_000).at(team.now);
    other.job = real.intents[0].job;
    second.payload = other.payload();
    team.ask(second.clone());
    second.intents[0].round = 1;
    team.ask(second);
}

/// TRON has no slots: an approval is for so many transactions, and none may overlap with the one before.
fn tron_rebuilds(team: &mut Team) {
    let (number, now) = (team.number(), team.now);
    let mut first = tron(number, 3_500_000, Coin::Native, now, HOUR);
    first.intents[0].builds = 1 + u32::try_from(team.below(2)).unwrap();
    team.approved_by_people(&mut first, &["bob"]);
    team.ask(first.clone());
    for later in [MINUTE, 59 * MINUTE, HOUR + 3 * HOUR, 8 * HOUR, 12 * HOUR] {
        let mut again = tron(number, 3_500_000, Coin::Native, now + later, HOUR);
        again.intents.clone_from(&first.intents);
        again.approvals.clone_from(&first.approvals);
        let before = team.now;
        // Time passes for everybody; it does not come back.
        team.now = before.max(now + later);
        team.ask(again);
    }
    // One that is good for longer than any network takes it today.
    let (number, now) = (team.number(), team.now);
    let late = tron(number, 900_000, Coin::Native, now + 5 * DAY, 20 * HOUR);
    let late = team.fresh(late);
    team.ask(late);
}

/// Everything out of wallets that are not for paying strangers.
fn other_roles(team: &mut Team) {
    let amount = u128::from(1 + team.below(100_000));
    for role in ["deposit-bsc", "gas-bsc", "treasury-bsc"] {
        let payment = team.evm(amount).from(role, 1);
        team.ask(payment.request("x"));
        // With a row that says whose address it is.
        for owner in ["deposit-bsc", "hot-bsc", "treasury-bsc", "gas-bsc"] {
            let mut lie = team.evm(amount).from(role, 1);
            lie.owner = Some(Owner { group: group(owner), index: 3 });
            team.ask(lie.request("x"));
            // Ours, at a number that only the team knows.
            let far = team.evm(amount).from(role, 1).owned(owner, 1 << 40);
            if owner != "deposit-bsc" {
                team.ask(far.request("x"));
            }
        }
    }
    let gas = u128::from(1 + team.below(110_000));
    let topped = team.evm(gas).from("gas-bsc", 0).owned("deposit-bsc", 77);
    team.ask(topped.request("x"));
    let mut tokens = team.evm(gas).from("gas-bsc", 0).owned("deposit-bsc", 77);
    tokens.payment.coin = Coin::Token(token());
    team.ask(tokens.request("x"));
    // A user's coins to another user, who is of the team.
    let between = team.evm(amount).from("deposit-bsc", 5).owned("deposit-bsc", 77);
    team.ask(between.request("x"));
}

/// A payload that does more than its intent says.
fn lies(team: &mut Team) {
    let small = u128::from(1 + team.below(1_000));
    let honest = team.evm(small);
    let mut lie = honest.request("x");
    let mut other = honest.clone();
    other.payment.amount = raw(900_000_000);
    lie.payload = other.payload();
    team.ask(lie);
    let mut lie = team.evm(small).request("x");
    lie.index = 4;
    lie.chain = "btc".parse().unwrap();
    team.ask(lie);
    let mut future = team.evm(small).request("x");
    future.intents[0].job = job(i64::MAX / 1_000_000_000_000_000);
    future.intents[0].expires = Timestamp::from_micros(NOW + team.now + 400 * DAY);
    team.ask(future);
    let fee = team.evm(small).gas_price(151);
    team.ask(fee.request("x"));
}

/// Amounts that are not true: each input's signature fits the amount that was said for it, so two versions make one whole.
fn bitcoin_fees(team: &mut Team) {
    let (one, other) = (team.input(25_000_000), team.input(25_000_000));
    // The first version says the truth of the first input, the second of the second. Everything else is the same, and both look cheap.
    let mut understated = other;
    understated.0.amount_sat = 10_000;
    let first = team.bitcoin(&[one, understated], 60_000, 2_000, Some(CHANGE));
    team.ask(first.clone());
    let mut second = first;
    let mut psbt = Psbt::deserialize(&second.payload).unwrap();
    for (input, satoshi) in psbt.inputs.iter_mut().zip([10_000, 25_000_000]) {
        input.witness_utxo.as_mut().unwrap().value = bitcoin::Amount::from_sat(satoshi);
    }
    second.payload = psbt.serialize();
    team.ask(second);
    // All of it as a fee; change to numbers that only the team knows.
    let coin = team.input(5_000_000);
    for fee in [90_000, 110_000] {
        let burnt = team.bitcoin(std::slice::from_ref(&coin), 60_000, fee, Some(CHANGE));
        team.ask(burnt);
    }
    for number in [1 << 40, CHANGE + 1, 12, 3] {
        // An input of its own each time: one that is taken would be refused for that.
        let coin = team.input(5_000_000);
        if coin.1 != number {
            let hidden = team.bitcoin(std::slice::from_ref(&coin), 60_000, 2_000, Some(number));
            team.ask(hidden);
        }
    }
    // Versions of one payout that could all be mined: each shares an input with one before it.
    let chain: Vec<_> = (0..4).map(|_| team.input(900_000)).collect();
    let number = team.number();
    for pair in [[0, 1], [1, 2], [0, 3], [2, 3]] {
        let pair = pair.map(|place: usize| chain[place].clone());
        let version = team.fresh(bitcoin_of("hot-btc", Some(CHANGE), 3_000, "b", &pair, &[(number, 700_000)]));
        team.ask(version);
    }
}

/// A policy that allows everything: unsigned, with old signatures, and the first one again.
fn policies(team: &mut Team) {
    let old = policy(1);
    let loose = policy(2)
        .replace("hour = \"3000000\"", "hour = \"3000000000\"")
        .replace("day = \"10000000\"", "day = \"10000000000\"");
    let moment = after(team.now);
    for (text, by) in
        [(&loose, signed(&old, &["ada", "ben"])), (&loose, signed(&loose, &["ada"])), (&loose, Vec::new())]
    {
        assert!(team.signer.apply_policy(text.as_bytes(), &by, moment).is_err(), "a policy that nobody signed");
    }
    team.signer.apply_policy(old.as_bytes(), &signed(&old, &["ada", "ben"]), moment).unwrap();
}

/// It makes the signer fall, and start again from its log.
fn restart(team: &mut Team) {
    if team.below(2) == 0 {
        team.signer.snapshot(90 * DAY, after(team.now)).unwrap();
    }
    team.signer = reopen(&team.folder, Some(team.signer.head()), team.now);
}

const PLAYS: [fn(&mut Team); 13] = [
    many_small_ones,
    more_in_the_slot,
    burning,
    the_same_job_again,
    cancel_and_move,
    slots_of_others,
    borrowed_approvals,
    tron_rebuilds,
    other_roles,
    lies,
    bitcoin_fees,
    policies,
    restart,
];

#[test]
fn whoever_owns_the_server_gets_no_more_than_the_window() {
    let steps: u64 = std::env::var("BURSAR_TEST_REDTEAM").map_or(300, |text| text.parse().unwrap());
    for seed in 0..3 {
        let mut team = Team::new(seed);
        for _ in 0..steps {
            let play = PLAYS[team.random.index(PLAYS.len())];
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

mod judge {
    //! What can be mined of what was signed, counted by nobody's rules but the chains'.

    use super::*;
    use std::fmt::Write;

    /// Caps of the world's policy: a payment, an hour, a day.
    fn caps(group: &str) -> (u128, u128, u128) {
        if group.starts_with("gas") { (100_000, 200_000, 300_000) } else { (1_000_000, 3_000_000, 10_000_000) }
    }

    fn fee_caps(chain: &str) -> (u128, u128) {
        let most = match chain {
            "bsc" => 9_000_000_000_000_000,
            "tron" => 200_000_000,
            _ => 100_000,
        };
        (most, most * 100)
    }

    /// What a payload takes on its chain, and what it costs, read by others' code.
    struct Read {
        /// Two transactions that share one of these cannot both be mined.
        claims: BTreeSet<String>,
        fee: u128,
    }

    fn read(got: &Got) -> Read {
        use alloy_consensus::transaction::RlpEcdsaDecodableTx;
        use alloy_consensus::{TxEip1559, TxLegacy};
        use alloy_rlp::Decodable;
        use prost::Message as _;
        let request = &got.request;
        match request.chain.as_str() {
            "bsc" => {
                let (nonce, gas, price) = if request.payload[0] == 2 {
                    let body = <TxEip1559 as RlpEcdsaDecodableTx>::rlp_decode(&mut &request.payload[1..]).unwrap();
                    (body.nonce, body.gas_limit, body.max_fee_per_gas)
                } else {
                    let body = TxLegacy::decode(&mut &request.payload[..]).unwrap();
                    (body.nonce, body.gas_limit, body.gas_price)
                };
                let claims = BTreeSet::from([format!("{}/{}/{nonce}", request.group, request.index)]);
                Read { claims, fee: u128::from(gas) * price }
            }
            "tron" => {
                let raw_data = tx::tron::proto::Raw::decode(&request.payload[..]).unwrap();
                assert!(raw_data.expiration * 1_000 <= NOW + got.at + DAY, "good for longer than a day");
                // Each payload is a transaction of its own.
                let claims = BTreeSet::from([format!("{:?}", signer::digest::sha256(&request.payload))]);
                Read { claims, fee: u128::try_from(raw_data.fee_limit).unwrap() }
            }
            _ => {
                let psbt = Psbt::deserialize(&request.payload).unwrap();
                let claims = psbt.unsigned_tx.input.iter().map(|input| input.previous_output.to_string()).collect();
                let held: u64 =
                    psbt.inputs.iter().map(|input| input.witness_utxo.as_ref().unwrap().value.to_sat()).sum();
                let paid: u64 = psbt.unsigned_tx.output.iter().map(|output| output.value.to_sat()).sum();
                Read { claims, fee: u128::from(held - paid) }
            }
        }
    }

    /// The most that any span of so long has of these.
    fn most_within(events: &[(i64, u128)], span: i64) -> u128 {
        let mut events = events.to_vec();
        events.sort_unstable();
        let (mut most, mut sum, mut first) = (0, 0, 0);
        for last in 0..events.len() {
            sum += events[last].1;
            while events[last].0 - events[first].0 >= span {
                sum -= events[first].1;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    pub fn judge(got: &[Got], meant: &BTreeMap<Digest32, u32>, truth: &BTreeMap<(tx::TxHash, u32), u64>) -> String {
        let (mut free, mut fees) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        // What was signed of a job in a round: all its transactions must exclude each other. One of each is counted.
        let mut rounds: Rounds = BTreeMap::new();
        let mut dearest: BTreeMap<String, (i64, u128, String)> = BTreeMap::new();
        let mut holders: BTreeMap<String, BTreeSet<JobId>> = BTreeMap::new();
        let mut used: BTreeMap<Digest32, BTreeSet<(JobId, u32, Vec<u8>)>> = BTreeMap::new();
        let mut said: BTreeMap<String, BTreeMap<usize, BTreeSet<u64>>> = BTreeMap::new();
        let mut paid: BTreeMap<(JobId, u32), tx::Payment> = BTreeMap::new();
        for one in got {
            let (request, chain) = (&one.request, one.request.chain.to_string());
            if chain != "tron" {
                crate::mutations::judge_but_cancels(request);
            }
            let read = read(one);
            let (most_fee, _) = fee_caps(&chain);
            assert!(read.fee <= most_fee, "{chain}: a fee of {}", read.fee);
            let slot = read.claims.first().unwrap().clone();
            let place = dearest.entry(slot).or_insert((one.at, 0, request.group.to_string()));
            place.1 = place.1.max(read.fee);
            if chain == "btc" {
                note_amounts(request, &mut said);
            }
            for intent in &request.intents {
                for claim in &read.claims {
                    if let IntentKind::Pay { .. } = intent.kind {
                        holders.entry(claim.clone()).or_default().insert(intent.job);
                    }
                }
                let IntentKind::Pay { payment, owner } = &intent.kind else { continue };
                let role = request.group.as_str().split('-').next().unwrap();
                let ours = owner.as_ref().is_some_and(|owner| own(owner.group.as_str(), owner.index) == payment.to);
                let far =
                    owner.as_ref().is_some_and(|owner| owner.index > 9 && !owner.group.as_str().starts_with("deposit"));
                assert!(!far, "coins at a number that only the team knows");
                let owner_role = owner.as_ref().map_or("", |owner| owner.group.as_str().split('-').next().unwrap());
                match role {
                    "deposit" => assert!(ours && ["hot", "treasury"].contains(&owner_role), "users' coins leave"),
                    "gas" => assert!(ours && owner_role == "deposit" && payment.coin == Coin::Native, "gas leaves"),
                    "treasury" => panic!("nobody approved anything of the treasury"),
                    _ => {}
                }
                let round = (intent.job, intent.round);
                // What is signed again is the same payment: it is counted once.
                let before = paid.entry(round).or_insert_with(|| payment.clone());
                assert!(before == payment, "{round:?} pays something else when it is signed again");
                let fresh = match rounds.get_mut(&round) {
                    Some((claims, expires, payload)) if chain == "tron" => {
                        // Not beside the one before, which is past when this one is asked for.
                        let again = *payload == request.payload;
                        assert!(again || *expires < NOW + one.at, "two TRON transactions of one job at a time");
                        let raw_data = <tx::tron::proto::Raw as prost::Message>::decode(&request.payload[..]).unwrap();
                        (*expires, *payload) = (raw_data.expiration * 1_000, request.payload.clone());
                        claims.extend(read.claims.clone());
                        !again
                    }
                    Some((claims, ..)) => {
                        *claims = claims.intersection(&read.claims).cloned().collect();
                        assert!(!claims.is_empty(), "{chain}: {round:?} can be mined twice");
                        false
                    }
                    None => {
                        let expires = if chain == "tron" {
                            <tx::tron::proto::Raw as prost::Message>::decode(&request.payload[..]).unwrap().expiration
                                * 1_000
                        } else {
                            0
                        };
                        rounds.insert(round, (read.claims.clone(), expires, request.payload.clone()));
                        true
                    }
                };
                if !fresh {
                    continue;
                }
                let amount = u128::try_from(payment.amount.to_u256()).unwrap();
                let digest = intent.digest();
                // What people approved is theirs, as often as they said. Everything else is the window's.
                let times = used.entry(digest).or_default();
                let mine = (intent.job, intent.round, request.payload.clone());
                let approved = meant.get(&digest).is_some_and(|most| {
                    times.insert(mine);
                    times.len() <= usize::try_from(*most).unwrap()
                });
                if !approved {
                    let coin = format!("{}/{:?}", request.group, payment.coin);
                    assert!(amount <= caps(role).0, "{coin}: {amount} at once");
                    free.entry(coin).or_default().push((one.at, amount));
                }
            }
        }
        for (slot, jobs) in &holders {
            assert!(slot.contains(':') || jobs.len() <= 1, "{slot} pays {jobs:?}");
        }
        for (at, fee, group) in dearest.values() {
            fees.entry(group.clone()).or_default().push((*at, *fee));
        }
        whole_transactions(&said, got, truth);
        report(&free, &fees)
    }

    fn note_amounts(request: &SignRequest, said: &mut BTreeMap<String, BTreeMap<usize, BTreeSet<u64>>>) {
        let psbt = Psbt::deserialize(&request.payload).unwrap();
        let of_this = said.entry(psbt.unsigned_tx.compute_txid().to_string()).or_default();
        for (number, input) in psbt.inputs.iter().enumerate() {
            of_this.entry(number).or_default().insert(input.witness_utxo.as_ref().unwrap().value.to_sat());
        }
    }

    /// A signature of an input is good if the true amount was said for it, in whichever request. What all signatures are good for can be mined.
    fn whole_transactions(
        said: &BTreeMap<String, BTreeMap<usize, BTreeSet<u64>>>,
        got: &[Got],
        truth: &BTreeMap<(tx::TxHash, u32), u64>,
    ) {
        let mut seen = BTreeSet::new();
        for one in got.iter().filter(|one| one.request.chain.as_str() == "btc") {
            let psbt = Psbt::deserialize(&one.request.payload).unwrap();
            let id = psbt.unsigned_tx.compute_txid().to_string();
            let (mut held, mut whole) = (0, true);
            for (number, input) in psbt.unsigned_tx.input.iter().enumerate() {
                let output = input.previous_output;
                let real = truth[&(tx::bitcoin::hash_of(output.txid), output.vout)];
                whole &= said[&id][&number].contains(&real);
                held += real;
            }
            if whole && seen.insert(id.clone()) {
                let paid: u64 = psbt.unsigned_tx.output.iter().map(|output| output.value.to_sat()).sum();
                assert!(u128::from(held - paid) <= fee_caps("btc").0, "{id} really costs {}", held - paid);
            }
        }
    }

    type Events = BTreeMap<String, Vec<(i64, u128)>>;

    fn report(free: &Events, fees: &Events) -> String {
        let mut text = String::new();
        for (coin, events) in free {
            let (hour, day) = (most_within(events, HOUR), most_within(events, DAY));
            let (_, most_hour, most_day) = caps(coin);
            assert!(hour <= most_hour && day <= most_day, "{coin}: {hour} in an hour, {day} in a day");
            write!(text, "\n  {coin}: at most {hour} of {most_hour} in an hour, {day} of {most_day} in a day").unwrap();
        }
        for (group, events) in fees {
            let (_, most) = fee_caps(group.split('-').nth(1).unwrap());
            let day = most_within(events, DAY);
            assert!(day <= most, "{group}: fees of {day} in a day");
            write!(text, "\n  {group}: fees of at most {day} of {most} in a day").unwrap();
        }
        // Else it has hardly tried.
        let full = |coin: &str| free.get(coin).is_some_and(|events| most_within(events, HOUR) * 10 >= 6 * caps(coin).1);
        assert!(full("hot-bsc/Native") && full("hot-tron/Native"), "{text}");
        text
    }
}
