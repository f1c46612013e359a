//! What a driver lets through to the shim, and what may be asked of it.

use crate::ops::telemetry::{Attached, Bound};

/// Bytes of an Ethernet header, which the MTU does not count.
const ETHERNET_LEN: u32 = 14;
/// A page, less what the kernel keeps before a frame (256 bytes) and behind it (320): the longest frame in one piece, as a veth has it.
const IN_ONE_PAGE: u32 = 4096 - 256 - 320;
/// What virtio writes before each frame (`struct virtio_net_hdr_mrg_rxbuf`), into the same page.
const VIRTIO_HEADER: u32 = 12;

/// Bytes of the longest frame, without FCS, that the shim's port gets from `driver` in this mode. All that is longer is lost, untagged
/// frames, too: a driver with an XDP program drops what is in several pieces. `driver` is the module's name, as `/sys` has it; none for a
/// veth.
#[must_use]
pub fn longest_frame(driver: Option<&str>, attached: Attached, bound: Bound) -> u32 {
    match (driver, attached, bound) {
        // Without a copy the header has a place of its own; but who starts without a copy may have to start with one.
        (Some("virtio_net"), Attached::Native, Bound::Copy | Bound::ZeroCopy) => IN_ONE_PAGE - VIRTIO_HEADER,
        _ => IN_ONE_PAGE,
    }
}

/// The largest MTU of such a port: the longest packet that a frame without VLAN tags may hold.
#[must_use]
pub fn largest_mtu(driver: Option<&str>, attached: Attached, bound: Bound) -> u32 {
    longest_frame(driver, attached, bound) - ETHERNET_LEN
}

/// How sockets of a port may be bound whose program is attached in this way, if it is `wanted` that drivers hand over frames without a copy.
///
/// In the generic path, the kernel would bind zero-copy as well. But the program then gets copies, which go on through the kernel without what
/// the card said of them: with a checksum that is left to offload, they are dropped, untagged frames among them.
#[must_use]
pub const fn binding(wanted: bool, attached: Attached) -> Bound {
    match attached {
        Attached::Native if wanted => Bound::ZeroCopy,
        Attached::Native | Attached::Generic => Bound::Copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtio_has_room_for_its_header_only_if_the_frame_is_shorter() {
        for bound in [Bound::Copy, Bound::ZeroCopy] {
            assert_eq!(largest_mtu(Some("virtio_net"), Attached::Native, bound), 3494);
        }
        assert_eq!(largest_mtu(Some("virtio_net"), Attached::Generic, Bound::Copy), 3506);
        assert_eq!(largest_mtu(None, Attached::Native, Bound::Copy), 3506);
        assert_eq!(longest_frame(None, Attached::Native, Bound::Copy), 3520);
    }

    #[test]
    fn zero_copy_is_only_where_the_program_is_attached_natively() {
        for wanted in [false, true] {
            assert_eq!(binding(wanted, Attached::Generic), Bound::Copy);
        }
        assert_eq!(binding(true, Attached::Native), Bound::ZeroCopy);
        assert_eq!(binding(false, Attached::Native), Bound::Copy);
    }
}
