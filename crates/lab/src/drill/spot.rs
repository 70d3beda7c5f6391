//! `bursar drill spot` (hidden): runs a spot engine for ever and says on standard output what was answered. A test kills
//! it at random moments and then holds the log against what it had said.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use domain::id::{Generator, NodeId, Transfer};
use domain::random::Random;
use domain::{Amount, AssetId, UserId};
use spot::service::Limits;
use spot::{Answer, Core, Disk, Engine, Move, Operation, Request, Settings};
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Failure};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    folder: PathBuf,
    /// Makes the operations of this run its own
    #[arg(long)]
    run: u64,
    /// Take a snapshot whenever the log has grown by so many MiB
    #[arg(long, default_value_t = 1_000_000)]
    snapshot: u64,
}

const TASKS: u64 = 8;

pub async fn run(arguments: &Arguments) -> CommandResult {
    let settings = Settings { segment_bytes: 1 << 20, ..Settings::default() };
    let disk = Disk::lock(&arguments.folder)?;
    if spot::log::read::segments(&disk)?.is_empty() {
        Core::create(&disk, arguments.run, &settings)?;
    }
    let (core, _) = Core::open(Arc::new(disk), &settings, &mut |_| {})?;
    let limits = Limits { snapshot_bytes: arguments.snapshot << 20, ..Limits::default() };
    let trouble =
        |error: &(dyn std::error::Error + 'static)| Failure::outside("INTERNAL", error, "this is a bug in Bursar");
    let engine = Engine::start(core, limits, Arc::new(SystemClock)).map_err(|error| trouble(&error))?;
    let node = NodeId::new(1).unwrap_or_else(|| unreachable!("1 is a node"));
    let ids = Arc::new(Generator::new(SystemClock, node));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let random = Random::from_seed(arguments.run * TASKS + task);
            tokio::spawn(Drill { engine: engine.clone(), ids: Arc::clone(&ids), random, last: None }.ask_for_ever())
        })
        .collect();
    for task in tasks {
        task.await.map_err(|error| trouble(&error))??;
    }
    Ok(())
}

struct Drill {
    engine: Engine,
    ids: Arc<Generator<SystemClock>>,
    random: Random,
    /// A withdrawal that may be rolled back.
    last: Option<Move>,
}

impl Drill {
    async fn ask_for_ever(mut self) -> CommandResult {
        loop {
            let count = 1 + self.random.below(4);
            let operations: Vec<Operation> = (0..count).filter_map(|_| self.operation()).collect();
            let requests: Vec<Request> = operations.iter().copied().map(Request::Run).collect();
            if requests.is_empty() {
                continue;
            }
            let answers = self.engine.submit(requests).await.map_err(|refused| {
                Failure::outside(refused.code(), &refused, "the engine of the drill does not answer")
            })?;
            let mut text = String::new();
            for (operation, answer) in operations.iter().zip(answers) {
                if let Answer::First(outcome) | Answer::Replay(outcome) = answer {
                    let rollback = if matches!(operation, Operation::Rollback(_)) { "rollback" } else { "run" };
                    text.push_str(&format!("{} {rollback} {}\n", operation.id(), outcome.name()));
                }
            }
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .map_err(|error| Failure::outside("OUTPUT_CLOSED", &error, "keep standard output open"))?;
        }
    }

    fn operation(&mut self) -> Option<Operation> {
        let user = UserId::new(1 + i64::try_from(self.random.below(40)).ok()?)?;
        let asset = AssetId(1 + i64::try_from(self.random.below(3)).ok()?);
        let amount = Amount::from_units(1 + i64::try_from(self.random.below(100)).ok()?);
        let of = Move { id: self.ids.next::<Transfer>().ok()?.into(), user, asset, amount };
        Some(match self.random.below(8) {
            0..=2 => Operation::Deposit(of),
            3 | 4 => {
                self.last = Some(of);
                Operation::Withdraw(of)
            }
            5 => Operation::Reserve(of),
            6 => Operation::Release(of),
            _ => Operation::Rollback(self.last.take()?),
        })
    }
}
