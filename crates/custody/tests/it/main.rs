//! What the wallet decides: money adds up, rules of nodes are kept, and what is built can be signed. No services.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod build;
mod bump;
mod read;
mod select;
mod world;
