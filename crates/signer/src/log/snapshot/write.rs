//! The state as bytes, in slices.

use std::collections::BTreeMap;
use std::io;

use ring::digest::{Context, SHA256};

use super::{CANCELLED, HAS_SELDOM, HELD_INPUTS, HELD_NONCE, HELD_UNTIL, MAGIC, SLICE};
use crate::log::Head;
use crate::log::folder::{FolderFile, write_all};
use crate::names::JobKey;
use crate::slot::{KeptHeld, KeptInput, KeptNonce};
use crate::slots::{KeptJob, Seldom};
use crate::state::State;
use crate::text::RawText;

struct Sink<'a, W> {
    file: &'a W,
    slice: Vec<u8>,
    at: u64,
    hash: Context,
}

impl<W: FolderFile> Sink<'_, W> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.slice.extend_from_slice(bytes);
        if self.slice.len() >= SLICE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hash.update(&self.slice);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        write_all(self.file, &self.slice, self.at)?;
        self.at = self.at.saturating_add(u64::try_from(self.slice.len()).map_err(io::Error::other)?);
        self.slice.clear();
        Ok(())
    }

    fn count(&mut self, things: usize) -> io::Result<()> {
        self.bytes(&u64::try_from(things).map_err(io::Error::other)?.to_be_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.bytes(&u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes())?;
        self.bytes(text.as_bytes())
    }

    fn sums(&mut self, sums: &BTreeMap<i64, RawText>) -> io::Result<()> {
        self.count(sums.len())?;
        for (at, sum) in sums {
            self.bytes(&at.to_be_bytes())?;
            self.text(&sum.to_string())?;
        }
        Ok(())
    }

    fn job(&mut self, key: &JobKey, job: &KeptJob) -> io::Result<()> {
        let held = match &job.held {
            KeptHeld::Nonce(_) => HELD_NONCE,
            KeptHeld::Inputs(_) => HELD_INPUTS,
            KeptHeld::Until(_) => HELD_UNTIL,
        };
        let cancelled = if job.cancelled { CANCELLED } else { 0 };
        let seldom = if job.seldom.is_some() { HAS_SELDOM } else { 0 };
        self.bytes(&key.0)?;
        self.bytes(&[held | cancelled | seldom])?;
        self.bytes(&job.payment.0)?;
        self.bytes(&job.intent.0)?;
        self.bytes(&job.round.to_be_bytes())?;
        self.bytes(&job.small_fee.to_be_bytes())?;
        match &job.held {
            KeptHeld::Nonce(nonce) => self.nonce(nonce)?,
            KeptHeld::Inputs(core) => {
                self.count(core.len())?;
                core.iter().try_for_each(|input| self.input(input))?;
            }
            KeptHeld::Until(until) => {
                self.bytes(&until.micros.to_be_bytes())?;
                self.bytes(&until.payload.0)?;
            }
        }
        job.seldom.as_ref().map_or(Ok(()), |seldom| self.seldom(seldom))
    }

    fn seldom(&mut self, seldom: &Seldom) -> io::Result<()> {
        self.count(seldom.cancels.len())?;
        seldom.cancels.iter().try_for_each(|job| self.bytes(&JobKey::from(*job).0))?;
        self.count(seldom.approved.iter().len())?;
        seldom.approved.iter().try_for_each(|hash| self.bytes(&hash.0))?;
        self.count(seldom.builds.len())?;
        for (intent, built) in &seldom.builds {
            self.bytes(&intent.0)?;
            self.bytes(&built.to_be_bytes())?;
        }
        self.count(seldom.large_fee.iter().len())?;
        seldom.large_fee.iter().try_for_each(|fee| self.text(&fee.to_string()))
    }

    fn nonce(&mut self, slot: &KeptNonce) -> io::Result<()> {
        self.bytes(&slot.chain)?;
        self.bytes(&slot.account)?;
        self.bytes(&slot.nonce)
    }

    fn input(&mut self, slot: &KeptInput) -> io::Result<()> {
        self.bytes(&slot.chain)?;
        self.bytes(&slot.transaction)?;
        self.bytes(&slot.output)
    }

    fn small(&mut self, state: &State) -> io::Result<()> {
        self.bytes(&state.last.micros().to_be_bytes())?;
        self.bytes(&state.forgotten_before.micros().to_be_bytes())?;
        self.count(state.policies.all().count())?;
        for policy in state.policies.all() {
            self.text(&policy.text)?;
            self.bytes(&policy.effective.micros().to_be_bytes())?;
        }
        self.count(state.slots.chains.names().len())?;
        state.slots.chains.names().iter().try_for_each(|name| self.text(name.as_str()))?;
        self.count(state.spent.0.len())?;
        for (key, window) in &state.spent.0 {
            self.text(key)?;
            self.sums(&window.minutes)?;
            self.sums(&window.hours)?;
        }
        self.count(state.counters.len())?;
        for (key, counters) in &state.counters {
            self.text(key.as_str())?;
            self.count(counters.len())?;
            for (counter, digest) in counters {
                self.bytes(&counter.to_be_bytes())?;
                self.bytes(&digest.0)?;
            }
        }
        self.count(state.revoked.len())?;
        for (digest, person) in &state.revoked {
            self.bytes(&digest.0)?;
            self.text(person.as_str())?;
        }
        Ok(())
    }

    fn large(&mut self, state: &State) -> io::Result<()> {
        self.count(state.amounts.len())?;
        for (chain, amounts) in &state.amounts {
            self.text(chain)?;
            self.count(amounts.len())?;
            for (output, satoshi) in amounts.iter() {
                self.bytes(&output.0.0)?;
                self.bytes(&output.1.to_be_bytes())?;
                self.bytes(&satoshi.to_be_bytes())?;
            }
        }
        let slots = &state.slots;
        self.count(slots.jobs.len())?;
        slots.jobs.iter().try_for_each(|(key, job)| self.job(key, job))?;
        self.count(slots.nonces.len())?;
        for ((slot, job), ()) in slots.nonces.iter() {
            self.nonce(slot)?;
            self.bytes(&job.0)?;
        }
        self.count(slots.inputs.len())?;
        for ((slot, job), ()) in slots.inputs.iter() {
            self.input(slot)?;
            self.bytes(&job.0)?;
        }
        self.count(state.requests.len())?;
        for (key, remembered) in state.requests.0.iter() {
            self.bytes(&key.0)?;
            self.bytes(&remembered.content.0)?;
            self.bytes(&remembered.at.to_be_bytes())?;
        }
        Ok(())
    }
}

/// Writes all but the sync.
pub(super) fn write(file: &impl FolderFile, head: &Head, state: &State) -> io::Result<()> {
    let slice = Vec::with_capacity(SLICE + SLICE / 16);
    let mut sink = Sink { file, slice, at: 0, hash: Context::new(&SHA256) };
    sink.bytes(MAGIC)?;
    sink.bytes(&head.entries.to_be_bytes())?;
    sink.bytes(&head.hash.0)?;
    sink.small(state)?;
    sink.large(state)?;
    sink.flush()?;
    let hash = sink.hash.clone().finish();
    sink.slice.extend_from_slice(hash.as_ref());
    sink.write()
}
