//! Blocks full of payments, a known number of which are to watched addresses. The same on a devnet and on a real node:
//! everything goes over the node's own interface.

use chain::Chain;
use chain::endpoint::{Node, Pool, json_rpc};
use devnet::Key;
use domain::{ChainKind, RawAmount, Timestamp};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use terminal::failure::{CommandResult, Failure};
use tx::Input;
use tx::{Address, Coin, Draft, Fee, Payment, Unsigned, bitcoin, evm, tron};

use super::node::trouble;

/// What the blocks hold.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub blocks: u32,
    /// In each block.
    pub payments: u32,
}

/// One payment in so many is to a watched address.
pub const WATCHED_EVERY: u32 = 10;
/// So many different watched addresses are paid.
pub const PAID: u32 = 100;

impl Plan {
    pub fn matches(self) -> u64 {
        u64::from(self.blocks) * u64::from(self.payments.div_ceil(WATCHED_EVERY))
    }
}

/// The blocks to scan.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    pub from: u64,
    pub to: u64,
}

/// The address with this number. Only Bitcoin's have keys, which are public.
pub fn address(kind: ChainKind, number: u32) -> Address {
    let mut account = [0xb5; 20];
    account[..4].copy_from_slice(&number.to_be_bytes());
    match kind {
        ChainKind::Evm => Address::Evm(account.into()),
        ChainKind::Tron => Address::Tron(tron::TronAddress(account)),
        ChainKind::Bitcoin => Key::numbered(number + 1_000).bitcoin(devnet::bitcoin::NETWORK),
    }
}

/// Whom the payment pays: the first [`PAID`] addresses are watched, the others are not.
fn payee(kind: ChainKind, number: u32) -> Address {
    if number.is_multiple_of(WATCHED_EVERY) {
        address(kind, number / WATCHED_EVERY % PAID)
    } else {
        address(kind, PAID + number % 1_000)
    }
}

fn raw(units: u64) -> RawAmount {
    RawAmount::from_u256(units.try_into().unwrap_or_default())
}

fn refused(error: impl std::fmt::Display) -> Failure {
    trouble("the bench cannot fill its chain", error)
}

/// Many calls in requests of a hundred, every one of which must succeed.
async fn rpc(pool: &Pool, calls: &[(&str, Value)]) -> Result<Vec<Value>, Failure> {
    let mut answers = Vec::with_capacity(calls.len());
    for chunk in calls.chunks(100) {
        let said =
            pool.any(|node| async move { json_rpc::batch::<Value>(&node, chunk).await }).await.map_err(refused)?;
        for answer in said {
            answers.push(answer.map_err(refused)?);
        }
    }
    Ok(answers)
}

/// One call, which must succeed.
pub async fn ask(pool: &Pool, method: &str, params: Value) -> Result<Value, Failure> {
    Ok(rpc(pool, &[(method, params)]).await?.into_iter().next().unwrap_or_default())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Signs for EVM and TRON, where one signature does.
pub fn sign(kind: ChainKind, key: &Key, unsigned: &Unsigned) -> Result<Vec<u8>, Failure> {
    match kind {
        ChainKind::Evm => {
            let (signature, odd) = key.sign(evm::transaction::digest(&unsigned.bytes));
            evm::transaction::attach(&unsigned.bytes, &signature, odd).map_err(refused)
        }
        ChainKind::Tron => {
            let (signature, odd) = key.sign(tron::transaction::hash(&unsigned.bytes).0);
            tron::transaction::attach(&unsigned.bytes, &signature, odd).map_err(refused)
        }
        ChainKind::Bitcoin => bitcoin::transaction::finalize(&key.sign_psbt(&unsigned.bytes)).map_err(refused),
    }
}

/// Ten senders; half of the payments are in the token.
pub async fn evm_blocks(chain: &dyn Chain, pool: &Pool, token: &Address, plan: Plan) -> Result<Filled, Failure> {
    evm_blocks_to(chain, pool, token, plan, |number| payee(ChainKind::Evm, number)).await
}

/// The same, with payees of the caller's choice.
pub async fn evm_blocks_to(
    chain: &dyn Chain,
    pool: &Pool,
    token: &Address,
    plan: Plan,
    payee: impl Fn(u32) -> Address + Sync,
) -> Result<Filled, Failure> {
    let keys: Vec<Key> = (0..10).map(Key::numbered).collect();
    let senders: Vec<Address> = keys.iter().map(Key::evm).collect();
    let nonces = chain.nonces(&senders).await.map_err(refused)?;
    let mut nonces: Vec<u64> = nonces.into_iter().map(|nonces| nonces.mined).collect();
    let from = chain.head().await.map_err(refused)?.tip.height + 1;
    for block in 0..plan.blocks {
        let mut calls = Vec::new();
        for number in 0..plan.payments {
            let (sender, token_payment) = (usize::try_from(number % 10).unwrap_or(0), number % 4 >= 2);
            let coin = if token_payment { Coin::Token(token.clone()) } else { Coin::Native };
            let to = payee(block.wrapping_mul(plan.payments) + number);
            let draft = Draft::Evm {
                from: senders[sender].clone(),
                nonce: nonces[sender],
                payment: Payment { to, coin, amount: raw(1_000) },
                gas_limit: if token_payment { 100_000 } else { 21_000 },
                fee: Fee::Eip1559 { max_fee: 100_000_000_000, max_priority: 1_000_000_000 },
            };
            nonces[sender] += 1;
            let signed = sign(ChainKind::Evm, &keys[sender], &chain.build(&draft).map_err(refused)?)?;
            calls.push(("eth_sendRawTransaction", json!([format!("0x{}", hex(&signed))])));
        }
        calls.push(("evm_mine", json!([])));
        rpc(pool, &calls).await?;
    }
    let to = chain.head().await.map_err(refused)?.tip.height;
    Ok(Filled { from, to })
}

/// anvil has no token of its own: the devnet's, deployed by its first account and given to the other nine.
pub async fn deploy_token(pool: &Pool) -> Result<Address, Failure> {
    let senders: Vec<String> = (0..10).map(|number| Key::numbered(number).evm().to_string()).collect();
    let deploy = json!([{ "from": senders[0], "data": format!("0x{}", hex(&token_code())), "gas": "0x2dc6c0" }]);
    let hash = ask(pool, "eth_sendTransaction", deploy).await?;
    ask(pool, "evm_mine", json!([])).await?;
    let receipt = ask(pool, "eth_getTransactionReceipt", json!([hash])).await?;
    let text = receipt["contractAddress"].as_str().unwrap_or_default();
    let token = Address::Evm(evm::address::parse(text).map_err(refused)?);
    for sender in &senders[1..] {
        let digits = sender.trim_start_matches("0x");
        // transfer(address,uint256) of more units than any bench pays.
        let data = format!("0xa9059cbb{digits:0>64}{:064x}", 1_000_000_000_000_000_000_u64);
        ask(pool, "eth_sendTransaction", json!([{ "from": senders[0], "to": text, "data": data }])).await?;
    }
    ask(pool, "evm_mine", json!([])).await?;
    Ok(token)
}

/// The contract and what its constructor takes: the symbol, the decimals, the supply.
fn token_code() -> Vec<u8> {
    let mut code = devnet::evm::contract("Tether").unwrap_or_default().to_vec();
    let word = |value: u128| [[0; 16], value.to_be_bytes()].concat();
    let mut symbol = b"USDT".to_vec();
    symbol.resize(32, 0);
    for part in [word(96), word(18), word(1 << 100), word(4), symbol] {
        code.extend(part);
    }
    code
}

/// Ten senders; half of the payments are in the token.
pub async fn tron_blocks(
    chain: &dyn Chain,
    pool: &Pool,
    control: &Control,
    token: &Address,
    plan: Plan,
) -> Result<Filled, Failure> {
    let keys: Vec<Key> = (0..10).map(Key::numbered).collect();
    let tip = chain.head().await.map_err(refused)?.tip;
    let from = tip.height + 1;
    for block in 0..plan.blocks {
        let mut signed = Vec::new();
        for number in 0..plan.payments {
            let (key, token_payment) = (&keys[usize::try_from(number % 10).unwrap_or(0)], number % 4 >= 2);
            let serial = block.wrapping_mul(plan.payments) + number;
            let coin = if token_payment { Coin::Token(token.clone()) } else { Coin::Native };
            let draft = Draft::Tron {
                from: key.tron(),
                payment: Payment { to: payee(ChainKind::Tron, serial), coin, amount: raw(1_000) },
                fee_limit: if token_payment { 100_000_000 } else { 0 },
                reference: tip.at(),
                // No two are the same transaction.
                created: tip.time.plus_micros(i64::from(serial) * 1_000),
                expires: tip.time.plus_micros(12 * 3_600 * 1_000_000),
            };
            signed.push(sign(ChainKind::Tron, key, &chain.build(&draft).map_err(refused)?)?);
        }
        stream::iter(signed.iter().map(|signed| broadcast_tron(pool, signed)))
            .buffer_unordered(16)
            .try_collect::<Vec<()>>()
            .await?;
        control.mine("tron").await?;
    }
    let to = chain.head().await.map_err(refused)?.tip.height;
    Ok(Filled { from, to })
}

async fn broadcast_tron(pool: &Pool, signed: &[u8]) -> CommandResult {
    let body = json!({ "transaction": hex(signed) }).to_string();
    let said = pool
        .any(|node| {
            let body = body.clone();
            async move {
                let reply = node.post("/wallet/broadcasthex", body.into()).await?;
                serde_json::from_slice::<Value>(&reply.body).map_err(|error| node.bad(error.to_string()))
            }
        })
        .await
        .map_err(refused)?;
    if said["result"] == json!(true) { Ok(()) } else { Err(refused(said)) }
}

/// Each payment is a transaction of its own with one input and change.
pub async fn bitcoin_blocks(chain: &dyn Chain, pool: &Pool, plan: Plan) -> Result<Filled, Failure> {
    let owner = Key::numbered(0);
    let address = owner.bitcoin(devnet::bitcoin::NETWORK);
    let mut coins = fan_out(chain, pool, &owner, &address, plan).await?;
    let from = chain.head().await.map_err(refused)?.tip.height + 1;
    for block in 0..plan.blocks {
        let mut calls = Vec::new();
        for number in 0..plan.payments {
            let Some(coin) = coins.pop() else { return Err(refused("there are not enough coins")) };
            let serial = block.wrapping_mul(plan.payments) + number;
            let pay = |to, amount| Payment { to, coin: Coin::Native, amount: raw(amount) };
            let change = coin.amount_sat - 2_000;
            let draft = Draft::Bitcoin {
                inputs: vec![coin],
                payments: vec![pay(payee(ChainKind::Bitcoin, serial), 1_000), pay(address.clone(), change)],
                lock_time: 0,
            };
            let signed = sign(ChainKind::Bitcoin, &owner, &chain.build(&draft).map_err(refused)?)?;
            calls.push(("sendrawtransaction", json!([hex(&signed)])));
        }
        calls.push(("generatetoaddress", json!([1, address.to_string()])));
        rpc(pool, &calls).await?;
    }
    let to = chain.head().await.map_err(refused)?.tip.height;
    Ok(Filled { from, to })
}

/// Coins of the owner, one for each payment: few large ones made into many small ones.
async fn fan_out(
    chain: &dyn Chain,
    pool: &Pool,
    owner: &Key,
    address: &Address,
    plan: Plan,
) -> Result<Vec<Input>, Failure> {
    const EACH: u64 = 10_000;
    const MOST: u32 = 1_500;
    let wanted = plan.blocks * plan.payments;
    let parents = wanted.div_ceil(MOST);
    // A node that has just started has no coins.
    ask(pool, "generatetoaddress", json!([parents + 100, address.to_string()])).await?;
    let found = ask(pool, "scantxoutset", json!(["start", [format!("addr({address})")]])).await?;
    let tip = found["height"].as_u64().unwrap_or(0);
    let unspents = found["unspents"].as_array().cloned().unwrap_or_default();
    let script = address.script_bytes().ok_or_else(|| refused("no address of Bitcoin"))?;
    let mut inputs = Vec::new();
    for coin in &unspents {
        let ripe =
            tip.saturating_sub(coin["height"].as_u64().unwrap_or(tip)) >= 100 || coin["coinbase"] == json!(false);
        let amount_sat = satoshi(&coin["amount"]);
        if ripe && amount_sat > u64::from(MOST) * EACH * 2 {
            let transaction = coin["txid"].as_str().unwrap_or_default().parse().map_err(refused)?;
            let index = coin["vout"].as_u64().and_then(|index| u32::try_from(index).ok()).unwrap_or(0);
            inputs.push(Input { transaction, index, amount_sat, script: script.clone(), sequence: 0xffff_fffd });
        }
    }
    let mut coins = Vec::new();
    let mut calls = Vec::new();
    for input in inputs.into_iter().take(usize::try_from(parents).unwrap_or(0)) {
        let change = input.amount_sat - u64::from(MOST) * EACH - 200_000;
        let pay = |amount| Payment { to: address.clone(), coin: Coin::Native, amount: raw(amount) };
        let mut payments: Vec<Payment> = (0..MOST).map(|_| pay(EACH)).collect();
        payments.push(pay(change));
        let draft = Draft::Bitcoin { inputs: vec![input], payments, lock_time: 0 };
        let unsigned = chain.build(&draft).map_err(refused)?;
        let signed = sign(ChainKind::Bitcoin, owner, &unsigned)?;
        let transaction = chain.decode_signed(&signed).map_err(refused)?.hash.ok_or_else(|| refused("no hash"))?;
        coins.extend((0..MOST).map(|index| Input {
            transaction,
            index,
            amount_sat: EACH,
            script: script.clone(),
            sequence: 0xffff_fffd,
        }));
        calls.push(("sendrawtransaction", json!([hex(&signed)])));
    }
    calls.push(("generatetoaddress", json!([1, address.to_string()])));
    rpc(pool, &calls).await?;
    Ok(coins)
}

/// Bitcoin Core writes amounts as decimal numbers of eight places.
fn satoshi(amount: &Value) -> u64 {
    let text = amount.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{part:0<8}").parse().unwrap_or(0)
}

/// The devnet's control interface.
pub struct Control(Pool);

impl Control {
    pub fn new(url: &str) -> Result<Self, Failure> {
        super::node::pool(url, None).map(Self)
    }

    async fn mine(&self, chain: &str) -> CommandResult {
        let path = format!("/{chain}/mine");
        let mine = |node: std::sync::Arc<Node>| {
            let path = path.clone();
            async move { node.post(&path, "{}".into()).await.map(|_| ()) }
        };
        self.0.any(mine).await.map_err(refused)
    }
}

/// The time that a TRON draft counts from, for a bench that sends nothing.
pub const SOME_TIME: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
