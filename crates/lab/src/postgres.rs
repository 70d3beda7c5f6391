//! A private PostgreSQL server in a temporary folder, for tests, benches and a first try: on a unix socket only, as
//! an ordinary user, with fsync on. It ends with this process, however that ends.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use store::db::percent_encoded;
use terminal::clock::Stopwatch;
use terminal::failure::Failure;
use terminal::output::warn;

pub struct PrivatePostgres {
    programs: PathBuf,
    folder: PathBuf,
    owner: Option<(u32, u32)>,
    compression: &'static str,
    server: Option<Child>,
}

const HINT: &str = "install PostgreSQL (Debian: apt-get install postgresql), or name a server with --database-url";

/// Durable, on a socket only, and with the room that a server for money would be given: the defaults are for a small
/// machine.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "port=5432",
    "fsync=on",
    "synchronous_commit=on",
    "max_connections=100",
    "shared_buffers=2GB",
    "min_wal_size=1GB",
    "max_wal_size=4GB",
];

/// The first change of a page after a checkpoint writes all of it. The server's own compression takes longer for that than everything
/// else that a block of Bitcoin asks for; servers from 15 on have a faster one, if they were built with it.
const FAST_COMPRESSION: &str = "wal_compression=lz4";
const COMPRESSION: &str = "wal_compression=on";

fn failed(what: &str, error: &io::Error) -> Failure {
    let mut failure = Failure::outside("POSTGRES_NOT_STARTED", error, HINT);
    failure.messages.insert(0, what.to_owned());
    failure
}

impl PrivatePostgres {
    /// Makes a cluster and starts its server; returns when it takes connections.
    pub fn start() -> Result<Self, Failure> {
        let programs = find_programs().ok_or_else(|| {
            failed("PostgreSQL's server programs are not on this machine", &io::ErrorKind::NotFound.into())
        })?;
        let folder = std::env::temp_dir().join(format!("bursar-postgres-{}", unique()));
        std::fs::create_dir(&folder).map_err(|error| failed("no temporary folder", &error))?;
        let mut server = Self { programs, folder, owner: None, compression: COMPRESSION, server: None };
        server.initialise().map_err(|error| failed("the cluster could not be made", &error))?;
        server.restart()?;
        Ok(server)
    }

    /// For any client on this machine.
    pub fn url(&self) -> String {
        format!("postgres://postgres@localhost/postgres?host={}&port=5432", percent_encoded(&self.folder))
    }

    /// The folder that has all of its data. To be read or replaced only while the server is killed.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn initialise(&mut self) -> io::Result<()> {
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o700))?;
        // PostgreSQL refuses to run as root; the folder and the server then belong to an ordinary user.
        if std::fs::metadata(&self.folder)?.uid() == 0 {
            let owner = ordinary_user().ok_or_else(|| io::Error::other("no user postgres or nobody to run as"))?;
            chown(&self.folder, Some(owner.0), Some(owner.1))?;
            self.owner = Some(owner);
        }
        let data = self.data();
        let arguments = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-D"];
        let done = self.program("initdb").args(arguments).arg(&data).output()?;
        if !done.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned()));
        }
        // It says what it would take the setting for, or that it does not know it.
        let asked = ["-C", "wal_compression", "-c", FAST_COMPRESSION, "-D"];
        let known = self.program("postgres").args(asked).arg(&data).output()?;
        if known.status.success() {
            self.compression = FAST_COMPRESSION;
        }
        Ok(())
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(&self.folder).stdin(Stdio::null());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Starts the server again, after [`kill`](Self::kill) too.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.kill();
        let start = || -> io::Result<Child> {
            let log = std::fs::File::create(self.folder.join("log"))?;
            let mut command = self.program("postgres");
            command.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
            for setting in SETTINGS.into_iter().chain([self.compression]) {
                command.arg("-c").arg(setting);
            }
            command.stdout(log.try_clone()?).stderr(log);
            // A group of its own: Ctrl-C must stop the programs that use the server before the server.
            command.process_group(0);
            // Its own handler answers this one by stopping every session.
            end_with_parent(&mut command, Signal::QUIT);
            command.spawn()
        };
        self.server = Some(start().map_err(|error| failed("the server did not start", &error))?);
        self.wait_until_ready().map_err(|error| failed("the server did not come up", &error))
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let watch = Stopwatch::start();
        while watch.elapsed() < Duration::from_secs(60) {
            let ready = self.program("pg_isready").arg("-q").arg("-h").arg(&self.folder).status()?;
            if ready.success() {
                return Ok(());
            }
            if let Some(server) = &mut self.server
                && let Some(status) = server.try_wait()?
            {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("it ended with {status}: {}", log.trim())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// SIGKILL to the server and all its sessions, as a power cut would. Returns when every one is gone: a session
    /// that outlived its server would write beside the next one.
    pub fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let Some(pid) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) else { return };
        // Stopped first, so that it starts no session while they are counted.
        log_error("stop", kill_process(pid, Signal::STOP).map_err(io::Error::from));
        let sessions = children_of(pid);
        for process in sessions.iter().copied().chain([pid]) {
            // One that has just ended by itself is as good as killed.
            if let Err(error) = kill_process(process, Signal::KILL)
                && error != rustix::io::Errno::SRCH
            {
                log_error("kill", Err(error.into()));
            }
        }
        log_error("wait", server.wait().map(|_| ()));
        while sessions.iter().any(|session| Path::new(&format!("/proc/{}", session.as_raw_nonzero())).exists()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A process's children, their children, and so on.
pub fn descendants_of(parent: Pid) -> Vec<Pid> {
    let mut found = children_of(parent);
    let mut at = 0;
    while let Some(process) = found.get(at).copied() {
        found.extend(children_of(process));
        at += 1;
    }
    found
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().to_string();
    let processes = std::fs::read_dir("/proc").map(|entries| entries.filter_map(Result::ok).collect::<Vec<_>>());
    processes
        .unwrap_or_default()
        .iter()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // `pid (name) state parent …`, where the name may contain anything.
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let after_name = stat.rsplit_once(')')?.1;
            (after_name.split_whitespace().nth(1)? == parent).then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            if let Some(pid) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) {
                log_error("stop", kill_process(pid, Signal::QUIT).map_err(io::Error::from));
            }
            log_error("wait", server.wait().map(|_| ()));
        }
        log_error("clean up", std::fs::remove_dir_all(&self.folder));
    }
}

/// While things are put away there is no caller to hand an error to.
fn log_error(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        warn(format!("private PostgreSQL: {what}: {error}"));
    }
}

/// The kernel sends the new process this signal when the thread that starts it is gone, even by SIGKILL. A process of ours is
/// sent SIGKILL, which nothing ignores: a shell starts what it runs in the background with SIGQUIT ignored, and children
/// inherit that.
///
/// The other way would be a pipe that the children watch. It works on every Unix, but only with children that were written for
/// it, and not while one of them hangs; the kernel's way needs nothing of the child.
#[allow(unsafe_code, reason = "pre_exec is unsafe by signature; prctl and getppid are the calls made there")]
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; prctl(2) and getppid(2) are such, and allocate
    // nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(signal))?;
            // A parent that died before this was asked for sends nothing any more.
            match rustix::process::getppid() {
                Some(now) if now == parent => Ok(()),
                _ => Err(io::ErrorKind::BrokenPipe.into()),
            }
        });
    }
}

fn unique() -> String {
    use domain::Clock;
    static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let micros = terminal::clock::SystemClock.now().micros() % 1_000_000_000;
    format!("{}-{count}-{micros}", std::process::id())
}

/// On the path, or where Debian keeps them: the newest version.
fn find_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders
        .into_iter()
        .find(|folder| ["initdb", "postgres", "pg_isready"].iter().all(|name| folder.join(name).exists()))
}

/// User and group numbers of `postgres`, else of `nobody`.
fn ordinary_user() -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let find = |name: &str| {
        let fields: Vec<&str> =
            users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody"))
}
