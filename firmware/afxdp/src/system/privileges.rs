//! Privileges: what set-up needs, and giving them up when it is done. What runs afterwards reads
//! frames that anybody may have sent.

use std::{fs, io};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The capabilities that set-up needs: to attach programs and bind AF_XDP sockets (`CAP_NET_ADMIN`,
/// `CAP_NET_RAW`), to load programs that compute where in a packet to read (`CAP_BPF`,
/// `CAP_PERFMON`), and to pin their memory (`CAP_IPC_LOCK`, or a large enough `RLIMIT_MEMLOCK`).
pub const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK);

/// Why privileges were not dropped; the process must not go on.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PrivilegesError {
    /// Capabilities belong to threads: one that runs already would keep its own.
    #[error("privileges can only be dropped before other threads start; there are {threads}")]
    Threads {
        /// The number found.
        threads: usize,
    },
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// Gives up every capability but `keep`, for this thread, all that it starts, and all that they
/// execute. To be called when set-up is done and no other thread has started.
///
/// A process of root's stays root's: it can still open root's files. The unit that comes with
/// gradwire gives the process a user of its own instead.
///
/// # Errors
/// Other threads run; the kernel refused.
pub fn drop_all_but(keep: CapabilitySet) -> Result<(), PrivilegesError> {
    let io = |action| move |source: io::Error| PrivilegesError::Io { action, source };
    let os = |action| move |error: rustix::io::Errno| PrivilegesError::Io { action, source: error.into() };
    let threads = fs::read_dir("/proc/self/task").map_err(io("count threads"))?.count();
    if threads != 1 {
        return Err(PrivilegesError::Threads { threads });
    }
    let held = capabilities(None).map_err(os("read capabilities"))?;
    // Without CAP_SETPCAP the bounding set stays: no_new_privs alone then keeps executed files from
    // giving any.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(keep).iter() {
            // The kernel may know fewer than this program.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability).map_err(os("limit capabilities"))?;
            }
        }
    }
    clear_ambient_capability_set().map_err(os("clear ambient capabilities"))?;
    let left = held.permitted.intersection(keep);
    let sets = CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(os("drop capabilities"))?;
    set_no_new_privs(true).map_err(os("forbid new privileges"))
}

/// The remedy for a refusal for want of privileges; nothing for other errors.
pub(crate) fn as_root(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { "; try it as root" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What dropping does is tested in a process of its own, `tests/privileges.rs`.
    #[test]
    fn with_other_threads_nothing_is_dropped() {
        let before = capabilities(None).unwrap();
        let waiting = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| waiting.wait());
            let refused = drop_all_but(CapabilitySet::empty());
            waiting.wait();
            assert!(matches!(refused, Err(PrivilegesError::Threads { threads: 2.. })), "{refused:?}");
        });
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
