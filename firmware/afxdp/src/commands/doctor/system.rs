//! Kernel, capabilities, memory, processors.

use rustix::thread::CapabilitySet;

use super::facts::{Facts, PortFacts, SystemFacts};
use super::finding::{Finding, word};
use crate::config::Config;
use crate::path::device::Queues;
use crate::system::netlink::generic::XdpFeatures;
use crate::system::privileges::NEEDED;
use crate::telemetry::{Bound, PerPort};
use gradwire::wire::frame::MAX_LINK_LEN;

/// The first kernel whose AF_XDP sockets of two devices can share memory.
const KERNEL: (u32, u32) = (5, 10);
/// The first one that lets a process without privileges update maps that it has open.
const UNPRIVILEGED_MAPS: (u32, u32) = (5, 19);

pub(super) fn check(facts: &Facts, config: &Config, findings: &mut Vec<Finding>) {
    let PerPort { host, network } = &facts.ports;
    let words = format!("--host {} --net {}", word(&host.name), word(&network.name));
    each(&facts.system, &[host, network], &words, findings);
    findings.push(processors(facts, config));
}

/// Checks of any machine, for these ports; `words` are the doctor's that name them.
pub(super) fn each(system: &SystemFacts, ports: &[&PortFacts], words: &str, findings: &mut Vec<Finding>) {
    findings.push(kernel(system));
    findings.push(sockets(system, words));
    findings.push(jit(system));
    findings.push(capabilities(system));
    findings.push(memory(system, ports));
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kernel(system: &SystemFacts) -> Finding {
    let release = &system.release;
    let Some(version) = version(release) else {
        return Finding::unknown("kernel", format!("release {release:?} is not a version"));
    };
    let (major, minor) = KERNEL;
    if version < KERNEL {
        // No command: a distribution whose kernel is that old offers no newer one.
        let found = format!(
            "{release}; {major}.{minor} is the first whose sockets of two devices share memory, as Debian 11 has it"
        );
        return Finding::failed("kernel", found);
    }
    let kept = if version < UNPRIVILEGED_MAPS { "; CAP_BPF has to be kept while it runs" } else { "" };
    Finding::ok("kernel", format!("{release}{kept}"))
}

fn sockets(system: &SystemFacts, words: &str) -> Finding {
    match system.xdp_sockets {
        Some(true) => Finding::ok("af-xdp", "the kernel has AF_XDP sockets"),
        Some(false) => Finding::failed("af-xdp", "the kernel was built without CONFIG_XDP_SOCKETS")
            .fix("grep CONFIG_XDP_SOCKETS /boot/config-*   # and boot a kernel that says y"),
        None => Finding::unknown("af-xdp", "without CAP_NET_RAW the kernel does not tell")
            .fix(format!("sudo gradwire-xdp doctor {words}")),
    }
}

fn jit(system: &SystemFacts) -> Finding {
    match system.bpf_jit {
        Some(0) => Finding::warning("bpf-jit", "XDP programs are interpreted: every frame costs more")
            .fix("sysctl -w net.core.bpf_jit_enable=1"),
        Some(_) => Finding::ok("bpf-jit", "XDP programs are compiled"),
        None => Finding::unknown("bpf-jit", "only the machine's own network namespace shows the setting"),
    }
}

fn capabilities(system: &SystemFacts) -> Finding {
    let Some(held) = system.capabilities else {
        return Finding::unknown("capabilities", "/proc/self/status does not tell");
    };
    let held = CapabilitySet::from_bits_retain(held);
    // Locked memory is a check of its own.
    let missing = NEEDED.difference(CapabilitySet::IPC_LOCK).difference(held);
    if missing.is_empty() {
        return Finding::ok("capabilities", "enough to set up; all are dropped afterwards");
    }
    let names: Vec<_> = missing.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    let all: Vec<_> =
        NEEDED.iter_names().map(|(name, _)| format!("cap_{}", name.to_ascii_lowercase())).collect();
    Finding::failed("capabilities", format!("{} missing", names.join(", ")))
        .fix(format!("setcap {}+ep \"$(command -v gradwire-xdp)\"   # or run it as root", all.join(",")))
}

fn memory(system: &SystemFacts, ports: &[&PortFacts]) -> Finding {
    let queues: u32 = ports.iter().filter_map(|port| port.queues).sum();
    let mtu = ports.iter().filter_map(|port| port.link.as_ref()).map(|link| link.mtu).max().unwrap_or(1500);
    // The most that it may be: where a driver offers it, the shim may go without a copy.
    let offered = ports.iter().any(|port| port.xdp.is_some_and(XdpFeatures::zero_copy));
    let needed = Queues::memory(queues, mtu as usize + MAX_LINK_LEN, Bound::of(offered));
    let mib = needed.div_ceil(1 << 20);
    let held = CapabilitySet::from_bits_retain(system.capabilities.unwrap_or_default());
    match system.lockable {
        _ if held.contains(CapabilitySet::IPC_LOCK) => {
            Finding::ok("memory", format!("{mib} MiB for frames; CAP_IPC_LOCK lifts the limit"))
        }
        None => Finding::unknown("memory", format!("{mib} MiB for frames; the limit is not known")),
        Some(limit) if limit >= needed => {
            Finding::ok("memory", format!("{mib} MiB for frames may be locked"))
        }
        Some(limit) => {
            let found = format!("{mib} MiB for frames, and only {} MiB may be locked", limit >> 20);
            Finding::failed("memory", found)
                .fix("ulimit -l unlimited   # in a systemd unit: LimitMEMLOCK=infinity")
        }
    }
}

fn processors(facts: &Facts, config: &Config) -> Finding {
    let cpus = facts.system.cpus;
    let queues = facts.ports.host.queues.unwrap_or(1).min(facts.ports.network.queues.unwrap_or(1)) as usize;
    let threads = config.threads.map_or(queues, |most| queues.min(most.get() as usize));
    if config.busy_poll.is_some() && threads >= cpus {
        let found = format!("{threads} threads that poll without pause on {cpus} processors starve the rest");
        return Finding::warning("processors", found)
            .fix("remove busy-poll-us from [path] in the configuration");
    }
    if threads > cpus {
        let found = format!("{threads} threads on {cpus} processors");
        return Finding::warning("processors", found)
            .fix(format!("threads = {cpus}   # in [path] of the configuration"));
    }
    Finding::ok("processors", format!("{cpus} for {threads} threads"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::commands::doctor::Status;
    use crate::commands::doctor::ports::tests::healthy;

    #[test]
    fn old_kernels_are_refused() {
        let checked = |release: &str| {
            let mut facts = healthy();
            facts.system.release = release.to_owned();
            kernel(&facts.system).status
        };
        assert_eq!(checked("5.9.16"), Status::Failed);
        assert_eq!(checked("4.19.0-26-amd64"), Status::Failed);
        assert_eq!(checked("5.10.0-30-amd64"), Status::Ok);
        assert_eq!(checked("6.18.44"), Status::Ok);
        assert_eq!(checked("unknown"), Status::Unknown);
    }

    #[test]
    fn missing_kernel_features_are_found() {
        let mut facts = healthy();
        facts.system.xdp_sockets = Some(false);
        facts.system.bpf_jit = None;
        assert_eq!(sockets(&facts.system, "").status, Status::Failed);
        assert_eq!(jit(&facts.system).status, Status::Unknown);
        facts.system.bpf_jit = Some(0);
        let slow = jit(&facts.system);
        assert_eq!(slow.fix.as_deref(), Some("sysctl -w net.core.bpf_jit_enable=1"));
    }

    #[test]
    fn missing_capabilities_are_named() {
        let mut facts = healthy();
        // Only CAP_NET_RAW, bit 13 of linux/capability.h.
        facts.system.capabilities = Some(1 << 13);
        let finding = capabilities(&facts.system);
        assert_eq!(finding.status, Status::Failed);
        assert_eq!(finding.found, "CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF missing");
        let fix = finding.fix.unwrap();
        assert!(
            fix.starts_with("setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_perfmon,cap_bpf+ep "),
            "{fix}"
        );
        facts.system.capabilities = Some(NEEDED.bits());
        assert_eq!(capabilities(&facts.system).status, Status::Ok);
    }

    fn of_memory(facts: &Facts) -> Finding {
        memory(&facts.system, &[&facts.ports.host, &facts.ports.network])
    }

    #[test]
    fn memory_is_limited_unless_a_capability_lifts_it() {
        let mut facts = healthy();
        facts.system.capabilities = Some(0);
        facts.system.lockable = Some(64 << 10);
        let finding = of_memory(&facts);
        assert_eq!(finding.status, Status::Failed);
        assert!(finding.fix.unwrap().starts_with("ulimit -l unlimited"));
        facts.system.lockable = Some(u64::MAX);
        assert_eq!(of_memory(&facts).status, Status::Ok);
        facts.system.lockable = Some(64 << 10);
        facts.system.capabilities = Some(CapabilitySet::IPC_LOCK.bits());
        assert_eq!(of_memory(&facts).status, Status::Ok);
    }

    #[test]
    fn more_threads_than_processors_are_a_warning() {
        let mut facts = healthy();
        facts.system.cpus = 2;
        (facts.ports.host.queues, facts.ports.network.queues) = (Some(4), Some(8));
        let mut config = Config::default();
        let finding = processors(&facts, &config);
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.fix.unwrap().starts_with("threads = 2 "));
        config.threads = NonZeroU32::new(2);
        assert_eq!(processors(&facts, &config).status, Status::Ok);
        config.busy_poll = Some(Duration::from_micros(20));
        assert_eq!(processors(&facts, &config).status, Status::Warning);
    }
}
