//! Heads that askers bring: whether they are of this log.
//!
//! **Only a head that this signer gave can stop it.** Whoever comes with one that the log lacks is refused; if its proof is good, the log is an old
//! copy, and nothing more is signed for anybody. A head that is older than memory is looked for by another thread.

use super::{Call, Decider, SignCall, Unanswered};
use crate::keys::Keyring;
use crate::log::folder::Folder;
use crate::log::{Head, LogError};
use crate::wire::HeadBody;

/// So many heads that were found in the log are kept.
const MOST_FOUND: usize = 4_096;

/// Where a head is that somebody brings.
pub(super) enum Place {
    Within,
    /// Before what is in memory, and given by this signer.
    Long,
    /// The log does not contain it, and nothing shows that this signer gave it.
    Nowhere,
    /// This signer gave it, and the log does not contain it.
    OldCopy(LogError),
}

pub(super) const fn why_not(error: &LogError) -> Unanswered {
    match error {
        LogError::RolledBack { .. } | LogError::Diverged { .. } => Unanswered::RolledBack,
        LogError::Storage { .. }
        | LogError::Damaged { .. }
        | LogError::Policy(_)
        | LogError::ClockBack
        | LogError::TooLong
        | LogError::Stopped => Unanswered::Stopped,
    }
}

/// A head with its proof.
pub(in crate::service) fn shown(keyring: &Keyring, head: Head) -> HeadBody {
    HeadBody { proof: keyring.prove(&head), ..head.into() }
}

impl<F> Decider<F>
where
    F: Folder + Send + 'static,
    F::File: Send + 'static,
{
    /// The calls whose askers were answered from this log. Whoever was answered from a newer one is told so before anything is decided.
    pub(super) fn admit(&mut self, batch: Vec<SignCall>) -> Result<Vec<SignCall>, LogError> {
        let mut admitted = Vec::with_capacity(batch.len());
        let mut rest = batch.into_iter();
        while let Some(call) = rest.next() {
            let place = call.pinned.map_or(Place::Within, |pinned| self.place(&pinned));
            match (place, call.pinned) {
                (Place::Within, _) => admitted.push(call),
                (Place::Long, Some(pinned)) => self.look(pinned.into(), Call::Sign(call)),
                (Place::Nowhere | Place::Long, _) => Call::Sign(call).answer(Unanswered::RolledBack),
                (Place::OldCopy(error), _) => {
                    Call::Sign(call).answer(why_not(&error));
                    admitted.into_iter().chain(rest).for_each(|call| Call::Sign(call).turn_away());
                    return Err(error);
                }
            }
        }
        Ok(admitted)
    }

    /// Where an asker's head is.
    pub(super) fn place(&mut self, pinned: &HeadBody) -> Place {
        let head = Head::from(*pinned);
        if self.found.get(&head.entries) == Some(&head.hash) {
            return Place::Within;
        }
        let given = || pinned.proof.is_some_and(|proof| self.keyring.has_given(&head, &proof));
        match self.authorizer.check_recent(&head) {
            Some(Ok(())) => {
                self.remember(head);
                Place::Within
            }
            Some(Err(error)) if given() => Place::OldCopy(error),
            // Whoever has a key could make the disk busy with heads of his own invention.
            None if given() => Place::Long,
            Some(Err(_)) | None => {
                tracing::warn!(entries = head.entries, "somebody came with a head that this signer did not give");
                Place::Nowhere
            }
        }
    }

    pub(super) fn remember(&mut self, head: Head) {
        self.found.insert(head.entries, head.hash);
        while self.found.len() > MOST_FOUND {
            self.found.pop_first();
        }
    }

    /// Has another thread look for an old head; the call goes on when it was found. One at a time.
    pub(super) fn look(&mut self, pinned: Head, call: Call) {
        let Some(calls) = self.calls.upgrade().filter(|_| !self.looking) else { return call.answer(Unanswered::Busy) };
        let old = self.authorizer.old_heads();
        let looked = move || {
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| old.check(&pinned)));
            let result = checked.unwrap_or(Err(LogError::Stopped));
            // A decider that has ended answers nobody; who waits is told that it is gone.
            calls.blocking_send(Call::Looked { pinned, result, call: Box::new(call) }).ok();
        };
        let spawned = std::thread::Builder::new().name("signer-old-head".to_owned()).spawn(looked);
        // Without a thread the call is dropped, and so its asker asks again.
        self.looking = spawned.is_ok();
    }
}
