//! A folder with a wallet in it, `bursar` run there, and transactions to fill it with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use domain::Timestamp;
use serde_json::Value;
use store::utxo::{Block, Hash, NewTx, OutPoint, WalletId};
use store::{Db, Options};

/// When everything in these tests was written: 2026-09-21.
pub const THEN: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
pub const RECEIVING: &str = "bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj";
pub const ELSEWHERE: &str = "00149999999999999999999999999999999999999999";

pub struct Shell {
    pub folder: tempfile::TempDir,
}

impl Shell {
    /// With a migrated database and a wallet `hot` that has an address in each of two accounts.
    pub fn with_wallet() -> Self {
        let shell = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        shell.ok(&["migrate"]);
        shell.ok(&["utxo", "create", "hot", "--network", "regtest"]);
        shell.ok(&["utxo", "address", "add", "hot", "--address", RECEIVING, "--branch", "0", "--index", "0"]);
        shell.ok(&["utxo", "address", "add", "hot", "--account", "1", "--script", &hex(&account_1())]);
        shell
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("bursar runs")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).expect("JSON")
    }

    /// The code, message and hint of a failure and its exit code; the code has a page.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> (String, String, String, i32) {
        let output = self.run(&[arguments, &["--json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        // What was logged on the way, such as a node that was set aside, stands above it.
        let last = stderr.lines().next_back().unwrap_or_default();
        let body: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{arguments:?}: {stderr}"));
        let field = |name: &str| body["error"][name].as_str().expect(name).to_owned();
        assert!(root().join(field("help")).exists(), "{} has no page", field("help"));
        (field("code"), field("message"), field("hint"), output.status.code().expect("an exit code"))
    }

    #[track_caller]
    pub fn code(&self, code: &str, arguments: &[&str]) {
        let (found, message, _, exit) = self.refused(arguments);
        assert_eq!((found.as_str(), exit), (code, 2), "{arguments:?}: {message}");
    }

    pub fn url(&self) -> String {
        format!("sqlite://{}", self.folder.path().join("bursar-data/bursar.db").display())
    }

    /// Works on the wallet as a follower or a builder would.
    pub fn fill(&self, work: impl AsyncFnOnce(&Db, WalletId)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let db = Db::connect(&self.url(), &Options::default()).await.expect("the file opens");
            let wallet = db.wallets().await.expect("wallets").first().expect("one").id;
            work(&db, wallet).await;
            db.close().await;
        });
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// The script of [`RECEIVING`].
pub fn account_0() -> Vec<u8> {
    unhex("001428b120f42d36abe4103e35dc174a176285f68477")
}

/// P2TR, of a key that is a point: the generator's.
pub fn account_1() -> Vec<u8> {
    unhex("512079be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
}

/// Somebody else's transaction.
pub fn foreign(number: u8) -> Hash {
    Hash([number; 32])
}

pub fn hash(number: u8) -> Hash {
    transaction(number).hash
}

pub fn at(made_by: u8, index: u32) -> OutPoint {
    OutPoint { hash: hash(made_by), index }
}

/// A transaction with real bytes, which the check reads.
pub fn bytes(inputs: &[OutPoint], outputs: &[(Vec<u8>, i64)]) -> NewTx {
    let previous_output = |input: &OutPoint| bitcoin::OutPoint {
        txid: input.hash.to_string().parse().expect("a hash"),
        vout: input.index,
    };
    let spends = |previous_output| bitcoin::TxIn { previous_output, ..bitcoin::TxIn::default() };
    let input: Vec<bitcoin::TxIn> = if inputs.is_empty() {
        // A coinbase's script begins with its height.
        let script_sig = bitcoin::ScriptBuf::from_bytes(vec![1, 100]);
        vec![bitcoin::TxIn { script_sig, ..spends(bitcoin::OutPoint::null()) }]
    } else {
        inputs.iter().map(|input| spends(previous_output(input))).collect()
    };
    let output = |(script, amount): &(Vec<u8>, i64)| bitcoin::TxOut {
        value: bitcoin::Amount::from_sat(u64::try_from(*amount).expect("an amount")),
        script_pubkey: bitcoin::ScriptBuf::from_bytes(script.clone()),
    };
    let transaction = bitcoin::Transaction {
        version: bitcoin::transaction::Version::TWO,
        lock_time: bitcoin::absolute::LockTime::ZERO,
        input,
        output: outputs.iter().map(output).collect(),
    };
    custody::bitcoin::tx_of_bytes(&bitcoin::consensus::serialize(&transaction)).expect("a transaction")
}

pub const COINBASE: u8 = 0xcb;
/// Pays account 0; spent by [`FIRST`], then by [`SECOND`], which replaced it.
pub const DEPOSIT: u8 = 0xd1;
pub const OTHER_ACCOUNT: u8 = 0xd2;
pub const UNCONFIRMED: u8 = 0xd3;
pub const FIRST: u8 = 0xf1;
pub const SECOND: u8 = 0xf2;
/// Spends the change of [`SECOND`].
pub const THIRD: u8 = 0xf3;
/// Two that spend [`OTHER_ACCOUNT`]: the second is mined.
pub const LOSER: u8 = 0xa1;
pub const WINNER: u8 = 0xa2;

pub fn transaction(number: u8) -> NewTx {
    let elsewhere = |amount| (unhex(ELSEWHERE), amount);
    let from = |number| [OutPoint { hash: foreign(number), index: 3 }];
    match number {
        COINBASE => bytes(&[], &[(account_0(), 5_000_000_000)]),
        DEPOSIT => bytes(&from(0xe1), &[elsewhere(7), (account_0(), 150_000_000)]),
        OTHER_ACCOUNT => bytes(&from(0xe2), &[(account_1(), 25_000_000)]),
        UNCONFIRMED => bytes(&from(0xe3), &[(account_0(), 546)]),
        FIRST => bytes(&[at(DEPOSIT, 1)], &[elsewhere(120_000_000), (account_0(), 29_999_000)]),
        SECOND => bytes(&[at(DEPOSIT, 1)], &[elsewhere(120_000_000), (account_0(), 29_990_000)]),
        THIRD => bytes(&[at(SECOND, 1)], &[elsewhere(29_980_000)]),
        LOSER => bytes(&[at(OTHER_ACCOUNT, 0)], &[elsewhere(24_999_900)]),
        WINNER => bytes(&[at(OTHER_ACCOUNT, 0)], &[elsewhere(24_999_500)]),
        _ => panic!("there is no transaction {number}"),
    }
}

pub fn block_hash(height: u32) -> Hash {
    let mut bytes = [0xb0; 32];
    bytes[28..].copy_from_slice(&height.to_be_bytes());
    Hash(bytes)
}

pub async fn connect(db: &Db, height: u32, txs: &[NewTx]) {
    let block = Block { height, hash: block_hash(height), parent: block_hash(height - 1), time: 1_790_000_000 };
    db.connect_block(&block, txs, THEN).await.expect("a block");
}

/// Two accounts, a coinbase, an unconfirmed deposit, and a payment that was replaced.
pub fn sample(shell: &Shell) {
    shell.fill(async |db, wallet| {
        connect(db, 100, &[transaction(COINBASE), transaction(DEPOSIT)]).await;
        connect(db, 101, &[transaction(OTHER_ACCOUNT)]).await;
        db.see_transactions(&[transaction(UNCONFIRMED)], THEN).await.expect("stored");
        db.add_pending(wallet, &transaction(FIRST), None, THEN).await.expect("stored");
        db.publish(hash(FIRST), THEN).await.expect("stored");
        db.replace(wallet, &transaction(SECOND), None, THEN).await.expect("stored");
    });
}
