//! The check of withdrawals by somebody outside: fraud, sanctions, travel rule. One worker of it.
//!
//! | | |
//! |---|---|
//! | reads | checks that are due, with what they are about |
//! | writes | what was answered, with what follows: a yes lets people and policy agree, a no gives the customer the money back |
//! | may never do | take silence, an error or garbage for an answer; believe an answer that is not signed, or is to another question; ask twice at once |
//!
//! | module | holds |
//! |---|---|
//! | `seal` | what is asked, its digest, and the signatures of both sides |
//! | [`http`] | one question over HTTP |
//!
//! **Unknown is not yes, and not no** (law 4): whatever is not a good answer is asked again, later and later, for ever. **A no is final**: it is written down
//! first, and where the signer cannot be asked whether it has signed the withdrawal, the money goes back when it can.

pub mod http;
mod seal;

pub use http::{BadCheckPlace, HttpCheck};

use domain::Clock;
use futures_util::StreamExt;
use futures_util::stream;
use store::Db;
use store::withdrawal::{CheckHeard, ChecksKept, DueCheck, WithdrawalId};

use super::WithdrawalError;
use super::signed::{Remembers, signed_or_unasked};

/// Checks of one round.
const MOST: i64 = 64;
/// So many questions are on their way at a time.
const SIDE_BY_SIDE: usize = 8;
const FIRST_PAUSE_MICROS: i64 = 5_000_000;
const LONGEST_PAUSE_MICROS: i64 = 600_000_000;
/// Beyond the time that the questions of a round may take, before another worker asks them.
const MARGIN_MICROS: i64 = 30_000_000;

/// What one round has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckRound {
    pub kept: ChecksKept,
    /// Refused ones whose customers have their money back.
    pub rejected: usize,
    /// There is more to do at once.
    pub more: bool,
}

impl CheckRound {
    pub const fn join(&mut self, other: Self) {
        self.kept.allowed += other.kept.allowed;
        self.kept.review += other.kept.review;
        self.kept.refused += other.kept.refused;
        self.kept.waiting += other.kept.waiting;
        self.kept.late += other.kept.late;
        self.rejected += other.rejected;
        self.more = other.more;
    }
}

pub struct CheckWorker<'a> {
    db: &'a Db,
    check: &'a HttpCheck,
    /// Whoever remembers what was signed: what gives money back asks first.
    signer: Option<&'a dyn Remembers>,
    /// The last refused one that was looked at: what the signer knows more of stays held, and keeps nobody behind it waiting.
    after: Option<WithdrawalId>,
}

impl<'a> CheckWorker<'a> {
    pub const fn new(db: &'a Db, check: &'a HttpCheck, signer: Option<&'a dyn Remembers>) -> Self {
        Self { db, check, signer, after: None }
    }

    /// Asks about what is due, side by side, and writes down what was heard. Then what was refused is given back.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<CheckRound, WithdrawalError> {
        let now = clock.now();
        let waves = MOST / i64::try_from(SIDE_BY_SIDE).unwrap_or(1);
        let longest = waves.saturating_mul(self.check.timeout_micros());
        let until = now.plus_micros(longest.saturating_add(MARGIN_MICROS));
        // The try is durable before anybody outside can see it.
        let due = self.db.claim_checks(MOST, until, now).await?;
        let full = i64::try_from(due.len()).unwrap_or(MOST) >= MOST;
        let asked: Vec<_> = due.iter().map(|one| self.ask(one, clock)).collect();
        let heard: Vec<(WithdrawalId, CheckHeard)> = stream::iter(asked).buffer_unordered(SIDE_BY_SIDE).collect().await;
        let kept = self.db.keep_check_answers(&heard, clock.now()).await?;
        let refused = self.db.checks_refused(self.after, MOST).await?;
        let refused_full = i64::try_from(refused.len()).unwrap_or(MOST) >= MOST;
        self.after = refused.last().copied().filter(|_| refused_full);
        let mut rejected = 0;
        if !refused.is_empty() {
            let signed = signed_or_unasked(self.signer, &refused).await;
            rejected = self.db.reject_refused(&refused, &signed, clock.now()).await?;
        }
        Ok(CheckRound { kept, rejected, more: full })
    }

    async fn ask(&self, due: &DueCheck, clock: &dyn Clock) -> (WithdrawalId, CheckHeard) {
        let heard = match self.check.ask(due, clock.now()).await {
            Ok((verdict, reason, digest)) => CheckHeard::Answer { verdict, reason, digest },
            Err(trouble) => {
                tracing::warn!(withdrawal = %due.row.id, tries = due.tries, trouble, "the check of a withdrawal has no answer; it is asked again");
                let again = clock.now().plus_micros(pause_micros(due.tries));
                CheckHeard::Nothing { trouble: trouble.to_owned(), again }
            }
        };
        (due.row.id, heard)
    }
}

/// Before the next try, after so many.
fn pause_micros(tries: i64) -> i64 {
    let doubled = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX).min(20);
    FIRST_PAUSE_MICROS.saturating_mul(1_i64 << doubled).min(LONGEST_PAUSE_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_later_and_later() {
        let pauses: Vec<i64> = (1..=9).map(|tries| pause_micros(tries) / 1_000_000).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(pause_micros(i64::MAX), LONGEST_PAUSE_MICROS);
    }
}
