//! The XDP program: its maps, and its links to both ports.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{HashMap, Map, MapData, MapError, XskMap};
use aya::programs::links::FdLink;
use aya::programs::xdp::XdpMode;
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader};
use gradwire::forward::Port;
use gradwire::rules::{Alignment, Framing, Handshake, Rules};

use crate::path::mapped::{Mapping, ask_for_reasons};
use crate::path::xsk::Socket;
use crate::system::interface::Attached;
use crate::system::interface::{Interface, InterfaceError, MAX_QUEUES, bridge_port, stations};
use crate::system::netlink::link::why_no_xdp;
use crate::telemetry::KeptStats;

/// `bpf/gradwire.c`, compiled by `bpf/build`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/gradwire.o");

/// `enum action` of the program.
const TAKE: u64 = 1;
const CONNECTION: u64 = 2;
const OPEN: u64 = 4;
const ASK: u64 = 8;
/// `NEITHER`: a MAC address behind another port of the bridge, or its own.
const NEITHER: u64 = 2;
/// `REASONS`.
const REASONS: usize = 6;

/// Why the program does not run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramLoadError {
    /// It cannot be loaded.
    #[error("loading the XDP program: {0} (needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, or root)")]
    Load(#[from] EbpfError),
    /// The verifier refused it.
    #[error("loading the XDP program: {0}")]
    Verify(ProgramError),
    /// The port has a program already.
    #[error(
        "{interface}: another XDP program is attached; if it is a gradwire-xdp that is no longer wanted: \
         `gradwire-xdp unload {interface}`"
    )]
    Busy {
        /// The port.
        interface: String,
    },
    /// It cannot be attached.
    #[error("{interface}: attaching the XDP program: {why}")]
    Attach {
        /// The port.
        interface: String,
        /// The call, its errno, and the kernel's own words, if it has some.
        why: String,
    },
    /// The kernel has no links for XDP, so a program would outlive its process.
    #[error(
        "{interface}: this kernel cannot tie an XDP program to the process (bpf_link, Linux 5.9): \
         it would stay after a crash, and frames would be lost"
    )]
    NoLink {
        /// The port.
        interface: String,
    },
    /// A map of the program.
    #[error("XDP program, map {name}: {error}")]
    Map {
        /// Its name.
        name: &'static str,
        /// Why.
        error: MapError,
    },
    /// A map of the program cannot be mapped.
    #[error("XDP program, map {name}: {error}")]
    Mapping {
        /// Its name.
        name: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// With the number that the kernel gave, and its own words.
fn describe(error: &ProgramError, reason: Option<String>) -> String {
    let text = match error {
        ProgramError::SyscallError(call) => format!("{}: {}", call.call, call.io_error),
        error => error.to_string(),
    };
    match reason {
        Some(reason) => format!("{text}: {reason}"),
        None => text,
    }
}

/// The addresses of an aggregator: frames for it have these addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatorAddress {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IP address.
    pub ip: Ipv4Addr,
    /// Its UDP port.
    pub port: u16,
}

/// The program, loaded. It detaches from the ports when this is dropped, or the process dies.
#[derive(Debug)]
pub struct Program {
    ebpf: Ebpf,
    /// The names of what is attached, by port.
    names: [&'static str; 2],
    links: Vec<FdLink>,
    /// Why a driver did not take it, by port.
    refused: [Option<String>; 2],
    beats: &'static [AtomicU64],
    actions: &'static [AtomicU64],
    kept: &'static [AtomicU64],
}

/// Counts of frames that the program left to the bridge: a thread's share of the queues.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    counts: &'static [AtomicU64],
    thread: u32,
    threads: u32,
}

impl Kept {
    /// Those of a port. Queues without a socket count, too: one that was added while the shim runs
    /// has none.
    #[must_use]
    pub fn of(&self, port: Port) -> KeptStats {
        let mut sum = KeptStats::default();
        for queue in (self.thread..MAX_QUEUES).step_by(self.threads as usize) {
            let at = REASONS * place(port, queue) as usize;
            // The program's `enum reason`.
            if let Some([stale, unknown, elsewhere, too_long, not_negotiated, tagged_late]) =
                self.counts.get(at..at + REASONS)
            {
                sum.stale += stale.load(Ordering::Relaxed);
                sum.unknown += unknown.load(Ordering::Relaxed);
                sum.elsewhere += elsewhere.load(Ordering::Relaxed);
                sum.too_long += too_long.load(Ordering::Relaxed);
                sum.not_negotiated += not_negotiated.load(Ordering::Relaxed);
                sum.tagged_late += tagged_late.load(Ordering::Relaxed);
            }
        }
        sum
    }
}

impl Program {
    /// Loads the program. It takes no frame until a socket is added and gives signs of life.
    ///
    /// `flows`: TCP connections that it can keep in mind; `limit_ns`: how long after a sign of life
    /// frames are still taken; `longest`: bytes of the longest frame that is taken.
    ///
    /// # Errors
    /// The kernel's.
    pub fn load(flows: u32, limit_ns: u64, longest: u64) -> Result<Self, ProgramLoadError> {
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("connections", flows);
        Self::load_with(loader, ["host", "network"], limit_ns, longest)
    }

    /// Loads what chooses frames for an aggregator, in place of [`Self::load`]. It is attached to
    /// one interface, as [`Port::Host`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn load_for_aggregator(
        address: AggregatorAddress,
        limit_ns: u64,
        longest: u64,
    ) -> Result<Self, ProgramLoadError> {
        // As the program reads them.
        let mac = mac_as_read(address.mac);
        let ip = u64::from(u32::from_ne_bytes(address.ip.octets()));
        let port = u64::from(address.port.to_be());
        let mut loader = EbpfLoader::new();
        loader
            .override_global("aggregator_mac", &mac, true)
            .override_global("aggregator_ip", &ip, true)
            .override_global("aggregator_port", &port, true)
            .map_max_entries("connections", 1)
            .map_max_entries("stations", 1);
        Self::load_with(loader, ["aggregator"; 2], limit_ns, longest)
    }

    fn load_with(
        loader: EbpfLoader<'_>,
        names: [&'static str; 2],
        limit_ns: u64,
        longest: u64,
    ) -> Result<Self, ProgramLoadError> {
        // Of a shorter lifetime: that of what is added here.
        let mut loader: EbpfLoader<'_> = loader;
        let mut ebpf = loader
            .override_global("limit_ns", &limit_ns, true)
            .override_global("longest", &longest, true)
            .load(OBJECT)?;
        for name in BTreeSet::from(names) {
            xdp(&mut ebpf, name)?.load().map_err(ProgramLoadError::Verify)?;
        }
        let beats = array(&ebpf, "beats", 2 * MAX_QUEUES as usize)?;
        let actions = array(&ebpf, "actions", 2 * 256)?;
        let kept = array(&ebpf, "kept", 2 * REASONS * MAX_QUEUES as usize)?;
        Ok(Self { ebpf, names, links: Vec::new(), refused: [None, None], beats, actions, kept })
    }

    /// Attaches it to a port.
    ///
    /// # Errors
    /// The kernel's.
    pub fn attach(
        &mut self,
        port: Port,
        interface: &Interface,
        mode: Attached,
    ) -> Result<(), ProgramLoadError> {
        let name = || interface.name.clone();
        let kernel_mode = match mode {
            Attached::Native => XdpMode::Driver,
            Attached::Generic => XdpMode::Skb,
        };
        let program = xdp(&mut self.ebpf, self.names[port as usize])?;
        let attached = program.attach_to_if_index(interface.index, kernel_mode);
        let link = attached.and_then(|id| program.take_link(id));
        let reason = || {
            let program = program.fd().ok()?.as_fd();
            let asked = mode == Attached::Native;
            asked.then(|| why_no_xdp(interface.index, program, ask_for_reasons).ok().flatten())?
        };
        let link = link.map_err(|error| match &error {
            ProgramError::SyscallError(call)
                if matches!(call.io_error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) =>
            {
                ProgramLoadError::Busy { interface: name() }
            }
            _ => ProgramLoadError::Attach { interface: name(), why: describe(&error, reason()) },
        })?;
        // aya attaches by netlink if the kernel has no links; dropping that detaches it.
        let link = FdLink::try_from(link).map_err(|_| ProgramLoadError::NoLink { interface: name() })?;
        self.links.push(link);
        Ok(())
    }

    /// Keeps why a port's driver did not take it.
    pub fn remember_refusal(&mut self, port: Port, why: String) {
        self.refused[port as usize] = Some(why);
    }

    /// Why a port's driver did not take it; none if none refused.
    #[must_use]
    pub fn refused(&self, port: Port) -> Option<String> {
        self.refused[port as usize].clone()
    }

    /// Frames of this port and queue go to the socket from now on, as long as it gives signs of
    /// life.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_socket(&mut self, port: Port, queue: u32, socket: &Socket) -> Result<(), ProgramLoadError> {
        let mut sockets = map(&mut self.ebpf, "sockets", XskMap::try_from)?;
        let error = |error| ProgramLoadError::Map { name: "sockets", error };
        sockets.set(place(port, queue), socket.as_fd().as_raw_fd(), 0).map_err(error)
    }

    /// The word for signs of life of the thread behind a socket: nanoseconds of `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn beat(&self, port: Port, queue: u32) -> Option<&'static AtomicU64> {
        self.beats.get(place(port, queue) as usize)
    }

    /// Puts rules in force.
    pub fn set_rules(&self, rules: &Rules) {
        for port in Port::ALL {
            for tos in 0..=u8::MAX {
                let action = action(port, tos, rules);
                if let Some(slot) = self.actions.get(port as usize * 256 + usize::from(tos)) {
                    slot.store(action, Ordering::Relaxed);
                }
            }
        }
    }

    /// Counts of frames that it leaves to the bridge: the share of one of `threads` threads, at
    /// least one. All of them together have each queue once.
    #[must_use]
    pub const fn kept(&self, thread: u32, threads: u32) -> Kept {
        Kept { counts: self.kept, thread, threads }
    }

    /// Tells the program what the bridge knows and it does not: addresses behind the two ports that
    /// it has not heard of, and addresses that are the bridge's own, or behind another port by now.
    ///
    /// # Errors
    /// The ports are not in this bridge, and the kernel's.
    pub fn follow_bridge(&mut self, bridge: &str, host: &str, network: &str) -> Result<(), FollowError> {
        let numbers = [bridge_port(host)?, bridge_port(network)?];
        let place = |number: u16, local: bool| match numbers.iter().position(|known| *known == number) {
            Some(port) if !local => port as u64,
            _ => NEITHER,
        };
        let known = stations(bridge)?;
        let known = known.iter().map(|station| (station.mac, place(station.port, station.local)));
        let known = known.collect::<BTreeMap<_, _>>();
        let mut map = map(&mut self.ebpf, "stations", HashMap::<_, u64, u64>::try_from)?;
        for (mac, port) in known {
            let mac = mac_as_read(mac);
            let now = map.get(&mac, 0).ok();
            if now != Some(port) && (now.is_none() || port == NEITHER) {
                let error = |error| ProgramLoadError::Map { name: "stations", error };
                map.insert(mac, port, 0).map_err(error)?;
            }
        }
        Ok(())
    }
}

/// Why the bridge's table could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It could not be read.
    #[error(transparent)]
    Bridge(#[from] InterfaceError),
    /// It could not be told to the program.
    #[error(transparent)]
    Program(#[from] ProgramLoadError),
}

/// The program's action for frames of a type of service that come in at a port.
fn action(port: Port, tos: u8, rules: &Rules) -> u64 {
    // The host's own frames with the mark lose it.
    if rules.is_mark(tos) {
        return TAKE;
    }
    let Some(rule) = rules.find(tos) else { return 0 };
    // Not in-place framing: by its SYN, the host advertised to the far end which frames it
    // restores, and until the connection ends those rules stay. Only an engine that sees all of its
    // frames knows when it ends.
    let asks = rule.handshake == Handshake::Required && rule.framing == Framing::Routed;
    let ask = if asks { ASK } else { 0 };
    match port {
        // Who needs a handshake needs the SYN.
        Port::Host if rule.alignment == Alignment::Payload && rule.handshake == Handshake::Off => {
            CONNECTION | OPEN
        }
        Port::Host => CONNECTION | ask,
        // Compressed frames carry the mark or, in-place, the rule's; those that are not keep their
        // place behind.
        Port::Network => TAKE | ask,
    }
}

/// A socket's place in the program's maps.
const fn place(port: Port, queue: u32) -> u32 {
    port as u32 * MAX_QUEUES + queue
}

/// A MAC address as the program reads it: three words as they are in memory.
fn mac_as_read([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    let word = |high, low| u64::from(u16::from_ne_bytes([high, low]));
    word(a, b) << 32 | word(c, d) << 16 | word(e, f)
}

fn xdp<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, ProgramLoadError> {
    let program = ebpf.program_mut(name);
    let missing = || ProgramError::InvalidName { name: name.into() };
    program.ok_or_else(missing).and_then(TryInto::try_into).map_err(ProgramLoadError::Verify)
}

fn map<'a, T>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
    make: impl FnOnce(&'a mut Map) -> Result<T, MapError>,
) -> Result<T, ProgramLoadError> {
    let map = ebpf.map_mut(name).ok_or_else(|| MapError::InvalidName { name: name.into() });
    map.and_then(make).map_err(|error| ProgramLoadError::Map { name, error })
}

/// A map of double words, as memory.
fn array(ebpf: &Ebpf, name: &'static str, len: usize) -> Result<&'static [AtomicU64], ProgramLoadError> {
    let missing = || ProgramLoadError::Map { name, error: MapError::InvalidName { name: name.into() } };
    let Some(Map::Array(map)) = ebpf.map(name) else { return Err(missing()) };
    let bytes = len * size_of::<u64>();
    let pages = bytes.next_multiple_of(rustix::param::page_size());
    let mapping = Mapping::new(map_fd(map), 0, pages);
    let mapping = mapping.map_err(|error| ProgramLoadError::Mapping { name, error })?;
    mapping.double_words(0, len).ok_or_else(missing)
}

fn map_fd(map: &MapData) -> impl AsFd + '_ {
    map.fd()
}
