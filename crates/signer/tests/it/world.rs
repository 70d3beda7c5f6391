//! A signer with wallets on three chains, keys that everybody knows, and people who sign.

use std::collections::BTreeMap;

use bitcoin::Network;
use devnet::Key;
use domain::id::first_at;
use domain::{RawAmount, Timestamp};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ruint::aliases::U256;
use signer::approval::{GivenApproval, Proof, message};
use signer::digest::{Digest32, hex, sha256};
use signer::keys::Purpose;
use signer::log::Head;
use signer::names::{GroupId, JobId};
use signer::policy::signed::PolicySignature;
use signer::{
    Addresses, Authorizer, BitcoinTerms, Intent, IntentKind, Moment, Owner, SignRequest, SignerChain, SignerRefusal,
    Verdict,
};
use tx::{Address, BlockHash, BlockRef, Coin, Draft, Fee, Input, Payment, TxHash};

use crate::faulty::FaultyFolder;

pub const CHAIN_ID: u64 = 56;
pub const NETWORK: Network = Network::Regtest;
pub const NOW: i64 = 1_794_850_000_000_000;
pub const MINUTE: i64 = 60_000_000;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;
pub const GWEI: u128 = 1_000_000_000;

pub fn raw(units: u128) -> RawAmount {
    RawAmount::from_u256(U256::from(units))
}

pub fn group(name: &str) -> GroupId {
    name.parse().unwrap()
}

/// The time, so many microseconds after the beginning of every test.
pub const fn after(micros: i64) -> Moment {
    Moment { date: Timestamp::from_micros(NOW + micros), uptime_us: 7 + micros }
}

pub fn job(number: i64) -> JobId {
    JobId::Withdrawal(first_at(Timestamp::from_micros(NOW)) + number)
}

pub fn key(name: &str) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&sha256(format!("bursar signer {name}").as_bytes())).unwrap()
}

fn public(name: &str) -> String {
    hex(key(name).public_key().as_ref())
}

/// All keys of a world: a number for each group, and the address's own.
pub fn key_of(group: &GroupId, index: u64) -> Key {
    let number = sha256(format!("{group}/{index}").as_bytes());
    Key::numbered(1_000 + u32::from_be_bytes([0, number[0], number[1], number[2]]))
}

pub struct Wallets;

impl Addresses for Wallets {
    fn address(&self, group: &GroupId, index: u64) -> Option<Address> {
        let key = key_of(group, index);
        match group.as_str().split('-').nth(1)? {
            "bsc" => Some(key.evm()),
            "tron" => Some(key.tron()),
            "btc" => Some(key.bitcoin(NETWORK)),
            _ => None,
        }
    }

    fn purpose(&self, group: &GroupId) -> Option<Purpose> {
        Purpose::parse(group.as_str().split('-').next()?)
    }
}

pub fn own(name: &str, index: u64) -> Address {
    Wallets.address(&group(name), index).unwrap()
}

pub fn token() -> Address {
    Key::numbered(90).evm()
}

pub fn stranger(number: u32) -> Key {
    Key::numbered(100 + number)
}

/// A policy: three chains, four roles. Amounts are small, so that tests can reach them.
pub fn policy(version: u64) -> String {
    let cold = stranger(7).evm();
    let mut text = format!(
        r#"signer = "test"
version = {version}
cooling_off_hours = 24
most_intent_life_hours = 48
operators = ["olga"]

[administrators]
needed = 2
keys = {{ ada = "{}", ben = "{}", cyd = "{}" }}
"#,
        public("ada"),
        public("ben"),
        public("cyd")
    );
    for (name, person) in
        [("bob", "bob"), ("carol", "carol"), ("carol-2", "carol"), ("dave", "dave"), ("erin", "erin"), ("olga", "olga")]
    {
        text += &format!("\n[[approver]]\nkey = \"{name}\"\nperson = \"{person}\"\ned25519 = \"{}\"\n", public(name));
    }
    text += r#"
[[chain]]
name = "bsc"
kind = "evm"
chain_id = 56

[[chain]]
name = "tron"
kind = "tron"

[[chain]]
name = "btc"
kind = "bitcoin"
network = "regtest"
"#;
    let fees = BTreeMap::from([("bsc", "9000000000000000"), ("tron", "200000000"), ("btc", "100000")]);
    for (chain, fee) in &fees {
        let coins: Vec<String> = match *chain {
            "bsc" => vec!["native".to_owned(), token().to_string()],
            "tron" => vec!["native".to_owned(), Key::numbered(90).tron().to_string()],
            _ => vec!["native".to_owned()],
        };
        for role in ["hot", "deposit", "gas", "treasury"] {
            text += &format!(
                "\n[[group]]\nid = \"{role}-{chain}\"\nchain = \"{chain}\"\nrole = \"{role}\"\nmost_fee = \"{fee}\"\nmost_fee_day = \"{fee}00\"\n"
            );
            if role != "deposit" {
                text += "highest_index = 9\n";
            }
            if role == "treasury" && *chain == "bsc" {
                text += &format!("destinations = [\"{cold}\"]\n");
            }
            for coin in coins.iter().take(if role == "gas" { 1 } else { 2 }) {
                text += &format!("\n[[group.coin]]\ncoin = \"{coin}\"\n");
                match role {
                    "hot" => {
                        text += "payment = \"1000000\"\nhour = \"3000000\"\nday = \"10000000\"\n";
                        text += "step = [\n  { up_to = \"5000000\", approvals = 1, of = [\"bob\", \"carol\", \"erin\"] },\n";
                        text += "  { up_to = \"100000000\", approvals = 2, of = [\"bob\", \"carol\", \"dave\", \"erin\"] },\n]\n";
                    }
                    "gas" => text += "payment = \"100000\"\nhour = \"200000\"\nday = \"300000\"\n",
                    "treasury" => {
                        text +=
                            "step = [{ up_to = \"900000000\", approvals = 2, of = [\"bob\", \"carol\", \"dave\"] }]\n";
                    }
                    _ => {}
                }
            }
        }
    }
    text
}

pub fn signed(text: &str, names: &[&str]) -> Vec<PolicySignature> {
    let sign = |name: &&str| {
        let signature = key(name).sign(&signer::policy::signed::message(text.as_bytes()));
        PolicySignature { by: name.parse().unwrap(), signature: signature.as_ref().to_vec() }
    };
    names.iter().map(sign).collect()
}

pub fn approve(name: &str, digest: Digest32) -> GivenApproval {
    let proof = Proof::Ed25519(key(name).sign(&message(&digest)).as_ref().to_vec());
    GivenApproval { digest, key: name.parse().unwrap(), proof }
}

/// A signer on a disk that does as it is told, with the first policy.
pub fn signer() -> (Authorizer<FaultyFolder>, FaultyFolder) {
    signer_with(&policy(1))
}

pub fn signer_with(text: &str) -> (Authorizer<FaultyFolder>, FaultyFolder) {
    let folder = FaultyFolder::new(1);
    let mut signer = Authorizer::open(folder.clone(), None, after(0)).unwrap();
    signer.apply_policy(text.as_bytes(), &signed(text, &["ada", "ben"]), after(0)).unwrap();
    (signer, folder)
}

pub fn reopen(folder: &FaultyFolder, pinned: Option<Head>, at: i64) -> Authorizer<FaultyFolder> {
    Authorizer::open(folder.clone(), pinned, after(at)).unwrap()
}

/// Decides one request.
pub fn ask(signer: &mut Authorizer<FaultyFolder>, request: &SignRequest, at: i64) -> Verdict {
    let mut verdicts = signer.decide(std::slice::from_ref(request), after(at), &Wallets).unwrap().verdicts;
    verdicts.pop().unwrap()
}

pub fn refusal(signer: &mut Authorizer<FaultyFolder>, request: &SignRequest, at: i64) -> SignerRefusal {
    match ask(signer, request, at) {
        Verdict::Refused { refusal, policy, rule } => {
            assert!(policy > 0 && !rule.is_empty(), "a refusal names policy and rule");
            refusal
        }
        Verdict::Approved { rule, .. } => panic!("approved by {rule}"),
    }
}

#[track_caller]
pub fn approved(signer: &mut Authorizer<FaultyFolder>, request: &SignRequest, at: i64) -> String {
    match ask(signer, request, at) {
        Verdict::Approved { approved, policy, rule } => {
            assert!(policy > 0 && !rule.is_empty(), "an approval names policy and rule");
            assert_eq!(approved.payload(), request.payload);
            rule
        }
        Verdict::Refused { refusal, rule, .. } => panic!("refused by {rule}: {refusal}"),
    }
}

/// One payment of an EVM wallet, and how it is asked for.
#[derive(Clone)]
pub struct Evm {
    pub group: &'static str,
    pub index: u64,
    pub nonce: u64,
    pub job: JobId,
    pub payment: Payment,
    pub owner: Option<Owner>,
    pub fee: Fee,
    pub round: u32,
    pub cancels: Option<Vec<JobId>>,
    pub at: i64,
}

pub fn evm(number: i64, nonce: u64, amount: u128) -> Evm {
    Evm {
        group: "hot-bsc",
        index: 0,
        nonce,
        job: job(number),
        payment: Payment { to: stranger(1).evm(), coin: Coin::Native, amount: raw(amount) },
        owner: None,
        fee: Fee::Eip1559 { max_fee: 10 * GWEI, max_priority: GWEI },
        round: 0,
        cancels: None,
        at: 0,
    }
}

impl Evm {
    pub fn to(mut self, to: Address) -> Self {
        self.payment.to = to;
        self
    }

    pub fn coin(mut self, coin: Coin) -> Self {
        self.payment.coin = coin;
        self
    }

    pub fn from(mut self, group: &'static str, index: u64) -> Self {
        (self.group, self.index) = (group, index);
        self
    }

    pub fn owned(mut self, name: &str, index: u64) -> Self {
        self.owner = Some(Owner { group: group(name), index });
        self.to(own(name, index))
    }

    pub fn round(mut self, round: u32) -> Self {
        self.round = round;
        self
    }

    pub fn gas_price(mut self, gwei: u128) -> Self {
        self.fee = Fee::Legacy { gas_price: gwei * GWEI };
        self
    }

    pub fn cancelling(mut self, jobs: Vec<JobId>) -> Self {
        self.cancels = Some(jobs);
        self
    }

    pub fn at(mut self, at: i64) -> Self {
        self.at = at;
        self
    }

    pub fn payload(&self) -> Vec<u8> {
        if self.cancels.is_some() {
            return cancel_bytes(&own(self.group, self.index), self.nonce, self.fee);
        }
        let from = own(self.group, self.index);
        let draft =
            Draft::Evm { from, nonce: self.nonce, payment: self.payment.clone(), gas_limit: 60_000, fee: self.fee };
        tx::evm::build(&draft, CHAIN_ID).unwrap().bytes
    }

    pub fn request(&self, id: &str) -> SignRequest {
        let payload = self.payload();
        let most_fee = tx::evm::decode_unsigned(&payload, CHAIN_ID).unwrap().most_fee.unwrap();
        let kind = match &self.cancels {
            Some(jobs) => IntentKind::Cancel { jobs: jobs.clone() },
            None => IntentKind::Pay { payment: self.payment.clone(), owner: self.owner.clone() },
        };
        let intent = Intent {
            signer: "test".parse().unwrap(),
            network: SignerChain::Evm { chain_id: CHAIN_ID },
            job: self.job,
            round: self.round,
            chain: "bsc".parse().unwrap(),
            group: group(self.group),
            kind,
            most_fee,
            expires: Timestamp::from_micros(NOW + self.at + DAY),
            builds: 1,
            requester: "erin".parse().unwrap(),
        };
        SignRequest {
            id: id.parse().unwrap(),
            chain: "bsc".parse().unwrap(),
            group: group(self.group),
            index: self.index,
            payload,
            intents: vec![intent],
            bitcoin: None,
            replaces: None,
            approvals: Vec::new(),
        }
    }
}

/// `build` makes no payment of nothing, so a cancel is written field by field.
fn cancel_bytes(own: &Address, nonce: u64, fee: Fee) -> Vec<u8> {
    use alloy_consensus::{SignableTransaction, TxLegacy};
    let Address::Evm(to) = own else { panic!("an EVM address") };
    let gas_price = match fee {
        Fee::Legacy { gas_price } => gas_price,
        Fee::Eip1559 { max_fee, .. } => max_fee,
        Fee::PerKvb(_) | Fee::FeeLimit(_) => panic!("an EVM fee"),
    };
    let body = TxLegacy {
        chain_id: Some(CHAIN_ID),
        nonce,
        gas_price,
        gas_limit: 21_000,
        to: (*to).into(),
        ..TxLegacy::default()
    };
    body.encoded_for_signing()
}

/// A TRON payment: TRX, or a token with its fee limit.
pub fn tron(number: i64, amount: u128, coin: Coin, at: i64, life: i64) -> SignRequest {
    let to = stranger(2).tron();
    let from = own("hot-tron", 0);
    let mut hash = [9; 32];
    hash[..8].copy_from_slice(&77_u64.to_be_bytes());
    let payment = Payment { to, coin: coin.clone(), amount: raw(amount) };
    let draft = Draft::Tron {
        from,
        payment: payment.clone(),
        fee_limit: if coin == Coin::Native { 0 } else { 30_000_000 },
        reference: BlockRef { height: 77, hash: BlockHash(hash) },
        created: Timestamp::from_micros(NOW + at),
        expires: Timestamp::from_micros(NOW + at + life),
    };
    let unsigned = tx::tron::transaction::build(&draft).unwrap();
    let intent = Intent {
        signer: "test".parse().unwrap(),
        network: SignerChain::Tron,
        job: job(number),
        round: 0,
        chain: "tron".parse().unwrap(),
        group: group("hot-tron"),
        kind: IntentKind::Pay { payment, owner: None },
        most_fee: unsigned.meaning.most_fee.unwrap(),
        expires: Timestamp::from_micros(NOW + at + DAY),
        builds: 1,
        requester: "erin".parse().unwrap(),
    };
    SignRequest {
        id: format!("tron-{number}-{at}").parse().unwrap(),
        chain: "tron".parse().unwrap(),
        group: group("hot-tron"),
        index: 0,
        payload: unsigned.bytes,
        intents: vec![intent],
        bitcoin: None,
        replaces: None,
        approvals: Vec::new(),
    }
}

/// Where the change of a wallet goes: beside its address 0.
pub const CHANGE: u64 = 1 << 31;

pub fn coin_input(number: u8, index: u64, amount_sat: u64) -> (Input, u64) {
    input_of("hot-btc", [number; 32], index, amount_sat)
}

pub fn input_of(name: &str, transaction: [u8; 32], index: u64, amount_sat: u64) -> (Input, u64) {
    let script = own(name, index).script_bytes().unwrap();
    (Input { transaction: TxHash(transaction), index: 3, amount_sat, script, sequence: 0xffff_fffd }, index)
}

/// Payouts of one Bitcoin transaction of `hot-btc`, with change: what the inputs hold beyond payouts and 2,000 satoshi.
pub fn bitcoin_request(id: &str, inputs: &[(Input, u64)], payouts: &[(i64, u64)]) -> SignRequest {
    bitcoin_of("hot-btc", Some(CHANGE), 2_000, id, inputs, payouts)
}

/// The same from any group, with change to any of its numbers or none, for any fee.
pub fn bitcoin_of(
    name: &str,
    change: Option<u64>,
    fee: u64,
    id: &str,
    inputs: &[(Input, u64)],
    payouts: &[(i64, u64)],
) -> SignRequest {
    let held: u64 = inputs.iter().map(|(input, _)| input.amount_sat).sum();
    let paid: u64 = payouts.iter().map(|(_, satoshi)| satoshi).sum();
    let to = |number: i64| stranger(u32::try_from(20 + number).unwrap()).bitcoin(NETWORK);
    let pay = |number: i64, satoshi: u64| Payment { to: to(number), coin: Coin::Native, amount: raw(satoshi.into()) };
    let mut payments: Vec<Payment> = payouts.iter().map(|(number, satoshi)| pay(*number, *satoshi)).collect();
    payments.extend(change.map(|index| Payment { to: own(name, index), ..pay(0, held - paid - fee) }));
    let draft = Draft::Bitcoin {
        inputs: inputs.iter().map(|(input, _)| input.clone()).collect(),
        payments,
        lock_time: 800_000,
    };
    let unsigned = tx::bitcoin::build(&draft, NETWORK).unwrap();
    let intent = |(number, satoshi): &(i64, u64)| Intent {
        signer: "test".parse().unwrap(),
        network: SignerChain::Bitcoin(NETWORK),
        job: job(*number),
        round: 0,
        chain: "btc".parse().unwrap(),
        group: group(name),
        kind: IntentKind::Pay { payment: pay(*number, *satoshi), owner: None },
        most_fee: raw(fee.into()),
        expires: Timestamp::from_micros(NOW + DAY),
        builds: 1,
        requester: "erin".parse().unwrap(),
    };
    SignRequest {
        id: id.parse().unwrap(),
        chain: "btc".parse().unwrap(),
        group: group(name),
        index: 0,
        payload: unsigned.bytes,
        intents: payouts.iter().map(intent).collect(),
        bitcoin: Some(BitcoinTerms {
            inputs: inputs.iter().map(|(_, index)| *index).collect(),
            change: change.into_iter().collect(),
            lock_time: 800_000,
            sequence: 0xffff_fffd,
        }),
        replaces: None,
        approvals: Vec::new(),
    }
}
