//! The messages of TRON's `core/Tron.proto`, with their real field numbers: those that a transfer is made of.
//!
//! Fields that a plain transfer must not have are here all the same, so that their presence can be named.

/// A transaction as nodes pass it on, with `raw_data` as the bytes that were signed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Envelope {
    #[prost(bytes = "vec", tag = "1")]
    pub raw_data: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub signature: Vec<Vec<u8>>,
    /// What became of it, added by the block's producer.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub ret: Vec<Vec<u8>>,
}

/// `raw_data`: what is hashed and signed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    pub ref_block_bytes: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub ref_block_num: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub ref_block_hash: Vec<u8>,
    /// Milliseconds.
    #[prost(int64, tag = "8")]
    pub expiration: i64,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub auths: Vec<Vec<u8>>,
    /// The memo.
    #[prost(bytes = "vec", tag = "10")]
    pub data: Vec<u8>,
    #[prost(message, repeated, tag = "11")]
    pub contract: Vec<Contract>,
    #[prost(bytes = "vec", tag = "12")]
    pub scripts: Vec<u8>,
    /// Milliseconds.
    #[prost(int64, tag = "14")]
    pub timestamp: i64,
    #[prost(int64, tag = "18")]
    pub fee_limit: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Contract {
    #[prost(int32, tag = "1")]
    pub r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub parameter: Option<Any>,
    #[prost(bytes = "vec", tag = "3")]
    pub provider: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub contract_name: Vec<u8>,
    #[prost(int32, tag = "5")]
    pub permission_id: i32,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Moves TRX.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TransferContract {
    #[prost(bytes = "vec", tag = "1")]
    pub owner_address: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub to_address: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub amount: i64,
}

impl TransferContract {
    pub const TYPE: i32 = 1;
    pub const URL: &str = "type.googleapis.com/protocol.TransferContract";
}

/// Calls a contract.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TriggerSmartContract {
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

impl TriggerSmartContract {
    pub const TYPE: i32 = 31;
    pub const URL: &str = "type.googleapis.com/protocol.TriggerSmartContract";
}
