//! Turns. Tasks are plain futures that the scheduler polls one at a time.
//!
//! A task that waits for something simulated gives its turn back. A task that waits for the database keeps its turn: it
//! is polled until the database has answered, before the next task runs. So the scheduler alone decides the order.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a task gave its turn back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yield {
    /// It goes on when it is chosen again.
    Turn,
    /// Its process dies here.
    Death,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Parked,
    Died,
}

/// The world of a simulation, as far as turns are concerned: why the task that has the turn gives it back.
pub(crate) trait Stage: Sync {
    fn give_back(&self, why: Yield);
    fn given_back(&self) -> Option<Yield>;
}

thread_local! {
    /// Whatever waits for its turn. A simulation has a thread of its own.
    static PARKED: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Waits until the scheduler chooses this task again.
pub(crate) async fn park(world: &impl Stage) {
    let mut asked = false;
    poll_fn(|context| {
        if asked {
            return Poll::Ready(());
        }
        asked = true;
        world.give_back(Yield::Turn);
        // One of several that a task waits for together is polled again only if it is woken, and that must not be in this turn.
        PARKED.with_borrow_mut(|parked| parked.push(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// The process dies here: this future never ends, and the scheduler drops it.
pub(crate) async fn die(world: &impl Stage) {
    poll_fn(|_| {
        world.give_back(Yield::Death);
        Poll::<()>::Pending
    })
    .await;
}

/// Lets a task run until it gives its turn back.
pub(crate) async fn run(world: &impl Stage, work: &mut Work) -> Ended {
    PARKED.with_borrow_mut(std::mem::take).into_iter().for_each(Waker::wake);
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        let yielded = world.given_back();
        match (polled, yielded) {
            (Poll::Ready(()), _) => Poll::Ready(Ended::Done),
            (Poll::Pending, Some(Yield::Turn)) => Poll::Ready(Ended::Parked),
            (Poll::Pending, Some(Yield::Death)) => Poll::Ready(Ended::Died),
            // The database is at work, or a call waits for its timeout: no other task may run meanwhile.
            (Poll::Pending, None) => Poll::Pending,
        }
    })
    .await
}
