//! Roles and rights, as the matrix says. All of it is one transaction: whoever works meanwhile has the old rights or the new ones.

use sqlx::AssertSqlSafe;

use super::look::{RoleDifference, compare_all};
use super::matrix::{DatabaseRole, TABLES, VIEWS, added_columns, rights_of};
use crate::db::{Db, Engine, Tx, TxInner};
use crate::dialect::LOCK_MIGRATIONS;
use crate::error::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    #[error("SQLite has no roles: who may write the file may do everything")]
    NoRoles,
    #[error("{0} is no beginning of a role's name: small letters, digits and _, at most 40, the first a letter")]
    BadPrefix(String),
    /// Nothing was changed. Somebody other than the owner of the tables has given the right, so the owner cannot take it away.
    #[error("{} keeps a right that it should not have: {}", .0.name, .0.difference)]
    Stays(RoleDifference),
}

impl GrantError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::NoRoles => "DATABASE_HAS_NO_ROLES",
            Self::BadPrefix(_) => "BAD_USAGE",
            Self::Stays(_) => "RIGHTS_TOO_MANY",
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// As they were run, in their order. Empty: everything was as it should be.
    pub statements: Vec<String>,
    /// How things were before.
    pub differences: Vec<RoleDifference>,
}

fn check_prefix(prefix: &str) -> Result<(), GrantError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = prefix.bytes().next().is_some_and(|first| first.is_ascii_lowercase());
    if begins && prefix.len() <= 40 && prefix.bytes().all(good) {
        Ok(())
    } else {
        Err(GrantError::BadPrefix(prefix.to_owned()))
    }
}

statements! {
    /// The words that take from a role the powers that it has and should not have.
    READ_POWERS = "SELECT concat_ws(' ', CASE WHEN rolsuper THEN 'NOSUPERUSER' END, CASE WHEN rolcreatedb THEN 'NOCREATEDB' END,
            CASE WHEN rolcreaterole THEN 'NOCREATEROLE' END, CASE WHEN rolreplication THEN 'NOREPLICATION' END,
            CASE WHEN rolbypassrls THEN 'NOBYPASSRLS' END, CASE WHEN NOT rolcanlogin THEN 'LOGIN' END)
        FROM pg_roles WHERE rolname = $1::NAME" | "SELECT '' WHERE $1 <> $1";
    READ_MEMBER_OF = "SELECT quote_ident(o.rolname) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member JOIN pg_roles o ON o.oid = m.roleid
        WHERE r.rolname = $1::NAME ORDER BY 1" | "SELECT '' WHERE $1 <> $1";
    /// Schemas that are none of ours, in which the role has rights to tables.
    READ_OTHER_SCHEMAS = "SELECT DISTINCT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            CROSS JOIN LATERAL aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
        WHERE r.rolname = $1::NAME AND n.nspname NOT IN ('public', 'sources') ORDER BY 1" | "SELECT '' WHERE $1 <> $1";
}

/// The server gives everybody temporary tables, which are looked in before ours. The name of the database is known to whoever runs it.
fn no_temporary_tables(whose: &str) -> String {
    format!(
        "DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM {whose} CASCADE', current_database()); END $$"
    )
}

/// What nobody but the owner gets by being anybody.
fn for_nobody() -> Vec<String> {
    let statements = [
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "REVOKE ALL ON ALL TABLES IN SCHEMA public, sources FROM PUBLIC",
        "REVOKE ALL ON ALL SEQUENCES IN SCHEMA public, sources FROM PUBLIC",
        "REVOKE ALL ON SCHEMA sources FROM PUBLIC",
    ];
    let mut statements = statements.map(str::to_owned).to_vec();
    statements.push(no_temporary_tables("PUBLIC"));
    statements
}

/// The rights of one role, which is there: none, and then those of the matrix.
fn for_role(role: DatabaseRole, name: &str) -> Vec<String> {
    let mut statements = vec![
        format!("REVOKE ALL ON ALL TABLES IN SCHEMA public, sources FROM {name} CASCADE"),
        format!("REVOKE ALL ON ALL SEQUENCES IN SCHEMA public, sources FROM {name} CASCADE"),
        format!("REVOKE ALL ON SCHEMA public, sources FROM {name} CASCADE"),
        no_temporary_tables(name),
        format!("GRANT USAGE ON SCHEMA public TO {name}"),
    ];
    let rights = rights_of(role);
    if rights.keys().any(|table| table.starts_with("sources.")) {
        statements.push(format!("GRANT USAGE ON SCHEMA sources TO {name}"));
    }
    // In the order of the schema, so that the text is the same every time and reads like it.
    for table in TABLES.iter().chain(VIEWS) {
        let Some(rights) = rights.get(table) else { continue };
        let insert = added_columns(table)
            .map_or_else(|| "INSERT".to_owned(), |columns| format!("INSERT ({})", columns.join(", ")));
        let mut words: Vec<String> = Vec::new();
        for (given, word) in [(rights.read, "SELECT"), (rights.add, insert.as_str()), (rights.remove, "DELETE")] {
            if given {
                words.push(word.to_owned());
            }
        }
        if !rights.change.is_empty() {
            let columns: Vec<&str> = rights.change.iter().copied().collect();
            words.push(format!("UPDATE ({})", columns.join(", ")));
        }
        statements.push(format!("GRANT {} ON {table} TO {name}", words.join(", ")));
    }
    statements
}

/// How a role is made. It has no password: the owner of the server sets one, or lets it in otherwise.
fn make(name: &str) -> String {
    format!("CREATE ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS")
}

/// The whole of it for a database in which nothing is done yet, as text.
pub fn script(prefix: &str) -> Result<Vec<String>, GrantError> {
    check_prefix(prefix)?;
    let mut statements: Vec<String> = DatabaseRole::ALL.iter().map(|role| make(&role.login(prefix))).collect();
    statements.extend(for_nobody());
    for role in DatabaseRole::ALL {
        statements.extend(for_role(role, &role.login(prefix)));
    }
    Ok(statements)
}

/// One role alone with its rights, for a database in which no role is made yet.
#[cfg(feature = "testing")]
pub(crate) fn script_of(role: DatabaseRole, prefix: &str) -> Result<Vec<String>, GrantError> {
    check_prefix(prefix)?;
    let name = role.login(prefix);
    let mut statements = vec![make(&name)];
    statements.extend(for_nobody());
    statements.extend(for_role(role, &name));
    Ok(statements)
}

impl Db {
    /// Makes the roles that are missing, and brings the rights of all to what the matrix says. Run again, it does nothing.
    pub async fn apply_grants(&self, prefix: &str) -> Result<Granted, GrantError> {
        check_prefix(prefix)?;
        if self.engine() == Engine::Sqlite {
            return Err(GrantError::NoRoles);
        }
        let mut tries = self.tries();
        loop {
            let mut tx = tries.begin().await?;
            let result = match bring_all(&mut tx, prefix).await {
                // Undone as a whole, with the transaction.
                Ok(Err(stays)) => return Err(GrantError::Stays(stays)),
                Ok(Ok(granted)) => Ok(granted),
                Err(error) => Err(error),
            };
            if let Some(done) = tries.end(tx, result).await {
                return Ok(done?);
            }
        }
    }
}

/// `Err` within: a right that the owner could not take away.
async fn bring_all(tx: &mut Tx, prefix: &str) -> Result<Result<Granted, RoleDifference>, StoreError> {
    // Migrations and grants, one at a time.
    fetch_optional!(tx, LOCK_MIGRATIONS => (String,))?;
    let mut granted = Granted { statements: Vec::new(), differences: compare_all(tx, prefix).await? };
    if granted.differences.is_empty() {
        return Ok(Ok(granted));
    }
    for statement in for_nobody() {
        run(tx, statement, &mut granted).await?;
    }
    for role in DatabaseRole::ALL {
        let name = role.login(prefix);
        if granted.differences.iter().any(|one| one.role == role) {
            bring(tx, role, &name, &mut granted).await?;
        }
    }
    let mut left = compare_all(tx, prefix).await?;
    left.sort_by_key(|one| !one.difference.is_too_much());
    Ok(left.into_iter().next().map_or(Ok(granted), Err))
}

async fn bring(tx: &mut Tx, role: DatabaseRole, name: &str, granted: &mut Granted) -> Result<(), StoreError> {
    match fetch_optional!(tx, READ_POWERS => (String,), name)? {
        None => run(tx, make(name), granted).await?,
        // Only what it has: to take away what it does not have may take powers that the owner lacks.
        Some((powers,)) if powers.is_empty() => {}
        Some((powers,)) => run(tx, format!("ALTER ROLE {name} {powers}"), granted).await?,
    }
    for (other,) in fetch_all!(tx, READ_MEMBER_OF => (String,), name)? {
        run(tx, format!("REVOKE {other} FROM {name} CASCADE"), granted).await?;
    }
    for (schema,) in fetch_all!(tx, READ_OTHER_SCHEMAS => (String,), name)? {
        run(tx, format!("REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name} CASCADE"), granted).await?;
    }
    for statement in for_role(role, name) {
        run(tx, statement, granted).await?;
    }
    Ok(())
}

async fn run(tx: &mut Tx, statement: String, granted: &mut Granted) -> Result<(), StoreError> {
    tx.next_statement().await?;
    match &mut tx.inner {
        TxInner::Postgres(tx) => {
            sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut **tx).await?;
        }
        TxInner::Sqlite(_) => {}
    }
    granted.statements.push(statement);
    Ok(())
}
