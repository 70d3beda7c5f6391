//! The room that is written ahead of the log: zeros that are no entry, whatever a crash makes of what is written over them.

use signer::log::folder::DiskFolder;
use signer::log::{Head, Log, LogError, walk};
use signer::{Authorizer, SignRequest};

use crate::faulty::{Faults, FaultyFolder, SECTOR};
use crate::world::*;

fn payment(number: i64) -> SignRequest {
    evm(number, u64::try_from(number).unwrap(), 5).request(&format!("p-{number}"))
}

fn newest(folder: &FaultyFolder) -> String {
    folder.files().into_iter().rfind(|name| name.starts_with("log-")).unwrap()
}

fn torn(folder: &FaultyFolder) -> Vec<String> {
    folder.files().into_iter().filter(|name| name.starts_with("torn-")).collect()
}

/// A signer with some payments, and room for many more.
fn with_room() -> (Authorizer<FaultyFolder>, FaultyFolder) {
    let (signer, folder) = signer();
    folder.set_room(50_000);
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    for number in 0..4 {
        approved(&mut signer, &payment(number), 0);
    }
    (signer, folder)
}

#[test]
fn most_payments_are_written_over_what_is_there() {
    let (mut signer, folder) = signer();
    folder.set_room(20_000);
    let name = newest(&folder);
    let (mut longer, mut before) = (0, folder.read(&name).len());
    for number in 0..60 {
        approved(&mut signer, &payment(number), 0);
        let length = folder.read(&name).len();
        assert!(length >= before, "it never gets shorter");
        longer += usize::from(length > before);
        before = length;
    }
    assert!((2..6).contains(&longer), "the file got longer {longer} times");
    // A start takes the room as it is.
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    approved(&mut signer, &payment(60), 0);
    assert_eq!((folder.read(&name).len(), torn(&folder).len()), (before, 0));
    // Of a segment that is finished none is left.
    signer.snapshot(30 * DAY, after(0)).unwrap();
    assert_eq!(folder.read(&name), folder.frames(&name));
    assert_eq!(walk(&folder, |_, _| {}).unwrap(), signer.head());
}

/// All that a torn write can leave of the last frame: a beginning, an end, all but one sector, or one sector alone.
#[test]
fn a_write_that_was_torn_over_the_room_is_no_entry_and_no_damage() {
    let (mut signer, folder) = with_room();
    let (before, head) = (folder.read(&newest(&folder)), signer.head());
    approved(&mut signer, &payment(7), 0);
    let name = newest(&folder);
    let (whole, last) = (folder.read(&name), signer.head());
    assert_eq!(whole.len(), before.len());
    let (from, to) = (frames_end(&before), frames_end(&whole));
    let sectors: Vec<_> = (from / SECTOR..=(to - 1) / SECTOR).collect();
    assert!(sectors.len() > 5, "{}", sectors.len());
    let mut tried = 0;
    for (place, sector) in sectors.iter().enumerate() {
        for written in [
            sectors[..place].to_vec(),
            sectors[place + 1..].to_vec(),
            sectors.iter().copied().filter(|one| one != sector).collect(),
            vec![*sector],
        ] {
            let mut bytes = before.clone();
            for one in &written {
                let range = one * SECTOR..(one + 1) * SECTOR;
                bytes[range.clone()].copy_from_slice(&whole[range]);
            }
            let copy = folder.copy();
            copy.put(&name, Some(bytes.clone()));
            check_torn(&copy, head, from, bytes == before, tried);
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
    assert_eq!(Log::open(folder, Some(last)).unwrap().0.head(), last, "all of it is an entry");
}

fn frames_end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// The start ends with the entries before, keeps what it cut, goes on, and starts again.
fn check_torn(folder: &FaultyFolder, head: Head, end: usize, nothing: bool, note: usize) {
    let mut signer = reopen(folder, Some(head), 0);
    assert_eq!(signer.head(), head, "{note}");
    // Nothing that comes later may end in the middle of what was torn.
    assert_eq!(folder.frames(&newest(folder)).len(), end, "{note}");
    assert_eq!(torn(folder).len(), usize::from(!nothing), "{note}");
    approved(&mut signer, &payment(7), 0);
    approved(&mut signer, &payment(8), 0);
    folder.crash();
    let next = reopen(folder, Some(signer.head()), 0);
    assert_eq!(next.state(), signer.state(), "{note}");
    assert_eq!(walk(folder, |_, _| {}).unwrap(), signer.head(), "{note}");
}

#[test]
fn zeros_of_any_length_are_no_entry_and_a_frame_behind_them_is_damage() {
    let (signer, folder) = with_room();
    let (name, head) = (newest(&folder), signer.head());
    let frames = folder.frames(&name);
    for zeros in [0, 1, 83, 84, 85, 4_096, 100_000] {
        let copy = folder.copy();
        copy.put(&name, Some([&frames[..], &vec![0; zeros]].concat()));
        let mut signer = reopen(&copy, Some(head), 0);
        assert_eq!((signer.head(), torn(&copy).len()), (head, 0), "{zeros}");
        approved(&mut signer, &payment(9), 0);
        assert_eq!(reopen(&copy, Some(signer.head()), 0).state(), signer.state(), "{zeros}");
    }
    // A frame in the middle that became zeros, and one of which only the beginning did.
    let starts: Vec<usize> =
        frames.windows(4).enumerate().filter(|(_, four)| *four == b"BSL1").map(|(at, _)| at).collect();
    for (place, pair) in starts.windows(2).enumerate() {
        for zeros in [pair[1] - pair[0], SECTOR, 4, 1] {
            let mut bytes = folder.read(&name);
            bytes[pair[0]..pair[0] + zeros].fill(0);
            let copy = folder.copy();
            copy.put(&name, Some(bytes));
            assert!(matches!(Log::open(copy.clone(), None), Err(LogError::Damaged { .. })), "frame {place}, {zeros}");
            assert!(walk(&copy, |_, _| {}).is_err(), "frame {place}, {zeros}");
        }
    }
    // The last one, as a whole: nothing in the log shows it, and whoever was answered has its head.
    let mut bytes = folder.read(&name);
    bytes[*starts.last().unwrap()..].fill(0);
    folder.put(&name, Some(bytes));
    assert!(matches!(Log::open(folder, Some(head)), Err(LogError::RolledBack { .. })));
}

#[test]
fn a_segment_that_is_finished_may_have_its_room_back_and_nothing_else() {
    let (mut signer, folder) = with_room();
    let name = newest(&folder);
    let old = signer.head();
    approved(&mut signer, &payment(10), 0);
    signer.snapshot(30 * DAY, after(0)).unwrap();
    approved(&mut signer, &payment(11), 0);
    signer.snapshot(30 * DAY, after(0)).unwrap();
    approved(&mut signer, &payment(12), 0);
    let frames = folder.read(&name);
    // A crash brought the zeros back.
    let copy = folder.copy();
    copy.put(&name, Some([&frames[..], &[0; 500]].concat()));
    assert_eq!(walk(&copy, |_, _| {}).unwrap(), signer.head());
    reopen(&copy, Some(signer.head()), 0).check_pinned(&old).unwrap();
    for behind in [&b"BSL1"[..], &[0, 0, 1], &[1, 0, 0]] {
        let copy = folder.copy();
        copy.put(&name, Some([&frames[..], behind].concat()));
        assert!(matches!(walk(&copy, |_, _| {}), Err(LogError::Damaged { .. })), "{behind:?}");
        assert!(reopen(&copy, None, 0).check_pinned(&old).is_err(), "{behind:?}");
    }
}

#[test]
fn a_disk_without_room_for_the_zeros_signs_as_long_as_entries_fit() {
    let (mut signer, folder) = signer();
    folder.set_room(1 << 20);
    let used: usize = folder.files().iter().map(|name| folder.read(name).len()).sum();
    folder.set_faults(Faults { capacity: Some(used + 6_000), ..Faults::default() });
    let mut signed = 0;
    while signer.decide(&[payment(signed)], after(0), &Wallets).is_ok() {
        signed += 1;
        assert!(signed < 100, "the disk is full");
    }
    assert!(signed > 3, "{signed}");
    assert!(matches!(signer.decide(&[payment(50)], after(0), &Wallets), Err(LogError::Stopped)));
    folder.kill();
    let next = reopen(&folder, None, 0);
    assert_eq!(i64::try_from(next.state().requests.len()).unwrap(), signed);
}

#[test]
fn a_log_of_an_older_version_goes_on_with_room_and_an_older_version_could_read_it() {
    let (signer, folder) = signer();
    folder.set_room(0);
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    for number in 0..3 {
        approved(&mut signer, &payment(number), 0);
    }
    let name = newest(&folder);
    let cut = folder.frames(&name);
    folder.put(&name, Some(cut.clone()));
    folder.set_room(9_000);
    let mut signer = reopen(&folder, Some(signer.head()), 0);
    assert_eq!(folder.read(&name), cut, "nothing is written before there is something to say");
    approved(&mut signer, &payment(3), 0);
    assert!(folder.read(&name).len() > cut.len() + 9_000);
    assert!(folder.read(&name).starts_with(&cut));
    // An older version takes what it does not know for a torn end, if no frame is in it.
    let room = &folder.read(&name)[folder.frames(&name).len()..];
    assert!(!signer::log::frame::any(room) && signer::log::frame::read(room).is_none());
}

#[test]
fn a_real_file_has_room_and_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("signer");
    let open = |head| Authorizer::open(DiskFolder::exclusive(&path).unwrap().unwrap(), head, after(0)).unwrap();
    let mut signer = open(None);
    let text = policy(1);
    signer.apply_policy(text.as_bytes(), &signed(&text, &["ada", "ben"]), after(0)).unwrap();
    let log = path.join("log-00000000000000000001");
    let length = || std::fs::metadata(&log).unwrap().len();
    let prepared = length();
    assert!(prepared > 1 << 20);
    for number in 0..5 {
        signer.decide(&[payment(number)], after(0), &Wallets).unwrap();
        assert_eq!(length(), prepared);
    }
    let (head, state) = (signer.head(), signer.state().clone());
    drop(signer);
    let signer = open(Some(head));
    assert_eq!((signer.state(), length()), (&state, prepared));
    assert_eq!(walk(&DiskFolder::for_reading(&path), |_, _| {}).unwrap(), head);
}
