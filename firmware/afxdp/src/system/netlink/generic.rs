//! Generic netlink: offloads and channels (linux/ethtool_netlink.h), XDP features (linux/netdev.h).

use std::collections::BTreeMap;
use std::io;

use super::{Attributes, Netlink, put, put_nested};

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`.
const COMMAND_LEN: usize = 4;

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
/// The header attribute is the first of every ethtool message.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// An offload of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Whether it is on.
    pub on: bool,
    /// Whether it can be changed.
    pub changeable: bool,
}

/// The XDP features of a driver: the bits of `enum netdev_xdp_act`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    /// Programs run in the driver, with the usual verdicts.
    #[must_use]
    pub const fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// And may redirect: what a socket needs.
    #[must_use]
    pub const fn redirect(self) -> bool {
        self.0 & 2 != 0
    }

    /// Sockets without a copy.
    #[must_use]
    pub const fn zero_copy(self) -> bool {
        self.0 & 8 != 0
    }
}

/// Asks one family about one device.
struct Family {
    netlink: Netlink,
    id: u16,
}

impl Family {
    fn open(name: &str) -> io::Result<Self> {
        let mut netlink = Netlink::generic()?;
        let mut request = command(CTRL_CMD_GETFAMILY);
        put(&mut request, CTRL_ATTR_FAMILY_NAME, &[name.as_bytes(), b"\0"].concat());
        let answer = netlink.request(GENL_ID_CTRL, &request)?;
        let id = attributes(&answer).find(CTRL_ATTR_FAMILY_ID).and_then(|id| id.first_chunk().copied());
        let id = id.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { netlink, id: u16::from_ne_bytes(id) })
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.netlink.request(self.id, request)
    }
}

fn command(command: u8) -> Vec<u8> {
    vec![command, 1, 0, 0]
}

fn attributes(answer: &[u8]) -> Attributes<'_> {
    Attributes(answer.get(COMMAND_LEN..).unwrap_or_default())
}

fn ethtool(message: u8, index: u32) -> io::Result<Vec<u8>> {
    let mut request = command(message);
    put_nested(&mut request, ETHTOOL_A_HEADER, |header| {
        put(header, ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
    });
    Family::open("ethtool")?.ask(&request)
}

/// A device's offloads, by the names that the kernel has for them (`tx-tcp-segmentation`, ...).
///
/// # Errors
/// The kernel does not tell (before Linux 5.10), or there is no such device.
pub fn offloads(index: u32) -> io::Result<BTreeMap<String, Offload>> {
    let answer = ethtool(ETHTOOL_MSG_FEATURES_GET, index)?;
    let names = |kind| {
        let set = attributes(&answer).nested(kind);
        // Without a mask only bits that are set are listed; with one, those that are have a flag.
        let all = set.find(ETHTOOL_A_BITSET_NOMASK).is_some();
        let bits = set.nested(ETHTOOL_A_BITSET_BITS).map(|(_, bit)| Attributes(bit));
        bits.filter(move |bit| all || bit.find(ETHTOOL_A_BITSET_BIT_VALUE).is_some())
            .filter_map(|bit| bit.text(ETHTOOL_A_BITSET_BIT_NAME))
            .collect::<Vec<_>>()
    };
    let changeable = names(ETHTOOL_A_FEATURES_HW);
    let mut offloads: BTreeMap<_, _> =
        changeable.into_iter().map(|name| (name, Offload { on: false, changeable: true })).collect();
    for name in names(ETHTOOL_A_FEATURES_ACTIVE) {
        offloads.entry(name).or_insert(Offload { on: false, changeable: false }).on = true;
    }
    Ok(offloads)
}

/// The number of a device's queues that receive.
///
/// # Errors
/// The driver or the kernel (before Linux 5.7) does not tell, or there is no such device.
pub fn receive_channels(index: u32) -> io::Result<u32> {
    let answer = ethtool(ETHTOOL_MSG_CHANNELS_GET, index)?;
    let count = |kind| attributes(&answer).u32(kind).unwrap_or(0);
    Ok(count(ETHTOOL_A_CHANNELS_RX_COUNT) + count(ETHTOOL_A_CHANNELS_COMBINED_COUNT))
}

/// The XDP features of a device's driver.
///
/// # Errors
/// The kernel does not tell (before Linux 6.3), or there is no such device.
pub fn xdp_features(index: u32) -> io::Result<XdpFeatures> {
    let mut request = command(NETDEV_CMD_DEV_GET);
    put(&mut request, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let answer = Family::open("netdev")?.ask(&request)?;
    let features = attributes(&answer).u64(NETDEV_A_DEV_XDP_FEATURES);
    features.map(XdpFeatures).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loopback is the one device that every namespace has.
    const LOOPBACK: u32 = 1;

    #[test]
    fn loopback_tells_its_offloads() {
        let offloads = offloads(LOOPBACK).unwrap();
        assert_eq!(offloads.get("loopback"), Some(&Offload { on: true, changeable: false }), "{offloads:?}");
        let gro = offloads.get("rx-gro").unwrap();
        assert!(gro.changeable);
    }

    #[test]
    fn loopback_runs_no_xdp_in_its_driver() {
        assert!(!xdp_features(LOOPBACK).unwrap().native());
    }

    #[test]
    fn a_missing_device_is_an_error() {
        assert_eq!(offloads(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(receive_channels(LOOPBACK).is_err());
        assert!(Family::open("gw-no-such").is_err());
    }
}
