//! The nodes of one chain: which of them to ask, and what to make of how they answer.

use std::fmt::{self, Debug};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::Clock;
use domain::random::Random;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::broadcast;

use super::event::{Event, Health, Why};
use super::pace::{Budget, Ticks, lock, micros};
use super::standing::{Rank, Rules};
use super::{BadEndpoint, CallError, EndpointSettings, Node};
use crate::error::ChainError;

/// Who listens to events and falls behind by more than this hears that it lost some.
const EVENTS: usize = 256;
/// One procedure in so many goes to a node that is not the fastest: else nobody would notice that it has become fast.
const WANDER: u64 = 16;

#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// How many must agree on what credits or finalizes money. More than half of the nodes is the least, and what is taken
    /// where nothing is said.
    pub quorum: Option<usize>,
    /// For each call.
    pub deadline: Duration,
    /// No answer is longer than this.
    pub answer_bytes: usize,
    /// For a whole procedure, with all its calls, waits and other nodes.
    pub procedure_deadline: Duration,
    /// On how many nodes `any` runs a procedure until one answers.
    pub attempts: usize,
    /// Attempts after the first of all procedures: so many at once, and so many per second in the long run.
    pub retries: u32,
    pub retries_per_second: u32,
    /// `agree` asks one more node when nothing came for so long. Probes may hold up an answer by as much.
    pub hedge: Duration,
    /// After so many failures in a row a node is set aside,
    pub failures: u32,
    /// for so long,
    pub pause: Duration,
    /// each time twice as long as before, but no longer than this,
    pub pause_most: Duration,
    /// until it was good for so long.
    pub forgive: Duration,
    /// No node is left alone for longer than this because it said so itself.
    pub retry_after_most: Duration,
    /// A node that is more blocks behind than this lags.
    pub lag_blocks: u64,
    /// A height that goes back by more blocks than this is an event.
    pub back_blocks: u64,
    /// No batch has more calls than this.
    pub batch: usize,
    /// For the jitter of pauses.
    pub seed: u64,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            quorum: None,
            deadline: Duration::from_secs(10),
            answer_bytes: 64 << 20,
            procedure_deadline: Duration::from_secs(60),
            attempts: 4,
            retries: 200,
            retries_per_second: 20,
            hedge: Duration::from_secs(1),
            failures: 3,
            pause: Duration::from_secs(1),
            pause_most: Duration::from_secs(300),
            forgive: Duration::from_secs(600),
            retry_after_most: Duration::from_secs(60),
            lag_blocks: 10,
            back_blocks: 64,
            batch: 100,
            seed: 0,
        }
    }
}

pub struct Pool {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) settings: PoolSettings,
    quorum: usize,
    rules: Rules,
    pub(super) ticks: Arc<Ticks>,
    random: Mutex<Random>,
    budget: Mutex<Budget>,
    events: broadcast::Sender<Event>,
}

impl Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("nodes", &self.nodes).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Pool {
    pub fn new(
        endpoints: &[EndpointSettings],
        settings: &PoolSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BadEndpoint> {
        // Two halves could each agree on something else, so a majority is the least.
        let majority = endpoints.len() / 2 + 1;
        let quorum = settings.quorum.unwrap_or(majority);
        if !(majority..=endpoints.len()).contains(&quorum) {
            return Err(BadEndpoint::Quorum { quorum, endpoints: endpoints.len() });
        }
        let ticks = Arc::new(Ticks::new(clock));
        let mut nodes: Vec<Arc<Node>> = Vec::with_capacity(endpoints.len());
        for one in endpoints {
            let node = Node::new(one, settings, Arc::clone(&ticks))?;
            if nodes.iter().any(|known| known.is_same_as(&node)) {
                return Err(BadEndpoint::Twice { name: one.name.clone() });
            }
            nodes.push(Arc::new(node));
        }
        let rules = Rules {
            failures: settings.failures,
            pause: micros(settings.pause),
            pause_most: micros(settings.pause_most),
            forgive: micros(settings.forgive),
        };
        Ok(Self {
            nodes,
            quorum,
            rules,
            ticks,
            random: Mutex::new(Random::from_seed(settings.seed)),
            budget: Mutex::new(Budget::new(settings.retries, settings.retries_per_second)),
            events: broadcast::channel(EVENTS).0,
            settings: settings.clone(),
        })
    }

    /// How many must agree.
    pub const fn quorum(&self) -> usize {
        self.quorum
    }

    /// Runs the procedure on a node that is well, fast and has room, and on others when that one fails or lacks what is
    /// asked for. When all that were asked lack it, that is a refusal.
    pub async fn any<T, F, Fut>(&self, procedure: F) -> Result<T, ChainError>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
        T: Send,
    {
        let (mut nodes, good) = self.ranked();
        if nodes.is_empty() {
            // All are doubted. Whatever is believed is held against a quorum elsewhere; here silence would last for ever.
            let now = self.ticks.now();
            nodes = self.nodes.iter().filter(|node| !lock(&node.standing).is_paused(now)).map(Arc::clone).collect();
        }
        self.wander(&mut nodes[..good]);
        // With nobody else to answer, a probe is an attempt like the others.
        let probe = if good > 0 { self.probe(|node| !lock(&node.standing).doubted()) } else { None };
        let Some(probe) = probe else { return self.one_after_another(&nodes, &procedure).await };
        nodes.retain(|node| !Arc::ptr_eq(node, &probe.node));
        let mut answer = pin!(self.one_after_another(&nodes, &procedure));
        let mut probing = pin!(self.run(&probe.node, &procedure));
        let mut probed = None;
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                outcome = &mut probing, if probed.is_none() => probed = Some(outcome),
            }
        };
        if probed.is_none() {
            probed = tokio::time::timeout(self.settings.hedge, probing).await.ok();
        }
        if probed.is_none() {
            self.too_slow(&probe.node);
        }
        match (answer, probed) {
            (Err(ChainError::Unreachable(_) | ChainError::Refused(CallError::Lacks { .. })), Some(Ok(probed)))
                if !probe.lags =>
            {
                Ok(probed)
            }
            (answer, _) => answer,
        }
    }

    async fn one_after_another<T, F, Fut>(&self, nodes: &[Arc<Node>], procedure: &F) -> Result<T, ChainError>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
    {
        let mut over = pin!(tokio::time::sleep(self.settings.procedure_deadline));
        let (mut lost, mut lacks) = (None, None);
        for (attempt, node) in nodes.iter().take(self.settings.attempts.max(1)).enumerate() {
            if attempt > 0 && !lock(&self.budget).take(self.ticks.now()) {
                break;
            }
            let outcome = tokio::select! {
                outcome = self.run(node, procedure) => outcome,
                () = &mut over => {
                    let late = CallError::Timeout { endpoint: node.name().to_owned() };
                    self.note(node, Some(&late));
                    return Err(ChainError::Unreachable(late));
                }
            };
            match outcome {
                Ok(answer) => return Ok(answer),
                Err(error @ CallError::Refused { .. }) => return Err(ChainError::Refused(error)),
                Err(error @ CallError::Lacks { .. }) => lacks = Some(error),
                Err(error) => lost = Some(error),
            }
        }
        Err(match (lost, lacks) {
            (None, Some(error)) => ChainError::Refused(error),
            (lost, _) => {
                ChainError::Unreachable(lost.unwrap_or(CallError::Unreachable { endpoint: "nobody".to_owned() }))
            }
        })
    }

    /// Runs the procedure on all nodes, those that are set aside as well.
    pub async fn each<T, F, Fut>(&self, procedure: F) -> Vec<(Arc<Node>, Result<T, CallError>)>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
        T: Send,
    {
        let procedure = &procedure;
        let asked = self.nodes.iter().map(|node| async move {
            let outcome = tokio::time::timeout(self.settings.procedure_deadline, self.run(node, procedure)).await;
            let outcome = outcome.unwrap_or_else(|_| {
                let late = CallError::Timeout { endpoint: node.name().to_owned() };
                self.note(node, Some(&late));
                Err(late)
            });
            (Arc::clone(node), outcome)
        });
        futures_util::future::join_all(asked).await
    }

    /// As [`Self::each`], without waiting for those that hang: once a quorum has answered, or all that are well, the others
    /// have the time of the hedge, and none if they are known to fail. Who let us wait in vain has failed.
    pub async fn each_soon<T, F, Fut>(&self, procedure: F) -> Vec<(Arc<Node>, Result<T, CallError>)>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
        T: Send,
    {
        let procedure = &procedure;
        // Decided before they are asked: what they answer now may change it.
        let mut late: Vec<&Arc<Node>> = self.nodes.iter().filter(|node| !lock(&node.standing).fails()).collect();
        let mut needed = self.quorum.min(late.len()).max(1);
        let ask = |node: &Arc<Node>| {
            let node = Arc::clone(node);
            async move { (self.run(&node, procedure).await, node) }
        };
        let mut running: FuturesUnordered<_> = self.nodes.iter().map(ask).collect();
        let mut answers = Vec::with_capacity(self.nodes.len());
        let mut over = pin!(tokio::time::sleep(self.settings.procedure_deadline));
        loop {
            tokio::select! {
                biased;
                answer = running.next() => {
                    let Some((outcome, node)) = answer else { return answers };
                    late.retain(|other| !Arc::ptr_eq(other, &node));
                    if outcome.is_ok() && needed > 0 {
                        needed -= 1;
                        if needed == 0 {
                            over.set(tokio::time::sleep(self.settings.hedge));
                        }
                    }
                    answers.push((node, outcome));
                }
                () = &mut over => break,
            }
            if needed == 0 && late.is_empty() {
                return answers;
            }
        }
        let now = self.ticks.now();
        // Who has no room for our call yet is well, only busy.
        for node in late.into_iter().filter(|node| node.room_at(now, 1) <= now) {
            self.too_slow(node);
        }
        answers
    }

    /// That a node has told its height. A node that is far behind what enough others have told is set aside until it
    /// tells better; ask for heights with [`Self::each_soon`], so that this one is asked too.
    pub fn saw_height(&self, node: &Node, height: u64) {
        if !self.nodes.iter().any(|known| std::ptr::eq(Arc::as_ptr(known), node)) {
            return;
        }
        let endpoint = || node.name().to_owned();
        let confirmed = self.height_of_others(node);
        let before = lock(&node.standing).saw(height);
        if let Some(from) = before.filter(|from| from.saturating_sub(height) > self.settings.back_blocks) {
            self.tell(Event::WentBack { endpoint: endpoint(), from, to: height });
        }
        match confirmed.filter(|confirmed| confirmed.saturating_sub(height) > self.settings.lag_blocks) {
            Some(confirmed) => {
                let behind = confirmed - height;
                if lock(&node.standing).lag(self.ticks.now(), behind, self.rules.pause) {
                    self.tell(Event::Lags { endpoint: endpoint(), height, confirmed });
                    let (why, pause_micros) = (Why::Lags { behind }, self.rules.pause);
                    self.tell(Event::SetAside { endpoint: endpoint(), why, pause_micros });
                }
            }
            None => {
                if lock(&node.standing).caught_up() {
                    self.tell(Event::Back { endpoint: endpoint() });
                }
            }
        }
    }

    /// The height that enough other nodes have, those left out that contradict. Fewer than a quorum can make it neither
    /// higher than the truth nor, as long as enough tell the truth, lower.
    fn height_of_others(&self, node: &Node) -> Option<u64> {
        let others = self.nodes.iter().filter(|other| !std::ptr::eq(other.as_ref(), node)).filter_map(|other| {
            let standing = lock(&other.standing);
            standing.height().filter(|_| !standing.doubted())
        });
        let mut heights: Vec<u64> = others.collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        heights.get(self.quorum - 1).copied()
    }

    /// Whether a node can honestly have a block at this height that the others do not: not at one that they are known to
    /// have passed.
    pub(super) fn may_be_ahead(&self, node: &Node, height: u64) -> bool {
        self.height_of_others(node).is_none_or(|confirmed| height >= confirmed)
    }

    /// How many of those that answered must have reached a height before it is believed to be there.
    pub(crate) fn enough(&self, answers: usize) -> usize {
        self.quorum.min(answers)
    }

    /// Whether what this node says counts at all: not while it lags, or after it contradicted a quorum.
    pub(crate) fn counts(&self, node: &Node) -> bool {
        lock(&node.standing).rank() != Rank::Never
    }

    /// What happens to the nodes from now on. Who does not listen loses the oldest, never the newest.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    pub fn health(&self) -> Vec<Health> {
        let now = self.ticks.now();
        self.nodes.iter().map(|node| lock(&node.standing).health(node.name(), now)).collect()
    }

    /// Whom to ask, in which order, and how many of them are well.
    pub(super) fn ranked(&self) -> (Vec<Arc<Node>>, usize) {
        let now = self.ticks.now();
        let ranked = self.nodes.iter().filter_map(|node| {
            let wait = node.room_at(now, 1).saturating_sub(now);
            let standing = lock(&node.standing);
            let rank = standing.rank();
            (rank != Rank::Never).then(|| ((rank, standing.cost().saturating_add(wait)), node))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by_key(|(key, _)| *key);
        let good = ranked.iter().filter(|((rank, _), _)| *rank == Rank::Good).count();
        (ranked.into_iter().map(|(_, node)| Arc::clone(node)).collect(), good)
    }

    /// Now and then another of these comes first, if it has room.
    fn wander(&self, nodes: &mut [Arc<Node>]) {
        let chosen = {
            let mut random = lock(&self.random);
            if random.below(WANDER) == 0 { random.index(nodes.len()) } else { 0 }
        };
        let now = self.ticks.now();
        if nodes.get(chosen).is_some_and(|node| node.room_at(now, 1) <= now) {
            nodes[..=chosen].rotate_right(1);
        }
    }

    /// A node whose pause is over, to be tried beside the others.
    pub(super) fn probe(&self, may: impl Fn(&Node) -> bool) -> Option<Probe> {
        let now = self.ticks.now();
        let node = self.nodes.iter().find(|node| may(node) && lock(&node.standing).take_probe(now))?;
        Some(Probe { node: Arc::clone(node), lags: lock(&node.standing).lags(), pause: self.rules.pause })
    }

    pub(super) async fn run<T, F, Fut>(&self, node: &Arc<Node>, procedure: &F) -> Result<T, CallError>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
    {
        let _running = Running::start(node);
        let outcome = procedure(Arc::clone(node)).await;
        self.note(node, outcome.as_ref().err());
        outcome
    }

    fn note(&self, node: &Node, error: Option<&CallError>) {
        let (now, jitter) = (self.ticks.now(), lock(&self.random).next_u64());
        let mut standing = lock(&node.standing);
        let aside = match error {
            None | Some(CallError::Refused { .. } | CallError::Lacks { .. }) => {
                if standing.answered(now) {
                    drop(standing);
                    self.tell(Event::Back { endpoint: node.name().to_owned() });
                }
                return;
            }
            // It is well, only busy; the wait that it asked for is noted where it asked.
            Some(CallError::RateLimited { .. }) => return,
            Some(CallError::Credentials { .. }) => standing.refuse_credentials(now, &self.rules, jitter),
            Some(
                CallError::Unreachable { .. }
                | CallError::Timeout { .. }
                | CallError::TooLong { .. }
                | CallError::BadAnswer { .. },
            ) => standing.fail(now, &self.rules, jitter),
        };
        drop(standing);
        if let Some((why, pause_micros)) = aside {
            self.tell(Event::SetAside { endpoint: node.name().to_owned(), why, pause_micros });
        }
    }

    /// A probe that others have overtaken by far.
    pub(super) fn too_slow(&self, node: &Node) {
        self.note(node, Some(&CallError::Timeout { endpoint: node.name().to_owned() }));
    }

    /// Others that are enough said something else.
    pub(super) fn contradicts(&self, node: &Node, agreed: usize) {
        let (now, jitter) = (self.ticks.now(), lock(&self.random).next_u64());
        let (why, pause_micros) = lock(&node.standing).contradict(now, &self.rules, jitter);
        self.tell(Event::Contradicts { endpoint: node.name().to_owned(), agreed });
        self.tell(Event::SetAside { endpoint: node.name().to_owned(), why, pause_micros });
    }

    /// What it shows of a block does not hash to the header that a quorum has.
    pub(crate) fn forges(&self, node: &Node, height: u64, what: &str) {
        let (now, jitter) = (self.ticks.now(), lock(&self.random).next_u64());
        let (why, pause_micros) = lock(&node.standing).contradict(now, &self.rules, jitter);
        let endpoint = || node.name().to_owned();
        self.tell(Event::Forges { endpoint: endpoint(), height, what: node.quote(what) });
        self.tell(Event::SetAside { endpoint: endpoint(), why, pause_micros });
    }

    pub(super) fn agrees(&self, node: &Node) {
        if lock(&node.standing).agreed(self.ticks.now()) {
            self.tell(Event::Back { endpoint: node.name().to_owned() });
        }
    }

    pub(super) fn tell(&self, event: Event) {
        event.trace();
        // It fails when nobody listens.
        drop(self.events.send(event));
    }
}

/// Counts a procedure while it runs, also when it is given up.
struct Running<'a>(&'a Node);

impl<'a> Running<'a> {
    fn start(node: &'a Node) -> Self {
        lock(&node.standing).start();
        Self(node)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.0.standing).stop();
    }
}

/// Nobody else probes the node while this lives.
pub(super) struct Probe {
    pub(super) node: Arc<Node>,
    /// What it answers is out of date, whatever it answers.
    pub(super) lags: bool,
    pause: u64,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let now = self.node.ticks.now();
        let mut standing = lock(&self.node.standing);
        standing.end_probe();
        standing.still_lags(now, self.pause);
    }
}
