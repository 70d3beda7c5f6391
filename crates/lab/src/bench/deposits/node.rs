//! The node of the bench: a devnet in a process of its own, whose blocks hold nothing but payments to users.

use chain::Chain;
use chain::endpoint::Pool;
use chain::evm::{EvmChain, EvmSettings};
use terminal::failure::{CommandResult, Failure};
use tx::Address;

use super::super::scan::{self, Filled, Plan};
use super::books::Books;
use super::trouble;
use crate::rig::process::Process;

pub(super) struct Blocks {
    pub chain: EvmChain,
    /// For what the bench itself sends.
    pool: Pool,
    process: Process,
}

impl Blocks {
    /// A chain of its own, from its newest block on.
    pub async fn start(books: &Books) -> Result<Self, Failure> {
        let start = ["--json", "devnet", "--by-hand", "--endpoints", "1"];
        let quiet = ["--evm-port", "0", "--tron-port", "0", "--bitcoin-port", "0", "--control-port", "0"];
        let process = Process::start(&[&start[..], &quiet[..]].concat(), "control").await?;
        let url = process.said["evm"][0].as_str().unwrap_or_default().to_owned();
        let (pool, own) = (scan::pool(&url, None)?, scan::pool(&url, None)?);
        let mut settings = EvmSettings::new(devnet::evm::CHAIN_ID, u64::from(books.row.confirmations));
        settings.tokens.push(devnet::evm::TETHER);
        let chain = EvmChain::new(settings, own);
        let tip = chain.head().await.map_err(trouble)?.tip;
        books.begin(tip.at()).await?;
        Ok(Self { chain, pool, process })
    }

    /// Mines blocks of payments to users.
    pub async fn fill(&self, books: &Books, plan: Plan) -> Result<Filled, Failure> {
        let token = Address::Evm(devnet::evm::TETHER);
        scan::evm_blocks_to(&self.chain, &self.pool, &token, plan, |number| books.payee(number)).await
    }

    pub async fn stop(self) -> CommandResult {
        self.process.kill().await
    }
}
