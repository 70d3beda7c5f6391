//! Good and bad TRON transactions, and what java-tron says to each.
//!
//! There is no TRON node to be had in a test, so that each case names the rule of java-tron (4.8) that it stands for.
//! The bytes are written here by hand, field by field: neither the client's protobuf code nor the devnet's has a part
//! in them.

use bitcoin::hashes::{Hash, sha256};
use devnet::Key;
use devnet::tron::TOKEN;
use tx::Address;

/// What a transaction needs to know of the chain.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    pub height: u64,
    pub block: [u8; 32],
    pub time_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Taken, and mined with this `contractRet`.
    Mined(&'static str),
    /// Refused with this code; the message begins like this.
    Refused(&'static str, &'static str),
}

pub struct Case {
    pub name: &'static str,
    /// Where java-tron has the rule.
    pub source: &'static str,
    pub build: fn(&Reference) -> Vec<u8>,
    pub expect: Expect,
}

/// A transaction field by field. What is zero or empty is not written.
#[derive(Clone, Debug)]
pub struct Draft {
    pub ref_bytes: Vec<u8>,
    pub ref_hash: Vec<u8>,
    pub expiration: i64,
    pub memo: Vec<u8>,
    pub contracts: Vec<Vec<u8>>,
    pub timestamp: i64,
    pub fee_limit: i64,
}

impl Draft {
    pub fn of(reference: &Reference, contract: Vec<u8>) -> Self {
        Self {
            ref_bytes: reference.height.to_be_bytes()[6..].to_vec(),
            ref_hash: reference.block[8..16].to_vec(),
            expiration: reference.time_ms + 60_000,
            memo: Vec::new(),
            contracts: vec![contract],
            timestamp: reference.time_ms,
            fee_limit: 0,
        }
    }

    pub fn raw(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        bytes(&mut raw, 1, &self.ref_bytes);
        bytes(&mut raw, 4, &self.ref_hash);
        number(&mut raw, 8, self.expiration);
        bytes(&mut raw, 10, &self.memo);
        for contract in &self.contracts {
            bytes(&mut raw, 11, contract);
        }
        number(&mut raw, 14, self.timestamp);
        number(&mut raw, 18, self.fee_limit);
        raw
    }

    pub fn id(&self) -> [u8; 32] {
        sha256::Hash::hash(&self.raw()).to_byte_array()
    }

    /// r, s, v with v 27 or 28.
    pub fn signature(&self, key: u32) -> Vec<u8> {
        let (rs, odd) = Key::numbered(key).sign(self.id());
        [&rs[..], &[27 + u8::from(odd)]].concat()
    }

    pub fn with(&self, signatures: &[Vec<u8>]) -> Vec<u8> {
        let mut transaction = Vec::new();
        bytes(&mut transaction, 1, &self.raw());
        for signature in signatures {
            bytes(&mut transaction, 2, signature);
        }
        transaction
    }

    pub fn signed(&self, key: u32) -> Vec<u8> {
        self.with(&[self.signature(key)])
    }
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
}

fn number(out: &mut Vec<u8>, field: u64, value: i64) {
    if value != 0 {
        varint(out, field << 3);
        varint(out, u64::from_ne_bytes(value.to_ne_bytes()));
    }
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    if !value.is_empty() {
        varint(out, field << 3 | 2);
        varint(out, value.len() as u64);
        out.extend(value);
    }
}

/// 21 bytes.
pub fn account(key: u32) -> Vec<u8> {
    [&[0x41][..], &Key::numbered(key).account()].concat()
}

pub fn base58(key: u32) -> String {
    match Key::numbered(key).tron() {
        address @ Address::Tron(_) => address.to_string(),
        _ => unreachable!(),
    }
}

fn contract(kind: i64, url: &str, value: &[u8], permission: i64) -> Vec<u8> {
    let mut any = Vec::new();
    bytes(&mut any, 1, url.as_bytes());
    bytes(&mut any, 2, value);
    let mut contract = Vec::new();
    number(&mut contract, 1, kind);
    bytes(&mut contract, 2, &any);
    number(&mut contract, 5, permission);
    contract
}

const TRANSFER_URL: &str = "type.googleapis.com/protocol.TransferContract";
const TRIGGER_URL: &str = "type.googleapis.com/protocol.TriggerSmartContract";

fn transfer_value(from: &[u8], to: &[u8], amount: i64) -> Vec<u8> {
    let mut value = Vec::new();
    bytes(&mut value, 1, from);
    bytes(&mut value, 2, to);
    number(&mut value, 3, amount);
    value
}

pub fn transfer(from: u32, to: u32, amount: i64) -> Vec<u8> {
    contract(1, TRANSFER_URL, &transfer_value(&account(from), &account(to), amount), 0)
}

pub fn trigger(from: u32, target: &[u8], value: i64, data: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    bytes(&mut fields, 1, &account(from));
    bytes(&mut fields, 2, target);
    number(&mut fields, 3, value);
    bytes(&mut fields, 4, data);
    contract(31, TRIGGER_URL, &fields, 0)
}

pub fn token() -> Vec<u8> {
    [&[0x41][..], &TOKEN.0].concat()
}

/// A selector and its words: an account or a number each.
pub fn call(selector: &str, words: &[&[u8]]) -> Vec<u8> {
    let mut data = alloy_primitives::hex::decode(selector).unwrap();
    for word in words {
        data.extend(vec![0; 32 - word.len()]);
        data.extend(*word);
    }
    data
}

pub fn token_transfer(from: u32, to: u32, amount: u64) -> Vec<u8> {
    let data = call("a9059cbb", &[&Key::numbered(to).account(), &amount.to_be_bytes()]);
    trigger(from, &token(), 0, &data)
}

fn usual(r: &Reference) -> Draft {
    Draft::of(r, transfer(0, 1, 1_000_000))
}

fn usual_token(r: &Reference) -> Draft {
    Draft { fee_limit: 100_000_000, ..Draft::of(r, token_transfer(0, 1, 5_000_000)) }
}

fn with_v(r: &Reference, change: fn(u8) -> u8) -> Vec<u8> {
    let draft = usual(r);
    let mut signature = draft.signature(0);
    signature[64] = change(signature[64]);
    draft.with(&[signature])
}

const SIGNATURE: &str = "Validate signature error: ";
const VALIDATE: &str = "Contract validate error : ";

/// The text of a refusal, without what java-tron puts before it for its code.
fn refused(code: &'static str, text: &'static str) -> Expect {
    Expect::Refused(code, text)
}

pub fn table() -> Vec<Case> {
    let sig = |text| refused("SIGERROR", text);
    let validate = |text| refused("CONTRACT_VALIDATE_ERROR", text);
    let case = |name, source, build, expect| Case { name, source, build, expect };
    let success = Expect::Mined("SUCCESS");
    vec![
        case("a transfer", "TransferActuator.execute", |r| usual(r).signed(0), success),
        case("a token transfer", "VMActuator.call", |r| usual_token(r).signed(0), success),
        case("v of 0 or 1", "ECKey: v < 27 is raised", |r| with_v(r, |v| v - 27), success),
        case("v of 31 or 32", "ECKey.signatureToKeyBytes: header >= 31 is lowered", |r| with_v(r, |v| v + 4), success),
        case(
            "v of 26 + 27",
            "ECKey.signatureToKeyBytes: header",
            |r| with_v(r, |_| 26),
            sig("Header byte out of range: 53"),
        ),
        case(
            "v of 29 or 30",
            "ECKey.recoverPubBytesFromSignature: x is not on the curve",
            |r| with_v(r, |v| v + 2),
            sig("Could not recover public key from signature"),
        ),
        case(
            "v of 35",
            "ECKey.signatureToKeyBytes: header",
            |r| with_v(r, |_| 35),
            sig("Header byte out of range: 35"),
        ),
        case("the other v", "TransactionCapsule.checkWeight", |r| with_v(r, |v| 55 - v), sig("")),
        case(
            "no signature",
            "TransactionCapsule.validatePubSignature",
            |r| usual(r).with(&[]),
            sig("miss sig or contract"),
        ),
        case("another's signature", "TransactionCapsule.checkWeight", |r| usual(r).signed(1), sig("")),
        case(
            "a signature of 64 bytes",
            "TransactionCapsule.checkWeight",
            |r| usual(r).with(&[usual(r).signature(0)[..64].to_vec()]),
            sig("Signature size is 64"),
        ),
        case(
            "a signature of zeros",
            "ECKey.recoverPubBytesFromSignature",
            |r| usual(r).with(&[vec![0; 65]]),
            sig("Could not recover public key from signature"),
        ),
        case(
            "two signatures for one key",
            "TransactionCapsule.checkWeight",
            |r| usual(r).with(&[usual(r).signature(0), usual(r).signature(0)]),
            sig("Signature count is 2 more than key counts of permission : 1"),
        ),
        case(
            "six signatures",
            "TransactionCapsule.validatePubSignature: getTotalSignNum",
            |r| usual(r).with(&vec![usual(r).signature(0); 6]),
            sig("too many signatures"),
        ),
        case(
            "the active permission",
            "AccountCapsule.createDefaultActivePermission: id 2",
            |r| {
                let value = transfer_value(&account(0), &account(1), 1);
                Draft::of(r, contract(1, TRANSFER_URL, &value, 2)).signed(0)
            },
            success,
        ),
        case(
            "a permission that is not there",
            "TransactionCapsule.validateSignature: getPermissionById",
            |r| {
                let value = transfer_value(&account(0), &account(1), 1);
                Draft::of(r, contract(1, TRANSFER_URL, &value, 3)).signed(0)
            },
            sig("permission isn't exit"),
        ),
        case(
            "no contract",
            "Wallet.broadcastTransaction: getContractCount",
            |r| Draft { contracts: Vec::new(), ..usual(r) }.signed(0),
            validate("No contract!"),
        ),
        case(
            "two contracts",
            "Manager.processTransaction: ContractSizeNotEqualToOneException",
            |r| Draft { contracts: vec![transfer(0, 1, 1), transfer(0, 2, 1)], ..usual(r) }.signed(0),
            validate("tx "),
        ),
        case(
            "a contract of another type than it says",
            "TransferActuator.validate: Any.is",
            |r| {
                let value = transfer_value(&account(0), &account(1), 1);
                Draft::of(r, contract(1, TRIGGER_URL, &value, 0)).signed(0)
            },
            validate("contract type error"),
        ),
        case(
            "expired with the newest block",
            "Manager.validateCommon: expiration <= headBlockTime",
            |r| Draft { expiration: r.time_ms, ..usual(r) }.signed(0),
            refused("TRANSACTION_EXPIRATION_ERROR", "Transaction expired"),
        ),
        case(
            "expires a millisecond after the newest block",
            "Manager.validateCommon: expiration <= headBlockTime",
            |r| Draft { expiration: r.time_ms + 1, ..usual(r) }.signed(0),
            success,
        ),
        case(
            "expires in a day",
            "Manager.validateCommon: MAXIMUM_TIME_UNTIL_EXPIRATION",
            |r| Draft { expiration: r.time_ms + 86_400_000, ..usual(r) }.signed(0),
            success,
        ),
        case(
            "expires later than in a day",
            "Manager.validateCommon: MAXIMUM_TIME_UNTIL_EXPIRATION",
            |r| Draft { expiration: r.time_ms + 86_400_001, ..usual(r) }.signed(0),
            refused("TRANSACTION_EXPIRATION_ERROR", "Transaction expired"),
        ),
        case(
            "another block's hash",
            "Manager.validateTapos: different block hash",
            |r| Draft { ref_hash: vec![7; 8], ..usual(r) }.signed(0),
            refused("TAPOS_ERROR", "Tapos check error."),
        ),
        case(
            "a block that is not there yet",
            "Manager.validateTapos: block not found",
            |r| Draft { ref_bytes: (r.height + 1).to_be_bytes()[6..].to_vec(), ..usual(r) }.signed(0),
            refused("TAPOS_ERROR", "Tapos check error."),
        ),
        case(
            "no reference at all",
            "Manager.validateTapos: block not found",
            |r| Draft { ref_bytes: Vec::new(), ref_hash: Vec::new(), ..usual(r) }.signed(0),
            refused("TAPOS_ERROR", "Tapos check error."),
        ),
        case(
            "more than 500 kB",
            "Manager.validateCommon: TRANSACTION_MAX_BYTE_SIZE",
            |r| Draft { memo: vec![1; 512_000], ..usual(r) }.signed(0),
            refused("TOO_BIG_TRANSACTION_ERROR", "Transaction size is too big."),
        ),
        case(
            "an amount of zero",
            "TransferActuator.validate",
            |r| Draft::of(r, transfer(0, 1, 0)).signed(0),
            validate("Amount must be greater than 0."),
        ),
        case(
            "a negative amount",
            "TransferActuator.validate",
            |r| Draft::of(r, transfer(0, 1, -5)).signed(0),
            validate("Amount must be greater than 0."),
        ),
        case(
            "to oneself",
            "TransferActuator.validate",
            |r| Draft::of(r, transfer(0, 0, 5)).signed(0),
            validate("Cannot transfer TRX to yourself."),
        ),
        case(
            "more than there is",
            "TransferActuator.validate",
            |r| Draft::of(r, transfer(0, 1, 1_000_000_000_001)).signed(0),
            validate("Validate TransferContract error, balance is not sufficient."),
        ),
        case(
            "all that there is",
            "TransferActuator.validate",
            |r| Draft::of(r, transfer(0, 1, 1_000_000_000_000)).signed(0),
            success,
        ),
        case(
            "all that there is to a new account, whose fee is missing",
            "TransferActuator.validate: createNewAccountFeeInSystemContract",
            |r| Draft::of(r, transfer(0, 50, 999_999_000_000)).signed(0),
            validate("Validate TransferContract error, balance is not sufficient."),
        ),
        case(
            "all but the fees of a new account",
            "TransferActuator.execute, BandwidthProcessor.consumeFeeForCreateNewAccount",
            |r| Draft::of(r, transfer(0, 50, 999_998_900_000)).signed(0),
            success,
        ),
        case(
            "an owner that does not exist",
            "BandwidthProcessor.consume",
            |r| Draft::of(r, transfer(77, 1, 5)).signed(77),
            validate("account [T"),
        ),
        case(
            "a short recipient",
            "TransferActuator.validate: DecodeUtil.addressValid",
            |r| {
                let value = transfer_value(&account(0), &account(1)[..20], 1);
                Draft::of(r, contract(1, TRANSFER_URL, &value, 0)).signed(0)
            },
            validate("Invalid toAddress!"),
        ),
        case(
            "TRX to the token's contract",
            "TransferActuator.validate: forbidTransferToContract",
            |r| {
                let value = transfer_value(&account(0), &token(), 1);
                Draft::of(r, contract(1, TRANSFER_URL, &value, 0)).signed(0)
            },
            validate("Cannot transfer TRX to a smartContract."),
        ),
        case(
            "a call of an account without code",
            "VMActuator.call",
            |r| Draft::of(r, trigger(0, &account(1), 0, &[1, 2, 3, 4])).signed(0),
            validate("No contract or not a smart contract"),
        ),
        case(
            "a fee limit above the network's",
            "VMActuator.call: getMaxFeeLimit",
            |r| Draft { fee_limit: 15_000_000_001, ..usual_token(r) }.signed(0),
            validate("feeLimit must be >= 0 and <= 15000000000"),
        ),
        case(
            "a negative fee limit",
            "VMActuator.call: getMaxFeeLimit",
            |r| Draft { fee_limit: -1, ..usual_token(r) }.signed(0),
            validate("feeLimit must be >= 0 and <= 15000000000"),
        ),
        case(
            "no fee limit",
            "VMActuator.getTotalEnergyLimit",
            |r| Draft { fee_limit: 0, ..usual_token(r) }.signed(0),
            Expect::Mined("OUT_OF_ENERGY"),
        ),
        case(
            "a fee limit one sun short",
            "VMActuator.getTotalEnergyLimit",
            |r| Draft { fee_limit: 6_428_499, ..usual_token(r) }.signed(0),
            Expect::Mined("OUT_OF_ENERGY"),
        ),
        case(
            "a fee limit that is just enough",
            "VMActuator.getTotalEnergyLimit",
            |r| Draft { fee_limit: 6_428_500, ..usual_token(r) }.signed(0),
            success,
        ),
        case(
            "more tokens than there are",
            "Program: REVERT",
            |r| {
                let contract = token_transfer(0, 1, 1_000_000_000_001);
                Draft { fee_limit: 100_000_000, ..Draft::of(r, contract) }.signed(0)
            },
            Expect::Mined("REVERT"),
        ),
        case(
            "tokens to nobody",
            "Program: REVERT of the token's own check",
            |r| {
                let data = call("a9059cbb", &[&[0], &[1]]);
                Draft { fee_limit: 100_000_000, ..Draft::of(r, trigger(0, &token(), 0, &data)) }.signed(0)
            },
            Expect::Mined("REVERT"),
        ),
        case("a memo", "Manager.consumeMemoFee", |r| Draft { memo: b"hello".to_vec(), ..usual(r) }.signed(0), success),
        case(
            "a method that the token has not",
            "Program: REVERT",
            |r| Draft { fee_limit: 100_000_000, ..Draft::of(r, trigger(0, &token(), 0, &[9; 36])) }.signed(0),
            Expect::Mined("REVERT"),
        ),
        case(
            "TRX with a call that takes none",
            "Program: REVERT of a non-payable method",
            |r| {
                let data = call("a9059cbb", &[&Key::numbered(1).account(), &[1]]);
                Draft { fee_limit: 100_000_000, ..Draft::of(r, trigger(0, &token(), 5, &data)) }.signed(0)
            },
            Expect::Mined("REVERT"),
        ),
    ]
}

/// What java-tron puts before the reason of a refusal.
pub fn message(code: &str, reason: &str) -> String {
    match code {
        "SIGERROR" => format!("{SIGNATURE}{reason}"),
        "CONTRACT_VALIDATE_ERROR" => format!("{VALIDATE}{reason}"),
        _ => reason.to_owned(),
    }
}
