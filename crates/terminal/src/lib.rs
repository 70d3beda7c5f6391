//! How a command speaks: failures with a code and a hint, tables, and the machine's clock.
