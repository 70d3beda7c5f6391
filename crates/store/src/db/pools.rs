//! How the connections are used, for operators.

use super::{Db, Pools};

/// The connections of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    pub name: &'static str,
    pub in_use: u32,
    pub idle: u32,
    pub most: u32,
}

impl Db {
    pub fn pools(&self) -> Vec<PoolUse> {
        match &self.pools {
            Pools::Postgres(pool) => vec![pool_use("all", pool)],
            Pools::Sqlite { writer, reader } => vec![pool_use("write", writer), pool_use("read", reader)],
        }
    }
}

fn pool_use<D: sqlx::Database>(name: &'static str, pool: &sqlx::Pool<D>) -> PoolUse {
    // The two are read one after the other, and connections come and go meanwhile.
    let idle = u32::try_from(pool.num_idle()).unwrap_or(u32::MAX);
    PoolUse { name, in_use: pool.size().saturating_sub(idle), idle, most: pool.options().get_max_connections() }
}
