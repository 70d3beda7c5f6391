//! The engine over TCP, with TLS to other machines ([`tls`]).
//!
//! Frames, little-endian: length of the rest (4 bytes), number (8), kind (1), body. The first frame of a connection
//! carries the token; its answer, the welcome, says which engine this is, how far it has come, what its clock says, and
//! the role of the token ([`credential`]). Each later frame is a submission of up to 4096 requests in the layouts of the
//! log, asks for a snapshot, or for the newest operations that moved money in or out. Many frames may be in flight; each
//! answer has the number of its frame.
//!
//! **Nothing here can stall the writer.** A client that does not read fills its own socket and then its own queue of 64
//! frames; then its frames are no longer taken. The server drops it when one write to it takes more than half a minute.

pub mod client;
pub mod credential;
pub mod server;
pub mod tls;

pub use client::{Client, ClientError, ConnectionState};
pub use credential::{BadCredentials, BadToken, Credentials, Role, Token};
pub use server::Server;
pub use tls::{BadTls, ClientTls, ServerTls};

use std::io;
use std::time::Duration;

use domain::Timestamp;
use rustix::net::sockopt;
use tokio::net::TcpStream;

use self::credential::TOKEN_MAX;
use crate::operation::{BadLayout, Fields, LONGEST};
use crate::{Answer, NoAnswer, OpId, PairStanding, Request, SUBMISSION_MAX, Standing};

/// The version of the protocol; both sides must have the same.
const VERSION: u8 = 2;
/// The longest frame that either side takes, without its length: number, kind, and the largest submission.
const FRAME_MAX: usize = 9 + SUBMISSION_MAX * LONGEST;
/// The longest first frame: number, kind, version, token. A stranger gets no more room than that.
const HELLO_MAX: usize = 10 + TOKEN_MAX;

// The kinds of frames. The first three and the ninth come from the client, the others from the server.
const HELLO: u8 = 1;
const SUBMIT: u8 = 2;
const SNAPSHOT: u8 = 3;
const WELCOME: u8 = 4;
const ANSWERS: u8 = 5;
const REFUSED: u8 = 6;
const SNAPSHOT_TAKEN: u8 = 7;
const FAILED: u8 = 8;
const CROSSINGS: u8 = 9;
const LISTED: u8 = 10;

/// What an engine says of itself at the beginning of each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Which engine it is, and how far it has come with its database.
    pub pair: PairStanding,
    /// What its clock said.
    pub time: Timestamp,
    /// What the client may do there.
    pub role: Role,
}

impl Welcome {
    /// The version comes first, so that both sides can tell a welcome that they cannot read.
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        Answer::Pair(self.pair).encode(out);
        out.extend_from_slice(&self.time.micros().to_le_bytes());
        out.push(self.role.number());
    }

    fn decode(body: &[u8]) -> Result<Self, BadLayout> {
        let mut fields = Fields::of(body);
        if fields.u8()? != VERSION {
            return Err(BadLayout::Field);
        }
        let Answer::Pair(pair) = Answer::decode(&mut fields)? else { return Err(BadLayout::Field) };
        let time = Timestamp::from_micros(fields.i64()?);
        let role = Role::from_number(fields.u8()?).ok_or(BadLayout::Field)?;
        Ok(Self { pair, time, role })
    }
}

/// Small frames go at once, and a peer whose machine is gone is noticed within a minute or so.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// A frame that came in whole.
struct Frame<'a> {
    number: u64,
    kind: u8,
    body: &'a [u8],
}

/// The first frame in the bytes, and how long it is; `None` if it has not come in whole yet.
fn parse(bytes: &[u8], longest: usize) -> Result<Option<(Frame<'_>, usize)>, BadLayout> {
    let mut fields = Fields::of(bytes);
    let Ok(length) = fields.u32() else { return Ok(None) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(9..=longest).contains(&length) {
        return Err(BadLayout::Field);
    }
    let Some(frame) = bytes.get(4..4 + length) else { return Ok(None) };
    let mut fields = Fields::of(frame);
    let (number, kind) = (fields.u64()?, fields.u8()?);
    Ok(Some((Frame { number, kind, body: fields.rest() }, 4 + length)))
}

/// Adds a frame; the body is written by the closure, its length filled in afterwards.
fn put(out: &mut Vec<u8>, number: u64, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&number.to_le_bytes());
    out.push(kind);
    body(out);
    // No body is longer than FRAME_MAX, so the length fits.
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn requests(body: &[u8]) -> Result<Vec<Request>, BadLayout> {
    let mut fields = Fields::of(body);
    let mut requests = Vec::with_capacity(body.len() / 32);
    while !fields.rest().is_empty() {
        requests.push(Request::decode(&mut fields)?);
    }
    Ok(requests)
}

fn answers(body: &[u8]) -> Result<Vec<Answer>, BadLayout> {
    let mut fields = Fields::of(body);
    let mut answers = Vec::with_capacity(body.len() / 2);
    while !fields.rest().is_empty() {
        answers.push(Answer::decode(&mut fields)?);
    }
    Ok(answers)
}

/// A list of operations: id and standing, nine bytes each.
fn crossings(body: &[u8]) -> Result<Vec<(OpId, Standing)>, BadLayout> {
    let mut fields = Fields::of(body);
    let mut list = Vec::with_capacity(body.len() / 9);
    while !fields.rest().is_empty() {
        let (id, standing) = (OpId::new(fields.i64()?), Standing::from_number(fields.u8()?));
        list.push(id.zip(standing).ok_or(BadLayout::Field)?);
    }
    Ok(list)
}

/// Why a server gives no answer to a frame, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameRefusal {
    Engine(NoAnswer),
    Unauthorized,
    Malformed,
    /// The role of the client's token may not make a request of the frame. Nothing of the frame was run.
    Forbidden,
}

impl FrameRefusal {
    const fn number(self) -> u8 {
        match self {
            Self::Engine(NoAnswer::Busy) => 1,
            Self::Engine(NoAnswer::Size) => 2,
            Self::Engine(NoAnswer::Stopped) => 3,
            Self::Unauthorized => 4,
            Self::Malformed => 5,
            Self::Forbidden => 6,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Engine(NoAnswer::Busy),
            2 => Self::Engine(NoAnswer::Size),
            3 => Self::Engine(NoAnswer::Stopped),
            4 => Self::Unauthorized,
            5 => Self::Malformed,
            6 => Self::Forbidden,
            _ => return None,
        })
    }
}
