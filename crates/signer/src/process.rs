//! What a process does before it opens keys. Without unsafe code, and so without more than the system's own calls.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Less than this a process may outgrow: then the next allocation would fail, and the process with it.
const ENOUGH_LOCKED: u64 = 4 << 30;

/// No core dumps, no tracing by other processes of the same user, and no page of it on a swap disk. What the system does not
/// allow is logged, and the work goes on: an operator without these rights must still be able to add a group.
pub fn harden() {
    let missing = |what: &str, error: &dyn std::fmt::Display| {
        tracing::warn!(what, %error, "a protection of the keys in memory could not be had");
    };
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        missing("closed to debuggers (PR_SET_DUMPABLE)", &error);
    }
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        missing("no core dumps (RLIMIT_CORE)", &error);
    }
    if !may_lock() {
        missing("locked in memory", &"needs CAP_IPC_LOCK or RLIMIT_MEMLOCK (systemd: LimitMEMLOCK=infinity)");
    } else if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        missing("locked in memory (mlockall)", &error);
    }
}

/// A limit of a few megabytes would let `mlockall` succeed now, and an allocation fail later.
fn may_lock() -> bool {
    let privileged = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    privileged || getrlimit(Resource::Memlock).current.is_none_or(|limit| limit >= ENOUGH_LOCKED)
}
