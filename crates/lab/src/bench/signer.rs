//! `bursar bench signer`: the signing service over its socket, with policy, log and sync, beside a bare signature, a bare sync and a bare derivation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use devnet::Key;
use domain::id::first_at;
use domain::{Clock, RawAmount, Timestamp};
use serde_json::json;
use signer::access::{ApiKey, ApiKeys, Credential, KeySecret, Rights};
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignAnswer, SignerClient};
use signer::keys::{AddressPath, Entropy, Family, GroupSecret, Keyring, Mnemonic, Purpose};
use signer::log::folder::DiskFolder;
use signer::names::JobId;
use signer::policy::signed::{PolicySignature, SigningKey};
use signer::service::listen::Listener;
use signer::service::{Limits, Service};
use signer::{Addresses, Authorizer, GroupId, Intent, IntentKind, Moment, MomentClock, SignRequest, SignerChain};
use terminal::clock::{Stopwatch, SystemClock};
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table, thousands, warn};
use tx::{Coin, Draft, Fee, Payment};

use super::{Samples, disk};

pub mod start;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many requests each round has signed
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(640..=1_000_000))]
    requests: u32,
    /// Requests in one call
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    batch: u32,
    /// Calls at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    callers: u32,
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How many entries the log has whose start is measured: a gigabyte of disk and a quarter of one of memory for a million
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    entries: u64,
    /// A folder on the disk to be measured; the bench makes one of its own in it and removes it
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
}

const CHAIN_ID: u64 = 56;
const WORDS: &str = "test test test test test test test test test test test junk";

pub(super) fn trouble(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::outside(
        "INTERNAL",
        &std::io::Error::other(format!("{what}: {error}")),
        "this is a bug in the bench: please report it",
    )
}

/// Removed when the bench ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            warn(format!("{}: {error}", self.0.display()));
        }
    }
}

struct Machine(Stopwatch);

impl MomentClock for Machine {
    fn moment(&self) -> Moment {
        Moment { date: SystemClock.now(), uptime_us: i64::try_from(self.0.elapsed().as_micros()).unwrap_or(i64::MAX) }
    }
}

pub(crate) struct System;

impl Entropy for System {
    fn fill(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        terminal::entropy::fill(bytes)
    }
}

pub(super) fn group() -> Result<GroupId, Failure> {
    "hot".parse().map_err(|error| trouble("a name", error))
}

fn keyring() -> Result<Keyring, Failure> {
    let mnemonic = Mnemonic::parse(WORDS).map_err(|error| trouble("words", error))?;
    let secret = GroupSecret { id: group()?, purpose: Purpose::Hot, family: Family::Evm, account: 0, mnemonic };
    Keyring::of(vec![secret]).map_err(|error| trouble("keys", error))
}

/// Allows all that the bench pays.
pub(super) fn apply_policy(authorizer: &mut Authorizer<DiskFolder>, moment: Moment) -> Result<(), Failure> {
    // PKCS#8 of a seed that everybody knows.
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend_from_slice(&[7; 32]);
    let key = SigningKey::read(&der).ok_or_else(|| trouble("a key", "none"))?;
    let much = "1000000000000000000000000000";
    let text = format!(
        "signer = \"bench\"\nversion = 1\ncooling_off_hours = 1\nmost_intent_life_hours = 48\n\
         administrators = {{ needed = 1, keys = {{ ada = \"{}\" }} }}\n\
         chain = [{{ name = \"bsc\", kind = \"evm\", chain_id = {CHAIN_ID} }}]\n\
         [[group]]\nid = \"hot\"\nchain = \"bsc\"\nrole = \"hot\"\nmost_fee = \"{much}\"\nmost_fee_day = \"{much}\"\n\
         coin = [{{ coin = \"native\", payment = \"{much}\", hour = \"{much}\", day = \"{much}\" }}]\n",
        signer::digest::hex(&key.public())
    );
    let by = "ada".parse().map_err(|error| trouble("a name", error))?;
    let signatures = [PolicySignature { by, signature: key.sign_policy(text.as_bytes()) }];
    authorizer.apply_policy(text.as_bytes(), &signatures, moment).map_err(|error| trouble("policy", error))?;
    Ok(())
}

/// One payment in a slot of its own.
fn request(number: u64, start: Timestamp) -> Result<SignRequest, Failure> {
    let bad = |error: &dyn std::fmt::Display| trouble("a request", error);
    let amount: RawAmount = "900".parse().map_err(|error: domain::raw::RawAmountError| bad(&error))?;
    let payment = Payment { to: Key::numbered(1).evm(), coin: Coin::Native, amount };
    let fee = Fee::Eip1559 { max_fee: 5_000_000_000, max_priority: 1_000_000_000 };
    let draft =
        Draft::Evm { from: Key::numbered(0).evm(), nonce: number, payment: payment.clone(), gas_limit: 21_000, fee };
    let unsigned = tx::evm::build(&draft, CHAIN_ID).map_err(|error| bad(&error))?;
    let most_fee = unsigned.meaning.most_fee.ok_or_else(|| bad(&"no fee"))?;
    let chain: domain::ChainName = "bsc".parse().map_err(|error| trouble("a name", error))?;
    let intent = Intent {
        signer: "bench".parse().map_err(|error| trouble("a name", error))?,
        network: SignerChain::Evm { chain_id: CHAIN_ID },
        job: JobId::Job(first_at(start) + i64::try_from(number).unwrap_or(0)),
        round: 0,
        chain: chain.clone(),
        group: group()?,
        kind: IntentKind::Pay { payment, owner: None },
        most_fee,
        expires: start.plus_micros(24 * 3_600 * 1_000_000),
        builds: 1,
        requester: "alice".parse().map_err(|error| trouble("a name", error))?,
    };
    Ok(SignRequest {
        id: format!("job-{number}").parse().map_err(|error| trouble("a name", error))?,
        chain,
        group: group()?,
        index: 0,
        payload: unsigned.bytes,
        intents: vec![intent],
        bitcoin: None,
        replaces: None,
        approvals: Vec::new(),
    })
}

/// A service on a socket of the folder.
struct Served {
    service: Service,
    socket: PathBuf,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Served {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let disk = DiskFolder::exclusive(&folder.join("log")).map_err(|error| trouble("log", error))?;
        let disk = disk.ok_or_else(|| trouble("log", "another process has it"))?;
        let clock = Arc::new(Machine(Stopwatch::start()));
        let mut authorizer = Authorizer::open(disk, None, clock.moment()).map_err(|error| trouble("log", error))?;
        apply_policy(&mut authorizer, clock.moment())?;
        let mut keys = ApiKeys::default();
        let rights = Rights { sign: [group()?].into(), derive: true, ..Rights::default() };
        let name = "bench".parse().map_err(|error| trouble("a name", error))?;
        keys.add(name, ApiKey { secret: KeySecret::new([9; 32]), rights }).map_err(|error| trouble("keys", error))?;
        let service = Service::start(authorizer, Arc::new(keyring()?), keys, clock, Limits::default())
            .map_err(|error| trouble("service", error))?;
        let socket = folder.join("socket");
        let listener = Listener::unix(&socket).map_err(|error| trouble("socket", error))?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn({
            let service = service.clone();
            async move {
                let until = async {
                    stopped.await.ok();
                };
                service.serve(listener, until).await;
            }
        });
        Ok(Self { service, socket, stop, serving })
    }

    fn client(&self) -> Result<SignerClient, Failure> {
        let key = "bench".parse().map_err(|error| trouble("a name", error))?;
        let credential = Credential { key, secret: KeySecret::new([9; 32]) };
        let place = SignerPlace::unix(&self.socket);
        let settings = ClientSettings::default();
        Ok(SignerClient::new(place, credential, Arc::new(SystemClock), Arc::new(System), settings, None))
    }

    async fn end(self) -> Result<(), Failure> {
        if self.stop.send(()).is_err() {
            return Err(trouble("service", "it has ended by itself"));
        }
        self.serving.await.map_err(|error| trouble("service", error))?;
        self.service.stop().await;
        Ok(())
    }
}

fn all_signed(answers: &[SignAnswer]) -> Result<(), Failure> {
    match answers.iter().find(|answer| matches!(answer, SignAnswer::Refused { .. })) {
        None => Ok(()),
        Some(refused) => Err(trouble("a request was refused", format!("{refused:?}"))),
    }
}

/// The threads that ask, so that their time can be told from the signer's.
struct Callers(Option<tokio::runtime::Runtime>);

const CALLERS: &str = "bench-caller";

impl Callers {
    fn start() -> Result<Self, Failure> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.thread_name(CALLERS).worker_threads(2).enable_all().build();
        runtime.map(|runtime| Self(Some(runtime))).map_err(|error| trouble("threads", error))
    }

    fn handle(&self) -> Result<&tokio::runtime::Handle, Failure> {
        self.0.as_ref().map(tokio::runtime::Runtime::handle).ok_or_else(|| trouble("threads", "they have ended"))
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        // It is dropped where waiting for it is forbidden.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What processors have spent so far on a process or a thread of that name, in seconds.
fn spent_s(stat: &Path, named: &str) -> f64 {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    let Some((name, fields)) = text.rsplit_once(')') else { return 0.0 };
    // Behind the name, `utime` and `stime` are the twelfth and thirteenth: hundredths of a second.
    let spent = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u32>().ok());
    if name.ends_with(named) { spent.map(f64::from).sum::<f64>() / 100.0 } else { 0.0 }
}

/// The same of the threads that ask, and of all others of this process, also those that have ended.
fn processor_s() -> (f64, f64) {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let asking: f64 = threads.map(|thread| spent_s(&thread.path().join("stat"), CALLERS)).sum();
    (asking, spent_s(Path::new("/proc/self/stat"), "") - asking)
}

/// Signed a second, with so many calls at a time; and the microseconds that a processor worked for each, in the signer and in its client.
struct Throughput {
    per_s: f64,
    signer_us: f64,
    client_us: f64,
}

async fn throughput(
    served: &Served,
    callers: &Callers,
    requests: Vec<SignRequest>,
    arguments: &Arguments,
) -> Result<Throughput, Failure> {
    let count = requests.len();
    let parallel = usize::try_from(arguments.callers).unwrap_or(1);
    let batch = usize::try_from(arguments.batch).unwrap_or(1);
    let share = count.div_ceil(parallel).max(1);
    let requests = Arc::new(requests);
    let (watch, before) = (Stopwatch::start(), processor_s());
    let mut tasks = Vec::new();
    for caller in 0..parallel {
        let (client, requests) = (served.client()?, Arc::clone(&requests));
        tasks.push(callers.handle()?.spawn(async move {
            let mine = requests.get((caller * share).min(count)..((caller + 1) * share).min(count)).unwrap_or_default();
            for chunk in mine.chunks(batch) {
                let answers = client.sign(chunk).await.map_err(|error| trouble("the signer", error))?;
                all_signed(&answers)?;
            }
            Ok::<(), Failure>(())
        }));
    }
    for task in tasks {
        task.await.map_err(|error| trouble("a caller", error))??;
    }
    let (wall, after) = (watch.elapsed().as_secs_f64(), processor_s());
    let each = |spent: f64| spent * 1e6 / count as f64;
    let (client_us, signer_us) = (each(after.0 - before.0), each(after.1 - before.1));
    Ok(Throughput { per_s: count as f64 / wall, signer_us, client_us })
}

/// The median time of one request at a time, in milliseconds.
async fn one_at_a_time(client: &SignerClient, requests: &[SignRequest]) -> Result<f64, Failure> {
    let mut times = Samples::default();
    for request in requests {
        let watch = Stopwatch::start();
        all_signed(&client.sign(std::slice::from_ref(request)).await.map_err(|error| trouble("the signer", error))?)?;
        times.push(watch.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times.median())
}

fn bare_signatures(count: u32) -> f64 {
    let (key, mut digest) = (Key::numbered(0), [1; 32]);
    let watch = Stopwatch::start();
    for _ in 0..count {
        let (bytes, _) = key.sign(digest);
        digest.copy_from_slice(&bytes[..32]);
    }
    f64::from(count) / watch.elapsed().as_secs_f64()
}

/// Signed transactions read a second on one core, as both the signer and its client read each: what was signed, and by whom.
fn read_backs(count: u32) -> Result<f64, Failure> {
    let unsigned = request(0, SystemClock.now())?.payload;
    let (signature, odd) = Key::numbered(0).sign(tx::evm::digest(&unsigned));
    let bytes = tx::evm::attach(&unsigned, &signature, odd).map_err(|error| trouble("a signature", error))?;
    let watch = Stopwatch::start();
    for _ in 0..count {
        tx::evm::decode_signed(&bytes, CHAIN_ID).map_err(|error| trouble("a signature", error))?;
    }
    Ok(f64::from(count) / watch.elapsed().as_secs_f64())
}

#[derive(Default)]
struct Figures {
    bare: Samples,
    read_back: Samples,
    signed: Samples,
    signer_us: Samples,
    client_us: Samples,
    one_ms: Samples,
    sync_ms: Samples,
    addresses: Samples,
    derived: Samples,
}

const ADDRESSES: u64 = 20_000;

pub async fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let parent = arguments.data_dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("bursar-bench-signer-{}", std::process::id()));
    let made = {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(&folder)
    };
    made.map_err(|error| Failure::outside("DISK_PROBE_FAILED", &error, "name a folder with --data-dir"))?;
    let scratch = Scratch(folder);
    let mut figures = Figures::default();
    let (served, callers) = (Served::start(&scratch.0)?, Callers::start()?);
    let (start, mut next) = (SystemClock.now(), 0_u64);
    let mut fresh = |count: u64| {
        let from = next;
        next += count;
        (from..next).map(|number| request(number, start)).collect::<Result<Vec<_>, _>>()
    };
    for _ in 0..arguments.rounds {
        figures.bare.push(bare_signatures(arguments.requests));
        let requests = fresh(arguments.requests.into())?;
        figures.read_back.push(read_backs(arguments.requests)?);
        let measured = throughput(&served, &callers, requests, arguments).await?;
        figures.signed.push(measured.per_s);
        figures.signer_us.push(measured.signer_us);
        figures.client_us.push(measured.client_us);
        let probe = disk::fdatasync(&scratch.0, Duration::from_millis(500));
        let probe = probe.map_err(|error| Failure::outside("DISK_PROBE_FAILED", &error, "is the disk full?"))?;
        figures.sync_ms.push(probe.p50_us / 1e3);
        let client = served.client()?;
        figures.one_ms.push(one_at_a_time(&client, &fresh(300)?).await?);
        let indexes: Vec<u64> = (0..ADDRESSES).collect();
        let watch = Stopwatch::start();
        let addresses = client.addresses(&group()?, &indexes).await.map_err(|error| trouble("addresses", error))?;
        figures.addresses.push(ADDRESSES as f64 / watch.elapsed().as_secs_f64());
        figures.derived.push(derivation(&indexes, &addresses)?);
    }
    served.end().await?;
    let long = start::measure(&scratch.0, arguments.entries, group()?).await?;
    print(&figures, &long, arguments, as_json);
    Ok(())
}

/// The same addresses from the group's key, on one core.
fn derivation(indexes: &[u64], answered: &[String]) -> Result<f64, Failure> {
    let keyring = keyring()?;
    let id = group()?;
    let key = &keyring.group(&id).map_err(|error| trouble("keys", error))?.key;
    let watch = Stopwatch::start();
    for index in indexes {
        let path = AddressPath::of_number(*index).map_err(|error| trouble("a path", error))?;
        key.public(path).map_err(|error| trouble("a path", error))?;
    }
    let per_s = indexes.len() as f64 / watch.elapsed().as_secs_f64();
    let last = indexes.last().and_then(|index| Addresses::address(&keyring, &id, *index)).map(|last| last.to_string());
    if last.as_ref() != answered.last() {
        return Err(trouble("addresses", "the signer's are others"));
    }
    Ok(per_s)
}

fn print(figures: &Figures, long: &start::Long, arguments: &Arguments, as_json: bool) {
    let ratio = figures.signed.ratio_to(&figures.bare).median();
    let beyond = figures.one_ms.median() - figures.sync_ms.median();
    let started = &long.started;
    let bytes_per_job = started.resident_bytes / started.remembered.max(1);
    if as_json {
        say(json!({
            "bench": "signer", "batch": arguments.batch, "callers": arguments.callers, "rounds": arguments.rounds,
            "bare_signatures_per_s": figures.bare.median().round(),
            "signed_per_s": figures.signed.median().round(),
            "signed_per_s_lowest": figures.signed.lowest().round(),
            "signed_per_s_highest": figures.signed.highest().round(),
            "ratio_to_bare": ratio,
            "bare_read_backs_per_s": figures.read_back.median().round(),
            "signer_us_per_signature": figures.signer_us.median(),
            "client_us_per_signature": figures.client_us.median(),
            "one_p50_ms": figures.one_ms.median(), "fdatasync_p50_ms": figures.sync_ms.median(),
            "one_p50_beyond_fdatasync_ms": beyond,
            "addresses_per_s": figures.addresses.median().round(),
            "bare_derivations_per_s": figures.derived.median().round(),
            "start_s": started.seconds, "start_entries": started.entries, "start_replayed": started.replayed,
            "log_bytes": long.log_bytes, "snapshot_bytes": long.snapshot_bytes,
            "remembered_jobs": started.remembered, "memory_per_remembered_job_bytes": bytes_per_job,
        }));
        return;
    }
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    let rows = [
        row("bare signatures a second, one core", format!("{:.0}", figures.bare.median())),
        row("signed a second over the socket", format!("{:.0}", figures.signed.median())),
        row("ratio to bare", format!("{ratio:.2}")),
        row("signatures read back a second, one core", format!("{:.0}", figures.read_back.median())),
        row("a processor works for each in the signer", format!("{:.0} µs", figures.signer_us.median())),
        row("and in the client", format!("{:.0} µs", figures.client_us.median())),
        row("one at a time, median", format!("{:.2} ms", figures.one_ms.median())),
        row("one fdatasync, median", format!("{:.2} ms", figures.sync_ms.median())),
        row("addresses a second", format!("{:.0}", figures.addresses.median())),
        row("bare derivations a second, one core", format!("{:.0}", figures.derived.median())),
        row("entries of the log that is started on", thousands(started.entries)),
        row("start", format!("{:.2} s", started.seconds)),
        row("memory for a remembered job", format!("{bytes_per_job} bytes")),
    ];
    say(table(&["", ""], &[1], &rows));
}
