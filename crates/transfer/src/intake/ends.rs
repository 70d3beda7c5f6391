//! Requests that wait for the end of a transfer that an earlier request has made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::id::{self, Id};
use domain::transfer::Transfer;
use tokio::sync::mpsc;

type Listeners = HashMap<Id<id::Transfer>, Vec<mpsc::UnboundedSender<Transfer>>>;

#[derive(Debug, Default)]
pub(super) struct Ends {
    listeners: Mutex<Listeners>,
}

/// One request that listens, until it is dropped.
pub(super) struct Listener {
    ends: Arc<Ends>,
    ids: Vec<Id<id::Transfer>>,
    told: mpsc::UnboundedReceiver<Transfer>,
}

impl Ends {
    pub fn listen(self: &Arc<Self>, ids: Vec<Id<id::Transfer>>) -> Listener {
        let (tell, told) = mpsc::unbounded_channel();
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &ids {
            listeners.entry(*id).or_default().push(tell.clone());
        }
        Listener { ends: Arc::clone(self), ids, told }
    }

    /// Tells those who wait for these transfers where they stand after their first round.
    pub fn tell(&self, transfers: &[Transfer]) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.is_empty() {
            return;
        }
        for transfer in transfers {
            for listener in listeners.remove(&transfer.id).into_iter().flatten() {
                // One that has gone away needs to know nothing.
                listener.send(transfer.clone()).ok();
            }
        }
    }
}

impl Listener {
    /// Waits for ever if nothing more is told.
    pub async fn told(&mut self) -> Transfer {
        match self.told.recv().await {
            Some(transfer) => transfer,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.told.close();
        let mut listeners = self.ends.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.ids {
            if let Some(others) = listeners.get_mut(id) {
                others.retain(|other| !other.is_closed());
                if others.is_empty() {
                    listeners.remove(id);
                }
            }
        }
    }
}
