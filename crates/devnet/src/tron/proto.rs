//! TRON's messages, with the field numbers of `core/Tron.proto`. Written for the devnet alone: the client has its own
//! reading, so that two readings meet in the tests.

use prost::Message;

pub const TRANSFER: i32 = 1;
pub const TRIGGER: i32 = 31;

#[derive(Clone, PartialEq, Message)]
pub struct Transaction {
    #[prost(message, optional, tag = "1")]
    pub raw_data: Option<Raw>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub signature: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "5")]
    pub ret: Vec<Ret>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ret {
    #[prost(int64, tag = "1")]
    pub fee: i64,
    #[prost(int32, tag = "2")]
    pub ret: i32,
    #[prost(int32, tag = "3")]
    pub contract_ret: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    pub ref_block_bytes: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub ref_block_num: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub ref_block_hash: Vec<u8>,
    #[prost(int64, tag = "8")]
    pub expiration: i64,
    #[prost(bytes = "vec", tag = "10")]
    pub data: Vec<u8>,
    #[prost(message, repeated, tag = "11")]
    pub contract: Vec<Contract>,
    #[prost(bytes = "vec", tag = "12")]
    pub scripts: Vec<u8>,
    #[prost(int64, tag = "14")]
    pub timestamp: i64,
    #[prost(int64, tag = "18")]
    pub fee_limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Contract {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub parameter: Option<Any>,
    #[prost(bytes = "vec", tag = "3")]
    pub provider: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub name: Vec<u8>,
    #[prost(int32, tag = "5")]
    pub permission_id: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Transfer {
    #[prost(bytes = "vec", tag = "1")]
    pub owner_address: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub to_address: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub amount: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Trigger {
    #[prost(bytes = "vec", tag = "1")]
    pub owner_address: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub contract_address: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub call_value: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
    #[prost(int64, tag = "5")]
    pub call_token_value: i64,
    #[prost(int64, tag = "6")]
    pub token_id: i64,
}

/// `BlockHeader.raw`: what a block's id is the hash of.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(bytes = "vec", tag = "2")]
    pub tx_trie_root: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub parent_hash: Vec<u8>,
    #[prost(int64, tag = "7")]
    pub number: i64,
    #[prost(int64, tag = "8")]
    pub witness_id: i64,
    #[prost(bytes = "vec", tag = "9")]
    pub witness_address: Vec<u8>,
    #[prost(int32, tag = "10")]
    pub version: i32,
}

impl Transfer {
    pub const URL: &str = "type.googleapis.com/protocol.TransferContract";
}

impl Trigger {
    pub const URL: &str = "type.googleapis.com/protocol.TriggerSmartContract";
}

impl Raw {
    /// One contract, which is all that a transaction may hold.
    pub fn holding(kind: i32, url: &str, value: &impl Message) -> Self {
        let parameter = Any { type_url: url.to_owned(), value: value.encode_to_vec() };
        let contract = Contract { kind, parameter: Some(parameter), ..Contract::default() };
        Self { contract: vec![contract], ..Self::default() }
    }
}
