//! Connections: their number is bounded, each has limited time to send its request, and when the server stops, those
//! that are open may finish what they began.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at a time. More clients than that wait to be accepted.
const CONNECTIONS: usize = 4_096;
/// How long a client may take to send its headers, the first time and between two requests.
const HEADER_TIME: Duration = Duration::from_secs(60);
/// How long requests that were begun may take to end when the server stops.
const DRAIN: Duration = Duration::from_secs(20);
/// A client that takes nothing of its answer for so long is gone.
const UNREAD_MS: u32 = 30_000;
/// The longest headers of a request.
const HEADER_BYTES: usize = 32 << 10;

/// Serves until `stop` is done, then takes no more connections and lets the open ones finish what they began.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(HEADER_BYTES);
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
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, say: others may close soon.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
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
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time");
    }
}
