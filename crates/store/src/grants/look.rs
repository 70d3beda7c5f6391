//! What a role may do in this database, whatever gave it the right: a grant of its own, one to PUBLIC, another role that it is a member of, the
//! tables being its own, or that it is a superuser. Held against what the matrix says.

use std::collections::{BTreeMap, BTreeSet};

use super::matrix::{DatabaseRole, FUNCTIONS_SCHEMA, TableRights, added_columns, rights_of};
use crate::db::{Db, Engine, Tx};
use crate::error::StoreError;

statements! {
    /// A role's own powers, and what it could do with this database or with the schemas that we look names up in.
    READ_ROLE = "SELECT r.rolsuper, r.rolcreaterole, r.rolcreatedb, r.rolreplication, r.rolbypassrls,
            has_database_privilege(r.oid, d.oid, 'CREATE'), has_schema_privilege(r.oid, 'public', 'CREATE'),
            COALESCE(has_schema_privilege(r.oid, s.oid, 'CREATE'), FALSE), has_database_privilege(r.oid, d.oid, 'TEMP')
        FROM pg_roles r JOIN pg_database d ON d.datname = current_database() LEFT JOIN pg_namespace s ON s.nspname = 'sources'
        WHERE r.rolname = $1::NAME"
        | "SELECT FALSE, FALSE, FALSE, FALSE, FALSE, FALSE, FALSE, FALSE, FALSE WHERE $1 <> $1";
    READ_MEMBERSHIPS = "SELECT o.rolname::TEXT FROM pg_roles o JOIN pg_roles r ON r.rolname = $1::NAME
        WHERE o.oid <> r.oid AND NOT r.rolsuper AND pg_has_role(r.oid, o.oid, 'MEMBER') ORDER BY 1" | "SELECT '' WHERE $1 <> $1";
    /// Whoever owns something has whatever rights were taken away as soon as it gives them to itself again.
    READ_OWNED = "SELECT CASE n.nspname WHEN 'public' THEN '' ELSE n.nspname || '.' END || c.relname::TEXT
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.oid = c.relowner
        WHERE r.rolname = $1::NAME AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
        UNION SELECT 'the function ' || p.proname::TEXT FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner WHERE r.rolname = $1::NAME
        UNION SELECT 'the schema ' || n.nspname::TEXT FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
        WHERE r.rolname = $1::NAME AND n.nspname !~ '^pg_'
        UNION SELECT 'this database' FROM pg_database d JOIN pg_roles r ON r.oid = d.datdba
        WHERE r.rolname = $1::NAME AND d.datname = current_database() ORDER BY 1" | "SELECT '' WHERE $1 <> $1";
    /// TableRights to a whole table or view. What an extension has brought is none of ours.
    READ_TABLE_RIGHTS = "SELECT CASE n.nspname WHEN 'public' THEN '' ELSE n.nspname || '.' END || c.relname::TEXT, p.word
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            CROSS JOIN unnest(ARRAY['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) AS p(word)
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
            AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.objid = c.oid AND e.classid = 'pg_class'::REGCLASS AND e.deptype = 'e')
            AND has_table_privilege($1::NAME, c.oid, p.word)
        UNION SELECT CASE n.nspname WHEN 'public' THEN '' ELSE n.nspname || '.' END || c.relname::TEXT, 'maintain'
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.rolname = $1::NAME
            CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND a.privilege_type = 'MAINTAIN'
            AND (a.grantee = 0 OR pg_has_role(r.oid, a.grantee, 'USAGE')) ORDER BY 1, 2" | "SELECT '', '' WHERE $1 <> $1";
    /// Rights to a server's settings there are from 15 on.
    READ_SERVER_VERSION = "SELECT current_setting('server_version_num')::BIGINT" | "SELECT 0";
    /// In a session that calls itself a replica no trigger looks at anything.
    READ_MAY_BE_REPLICA = "SELECT has_parameter_privilege($1::NAME, 'session_replication_role', 'SET')" | "SELECT FALSE WHERE $1 <> $1";
    /// TableRights to columns of tables, where the whole table is not given.
    READ_COLUMN_RIGHTS = "SELECT CASE n.nspname WHEN 'public' THEN '' ELSE n.nspname || '.' END || c.relname::TEXT, a.attname::TEXT, p.word
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
            CROSS JOIN unnest(ARRAY['select', 'insert', 'update', 'references']) AS p(word)
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
            AND a.attnum > 0 AND NOT a.attisdropped
            AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.objid = c.oid AND e.classid = 'pg_class'::REGCLASS AND e.deptype = 'e')
            AND has_column_privilege($1::NAME, c.oid, a.attnum, p.word) AND NOT has_table_privilege($1::NAME, c.oid, p.word)
        ORDER BY 1, 2, 3" | "SELECT '', '', '' WHERE $1 <> $1";
    /// A counter could be set back. Whoever adds a row of a table with numbers of its own needs no right to its counter.
    READ_COUNTER_RIGHTS = "SELECT c.relname::TEXT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'S' AND n.nspname IN ('public', 'sources')
            AND (has_sequence_privilege($1::NAME, c.oid, 'UPDATE') OR has_sequence_privilege($1::NAME, c.oid, 'USAGE')) ORDER BY 1"
        | "SELECT '' WHERE $1 <> $1";
    READ_SCHEMA_RIGHTS = "SELECT n.nspname::TEXT FROM pg_namespace n
        WHERE n.nspname IN ('public', 'sources') AND has_schema_privilege($1::NAME, n.oid, 'USAGE') ORDER BY 1" | "SELECT '' WHERE $1 <> $1";
    /// Who logged in, and who that is now: `SET ROLE` can be taken back at any time.
    READ_SESSION = "SELECT session_user::TEXT, current_user::TEXT" | "SELECT '', ''";
}

/// One way in which a role's rights are not those of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RightsDifference {
    /// There is no such role.
    NoRole,
    /// It may do what it should not.
    TooMuch(String),
    /// It may not do what its work needs.
    Missing(String),
}

impl RightsDifference {
    pub const fn is_too_much(&self) -> bool {
        match self {
            Self::TooMuch(_) => true,
            Self::NoRole | Self::Missing(_) => false,
        }
    }
}

impl std::fmt::Display for RightsDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRole => f.write_str("there is no such role"),
            Self::TooMuch(what) => write!(f, "it may {what}"),
            Self::Missing(what) => write!(f, "it may not {what}"),
        }
    }
}

/// A difference, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleDifference {
    pub role: DatabaseRole,
    /// As the server calls it.
    pub name: String,
    pub difference: RightsDifference,
}

impl Db {
    /// How the rights of whoever is logged in differ from those of a role. `None` on SQLite, which has no roles.
    pub async fn compare_own_rights(
        &self,
        role: DatabaseRole,
    ) -> Result<Option<(String, Vec<RightsDifference>)>, StoreError> {
        if self.engine() == Engine::Sqlite {
            return Ok(None);
        }
        let mut tx = self.read().await?;
        let session = fetch_optional!(&mut tx, READ_SESSION => (String, String))?;
        let (login, now) =
            session.ok_or_else(|| StoreError::Corrupt { what: "a session without a user".to_owned() })?;
        let mut differences = compare(&mut tx, role, &login).await?;
        if now != login {
            differences.push(RightsDifference::TooMuch(format!(
                "become another role: it logged in as {login} and acts as {now}"
            )));
        }
        Ok(Some((login, differences)))
    }

    /// The same of every role that `bursar grants` makes, under the names that begin so.
    pub async fn compare_grants(&self, prefix: &str) -> Result<Vec<RoleDifference>, StoreError> {
        let mut tx = self.read().await?;
        compare_all(&mut tx, prefix).await
    }
}

pub(super) async fn compare_all(tx: &mut Tx, prefix: &str) -> Result<Vec<RoleDifference>, StoreError> {
    let mut all = Vec::new();
    for role in DatabaseRole::ALL {
        let name = role.login(prefix);
        let differences = compare(tx, role, &name).await?;
        all.extend(differences.into_iter().map(|difference| RoleDifference { role, name: name.clone(), difference }));
    }
    Ok(all)
}

/// The first PostgreSQL that has rights to settings.
const PARAMETER_RIGHTS: i64 = 150_000;

/// Sorted: what is too much first.
pub(super) async fn compare(tx: &mut Tx, role: DatabaseRole, login: &str) -> Result<Vec<RightsDifference>, StoreError> {
    type Powers = (bool, bool, bool, bool, bool, bool, bool, bool, bool);
    let powers = fetch_optional!(tx, READ_ROLE => Powers, login)?;
    let Some(powers) = powers else {
        return Ok(vec![RightsDifference::NoRole]);
    };
    let (
        superuser,
        makes_roles,
        makes_databases,
        replicates,
        bypasses,
        makes_schemas,
        makes_tables,
        makes_views,
        hides,
    ) = powers;
    let held = [
        (superuser, "do everything: it is a superuser"),
        (makes_roles, "make roles"),
        (makes_databases, "make databases"),
        (replicates, "copy the whole server by replication"),
        (bypasses, "pass row level security by"),
        (makes_schemas, "make schemas in this database"),
        (makes_tables, "make tables and functions in the schema public"),
        (makes_views, "make tables and functions in the schema sources"),
        (hides, "make temporary tables, which hide ours of the same name"),
    ];
    let mut found: BTreeSet<RightsDifference> = held
        .into_iter()
        .filter(|(held, _)| *held)
        .map(|(_, words)| RightsDifference::TooMuch(words.to_owned()))
        .collect();
    if superuser {
        // All else follows from it, and would be a page.
        return Ok(found.into_iter().collect());
    }
    let version = fetch_optional!(tx, READ_SERVER_VERSION => (i64,))?.map_or(0, |(version,)| version);
    if version >= PARAMETER_RIGHTS && fetch_optional!(tx, READ_MAY_BE_REPLICA => (bool,), login)? == Some((true,)) {
        found.insert(RightsDifference::TooMuch("switch triggers off (session_replication_role)".to_owned()));
    }
    for (other,) in fetch_all!(tx, READ_MEMBERSHIPS => (String,), login)? {
        found.insert(RightsDifference::TooMuch(format!("act as the role {other}")));
    }
    for (owned,) in fetch_all!(tx, READ_OWNED => (String,), login)? {
        found.insert(RightsDifference::TooMuch(format!("give itself any right to {owned}, which it owns")));
    }
    for (counter,) in fetch_all!(tx, READ_COUNTER_RIGHTS => (String,), login)? {
        found.insert(RightsDifference::TooMuch(format!("use the counter {counter}")));
    }
    let schemas = fetch_all!(tx, READ_SCHEMA_RIGHTS => (String,), login)?;
    let schemas: BTreeSet<&str> = schemas.iter().map(|(schema,)| schema.as_str()).collect();
    let wanted = rights_of(role);
    if !schemas.contains("public") {
        found.insert(RightsDifference::Missing("look into the schema public".to_owned()));
    }
    match (schemas.contains(FUNCTIONS_SCHEMA), wanted.keys().any(|name| name.starts_with("sources."))) {
        (false, true) => found.insert(RightsDifference::Missing("look into the schema sources".to_owned())),
        (true, false) => found.insert(RightsDifference::TooMuch("look into the schema sources".to_owned())),
        (true, true) | (false, false) => false,
    };
    let tables = fetch_all!(tx, READ_TABLE_RIGHTS => (String, String), login)?;
    let columns = fetch_all!(tx, READ_COLUMN_RIGHTS => (String, String, String), login)?;
    found.extend(differences(&wanted, &Held::new(tables, columns)));
    Ok(found.into_iter().collect())
}

/// What a role has, as the server says.
struct Held {
    whole: BTreeSet<(String, String)>,
    columns: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Held {
    fn new(tables: Vec<(String, String)>, columns: Vec<(String, String, String)>) -> Self {
        let mut by_table: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for (table, column, word) in columns {
            by_table.entry((table, word)).or_default().insert(column);
        }
        Self { whole: tables.into_iter().collect(), columns: by_table }
    }

    fn has(&self, table: &str, word: &str) -> bool {
        self.whole.contains(&(table.to_owned(), word.to_owned()))
    }
}

fn differences(wanted: &BTreeMap<&'static str, TableRights>, held: &Held) -> Vec<RightsDifference> {
    let none = TableRights::default();
    let mut found = Vec::new();
    for (table, word) in &held.whole {
        let rights = wanted.get(table.as_str()).unwrap_or(&none);
        let allowed = match word.as_str() {
            "select" => rights.read,
            "insert" => rights.add && added_columns(table).is_none(),
            "delete" => rights.remove,
            // A whole table is never to be changed: columns are named.
            _ => false,
        };
        if !allowed {
            found.push(RightsDifference::TooMuch(format!("{} {table}", verb(word))));
        }
    }
    for ((table, word), columns) in &held.columns {
        let rights = wanted.get(table.as_str()).unwrap_or(&none);
        let more: Vec<&str> = columns
            .iter()
            .map(String::as_str)
            .filter(|column| match word.as_str() {
                "select" => !rights.read,
                "insert" => !rights.add || added_columns(table).is_some_and(|added| !added.contains(column)),
                "update" => !rights.change.contains(*column),
                _ => true,
            })
            .collect();
        if !more.is_empty() {
            found.push(RightsDifference::TooMuch(format!("{} {table} ({})", verb(word), more.join(", "))));
        }
    }
    for (table, rights) in wanted {
        let added = added_columns(table).filter(|_| rights.add);
        let add = rights.add && added.is_none();
        for (needed, word) in [(rights.read, "select"), (add, "insert"), (rights.remove, "delete")] {
            if needed && !held.has(table, word) {
                found.push(RightsDifference::Missing(format!("{} {table}", verb(word))));
            }
        }
        let may_add = held.columns.get(&((*table).to_owned(), "insert".to_owned()));
        let unadded = |column: &&&str| !held.has(table, "insert") && !may_add.is_some_and(|may| may.contains(**column));
        let unadded: Vec<&str> = added.unwrap_or_default().iter().filter(unadded).copied().collect();
        if !unadded.is_empty() {
            found.push(RightsDifference::Missing(format!("{} {table} ({})", verb("insert"), unadded.join(", "))));
        }
        let has = held.columns.get(&((*table).to_owned(), "update".to_owned()));
        let whole = held.has(table, "update");
        let lacks = |column: &&&str| !whole && !has.is_some_and(|has| has.contains(**column));
        let lacking: Vec<&str> = rights.change.iter().filter(lacks).copied().collect();
        if !lacking.is_empty() {
            found.push(RightsDifference::Missing(format!("{} {table} ({})", verb("update"), lacking.join(", "))));
        }
    }
    found
}

fn verb(word: &str) -> &'static str {
    match word {
        "select" => "read",
        "insert" => "add to",
        "update" => "change",
        "delete" => "remove from",
        "truncate" => "empty",
        "references" => "make references to",
        "maintain" => "lock and rewrite",
        _ => "hang triggers on",
    }
}
