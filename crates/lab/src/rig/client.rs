//! One connection to the server's interface, with a token of one user at a time, that comes back after every break.

use std::net::SocketAddr;
use std::time::Duration;

use domain::{Clock, UserId};
use serde_json::Value;
use server::auth::{Claims, sign_hs256};
use terminal::clock::SystemClock;
use tokio::net::TcpStream;

use crate::load;

pub struct Client {
    /// Where servers are. After a break it turns to the next one.
    addresses: Vec<SocketAddr>,
    at: usize,
    stream: Option<TcpStream>,
    secret: Vec<u8>,
    answer: Vec<u8>,
}

/// No whole answer came: the server may or may not have done what was asked.
#[derive(Debug)]
pub struct NoAnswer;

/// Longer than the server ever takes.
const PATIENCE: Duration = Duration::from_secs(15);

impl Client {
    pub fn new(addresses: Vec<SocketAddr>, at: usize, secret: Vec<u8>) -> Self {
        Self { addresses, at, stream: None, secret, answer: Vec::new() }
    }

    /// Goes on with the next server.
    pub fn turn(&mut self) {
        self.stream = None;
        self.at = self.at.wrapping_add(1);
    }

    /// Sends a request and reads the answer as JSON.
    pub async fn ask(
        &mut self,
        user: UserId,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), NoAnswer> {
        let now = SystemClock.now();
        let claims = Claims {
            user,
            issuer: "rig".to_owned(),
            audience: "rig".to_owned(),
            issued_at: now,
            expires_at: now.plus_micros(600_000_000),
        };
        let token = sign_hs256(&self.secret, None, &claims).map_err(|_| NoAnswer)?;
        let body = body.map(ToString::to_string).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: bursar\r\nAuthorization: Bearer {token}\r\n{kind}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        let exchange = load::exchange(&mut stream, request.as_bytes(), &mut self.answer);
        let Ok(Ok(head)) = tokio::time::timeout(PATIENCE, exchange).await else { return Err(NoAnswer) };
        if !head.closes {
            self.stream = Some(stream);
        }
        let body = self.answer.get(head.length..).unwrap_or_default();
        Ok((head.status, serde_json::from_slice(body).unwrap_or_default()))
    }

    async fn connect(&self) -> Result<TcpStream, NoAnswer> {
        let address = self.addresses.get(self.at % self.addresses.len().max(1)).ok_or(NoAnswer)?;
        let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| NoAnswer)?.map_err(|_| NoAnswer)?;
        stream.set_nodelay(true).map_err(|_| NoAnswer)?;
        Ok(stream)
    }
}
