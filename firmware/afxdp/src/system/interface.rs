//! Facts about a network interface, before frames are taken from it: `/sys/class/net`.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gradwire::wire::frame::MAX_LINK_LEN;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

/// The attachment of an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attached {
    /// In the driver.
    Native,
    /// In the kernel's generic path.
    Generic,
}

impl Attached {
    /// Its name, as `mode` in a configuration has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// The most queues of one port (`QUEUES` in `bpf/gradwire.c`).
pub const MAX_QUEUES: u32 = 64;

/// Makes a container cut its segments itself; `PID` is one of its processes.
pub const CUT_SEGMENTS: &str = "nsenter --net=/proc/PID/ns/net ethtool -K eth0 tso off gso off";

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Longest IP packet in bytes.
    pub mtu: u16,
    /// Receive queues.
    pub queues: u32,
    /// Its driver, if it has one.
    pub driver: Option<String>,
    /// The bridge that it is a port of.
    pub bridge: Option<String>,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is none of this name.
    #[error("{name}: no such interface (`ip link` lists them)")]
    Missing {
        /// The name.
        name: String,
    },
    /// `/sys` shows another network namespace than the process is in.
    #[error("{name}: /sys shows another network namespace; run with `ip netns exec`, or mount sysfs anew")]
    OtherNamespace {
        /// The name.
        name: String,
    },
    /// The MTU is that of no Ethernet device.
    #[error("{name}: MTU {mtu}, more than any Ethernet device has: `ip link` lists the others")]
    Mtu {
        /// The name.
        name: String,
        /// Its MTU.
        mtu: u32,
    },
    /// More queues than the XDP program has places for.
    #[error("{name}: {queues} receive queues are too many: `{fix}`")]
    Queues {
        /// The name.
        name: String,
        /// Its queues.
        queues: u32,
        /// The command that leaves as many as there are places for.
        fix: String,
    },
    /// A file that every interface has cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Interface {
    /// Looks an interface up by its name.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let missing = || InterfaceError::Missing { name: name.into() };
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let socket =
            socket.map_err(|error| InterfaceError::Read { path: "socket".into(), error: error.into() })?;
        let index = name_to_index(&socket, name).map_err(|_| missing())?;
        if read::<u32>(name, "ifindex").ok() != Some(index) {
            return Err(InterfaceError::OtherNamespace { name: name.into() });
        }
        let mtu = mtu(name)?;
        let mtu = u16::try_from(mtu).map_err(|_| InterfaceError::Mtu { name: name.into(), mtu })?;
        let link = |file| {
            let target = fs::read_link(class(name, file)).ok()?;
            Some(target.file_name()?.to_string_lossy().into_owned())
        };
        let (driver, bridge) = (link("device/driver"), link("master"));
        let bridge = bridge.filter(|bridge| class(bridge, "bridge").is_dir());
        let queues = receive_queues(name)?;
        if queues > MAX_QUEUES {
            let fix = fewer_queues(name, driver.as_deref(), added_queues(Path::new("/"), driver.as_deref()));
            return Err(InterfaceError::Queues { name: name.into(), queues, fix });
        }
        Ok(Self { name: name.into(), index, mtu, queues, driver, bridge })
    }

    /// Whether it is still there; another of its name is not it.
    #[must_use]
    pub fn exists(&self) -> bool {
        read::<u32>(&self.name, "ifindex").ok() == Some(self.index)
    }

    /// Whether the frames that a program attached like this sees have their checksums: those of a
    /// card on a bus come from a wire. In the generic path, GRO leaves checksums.
    #[must_use]
    pub fn has_checksums(&self, attached: Attached) -> bool {
        self.driver.is_some() && attached == Attached::Native
    }

    /// Its MAC address.
    ///
    /// # Errors
    /// [`InterfaceError::Read`].
    pub fn mac(&self) -> Result<[u8; 6], InterfaceError> {
        let path = class(&self.name, "address");
        let text = fs::read_to_string(&path);
        let mac = text.and_then(|text| {
            let bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16));
            let bytes = bytes.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
            <[u8; 6]>::try_from(bytes).map_err(|_| io::Error::other("no Ethernet address"))
        });
        mac.map_err(|error| InterfaceError::Read { path, error })
    }

    /// Bytes of its longest frame, VLAN tags included.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        usize::from(self.mtu) + MAX_LINK_LEN
    }
}

/// The faults that keep two interfaces from being the ports of a shim, as far as they may still
/// pass: they appear, and a bridge joins them. None if nothing is missing, or if it cannot be
/// looked for, which set-up explains.
#[must_use]
pub fn not_there_yet(host: &str, network: &str) -> Option<String> {
    let mut bridges = Vec::new();
    for name in [host, network] {
        match Interface::find(name) {
            Ok(interface) => bridges.push(interface.bridge),
            Err(InterfaceError::Missing { name }) => return Some(format!("{name} to appear")),
            Err(_) => return None,
        }
    }
    let joined = bridges.iter().all(|bridge| bridge.is_some() && *bridge == bridges[0]);
    (!joined).then(|| format!("{host} and {network} to be ports of one bridge"))
}

/// The MTU of an interface, whether it can be used or not.
///
/// # Errors
/// [`InterfaceError::Read`].
pub fn mtu(name: &str) -> Result<u32, InterfaceError> {
    read(name, "mtu")
}

/// Queues of an interface that receive: at least one.
///
/// # Errors
/// [`InterfaceError::Read`].
pub fn receive_queues(name: &str) -> Result<u32, InterfaceError> {
    let path = class(name, "queues");
    let queues = fs::read_dir(&path).map_err(|error| InterfaceError::Read { path, error })?;
    let names = queues.flatten().map(|entry| entry.file_name());
    let count = names.filter(|name| name.to_string_lossy().starts_with("rx-")).count() as u32;
    Ok(count.max(1))
}

/// The number of receive queues a driver adds when it gets an XDP program, if the card has that
/// many: virtio one for each processor that there may be. Files are looked for below `root`, which
/// is `/` but for tests.
#[must_use]
pub fn added_queues(root: &Path, driver: Option<&str>) -> u32 {
    if driver != Some("virtio_net") {
        return 0;
    }
    let possible = fs::read_to_string(root.join("sys/devices/system/cpu/possible")).unwrap_or_default();
    // Ranges of numbers from 0 on, such as 0-3.
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.map_or(1, |last| last + 1)
}

/// The command that leaves an interface with as many queues as are served, also when its driver has
/// added some. A veth, which has no driver on a bus, counts its directions apart.
#[must_use]
pub fn fewer_queues(name: &str, driver: Option<&str>, added: u32) -> String {
    let kind = if matches!(driver, None | Some("veth")) { "rx" } else { "combined" };
    format!("ethtool -L {name} {kind} {}", MAX_QUEUES.saturating_sub(added).max(1))
}

/// Bytes that an interface has sent, by its driver's count: all traffic is in it.
///
/// # Errors
/// [`InterfaceError::Read`].
pub fn sent_bytes(name: &str) -> Result<u64, InterfaceError> {
    read(name, "statistics/tx_bytes")
}

/// One MAC address that a bridge knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The address.
    pub mac: [u8; 6],
    /// Number of the bridge's port that it is behind.
    pub port: u16,
    /// Whether it is one of the bridge's own.
    pub local: bool,
}

/// The MAC addresses that a bridge knows.
///
/// # Errors
/// If there is no such bridge.
pub fn stations(bridge: &str) -> Result<Vec<Station>, InterfaceError> {
    let path = class(bridge, "brforward");
    let table = fs::read(&path).map_err(|error| InterfaceError::Read { path, error })?;
    // `struct __fdb_entry`, linux/if_bridge.h.
    let (entries, _) = table.as_chunks::<16>();
    Ok(entries
        .iter()
        .map(|&[a, b, c, d, e, f, port, is_local, _, _, _, _, port_high, ..]| Station {
            mac: [a, b, c, d, e, f],
            port: u16::from_le_bytes([port, port_high]),
            local: is_local != 0,
        })
        .collect())
}

/// The number of a bridge's port.
///
/// # Errors
/// The interface is no such port.
pub fn bridge_port(name: &str) -> Result<u16, InterfaceError> {
    let path = class(name, "brport/port_no");
    let text = fs::read_to_string(&path);
    let number = text.and_then(|text| {
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).map_err(io::Error::other)
    });
    number.map_err(|error| InterfaceError::Read { path, error })
}

fn class(name: &str, file: &str) -> PathBuf {
    ["/sys/class/net", name, file].iter().collect()
}

fn read<T: FromStr<Err: Display>>(name: &str, file: &str) -> Result<T, InterfaceError> {
    let path = class(name, file);
    let text = fs::read_to_string(&path);
    let value =
        text.and_then(|text| text.trim().parse::<T>().map_err(|error| io::Error::other(error.to_string())));
    value.map_err(|error| InterfaceError::Read { path, error })
}
