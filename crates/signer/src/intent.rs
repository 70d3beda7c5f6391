//! What is asked for, and the digest of an intent that people sign.

use domain::{ChainName, RawAmount, Timestamp};
use tx::{Address, Coin, Payment};

use crate::approval::GivenApproval;
use crate::approved::SignerChain;
use crate::digest::{Digest32, Fields};
use crate::keys::Purpose;
use crate::names::{GroupId, JobId, Person, RequestId, SignerName};

/// An address of ours, by what it is derived from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub group: GroupId,
    pub index: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntentKind {
    Pay {
        payment: Payment,
        /// Whose address it is, where the policy only allows one that the signer derives.
        owner: Option<Owner>,
    },
    /// Takes the slot of these jobs without paying: on EVM nothing to oneself, on Bitcoin all to change. With no job:
    /// fills a gap.
    Cancel { jobs: Vec<JobId> },
}

/// What one job is to do, as people approve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Which signer it is for: the same people may approve for several.
    pub signer: SignerName,
    /// Which network it is for. A chain's name is only ours.
    pub network: SignerChain,
    pub job: JobId,
    /// 0 for the job's first slot. A job that moves to another slot takes the next number, so that no approval serves
    /// twice.
    pub round: u32,
    pub chain: ChainName,
    pub group: GroupId,
    pub kind: IntentKind,
    /// The most that it may cost beyond the payment, in the chain's own coin. Payouts of one Bitcoin transaction add theirs.
    pub most_fee: RawAmount,
    /// No slot is taken for it after this time.
    pub expires: Timestamp,
    /// TRON: how many transactions may be built for it, one after the other. 1 elsewhere.
    pub builds: u32,
    /// Who asked for it. This person's approval does not count.
    pub requester: Person,
}

/// The label of the digest that approvers sign.
pub const INTENT_LABEL: &str = "bursar-signer-intent-v1";
/// The label of the digest of what a job pays, which no replacement may change.
const PAYMENT_LABEL: &str = "bursar-signer-payment-v1";
const REQUEST_LABEL: &str = "bursar-signer-request-v1";

/// A coin's one text: `native`, or the contract's address.
pub fn coin_text(coin: &Coin) -> String {
    match coin {
        Coin::Native => "native".to_owned(),
        Coin::Token(contract) => contract.to_string(),
    }
}

impl Intent {
    /// The kind as five fields: its word, coin, recipient, amount, jobs. What does not apply is empty.
    fn kind_fields(&self, fields: &mut Fields) {
        match &self.kind {
            IntentKind::Pay { payment, .. } => {
                fields.text(&"pay").text(&coin_text(&payment.coin)).text(&payment.to).text(&payment.amount).text(&"");
            }
            IntentKind::Cancel { jobs } => {
                let jobs: Vec<String> = jobs.iter().map(JobId::to_string).collect();
                fields.text(&"cancel").text(&"").text(&"").text(&"").text(&jobs.join(","));
            }
        }
    }

    /// What approvers sign: [`crate::digest`] over, in this order, signer, network, job, round, chain, group, kind, coin, recipient,
    /// amount, cancelled jobs (joined by commas), most fee, expiry (microseconds), builds, requester.
    pub fn digest(&self) -> Digest32 {
        let mut fields = Fields::new(INTENT_LABEL);
        fields.text(&self.signer).text(&self.network);
        fields.text(&self.job).text(&self.round).text(&self.chain).text(&self.group);
        self.kind_fields(&mut fields);
        fields.text(&self.most_fee).text(&self.expires.micros()).text(&self.builds).text(&self.requester);
        fields.finish()
    }

    /// What stays the same however often the job is signed.
    pub fn payment_digest(&self) -> Digest32 {
        let mut fields = Fields::new(PAYMENT_LABEL);
        fields.text(&self.job).text(&self.chain).text(&self.group);
        self.kind_fields(&mut fields);
        fields.finish()
    }

    pub const fn payment(&self) -> Option<&Payment> {
        match &self.kind {
            IntentKind::Pay { payment, .. } => Some(payment),
            IntentKind::Cancel { .. } => None,
        }
    }
}

/// What only a Bitcoin transaction has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BitcoinTerms {
    /// For each input, in its order, the number of the address in the group that it spends from.
    pub inputs: Vec<u64>,
    /// The numbers of the addresses in the group that change goes to, one for each output that no intent explains.
    pub change: Vec<u64>,
    pub lock_time: u32,
    /// Of every input.
    pub sequence: u32,
}

/// One thing to sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignRequest {
    pub id: RequestId,
    pub chain: ChainName,
    pub group: GroupId,
    /// The number of the wallet in the group. Bitcoin: see [`BitcoinTerms::inputs`].
    pub index: u64,
    pub payload: Vec<u8>,
    pub intents: Vec<Intent>,
    pub bitcoin: Option<BitcoinTerms>,
    /// TRON: the id of the job's transaction before this one, which has expired. Whoever cannot name it does not know what was signed.
    pub replaces: Option<Digest32>,
    pub approvals: Vec<GivenApproval>,
}

impl SignRequest {
    /// Two requests with the same digest ask for the same thing. Approvals are no part of it: they may come later. Neither is what it replaces: that
    /// only says what the asker knows.
    pub fn digest(&self) -> Digest32 {
        let mut fields = Fields::new(REQUEST_LABEL);
        fields.text(&self.id).text(&self.chain).text(&self.group).text(&self.index).bytes(&self.payload);
        for intent in &self.intents {
            fields.bytes(&intent.digest());
            if let IntentKind::Pay { owner: Some(owner), .. } = &intent.kind {
                fields.text(&"owner").text(&owner.group).text(&owner.index);
            }
        }
        if let Some(terms) = &self.bitcoin {
            let numbers = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            fields.text(&"bitcoin").text(&numbers(&terms.inputs)).text(&numbers(&terms.change));
            fields.text(&terms.lock_time).text(&terms.sequence);
        }
        fields.finish()
    }
}

/// Where the signer's own addresses come from: its keys, never a row or a request.
pub trait Addresses {
    fn address(&self, group: &GroupId, index: u64) -> Option<Address>;
    /// What the group's keys were made for.
    fn purpose(&self, group: &GroupId) -> Option<Purpose>;
}

impl Addresses for crate::keys::Keyring {
    fn address(&self, group: &GroupId, index: u64) -> Option<Address> {
        Self::address(self, group, crate::keys::AddressPath::of_number(index).ok()?).ok()
    }

    fn purpose(&self, group: &GroupId) -> Option<Purpose> {
        self.group(group).ok().map(|group| group.purpose)
    }
}
