//! Connections: their number is bounded, in all and for each address; each has limited time to send its request; and when
//! the server stops, those that are open may finish what they began.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// How long requests that were begun may take to end when the server stops.
const DRAIN: Duration = Duration::from_secs(20);
/// A client that takes nothing of its answer for so long is gone.
const UNREAD_MS: u32 = 30_000;
/// The longest headers of a request.
const HEADER_BYTES: usize = 32 << 10;
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at a time. More clients than that wait to be accepted.
    pub connections: usize,
    /// Of one address. Further ones are refused at once, so that one address cannot take all.
    pub per_address: usize,
    /// How long a client may take to send its headers, the first time and between two requests.
    pub header_time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 4_096, per_address: 2_048, header_time: Duration::from_secs(60) }
    }
}

/// For operators.
#[derive(Debug, Default)]
pub struct Connections {
    pub open: AtomicU64,
    pub refused: AtomicU64,
}

/// The connections of each address.
struct Addresses {
    most: usize,
    open: Mutex<BTreeMap<IpAddr, usize>>,
    counts: Arc<Connections>,
}

/// One connection's place among those of its address, given back when it is dropped.
struct Place {
    of: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// `None`: the address has too many.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = household(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if *count >= self.most {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *count += 1;
        self.counts.open.fetch_add(1, Ordering::Relaxed);
        Some(Place { of: Arc::clone(self), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.of.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
        self.of.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whoever has one address of IPv6 has the 2^64 that begin like it.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

/// Serves until `stop` is done, then takes no more connections and lets the open ones finish what they began.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    counts: Arc<Connections>,
    stop: impl Future<Output = ()>,
) {
    let room = Arc::new(Semaphore::new(bounds.connections));
    let addresses = Arc::new(Addresses { most: bounds.per_address, open: Mutex::default(), counts });
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(bounds.header_time).max_buf_size(HEADER_BYTES);
    tokio::pin!(stop);
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&room).acquire_owned() => permit,
            () = &mut stop => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, say: others may close soon.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(place) = addresses.enter(peer.ip()) else {
            refuse(&stream);
            continue;
        };
        let set = stream.set_nodelay(true).and_then(|()| Ok(set_tcp_user_timeout(&stream, UNREAD_MS)?));
        if let Err(error) = set {
            tracing::debug!(%error, "small answers may be late, and silent clients stay");
        }
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended badly");
            }
            drop((permit, place));
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}

/// What an address gets that has too many connections. No request of it is read.
fn refusal() -> String {
    let error = json!({
        "code": "TOO_MANY_CONNECTIONS", "message": "this address has too many connections",
        "docs": "docs/errors/TOO_MANY_CONNECTIONS.md",
    });
    let body = json!({ "error": error }).to_string();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 1\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Says why, if that takes no time. The connection closes in any case.
fn refuse(stream: &TcpStream) {
    if let Err(error) = stream.try_write(refusal().as_bytes()) {
        tracing::debug!(%error, "a refused client was not told why");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_gets_them_back() {
        let addresses =
            Arc::new(Addresses { most: 2, open: Mutex::default(), counts: Arc::new(Connections::default()) });
        let [one, other]: [IpAddr; 2] = ["10.0.0.1".parse().expect("one"), "10.0.0.2".parse().expect("one")];
        let places: Vec<_> = (0..2).map(|_| addresses.enter(one).expect("room")).collect();
        assert!(addresses.enter(one).is_none());
        let kept = addresses.enter(other).expect("another address");
        assert_eq!(addresses.counts.open.load(Ordering::Relaxed), 3);
        drop(places);
        assert!(addresses.enter(one).is_some());
        drop(kept);
        assert!(addresses.open.lock().expect("no panic").is_empty(), "nothing is kept of those that are gone");
        assert_eq!(addresses.counts.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_household_of_ipv6_counts_as_one() {
        let household = |text: &str| household(text.parse().expect("an address")).to_string();
        assert_eq!(household("2001:db8:1:2:aaaa::1"), household("2001:db8:1:2:bbbb::2"));
        assert_ne!(household("2001:db8:1:2::1"), household("2001:db8:1:3::1"));
        assert_eq!(household("::ffff:10.0.0.1"), "10.0.0.1");
    }
}
