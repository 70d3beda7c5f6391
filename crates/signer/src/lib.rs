//! Keys, and the rules by which they sign.
//!
//! | module | holds |
//! |---|---|
//! | [`keys`] | wallet groups, where their mnemonics come from, addresses, and the signatures of each chain |
//! | [`process`] | what a process that opens keys does first: no core dumps, not traceable, locked in memory |
//! | [`authorizer`] | takes a batch of requests, decides, logs, gives what may be signed |
//! | [`intent`] | what is asked for, and the digest that people sign |
//! | [`reading`] | decode and compare: every part of a payload is explained by its intents |
//! | [`policy`] | what is allowed: roles, caps, destinations, approvals; signed by administrators |
//! | [`approval`] | people's signatures: Ed25519 and passkeys |
//! | [`slots`], [`slot`], [`caps`], [`clock`] | one slot per job; what has gone out; the time that it goes by |
//! | [`verdict`] | what is answered |
//! | [`state`], [`sorted`], [`log`] | all that is remembered, in little memory, and the chain of entries that restores it |
//! | [`approved`] | a payload that was decided on: nothing else is signed |
//! | [`service`], [`client`] | the same over HTTP: a process of its own, and how others ask it |
//! | [`access`], [`wire`] | who may ask for what, and requests and answers as JSON |
//! | [`names`], [`digest`], [`text`], [`refusal`] | the words of a request, their hashes, their texts, and every reason for a no |
//!
//! A process of its own, without a database and without nodes. It signs what it reads: see CUSTODY.md §5 of the design.
//!
//! **No public function signs a bare hash**, and none gives a private key away. What is signed is an [`Approved`], which only
//! this crate can make.

pub mod access;
pub mod approval;
pub mod approved;
pub mod authorizer;
pub mod caps;
pub mod client;
pub mod clock;
pub mod digest;
pub mod intent;
pub mod keys;
#[cfg(feature = "lab")]
pub mod local;
pub mod log;
pub mod names;
pub mod policy;
pub mod process;
pub mod reading;
pub mod refusal;
pub mod service;
pub mod slot;
pub mod slots;
pub mod sorted;
pub mod state;
pub mod text;
pub mod verdict;
pub mod wire;

pub use approved::{Approved, Signed, SignerChain};
pub use authorizer::Authorizer;
pub use clock::{Moment, MomentClock};
pub use intent::{Addresses, BitcoinTerms, Intent, IntentKind, Owner, SignRequest};
pub use names::{BadName, GroupId};
pub use refusal::SignerRefusal;
pub use verdict::{Verdict, Verdicts};
