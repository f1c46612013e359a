//! Headers of a rewritten packet: lengths, type of service, and the checksums that follow from
//! them.

use super::frame::{Extent, Ip, IpFrame, Packet, TCP_LEN, Transport};
use super::segment_header::SegmentHeader;
use crate::checksum::{Sum, update};
use crate::kernels::Kernel;

/// The header fields that change; the rest is copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    /// The new type of service, ECN included.
    pub(crate) tos: u8,
    /// The new length of the payload in bytes.
    pub(crate) payload_len: usize,
    /// The transport checksum.
    pub(crate) checksum: L4Checksum,
}

/// The way to make the transport checksum of a rewritten packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum L4Checksum {
    /// Over the new segment, plus this constant.
    Computed {
        /// 0 for what a host is to accept.
        plus: u16,
    },
    /// None: the field is 0 (UDP over IPv4, RFC 768).
    None,
}

/// Writes the headers of `packet` with `headers` to the start of `out`, where the new payload
/// already stands. `None` if a length does not fit its field or `out` is too short; `out` then
/// holds nothing of use.
pub(crate) fn write_headers(
    packet: &Packet<'_>,
    headers: Headers,
    kernel: Kernel,
    out: &mut [u8],
) -> Option<()> {
    let Headers { tos, payload_len, checksum } = headers;
    let end = packet.payload_at() + payload_len;
    let out = out.get_mut(..end)?;
    write_at(out, 0, packet.headers())?;

    set_tos(out, packet.ip(), packet.ip_at(), tos)?;
    write_lengths_and_checksum(packet, checksum, kernel, out)
}

/// Makes lengths and checksums right for a packet of the kind of `packet` that ends with `out`.
/// `None` if a length does not fit its field.
#[inline]
fn write_lengths_and_checksum(
    packet: &Packet<'_>,
    checksum: L4Checksum,
    kernel: Kernel,
    out: &mut [u8],
) -> Option<()> {
    let (ip_at, l4_at, end) = (packet.ip_at(), packet.l4_at(), out.len());
    match packet.ip() {
        Ip::V4 => {
            let total_len = u16::try_from(end - ip_at).ok()?;
            let old = replace16(out, ip_at + 2, total_len)?;
            update_ipv4_checksum(out, ip_at, old, total_len)?;
        }
        Ip::V6 => {
            const FIXED_LEN: usize = 40;
            replace16(out, ip_at + 4, u16::try_from(end - ip_at - FIXED_LEN).ok()?)?;
        }
    }
    let udp = matches!(packet.transport(), Transport::Udp { .. });
    if udp {
        replace16(out, l4_at + 4, u16::try_from(end - l4_at).ok()?)?;
    }
    let field_at = packet.l4_checksum_at();
    replace16(out, field_at, 0)?;
    if let L4Checksum::Computed { plus } = checksum {
        let segment = out.get(l4_at..)?;
        let sum = packet.pseudo_sum(segment.len()) + kernel.sum(segment);
        let field = (Sum::word(sum.field()) + Sum::word(plus)).value();
        // RFC 768: 0 would say that there is none; 0xffff is the other zero.
        replace16(out, field_at, if field == 0 && udp { u16::MAX } else { field })?;
    }
    Some(())
}

/// Writes a TCP packet to `out` with `put` in place of the `taken` bytes at `at` of its options,
/// which may make the header longer or shorter by whole words. Bytes behind the packet stay away,
/// and a checksum left to offload is computed. The new frame's length. `None` if a length does not
/// fit its field or `out` is too short; `out` then holds nothing of use.
pub(crate) fn write_options(
    packet: &Packet<'_>,
    (at, taken, put): (usize, usize, &[u8]),
    kernel: Kernel,
    out: &mut [u8],
) -> Option<usize> {
    let (ip_at, l4_at, frame) = (packet.ip_at(), packet.l4_at(), packet.frame());
    let put_at = l4_at + TCP_LEN + at;
    let old_end = ip_at + packet.ip_len();
    let behind = frame.get(put_at + taken..old_end)?;
    let end = put_at + put.len() + behind.len();
    let out = out.get_mut(..end)?;
    write_at(out, 0, frame.get(..put_at)?)?;
    write_at(out, put_at, put)?;
    write_at(out, put_at + put.len(), behind)?;

    let header_len = (packet.payload_at() + end).checked_sub(l4_at + old_end)?;
    // In words, the upper four bits; 60 bytes at most.
    let data_offset = out.get_mut(l4_at + 12)?;
    *data_offset = *data_offset & 0x0f | u8::try_from(4 * header_len).ok()? & 0xf0;
    write_lengths_and_checksum(packet, L4Checksum::Computed { plus: 0 }, kernel, out)?;
    Some(end)
}

/// Copies the frame of `network` to `out` with another type of service. `None` if `out` is too
/// short.
pub(crate) fn write_remarked(ip_frame: &IpFrame<'_>, tos: u8, out: &mut [u8]) -> Option<usize> {
    let frame = ip_frame.frame();
    write_at(out, 0, frame)?;
    set_tos(out, ip_frame.ip(), ip_frame.ip_at(), tos)?;
    Some(frame.len())
}

/// Computes the transport checksum of a packet whose sender left it to offload; whether it was
/// left. A frame that went past the hardware, or the metadata, that would do it is dropped by its
/// receiver.
///
/// A packet whose own checksum is right by chance looks the same, and keeps it. So does one
/// compressed segment in 65,536, and a host would then take it for data: if the frame is
/// `from_wire`, it may be one whose mark somebody has changed, and what looks like a compressed
/// segment is left alone.
pub fn complete_checksum(frame: &mut [u8], from_wire: bool, kernel: Kernel) -> bool {
    let Ok(packet) = IpFrame::parse(frame).and_then(|ip_frame| ip_frame.packet()) else { return false };
    let none = matches!(packet.transport(), Transport::Udp { checksum: 0 });
    if none || packet.extent() == Extent::Short || !packet.l4_checksum_is_offloaded() {
        return false;
    }
    if from_wire && SegmentHeader::recognise(&packet).is_some() {
        return false;
    }
    let udp = matches!(packet.transport(), Transport::Udp { .. });
    let (at, end) = (packet.l4_checksum_at(), packet.ip_at() + packet.ip_len());
    // The field stands for the pseudo-header, whose sum it is.
    let field = kernel.sum(frame.get(packet.l4_at()..end).unwrap_or(&[])).field();
    replace16(frame, at, if field == 0 && udp { u16::MAX } else { field }).is_some()
}

/// Copies `bytes` to byte `at` of `out`. `None` if they do not fit.
pub(crate) fn write_at(out: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    let out = out.get_mut(at..at + bytes.len())?;
    // Heads and tails are nearly always empty: not worth a call.
    if !bytes.is_empty() {
        out.copy_from_slice(bytes);
    }
    Some(())
}

fn set_tos(out: &mut [u8], ip: Ip, ip_at: usize, tos: u8) -> Option<()> {
    let first = out.get(ip_at..)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))?;
    match ip {
        Ip::V4 => {
            let new = first & 0xff00 | u16::from(tos);
            replace16(out, ip_at, new)?;
            update_ipv4_checksum(out, ip_at, first, new)
        }
        Ip::V6 => replace16(out, ip_at, first & 0xf00f | u16::from(tos) << 4).map(|_| ()),
    }
}

/// Follows the change of one aligned word of the IPv4 header.
fn update_ipv4_checksum(out: &mut [u8], ip_at: usize, old: u16, new: u16) -> Option<()> {
    // The update may turn one zero of ones' complement into the other; in-place framing changes no
    // byte.
    if old == new {
        return Some(());
    }
    let field = out.get_mut(ip_at + 10..)?.first_chunk_mut::<2>()?;
    *field = update(u16::from_be_bytes(*field), old, new).to_be_bytes();
    Some(())
}

/// Writes a big-endian word; returns what stood there.
fn replace16(out: &mut [u8], at: usize, new: u16) -> Option<u16> {
    let field = out.get_mut(at..)?.first_chunk_mut::<2>()?;
    let old = u16::from_be_bytes(*field);
    *field = new.to_be_bytes();
    Some(old)
}
