//! What is to become of each withdrawal that another program has begun. Nothing is read or written here: rows, wallets and settings are given.
//!
//! | the other program's row | becomes |
//! |---|---|
//! | has ended | nothing: its money has moved in books that are not ours, and its row stays where it is |
//! | has a hash | a job that is followed by that hash |
//! | `pending`, no hash, never tried | a request that waits for a person |
//! | any other word, no hash; tried before; or read from a copy of an earlier time | a request that two people must look at: what was paid just before its program stopped looks the same |
//! | cannot be placed | nothing, and a reason |

use std::collections::{BTreeMap, HashMap};

use domain::utxo::Hash;
use domain::{Amount, ChainKind, ChainName, GroupId, RawAmount, UserId, WalletRole};
use serde_json::json;
use store::entry::{ChainRow, ListingRow};
use store::old_withdrawals::{ENDED, OldBooks, OldTaken, OldWithdrawal};
use store::outbound::{JobId, SlotId};
use store::wallet::Place;
use store::withdrawal::{FollowedPayment, ImportCourse, ImportedWithdrawal, NewImport, WithdrawalId};
use tx::{Address, Family};

use crate::wallet::Pinned;

/// What the other program's names mean here.
#[derive(Clone, Debug, Default)]
pub struct ImportNames {
    pub users: HashMap<String, UserId>,
    /// Where a chain has another name there. Else it is the same, in small letters.
    pub chains: BTreeMap<String, ChainName>,
}

/// All that a row is judged on.
pub struct ImportGround<'a> {
    pub chains: &'a [ChainRow],
    pub pinned: &'a Pinned,
    pub names: &'a ImportNames,
}

/// A row that can be taken over: everything but the numbers that it gets here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportDraft {
    old: OldWithdrawal,
    user: UserId,
    chain: ChainRow,
    listing: ListingRow,
    to: String,
    amount: Amount,
    fee: Amount,
    course: DraftCourse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DraftCourse {
    Waits,
    MayBePaid,
    Followed { hash: Hash, group: GroupId, index: i64, address: String, raw: RawAmount },
}

/// How a kind of row goes on, for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportKind {
    Followed,
    Waits,
    MayBePaid,
    Refused,
}

impl ImportKind {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Followed => "followed by its hash",
            Self::Waits => "waits for a person",
            Self::MayBePaid => "may have been paid: two people look",
            Self::Refused => "not taken over",
        }
    }
}

/// What is to become of an open row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedImport {
    pub old_id: String,
    pub status: String,
    /// `Err`: why it cannot be placed.
    pub draft: Result<Box<ImportDraft>, String>,
}

impl PlannedImport {
    pub fn kind(&self) -> ImportKind {
        match self.draft.as_ref().map(|draft| &draft.course) {
            Ok(DraftCourse::Followed { .. }) => ImportKind::Followed,
            Ok(DraftCourse::Waits) => ImportKind::Waits,
            Ok(DraftCourse::MayBePaid) => ImportKind::MayBePaid,
            Err(_) => ImportKind::Refused,
        }
    }
}

/// The source's people agree one by one; what may have been paid takes two.
const ONE: u32 = 1;
const TWO: u32 = 2;

impl ImportDraft {
    /// With the numbers that it gets here. `None`: no number can be had.
    pub fn numbered(&self, ids: &dyn Fn() -> Option<i64>) -> Option<NewImport> {
        let course = match &self.course {
            DraftCourse::Waits => ImportCourse::Waits { people: ONE },
            DraftCourse::MayBePaid => ImportCourse::MayBePaid { people: TWO },
            DraftCourse::Followed { hash, group, index, address, raw } => ImportCourse::Followed(FollowedPayment {
                hash: *hash,
                job: JobId::new(ids()?).ok()?,
                slot: SlotId(ids()?),
                group: group.clone(),
                index: *index,
                address: address.clone(),
                raw: *raw,
            }),
        };
        let OldWithdrawal { id, status, hash, created_us, amount, raw, .. } = &self.old;
        let inputs = json!({ "imported": { "id": id, "status": status, "tx_hash": hash, "created_at_us": created_us.to_string(),
            "amount": amount, "amount_raw": raw } });
        Some(NewImport {
            old_id: id.clone(),
            old_status: status.clone(),
            id: WithdrawalId::new(ids()?).ok()?,
            user: self.user,
            asset: self.listing.asset,
            chain: self.chain.id,
            listing: self.listing.id,
            to: self.to.clone(),
            amount: self.amount,
            fee: self.fee,
            inputs: inputs.to_string(),
            course,
        })
    }
}

/// Every open row, in its order.
pub fn plan_import(ground: &ImportGround<'_>, books: &OldBooks) -> Vec<PlannedImport> {
    let planned = |old: &OldWithdrawal| PlannedImport {
        old_id: old.id.clone(),
        status: old.status.clone(),
        draft: ground.place(old, books).map(Box::new),
    };
    books.open.iter().map(planned).collect()
}

/// A row that the other program has gone on with since it was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportChange {
    pub old_id: String,
    pub id: WithdrawalId,
    /// Whether it is followed by the hash that it had.
    pub followed: bool,
    /// What it was and what it is now.
    pub words: String,
}

/// Of all that was taken over before, what is otherwise there now, whether it has ended or not: a program that was stopped changes nothing.
pub fn changed_imports(imported: &[ImportedWithdrawal], books: &OldBooks) -> Vec<ImportChange> {
    let now: HashMap<&str, &OldTaken> = books.taken.iter().map(|one| (one.id.as_str(), one)).collect();
    let changed = |before: &ImportedWithdrawal| {
        let is = match now.get(before.old_id.as_str()).map(|now| (now.status.as_deref(), now.hash.as_deref())) {
            None | Some((None, _)) => "is not there any more".to_owned(),
            Some((Some(status), hash)) if status == before.old_status && is_hash(before.hash, hash) => return None,
            Some((Some(status), None)) => format!("is {status} now"),
            Some((Some(status), Some(hash))) => format!("is {status} now, with the hash {hash}"),
        };
        let ImportedWithdrawal { old_id, id, old_status, hash } = before;
        let words = format!("it was {old_status} when it became {id}, and {is}: the other program is still at work");
        Some(ImportChange { old_id: old_id.clone(), id: *id, followed: hash.is_some(), words })
    };
    imported.iter().filter_map(changed).collect()
}

/// Whether a text is this hash, with or without 0x.
fn is_hash(hash: Option<Hash>, text: Option<&str>) -> bool {
    match (hash, text) {
        (None, None) => true,
        (Some(hash), Some(text)) => {
            let text = text.trim().to_lowercase();
            let digits: String = hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
            text.strip_prefix("0x").unwrap_or(&text) == digits
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Words of requests that nobody has agreed to there, and those of requests that somebody may have paid.
const PENDING: [&str; 1] = ["pending"];
const UNDER_WAY: [&str; 8] =
    ["approved", "queued", "processing", "broadcasting", "broadcasted", "confirming", "sent", "manual_review"];

impl ImportGround<'_> {
    fn place(&self, old: &OldWithdrawal, books: &OldBooks) -> Result<ImportDraft, String> {
        let word = old.status.to_lowercase();
        if !PENDING.contains(&word.as_str()) && !UNDER_WAY.contains(&word.as_str()) {
            let ended = ENDED.contains(&word.as_str());
            return Err(if ended {
                "it has ended".to_owned()
            } else {
                format!("nobody here knows the status {}", old.status)
            });
        }
        if let Some(live) = &books.live {
            // The copy says what it was, and the table of today what has become of it.
            match &old.live {
                None => return Err(format!("it is not in {live} any more")),
                Some(now) if now.to_lowercase() != word => return Err(format!("it is {now} in {live} by now")),
                Some(_) => {}
            }
        }
        let (chain_there, chain) = self.chain(old)?;
        let family = Family::of_chain(chain.kind, &chain.network)
            .ok_or_else(|| format!("the network {} of chain {} is not known", chain.network, chain.name))?;
        let listing = listing(old, chain)?;
        let user = self.names.users.get(&old.user).copied();
        let user = user.ok_or_else(|| format!("the list of users has no {}", old.user))?;
        let (amount, raw) = amount(old, listing)?;
        let fee = match &old.fee {
            None => Amount::ZERO,
            Some(fee) => ledger_amount(fee, listing).map_err(|why| format!("its fee: {why}"))?,
        };
        if fee > amount {
            return Err("its fee is more than its amount".to_owned());
        }
        let to = family.parse_address(old.to.trim()).map_err(|error| format!("its address: {error}"))?;
        if self.pinned.addresses().contains(&to) {
            return Err("its address is a wallet of the house".to_owned());
        }
        let course = match &old.hash {
            // Wherever it was sent to, it was sent.
            Some(hash) => self.followed(old, hash, (chain_there, chain, family), &books.hot_wallets, raw)?,
            None if to.is_nobodys() => {
                return Err("its address: nobody has the key of it, and what is sent there is lost".to_owned());
            }
            None if is_token(chain, family, &to) => {
                return Err("its address is the contract of a token: what is sent there is lost".to_owned());
            }
            None if old.memo.as_ref().is_some_and(|memo| !memo.trim().is_empty()) => {
                return Err("it has a memo, which nothing here would send with it".to_owned());
            }
            // A try that has failed there may have been told, and what a copy calls pending may have been paid since.
            None if PENDING.contains(&word.as_str()) && old.tried.is_empty() && !books.stale => DraftCourse::Waits,
            None => DraftCourse::MayBePaid,
        };
        let (old, chain, listing) = (old.clone(), chain.clone(), listing.clone());
        Ok(ImportDraft { old, user, chain, listing, to: to.to_string(), amount, fee, course })
    }

    /// Its name there, and the chain here.
    fn chain<'a>(&'a self, old: &'a OldWithdrawal) -> Result<(&'a str, &'a ChainRow), String> {
        let there = old.chain.as_deref().ok_or_else(|| "its chain is not in the table chains".to_owned())?;
        let wanted = match self.names.chains.get(there) {
            Some(name) => name.to_string(),
            None => there.to_lowercase(),
        };
        let found = self.chains.iter().find(|chain| chain.name.as_str() == wanted);
        found.map(|chain| (there, chain)).ok_or_else(|| format!("there is no chain {wanted} here"))
    }

    /// Who sent it, and whether its hash can be one of that chain.
    fn followed(
        &self,
        old: &OldWithdrawal,
        hash: &str,
        (there, chain, family): (&str, &ChainRow, Family),
        hot: &BTreeMap<String, Vec<String>>,
        raw: RawAmount,
    ) -> Result<DraftCourse, String> {
        let hash = hash_of(chain.kind, hash)?;
        if old.same_hash > 1 {
            return Err(format!("{} rows have its hash: one payment is one withdrawal's", old.same_hash));
        }
        let named = match (&old.wallet, hot.get(there).map(Vec::as_slice).unwrap_or_default()) {
            (Some(named), _) => named,
            (None, [only]) => only,
            (None, []) => return Err(format!("the other program has no hot wallet on {there}")),
            (None, several) => {
                return Err(format!("which of the {} hot wallets on {there} sent it is not said", several.len()));
            }
        };
        let wallet = family.parse_address(named.trim()).map_err(|error| format!("the wallet {named}: {error}"))?;
        let (group, index, address) = self
            .hot_wallet(chain, &wallet)
            .ok_or_else(|| format!("{wallet} is none of the hot wallets that pay on {} here", chain.name))?;
        Ok(DraftCourse::Followed { hash, group, index, address, raw })
    }

    fn hot_wallet(&self, chain: &ChainRow, wallet: &Address) -> Option<(GroupId, i64, String)> {
        let here = self.pinned.wallets().filter(|(name, ..)| **name == chain.name);
        let mut hot = here.filter(|(.., one)| one.role == WalletRole::Hot && one.address == *wallet);
        match hot.next()?.1 {
            Place::Derived { group, index } => Some((group.clone(), *index, wallet.to_string())),
            Place::Written(_) => None,
        }
    }
}

/// Whether it is the contract of a coin that is listed there.
fn is_token(chain: &ChainRow, family: Family, to: &Address) -> bool {
    let mut contracts = chain.listings.iter().filter_map(|listing| listing.form.contract());
    contracts.any(|contract| family.parse_address(contract).is_ok_and(|token| token == *to))
}

fn listing<'a>(old: &OldWithdrawal, chain: &'a ChainRow) -> Result<&'a ListingRow, String> {
    let symbol = old.symbol.as_deref().ok_or_else(|| "its asset is not in the table assets".to_owned())?;
    let listing = chain.listings.iter().find(|one| one.symbol.as_str() == symbol);
    let listing = listing.ok_or_else(|| format!("{symbol} is not listed on {} here", chain.name))?;
    let decimals =
        old.decimals.ok_or_else(|| format!("{symbol} on {} is not in the table asset_on_chain", chain.name))?;
    if decimals != i64::from(listing.form.decimals()) {
        let here = listing.form.decimals();
        return Err(format!("{symbol} on {} has {decimals} decimals there and {here} here", chain.name));
    }
    if let (Some(there), Some(here)) =
        (old.contract.as_deref().filter(|text| !text.is_empty()), listing.form.contract())
        && !there.eq_ignore_ascii_case(here)
    {
        return Err(format!("{symbol} on {} is the contract {there} there and {here} here", chain.name));
    }
    Ok(listing)
}

/// In ledger units and in chain units, which must be the same amount.
fn amount(old: &OldWithdrawal, listing: &ListingRow) -> Result<(Amount, RawAmount), String> {
    let raw = raw_of(&old.amount, listing.form.decimals())?;
    if let Some(said) = &old.raw
        && raw.to_string() != *said
    {
        return Err(format!("its amount {} is {raw} in chain units, and its amount_raw says {said}", old.amount));
    }
    let amount = in_ledger(raw, listing)?;
    if !amount.is_positive() {
        return Err("its amount is not above zero".to_owned());
    }
    Ok((amount, raw))
}

fn ledger_amount(text: &str, listing: &ListingRow) -> Result<Amount, String> {
    in_ledger(raw_of(text, listing.form.decimals())?, listing)
}

fn in_ledger(raw: RawAmount, listing: &ListingRow) -> Result<Amount, String> {
    let floored = raw.to_ledger(&listing.form).map_err(|error| error.to_string())?;
    if floored.residue == RawAmount::ZERO {
        Ok(floored.amount)
    } else {
        Err("it is finer than a unit of the ledger".to_owned())
    }
}

/// Whole coins as text, in chain units of so many decimals. Exact, or nothing.
fn raw_of(text: &str, decimals: u8) -> Result<RawAmount, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = part.trim_end_matches('0');
    let places = usize::from(decimals);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return Err(format!("{text} is no amount"));
    }
    if part.len() > places {
        return Err(format!("{text} is finer than {decimals} decimals"));
    }
    let all = format!("{whole}{part:0<places$}");
    let trimmed = all.trim_start_matches('0');
    let canonical = if trimmed.is_empty() { "0" } else { trimmed };
    canonical.parse().map_err(|_| format!("{text} is more than a chain can count"))
}

/// EVM writes 0x before a hash, TRON does not.
fn hash_of(kind: ChainKind, text: &str) -> Result<Hash, String> {
    let trimmed = text.trim();
    let digits = match kind {
        ChainKind::Evm => trimmed
            .strip_prefix("0x")
            .ok_or_else(|| format!("{text} is no hash of an EVM chain: it does not begin with 0x"))?,
        ChainKind::Tron => trimmed,
        ChainKind::Bitcoin => {
            return Err(
                "payments of another program are not followed on Bitcoin: its inputs do not say whose they were"
                    .to_owned(),
            );
        }
    };
    let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let bytes: Option<Vec<u8>> = match digits.len() {
        64 => digits.as_bytes().chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect(),
        _ => None,
    };
    let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    bytes.map(Hash).ok_or_else(|| format!("{text} is no hash: 64 hexadecimal digits are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_exact_or_none() {
        let raw = |text: &str, decimals| raw_of(text, decimals).map(|raw| raw.to_string());
        assert_eq!(raw("100.000000000000000000", 18), Ok("100000000000000000000".to_owned()));
        assert_eq!(raw("0.000001000000000000", 6), Ok("1".to_owned()));
        assert_eq!(raw("0.000000000000000000", 6), Ok("0".to_owned()));
        assert_eq!(raw("7", 0), Ok("7".to_owned()));
        for (text, decimals) in
            [("0.0000001", 6), ("-1", 6), ("1e3", 6), ("", 6), (".5", 6), ("NaN", 6), ("1.2.3", 6), ("1,5", 6)]
        {
            assert!(raw(text, decimals).is_err(), "{text}");
        }
        assert!(raw(&"9".repeat(90), 18).is_err());
    }

    #[test]
    fn a_hash_has_the_shape_of_its_chain() {
        let plain = "ab".repeat(32);
        assert!(hash_of(ChainKind::Evm, &format!("0x{plain}")).is_ok());
        assert!(hash_of(ChainKind::Evm, &format!("0x{}", plain.to_uppercase())).is_ok());
        assert!(hash_of(ChainKind::Tron, &plain).is_ok());
        for (kind, text) in [
            (ChainKind::Evm, plain.clone()),
            (ChainKind::Tron, format!("0x{plain}")),
            (ChainKind::Evm, format!("0x{}", &plain[1..])),
            (ChainKind::Tron, format!("{}g", &plain[1..])),
            (ChainKind::Tron, String::new()),
            (ChainKind::Tron, "é".repeat(32)),
            (ChainKind::Bitcoin, plain.clone()),
        ] {
            assert!(hash_of(kind, &text).is_err(), "{text}");
        }
    }
}
