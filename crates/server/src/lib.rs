//! The HTTP side of Bursar.
//!
//! | module | holds |
//! |---|---|
//! | [`auth`] | who asks: tokens, and the keys that they are checked with |
//! | [`limit`] | how often one user may ask |
//! | [`coins`] | what can be withdrawn where, as it was seen last |
//! | [`withdrawal_intake`] | withdrawals that come in at once are taken in one commit |
//! | [`api`] | what can be asked |
//! | [`alerts`] | what needs a person, told to a log, a webhook and a command |
//! | [`operator_client`] | how the command line asks a server as an operator |
//! | [`listen`] | connections: accept, bound, drain |

pub mod alerts;
pub mod api;
pub mod auth;
pub mod coins;
pub mod limit;
pub mod listen;
pub mod operator_client;
pub mod withdrawal_intake;
