//! The read quorum: what credits or finalizes money is said by several nodes.
//!
//! **Fewer nodes than the quorum can neither forge an answer nor block one.** They cannot forge it, since each node
//! counts once and the quorum must say the same. They cannot block it, since further nodes are asked for as long as
//! the quorum may still be reached, without waiting for those that hang.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tx::BlockRef;

use super::event::Event;
use super::pace::lock;
use super::pool::Probe;
use super::{CallError, Node, Pool};
use crate::error::ChainError;

/// So often nodes that are at different blocks are asked again.
const BLOCK_TRIES: u32 = 3;

/// A refusal is an answer: that enough nodes refuse alike settles the question as well. That a node lacks what is asked
/// for is none: it says nothing about the chain.
enum Said<T> {
    Answer(T),
    Refused(CallError),
}

impl<T: PartialEq> Said<T> {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Answer(a), Self::Answer(b)) => a == b,
            // The words differ from one node to the other, the code does not.
            (Self::Refused(CallError::Refused { code: a, .. }), Self::Refused(CallError::Refused { code: b, .. })) => {
                a == b
            }
            _ => false,
        }
    }
}

/// Who said what.
struct Group<T> {
    said: Said<T>,
    by: Vec<Arc<Node>>,
}

struct Votes<T> {
    groups: Vec<Group<T>>,
    /// What one lacked that had no vote for that reason.
    lacks: Option<CallError>,
    /// Whether one had no vote for another reason.
    lost: bool,
}

impl<T: PartialEq> Votes<T> {
    fn add(&mut self, node: Arc<Node>, said: Said<T>) {
        match self.groups.iter_mut().find(|group| group.said.same(&said)) {
            Some(group) => group.by.push(node),
            None => self.groups.push(Group { said, by: vec![node] }),
        }
    }

    fn best(&self) -> usize {
        self.groups.iter().map(|group| group.by.len()).max().unwrap_or(0)
    }
}

impl Pool {
    /// Runs the procedure on nodes until a quorum of them says the same.
    pub async fn agree<T, F, Fut>(&self, procedure: F) -> Result<T, ChainError>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
        T: PartialEq + Debug + Send,
    {
        self.agree_unless_ahead(procedure, |_, _| None).await
    }

    /// As [`Self::agree`], where a node that has come a block further than the others honestly says more than they do.
    ///
    /// `ahead` is given what one node says and what was agreed on. It tells the height of the lowest block by which the one
    /// goes beyond the other, if they differ in nothing else. At a height that the others have reached long since that is a
    /// lie like any other.
    pub async fn agree_unless_ahead<T, F, Fut>(
        &self,
        procedure: F,
        ahead: impl Fn(&T, &T) -> Option<u64> + Send + Sync,
    ) -> Result<T, ChainError>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
        T: PartialEq + Debug + Send,
    {
        let votes = self.collect_votes(&procedure).await;
        self.count(votes, ahead)
    }

    /// As [`Self::agree`] on what was so at a block, where each node says which block it was at. Nodes at different blocks do
    /// not contradict each other; too few at the same one is no quorum, and then all are asked again.
    pub async fn agree_at_a_block<T, F, Fut>(&self, procedure: F) -> Result<(BlockRef, T), ChainError>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<(BlockRef, T), CallError>> + Send,
        T: PartialEq + Debug + Send,
    {
        let apart = |one: &(BlockRef, T), agreed: &(BlockRef, T)| (one.0 != agreed.0).then_some(u64::MAX);
        let mut tries = 0;
        loop {
            match self.agree_unless_ahead(&procedure, apart).await {
                Err(ChainError::NoQuorum { .. }) if tries < BLOCK_TRIES => tries += 1,
                said => return said,
            }
        }
    }

    async fn collect_votes<T, F, Fut>(&self, procedure: &F) -> Votes<T>
    where
        F: Fn(Arc<Node>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, CallError>> + Send,
        T: PartialEq + Debug + Send,
    {
        let quorum = self.quorum();
        let probe = self.probe(|_| true);
        let ask = |node: Arc<Node>| async move {
            let began = self.ticks.now();
            let mut late = Late { pool: self, node: &node, began, given_up: true };
            let outcome = self.run(&node, procedure).await;
            late.given_up = false;
            drop(late);
            (node, outcome)
        };
        let mut waiting: VecDeque<Arc<Node>> = self.ranked().0.into();
        // Who contradicted comes last, but it comes: an honest node whose newest block lost against that of two others looks
        // the same, and without its vote a single liar among the rest could block every answer until the pause is over.
        waiting.extend(self.nodes.iter().filter(|node| lock(&node.standing).outvoted()).map(Arc::clone));
        let mut running = FuturesUnordered::new();
        if let Some(probe) = &probe {
            waiting.retain(|node| !Arc::ptr_eq(node, &probe.node));
            running.push(ask(Arc::clone(&probe.node)));
        }
        let mut votes = Votes { groups: Vec::new(), lacks: None, lost: false };
        // Asked and still expected to answer soon; probes and those that let us wait are not.
        let mut expected: Vec<Arc<Node>> = Vec::new();
        let mut probed = probe.is_none();
        let mut over = pin!(tokio::time::sleep(self.settings.procedure_deadline));
        let mut hedge = pin!(tokio::time::sleep(self.settings.hedge));
        while votes.best() < quorum {
            while votes.best() + expected.len() < quorum {
                let Some(node) = waiting.pop_front() else { break };
                expected.push(Arc::clone(&node));
                running.push(ask(node));
                hedge.set(tokio::time::sleep(self.settings.hedge));
            }
            // Not even all of them together could make a quorum any more.
            if votes.best() + running.len() + waiting.len() < quorum {
                break;
            }
            tokio::select! {
                biased;
                Some((node, outcome)) = running.next() => {
                    expected.retain(|known| !Arc::ptr_eq(known, &node));
                    probed |= is_probe(probe.as_ref(), &node);
                    take(&mut votes, probe.as_ref(), node, outcome);
                }
                () = &mut hedge, if !waiting.is_empty() => expected.clear(),
                () = &mut over => {
                    votes.lost = true;
                    break;
                }
            }
        }
        if let Some(probe) = probe.as_ref().filter(|_| !probed && votes.best() >= quorum) {
            self.finish_probe(&mut running, probe, &mut votes).await;
        }
        votes
    }

    /// A probe may hold up the answer a little, once per pause: else a slower node would never come back.
    async fn finish_probe<T, S>(&self, running: &mut S, probe: &Probe, votes: &mut Votes<T>)
    where
        S: futures_util::Stream<Item = (Arc<Node>, Result<T, CallError>)> + Unpin,
        T: PartialEq,
    {
        let wait = async {
            while let Some((node, outcome)) = running.next().await {
                let done = Arc::ptr_eq(&node, &probe.node);
                take(votes, Some(probe), node, outcome);
                if done {
                    return;
                }
            }
        };
        if tokio::time::timeout(self.settings.hedge, wait).await.is_err() {
            self.too_slow(&probe.node);
        }
    }

    fn count<T: Debug>(&self, mut votes: Votes<T>, ahead: impl Fn(&T, &T) -> Option<u64>) -> Result<T, ChainError> {
        let wanted = self.quorum();
        let Some(winner) = votes.groups.iter().position(|group| group.by.len() >= wanted) else {
            let agreed = votes.groups.iter().map(|group| group.by.len()).max().unwrap_or(0);
            if votes.groups.len() > 1 {
                self.tell(Event::Disagreement { answers: votes.groups.len(), agreed, wanted });
            }
            // Nobody failed and nobody disagrees: there is no quorum because too few have what is asked for.
            return match votes.lacks.filter(|_| votes.groups.len() <= 1 && !votes.lost) {
                Some(error) => Err(ChainError::Refused(error)),
                None => Err(ChainError::NoQuorum { wanted, agreed }),
            };
        };
        let winner = votes.groups.swap_remove(winner);
        for node in &winner.by {
            self.agrees(node);
        }
        let agreed = winner.by.len();
        for group in votes.groups {
            // `None`: an answer and a refusal, which are no contradiction. Inside: from which height on it says more.
            let beyond = match (&winner.said, &group.said) {
                (Said::Answer(agreed), Said::Answer(one)) => Some(ahead(one, agreed)),
                _ => None,
            };
            for node in group.by {
                if beyond.is_some_and(|from| !from.is_some_and(|from| self.may_be_ahead(&node, from))) {
                    self.contradicts(&node, agreed);
                } else {
                    self.tell(Event::Differs { endpoint: node.name().to_owned(), agreed });
                }
            }
        }
        match winner.said {
            Said::Answer(answer) => Ok(answer),
            Said::Refused(error) => Err(ChainError::Refused(error)),
        }
    }
}

fn is_probe(probe: Option<&Probe>, node: &Arc<Node>) -> bool {
    probe.is_some_and(|probe| Arc::ptr_eq(&probe.node, node))
}

fn take<T: PartialEq>(votes: &mut Votes<T>, probe: Option<&Probe>, node: Arc<Node>, outcome: Result<T, CallError>) {
    // One that lags says what was true some time ago. That is neither a vote nor a lie.
    if is_probe(probe, &node) && lock(&node.standing).lags() {
        return;
    }
    match outcome {
        Ok(answer) => votes.add(node, Said::Answer(answer)),
        Err(error @ CallError::Refused { .. }) => votes.add(node, Said::Refused(error)),
        Err(error @ CallError::Lacks { .. }) => votes.lacks = Some(error),
        Err(_) => votes.lost = true,
    }
}

/// For lists of blocks, in the order of their heights' list: the lowest block that one node has and the others do not, if all
/// the others are the same.
pub(crate) fn ahead<B: PartialEq>(one: &[Option<B>], agreed: &[Option<B>], heights: &[u64]) -> Option<u64> {
    let mut lowest = None;
    for ((one, agreed), height) in one.iter().zip(agreed).zip(heights) {
        match (one, agreed) {
            (Some(_), None) => lowest = Some(lowest.map_or(*height, |lowest: u64| lowest.min(*height))),
            (one, agreed) if one == agreed => {}
            _ => return None,
        }
    }
    lowest
}

/// Notes how long a node let us wait that was given up, so that it comes later in the row next time.
struct Late<'a> {
    pool: &'a Pool,
    node: &'a Node,
    began: u64,
    given_up: bool,
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        let waited = self.pool.ticks.now().saturating_sub(self.began);
        if self.given_up && waited >= super::pace::micros(self.pool.settings.hedge) {
            lock(&self.node.standing).took(waited);
        }
    }
}
