//! The names of things that a request speaks of, checked where they come in.

use std::fmt;
use std::str::FromStr;

use domain::Timestamp;
use domain::id::{Id, Job, Withdrawal, made_at};
use domain::name::is_name;
pub use domain::{BadName, GroupId};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $why:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                is_name(text).then(|| Self(text.to_owned())).ok_or(BadName::new($why))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )*};
}

names! {
    /// The asker's name for a request. The same name with the same content gets the same answer.
    RequestId, "a request's id is 1 to 64 of a-z, 0-9, -, _ and .";
    /// A person. Two keys of one person count once.
    Person, "a person's name is 1 to 64 of a-z, 0-9, -, _ and .";
    /// A signer, by the name that its first policy gives it for ever. What people sign is for this one.
    SignerName, "a signer's name is 1 to 64 of a-z, 0-9, -, _ and .";
    /// A key of a person, by the name that the policy gives it.
    KeyName, "a key's name is 1 to 64 of a-z, 0-9, -, _ and .";
}

/// What is paid: a withdrawal, or another outbound job. Its number tells when it was made, so that old ones can be
/// forgotten and refused all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobId {
    Withdrawal(i64),
    Job(i64),
}

impl JobId {
    pub const fn number(self) -> i64 {
        match self {
            Self::Withdrawal(number) | Self::Job(number) => number,
        }
    }

    pub const fn made_at(self) -> Timestamp {
        made_at(self.number())
    }
}

/// A request's id in memory: the first half of its SHA-256. What was asked is compared as a whole, and the id is part of it,
/// so another id with the same half could only be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey(pub(crate) [u8; 16]);

impl From<&RequestId> for RequestKey {
    fn from(id: &RequestId) -> Self {
        let hash = crate::digest::sha256(id.as_str().as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&hash[..16]);
        Self(half)
    }
}

/// A job in memory: its kind and its number, in the order of [`JobId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey(pub(crate) [u8; 9]);

impl JobKey {
    pub(crate) const FIRST: Self = Self([0; 9]);
    /// Where the keys of each kind begin.
    pub(crate) const KINDS: [Self; 2] = [Self::FIRST, Self([1, 0, 0, 0, 0, 0, 0, 0, 0])];
    const SIGN: u64 = 1 << 63;

    /// `None`: no job has such a key.
    pub(crate) fn job(self) -> Option<JobId> {
        let (kind, number) = self.0.split_first_chunk::<1>()?;
        let number = (u64::from_be_bytes(number.try_into().ok()?) ^ Self::SIGN).cast_signed();
        match kind {
            [0] => Some(JobId::Withdrawal(number)),
            [1] => Some(JobId::Job(number)),
            _ => None,
        }
    }
}

impl From<JobId> for JobKey {
    fn from(job: JobId) -> Self {
        let kind = match job {
            JobId::Withdrawal(_) => 0,
            JobId::Job(_) => 1,
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&(job.number().cast_unsigned() ^ Self::SIGN).to_be_bytes());
        Self(bytes)
    }
}

impl FromStr for JobId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = BadName::new("a job is wr-… or job-… with its number");
        if let Ok(id) = text.parse::<Id<Withdrawal>>() {
            return Ok(Self::Withdrawal(id.number()));
        }
        text.parse::<Id<Job>>().map(|id| Self::Job(id.number())).map_err(|_| bad)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Withdrawal(number) => f.pad(&format!("wr-{number}")),
            Self::Job(number) => f.pad(&format!("job-{number}")),
        }
    }
}
