//! What runs for ever, in a process of its own (`bursar run`) or within the server.
//!
//! | role | worker of the sources | does |
//! |---|---|---|
//! | [`deposits`] | deposit listeners, confirmation worker | reads a chain, proves its blocks, credits what is deep enough |

pub mod deposits;
