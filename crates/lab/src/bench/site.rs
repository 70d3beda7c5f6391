//! Where a bench takes place: a folder and a database, and what must outlive them.

use std::path::{Path, PathBuf};

use store::db::sqlite_url;
use terminal::failure::Failure;
use terminal::output::warn;

use crate::postgres::PrivatePostgres;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EngineName {
    Sqlite,
    Postgres,
}

impl EngineName {
    const fn engine(self) -> store::Engine {
        match self {
            Self::Sqlite => store::Engine::Sqlite,
            Self::Postgres => store::Engine::Postgres,
        }
    }

    pub const fn name(self) -> &'static str {
        self.engine().name()
    }
}

/// It is removed when the bench ends.
pub struct Site {
    url: String,
    folder: PathBuf,
    _server: Option<PrivatePostgres>,
}

impl Site {
    /// A private database, or the one named.
    pub fn prepare(engine: EngineName, database_url: Option<&str>) -> Result<Self, Failure> {
        if database_url.is_some_and(|url| store::Engine::of_url(url) != Some(engine.engine())) {
            let message = format!("--database-url is not of the engine {}", engine.name());
            return Err(Failure::bad_input("BAD_DATABASE_URL", message, "make --engine and --database-url agree"));
        }
        let folder = std::env::temp_dir().join(format!("bursar-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::outside("DISK_PROBE_FAILED", &error, "make room in the temporary folder"))?;
        // From here on the folder is removed, however the bench ends.
        let mut site = Self { url: String::new(), folder, _server: None };
        match (database_url, engine) {
            (Some(url), _) => url.clone_into(&mut site.url),
            (None, EngineName::Sqlite) => site.url = sqlite_url(&site.folder.join("bench.db")),
            (None, EngineName::Postgres) => {
                let server = PrivatePostgres::start()?;
                site.url = server.url();
                site._server = Some(server);
            }
        }
        Ok(site)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            warn(format!("{}: {error}", self.folder.display()));
        }
    }
}
