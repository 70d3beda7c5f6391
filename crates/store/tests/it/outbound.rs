//! Rows of payments that leave: what cannot be there twice, and who waits for whom. What workers make of them is tested in `custody`.

use domain::outbound::{Effect, JobKind, JobState, SlotWord};
use domain::utxo::{Hash, OutPoint};
use domain::{GroupId, Purpose, WalletRole};
use store::outbound::send::SignedAnswer;
use store::outbound::{
    Added, AttemptKind, Duty, HeldLane, JobId, NewAttempt, NewJob, NewSlot, Payer, Share, SignedAs, SignedAttempt,
    SlotId, SlotNews, SlotsRead, ToldAttempt,
};
use store::testing::races::Shell;
use store::testing::{NOW, TestDb, on};
use store::wallet::{OperationWallet, Place, WalletGroup, WalletSettings};
use store::{Engine, db_test};

use crate::operators::typed;
use crate::support::*;

/// Two hot wallets on a chain.
pub async fn treasury(db: &TestDb) -> store::entry::ChainRow {
    let group: GroupId = "hot".parse().unwrap();
    let mut settings = WalletSettings::default();
    let path = "m/44'/60'/0'/hi/lo".to_owned();
    let keys = WalletGroup { family: "evm".into(), purpose: Purpose::Hot, xpub: "xpub-hot".into(), path, active: true };
    settings.groups.insert(group.clone(), keys);
    for index in 0..2 {
        let place = ("bsc".parse().unwrap(), Place::Derived { group: group.clone(), index });
        settings.wallets.insert(place, OperationWallet::new(WalletRole::Hot, format!("0xhot{index}"), true));
    }
    db.apply_treasury(&catalog(), &settings, &AUTHOR, NOW).await.unwrap();
    db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap()
}

/// Beside them a treasury, with a key of its own.
async fn treasury_with_a_vault(db: &TestDb) -> store::entry::ChainRow {
    treasury(db).await;
    let mut settings = WalletSettings::default();
    for (name, xpub, purpose, role, count) in [
        ("hot", "xpub-hot", Purpose::Hot, WalletRole::Hot, 2),
        ("vault", "xpub-vault", Purpose::Treasury, WalletRole::Treasury, 1),
    ] {
        let group: GroupId = name.parse().unwrap();
        let path = "m/44'/60'/0'/hi/lo".to_owned();
        let keys = WalletGroup { family: "evm".into(), purpose, xpub: xpub.into(), path, active: true };
        settings.groups.insert(group.clone(), keys);
        for index in 0..count {
            let place = ("bsc".parse().unwrap(), Place::Derived { group: group.clone(), index });
            settings.wallets.insert(place, OperationWallet::new(role, format!("0x{name}{index}"), true));
        }
    }
    db.apply_treasury(&catalog(), &settings, &AUTHOR, NOW).await.unwrap();
    db.chain(&"bsc".parse().unwrap()).await.unwrap().unwrap()
}

fn job(chain: &store::entry::ChainRow, number: i64) -> NewJob {
    NewJob {
        id: JobId::new(number).unwrap(),
        listing: chain.listings[0].id,
        kind: JobKind::Withdrawal,
        reference: format!("payout {number}"),
        to: format!("0xto{number}"),
        owner: None,
        amount: "5".parse().unwrap(),
        most_fee: "9".parse().unwrap(),
        priority: 1,
        requester: "ann".to_owned(),
        expires: NOW.plus_micros(1_000_000_000),
        payer: Payer::Role(WalletRole::Hot),
    }
}

async fn with_job(db: &TestDb) -> (store::entry::ChainRow, Vec<HeldLane>) {
    let chain = treasury(db).await;
    let added = db.add_jobs(chain.id, &[job(&chain, 1)], NOW).await.unwrap();
    assert!(matches!(added.as_slice(), [Added::New { from, .. }] if from == "0xhot0"), "{added:?}");
    let until = NOW.plus_micros(60_000_000);
    let held = db.take_lanes((chain.id, Duty::Send), "one", 9, NOW, until).await.unwrap();
    assert_eq!(held.len(), 1);
    (chain, held)
}

const SLOT: &str =
    "INSERT INTO outbound_slots (id, lane_id, nonce, since_height, state, reason, created_at, updated_at) VALUES ";
const ATTEMPT: &str = "INSERT INTO outbound_attempts (slot_id, number, kind, payload, signed, tx_hash, mined_height, mined_block, paid, created_at,
    updated_at) SELECT 7, ";

db_test! {
    /// One nonce, one reference, one history, one mined transaction of a slot.
    async fn what_may_be_there_once_is_there_once(db: TestDb) {
        with_job(db).await;
        let bytes = if db.engine() == Engine::Postgres { "'\\x00'::bytea" } else { "X'00'" };
        let hash = "00".repeat(32);
        let hash = if db.engine() == Engine::Postgres { format!("'\\x{hash}'::bytea") } else { format!("X'{hash}'") };
        db.by_hand(&format!("{SLOT} (7, 1, 5, 1, 'open', '', 0, 0)")).await.unwrap();
        db.by_hand(&format!("{SLOT} (8, 1, 6, 1, 'open', '', 0, 0)")).await.unwrap();
        let mined = |number: i64| format!("{ATTEMPT} {number}, 'pay', {bytes}, {bytes}, {hash}, 3, {hash}, 'in_full', 0, 0");
        db.by_hand(&mined(1)).await.unwrap();
        for twice in [
            format!("{SLOT} (9, 1, 5, 1, 'open', '', 0, 0)"),
            mined(2),
            "INSERT INTO outbound_lanes (chain_id, wallet_group_id, derivation_index, address, updated_at)
                SELECT chain_id, wallet_group_id, 9, address, 0 FROM outbound_lanes".to_owned(),
            "INSERT INTO outbound_job_events (job_id, version, state, reason, at) VALUES (1, 1, 'queued', '', 0)".to_owned(),
            "INSERT INTO outbound_jobs (id, chain_id, lane_id, listing_id, kind, reference, to_address, amount_raw, most_fee_raw, priority, requester,
                expires_at, state, version, tries, rounds, give_up, bump, reason, due_at, created_at, updated_at)
                SELECT 2, chain_id, lane_id, listing_id, kind, reference, to_address, amount_raw, most_fee_raw, priority, requester, expires_at,
                state, version, tries, rounds, give_up, bump, reason, due_at, created_at, updated_at FROM outbound_jobs".to_owned(),
        ] {
            assert!(db.by_hand(&twice).await.is_err(), "{twice}");
        }
        // What was signed is neither changed nor removed.
        for changed in ["UPDATE outbound_attempts SET signed = payload, tx_hash = NULL", "DELETE FROM outbound_attempts",
            "UPDATE outbound_slots SET nonce = 9 WHERE id = 7", "UPDATE outbound_jobs SET to_address = 'x'"] {
            assert!(db.by_hand(changed).await.is_err(), "{changed}");
        }
    }

    /// Whoever makes slots could else have a job paid by another wallet than the one that it was given.
    async fn a_jobs_slot_is_one_of_its_own_lane(db: TestDb) {
        let chain = treasury(db).await;
        db.add_jobs(chain.id, &[job(&chain, 1), job(&chain, 2)], NOW).await.unwrap();
        for (slot, address) in [(7, "0xhot0"), (8, "0xhot1")] {
            let lane = format!("(SELECT id FROM outbound_lanes WHERE address = '{address}')");
            db.by_hand(&format!("{SLOT} ({slot}, {lane}, 5, 1, 'open', '', 0, 0)")).await.unwrap();
        }
        let link = |slot: i64, job: i64| format!("INSERT INTO outbound_slot_jobs (slot_id, job_id, round) VALUES ({slot}, {job}, 0)");
        for other in [link(7, 2), link(8, 1)] {
            let refused = db.by_hand(&other).await.unwrap_err();
            assert!(format!("{refused:?}").contains("trg_outbound_slot_job_lane"), "{other}: {refused:?}");
        }
        for own in [link(7, 1), link(8, 2)] {
            db.by_hand(&own).await.unwrap();
        }
    }

    async fn wallets_take_turns_and_a_reference_is_one_job(db: TestDb) {
        let chain = treasury(db).await;
        let jobs: Vec<NewJob> = (1..=4).map(|number| job(&chain, number)).collect();
        let from = |added: &Added| match added {
            Added::New { from, .. } => from.clone(),
            other => panic!("{other:?}"),
        };
        let added = db.add_jobs(chain.id, &jobs, NOW).await.unwrap();
        assert_eq!(added.iter().map(from).collect::<Vec<_>>(), ["0xhot0", "0xhot1", "0xhot0", "0xhot1"]);
        let again = NewJob { id: JobId::new(9).unwrap(), ..jobs[0].clone() };
        let other = NewJob { amount: "6".parse().unwrap(), ..again.clone() };
        let answers = db.add_jobs(chain.id, &[again, other], NOW).await.unwrap();
        assert_eq!(answers, [Added::Before(jobs[0].id), Added::Taken(jobs[0].id)]);
    }
}

db_test! {
    /// What rules and people ask for is given to wallets that pay, and to one that is stopped only where all are. What waits there ends with its time.
    async fn a_wallet_that_is_stopped_is_given_nothing_while_another_pays(db: TestDb) {
        let chain = treasury(db).await;
        let add = async |number: i64| match db.add_jobs(chain.id, &[job(&chain, number)], NOW).await.unwrap().remove(0) {
            Added::New { from, .. } => from,
            other => panic!("{other:?}"),
        };
        let stop = async |address: &str| {
            let lane = db.lanes(None, Some(address), 0, 9).await.unwrap().remove(0).lane.id;
            db.stop_lane(lane, "people look", NOW).await.unwrap();
        };
        assert_eq!(add(1).await, "0xhot0");
        stop("0xhot0").await;
        assert_eq!((add(2).await, add(3).await), ("0xhot1".to_owned(), "0xhot1".to_owned()));
        stop("0xhot1").await;
        assert_eq!(add(4).await, "0xhot0", "all are stopped: it waits for people");
        let late = job(&chain, 1).expires;
        assert_eq!(db.end_overdue_jobs(chain.id, late.plus_micros(-1), 9).await.unwrap(), 0);
        assert_eq!(db.end_overdue_jobs(chain.id, late, 9).await.unwrap(), 4);
        let (ended, ..) = db.job(JobId::new(4).unwrap()).await.unwrap().unwrap();
        assert_eq!(ended.job.state, JobState::FailedFinal);
    }
}

/// A user's address that is swept.
fn sweep(chain: &store::entry::ChainRow, number: i64) -> NewJob {
    let address = format!("0xuser{number}");
    let payer = Payer::Wallet { group: "hot".parse().unwrap(), index: 100 + number, address };
    NewJob { kind: JobKind::Consolidation, priority: 400, payer, ..job(chain, number) }
}

db_test! {
    /// Bitcoin: the coins that a job names stay the ones that were decided on.
    async fn a_job_keeps_the_coins_that_it_names(db: TestDb) {
        let chain = treasury(db).await;
        let coin = |number: u8, index| OutPoint { hash: Hash([number; 32]), index };
        let named = |number, coins: &[OutPoint]| {
            let (group, address) = ("hot".parse().unwrap(), "0xlane".to_owned());
            NewJob { payer: Payer::Coins { group, index: 0, address, coins: coins.to_vec() }, ..job(&chain, number) }
        };
        let jobs = [named(1, &[coin(1, 0), coin(1, 7)]), job(&chain, 2), named(3, &[coin(1, 0), coin(2, u32::MAX)])];
        db.add_jobs(chain.id, &jobs, NOW).await.unwrap();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let mut found = db.coins_of_jobs(&ids).await.unwrap();
        found.values_mut().for_each(|coins| coins.sort());
        let wanted = [(ids[0], vec![coin(1, 0), coin(1, 7)]), (ids[2], vec![coin(1, 0), coin(2, u32::MAX)])];
        assert_eq!(found, wanted.into(), "a payout names none");
        for changed in ["UPDATE outbound_job_coins SET output_index = 9", "DELETE FROM outbound_job_coins"] {
            assert!(db.by_hand(changed).await.is_err(), "{changed}");
        }
        // The same job again is the one that was made, with the coins that it had.
        let again = NewJob { id: JobId::new(9).unwrap(), ..named(1, &[coin(3, 3)]) };
        assert_eq!(db.add_jobs(chain.id, &[again], NOW).await.unwrap(), [Added::Before(ids[0])]);
        assert_eq!(db.coins_of_jobs(&ids).await.unwrap()[&ids[0]].len(), 2);
    }

    /// Hundreds of users' addresses wait longer than a hot wallet does, and it is taken before them.
    async fn the_houses_own_wallets_come_before_users_addresses(db: TestDb) {
        let chain = treasury(db).await;
        let sweeps: Vec<NewJob> = (10..30).map(|number| sweep(&chain, number)).collect();
        db.add_jobs(chain.id, &sweeps, NOW).await.unwrap();
        db.add_jobs(chain.id, &[job(&chain, 1)], NOW).await.unwrap();
        let taken = async |worker: &str, most, after_s: i64| {
            let now = NOW.plus_micros(after_s * 1_000_000);
            let held = db.take_lanes((chain.id, Duty::Send), worker, most, now, now.plus_micros(60_000_000)).await.unwrap();
            let lanes = db.lanes(None, None, 0, 1_000).await.unwrap();
            let name = |held: &HeldLane| lanes.iter().find(|lane| lane.lane.id == held.lane).unwrap().lane.address.clone();
            held.iter().map(name).collect::<Vec<String>>()
        };
        let first = taken("one", 5, 0).await;
        assert!(first.len() == 5 && first.contains(&"0xhot0".to_owned()), "{first:?}");
        // Another gets others; when the leases are over, those that nobody has looked at come before those that somebody has.
        let second = taken("two", 5, 1).await;
        assert!(second.iter().all(|lane| !first.contains(lane)), "{second:?}");
        let third = taken("three", 12, 100).await;
        assert!(third.contains(&"0xhot0".to_owned()), "{third:?}");
        assert_eq!(third.iter().filter(|lane| first.contains(lane) || second.contains(lane)).count(), 1, "{third:?}");
        // A lane, or a group, that is stopped has nothing to do.
        db.by_hand("UPDATE wallet_groups SET outbound_stopped = 'stolen'").await.unwrap();
        assert_eq!(taken("four", 100, 200).await, [] as [String; 0]);
    }

    /// Bitcoin: lanes of one group spend the same coins. One sender has all of them, in whichever process.
    async fn the_lanes_of_a_group_are_one_senders_on_bitcoin(db: TestDb) {
        let chain = treasury(db).await;
        db.add_jobs(chain.id, &[job(&chain, 1), job(&chain, 2)], NOW).await.unwrap();
        let taken = async |worker: &str, share, after_s: i64| {
            let now = NOW.plus_micros(after_s * 1_000_000);
            let held = db.take_share((chain.id, Duty::Send), worker, (share, 9), now, now.plus_micros(60_000_000)).await.unwrap();
            held.len()
        };
        let by_two = async |after_s| {
            let mut counts = Vec::new();
            for part in 0..2 {
                counts.push(taken(&format!("one.{part}"), Share { part, of: 2 }, after_s).await);
            }
            counts.sort_unstable();
            counts
        };
        assert_eq!(by_two(0).await, [1, 1], "elsewhere each lane is its own");
        db.by_hand("UPDATE chains SET kind = 'bitcoin'").await.unwrap();
        assert_eq!(by_two(100).await, [0, 2]);
        assert_eq!(taken("two", Share::ALL, 101).await, 0);
        db.by_hand("UPDATE outbound_leases SET worker = '', lease_until = 0 WHERE lane_id = (SELECT MIN(id) FROM outbound_lanes)")
            .await
            .unwrap();
        assert_eq!(taken("two", Share::ALL, 102).await, 0, "somebody has the other one");
        assert_eq!(taken("two", Share::ALL, 200).await, 2);
    }

    async fn an_approval_stays_as_it_was_signed_until_the_signer_refuses_it(db: TestDb) {
        use store::outbound::read::JobReply;
        use store::outbound::{ApprovalSignature, JobApproval};
        let chain = treasury(db).await;
        db.add_jobs(chain.id, &[job(&chain, 1)], NOW).await.unwrap();
        let id = JobId::new(1).unwrap();
        let by_key = |key: &str, byte: u8| JobApproval {
            job: id,
            digest: [7; 32],
            key: key.to_owned(),
            signature: ApprovalSignature::Ed25519(vec![byte; 64]),
        };
        let passkey = JobApproval {
            signature: ApprovalSignature::Passkey {
                authenticator_data: vec![1],
                client_data: vec![2],
                signature: vec![3],
            },
            ..by_key("bob-phone", 0)
        };
        let later = NOW.plus_micros(5);
        for approval in [&by_key("ann", 1), &by_key("ann", 1), &passkey] {
            assert_eq!(db.approve_job(approval, later).await.unwrap(), JobReply::Done);
        }
        assert_eq!(db.approvals_of(&[id]).await.unwrap(), [by_key("ann", 1), passkey.clone()]);
        for changed in ["UPDATE outbound_approvals SET digest = signature", "DELETE FROM outbound_approvals"] {
            assert!(db.by_hand(changed).await.is_err(), "{changed}");
        }
        db.refuse_approvals(&[id], "the approval of ann is not good").await.unwrap();
        assert_eq!(db.approvals_of(&[id]).await.unwrap(), []);
        assert!(db.by_hand("UPDATE outbound_approvals SET refused = NULL").await.is_err(), "it stays refused");
        db.approve_job(&by_key("ann", 2), later).await.unwrap();
        assert_eq!(db.approvals_of(&[id]).await.unwrap(), [by_key("ann", 2)]);
        db.cancel_job(id, "ann", later).await.unwrap();
        assert!(matches!(db.approve_job(&passkey, later).await.unwrap(), JobReply::NotNow(_)));
        assert_eq!(db.approve_job(&JobApproval { job: JobId::new(9).unwrap(), ..passkey }, later).await.unwrap(), JobReply::NoSuchJob);
    }
}

/// Signs and tells the attempt of slot 7 with this number.
async fn tell(db: &TestDb, held: &[HeldLane], number: u8) {
    let (lane, slot, number_of) = (held[0].lane, SlotId(7), u32::from(number));
    let answer = SignedAnswer::Signed { bytes: vec![number], hash: domain::utxo::Hash([number; 32]) };
    let signed = SignedAttempt { lane, slot, number: number_of, answer, spend: None };
    db.keep_signed(held, &[signed], None, NOW).await.unwrap();
    let told = ToldAttempt { lane, slot, number: number_of, said: "nodes have it".to_owned() };
    db.keep_told(held, &[told], NOW).await.unwrap();
}

db_test! {
    /// A watcher asked about one attempt, and stood still; its slot got a replacement, which a block took. That the first can never be mined does not
    /// say that the job was not paid. (Found by `bursar sim custody`: it was paid twice.) Nor does it when the replacement was written down
    /// already, and nobody could ask about it because it was not signed.
    async fn what_is_said_of_fewer_attempts_ends_no_slot(db: TestDb) {
        let (chain, held) = with_job(db).await;
        let (lane, id) = (held[0].lane, JobId::new(1).unwrap());
        let (kind, payload, coins) = (AttemptKind::Pay, vec![0], None);
        let jobs = vec![(id, 1)];
        let slot = NewSlot { id: SlotId(7), lane, nonce: Some(0), since: 1, jobs, kind, payload, coins, instead: None };
        let known = std::collections::HashMap::new();
        db.open_slots(&held, &[slot], &[], &[], &known, NOW).await.unwrap();
        tell(db, &held, 1).await;
        let until = NOW.plus_micros(60_000_000);
        let watches = db.take_lanes((chain.id, Duty::Watch), "watcher", 9, NOW, until).await.unwrap();
        let asked = async || db.watched_slots(&[lane], &[], &[]).await.unwrap()[0].signed_count();
        let more = |number| NewAttempt { lane, slot: SlotId(7), number, kind, payload: vec![0], coins: None };
        let of_one = asked().await;
        db.open_slots(&held, &[], &[more(2)], &[], &known, NOW).await.unwrap();
        let of_one_and_a_plan = asked().await;
        tell(db, &held, 2).await;
        for (said, foreign) in [(SlotWord::Lost, false), (SlotWord::Final(Effect::Unclear), true)] {
            for asked in [of_one, of_one_and_a_plan] {
                let news = SlotNews { lane, slot: SlotId(7), said, mined: None, asked, words: "lost".to_owned(), foreign };
                assert_eq!(db.keep_news(&watches, std::slice::from_ref(&news), NOW).await.unwrap(), 0, "{said:?}");
                let (shown, slots, _) = db.job(id).await.unwrap().unwrap();
                assert_eq!((shown.job.state, slots.len()), (JobState::Broadcasted, 1), "{said:?}");
                assert_eq!(db.open_slots_of(&[lane], SlotsRead::All).await.unwrap().len(), 1, "the slot is open");
                assert_eq!(shown.lane_stopped, None);
            }
        }
        // Whoever has asked about both knows, also while a third waits for its signature.
        db.open_slots(&held, &[], &[more(3)], &[], &known, NOW).await.unwrap();
        let (words, asked) = ("its time was over".to_owned(), asked().await);
        let news = SlotNews { lane, slot: SlotId(7), said: SlotWord::Lost, mined: None, asked, words, foreign: false };
        assert_eq!(db.keep_news(&watches, &[news], NOW).await.unwrap(), 1);
        assert_eq!(db.job(id).await.unwrap().unwrap().0.job.state, JobState::FailedRetryable);
        // What is signed for it afterwards is kept, and told to nobody.
        let answer = SignedAnswer::Signed { bytes: vec![3], hash: Hash([3; 32]) };
        let signed = SignedAttempt { lane, slot: SlotId(7), number: 3, answer, spend: None };
        assert!(db.keep_signed(&held, &[signed], None, NOW).await.unwrap().is_empty());
    }
}

db_test! {
    /// While the signer is asked, people end a job of a stopped lane: what is signed for it then is told to nobody.
    async fn what_ended_while_it_was_signed_is_told_to_nobody(db: TestDb) {
        use store::outbound::read::{JobReply, JobVerdict};
        let (held, signed) = signing(db).await;
        db.stop_lane(held[0].lane, "a test", NOW).await.unwrap();
        let people = domain::Approval::new("ann", "bob", "nothing came").unwrap();
        let judged = db.judge_job(JobId::new(1).unwrap(), JobVerdict::Unpaid, &people, NOW).await.unwrap();
        assert_eq!(judged, JobReply::Done);
        let told = db.keep_signed(&held, &[signed], None, NOW).await.unwrap();
        assert!(told.is_empty(), "its slot has ended: {told:?}");
        // Each of the two people has a line of it, and of what they said of the lane.
        assert!(db.resume_lane(held[0].lane, &people, NOW).await.unwrap());
        assert!(!db.resume_lane(held[0].lane, &people, NOW).await.unwrap());
        assert_eq!(typed(db).await, [
            "ann judge job-1 done: unpaid: nothing came", "bob judge job-1 done: unpaid: nothing came",
            "ann resume 0xhot0 done: nothing came", "bob resume 0xhot0 done: nothing came",
            "ann resume 0xhot0 LANE_NOT_STOPPED: nothing came", "bob resume 0xhot0 LANE_NOT_STOPPED: nothing came",
        ]);
    }

    /// The signer has signed a slot's nonce for a job of which no row says so. The nonce goes to a slot that names that job, once, and only while nothing is
    /// signed for the first: nothing that may be out loses its slot.
    async fn a_nonce_that_the_signer_has_signed_for_another_goes_to_its_cancel_once(db: TestDb) {
        let (chain, held) = with_job(db).await;
        let (lane, id, by) = (held[0].lane, JobId::new(1).unwrap(), SignedAs::Job(JobId::new(77).unwrap()));
        let known = std::collections::HashMap::new();
        let row = async || db.job(id).await.unwrap().unwrap().0.job;
        let open = async || db.open_slots_of(&[lane], SlotsRead::All).await.unwrap();
        let (kind, payload) = (AttemptKind::Pay, vec![0]);
        let slot = NewSlot {
            id: SlotId(7), lane, nonce: Some(0), since: 1, jobs: vec![(id, 1)], kind, payload, coins: None, instead: None,
        };
        db.open_slots(&held, std::slice::from_ref(&slot), &[], &[], &known, NOW).await.unwrap();
        let answer = SignedAnswer::Held { words: "the slot belongs to job-77".into(), by };
        let taken = SignedAttempt { lane, slot: SlotId(7), number: 1, answer, spend: None };
        db.keep_signed(&held, &[taken], None, NOW).await.unwrap();
        assert_eq!((open().await[0].holder, row().await.state), (Some(by), JobState::Signing));
        let cancel = |number: i64, before: i64| NewSlot {
            id: SlotId(number), jobs: Vec::new(), kind: AttemptKind::Cancel(JobId::new(number).unwrap()),
            instead: Some((SlotId(before), by)), ..slot.clone()
        };
        let opens = async |slot: NewSlot| db.open_slots(&held, &[slot], &[], &[], &known, NOW).await.unwrap().slots.len();
        assert_eq!(opens(cancel(8, 7)).await, 0, "the wallet is stopped");
        let people = domain::Approval::new("ann", "bob", "we looked").unwrap();
        assert!(db.resume_lane(lane, &people, NOW).await.unwrap());
        assert_eq!(opens(cancel(8, 7)).await, 1);
        let job = row().await;
        assert_eq!((job.state, job.slot, job.rounds, job.tries), (JobState::FailedRetryable, None, 0, 0));
        let slots = open().await;
        assert_eq!((slots.len(), slots[0].id, slots[0].holder, slots[0].nonce), (1, SlotId(8), Some(by), Some(0)));
        assert_eq!(opens(cancel(9, 7)).await, 0, "it is another's already");
        let answer = SignedAnswer::Signed { bytes: vec![8], hash: Hash([8; 32]) };
        let signed = SignedAttempt { lane, slot: SlotId(8), number: 1, answer, spend: None };
        db.keep_signed(&held, &[signed], None, NOW).await.unwrap();
        assert_eq!(opens(cancel(9, 8)).await, 0, "something is signed for it");
        assert_eq!(open().await[0].id, SlotId(8));
        drop(chain);
        assert_clean(db).await;
    }

    /// A worker that has read a job before people judged it gives it no slot: it has lost the lane.
    async fn what_people_judge_is_taken_out_of_the_workers_hands(db: TestDb) {
        use store::outbound::read::JobVerdict;
        let (held, _) = signing(db).await;
        db.stop_lane(held[0].lane, "a test", NOW).await.unwrap();
        let people = domain::Approval::new("ann", "bob", "nothing came").unwrap();
        db.judge_job(JobId::new(1).unwrap(), JobVerdict::Unpaid, &people, NOW).await.unwrap();
        let (lane, kind, payload) = (held[0].lane, AttemptKind::Pay, vec![0]);
        let slot = NewSlot { id: SlotId(8), lane, nonce: Some(0), since: 1, jobs: Vec::new(), kind, payload, coins: None, instead: None };
        db.open_slots(&held, &[slot], &[], &[], &std::collections::HashMap::new(), NOW).await.unwrap();
        assert!(db.open_slots_of(&[lane], SlotsRead::All).await.unwrap().is_empty());
    }

    /// What is not signed yet pays all that its slot was written down for. Once people have judged one of them nobody may sign that: the slot is
    /// let go, and the others wait for one of their own. (Found by a reader: one was paid after its money had been given back.)
    async fn a_slot_that_people_have_judged_one_job_of_is_let_go(db: TestDb) {
        use store::outbound::read::{JobReply, JobVerdict};
        let chain = treasury(db).await;
        let jobs: Vec<NewJob> = (1..=5).map(|number| job(&chain, number)).collect();
        // The first, the third and the fifth are of one wallet.
        db.add_jobs(chain.id, &jobs, NOW).await.unwrap();
        let people = domain::Approval::new("ann", "bob", "we looked").unwrap();
        let row = async |number| db.job(JobId::new(number).unwrap()).await.unwrap().unwrap().0.job;
        let cases = [
            (SlotId(7), 1, 3, JobVerdict::Unpaid, JobState::FailedFinal),
            (SlotId(8), 3, 5, JobVerdict::Paid, JobState::Confirmed),
        ];
        for (id, judged, other, verdict, end) in cases {
            let until = NOW.plus_micros(60_000_000);
            let held = db.take_lanes((chain.id, Duty::Send), "one", 9, NOW, until).await.unwrap();
            let (first, second) = (row(judged).await, row(other).await);
            let (lane, jobs) = (first.lane, vec![(first.id, first.version), (second.id, second.version)]);
            let (kind, payload) = (AttemptKind::Pay, vec![0]);
            let slot = NewSlot { id, lane, nonce: Some(0), since: 1, jobs, kind, payload, coins: None, instead: None };
            let opened = db.open_slots(&held, &[slot], &[], &[], &std::collections::HashMap::new(), NOW).await.unwrap();
            assert_eq!(opened.slots.into_iter().collect::<Vec<_>>(), [id], "{verdict:?}");
            db.stop_lane(lane, "a test", NOW).await.unwrap();
            assert_eq!(db.judge_job(first.id, verdict, &people, NOW).await.unwrap(), JobReply::Done);
            let (first, second) = (row(judged).await, row(other).await);
            assert_eq!((first.state, second.state, second.slot), (end, JobState::FailedRetryable, None), "{verdict:?}");
            assert_eq!((second.rounds, second.tries), (0, 0), "to the signer it was in no slot");
            assert!(db.open_slots_of(&[lane], SlotsRead::All).await.unwrap().is_empty());
            assert!(db.resume_lane(lane, &people, NOW).await.unwrap());
        }
    }

    /// What was signed while people halted it is kept, and told to nobody; and no more is offered. A cancel pays nobody: only a stopped wallet signs
    /// none.
    async fn a_halt_meets_what_is_under_way(db: TestDb) {
        let (held, signed) = signing(db).await;
        let (lane, slot, known) = (held[0].lane, SlotId(7), std::collections::HashMap::new());
        let halts = [
            ("chains SET status = 'suspended'", "chains SET status = 'active'", true),
            ("assets SET status = 'suspended'", "assets SET status = 'active'", true),
            ("asset_on_chain SET status = 'suspended'", "asset_on_chain SET status = 'active'", true),
            ("outbound_lanes SET stopped = 'a test'", "outbound_lanes SET stopped = NULL", false),
            ("wallet_groups SET outbound_stopped = 'a test'", "wallet_groups SET outbound_stopped = NULL", false),
        ];
        let cancel = AttemptKind::Cancel(JobId::new(99).unwrap());
        for (halt, over, cancels) in halts {
            db.by_hand(&format!("UPDATE {halt}")).await.unwrap();
            let told = db.keep_signed(&held, std::slice::from_ref(&signed), None, NOW).await.unwrap();
            assert!(told.is_empty(), "{halt}: {told:?}");
            let sendable = db.sendable(&[slot]).await.unwrap();
            assert_eq!((sendable.lets(slot, AttemptKind::Pay), sendable.lets(slot, cancel)), (false, cancels), "{halt}");
            let more = NewAttempt { lane, slot, number: 2, kind: AttemptKind::Pay, payload: vec![0], coins: None };
            let opened = db.open_slots(&held, &[], &[more], &[], &known, NOW).await.unwrap();
            assert!(opened.attempts.is_empty(), "{halt}");
            db.by_hand(&format!("UPDATE {over}")).await.unwrap();
        }
        let told = db.keep_signed(&held, &[signed], None, NOW).await.unwrap();
        assert_eq!(told.into_iter().collect::<Vec<_>>(), [slot], "they are over");
        db.by_hand("UPDATE chains SET status = 'suspended'").await.unwrap();
        let more = NewAttempt { lane, slot, number: 2, kind: cancel, payload: vec![0], coins: None };
        let opened = db.open_slots(&held, &[], &[more], &[], &known, NOW).await.unwrap();
        assert_eq!(opened.attempts.into_iter().collect::<Vec<_>>(), [slot]);
    }

    /// Whoever has stolen the key of a group would have what is sent to its wallets. So nothing of it is taken up, written down, signed or told, until two
    /// people let the group go on; cancels are signed.
    async fn nothing_is_sent_to_a_wallet_of_a_group_that_is_stopped(db: TestDb) {
        let chain = treasury_with_a_vault(db).await;
        let surplus = NewJob { to: "0xvault0".to_owned(), owner: Some(("vault".parse().unwrap(), 0)), ..job(&chain, 1) };
        db.add_jobs(chain.id, &[surplus], NOW).await.unwrap();
        let stop = "UPDATE wallet_groups SET outbound_stopped = 'stolen' WHERE name = 'vault'";
        let over = "UPDATE wallet_groups SET outbound_stopped = NULL";
        let take = async || db.take_lanes((chain.id, Duty::Send), "one", 9, NOW, NOW.plus_micros(60_000_000)).await.unwrap();
        db.by_hand(stop).await.unwrap();
        assert_eq!(take().await, [], "it is nothing to do");
        db.by_hand(over).await.unwrap();
        let held = take().await;
        let [HeldLane { lane, .. }] = held[..] else { panic!("{held:?}") };
        let due = async || db.lane_work(&[lane], 16, SlotsRead::All, NOW).await.unwrap().due.len();
        let (slot, known) = (SlotId(7), std::collections::HashMap::new());
        let new = NewSlot {
            id: slot, lane, nonce: Some(0), since: 1, jobs: vec![(JobId::new(1).unwrap(), 1)], kind: AttemptKind::Pay, payload: vec![0], coins: None,
            instead: None,
        };
        let open = async || db.open_slots(&held, std::slice::from_ref(&new), &[], &[], &known, NOW).await.unwrap().slots.len();
        db.by_hand(stop).await.unwrap();
        assert_eq!((due().await, open().await), (0, 0));
        let shown = db.job(JobId::new(1).unwrap()).await.unwrap().unwrap().0;
        assert_eq!((shown.payee_stopped.as_deref(), shown.lane_stopped), (Some("stolen"), None), "and people see why");
        db.by_hand(over).await.unwrap();
        assert_eq!((due().await, open().await), (1, 1));
        db.by_hand(stop).await.unwrap();
        let sendable = db.sendable(&[slot]).await.unwrap();
        let cancel = AttemptKind::Cancel(JobId::new(99).unwrap());
        assert_eq!((sendable.lets(slot, AttemptKind::Pay), sendable.lets(slot, cancel)), (false, true));
        let answer = SignedAnswer::Signed { bytes: vec![1], hash: Hash([1; 32]) };
        let signed = SignedAttempt { lane, slot, number: 1, answer, spend: None };
        let tell = async || db.keep_signed(&held, std::slice::from_ref(&signed), None, NOW).await.unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(tell().await, []);
        let more = NewAttempt { lane, slot, number: 2, kind: AttemptKind::Pay, payload: vec![0], coins: None };
        assert!(db.open_slots(&held, &[], &[more], &[], &known, NOW).await.unwrap().attempts.is_empty(), "no more is offered");
        // Nothing was ever sent from the vault, so it has no lane to resume. It is of its group all the same.
        let people = domain::Approval::new("ann", "bob", "it was a drill").unwrap();
        assert!(!db.resume_group_of(chain.id, "0xhot0", &people, NOW).await.unwrap(), "another group");
        assert!(db.resume_group_of(chain.id, "0xvault0", &people, NOW).await.unwrap());
        assert!(!db.resume_group_of(chain.id, "0xvault0", &people, NOW).await.unwrap(), "once");
        assert_eq!(tell().await, [slot]);
    }

    /// Coins that left without a transaction of ours stop the group, and not its lanes.
    async fn what_a_stopped_group_has_not_signed_people_can_end(db: TestDb) {
        use store::outbound::read::{JobReply, JobVerdict};
        let (held, _) = signing(db).await;
        let people = domain::Approval::new("ann", "bob", "nothing came").unwrap();
        let judge = async || db.judge_job(JobId::new(1).unwrap(), JobVerdict::Unpaid, &people, NOW).await.unwrap();
        assert_eq!(judge().await, JobReply::NotNow(JobState::Signing), "a worker may have it signed now");
        db.by_hand("UPDATE wallet_groups SET outbound_stopped = 'stolen' WHERE name = 'hot'").await.unwrap();
        assert_eq!(judge().await, JobReply::Done);
        assert!(db.open_slots_of(&[held[0].lane], SlotsRead::All).await.unwrap().is_empty());
    }

    /// The same of a job that was given up meanwhile. On TRON nothing else would keep it from being paid.
    async fn what_was_given_up_while_it_was_signed_is_told_to_nobody(db: TestDb) {
        use store::outbound::read::JobReply;
        let (held, signed) = signing(db).await;
        assert_eq!(db.cancel_job(JobId::new(1).unwrap(), "ann", NOW).await.unwrap(), JobReply::Done);
        let told = db.keep_signed(&held, std::slice::from_ref(&signed), None, NOW).await.unwrap();
        assert!(told.is_empty(), "{told:?}");
        db.by_hand("UPDATE outbound_jobs SET give_up = FALSE").await.unwrap();
        let told = db.keep_signed(&held, &[signed], None, NOW).await.unwrap();
        assert_eq!(told.into_iter().collect::<Vec<_>>(), [SlotId(7)], "it was only that");
    }
}

/// A job whose slot waits for its signature, and the signer's answer.
async fn signing(db: &TestDb) -> (Vec<HeldLane>, SignedAttempt) {
    let (_, held) = with_job(db).await;
    let (lane, jobs) = (held[0].lane, vec![(JobId::new(1).unwrap(), 1)]);
    let (kind, payload) = (AttemptKind::Pay, vec![0]);
    let slot =
        NewSlot { id: SlotId(7), lane, nonce: Some(0), since: 1, jobs, kind, payload, coins: None, instead: None };
    db.open_slots(&held, &[slot], &[], &[], &std::collections::HashMap::new(), NOW).await.unwrap();
    let answer = SignedAnswer::Signed { bytes: vec![1], hash: domain::utxo::Hash([1; 32]) };
    (held, SignedAttempt { lane, slot: SlotId(7), number: 1, answer, spend: None })
}

/// Whoever writes in a lane waits for whoever has it.
#[test]
fn postgres_a_lane_is_one_writers_at_a_time() {
    on(Engine::Postgres, async |db| {
        let (_, held) = with_job(db).await;
        let (mut shell, mut other) = (Shell::open(db).await, Shell::open(db).await);
        let news = SlotNews {
            lane: held[0].lane,
            slot: SlotId(99),
            said: SlotWord::Final(Effect::InFull),
            mined: None,
            asked: 0,
            words: String::new(),
            foreign: false,
        };
        shell.run("BEGIN; SELECT 1 FROM outbound_lanes FOR UPDATE").await.unwrap();
        let mut write = Box::pin(db.keep_news(&held, std::slice::from_ref(&news), NOW));
        tokio::select! {
            _ = &mut write => panic!("it did not wait for the lane"),
            () = other.until_somebody_waits() => {}
        }
        shell.run("COMMIT").await.unwrap();
        write.await.unwrap();
        shell.run("BEGIN; SELECT 1 FROM outbound_lanes FOR UPDATE").await.unwrap();
        let mut cancel = Box::pin(db.cancel_job(JobId::new(1).unwrap(), "ann", NOW));
        tokio::select! {
            _ = &mut cancel => panic!("it did not wait for the lane"),
            () = other.until_somebody_waits() => {}
        }
        shell.run("COMMIT").await.unwrap();
        cancel.await.unwrap();
    });
}

/// Of two who look for lanes, the second leaves those that the first is taking.
#[test]
fn postgres_nobody_waits_for_a_lane_that_another_takes() {
    on(Engine::Postgres, async |db| {
        let (chain, _) = with_job(db).await;
        let mut shell = Shell::open(db).await;
        shell.run("BEGIN; SELECT 1 FROM outbound_leases FOR UPDATE").await.unwrap();
        let later = NOW.plus_micros(100_000_000);
        let take = db.take_lanes((chain.id, Duty::Send), "two", 9, later, later.plus_micros(60_000_000));
        let taken = tokio::time::timeout(std::time::Duration::from_secs(5), take).await.expect("nobody waits").unwrap();
        assert!(taken.is_empty());
        shell.run("COMMIT").await.unwrap();
    });
}

/// Of two who add jobs at the same time, the second sees which wallet the first has used.
#[test]
fn postgres_two_who_add_jobs_take_turns() {
    on(Engine::Postgres, async |db| {
        let chain = treasury(db).await;
        let (mut shell, mut other) = (Shell::open(db).await, Shell::open(db).await);
        shell
            .run("BEGIN; UPDATE operation_wallet_addresses SET last_used_at = 5 WHERE address = '0xhot0'")
            .await
            .unwrap();
        let jobs = [job(&chain, 1)];
        let mut add = Box::pin(db.add_jobs(chain.id, &jobs, NOW));
        tokio::select! {
            _ = &mut add => panic!("it did not wait"),
            () = other.until_somebody_waits() => {}
        }
        shell.run("COMMIT").await.unwrap();
        let added = add.await.unwrap();
        assert!(matches!(added.as_slice(), [Added::New { from, .. }] if from == "0xhot1"), "{added:?}");
    });
}
