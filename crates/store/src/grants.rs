//! One PostgreSQL role for each role of Bursar, and what each may do: the "does NOT" lists of the sources, refused by the server.
//!
//! | module | holds |
//! |---|---|
//! | [`matrix`] | which table a role reads, adds to, changes and removes from |
//! | [`apply`] | makes roles and rights as the matrix says, and takes away what it does not say |
//! | [`look`] | what a role may really do, and how that differs |
//!
//! The owner of the tables (who runs `bursar migrate`) is none of these roles. SQLite has no roles: none of this applies there.

pub mod apply;
pub mod look;
pub mod matrix;

pub use apply::{GrantError, Granted};
pub use look::{RightsDifference, RoleDifference};
pub use matrix::{DatabaseRole, TABLES, TableRights, VIEWS, added_columns, markdown, rights_of};
