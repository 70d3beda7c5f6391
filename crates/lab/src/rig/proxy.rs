//! A wire between server and spot engine that can be held: bytes in it are not lost, but they arrive late.
//! The server sees a leg that does not answer, after it may well have done what it was asked.

use std::net::SocketAddr;
use std::sync::Arc;

use terminal::failure::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::trouble;

pub struct Proxy {
    pub address: SocketAddr,
    held: watch::Sender<bool>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Result<Self, Failure> {
        let failed = |error| trouble("the wire could not be laid", error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (held, is_held) = watch::channel(false);
        tokio::spawn(accept(listener, target, is_held));
        Ok(Self { address, held })
    }

    pub fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, held: watch::Receiver<bool>) {
    while let Ok((near, _)) = listener.accept().await {
        let held = held.clone();
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else { return };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            // Requests go through; only the answers are held back.
            let open = Arc::new(watch::channel(false).0);
            tokio::select! {
                () = pass(near_in, far_out, open.subscribe()) => {}
                () = pass(far_in, near_out, held) => {}
            }
        });
    }
}

/// Copies until either end is gone, and waits before each piece while it is held.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        // A sender that is gone holds nothing any more.
        held.wait_for(|held| !*held).await.ok();
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
