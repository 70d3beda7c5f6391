//! One behaviour test, run on both engines: [`db_test!`] makes `sqlite` and `postgres` of it, each run with a
//! database of its own, in parallel.
//!
//! PostgreSQL is found by `BURSAR_TEST_POSTGRES_URL`; `./test` sets it.

pub mod races;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::Timestamp;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::db::{Db, Engine, Options, Pools, TxInner};
use crate::grants::DatabaseRole;
use crate::migrate::MIGRATIONS;
use crate::rows::RowsSql;

statements! {
    /// The name, columns and nullability of every table, for the test that compares the engines.
    READ_SCHEMA = "SELECT table_name::TEXT, column_name::TEXT, is_nullable = 'NO', data_type::TEXT
        FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
        WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND is_generated = 'NEVER'"
        | "SELECT t.name, c.name, c.\"notnull\" <> 0 OR c.pk <> 0, c.type
        FROM sqlite_schema t JOIN pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'";
    /// The columns of every view, in their order. SQLite has no schema `sources`, so the names of its views begin with it.
    READ_VIEWS = "SELECT CASE WHEN table_schema = 'sources' THEN 'sources_' ELSE '' END || table_name::TEXT, column_name::TEXT,
            CASE data_type WHEN 'timestamp with time zone' THEN 'timestamptz' WHEN 'character varying' THEN 'varchar' ELSE data_type::TEXT END
        FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
        WHERE table_schema IN ('public', 'sources') AND table_type = 'VIEW' ORDER BY 1, ordinal_position"
        | "SELECT t.name, c.name, '' FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'view' ORDER BY t.name, c.cid";
    READ_SETTINGS = "SELECT current_setting('synchronous_commit'), current_setting('jit')"
        | "SELECT CAST(synchronous AS TEXT), 'off' FROM pragma_synchronous";
}

/// When every test's clock starts.
pub const NOW: Timestamp = Timestamp::from_micros(1_763_000_000_000_000);

/// `db_test! { async fn law_of_the_test(db: TestDb) { … } }`
#[macro_export]
macro_rules! db_test {
    ($($(#[$attribute:meta])* async fn $name:ident($db:ident: TestDb) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn run($db: &$crate::testing::TestDb) $body

            $(#[$attribute])*
            #[test]
            fn sqlite() {
                $crate::testing::on($crate::Engine::Sqlite, async |db| run(db).await);
            }

            $(#[$attribute])*
            #[test]
            fn postgres() {
                $crate::testing::on($crate::Engine::Postgres, async |db| run(db).await);
            }
        }
    )*};
}

/// A migrated database that no other test uses.
pub struct TestDb {
    pub db: Db,
    pub url: String,
    /// One that logs in as each role, where a test wants that.
    roles: OnceLock<Vec<(DatabaseRole, Db)>>,
    // Holds the SQLite file; gone when the test ends.
    _folder: Option<tempfile::TempDir>,
}

impl std::ops::Deref for TestDb {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

impl TestDb {
    /// The database as this role sees it, logged in as that; as the owner sees it where the test has not asked for roles.
    pub fn of(&self, role: DatabaseRole) -> &Db {
        let roles = self.roles.get();
        roles.and_then(|roles| Some(&roles.iter().find(|(one, _)| *one == role)?.1)).unwrap_or(&self.db)
    }

    /// What the names of its roles begin with: roles are the server's, and other tests have theirs.
    pub fn prefix(&self) -> String {
        let name = self.url.split('?').next().and_then(|url| url.rsplit_once('/')).map(|(_, name)| name);
        format!("{}_", name.expect("a URL with a database name").replace("bursar_test", "bt"))
    }

    /// The same database, for somebody else.
    pub fn url_of(&self, login: &str) -> String {
        let (_, rest) = self.url.split_once('@').expect("a URL with a user");
        format!("postgres://{login}@{rest}")
    }

    /// Any SQL, as somebody who has this role's log-in would type it.
    pub async fn by_hand_as(&self, role: DatabaseRole, text: &str) -> Result<(), sqlx::Error> {
        let Pools::Postgres(pool) = &self.of(role).pools else { panic!("SQLite has no roles") };
        let mut connection = pool.acquire().await?;
        let done = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut *connection).await.map(|_| ());
        sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
        done
    }

    /// Makes the roles, and from now on [`of`](Self::of) is each of them.
    pub async fn with_roles(&self) {
        if self.roles.get().is_some() {
            return;
        }
        let prefix = self.prefix();
        self.apply_grants(&prefix).await.expect("roles and rights");
        let options = Options { max_connections: 4, ..Options::default() };
        let mut roles = Vec::new();
        for role in DatabaseRole::ALL {
            let url = self.url_of(&role.login(&prefix));
            roles.push((role, Db::connect(&url, &options).await.expect("it logs in")));
        }
        self.roles.set(roles).expect("once");
    }

    /// Makes this role alone, which takes a moment where all of them take a second; on SQLite there is none. From now on [`of`](Self::of) is that
    /// role for it, and the owner for every other.
    pub async fn with_role(&self, role: DatabaseRole) {
        if self.db.engine() == Engine::Sqlite || self.roles.get().is_some() {
            return;
        }
        let prefix = self.prefix();
        let statements = crate::grants::apply::script_of(role, &prefix).expect("a good prefix");
        self.by_hand(&statements.join(";\n")).await.expect("a role and its rights");
        let options = Options { max_connections: 10, ..Options::default() };
        let db = Db::connect(&self.url_of(&role.login(&prefix)), &options).await.expect("it logs in");
        self.roles.set(vec![(role, db)]).expect("once");
    }

    /// What [`with_roles`](Self::with_roles) and [`with_role`](Self::with_role) made is the server's, and would stay.
    async fn without_roles(&self) {
        let Some(roles) = self.roles.get() else { return };
        for (role, db) in roles {
            db.close().await;
            let name = role.login(&self.prefix());
            self.by_hand(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await.expect("nothing depends on it");
        }
    }

    /// Any SQL, as an operator with a database shell would type it.
    pub async fn by_hand(&self, text: &str) -> Result<(), sqlx::Error> {
        match self.db.engine() {
            Engine::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await?;
                sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut connection).await.map(|_| ())
            }
            Engine::Sqlite => {
                let mut connection = sqlx::SqliteConnection::connect(&self.url).await?;
                sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut connection).await.map(|_| ())
            }
        }
    }
}

/// A row as an operator's shell prints it. `None` is NULL.
pub type PrintedRow = Vec<Option<String>>;

impl TestDb {
    /// What a database shell answers to one query, in a session that was opened for it.
    pub async fn ask(&self, before: &str, query: &str) -> Result<Vec<PrintedRow>, sqlx::Error> {
        use sqlx::{Row, TypeInfo, ValueRef};
        let (before, query) = (AssertSqlSafe(before.to_owned()), AssertSqlSafe(query.to_owned()));
        match self.db.engine() {
            Engine::Postgres => {
                let mut connection = PgConnection::connect(&self.url).await?;
                sqlx::raw_sql(before).execute(&mut connection).await?;
                // Without preparation everything comes as text.
                let rows = sqlx::raw_sql(query).fetch_all(&mut connection).await?;
                let cell = |row: &sqlx::postgres::PgRow, at| {
                    let value = row.try_get_raw(at)?;
                    if value.is_null() {
                        return Ok(None);
                    }
                    value.as_str().map(|text| Some(text.to_owned())).map_err(sqlx::Error::Decode)
                };
                rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect()
            }
            Engine::Sqlite => {
                let mut connection = sqlx::SqliteConnection::connect(&self.url).await?;
                sqlx::raw_sql(before).execute(&mut connection).await?;
                let rows = sqlx::raw_sql(query).fetch_all(&mut connection).await?;
                let cell = |row: &sqlx::sqlite::SqliteRow, at| {
                    let value = row.try_get_raw(at)?;
                    if value.is_null() {
                        return Ok(None);
                    }
                    match value.type_info().name() {
                        "TEXT" => row.try_get_unchecked::<String, _>(at).map(Some),
                        _ => row.try_get_unchecked::<i64, _>(at).map(|number| Some(number.to_string())),
                    }
                };
                rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect()
            }
        }
    }
}

/// Any SQL on a SQLite file, for tests that have no runtime.
pub fn sqlite_by_hand(url: &str, text: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut connection = sqlx::SqliteConnection::connect(url).await.expect("the file opens");
        sqlx::raw_sql(text).execute(&mut connection).await.expect(text);
        connection.close().await.expect("closed");
    });
}

/// Runs a test on an engine, in a runtime of its own.
pub fn on(engine: Engine, test: impl AsyncFnOnce(&TestDb)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let db = fresh(engine).await;
        db.migrate(NOW).await.expect("a fresh database migrates");
        // So that any test can be run with the rights that its roles have.
        if engine == Engine::Postgres && std::env::var_os("BURSAR_TEST_ROLES").is_some() {
            db.with_roles().await;
        }
        test(&db).await;
        db.without_roles().await;
        db.close().await;
        drop_database(&db).await;
    });
}

/// An empty database, not migrated.
pub async fn fresh(engine: Engine) -> TestDb {
    let (url, folder) = match engine {
        Engine::Sqlite => {
            let folder = tempfile::tempdir().expect("a temporary folder");
            (format!("sqlite://{}", folder.path().join("test.db").display()), Some(folder))
        }
        Engine::Postgres => (create_postgres_database().await, None),
    };
    let options = Options { create: true, max_connections: 10, ..Options::default() };
    let db = Db::connect(&url, &options).await.expect("the test database opens");
    TestDb { db, url, roles: OnceLock::new(), _folder: folder }
}

fn postgres_server() -> String {
    std::env::var("BURSAR_TEST_POSTGRES_URL")
        .expect("tests on PostgreSQL need BURSAR_TEST_POSTGRES_URL: run ./test, or cargo test -- --skip postgres")
}

async fn create_postgres_database() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let server = postgres_server();
    let name = format!("bursar_test_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    admin(&server, &format!("CREATE DATABASE {name}")).await;
    // The server's own query string (a socket's folder, say) goes behind the new database's name.
    let (base, query) =
        server.split_once('?').map_or((server.as_str(), String::new()), |(base, query)| (base, format!("?{query}")));
    let (base, _) = base.rsplit_once('/').expect("a URL with a database name");
    format!("{base}/{name}{query}")
}

async fn admin(server: &str, statement: &str) {
    let mut connection = PgConnection::connect(server).await.expect("the test server answers");
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.expect(statement);
}

/// Keeps the server's disk small; a failed test leaves its database behind to look at.
pub async fn drop_database(db: &TestDb) {
    if db.engine() == Engine::Postgres {
        let path = db.url.split('?').next().and_then(|url| url.rsplit_once('/')).map(|(_, name)| name);
        let name = path.expect("made by create_postgres_database");
        admin(&postgres_server(), &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    }
}

/// Every statement of the store, prepared on the engine. Says which one the engine does not take.
pub async fn prepare_every_statement(db: &TestDb) -> Result<usize, String> {
    let constants = [
        crate::audit::STATEMENTS,
        crate::catalog::STATEMENTS,
        crate::clock::STATEMENTS,
        crate::copy::STATEMENTS,
        crate::dialect::STATEMENTS,
        crate::deposit::assign::STATEMENTS,
        crate::deposit::collect::STATEMENTS,
        crate::deposit::audit::STATEMENTS,
        crate::deposit::depth::STATEMENTS,
        crate::deposit::given_out::STATEMENTS,
        crate::deposit::post::STATEMENTS,
        crate::deposit::read::STATEMENTS,
        crate::entry::bitcoin::STATEMENTS,
        crate::entry::blocks::STATEMENTS,
        crate::entry::cursor::STATEMENTS,
        crate::entry::findings::STATEMENTS,
        crate::entry::look::STATEMENTS,
        crate::entry::orders::STATEMENTS,
        crate::entry::read::STATEMENTS,
        crate::entry::types::STATEMENTS,
        crate::ledger::accounts::STATEMENTS,
        crate::ledger::adjust::STATEMENTS,
        crate::ledger::balances::STATEMENTS,
        crate::ledger::journal::STATEMENTS,
        crate::ledger::post::STATEMENTS,
        crate::migrate::STATEMENTS,
        crate::node::STATEMENTS,
        crate::pair::STATEMENTS,
        crate::signer_head::STATEMENTS,
        crate::transfer::audit::STATEMENTS,
        crate::transfer::days::STATEMENTS,
        crate::transfer::open::STATEMENTS,
        crate::transfer::read::STATEMENTS,
        crate::transfer::sums::STATEMENTS,
        crate::transfer::funding_account::STATEMENTS,
        crate::transfer::unproven::STATEMENTS,
        crate::transfer::flow::STATEMENTS,
        crate::transfer::stops::STATEMENTS,
        crate::transfer::write::STATEMENTS,
        crate::utxo::balance::STATEMENTS,
        #[cfg(feature = "lab")]
        crate::utxo::bulk::STATEMENTS,
        crate::utxo::check::STATEMENTS,
        crate::utxo::cluster::STATEMENTS,
        crate::utxo::coins::STATEMENTS,
        crate::utxo::blocks::STATEMENTS,
        crate::utxo::claimed::STATEMENTS,
        crate::utxo::events::STATEMENTS,
        crate::utxo::followed::STATEMENTS,
        crate::grants::apply::STATEMENTS,
        crate::grants::look::STATEMENTS,
        crate::growth::STATEMENTS,
        crate::utxo::history::STATEMENTS,
        crate::utxo::lease::STATEMENTS,
        crate::utxo::open::STATEMENTS,
        crate::utxo::prune::STATEMENTS,
        crate::utxo::selection::STATEMENTS,
        crate::utxo::stat::STATEMENTS,
        crate::utxo::wallet::STATEMENTS,
        crate::utxo::watch::STATEMENTS,
        crate::wallet::settings::STATEMENTS,
        crate::wallet::users::STATEMENTS,
        #[cfg(feature = "lab")]
        crate::chaos::STATEMENTS,
        #[cfg(feature = "lab")]
        crate::yardstick::STATEMENTS,
        STATEMENTS,
    ];
    #[cfg(feature = "lab")]
    {
        db.prepare_yardstick(1).await.map_err(|error| error.to_string())?;
        db.prepare_plain(1, domain::AssetId(1), domain::Amount::ZERO).await.map_err(|error| error.to_string())?;
    }
    let engine = db.engine();
    let mut texts: Vec<(&str, String)> = Vec::new();
    let nouns = crate::outbound::statements::ALL.into_iter().chain(crate::treasury::statements::ALL);
    let nouns = nouns.chain(crate::withdrawal::statements::ALL).chain(crate::operator::statements::ALL);
    for sql in constants.into_iter().chain(nouns).flatten() {
        let text = if engine == Engine::Postgres { sql.postgres } else { sql.sqlite };
        texts.push((sql.name, text.to_owned()));
    }
    texts.extend(all_rows().map(|sql| (sql.name, sql.text(engine).to_string())));
    for (name, text) in &texts {
        prepare(db, text).await.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(texts.len())
}

/// All statements that take many rows.
fn all_rows() -> impl Iterator<Item = &'static RowsSql> {
    let groups: Vec<&'static [&'static RowsSql]> = vec![
        &crate::catalog::ROWS_STATEMENTS,
        &crate::deposit::advance::ROWS_STATEMENTS,
        &crate::deposit::given_out::ROWS_STATEMENTS,
        &crate::deposit::post::ROWS_STATEMENTS,
        &crate::entry::bitcoin::ROWS_STATEMENTS,
        &crate::entry::blocks::ROWS_STATEMENTS,
        &crate::entry::cursor::ROWS_STATEMENTS,
        &crate::entry::findings::ROWS_STATEMENTS,
        &crate::entry::look::ROWS_STATEMENTS,
        &crate::entry::write::ROWS_STATEMENTS,
        &crate::ledger::accounts::ROWS_STATEMENTS,
        &crate::transfer::days::ROWS_STATEMENTS,
        &crate::transfer::write::ROWS_STATEMENTS,
        #[cfg(feature = "lab")]
        &crate::utxo::bulk::ROWS_STATEMENTS,
        &crate::utxo::cluster::ROWS_STATEMENTS,
        &crate::utxo::check::ROWS_STATEMENTS,
        &crate::utxo::coins::ROWS_STATEMENTS,
        &crate::utxo::blocks::ROWS_STATEMENTS,
        &crate::utxo::claimed::ROWS_STATEMENTS,
        &crate::utxo::events::ROWS_STATEMENTS,
        &crate::utxo::followed::ROWS_STATEMENTS,
        &crate::utxo::lease::ROWS_STATEMENTS,
        &crate::utxo::load::ROWS_STATEMENTS,
        &crate::utxo::wallet::ROWS_STATEMENTS,
        &crate::utxo::write::ROWS_STATEMENTS,
        &crate::wallet::settings::ROWS_STATEMENTS,
        &crate::wallet::users::ROWS_STATEMENTS,
    ];
    let nouns = crate::outbound::statements::rows().into_iter().chain(crate::treasury::statements::rows());
    let nouns = nouns.chain(crate::withdrawal::statements::rows()).chain(crate::operator::statements::rows());
    groups.into_iter().flatten().copied().chain(nouns)
}

/// The statements of the wallets that take many rows, but for those that read a whole page of one anyhow.
fn wallet_rows() -> impl Iterator<Item = &'static RowsSql> {
    use crate::utxo::{blocks, claimed, cluster, coins, events, followed, lease, load, wallet, write};
    let groups: [&'static [&'static RowsSql]; 11] = [
        &blocks::ROWS_STATEMENTS,
        &claimed::ROWS_STATEMENTS,
        &cluster::ROWS_STATEMENTS,
        &coins::ROWS_STATEMENTS,
        &events::ROWS_STATEMENTS,
        &followed::ROWS_STATEMENTS,
        &lease::ROWS_STATEMENTS,
        &load::ROWS_STATEMENTS,
        &wallet::ROWS_STATEMENTS,
        &write::ROWS_STATEMENTS,
        &crate::wallet::users::ROWS_STATEMENTS,
    ];
    groups.into_iter().flatten().copied()
}

/// Those of the chains' own books and of deposits.
fn deposit_rows() -> impl Iterator<Item = &'static RowsSql> {
    use crate::deposit::{advance, given_out, post};
    use crate::entry::{blocks, cursor, look, write};
    let groups: [&'static [&'static RowsSql]; 7] = [
        &advance::ROWS_STATEMENTS,
        &given_out::ROWS_STATEMENTS,
        &post::ROWS_STATEMENTS,
        &blocks::ROWS_STATEMENTS,
        &cursor::ROWS_STATEMENTS,
        &look::ROWS_STATEMENTS,
        &write::ROWS_STATEMENTS,
    ];
    groups.into_iter().flatten().copied()
}

/// How SQLite would go about each statement that takes many rows, for the test that none reads all of a table for each.
pub async fn sqlite_plans_of_rows(db: &TestDb) -> Vec<(&'static str, String)> {
    use sqlx::Row;
    let mut connection = sqlx::SqliteConnection::connect(&db.url).await.expect("the file opens");
    let mut plans = Vec::new();
    for sql in wallet_rows().chain(deposit_rows()).chain(crate::withdrawal::statements::rows()) {
        let text = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", sql.text(Engine::Sqlite)));
        let rows = sqlx::query(text).fetch_all(&mut connection).await.expect(sql.name);
        let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        plans.push((sql.name, steps.join("\n")));
    }
    plans
}

/// The same of one statement of the withdrawals, by its name.
pub async fn sqlite_plan_of_withdrawals(db: &TestDb, name: &str) -> String {
    use sqlx::Row;
    let mut connection = sqlx::SqliteConnection::connect(&db.url).await.expect("the file opens");
    let all = crate::withdrawal::statements::ALL;
    let sql = all.iter().copied().flatten().find(|sql| sql.name == name).expect("a statement of that name");
    let text = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", sql.sqlite));
    let rows = sqlx::query(text).fetch_all(&mut connection).await.expect(name);
    rows.iter().map(|row| row.get("detail")).collect::<Vec<String>>().join("\n")
}

/// The same of PostgreSQL, of all statements that take many rows: the plan that a connection of ours keeps, made of what the
/// server thinks of its tables now.
pub async fn postgres_plans_of_rows(db: &TestDb) -> Vec<(&'static str, String)> {
    use sqlx::Row;
    let mut tx = db.read().await.expect("a transaction");
    let TxInner::Postgres(tx) = &mut tx.inner else { panic!("PostgreSQL is asked") };
    let mut plans = Vec::new();
    for sql in all_rows() {
        let prepare = AssertSqlSafe(format!("PREPARE asked AS {}", sql.text(Engine::Postgres)));
        sqlx::raw_sql(prepare).execute(&mut **tx).await.expect(sql.name);
        let nothing = vec!["NULL"; sql.bind_count()].join(", ");
        let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE asked({nothing})"));
        let rows = sqlx::raw_sql(explain).fetch_all(&mut **tx).await.expect(sql.name);
        let steps: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        plans.push((sql.name, steps.join("\n")));
        sqlx::raw_sql("DEALLOCATE asked").execute(&mut **tx).await.expect(sql.name);
    }
    plans
}

async fn prepare(db: &TestDb, text: &str) -> Result<(), sqlx::Error> {
    use sqlx::{Executor, SqlSafeStr};
    let text = AssertSqlSafe(text.to_owned()).into_sql_str();
    match db.engine() {
        Engine::Postgres => PgConnection::connect(&db.url).await?.prepare(text).await.map(|_| ()),
        Engine::Sqlite => sqlx::SqliteConnection::connect(&db.url).await?.prepare(text).await.map(|_| ()),
    }
}

/// Table, column, whether it must have a value, and its class of type, of every table.
pub async fn schema(db: &TestDb) -> Vec<(String, String, bool, &'static str)> {
    let mut tx = db.read().await.expect("a transaction");
    let rows = fetch_all!(&mut tx, READ_SCHEMA => (String, String, bool, String)).expect("the schema");
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|(table, column, required, kind)| {
            let class = match kind.to_ascii_uppercase().as_str() {
                "BIGINT" | "INTEGER" | "BOOLEAN" => "integer",
                "TEXT" => "text",
                "BYTEA" | "BLOB" => "bytes",
                other => panic!("{table}.{column} has the unexpected type {other}"),
            };
            (table, column, required, class)
        })
        .collect();
    rows.sort();
    rows
}

/// View, column and type of every view. SQLite's views have no types.
pub async fn views(db: &TestDb) -> Vec<(String, String, String)> {
    let mut tx = db.read().await.expect("a transaction");
    fetch_all!(&mut tx, READ_VIEWS => (String, String, String)).expect("the views")
}

/// What a connection says of syncs, and whether statements are compiled before they run.
pub async fn connection_settings(db: &Db) -> (String, String) {
    let mut tries = db.tries();
    let mut tx = tries.begin().await.expect("a transaction");
    let said = fetch_optional!(&mut tx, READ_SETTINGS => (String, String)).expect("an answer").expect("a row");
    tries.end(tx, Ok(())).await.expect("one try").expect("a commit");
    said
}

/// The newest version of the schema, for tests that pretend to be from the future.
pub const fn newest_version() -> i64 {
    MIGRATIONS[MIGRATIONS.len() - 1].version
}
