//! Headers of a rewritten packet: lengths, type of service, and the checksums that follow from
//! them.

use super::frame::{Extent, IPV4_LEN, IPV6_LEN, Ip, IpFrame, Packet, TCP_LEN, Transport, be16};
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
    /// Over the new segment, plus a constant.
    Computed {
        /// [`Packet::header_sum`] of the old packet.
        header_sum: Sum,
        /// The sum of the new payload.
        payload_sum: Sum,
        /// 0 for what a host is to accept.
        plus: u16,
    },
    /// None: the field is 0 (UDP over IPv4, RFC 768).
    None,
}

/// Copies the headers of `packet` to the start of `out`; the payload is yet to be written. `None`
/// if `out` is too short.
// More of the frame than its headers, since a copy of fixed length needs no call.
#[inline]
pub(crate) fn copy_headers(packet: &Packet<'_>, out: &mut [u8]) -> Option<()> {
    const USUAL: usize = 128;
    match (packet.frame().first_chunk::<USUAL>(), out.first_chunk_mut::<USUAL>()) {
        (Some(from), Some(to)) if packet.payload_at() <= USUAL => *to = *from,
        _ => write_at(out, 0, packet.headers())?,
    }
    Some(())
}

/// Makes the headers of `packet` at the start of `out`, where [`copy_headers`] has put them, those
/// of the payload behind them. `None` if a length does not fit its field or `out` is too short;
/// `out` then holds nothing of use.
// What stood in a field comes from `packet`: what was just written to `out` cannot be read yet.
#[inline(always)]
pub(crate) fn change_headers(packet: &Packet<'_>, headers: Headers, out: &mut [u8]) -> Option<()> {
    let Headers { tos, payload_len, checksum } = headers;
    let (l4_at, payload_at) = (packet.l4_at(), packet.payload_at());
    let out = out.get_mut(..payload_at + payload_len)?;
    change_ip(packet.ip_frame(), tos, Some(out.len() - packet.ip_at()), out)?;
    let l4_len = out.len() - l4_at;
    let udp = matches!(packet.transport(), Transport::Udp { .. });
    if udp {
        put16(out, l4_at + 4, u16::try_from(l4_len).ok()?)?;
    }
    let field = match checksum {
        L4Checksum::None => 0,
        L4Checksum::Computed { header_sum, payload_sum, plus } => {
            let mut sum = header_sum + Sum::without(packet.l4_checksum()) + Sum::word(l4_len as u16);
            if udp {
                let old_len = be16(packet.frame(), l4_at + 4)?;
                sum = sum + Sum::without(old_len) + Sum::word(l4_len as u16);
            }
            field(sum + payload_sum, plus, udp)
        }
    };
    put16(out, packet.l4_checksum_at(), field)
}

/// The checksum field that makes a segment of this sum to `plus`.
#[inline(always)]
fn field(sum: Sum, plus: u16, udp: bool) -> u16 {
    let field = (sum + Sum::without(plus)).field();
    // RFC 768: 0 would say that there is none; 0xffff is the other zero. Compressed segments have
    // that one, the gateware's too.
    if field == 0 && (udp || plus != 0) { u16::MAX } else { field }
}

/// Changes type of service and, if it is given, the packet's length in the IP header of `ip_frame`,
/// which stands in `out`, and lets the checksum of IPv4 follow (RFC 1624). `None` if the length
/// does not fit its field.
#[inline(always)]
fn change_ip(ip_frame: &IpFrame<'_>, tos: u8, len: Option<usize>, out: &mut [u8]) -> Option<()> {
    let from: &[u8; IPV4_LEN] = ip_frame.frame().get(ip_frame.ip_at()..)?.first_chunk()?;
    let to: &mut [u8; IPV4_LEN] = out.get_mut(ip_frame.ip_at()..)?.first_chunk_mut()?;
    match ip_frame.ip() {
        Ip::V4 => {
            let old = [from[0], from[1], from[2], from[3]];
            let [high, low] = match len {
                Some(len) => u16::try_from(len).ok()?.to_be_bytes(),
                None => [from[2], from[3]],
            };
            let new = [from[0], tos, high, low];
            // The update may turn one zero of ones' complement into the other; in-place framing
            // changes no byte.
            if old != new {
                [to[0], to[1], to[2], to[3]] = new;
                [to[10], to[11]] = update([from[10], from[11]], old, new);
            }
        }
        Ip::V6 => {
            let first = u16::from_be_bytes([from[0], from[1]]);
            [to[0], to[1]] = (first & 0xf00f | u16::from(tos) << 4).to_be_bytes();
            if let Some(len) = len {
                [to[4], to[5]] = u16::try_from(len - IPV6_LEN).ok()?.to_be_bytes();
            }
        }
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
    change_ip(packet.ip_frame(), packet.tos(), Some(out.len() - ip_at), out)?;
    let field_at = packet.l4_checksum_at();
    put16(out, field_at, 0)?;
    let segment = out.get(l4_at..)?;
    let sum = packet.pseudo_sum(segment.len()) + kernel.sum(segment);
    put16(out, field_at, sum.field())?;
    Some(end)
}

/// Copies the frame of `network` to `out` with another type of service. `None` if `out` is too
/// short.
pub(crate) fn write_remarked(ip_frame: &IpFrame<'_>, tos: u8, out: &mut [u8]) -> Option<usize> {
    let frame = ip_frame.frame();
    let out = out.get_mut(..frame.len())?;
    out.copy_from_slice(frame);
    change_ip(ip_frame, tos, None, out)?;
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
    let field = field(kernel.sum(frame.get(packet.l4_at()..end).unwrap_or(&[])), 0, udp);
    put16(frame, at, field).is_some()
}

/// Copies `bytes` to byte `at` of `out`. `None` if they do not fit.
#[inline(always)]
pub(crate) fn write_at(out: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    let out = out.get_mut(at..at + bytes.len())?;
    // Heads and tails are nearly always empty: not worth a call.
    if !bytes.is_empty() {
        out.copy_from_slice(bytes);
    }
    Some(())
}

/// Writes a big-endian word to byte `at` of `out`.
fn put16(out: &mut [u8], at: usize, word: u16) -> Option<()> {
    *out.get_mut(at..)?.first_chunk_mut()? = word.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::segment_header::CHECKSUM_CONSTANT;

    #[test]
    fn a_field_makes_the_sum_what_it_is_to_be_and_is_zero_for_plain_tcp_alone() {
        for plus in [0, CHECKSUM_CONSTANT] {
            for (udp, sum) in
                [false, true].into_iter().flat_map(|udp| (0..=u16::MAX).map(move |sum| (udp, sum)))
            {
                let field = field(Sum::word(sum), plus, udp);
                assert_eq!((u32::from(sum) + u32::from(field)) % 65535, u32::from(plus) % 65535);
                assert_eq!(field == 0, plus == 0 && !udp && sum % 65535 == 0, "{sum:#x} {plus:#x} {udp}");
            }
        }
    }
}
