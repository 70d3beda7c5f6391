//! Internal transfers over a real database and a real spot engine, with a leg between them that misbehaves on demand.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod audit;
mod clocks;
mod crash;
mod create;
mod engine_watch;
mod http_leg;
mod id_maker;
mod intake;
mod invariant;
mod operator;
mod pair;
mod panics;
mod races;
mod reconcile;
mod step;
mod storm;
mod support;
