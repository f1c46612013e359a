//! A network device as rtnetlink tells of it (rtnetlink(7), linux/if_link.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::{Attributes, Netlink, first, put, put_nested};

const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
/// `struct ifinfomsg`.
const INFO_LEN: usize = 16;
const IFF_UP: u32 = 1;
const ARPHRD_ETHER: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_CARRIER: u16 = 33;
const IFLA_XDP: u16 = 43;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_BRPORT_LOCKED: u16 = 39;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const XDP_ATTACHED_SKB: u8 = 2;
const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1;
const XDP_FLAGS_DRV_MODE: u32 = 4;
/// `BR_STATE_FORWARDING`, linux/if_bridge.h.
pub const FORWARDING: u8 = 3;
/// `BR_STATE_BLOCKING`.
pub const BLOCKING: u8 = 4;

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is an Ethernet device.
    pub ethernet: bool,
    /// Whether it was set up.
    pub up: bool,
    /// Whether its cable is in, or its peer up.
    pub carrier: bool,
    /// Longest IP packet in bytes.
    pub mtu: u32,
    /// The queueing discipline at its root.
    pub qdisc: String,
    /// The kind of virtual device: `veth`, `bridge`, ...; empty for hardware.
    pub kind: String,
    /// The device that it is a part of, by index.
    pub master: Option<u32>,
    /// As the port of a bridge: its state; [`FORWARDING`] is the one that lets frames through.
    pub bridge_state: Option<u8>,
    /// As the port of a bridge: whether it exchanges no frames with other ports that say so.
    pub isolated: bool,
    /// As the port of a bridge: whether it lets in only stations that were admitted (802.1X).
    pub locked: bool,
    /// As a bridge: whether it compares VLAN tags with those of its ports.
    pub vlan_filtering: bool,
    /// As a bridge: whether it hands frames to iptables, and to ip6tables, whatever the namespace's
    /// setting says.
    pub calls_iptables: [bool; 2],
    /// The number of receive queues it was made with.
    pub rx_queues: u32,
    /// The XDP program attached to it, by the kernel's number for it.
    pub xdp_program: Option<u32>,
    /// Whether the kernel's generic path runs that program, and not the driver.
    pub xdp_generic: bool,
    /// The bus of its hardware, and its name there.
    pub parent: Option<(String, String)>,
}

impl Link {
    /// The device of this name; none if there is none.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn find(name: &str) -> io::Result<Option<Self>> {
        let mut request = info(0);
        put(&mut request, IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat());
        Self::ask(&request)
    }

    /// The device of this index; none if there is none.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn with_index(index: u32) -> io::Result<Option<Self>> {
        Self::ask(&info(index))
    }

    fn ask(request: &[u8]) -> io::Result<Option<Self>> {
        match Netlink::route()?.request(RTM_GETLINK, request) {
            Ok(answer) => Self::parse(&answer).map(Some),
            // A name longer than any device may have is refused otherwise.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ERANGE | libc::EINVAL)) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn parse(message: &[u8]) -> io::Result<Self> {
        let [_, _, kind_0, kind_1, a, b, c, d, e, f, g, h, ..] = first::<INFO_LEN>(message)?;
        let attributes = Attributes(message.get(INFO_LEN..).unwrap_or_default());
        let info = attributes.nested(IFLA_LINKINFO);
        let is_port = info.text(IFLA_INFO_SLAVE_KIND).as_deref() == Some("bridge");
        let as_port = |kind| info.nested(IFLA_INFO_SLAVE_DATA).u8(kind).filter(|_| is_port);
        let kind = info.text(IFLA_INFO_KIND).unwrap_or_default();
        let as_bridge = |setting| kind == "bridge" && info.nested(IFLA_INFO_DATA).u8(setting) == Some(1);
        let xdp = attributes.nested(IFLA_XDP);
        let program = [IFLA_XDP_PROG_ID, IFLA_XDP_DRV_PROG_ID, IFLA_XDP_SKB_PROG_ID];
        let program = program.into_iter().find_map(|kind| xdp.u32(kind));
        let parent = attributes.text(IFLA_PARENT_DEV_BUS_NAME);
        Ok(Self {
            index: u32::from_ne_bytes([a, b, c, d]),
            name: attributes.text(IFLA_IFNAME).unwrap_or_default(),
            ethernet: u16::from_ne_bytes([kind_0, kind_1]) == ARPHRD_ETHER,
            up: u32::from_ne_bytes([e, f, g, h]) & IFF_UP != 0,
            carrier: attributes.u8(IFLA_CARRIER) == Some(1),
            mtu: attributes.u32(IFLA_MTU).unwrap_or_default(),
            qdisc: attributes.text(IFLA_QDISC).unwrap_or_default(),
            master: attributes.u32(IFLA_MASTER),
            bridge_state: as_port(IFLA_BRPORT_STATE),
            isolated: as_port(IFLA_BRPORT_ISOLATED) == Some(1),
            locked: as_port(IFLA_BRPORT_LOCKED) == Some(1),
            vlan_filtering: as_bridge(IFLA_BR_VLAN_FILTERING),
            calls_iptables: [IFLA_BR_NF_CALL_IPTABLES, IFLA_BR_NF_CALL_IP6TABLES].map(as_bridge),
            kind,
            rx_queues: attributes.u32(IFLA_NUM_RX_QUEUES).unwrap_or(1),
            xdp_generic: xdp.u8(IFLA_XDP_ATTACHED) == Some(XDP_ATTACHED_SKB),
            xdp_program: program.filter(|_| xdp.u8(IFLA_XDP_ATTACHED).is_some_and(|mode| mode != 0)),
            parent: parent.zip(attributes.text(IFLA_PARENT_DEV_NAME)),
        })
    }
}

/// Why a device's driver does not take an XDP program, in the kernel's words; none if it has none,
/// or if the driver takes it. `bpf_link_create` has a number only, so this asks for the same by
/// netlink. `extend` sets `NETLINK_EXT_ACK` on the socket.
///
/// # Errors
/// The kernel does not answer.
pub fn why_no_xdp(
    index: u32,
    program: BorrowedFd<'_>,
    extend: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<Option<String>> {
    let mut netlink = Netlink::route()?;
    extend(netlink.socket.as_fd())?;
    let mut ask = |program: i32, flags: u32| {
        let mut request = info(index);
        put_nested(&mut request, IFLA_XDP, |xdp| {
            put(xdp, IFLA_XDP_FD, &program.to_ne_bytes());
            put(xdp, IFLA_XDP_FLAGS, &flags.to_ne_bytes());
        });
        let refused = netlink.request(RTM_SETLINK, &request).is_err();
        (refused, netlink.reason.take())
    };
    let (refused, reason) = ask(program.as_raw_fd(), XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_DRV_MODE);
    if !refused {
        // It takes it by now. Attached this way, the program would outlive the process.
        ask(-1, XDP_FLAGS_DRV_MODE);
    }
    Ok(reason)
}

/// A `struct ifinfomsg` for a device, or for all with 0.
fn info(index: u32) -> Vec<u8> {
    let mut info = vec![0; INFO_LEN];
    info[4..8].copy_from_slice(&index.to_ne_bytes());
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_by_name_and_index() {
        let link = Link::find("lo").unwrap().unwrap();
        assert_eq!(link.name, "lo");
        // Loopback has index 1 in every namespace, and is no Ethernet device.
        assert_eq!((link.index, link.ethernet), (1, false));
        assert_eq!(Link::with_index(1).unwrap(), Some(link));
    }

    #[test]
    fn a_name_that_no_device_has_is_none() {
        for name in ["gw-missing", "", "a-name-that-is-longer-than-any-device-may-have"] {
            assert_eq!(Link::find(name).unwrap(), None, "{name:?}");
        }
    }
}
