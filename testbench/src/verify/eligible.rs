//! FORMAT.md section 5.1, frame by frame: what may be compressed. Read by `etherparse`, so that the
//! parser of the dataplane is not its own verify.

use etherparse::{
    Ipv6ExtensionSlice, LinkExtSlice, NetSlice, SlicedPacket, TcpSlice, TransportSlice, UdpSlice,
};

use crate::replay::MIN_FRAME_LEN;

/// Tunnels and RDMA: GTP-U, VXLAN, RoCEv2, GENEVE, VXLAN's old port.
const TUNNELS: [u16; 5] = [2152, 4789, 4791, 6081, 8472];
/// TCP options that bind the payload to what the sender sent: MD5 (RFC 2385), AO (RFC 5925),
/// Multipath TCP (RFC 8684).
const BINDING: [u8; 3] = [19, 29, 30];

/// Why this frame may not be compressed, whatever its connection and its type of service; `None` if
/// it may.
#[must_use]
pub fn refusal(frame: &[u8]) -> Option<&'static str> {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return Some("headers that are not whole") };
    if packet.link_exts.iter().any(|ext| !matches!(ext, LinkExtSlice::Vlan(_))) {
        return Some("a link header that is no VLAN tag");
    }
    if packet.link_exts.len() > 2 {
        return Some("more than two VLAN tags");
    }
    let payload = match &packet.net {
        Some(NetSlice::Ipv4(ip)) if ip.is_payload_fragmented() => return Some("a fragment"),
        Some(NetSlice::Ipv4(ip)) => ip.payload().payload,
        Some(NetSlice::Ipv6(ip)) => {
            for extension in ip.extensions().clone() {
                match extension {
                    Ipv6ExtensionSlice::HopByHop(_) => {}
                    Ipv6ExtensionSlice::DestinationOptions(options)
                        if has_home_address(options.payload()) =>
                    {
                        return Some("a home address");
                    }
                    Ipv6ExtensionSlice::DestinationOptions(_) => {}
                    // RFC 8200 section 4.4: behind next header, length and type.
                    Ipv6ExtensionSlice::Routing(routing) if routing.slice()[3] == 0 => {}
                    Ipv6ExtensionSlice::Routing(_) => return Some("a routing header with segments left"),
                    Ipv6ExtensionSlice::Fragment(_) => return Some("a fragment header"),
                    Ipv6ExtensionSlice::Authentication(_) => return Some("an authentication header"),
                }
            }
            ip.payload().payload
        }
        _ => return Some("no IP"),
    };
    if payload.as_ptr_range().end != frame.as_ptr_range().end {
        return Some("bytes behind the IP packet");
    }
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => tcp_refusal(tcp),
        Some(TransportSlice::Udp(udp)) => udp_refusal(udp, payload.len()),
        _ => Some("neither TCP nor UDP"),
    }
}

fn tcp_refusal(tcp: &TcpSlice<'_>) -> Option<&'static str> {
    if tcp.syn() || tcp.rst() || tcp.urg() {
        return Some("SYN, RST or URG");
    }
    if binds(tcp.options()) {
        return Some("a TCP option that binds the payload");
    }
    (tcp.payload().len() < 4).then_some("no whole value")
}

fn udp_refusal(udp: &UdpSlice<'_>, len: usize) -> Option<&'static str> {
    if usize::from(udp.length()) != len {
        return Some("a UDP length that does not fill the IP packet");
    }
    if TUNNELS.contains(&udp.destination_port()) || TUNNELS.contains(&udp.source_port()) {
        return Some("a tunnel's port");
    }
    (udp.payload().len() < 4).then_some("no whole value")
}

/// Whether IPv6 destination options (RFC 8200 section 4.2) hold the one for a home address (RFC
/// 6275 section 6.3).
fn has_home_address(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, _) => rest,
            (0xc9, _) => return true,
            (_, [len, data @ ..]) => data.get(usize::from(*len)..).unwrap_or(&[]),
            _ => &[],
        };
    }
    false
}

/// The time that a frame counts when it is asked whether it got shorter: without VLAN tags and FCS,
/// and as 60 bytes at least.
#[must_use]
pub fn counted_len(frame: &[u8]) -> usize {
    let tags = [12, 16]
        .into_iter()
        .take_while(|at| matches!(frame.get(*at..*at + 2), Some([0x81, 0x00] | [0x88, 0xa8])));
    (frame.len() - 4 * tags.count()).max(MIN_FRAME_LEN)
}

/// Whether one of these TCP options binds the payload.
pub(crate) fn binds(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, _) => return false,
            (1, _) => rest,
            (kind, _) if BINDING.contains(kind) => return true,
            (_, [len, ..]) if *len >= 2 => options.get(usize::from(*len)..).unwrap_or(&[]),
            _ => return false,
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{
        IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader,
        Ipv6RoutingExtensions, PacketBuilder, PacketBuilderStep, TcpHeader,
    };

    fn link() -> PacketBuilderStep<etherparse::Ethernet2Header> {
        PacketBuilder::ethernet2([2; 6], [4; 6])
    }

    fn tcp(change: impl FnOnce(&mut TcpHeader), payload: &[u8]) -> Vec<u8> {
        let mut header = TcpHeader::new(40_000, 5400, 1, 1000);
        header.ack = true;
        change(&mut header);
        let mut frame = Vec::new();
        link().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp_header(header).write(&mut frame, payload).unwrap();
        frame
    }

    fn udp(from: u16, to: u16) -> Vec<u8> {
        let mut frame = Vec::new();
        link().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(from, to).write(&mut frame, &[0; 64]).unwrap();
        frame
    }

    fn ipv6(extensions: Ipv6Extensions, next: IpNumber) -> Vec<u8> {
        let header = Ipv6Header { next_header: next, hop_limit: 64, ..Ipv6Header::default() };
        let mut frame = Vec::new();
        link().ip(IpHeaders::Ipv6(header, extensions)).udp(1, 2).write(&mut frame, &[0; 64]).unwrap();
        frame
    }

    #[test]
    fn eligible_frames_may_be_compressed() {
        let timestamps = |header: &mut TcpHeader| {
            header.set_options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]).unwrap();
        };
        let option =
            |bytes: &'static [u8]| move |header: &mut TcpHeader| header.set_options_raw(bytes).unwrap();
        assert_eq!(refusal(&tcp(|_| {}, &[0; 64])), None);
        assert_eq!(refusal(&tcp(timestamps, &[0; 64])), None);
        assert_eq!(refusal(&tcp(|header| header.fin = true, &[0; 64])), None);
        assert_eq!(refusal(&udp(1, 2)), None);
        let flags: [fn(&mut TcpHeader); 3] =
            [|header| header.syn = true, |header| header.rst = true, |header| header.urg = true];
        for flag in flags {
            assert_eq!(refusal(&tcp(flag, &[0; 64])), Some("SYN, RST or URG"));
        }
        for bytes in [&[19, 4, 0, 0][..], &[1, 29, 3, 0], &[8, 3, 0, 30, 5, 0, 0, 0]] {
            assert_eq!(refusal(&tcp(option(bytes), &[0; 64])), Some("a TCP option that binds the payload"));
        }
        assert_eq!(refusal(&tcp(option(&[0, 19, 2, 0]), &[0; 64])), None, "behind the end of the options");
        assert_eq!(refusal(&tcp(|_| {}, &[0; 3])), Some("no whole value"));
        for port in TUNNELS {
            assert_eq!(refusal(&udp(1, port)), Some("a tunnel's port"));
        }

        let mut longer = udp(1, 2);
        longer.push(0);
        assert_eq!(refusal(&longer), Some("bytes behind the IP packet"));
        let mut shorter = udp(1, 2);
        shorter[39] -= 4;
        assert_eq!(refusal(&shorter), Some("a UDP length that does not fill the IP packet"));
        let mut fragment = udp(1, 2);
        fragment[20] |= 0x20;
        assert_eq!(refusal(&fragment), Some("a fragment"));
        let mut other = Vec::new();
        let ip = Ipv4Header::new(0, 64, IpNumber::UDP, [1; 4], [2; 4]).unwrap();
        link()
            .ip(IpHeaders::Ipv4(ip, Default::default()))
            .write(&mut other, IpNumber::GRE, &[0; 64])
            .unwrap();
        assert_eq!(refusal(&other), Some("neither TCP nor UDP"));
        assert_eq!(refusal(&[0; 60]), Some("no IP"));
    }

    #[test]
    fn a_vlan_tag_makes_no_frame_longer() {
        let mut frame = udp(1, 2);
        assert_eq!(counted_len(&frame), 14 + 20 + 8 + 64);
        for tag in [[0x81, 0, 0, 5], [0x88, 0xa8, 0, 6]] {
            frame.splice(12..12, tag);
            assert_eq!(counted_len(&frame), 14 + 20 + 8 + 64);
        }
        assert_eq!(counted_len(&frame[..64]), 60);
    }

    #[test]
    fn extension_headers_that_may_stand_before_it() {
        let raw = || Ipv6RawExtHeader::new_raw(IpNumber::UDP, &[4, 0, 0, 0, 0, 0]).unwrap();
        let routed = |left: u8| {
            let routing = Ipv6RawExtHeader::new_raw(IpNumber::UDP, &[4, left, 0, 0, 0, 0]).unwrap();
            let routing = Some(Ipv6RoutingExtensions { routing, final_destination_options: None });
            ipv6(Ipv6Extensions { routing, ..Ipv6Extensions::default() }, IpNumber::IPV6_ROUTE_HEADER)
        };
        let none = Ipv6Extensions::default();
        assert_eq!(refusal(&ipv6(none.clone(), IpNumber::UDP)), None);
        let destination_options = Some(raw());
        let options = Ipv6Extensions { destination_options, ..none.clone() };
        assert_eq!(refusal(&ipv6(options, IpNumber::IPV6_DESTINATION_OPTIONS)), None);
        // PadN, and then a home address: 18 bytes, padded to 24.
        let mut address = [0; 22];
        address[..6].copy_from_slice(&[1, 2, 0, 0, 0xc9, 16]);
        let destination_options = Some(Ipv6RawExtHeader::new_raw(IpNumber::UDP, &address).unwrap());
        let mobile = Ipv6Extensions { destination_options, ..none.clone() };
        assert_eq!(refusal(&ipv6(mobile, IpNumber::IPV6_DESTINATION_OPTIONS)), Some("a home address"));
        assert_eq!(refusal(&routed(0)), None);
        assert_eq!(refusal(&routed(1)), Some("a routing header with segments left"));
        let fragment = Some(Ipv6FragmentHeader::new(IpNumber::UDP, 0u16.try_into().unwrap(), false, 1));
        let whole = Ipv6Extensions { fragment, ..none };
        assert_eq!(refusal(&ipv6(whole, IpNumber::IPV6_FRAGMENTATION_HEADER)), Some("a fragment header"));
    }
}
