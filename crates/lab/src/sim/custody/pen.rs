//! The signer's own core, and how it fails: away, or its answer is lost after it has signed.

use std::sync::Arc;

use custody::outbound::Signs;
use custody::withdrawal::Remembers;
use futures_util::future::BoxFuture;
use signer::SignRequest;
use signer::client::{SignAnswer, SignerError};
use signer::local::LocalSigner;
use signer::names::JobId as SignedJob;
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
        let answers = self.signer.sign(requests)?;
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
