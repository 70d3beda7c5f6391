//! Whose turn it is. Tasks are plain futures that the scheduler polls one at a time.
//!
//! A task that waits for something simulated gives its turn back. One that waits for the database keeps it: it is polled
//! on until the database has answered, before anybody else runs. So the order of everything is the scheduler's alone.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::world::Shared;

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

/// Waits until the scheduler chooses this task again.
pub(crate) async fn park(world: &Shared) {
    let mut asked = false;
    poll_fn(|_| {
        if asked {
            return Poll::Ready(());
        }
        asked = true;
        world.lock().yielded = Some(Yield::Turn);
        Poll::Pending
    })
    .await;
}

/// The process dies here: this never ends, and the scheduler drops it.
pub(crate) async fn die(world: &Shared) {
    poll_fn(|_| {
        world.lock().yielded = Some(Yield::Death);
        Poll::<()>::Pending
    })
    .await;
}

/// Lets a task run until it gives its turn back.
pub(crate) async fn run(world: &Shared, work: &mut Work) -> Ended {
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        let yielded = world.lock().yielded.take();
        match (polled, yielded) {
            (Poll::Ready(()), _) => Poll::Ready(Ended::Done),
            (Poll::Pending, Some(Yield::Turn)) => Poll::Ready(Ended::Parked),
            (Poll::Pending, Some(Yield::Death)) => Poll::Ready(Ended::Died),
            // The database is at work, or a call waits for its caller's patience to end: nothing else can happen.
            (Poll::Pending, None) => Poll::Pending,
        }
    })
    .await
}
