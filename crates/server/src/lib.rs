//! The HTTP side of Bursar.
//!
//! | module | holds |
//! |---|---|
//! | [`auth`] | who asks: tokens, and the keys that they are checked with |
//! | [`limit`] | how often one user may ask |
//! | [`api`] | what can be asked |
//! | [`alerts`] | what needs a person, told to a log, a webhook and a command |
//! | [`operator_client`] | how the command line asks a server as an operator |
//! | [`listen`] | connections: accept, bound, drain |

pub mod alerts;
pub mod api;
pub mod auth;
pub mod limit;
pub mod listen;
pub mod operator_client;
