//! A signer within the process, on a folder in memory: the same keys, policy, slots and log as the service, without a socket. For tests and
//! simulations, whose keys everybody knows; production is built without it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::Clock;
use tx::{Address, Group};

use crate::authorizer::Authorizer;
use crate::client::{SignAnswer, SignerError};
use crate::clock::Moment;
use crate::digest::hex;
use crate::intent::{Addresses, SignRequest};
use crate::keys::Keyring;
use crate::log::folder::{Folder, FolderFile};
use crate::names::{GroupId, JobId};
use crate::policy::signed::{PolicySignature, SigningKey};
use crate::verdict::Verdict;

type Bytes = Arc<Mutex<Vec<u8>>>;

/// Files in memory. Clones are the same folder.
#[derive(Clone, Default)]
pub struct MemoryFolder(Arc<Mutex<BTreeMap<String, Bytes>>>);

/// A file of it.
pub struct MemoryFile(Bytes);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Folder for MemoryFolder {
    type File = MemoryFile;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(locked(&self.0).keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        let file = Bytes::default();
        locked(&self.0).insert(name.to_owned(), Arc::clone(&file));
        Ok(MemoryFile(file))
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        locked(&self.0).get(name).map(|file| MemoryFile(Arc::clone(file))).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = locked(&self.0);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        locked(&self.0).remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("memory/{name}")
    }

    fn room(&self) -> usize {
        0
    }

    fn reader(&self) -> Self {
        self.clone()
    }
}

fn place(at: u64) -> io::Result<usize> {
    usize::try_from(at).map_err(io::Error::other)
}

impl FolderFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        u64::try_from(locked(&self.0).len()).map_err(io::Error::other)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = locked(&self.0);
        let rest = bytes.get(place(at)?..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let mut file = locked(&self.0);
        let (from, to) = (place(at)?, place(at)?.saturating_add(bytes.len()));
        if file.len() < to {
            file.resize(to, 0);
        }
        file[from..to].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        locked(&self.0).truncate(place(length)?);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The signer itself.
pub struct LocalSigner {
    authorizer: Mutex<Authorizer<MemoryFolder>>,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
}

fn moment(clock: &dyn Clock) -> Moment {
    let now = clock.now();
    Moment { date: now, uptime_us: now.micros() }
}

fn trouble(error: impl std::fmt::Display) -> SignerError {
    SignerError::Unavailable { code: "SIGNER_UNAVAILABLE".to_owned(), why: error.to_string() }
}

/// The only administrator of a local signer: everybody has this key.
fn administrator() -> Option<SigningKey> {
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend_from_slice(&[7; 32]);
    SigningKey::read(&der)
}

impl LocalSigner {
    /// With a policy whose administrators are added here: `policy` is all but them.
    pub fn new(policy: &str, keyring: Keyring, clock: Arc<dyn Clock>) -> Result<Self, SignerError> {
        Self::open(MemoryFolder::default(), policy, Arc::new(keyring), clock)
    }

    /// On a folder that another had before: what was signed is remembered.
    pub fn open(
        folder: MemoryFolder,
        policy: &str,
        keyring: Arc<Keyring>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SignerError> {
        let key = administrator().ok_or_else(|| trouble("the administrator's key"))?;
        let administrators =
            format!("administrators = {{ needed = 1, keys = {{ ada = \"{}\" }} }}", hex(&key.public()));
        let text = format!("{administrators}\n{policy}");
        let now = moment(&*clock);
        let mut authorizer = Authorizer::open(folder, None, now).map_err(trouble)?;
        let signature =
            PolicySignature { by: "ada".parse().map_err(trouble)?, signature: key.sign_policy(text.as_bytes()) };
        authorizer.apply_policy(text.as_bytes(), &[signature], now).map_err(trouble)?;
        Ok(Self { authorizer: Mutex::new(authorizer), keyring, clock })
    }

    /// A group as the server pins it.
    pub fn group(&self, id: &GroupId) -> Option<Group> {
        self.keyring.group(id).ok().cloned()
    }

    /// How many entries its log has.
    pub fn entries(&self) -> u64 {
        locked(&self.authorizer).head().entries
    }

    /// In how many slots each job was signed.
    pub fn rounds(&self, jobs: &[JobId]) -> Vec<Option<u32>> {
        let authorizer = locked(&self.authorizer);
        jobs.iter().map(|job| authorizer.rounds(*job)).collect()
    }

    /// As the service answers a batch.
    pub fn sign(&self, requests: &[SignRequest]) -> Result<Vec<SignAnswer>, SignerError> {
        let mut authorizer = locked(&self.authorizer);
        let decided = authorizer.decide(requests, moment(&*self.clock), &*self.keyring);
        let verdicts = decided.map_err(|error| SignerError::Unknown { why: error.to_string() })?.verdicts;
        let answer = |(request, verdict): (&SignRequest, Verdict)| match verdict {
            Verdict::Approved { approved, policy, rule } => {
                let signed = self.keyring.sign(&approved).map_err(trouble)?;
                let from: Option<Address> = Addresses::address(&*self.keyring, &request.group, request.index);
                let from = from.filter(|_| request.bitcoin.is_none());
                Ok(SignAnswer::Signed { signed, from, policy, rule })
            }
            Verdict::Refused { refusal, policy, rule } => Ok(SignAnswer::Refused {
                code: refusal.code().to_owned(),
                message: refusal.to_string(),
                signed_before: authorizer.state().requests.get(&request.id).is_some(),
                holder: refusal.holder(),
                policy,
                rule,
            }),
        };
        requests.iter().zip(verdicts).map(answer).collect()
    }
}
