//! A real Bitcoin Core with a wallet to which everything has happened, exported by the very script of `docs/import.md`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::engines;
use custody::bitcoin::import::{Export, import, read_core};
use serde_json::{Value, json};
use store::testing::{NOW, TestDb, on};
use store::utxo::{Hash, Status};
use tempfile::TempDir;

struct Core {
    folder: TempDir,
    binary: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

impl Core {
    fn new() -> Self {
        let binary = std::env::var("BURSAR_TEST_BITCOIN_WALLET").expect("the path of a bitcoind that has a wallet");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { folder: tempfile::tempdir().unwrap(), binary: binary.into(), port, process: None }
    }

    fn start(&mut self, arguments: &[&str]) {
        let mut command = Command::new(&self.binary);
        command.args(self.options()).args(["-server=1", "-listen=0", "-connect=0", "-dnsseed=0", "-printtoconsole=0"]);
        command.args(["-fallbackfee=0.0001", "-keypool=8"]).args(arguments);
        self.process = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        for _ in 0..600 {
            if self.try_call("ours", &["getblockchaininfo"]).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("bitcoind does not answer");
    }

    fn stop(&mut self) {
        self.call("ours", &["stop"]);
        assert!(self.process.take().unwrap().wait().unwrap().success());
    }

    fn options(&self) -> [String; 3] {
        ["-regtest".into(), format!("-datadir={}", self.folder.path().display()), format!("-rpcport={}", self.port)]
    }

    fn cli(&self) -> PathBuf {
        self.binary.with_file_name("bitcoin-cli")
    }

    fn try_call(&self, wallet: &str, words: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(self.cli());
        let output = command.args(self.options()).arg(format!("-rpcwallet={wallet}")).args(words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        // A text is printed without quotes.
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| json!(text.trim_end())))
    }

    fn call(&self, wallet: &str, words: &[&str]) -> Value {
        self.try_call(wallet, words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn text(&self, wallet: &str, words: &[&str]) -> String {
        self.call(wallet, words).as_str().unwrap().to_owned()
    }

    fn address(&self, wallet: &str, kind: &str) -> String {
        self.text(wallet, &["getnewaddress", "", kind])
    }

    fn mine(&self, count: u32, to: &str) -> Vec<String> {
        let address = self.address(to, "bech32");
        serde_json::from_value(self.call(to, &["generatetoaddress", &count.to_string(), &address])).unwrap()
    }

    fn pay(&self, from: &str, to: &str, kind: &str, amount: &str) -> Hash {
        let address = self.address(to, kind);
        self.text(from, &["sendtoaddress", &address, amount]).parse().unwrap()
    }

    fn bump(&self, hash: Hash) -> Hash {
        self.call("ours", &["bumpfee", &hash.to_string()])["txid"].as_str().unwrap().parse().unwrap()
    }

    /// Runs the script of the documentation.
    fn export(&self, to: &Path) -> Export {
        let page = include_str!("../../../../docs/import.md");
        let script = page.split_once("```bash\n").unwrap().1.split_once("```\n").unwrap().0;
        let file = self.folder.path().join("core-export.sh");
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", self.cli().parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        let status = command.arg(&file).arg(to).args(self.options()).arg("-rpcwallet=ours").env("PATH", path).status();
        assert!(status.unwrap().success());
        read_core(to).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// What some transactions have become in the end.
struct Fates {
    consolidated: Hash,
    beaten: Hash,
    mined_instead: Hash,
    bumped: Hash,
    bump: Hash,
    child: Hash,
    abandoned: Hash,
    in_no_mempool: Hash,
    orphan: Hash,
}

fn live(core: &mut Core) -> Fates {
    core.start(&[]);
    core.call("", &["createwallet", "ours"]);
    core.call("", &["createwallet", "theirs"]);
    core.mine(3, "ours");
    core.mine(110, "theirs");
    for (kind, amount) in
        [("legacy", "1.5"), ("p2sh-segwit", "0.7"), ("bech32", "0.29"), ("bech32m", "0.1"), ("bech32m", "0.00001")]
    {
        core.pay("theirs", "ours", kind, amount);
    }
    core.mine(1, "theirs");
    core.pay("ours", "theirs", "bech32", "10");
    core.mine(1, "theirs");

    // Two outputs into one of change: listtransactions does not show it.
    let change = core.text("ours", &["getrawchangeaddress", "bech32m"]);
    let unspent = core.call("ours", &["listunspent"]);
    let small: Vec<&Value> =
        unspent.as_array().unwrap().iter().filter(|output| output["amount"].as_f64().unwrap() < 0.5).collect();
    let inputs: Vec<Value> =
        small.iter().map(|output| json!({"txid": output["txid"], "vout": output["vout"]})).collect();
    let options = json!({"inputs": inputs}).to_string();
    let sent =
        core.call("ours", &["-named", "sendall", &format!("recipients=[\"{change}\"]"), &format!("options={options}")]);
    let consolidated = sent["txid"].as_str().unwrap().parse().unwrap();
    core.mine(1, "theirs");

    let beaten = core.pay("ours", "theirs", "bech32", "1");
    let mined_instead = core.bump(beaten);
    core.mine(1, "theirs");

    // A block of ours that the chain leaves.
    let block = core.mine(1, "ours").remove(0);
    let orphan = core.call("ours", &["getblock", &block])["tx"][0].as_str().unwrap().parse().unwrap();
    core.call("ours", &["invalidateblock", &block]);
    core.mine(2, "theirs");
    core.mine(1, "ours");

    core.pay("theirs", "ours", "bech32", "0.5");
    let bumped = core.pay("ours", "theirs", "bech32", "0.25");
    let bump = core.bump(bumped);
    let child = core.pay("ours", "ours", "bech32m", "30");
    core.stop();

    // Nothing of this reaches a mempool.
    core.start(&["-walletbroadcast=0", "-wallet=ours", "-wallet=theirs"]);
    let in_no_mempool = core.pay("ours", "theirs", "bech32", "0.02");
    let abandoned = core.pay("ours", "theirs", "bech32", "0.01");
    core.call("ours", &["abandontransaction", &abandoned.to_string()]);
    // Locks live in memory, so this is last.
    let output = &core.call("ours", &["listunspent", "1"])[0];
    let locked = json!([{"txid": output["txid"], "vout": output["vout"]}]).to_string();
    core.call("ours", &["lockunspent", "false", &locked]);
    Fates { consolidated, beaten, mined_instead, bumped, bump, child, abandoned, in_no_mempool, orphan }
}

/// Satoshi of a number that Core printed.
fn satoshi(value: &Value) -> i64 {
    let amount: bitcoin::Amount =
        bitcoin::Amount::from_float_in(value.as_f64().unwrap(), bitcoin::Denomination::Bitcoin).unwrap();
    i64::try_from(amount.to_sat()).unwrap()
}

async fn check(db: &TestDb, core: &Core, export: &Export, fates: &Fates) {
    let report = import(db, "ours", export, NOW, &mut |_| {}).await.unwrap_or_else(|error| panic!("{error}"));
    let status = async |hash: Hash| {
        let detail = db.transaction(report.wallet, hash, NOW).await.unwrap();
        detail.map(|detail| (detail.status, detail.height.is_some(), detail.own))
    };
    assert_eq!(status(fates.consolidated).await, Some((Status::Published, true, true)));
    assert_eq!(status(fates.beaten).await.map(|one| one.0), Some(Status::Failed));
    assert_eq!(status(fates.mined_instead).await, Some((Status::Published, true, true)));
    assert_eq!(status(fates.bumped).await.map(|one| one.0), Some(Status::Replaced));
    assert_eq!(status(fates.bump).await, Some((Status::Published, false, true)));
    assert_eq!(status(fates.child).await, Some((Status::Published, false, true)));
    assert_eq!(status(fates.in_no_mempool).await, Some((Status::Published, false, true)));
    assert_eq!((status(fates.abandoned).await, status(fates.orphan).await), (None, None));

    // Core's own word, which nothing of the import has passed through.
    let balances = &core.call("ours", &["getbalances"])["mine"];
    let cores = ["trusted", "untrusted_pending", "immature"].map(|kind| satoshi(&balances[kind])).iter().sum::<i64>();
    let in_no_mempool = export.transactions.iter().find(|given| given.tx.hash == fates.in_no_mempool).unwrap();
    let ours = |script: &Vec<u8>| export.addresses.iter().any(|address| &address.script == script);
    let change: i64 = in_no_mempool.tx.outputs.iter().filter(|one| ours(&one.script)).map(|one| one.amount).sum();
    assert!(change > 0);
    assert_eq!(report.balance.confirmed + report.balance.unconfirmed, cores + change);
    assert_eq!(report.balance.immature, satoshi(&balances["immature"]));
    assert_eq!(db.check_utxo().await.unwrap(), []);

    let again = import(db, "ours", export, NOW, &mut |_| {}).await.unwrap();
    assert_eq!((again.changes, again.new_addresses, again.balance), (0, 0, report.balance));
}

#[test]
fn a_wallet_of_bitcoind_is_taken_over_whole() {
    let mut core = Core::new();
    let fates = live(&mut core);
    let folder = core.folder.path().join("export");
    let export = core.export(&folder);
    assert_eq!(core.call("ours", &["listlockunspent"]).as_array().unwrap().len(), 1);
    let left: Vec<Hash> = export.left_out.iter().map(|one| one.0).collect();
    assert!(
        left.contains(&fates.abandoned) && left.contains(&fates.orphan) && left.len() == 2,
        "{:?}",
        export.left_out
    );

    // A half-written line, as a run that was killed leaves it, and a line that is gone.
    let lines = std::fs::read_to_string(folder.join("transactions.jsonl")).unwrap();
    let (first, rest) = lines.split_once('\n').unwrap();
    std::fs::write(folder.join("transactions.jsonl"), format!("{rest}{}", &first[..first.len() / 2])).unwrap();
    assert_eq!(core.export(&folder), export);

    for engine in engines() {
        on(engine, async |db| check(db, &core, &export, &fates).await);
    }
    if let Ok(keep) = std::env::var("BURSAR_KEEP_EXPORT") {
        assert!(Command::new("cp").arg("-r").arg(&folder).arg(keep).status().unwrap().success());
    }
    core.stop();
}
