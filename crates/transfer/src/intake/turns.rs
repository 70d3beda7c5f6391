//! Who comes next: users take turns, so that one who sends much does not hold up the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use domain::UserId;

use super::lane::Job;

/// The most orders in one batch. The last turn of a batch is not cut short, so a batch may have a few more.
pub(super) const BATCH: usize = 512;

/// The most orders of one user in one batch: about a fifth. Requests with more are split.
pub(super) const TURN: usize = 100;

/// Requests that wait, by user.
#[derive(Default)]
pub(super) struct Turns {
    waiting: HashMap<UserId, VecDeque<Job>>,
    /// Each user who waits once, in the order of their turns.
    order: VecDeque<UserId>,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn push(&mut self, job: Job) {
        let jobs = self.waiting.entry(job.user).or_default();
        if jobs.is_empty() {
            self.order.push_back(job.user);
        }
        jobs.push_back(job);
    }

    /// The next batch: one turn of each user, as far as there is room. A job whose client has gone away is dropped:
    /// nothing of it is recorded.
    pub fn next_batch(&mut self) -> Vec<Job> {
        let (mut batch, mut orders) = (Vec::new(), 0);
        for _ in 0..self.order.len() {
            if orders >= BATCH {
                break;
            }
            let Some(user) = self.order.pop_front() else { break };
            let Some(mut jobs) = self.waiting.remove(&user) else { continue };
            let mut turn = 0;
            while let Some(job) = jobs.pop_front_if(|job| turn == 0 || turn + job.orders.len() <= TURN) {
                if !job.ended.is_closed() {
                    turn += job.orders.len();
                    batch.push(job);
                }
            }
            orders += turn;
            if !jobs.is_empty() {
                self.waiting.insert(user, jobs);
                self.order.push_back(user);
            }
        }
        batch
    }
}

/// How many orders of each user wait, in all lanes.
#[derive(Debug)]
pub(super) struct Shares {
    most: usize,
    taken: Mutex<HashMap<UserId, usize>>,
}

/// A user's part of the buffer, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    user: UserId,
    orders: usize,
}

impl Shares {
    /// A user may have a quarter of the buffer.
    pub fn of(queue: usize) -> Arc<Self> {
        Arc::new(Self { most: (queue / 4).max(TURN), taken: Mutex::default() })
    }

    /// `None`: too many of the user's orders wait already. One request is always let in.
    pub fn take(self: &Arc<Self>, user: UserId, orders: usize) -> Option<Share> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let before = taken.get(&user).copied().unwrap_or(0);
        if before > 0 && before + orders > self.most {
            return None;
        }
        taken.insert(user, before + orders);
        Some(Share { shares: Arc::clone(self), user, orders })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.user) {
            Some(orders) if *orders > self.orders => *orders -= self.orders,
            Some(_) | None => {
                taken.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_part_of_the_buffer() {
        let (one, two) = (UserId::new(1).expect("positive"), UserId::new(2).expect("positive"));
        let shares = Shares::of(1_000);
        let first = shares.take(one, 1_000).expect("one request is always let in");
        assert!(shares.take(one, 1).is_none());
        let second = shares.take(two, 200).expect("another user");
        let third = shares.take(two, 50).expect("up to a quarter");
        assert!(shares.take(two, 1).is_none());
        drop((first, second));
        assert!(shares.take(one, 1).is_some() && shares.take(two, 200).is_some());
        drop(third);
        assert!(shares.taken.lock().expect("no panic").is_empty(), "nobody waits, nobody is remembered");
    }
}
