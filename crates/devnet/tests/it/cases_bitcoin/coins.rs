//! A node, coins of every kind on it, and their signatures.

use std::collections::BTreeMap;

use bitcoin::hashes::Hash;
use bitcoin::key::{CompressedPublicKey, Keypair, TapTweak, UntweakedKeypair};
use bitcoin::opcodes::all::{OP_CHECKSIG, OP_PUSHNUM_1};
use bitcoin::script::{Builder, PushBytesBuf};
use bitcoin::sighash::{Prevouts, SighashCache};
use bitcoin::taproot::{LeafVersion, TaprootBuilder, TaprootSpendInfo};
use bitcoin::{
    Address, Amount, EcdsaSighashType, KnownHrp, Network, OutPoint, PublicKey, ScriptBuf, TapSighashType, Transaction,
    TxOut, Txid, Witness, ecdsa, taproot,
};
use devnet::Key;
use secp256k1::{Message, SECP256K1};
use serde_json::{Value, json};

use super::spend;

/// A node that answers Core's JSON-RPC.
pub trait Node {
    fn call(&mut self, method: &str, parameters: Value) -> Result<Value, (i64, String)>;

    fn must(&mut self, method: &str, parameters: Value) -> Value {
        self.call(method, parameters.clone()).unwrap_or_else(|error| panic!("{method} {parameters}: {error:?}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    P2wpkh,
    P2tr,
    P2pkh,
    P2shP2wpkh,
    P2wsh,
    /// A tree with one leaf: the key again.
    Leaf,
    /// P2WPKH of an uncompressed key, which relay refuses to spend.
    Uncompressed,
    /// A witness version without a meaning.
    Future,
    /// Nothing but OP_1.
    Anybody,
}

#[derive(Clone, Copy, Debug)]
pub struct Coin {
    pub kind: Kind,
    pub at: OutPoint,
    pub value: Amount,
}

pub fn key() -> Key {
    Key::numbered(0)
}

fn public() -> PublicKey {
    PublicKey::new(key().public())
}

fn uncompressed() -> PublicKey {
    PublicKey::new_uncompressed(key().public())
}

fn checksig() -> ScriptBuf {
    Builder::new().push_key(&public()).push_opcode(OP_CHECKSIG).into_script()
}

fn leaf() -> ScriptBuf {
    let (key, _) = Keypair::from_secret_key(SECP256K1, key().secret()).x_only_public_key();
    Builder::new().push_x_only_key(&key).push_opcode(OP_CHECKSIG).into_script()
}

fn tree() -> TaprootSpendInfo {
    let (key, _) = Keypair::from_secret_key(SECP256K1, Key::numbered(1).secret()).x_only_public_key();
    TaprootBuilder::new().add_leaf(0, leaf()).unwrap().finalize(SECP256K1, key).unwrap()
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::P2wpkh,
        Self::P2tr,
        Self::P2pkh,
        Self::P2shP2wpkh,
        Self::P2wsh,
        Self::Leaf,
        Self::Uncompressed,
        Self::Future,
        Self::Anybody,
    ];

    pub fn script(self) -> ScriptBuf {
        let compressed = CompressedPublicKey(key().public());
        match self {
            Self::P2wpkh => Address::p2wpkh(&compressed, KnownHrp::Regtest).script_pubkey(),
            Self::P2tr => {
                let (key, _) = Keypair::from_secret_key(SECP256K1, key().secret()).x_only_public_key();
                ScriptBuf::new_p2tr(SECP256K1, key, None)
            }
            Self::P2pkh => ScriptBuf::new_p2pkh(&public().pubkey_hash()),
            Self::P2shP2wpkh => Self::P2wpkh.script().to_p2sh(),
            Self::P2wsh => checksig().to_p2wsh(),
            Self::Leaf => ScriptBuf::new_p2tr_tweaked(tree().output_key()),
            Self::Uncompressed => {
                let hash = bitcoin::WPubkeyHash::from_raw_hash(uncompressed().pubkey_hash().to_raw_hash());
                ScriptBuf::new_p2wpkh(&hash)
            }
            Self::Future => ScriptBuf::from_bytes([&[0x52, 0x20][..], &[7; 32]].concat()),
            Self::Anybody => Builder::new().push_opcode(OP_PUSHNUM_1).into_script(),
        }
    }
}

/// Signs every input with the key of the table.
pub fn sign(transaction: &mut Transaction, coins: &[Coin]) {
    sign_as(transaction, coins, EcdsaSighashType::All);
}

pub fn sign_as(transaction: &mut Transaction, coins: &[Coin], kind: EcdsaSighashType) {
    let secret = *key().secret();
    let spent: Vec<TxOut> =
        coins.iter().map(|coin| TxOut { value: coin.value, script_pubkey: coin.kind.script() }).collect();
    for (at, coin) in coins.iter().enumerate() {
        let ecdsa = |hash: [u8; 32]| {
            let signature = SECP256K1.sign_ecdsa(&Message::from_digest(hash), &secret);
            ecdsa::Signature { signature, sighash_type: kind }
        };
        let mut cache = SighashCache::new(&*transaction);
        let (witness, script_sig) = match coin.kind {
            Kind::P2wpkh | Kind::P2shP2wpkh | Kind::Uncompressed => {
                let script = if coin.kind == Kind::Uncompressed { coin.kind.script() } else { Kind::P2wpkh.script() };
                let hash = cache.p2wpkh_signature_hash(at, &script, coin.value, kind).unwrap();
                let signature = ecdsa(hash.to_byte_array()).to_vec();
                let key = if coin.kind == Kind::Uncompressed { uncompressed() } else { public() };
                let redeem = match coin.kind {
                    Kind::P2shP2wpkh => {
                        Builder::new().push_slice(PushBytesBuf::try_from(script.to_bytes()).unwrap()).into_script()
                    }
                    _ => ScriptBuf::new(),
                };
                (Witness::from_slice(&[signature, key.to_bytes()]), redeem)
            }
            Kind::P2tr => {
                let hash = cache
                    .taproot_key_spend_signature_hash(at, &Prevouts::All(&spent), TapSighashType::Default)
                    .unwrap();
                let pair: UntweakedKeypair = Keypair::from_secret_key(SECP256K1, &secret);
                let pair = pair.tap_tweak(SECP256K1, None).to_keypair();
                let signature = SECP256K1.sign_schnorr_no_aux_rand(&Message::from(hash), &pair);
                let signature = taproot::Signature { signature, sighash_type: TapSighashType::Default };
                (Witness::p2tr_key_spend(&signature), ScriptBuf::new())
            }
            Kind::Leaf => {
                let leaf_hash = leaf().tapscript_leaf_hash();
                let hash = cache
                    .taproot_script_spend_signature_hash(at, &Prevouts::All(&spent), leaf_hash, TapSighashType::Default)
                    .unwrap();
                let pair = Keypair::from_secret_key(SECP256K1, &secret);
                let signature = SECP256K1.sign_schnorr_no_aux_rand(&Message::from(hash), &pair);
                let control = tree().control_block(&(leaf(), LeafVersion::TapScript)).unwrap().serialize();
                (Witness::from_slice(&[signature.serialize().to_vec(), leaf().to_bytes(), control]), ScriptBuf::new())
            }
            Kind::P2wsh => {
                let hash = cache.p2wsh_signature_hash(at, &checksig(), coin.value, kind).unwrap();
                let signature = ecdsa(hash.to_byte_array()).to_vec();
                (Witness::from_slice(&[signature, checksig().to_bytes()]), ScriptBuf::new())
            }
            Kind::P2pkh => {
                let hash = cache.legacy_signature_hash(at, &coin.kind.script(), kind.to_u32()).unwrap();
                let signature = PushBytesBuf::try_from(ecdsa(hash.to_byte_array()).to_vec()).unwrap();
                (Witness::new(), Builder::new().push_slice(signature).push_key(&public()).into_script())
            }
            Kind::Future | Kind::Anybody => (Witness::new(), ScriptBuf::new()),
        };
        transaction.input[at].witness = witness;
        transaction.input[at].script_sig = script_sig;
    }
}

/// Funded outputs, and what the rows need to know of the chain.
pub struct Context {
    coins: BTreeMap<Kind, Vec<Coin>>,
    pub height: u32,
    pub median_time: u32,
    /// Where the coins were mined.
    pub split_at: u32,
    pub fresh: Coin,
}

pub const COIN: Amount = Amount::from_sat(10_000_000);
/// Enough for whatever a row sends.
pub const FEE: Amount = Amount::from_sat(20_000);

fn find(node: &mut dyn Node, kind: Kind) -> Vec<Coin> {
    let wanted = format!("raw({})", kind.script().to_hex_string());
    let answer = node.must("scantxoutset", json!(["start", [wanted]]));
    let coin = |found: &Value| {
        let txid: Txid = found["txid"].as_str().unwrap().parse().unwrap();
        let vout = u32::try_from(found["vout"].as_u64().unwrap()).unwrap();
        let value = Amount::from_str_in(&found["amount"].to_string(), bitcoin::Denomination::Bitcoin).unwrap();
        Coin { kind, at: OutPoint { txid, vout }, value }
    };
    answer["unspents"].as_array().unwrap().iter().map(coin).collect()
}

impl Context {
    /// Mines and splits until there are coins of every kind.
    pub fn prepare(node: &mut dyn Node) -> Self {
        let home = Address::from_script(&Kind::P2wpkh.script(), Network::Regtest).unwrap().to_string();
        let elsewhere = Address::from_script(&Kind::Leaf.script(), Network::Regtest).unwrap().to_string();
        let known: Vec<OutPoint> = find(node, Kind::P2wpkh).iter().map(|coin| coin.at).collect();
        let block = node.must("generatetoaddress", json!([1, home]))[0].as_str().unwrap().to_owned();
        node.must("generatetoaddress", json!([100, elsewhere]));
        let coinbase: Txid = node.must("getblock", json!([block]))["tx"][0].as_str().unwrap().parse().unwrap();
        let rich = find(node, Kind::P2wpkh).into_iter().find(|coin| coin.at.txid == coinbase).unwrap();
        assert!(!known.contains(&rich.at));
        let mut output = Vec::new();
        for kind in Kind::ALL {
            let count = if kind == Kind::P2wpkh { 90 } else { 12 };
            output.extend((0..count).map(|_| TxOut { value: COIN, script_pubkey: kind.script() }));
        }
        let left = rich.value.checked_sub(output.iter().map(|out| out.value).sum::<Amount>()).unwrap();
        let change = left.checked_sub(FEE).unwrap();
        output.push(TxOut { value: change, script_pubkey: Key::numbered(1).bitcoin(Network::Regtest).script() });
        let split = spend(&[rich], output);
        // Relay would refuse OP_1; a block does not.
        node.must("generateblock", json!([elsewhere, [hex(&split)]]));
        let fresh_block = node.must("generatetoaddress", json!([1, home]))[0].as_str().unwrap().to_owned();
        let header = node.must("getblock", json!([fresh_block]));
        let fresh: Txid = header["tx"][0].as_str().unwrap().parse().unwrap();
        let txid = split.compute_txid();
        let mut coins: BTreeMap<Kind, Vec<Coin>> = BTreeMap::new();
        for kind in Kind::ALL {
            let found = find(node, kind).into_iter().filter(|coin| coin.at.txid == txid);
            coins.insert(kind, found.collect());
        }
        let fresh = find(node, Kind::P2wpkh).into_iter().find(|coin| coin.at.txid == fresh).unwrap();
        let height = u32::try_from(header["height"].as_u64().unwrap()).unwrap();
        let mut context = Self { coins, height, median_time: 0, split_at: height - 1, fresh };
        context.look(node);
        context
    }

    /// The tip has moved when a case has mined.
    pub fn look(&mut self, node: &mut dyn Node) {
        let info = node.must("getblockchaininfo", json!([]));
        self.height = u32::try_from(info["blocks"].as_u64().unwrap()).unwrap();
        self.median_time = u32::try_from(info["mediantime"].as_u64().unwrap()).unwrap();
    }

    pub fn take(&mut self, kind: Kind) -> Coin {
        self.coins.get_mut(&kind).unwrap().pop().expect("enough coins of every kind")
    }
}

trait Script {
    fn script(&self) -> ScriptBuf;
}

impl Script for tx::Address {
    fn script(&self) -> ScriptBuf {
        match self {
            Self::Bitcoin(address) => address.script_pubkey(),
            _ => panic!("an address of Bitcoin"),
        }
    }
}

pub fn hex(transaction: &Transaction) -> String {
    bitcoin::consensus::encode::serialize_hex(transaction)
}
