//! Mnemonics in a Vault: a real OpenBao (`BURSAR_TEST_BAO`), and one that lies, is slow, or talks too much.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{ManualClock, Timestamp};
use signer::keys::vault::PINS;
use signer::keys::{AddressPath, KeyError, Keyring, Purpose, Source, Vault, VaultSettings};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::made::{ABANDON, JUNK, id, secret};

const NOW: i64 = 1_790_000_000_000_000;
const HOUR: i64 = 3_600_000_000;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_micros(NOW)))
}

fn settings(address: &str, folder: &Path, role_id: &str) -> VaultSettings {
    VaultSettings {
        address: address.to_owned(),
        mount: "secret".to_owned(),
        prefix: "bursar".to_owned(),
        approle: "approle".to_owned(),
        namespace: None,
        authorities: None,
        role_id: role_id.to_owned(),
        secret_id_file: folder.join("secret-id"),
        deadline: Duration::from_secs(10),
    }
}

fn write_private(file: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, text).expect("written");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
}

/// A real OpenBao on a free port, with a role for the signer. It ends with this.
struct Bao {
    child: Child,
    folder: TempDir,
    address: String,
    role_id: String,
    namespace: Option<&'static str>,
}

impl Drop for Bao {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

const POLICY: &str = r#"
path "secret/data/bursar/*" { capabilities = ["create", "read"] }
path "auth/approle/role/bursar-signer/secret-id" { capabilities = ["update"] }
path "auth/approle/role/bursar-signer/secret-id/destroy" { capabilities = ["update"] }
"#;

impl Bao {
    fn start(tls: bool, namespace: Option<&'static str>) -> Self {
        let program = std::env::var("BURSAR_TEST_BAO").expect("BURSAR_TEST_BAO is set by ./test");
        let folder = tempfile::tempdir().expect("a folder");
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
        let mut server = Command::new(program);
        server.args(["server", "-dev-root-token-id=root", &format!("-dev-listen-address=127.0.0.1:{port}")]);
        if tls {
            server.args(["-dev-tls", &format!("-dev-tls-cert-dir={}", folder.path().display())]);
        } else {
            server.arg("-dev");
        }
        let child =
            server.env("HOME", folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
        let scheme = if tls { "https" } else { "http" };
        let address = format!("{scheme}://127.0.0.1:{port}");
        let mut bao = Self { child, folder, address, role_id: String::new(), namespace };
        let mut tries = 0;
        while bao.said(&["status"]).is_none() {
            tries += 1;
            assert!(tries < 100, "OpenBao did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(name) = namespace {
            let inner = bao.namespace.take();
            bao.run(&["namespace", "create", name]);
            bao.namespace = inner;
            bao.run(&["secrets", "enable", "-path=secret", "-version=2", "kv"]);
        }
        let policy = bao.folder.path().join("policy.hcl");
        std::fs::write(&policy, POLICY).expect("written");
        bao.run(&["auth", "enable", "approle"]);
        bao.run(&["policy", "write", "bursar-signer", &policy.display().to_string()]);
        bao.run(&["write", "auth/approle/role/bursar-signer", "token_policies=bursar-signer", "token_ttl=1h"]);
        bao.role_id = bao.run(&["read", "-field=role_id", "auth/approle/role/bursar-signer/role-id"]);
        bao.give_secret_id();
        bao
    }

    fn said(&self, words: &[&str]) -> Option<String> {
        let program = std::env::var("BURSAR_TEST_BAO").expect("set");
        let mut command = Command::new(program);
        command.args(words).env("HOME", self.folder.path()).env("BAO_ADDR", &self.address).env("BAO_TOKEN", "root");
        command.env("BAO_CACERT", self.folder.path().join("vault-ca.pem"));
        if !self.folder.path().join("vault-ca.pem").exists() {
            command.env_remove("BAO_CACERT");
        }
        if let Some(namespace) = self.namespace {
            command.env("BAO_NAMESPACE", namespace);
        }
        let output = command.output().expect("it runs");
        output.status.success().then(|| String::from_utf8(output.stdout).expect("text").trim().to_owned())
    }

    fn run(&self, words: &[&str]) -> String {
        self.said(words).unwrap_or_else(|| panic!("bao {words:?}"))
    }

    fn give_secret_id(&self) {
        let secret_id = self.run(&["write", "-f", "-field=secret_id", "auth/approle/role/bursar-signer/secret-id"]);
        write_private(&self.folder.path().join("secret-id"), &format!("{secret_id}\n"));
    }

    fn signer(&self) -> PathBuf {
        self.folder.path().join("signer")
    }

    fn settings(&self) -> VaultSettings {
        let namespace = self.namespace.map(str::to_owned);
        VaultSettings { namespace, ..settings(&self.address, self.folder.path(), &self.role_id) }
    }

    fn vault(&self) -> Vault {
        Vault::new(&self.signer(), self.settings(), clock()).expect("good settings")
    }
}

async fn code(vault: &Vault) -> Result<usize, &'static str> {
    Keyring::open(vault).await.map(|keyring| keyring.groups().count()).map_err(|error| error.code())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_openbao_keeps_the_groups_and_no_other_secret_takes_their_place() {
    let bao = Bao::start(false, None);
    let vault = bao.vault();
    vault.create("address = \"…\"\n").await.expect("a folder");
    vault.add(secret("hot", Purpose::Hot, "evm", 0, JUNK)).await.expect("kept");
    vault.add(secret("users", Purpose::Deposit, "tron", 1, ABANDON)).await.expect("kept");
    // A new process: nothing but the folder and the Vault.
    let keyring = Keyring::open(&bao.vault()).await.expect("opened");
    let first = keyring.address(&id("hot"), AddressPath::of_number(0).expect("small")).expect("one");
    assert_eq!(first.to_string(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
    assert_eq!(Vault::listed(&bao.signer()).expect("pinned"), keyring.groups().cloned().collect::<Vec<_>>());
    let pins = std::fs::read_to_string(bao.signer().join(PINS)).expect("text");
    assert!(pins.contains("xpub") && !pins.contains("junk"), "{pins}");

    // Once made, a group is neither made again nor replaced.
    for (again, why) in [
        (secret("hot", Purpose::Hot, "evm", 5, JUNK), "SIGNER_GROUP_EXISTS"),
        (secret("treasury", Purpose::Treasury, "evm", 0, JUNK), "SIGNER_SAME_KEYS"),
    ] {
        assert_eq!(vault.add(again).await.expect_err("refused").code(), why);
    }
    assert_eq!(vault.create("").await.expect_err("there are groups").code(), "SIGNER_EXISTS");

    // Another hand has put a secret there: it is not written over, and taken over only when that is asked for.
    let words = format!("mnemonic={JUNK}");
    bao.run(&["kv", "put", "secret/bursar/gas", &words, "purpose=gas", "chain=evm", "account=3"]);
    let taken = vault.add(secret("gas", Purpose::Gas, "evm", 9, JUNK)).await;
    assert_eq!(taken.expect_err("there").code(), "SIGNER_VAULT_ANSWER", "the account is a text there");
    let file = bao.folder.path().join("gas.json");
    write_private(&file, &format!(r#"{{"mnemonic":"{JUNK}","purpose":"gas","chain":"evm","account":3}}"#));
    bao.run(&["kv", "put", "secret/bursar/gas", &format!("@{}", file.display())]);
    let taken = vault.add(secret("gas", Purpose::Gas, "evm", 9, JUNK)).await;
    assert_eq!(taken.expect_err("there").code(), "SIGNER_VAULT_SECRET_EXISTS");
    assert_eq!(vault.adopt(&id("gas")).await.expect("adopted").account(), 3);
    assert_eq!(vault.adopt(&id("gas")).await.expect_err("twice").code(), "SIGNER_GROUP_EXISTS");
    assert_eq!(vault.adopt(&id("nothing")).await.expect_err("none").code(), "SIGNER_VAULT_SECRET_MISSING");
    assert_eq!(code(&bao.vault()).await, Ok(3));

    // Another secret than yesterday: other words, another purpose, another account.
    for body in [
        format!(r#"{{"mnemonic":"{ABANDON}","purpose":"gas","chain":"evm","account":3}}"#),
        format!(r#"{{"mnemonic":"{JUNK}","purpose":"hot","chain":"evm","account":3}}"#),
        format!(r#"{{"mnemonic":"{JUNK}","purpose":"gas","chain":"evm","account":4}}"#),
        format!(r#"{{"mnemonic":"{JUNK}","purpose":"gas","chain":"tron","account":3}}"#),
    ] {
        write_private(&file, &body);
        bao.run(&["kv", "put", "secret/bursar/gas", &format!("@{}", file.display())]);
        assert_eq!(code(&bao.vault()).await, Err("SIGNER_GROUP_CHANGED"), "{body}");
    }
    bao.run(&["kv", "delete", "secret/bursar/gas"]);
    assert_eq!(code(&bao.vault()).await, Err("SIGNER_VAULT_SECRET_MISSING"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_openbao_refusals_have_their_names() {
    let bao = Bao::start(false, None);
    let vault = bao.vault();
    vault.create("").await.expect("a folder");
    vault.add(secret("hot", Purpose::Hot, "evm", 0, JUNK)).await.expect("kept");

    // All tokens of the role are gone. The next call logs in again.
    bao.run(&["token", "revoke", "-mode=path", "auth/approle"]);
    assert_eq!(code(&vault).await, Ok(1));

    // Another secret id, by ourselves. The old one is worth nothing then.
    let old = std::fs::read_to_string(bao.folder.path().join("secret-id")).expect("text");
    vault.renew_secret_id().await.expect("renewed");
    let new = std::fs::read_to_string(bao.folder.path().join("secret-id")).expect("text");
    assert_ne!(old, new);
    assert_eq!(code(&bao.vault()).await, Ok(1));
    write_private(&bao.folder.path().join("secret-id"), &old);
    assert_eq!(code(&bao.vault()).await, Err("SIGNER_VAULT_LOGIN"));
    write_private(&bao.folder.path().join("secret-id"), &new);
    assert_eq!(code(&bao.vault()).await, Ok(1));

    let elsewhere = VaultSettings { prefix: "other".to_owned(), ..bao.settings() };
    let elsewhere = Vault::new(&bao.signer(), elsewhere, clock()).expect("good settings");
    assert_eq!(code(&elsewhere).await, Err("SIGNER_VAULT_FORBIDDEN"));
    let nobody = VaultSettings { role_id: "nobody".to_owned(), ..bao.settings() };
    assert_eq!(code(&Vault::new(&bao.signer(), nobody, clock()).expect("good")).await, Err("SIGNER_VAULT_LOGIN"));

    bao.run(&["operator", "seal"]);
    assert_eq!(code(&vault).await, Err("SIGNER_VAULT_SEALED"));
    assert_eq!(code(&bao.vault()).await, Err("SIGNER_VAULT_SEALED"));
    let (settings, signer) = (bao.settings(), bao.signer());
    let stopped = Vault::new(&signer, settings, clock()).expect("good settings");
    let mut bao = bao;
    bao.child.kill().expect("killed");
    bao.child.wait().expect("ended");
    assert_eq!(code(&stopped).await, Err("SIGNER_VAULT_UNREACHABLE"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_openbao_is_known_by_its_own_authority_and_asked_in_its_namespace() {
    let bao = Bao::start(true, Some("treasury"));
    let authority = std::fs::read(bao.folder.path().join("vault-ca.pem")).expect("made by -dev-tls");
    let with = |change: &dyn Fn(&mut VaultSettings)| {
        let mut settings = VaultSettings { authorities: Some(authority.clone()), ..bao.settings() };
        change(&mut settings);
        Vault::new(&bao.signer(), settings, clock()).expect("good settings")
    };
    let vault = with(&|_| {});
    vault.create("").await.expect("a folder");
    vault.add(secret("hot", Purpose::Hot, "evm", 0, JUNK)).await.expect("kept");
    assert_eq!(code(&with(&|_| {})).await, Ok(1));
    assert_eq!(code(&with(&|settings| settings.namespace = None)).await, Err("SIGNER_VAULT_LOGIN"));
    // The public authorities did not issue it.
    let public = with(&|settings| settings.authorities = None);
    let error = Keyring::open(&public).await.expect_err("not trusted");
    assert_eq!(error.code(), "SIGNER_VAULT_UNREACHABLE");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
}

/// What a stub is asked, and what it says to it.
type Script = dyn Fn(usize, &str) -> Reply + Send + Sync;

#[derive(Clone)]
enum Reply {
    Says(u16, String),
    Raw(Vec<u8>),
    Nothing,
}

struct Stub {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
    folder: TempDir,
}

impl Stub {
    async fn start(script: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("one"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, script): (_, Arc<Script>) = (Arc::clone(&asked), Arc::new(script));
        let count = Arc::new(AtomicUsize::new(0));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, script, count) = (Arc::clone(&seen), Arc::clone(&script), Arc::clone(&count));
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    let mut part = [0; 4_096];
                    let line = loop {
                        let length = stream.read(&mut part).await.unwrap_or(0);
                        bytes.extend_from_slice(&part[..length]);
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        if length == 0 || text.contains("\r\n\r\n") {
                            break text.lines().next().unwrap_or_default().to_owned();
                        }
                    };
                    let number = 1 + count.fetch_add(1, Ordering::Relaxed);
                    seen.lock().expect("not poisoned").push(line.trim_end_matches(" HTTP/1.1").to_owned());
                    let raw = match script(number, &line) {
                        Reply::Says(status, body) => {
                            let length = body.len();
                            format!(
                                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                            )
                            .into_bytes()
                        }
                        Reply::Raw(bytes) => bytes,
                        Reply::Nothing => std::future::pending().await,
                    };
                    stream.write_all(&raw).await.ok();
                });
            }
        });
        let folder = tempfile::tempdir().expect("a folder");
        write_private(&folder.path().join("secret-id"), "the-secret-id\n");
        Self { address, asked, folder }
    }

    fn settings(&self) -> VaultSettings {
        let deadline = Duration::from_millis(500);
        VaultSettings { deadline, ..settings(&self.address, self.folder.path(), "role") }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("not poisoned"))
    }
}

fn token(name: &str, ttl_s: u32) -> Reply {
    let auth = format!(r#"{{"client_token":"{name}","lease_duration":{ttl_s},"renewable":true}}"#);
    Reply::Says(200, format!(r#"{{"auth":{auth}}}"#))
}

const LOGIN: &str = "POST /v1/auth/approle/login";
const RENEW: &str = "POST /v1/auth/token/renew-self";

#[tokio::test]
async fn a_token_is_renewed_in_time_and_replaced_when_that_no_longer_helps() {
    let stub = Stub::start(|number, line| match (line.contains("login"), number) {
        (true, _) => token("a-token", 3_600),
        // Near the end of its longest life a renewal gives little.
        (false, 3) => token("a-token", 600),
        (false, 5) => Reply::Says(403, r#"{"errors":["permission denied"]}"#.to_owned()),
        _ => token("a-token", 3_600),
    })
    .await;
    let clock = clock();
    let vault = Vault::new(stub.folder.path(), stub.settings(), clock.clone()).expect("good settings");
    let mut hours = 0;
    let mut after = async |micros: i64| {
        hours += micros;
        clock.set(Timestamp::from_micros(NOW + hours));
        vault.renew().await.expect("renewed");
        stub.asked()
    };
    assert_eq!(after(0).await, [LOGIN]);
    assert_eq!(after(HOUR / 2).await, Vec::<String>::new(), "half its time is left");
    assert_eq!(after(HOUR / 4).await, [RENEW]);
    assert_eq!(after(HOUR).await, [RENEW, LOGIN], "the renewal gave ten minutes");
    assert_eq!(after(HOUR).await, [RENEW, LOGIN], "the token was revoked");
    assert_eq!(after(-2 * HOUR).await, [RENEW], "a clock that went back says nothing about the time left");
}

#[tokio::test]
async fn an_answer_that_is_slow_long_or_none_is_told_and_never_followed() {
    let long = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n{}", 1 << 30, "x".repeat(200_000));
    let chunks = format!(
        "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n{}",
        format!("1000\r\n{}\r\n", "x".repeat(0x1000)).repeat(100)
    );
    let cases = [
        (Reply::Nothing, "SIGNER_VAULT_UNREACHABLE"),
        (Reply::Raw(Vec::new()), "SIGNER_VAULT_UNREACHABLE"),
        (Reply::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nhalf".to_vec()), "SIGNER_VAULT_UNREACHABLE"),
        (Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "SIGNER_VAULT_UNREACHABLE"),
        (Reply::Raw(long.into_bytes()), "SIGNER_VAULT_ANSWER"),
        (Reply::Raw(chunks.into_bytes()), "SIGNER_VAULT_ANSWER"),
        (Reply::Says(200, String::new()), "SIGNER_VAULT_ANSWER"),
        (Reply::Says(200, "[]".to_owned()), "SIGNER_VAULT_ANSWER"),
        (Reply::Says(200, r#"{"auth":{"client_token":7}}"#.to_owned()), "SIGNER_VAULT_ANSWER"),
        (
            Reply::Raw(b"HTTP/1.1 307 X\r\nlocation: http://evil.example/\r\ncontent-length: 0\r\n\r\n".to_vec()),
            "SIGNER_VAULT_ANSWER",
        ),
        (Reply::Says(500, "the-secret-id".to_owned()), "SIGNER_VAULT_ANSWER"),
        (Reply::Says(503, r#"{"errors":["Vault is sealed"]}"#.to_owned()), "SIGNER_VAULT_SEALED"),
        (Reply::Says(503, "try later".to_owned()), "SIGNER_VAULT_ANSWER"),
        (Reply::Says(400, "no".to_owned()), "SIGNER_VAULT_LOGIN"),
    ];
    for (number, (reply, code)) in cases.into_iter().enumerate() {
        let stub = Stub::start(move |_, _| reply.clone()).await;
        let vault = Vault::new(stub.folder.path(), stub.settings(), clock()).expect("good settings");
        let error: KeyError = vault.renew().await.expect_err("no token");
        assert_eq!(error.code(), code, "case {number}: {error}");
        assert_eq!(stub.asked(), [LOGIN], "asked once, case {number}");
        assert!(!format!("{error} {error:?} {vault:?}").contains("the-secret-id"), "{error:?}");
    }
}

#[test]
fn settings_that_would_send_a_secret_astray_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    type Change = fn(&mut VaultSettings);
    let changes: [(&str, Change); 13] = [
        ("plain http", |settings| settings.address = "http://vault.example:8200".to_owned()),
        ("no scheme", |settings| settings.address = "vault.example:8200".to_owned()),
        ("another scheme", |settings| settings.address = "ftp://127.0.0.1".to_owned()),
        ("a user", |settings| settings.address = "https://user@vault.example".to_owned()),
        ("a query", |settings| settings.address = "https://vault.example/?x=1".to_owned()),
        ("nothing", |settings| settings.address = String::new()),
        ("a path back", |settings| settings.prefix = "bursar/../other".to_owned()),
        ("an empty path", |settings| settings.mount = String::new()),
        ("a slash in front", |settings| settings.prefix = "/bursar".to_owned()),
        ("a blank", |settings| settings.approle = "app role".to_owned()),
        ("a query in a path", |settings| settings.mount = "secret?x".to_owned()),
        ("a line end", |settings| settings.namespace = Some("a\nb".to_owned())),
        ("no certificate", |settings| settings.authorities = Some(b"none".to_vec())),
    ];
    for (name, change) in changes {
        let mut settings = settings("https://127.0.0.1:8200", folder.path(), "role");
        change(&mut settings);
        let error = Vault::new(folder.path(), settings, clock()).expect_err(name);
        assert_eq!(error.code(), "SIGNER_VAULT_SETTING", "{name}");
    }
    for good in
        ["https://vault.example", "http://127.0.0.1:8200", "http://[::1]:8200/", "http://localhost:1", "https://x/base"]
    {
        assert!(Vault::new(folder.path(), settings(good, folder.path(), "role"), clock()).is_ok(), "{good}");
    }
}
