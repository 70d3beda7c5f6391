//! The three chains together, with their control interface.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, Timestamp};

use super::bitcoin::BitcoinDevnet;
use super::evm::EvmDevnet;
use super::tron::TronDevnet;
use super::{Chains, Control, Model, Served, bitcoin, evm, tron};

/// Where the chains are served, and how they live. Always on loopback: the keys are public.
#[derive(Clone, Copy, Debug)]
pub struct DevnetSettings {
    /// The first port of each chain; further endpoints take the ports after it. 0: any that are free.
    pub bitcoin_port: u16,
    pub evm_port: u16,
    pub tron_port: u16,
    pub control_port: u16,
    /// For each chain.
    pub endpoints: u16,
    /// `None`: blocks are mined by hand.
    pub block_time: Option<Duration>,
}

pub struct Devnet {
    pub chains: Arc<Chains>,
    pub control: Control,
}

/// An address that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be served on the ports {port} to {}", port.saturating_add(count.saturating_sub(1)))]
pub struct CannotServe {
    pub what: &'static str,
    pub port: u16,
    /// So many ports in a row, from that one on.
    pub count: u16,
    #[source]
    pub source: io::Error,
}

impl Devnet {
    pub async fn start(settings: &DevnetSettings, clock: Arc<dyn Clock>) -> Result<Self, CannotServe> {
        let bitcoin = BitcoinDevnet::new(bitcoin::Settings::default());
        let evm = EvmDevnet::new(evm::Settings::default());
        let tron = TronDevnet::new(tron::Settings::default());
        let mut chains: Chains = BTreeMap::new();
        chains.insert("bitcoin", serve("bitcoin", bitcoin, settings.bitcoin_port, settings, &clock).await?);
        chains.insert("evm", serve("evm", evm, settings.evm_port, settings, &clock).await?);
        chains.insert("tron", serve("tron", tron, settings.tron_port, settings, &clock).await?);
        let chains = Arc::new(chains);
        let port = settings.control_port;
        let control = Control::start(loopback(port), Arc::clone(&chains)).await;
        let control =
            control.map_err(|source| CannotServe { what: "the control interface", port, count: 1, source })?;
        Ok(Self { chains, control })
    }
}

/// So many blocks are there from the beginning: enough for the reorganisation that `bursar devnet --help` shows, and on TRON for all
/// that is not solidified yet.
const FIRST_BLOCKS: u64 = 24;

async fn serve<M: Model>(
    what: &'static str,
    mut model: M,
    port: u16,
    settings: &DevnetSettings,
    clock: &Arc<dyn Clock>,
) -> Result<Served<dyn Model>, CannotServe> {
    let count = settings.endpoints.max(1);
    let addresses = (0..count).map(|number| match port {
        0 => loopback(0),
        port => loopback(port.saturating_add(number)),
    });
    let addresses: Vec<SocketAddr> = addresses.collect();
    // All but the last follow on the first in its own time.
    model.mine(FIRST_BLOCKS - 1, Timestamp::from_micros(0));
    let served = Served::start(model, &addresses, Arc::clone(clock)).await;
    let mut served = served.map_err(|source| CannotServe { what, port, count, source })?;
    // The chains begin on a fixed day. Whoever counts from the newest block's time, as TRON's clients do, counts from now.
    served.mine(1);
    if let Some(period) = settings.block_time {
        served.mine_every(period);
    }
    Ok(served.into_dyn())
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
