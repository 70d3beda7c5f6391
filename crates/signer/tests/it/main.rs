//! Integration tests of the signer.
