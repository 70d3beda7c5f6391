//! The state from bytes. One thread reads and hashes, another makes the state of what was read; it is given out only if the hash
//! fits and every byte was explained.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use domain::Timestamp;
use ring::digest::{Context, SHA256};

use super::{CANCELLED, HAS_SELDOM, HELD, HELD_INPUTS, HELD_NONCE, HELD_UNTIL, LONGEST_TEXT, MAGIC, SLICE, json};
use crate::caps::{SpentByMinute, Window};
use crate::log::Head;
use crate::log::folder::{FolderFile, read_all};
use crate::names::{JobKey, RequestKey};
use crate::policy::file::parse;
use crate::policy::signed::{Accepted, Policies};
use crate::slot::{Chains, KeptHeld, KeptInput, KeptNonce, KeptUntil};
use crate::slots::{KeptJob, Seldom, Slots, payloads_of};
use crate::sorted::Sorted;
use crate::state::{Remembered, Requests, State};
use crate::text::{Hash, RawText, SpentOutput};

const CHECK: u64 = 32;
/// Slices that are read and not taken up yet.
const WAITING: usize = 4;

/// Fills the buffer, or as much of it as the file has.
fn read_slice(file: &impl FolderFile, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let place = at.saturating_add(u64::try_from(filled).map_err(io::Error::other)?);
        match file.read_at(&mut buffer[filled..], place) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// `Ok(None)`: it is damaged.
pub(in crate::log) fn read(file: &impl FolderFile) -> io::Result<Option<(Head, State)>> {
    let mut start = vec![0; MAGIC.len()];
    let length = read_slice(file, &mut start, 0)?;
    if start[..length] != *MAGIC {
        return Ok(json::read(&read_all(file)?));
    }
    let Some(length) = file.length()?.checked_sub(CHECK) else { return Ok(None) };
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::scope(|threads| {
        let making = std::thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn_scoped(threads, move || Source { slices: receiver, slice: Vec::new(), at: 0 }.snapshot())?;
        let whole = pass_on(file, length, sender)?;
        // What was made of bytes that do not fit their hash is thrown away.
        Ok(making.join().ok().flatten().filter(|_| whole))
    })
}

/// Gives the slices to the other thread. Whether the hash behind them is theirs.
fn pass_on(file: &impl FolderFile, length: u64, slices: SyncSender<Vec<u8>>) -> io::Result<bool> {
    let (mut hash, mut at) = (Context::new(&SHA256), 0);
    while at < length {
        let wanted = usize::try_from(length - at).unwrap_or(SLICE).min(SLICE);
        let mut slice = vec![0; wanted];
        if read_slice(file, &mut slice, at)? < wanted {
            return Ok(false);
        }
        hash.update(&slice);
        at = at.saturating_add(u64::try_from(wanted).map_err(io::Error::other)?);
        if slices.send(slice).is_err() {
            // The other thread met something that is not of a snapshot.
            return Ok(false);
        }
    }
    let mut check = [0; 32];
    Ok(read_slice(file, &mut check, length)? == check.len() && hash.finish().as_ref() == check)
}

/// What was read, in its order. `None` everywhere: it is not as we write it.
struct Source {
    slices: Receiver<Vec<u8>>,
    slice: Vec<u8>,
    at: usize,
}

impl Source {
    /// Some bytes of the slice that is read now, at most so many; none at the end.
    fn some(&mut self, most: usize) -> Option<&[u8]> {
        while self.at >= self.slice.len() {
            self.slice = self.slices.recv().ok()?;
            self.at = 0;
        }
        let from = self.at;
        self.at = self.slice.len().min(from.saturating_add(most));
        self.slice.get(from..self.at)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        if let Some(bytes) = self.slice.get(self.at..).and_then(|rest| rest.first_chunk::<N>()) {
            self.at += N;
            return Some(*bytes);
        }
        let (mut array, mut filled) = ([0; N], 0);
        while filled < N {
            let bytes = self.some(N - filled)?;
            array.get_mut(filled..filled + bytes.len())?.copy_from_slice(bytes);
            filled += bytes.len();
        }
        Some(array)
    }

    fn count(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn micros(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.micros().map(Timestamp::from_micros)
    }

    fn hash(&mut self) -> Option<Hash> {
        self.array().map(Hash)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.array().map(u32::from_be_bytes).filter(|length| *length <= LONGEST_TEXT)?;
        let (length, mut bytes) = (usize::try_from(length).ok()?, Vec::new());
        while bytes.len() < length {
            let more = self.some(length - bytes.len())?;
            bytes.extend_from_slice(more);
        }
        String::from_utf8(bytes).ok()
    }

    fn parsed<T: FromStr>(&mut self) -> Option<T> {
        self.text()?.parse().ok()
    }

    /// A list whose keys are in their order, each once.
    fn map<K: Ord, V>(&mut self, read: impl Fn(&mut Self) -> Option<(K, V)>) -> Option<BTreeMap<K, V>> {
        let mut map = BTreeMap::new();
        for _ in 0..self.count()? {
            let (key, value) = read(self)?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return None;
            }
            map.insert(key, value);
        }
        Some(map)
    }

    /// Keys that come in their order.
    fn sorted<K: Ord + Copy, V: Clone>(&mut self, read: impl Fn(&mut Self) -> Option<(K, V)>) -> Option<Sorted<K, V>> {
        let mut sorted = Sorted::default();
        for _ in 0..self.count()? {
            let (key, value) = read(self)?;
            sorted.push(key, value).ok()?;
        }
        Some(sorted)
    }

    /// Keys that come in any order: the next one will be among those that are here.
    fn roomy<K: Ord + Copy, V: Clone>(&mut self, read: impl Fn(&mut Self) -> Option<(K, V)>) -> Option<Sorted<K, V>> {
        let mut sorted = Sorted::default();
        for _ in 0..self.count()? {
            let (key, value) = read(self)?;
            sorted.push_roomy(key, value).ok()?;
        }
        Some(sorted)
    }

    /// There or not.
    fn optional<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.count()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut list = Vec::new();
        for _ in 0..self.count()? {
            list.push(read(self)?);
        }
        Some(list)
    }

    fn key(&mut self) -> Option<JobKey> {
        let key = JobKey(self.array()?);
        key.job().map(|_| key)
    }

    fn nonce(&mut self, chains: &Chains) -> Option<KeptNonce> {
        let slot = KeptNonce { chain: self.array()?, account: self.array()?, nonce: self.array()? };
        chains.name(slot.chain).map(|_| slot)
    }

    fn input(&mut self, chains: &Chains) -> Option<KeptInput> {
        let slot = KeptInput { chain: self.array()?, transaction: self.array()?, output: self.array()? };
        chains.name(slot.chain).map(|_| slot)
    }

    fn job(&mut self, chains: &Chains) -> Option<(JobKey, KeptJob)> {
        let key = self.key()?;
        let [kind] = self.array()?;
        if kind & !(HELD | CANCELLED | HAS_SELDOM) != 0 {
            return None;
        }
        let (payment, intent) = (self.hash()?, self.hash()?);
        let (round, small_fee) = (u32::from_be_bytes(self.array()?), u64::from_be_bytes(self.array()?));
        let held = match kind & HELD {
            HELD_NONCE => KeptHeld::Nonce(self.nonce(chains)?),
            HELD_INPUTS => KeptHeld::Inputs(self.list(|source| source.input(chains))?.into()),
            HELD_UNTIL => KeptHeld::Until(Box::new(KeptUntil { micros: self.micros()?, payload: self.hash()? })),
            _ => return None,
        };
        let cancelled = kind & CANCELLED != 0;
        let mut job = KeptJob { payment, intent, held, seldom: None, small_fee, round, cancelled };
        if kind & HAS_SELDOM != 0 {
            job.set_seldom(self.seldom()?);
            job.seldom.as_ref()?;
        }
        Some((key, job))
    }

    fn seldom(&mut self) -> Option<Seldom> {
        Some(Seldom {
            cancels: self.list(|source| source.key()?.job())?,
            approved: self.optional(Self::hash)?,
            builds: self.map(|source| Some((source.hash()?, u32::from_be_bytes(source.array()?))))?,
            large_fee: self.optional(|source| source.parsed::<RawText>().map(|fee| fee.0))?,
        })
    }

    fn sums(&mut self) -> Option<BTreeMap<i64, RawText>> {
        self.map(|source| Some((source.micros()?, source.parsed()?)))
    }

    fn policies(&mut self) -> Option<Policies> {
        let read = |source: &mut Self| {
            let text = source.text()?;
            let policy = parse(text.as_bytes()).ok()?;
            Some(Accepted { policy, text, effective: source.time()? })
        };
        self.list(read).map(Policies::restore)
    }

    fn window(&mut self) -> Option<(String, Window)> {
        Some((self.text()?, Window { minutes: self.sums()?, hours: self.sums()? }))
    }

    fn amount(&mut self) -> Option<(SpentOutput, u64)> {
        let output = SpentOutput(tx::TxHash(self.array()?), u32::from_be_bytes(self.array()?));
        Some((output, u64::from_be_bytes(self.array()?)))
    }

    fn state(&mut self) -> Option<State> {
        let (last, forgotten_before) = (self.time()?, self.time()?);
        let policies = self.policies()?;
        let chains = Chains::of(self.list(Self::parsed)?)?;
        let spent = SpentByMinute(self.map(Self::window)?);
        let counters = self.map(|source| {
            let counter = |source: &mut Self| Some((u32::from_be_bytes(source.array()?), source.hash()?));
            Some((source.parsed()?, source.map(counter)?))
        })?;
        let revoked = self.map(|source| Some(((source.hash()?, source.parsed()?), ())))?;
        let revoked: BTreeSet<_> = revoked.into_keys().collect();
        let amounts = self.map(|source| Some((source.text()?, source.roomy(Self::amount)?)))?;
        let jobs = self.sorted(|source| source.job(&chains))?;
        let nonces = self.roomy(|source| Some(((source.nonce(&chains)?, source.key()?), ())))?;
        let inputs = self.roomy(|source| Some(((source.input(&chains)?, source.key()?), ())))?;
        let requests = self.roomy(|source| {
            let key = RequestKey(source.array()?);
            Some((key, Remembered { content: source.hash()?, at: source.micros()? }))
        })?;
        let requests = Requests(requests);
        let payloads = payloads_of(&jobs)?;
        let slots = Slots { chains, jobs, nonces, inputs, payloads };
        Some(State { policies, slots, spent, amounts, requests, counters, revoked, last, forgotten_before })
    }

    fn snapshot(mut self) -> Option<(Head, State)> {
        for expected in MAGIC {
            if self.array()? != [*expected] {
                return None;
            }
        }
        let head = Head { entries: self.count()?, hash: self.hash()? };
        let state = self.state()?;
        // Behind the last record there is nothing.
        self.some(1).is_none().then_some((head, state))
    }
}
