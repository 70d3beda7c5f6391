//! Blocks that are believed: what one node shows is held against the header that a quorum has.

use std::sync::{Arc, Mutex, PoisonError};

use crate::block::Header;
use crate::endpoint::{CallError, Node, Pool};
use crate::error::ChainError;

/// Why what a node shows of a block is not taken.
#[derive(Debug)]
pub(crate) enum Unfit {
    Call(CallError),
    /// It does not hash to what the quorum has: the node lies.
    Forged {
        height: u64,
        what: String,
    },
    /// It cannot be hashed here. The node may be honest.
    NotUnderstood {
        height: u64,
        what: String,
    },
}

impl From<CallError> for Unfit {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Runs it on one node after the other until what one shows fits. A node whose blocks do not fit is named and set aside.
pub(crate) async fn until_one_fits<T, F, Fut>(pool: &Pool, procedure: F) -> Result<T, ChainError>
where
    F: Fn(Arc<Node>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, Unfit>> + Send,
    T: Send,
{
    let (procedure, unfit) = (&procedure, &Mutex::new(None));
    let note = |error: ChainError| {
        let mut noted = unfit.lock().unwrap_or_else(PoisonError::into_inner);
        // That one node lies says nothing of what another one shows.
        if !matches!(*noted, Some(ChainError::BlockNotUnderstood { .. })) {
            *noted = Some(error);
        }
    };
    let fitting = pool.any(|node| async move {
        procedure(Arc::clone(&node)).await.map_err(|trouble| match trouble {
            // That a node refuses says nothing about a block that a quorum has: another may show it.
            Unfit::Call(CallError::Refused { message, .. }) => node.lacks(message),
            Unfit::Call(error) => error,
            Unfit::Forged { height, what } => {
                pool.forges(&node, height, &what);
                note(ChainError::BlockNotProven { height, why: what.clone() });
                node.bad(what)
            }
            Unfit::NotUnderstood { height, what } => {
                note(ChainError::BlockNotUnderstood { height, why: what.clone() });
                node.lacks(what)
            }
        })
    });
    let fitting = fitting.await;
    let unfit = unfit.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (fitting, unfit) {
        (Err(_), Some(unfit)) => Err(unfit),
        (fitting, _) => fitting,
    }
}

/// Headers that a quorum has must be a chain: they were asked for one by one, and it may have changed meanwhile.
pub(crate) fn in_a_row<'a>(headers: impl IntoIterator<Item = &'a Header>) -> Result<(), ChainError> {
    let mut before: Option<&Header> = None;
    for header in headers {
        if before.is_some_and(|before| before.hash != header.parent) {
            return Err(ChainError::BlockMissing { height: header.height });
        }
        before = Some(header);
    }
    Ok(())
}
