//! Internal transfers over a real database and a real spot engine, with a leg between them that misbehaves on demand.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod audit;
mod crash;
mod create;
mod http_leg;
mod id_maker;
mod operator;
mod pair;
mod races;
mod step;
mod storm;
mod support;
