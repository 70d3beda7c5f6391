//! Keys, and the rules by which they sign.
//!
//! | module | holds |
//! |---|---|
//!
//! A process of its own, without a database and without nodes. It signs what it reads: see CUSTODY.md §5 of the design.
