//! The engine's behaviour from outside: what survives which fault, and what the service and the network promise.

mod common;
mod damage;
mod faults;
mod net;
mod service;
mod storm;
