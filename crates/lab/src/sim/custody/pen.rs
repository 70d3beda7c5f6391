//! The signer's own core, and how it fails: away, or its answer is lost after it has signed; or it refuses one of several for a while, which leaves a
//! gap in the nonces.

use std::sync::Arc;

use custody::outbound::Signs;
use custody::withdrawal::Remembers;
use futures_util::future::BoxFuture;
use signer::client::{SignAnswer, SignerError};
use signer::local::LocalSigner;
use signer::names::JobId as SignedJob;
use signer::{IntentKind, SignRequest};
use store::signer_head::SignerHead;

use super::super::turn::{die, park};
use super::world::Shared;

pub(crate) struct Pen {
    pub world: Shared,
    pub signer: Arc<LocalSigner>,
}

impl Pen {
    async fn ask(&self, requests: &[SignRequest]) -> Result<Vec<SignAnswer>, SignerError> {
        let away = SignerError::Unavailable { code: "SIGNER_UNAVAILABLE".to_owned(), why: "it is away".to_owned() };
        let dies = |before: bool| {
            let mut world = self.world.lock();
            let dies = world.chance(1_500);
            world.report.killed_before_call += u64::from(dies && before);
            world.report.killed_after_call += u64::from(dies && !before);
            dies
        };
        if dies(true) {
            die(&self.world).await;
        }
        park(&self.world).await;
        {
            let mut world = self.world.lock();
            if !world.calm && world.turn < world.away_until {
                world.report.signer_away += 1;
                return Err(away);
            }
        }
        let answers = self.decide(requests)?;
        park(&self.world).await;
        if dies(false) {
            die(&self.world).await;
        }
        let mut world = self.world.lock();
        world.note(7 + answers.len() as u64);
        if world.chance(3_000) {
            world.report.answers_lost += 1;
            return Err(SignerError::Unknown { why: "no answer came".to_owned() });
        }
        Ok(answers)
    }
}

impl Pen {
    /// Now and then a cap is reached by one of several requests, of those for which nothing was ever signed. Whoever asks the same again, or has asked
    /// it before and hears of it later, hears the same: else something would be signed for a slot that was released.
    fn decide(&self, requests: &[SignRequest]) -> Result<Vec<SignAnswer>, SignerError> {
        let chosen = {
            let mut world = self.world.lock();
            let refuses = requests.len() > 1 && world.chance(4_000);
            refuses.then(|| world.random.index(requests.len()))
        };
        let is_new = |request: &&SignRequest| {
            let jobs: Vec<SignedJob> = request.intents.iter().map(|intent| intent.job).collect();
            let pays = request.intents.iter().all(|intent| matches!(intent.kind, IntentKind::Pay { .. }));
            pays && self.signer.rounds(&jobs).iter().all(|signed| *signed == Some(0))
        };
        if let Some(request) = chosen.and_then(|at| requests.get(at)).filter(is_new) {
            let mut world = self.world.lock();
            world.report.signer_refused += 1;
            world.refused.insert(request.id.clone());
        }
        let refused: Vec<bool> = {
            let world = self.world.lock();
            requests.iter().map(|request| world.refused.contains(&request.id)).collect()
        };
        let asked = requests.iter().zip(&refused).filter(|(_, refused)| !**refused);
        let asked: Vec<SignRequest> = asked.map(|(request, _)| request.clone()).collect();
        let answers = if asked.is_empty() { Vec::new() } else { self.signer.sign(&asked)? };
        let mut answers = answers.into_iter();
        let answer = |refused: &bool| if *refused { Some(cap_reached()) } else { answers.next() };
        Ok(refused.iter().filter_map(answer).collect())
    }

    /// What it has signed, with the same troubles.
    async fn remember(&self, jobs: &[SignedJob]) -> Result<Vec<Option<u32>>, SignerError> {
        park(&self.world).await;
        {
            let mut world = self.world.lock();
            if !world.calm && world.turn < world.away_until {
                world.report.signer_away += 1;
                return Err(SignerError::Unavailable {
                    code: "SIGNER_UNAVAILABLE".to_owned(),
                    why: "it is away".to_owned(),
                });
            }
        }
        let answers = self.signer.rounds(jobs);
        park(&self.world).await;
        Ok(answers)
    }
}

impl Remembers for Pen {
    fn rounds<'a>(&'a self, jobs: &'a [SignedJob]) -> BoxFuture<'a, Result<Vec<Option<u32>>, SignerError>> {
        Box::pin(self.remember(jobs))
    }
}

fn cap_reached() -> SignAnswer {
    let (code, message) = ("SIGNER_CAP_REACHED".to_owned(), "no more in this hour".to_owned());
    let rule = "hot/native/hour".to_owned();
    SignAnswer::Refused { code, message, signed_before: false, holder: None, policy: 1, rule }
}

/// The signer's core as people ask it.
pub(crate) struct Memory(pub Arc<LocalSigner>);

impl Remembers for Memory {
    fn rounds<'a>(&'a self, jobs: &'a [SignedJob]) -> BoxFuture<'a, Result<Vec<Option<u32>>, SignerError>> {
        Box::pin(async move { Ok(self.0.rounds(jobs)) })
    }
}

impl Signs for Pen {
    fn is_ready(&self) -> bool {
        true
    }

    fn sign<'a>(&'a self, requests: &'a [SignRequest]) -> BoxFuture<'a, Result<Vec<SignAnswer>, SignerError>> {
        Box::pin(self.ask(requests))
    }

    fn head(&self) -> Option<(String, SignerHead)> {
        None
    }
}
