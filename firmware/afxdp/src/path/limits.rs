//! Limits of drivers on the shim, and on its settings.

use aya::util::KernelVersion;

use crate::config::ZeroCopy;
use crate::system::interface::Attached;
use crate::telemetry::Bound;

/// Bytes of an Ethernet header, which the MTU does not count.
const ETHERNET_LEN: u32 = 14;
/// A page, less what the kernel keeps before a frame (256 bytes) and behind it (320): the longest
/// frame in one piece, as a veth has it.
const IN_ONE_PAGE: u32 = 4096 - 256 - 320;
/// The header that virtio writes before each frame (`struct virtio_net_hdr_mrg_rxbuf`), into the
/// same page.
const VIRTIO_HEADER: u32 = 12;

/// Bytes of the longest frame, without FCS, that the shim's port gets from `driver` in this mode.
/// All that is longer is lost, untagged frames, too: a driver with an XDP program drops what is in
/// several pieces. `driver` is the module's name, as `/sys` has it; none for a veth.
#[must_use]
pub fn longest_frame(driver: Option<&str>, attached: Attached) -> u32 {
    match (driver, attached) {
        // Without a copy the header has a place of its own; but who starts without a copy may have
        // to start with one.
        (Some("virtio_net"), Attached::Native) => IN_ONE_PAGE - VIRTIO_HEADER,
        _ => IN_ONE_PAGE,
    }
}

/// The largest MTU of such a port: the longest packet that a frame without VLAN tags may hold.
#[must_use]
pub fn largest_mtu(driver: Option<&str>, attached: Attached) -> u32 {
    longest_frame(driver, attached) - ETHERNET_LEN
}

/// Drivers whose zero-copy was tried (`.ci/drivers`): frames of every length, tagged and not, from
/// this kernel on. virtio is none of them: of its starts one never sent, and nobody knows why. See
/// also [`keeps_memory`].
const TRIED: [(&str, u8, u8); 1] = [("igb", 7, 3)];

/// Whether a port's frames are to come without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The configuration says no.
    No,
    /// It says yes; or nothing, and it was tried.
    Yes,
    /// It says nothing, and it was not tried with this driver on this kernel.
    Untried,
}

/// Whether frames of `driver`, on the kernel that runs, are to come without a copy.
#[must_use]
pub fn asked(wanted: ZeroCopy, driver: Option<&str>) -> Asked {
    asked_on(wanted, driver, KernelVersion::current().ok())
}

fn asked_on(wanted: ZeroCopy, driver: Option<&str>, kernel: Option<KernelVersion>) -> Asked {
    let is_tried = |(name, major, minor): &(&str, u8, u8)| {
        driver == Some(*name) && kernel.is_some_and(|kernel| kernel >= KernelVersion::new(*major, *minor, 0))
    };
    match wanted {
        ZeroCopy::Off => Asked::No,
        ZeroCopy::On => Asked::Yes,
        ZeroCopy::Auto if TRIED.iter().any(is_tried) => Asked::Yes,
        ZeroCopy::Auto => Asked::Untried,
    }
}

/// Why frames of a driver are copied that offers zero-copy, and what changes that.
#[must_use]
pub fn untried(driver: &str) -> String {
    let tried = TRIED.map(|(name, major, minor)| format!("{name} from Linux {major}.{minor} on"));
    format!(
        "frames are copied: zero-copy was not tried with {driver} on this kernel, only {}; --zero-copy on asks for it all the same",
        tried.join(", ")
    )
}

/// The allowed binding for sockets of a port whose program is attached in this way.
///
/// In the generic path, the kernel would bind zero-copy as well. But the program then gets copies,
/// which go on through the kernel without what the card said of them: with a checksum that is left
/// to offload, they are dropped, untagged frames among them.
#[must_use]
pub const fn binding(asked: Asked, attached: Attached) -> Bound {
    match (asked, attached) {
        (Asked::Yes, Attached::Native) => Bound::ZeroCopy,
        _ => Bound::Copy,
    }
}

/// Whether a driver would go on using a socket's memory when the socket is gone: where its queue
/// has come with the program, and goes with it first.
///
/// virtio's `virtnet_xsk_pool_disable` does nothing for a queue that is not in use any more
/// ("Failed to disable zero-copy!", Linux 7.3). When the next program brings the queue back,
/// `try_fill_recv` takes buffers from memory that was freed (`xp_alloc_batch`), and the kernel
/// crashes.
#[must_use]
pub const fn keeps_memory(queues_before: u32, queues_attached: u32) -> bool {
    queues_attached > queues_before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtio_has_room_for_its_header_only_if_the_frame_is_shorter() {
        assert_eq!(largest_mtu(Some("virtio_net"), Attached::Native), 3494);
        assert_eq!(largest_mtu(Some("virtio_net"), Attached::Generic), 3506);
        assert_eq!(largest_mtu(None, Attached::Native), 3506);
        assert_eq!(longest_frame(None, Attached::Native), 3520);
    }

    #[test]
    fn zero_copy_is_only_where_the_program_is_attached_natively() {
        for asked in [Asked::No, Asked::Untried, Asked::Yes] {
            assert_eq!(binding(asked, Attached::Generic), Bound::Copy);
            assert_eq!(binding(asked, Attached::Native) == Bound::ZeroCopy, asked == Asked::Yes);
        }
    }

    #[test]
    fn queues_that_come_with_the_program_have_no_zero_copy() {
        assert!(keeps_memory(2, 4));
        assert!(!keeps_memory(4, 4));
    }

    #[test]
    fn zero_copy_that_was_not_tried_has_to_be_asked_for() {
        let kernel = |major, minor| Some(KernelVersion::new(major, minor, 4));
        for (driver, kernel, asked) in [
            (Some("igb"), kernel(7, 3), Asked::Yes),
            (Some("igb"), kernel(8, 0), Asked::Yes),
            (Some("igb"), kernel(7, 2), Asked::Untried),
            (Some("igb"), None, Asked::Untried),
            (Some("igbvf"), kernel(7, 3), Asked::Untried),
            (Some("virtio_net"), kernel(7, 3), Asked::Untried),
            (None, kernel(7, 3), Asked::Untried),
        ] {
            assert_eq!(asked_on(ZeroCopy::Auto, driver, kernel), asked, "{driver:?}, {kernel:?}");
            assert_eq!(asked_on(ZeroCopy::On, driver, kernel), Asked::Yes);
            assert_eq!(asked_on(ZeroCopy::Off, driver, kernel), Asked::No);
        }
        assert!(untried("ice").contains("not tried with ice on this kernel, only igb from Linux 7.3 on"));
    }
}
