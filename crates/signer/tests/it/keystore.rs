//! The encrypted file: what it gives back, what it refuses, and what a crash leaves.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::random::Random;
use signer::keys::keystore::NAME;
use signer::keys::{
    AddressPath, Cost, Entropy, GroupSecret, KeyError, Keyring, Keystore, Passphrase, Purpose, Source, Step, replace,
};
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::made::{ABANDON, JUNK, id, secret};

/// Other bytes each time, the same in each run.
pub struct Seeded(AtomicU64);

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut random = Random::from_seed(self.0.fetch_add(1, Ordering::Relaxed));
        bytes.fill_with(|| random.next_u64().to_le_bytes()[0]);
        Ok(())
    }
}

pub fn seeded(seed: u64) -> Arc<dyn Entropy> {
    Arc::new(Seeded(AtomicU64::new(seed)))
}

const OLD: &str = "the old passphrase";
const NEW: &str = "the new passphrase";

fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(Zeroizing::new(text.as_bytes().to_vec())).expect("long enough")
}

fn keystore(folder: &Path, text: &str) -> Keystore {
    Keystore::new(folder, passphrase(text), Cost::LEAST, seeded(1))
}

fn two() -> Vec<GroupSecret> {
    vec![secret("hot-evm", Purpose::Hot, "evm", 0, JUNK), secret("users-tron", Purpose::Deposit, "tron", 2, ABANDON)]
}

fn made() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    keystore(folder.path(), OLD).create(two()).expect("a keystore");
    folder
}

async fn names(folder: &Path, text: &str) -> Result<Vec<String>, &'static str> {
    let keyring = Keyring::open(&keystore(folder, text)).await.map_err(|error| error.code())?;
    Ok(keyring.groups().map(|group| group.id.to_string()).collect())
}

#[tokio::test]
async fn what_is_kept_comes_back() {
    let folder = made();
    let keyring = Keyring::open(&keystore(folder.path(), OLD)).await.expect("opened");
    let direct = Keyring::of(two()).expect("a keyring");
    let zero = AddressPath::of_number(0).expect("small");
    for group in direct.groups() {
        assert_eq!(keyring.group(&group.id).expect("there"), group);
        assert_eq!(keyring.address(&group.id, zero).expect("one"), direct.address(&group.id, zero).expect("one"));
    }
    let listed = Keystore::listed(folder.path()).expect("without the passphrase");
    assert_eq!(listed, direct.groups().cloned().collect::<Vec<_>>());
    let mode = std::fs::metadata(folder.path().join(NAME)).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(folder.path().join(NAME)).expect("text");
    assert!(text.starts_with("bursar-keystore 1\n") && !text.contains("junk") && !text.contains("abandon"), "{text}");
}

#[tokio::test]
async fn a_group_is_added_once_and_never_changed() {
    let folder = made();
    let store = keystore(folder.path(), OLD);
    store.add(secret("gas", Purpose::Gas, "evm", 1, JUNK)).await.expect("added");
    assert_eq!(names(folder.path(), OLD).await.expect("opened"), ["gas", "hot-evm", "users-tron"]);
    for (again, code) in [
        (secret("gas", Purpose::Gas, "evm", 7, JUNK), "SIGNER_GROUP_EXISTS"),
        (secret("treasury", Purpose::Treasury, "evm", 1, JUNK), "SIGNER_SAME_KEYS"),
    ] {
        assert_eq!(store.add(again).await.expect_err("refused").code(), code);
    }
    assert_eq!(store.create(Vec::new()).expect_err("there is one").code(), "SIGNER_EXISTS");
    assert_eq!(names(folder.path(), OLD).await.expect("opened").len(), 3);
}

#[tokio::test]
async fn a_new_passphrase_opens_and_the_old_one_no_longer_does() {
    let folder = made();
    keystore(folder.path(), OLD).change_passphrase(&passphrase(NEW)).expect("changed");
    assert_eq!(names(folder.path(), NEW).await.expect("opened"), ["hot-evm", "users-tron"]);
    assert_eq!(names(folder.path(), OLD).await, Err("SIGNER_PASSPHRASE_WRONG"));
    assert!(Passphrase::new(Zeroizing::new(b"too short".to_vec())).is_err());
    assert!(Passphrase::new(Zeroizing::new(vec![b'x'; 1_025])).is_err());
}

/// Any other byte anywhere in the file, header or not, and it does not open. Costs that a file may not ask for are refused before
/// they are paid.
#[tokio::test]
async fn a_changed_keystore_does_not_open() {
    let folder = made();
    let file = folder.path().join(NAME);
    let good = std::fs::read(&file).expect("bytes");
    let text = String::from_utf8(good.clone()).expect("text");
    let with = |bytes: &[u8]| std::fs::write(&file, bytes).expect("written");
    // Each would be tried with argon2, so not every byte of a kilobyte.
    for at in (0..good.len()).step_by(good.len() / 40) {
        let mut changed = good.clone();
        changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
        with(&changed);
        assert!(names(folder.path(), OLD).await.is_err(), "byte {at}");
    }
    let replaced = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    for (changed, code) in [
        (replaced("\"purpose\":\"hot\"", "\"purpose\":\"gas\""), "SIGNER_PASSPHRASE_WRONG"),
        (replaced("\"memory_kib\":19456", "\"memory_kib\":19457"), "SIGNER_PASSPHRASE_WRONG"),
        (replaced("\"memory_kib\":19456", "\"memory_kib\":4294967295"), "SIGNER_KEYSTORE_COSTLY"),
        (replaced("\"memory_kib\":19456", "\"memory_kib\":8"), "SIGNER_KEYSTORE_COSTLY"),
        (replaced("\"passes\":2", "\"passes\":1000000"), "SIGNER_KEYSTORE_COSTLY"),
        (replaced("\"lanes\":1", "\"lanes\":0"), "SIGNER_KEYSTORE_COSTLY"),
        (replaced("argon2id", "argon2i"), "SIGNER_KEYSTORE_DAMAGED"),
        (replaced("\"kdf\"", "\"more\":1,\"kdf\""), "SIGNER_KEYSTORE_DAMAGED"),
        (replaced("bursar-keystore 1", "bursar-keystore 2"), "SIGNER_KEYSTORE_NEWER"),
        (replaced("bursar-keystore 1", "bursar-keystore one"), "SIGNER_KEYSTORE_DAMAGED"),
        (String::new(), "SIGNER_KEYSTORE_DAMAGED"),
        ("{}".to_owned(), "SIGNER_KEYSTORE_DAMAGED"),
        (text[..text.len() - 1].to_owned(), "SIGNER_KEYSTORE_DAMAGED"),
        (text[..text.len() - 3].to_owned() + "\n", "SIGNER_PASSPHRASE_WRONG"),
        (format!("{text}\n"), "SIGNER_KEYSTORE_DAMAGED"),
        ("x".repeat(2 << 20), "SIGNER_KEYSTORE_DAMAGED"),
    ] {
        with(changed.as_bytes());
        assert_eq!(names(folder.path(), OLD).await, Err(code), "{}", &changed[..changed.len().min(300)]);
    }
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(names(folder.path(), OLD).await, Err("SIGNER_MISSING"));
    with(&good);
    let set = |mode: u32| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("a mode");
    set(0o600);
    assert_eq!(names(folder.path(), OLD).await.map(|names| names.len()), Ok(2), "the file itself is good");
    for mode in [0o640, 0o604, 0o620, 0o666] {
        set(mode);
        assert_eq!(names(folder.path(), OLD).await, Err("SECRET_EXPOSED"), "{mode:o}");
    }
}

/// A crash is what `between` does here: nothing after it happens.
#[tokio::test]
async fn a_crash_between_any_two_steps_leaves_the_old_keystore_or_the_new_one() {
    let newer = made();
    keystore(newer.path(), OLD).change_passphrase(&passphrase(NEW)).expect("changed");
    let bytes = std::fs::read(newer.path().join(NAME)).expect("bytes");
    for crash in Step::ALL {
        let folder = made();
        let stop = |step: Step| if step == crash { Err(io::Error::other("a crash")) } else { Ok(()) };
        assert!(replace(folder.path(), NAME, &bytes, stop).is_err(), "{crash:?}");
        let (old, new) = (names(folder.path(), OLD).await, names(folder.path(), NEW).await);
        let (opens, refuses) = match crash {
            Step::Begun | Step::Made | Step::Written | Step::Synced => (old, new),
            Step::Renamed | Step::FolderSynced => (new, old),
        };
        assert_eq!(opens.map(|names| names.len()), Ok(2), "{crash:?}");
        assert_eq!(refuses, Err("SIGNER_PASSPHRASE_WRONG"), "{crash:?}");
        // Whatever the crash left aside is in nobody's way.
        replace(folder.path(), NAME, &bytes, |_| Ok(())).expect("replaced");
        assert_eq!(names(folder.path(), NEW).await.map(|names| names.len()), Ok(2), "{crash:?}");
    }
}

#[tokio::test]
async fn two_commands_do_not_change_one_keystore_at_once() {
    let folder = made();
    let lock =
        std::fs::OpenOptions::new().write(true).open(folder.path().join("lock")).expect("made with the keystore");
    lock.lock().expect("free");
    let added = keystore(folder.path(), OLD).add(secret("gas", Purpose::Gas, "evm", 1, JUNK)).await;
    assert_eq!(added.expect_err("in use").code(), "SIGNER_IN_USE");
    drop(lock);
    assert_eq!(names(folder.path(), OLD).await.map(|names| names.len()), Ok(2));
    let nowhere = keystore(&folder.path().join("nowhere"), OLD).add(secret("gas", Purpose::Gas, "evm", 1, JUNK)).await;
    assert_eq!(nowhere.expect_err("nothing there").code(), "SIGNER_MISSING");
}

/// The same content, twice: nothing in the two files is the same but the header's words.
#[tokio::test]
async fn salt_and_nonce_are_new_in_every_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = keystore(folder.path(), OLD);
    store.create(two()).expect("a keystore");
    let read = || std::fs::read_to_string(folder.path().join(NAME)).expect("text");
    let first = read();
    store.change_passphrase(&passphrase(OLD)).expect("the same again");
    let second = read();
    let field = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\":\"")).expect("the field");
        rest.split_once('"').expect("its end").0.to_owned()
    };
    for name in ["salt", "nonce"] {
        assert_ne!(field(&first, name), field(&second, name), "{name}");
    }
    assert_ne!(first.lines().nth(2), second.lines().nth(2));
}

#[test]
fn a_failed_disk_is_told_as_such() {
    let nowhere = Path::new("/proc/nowhere");
    let error = keystore(nowhere, OLD).create(Vec::new()).expect_err("no folder can be made there");
    assert!(matches!(error, KeyError::Storage { .. }), "{error:?}");
    assert_eq!(error.code(), "SIGNER_STORAGE_FAILED");
    assert_eq!(id("a-b").as_str(), "a-b");
}
