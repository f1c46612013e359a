//! The frame parser on its own: each stage refuses what it has to, whatever later stages would
//! find.

use gradwire::verdict::PassReason;
use gradwire::wire::flow_key::FlowKey;
use gradwire::wire::frame::{IpFrame, MAX_LINK_LEN};

use crate::common::{ACK, IpSpec, SYN, Spec, TransportSpec};

fn with_options(options: &[u8]) -> Spec {
    let transport = TransportSpec::Tcp { seq: 1, flags: ACK, options: options.to_vec() };
    Spec { transport, tos: 0, ..Spec::tcp(1, ACK, &[7; 8]) }
}

fn is_bound(options: &[u8]) -> bool {
    let frame = with_options(options).bytes();
    IpFrame::parse(&frame).and_then(|ip_frame| ip_frame.packet()).unwrap().has_binding_option()
}

#[test]
fn the_network_stage_needs_a_whole_ip_header() {
    for (ip, header_len) in [(IpSpec::V4 { option_words: 0 }, 20), (IpSpec::V6 { extensions: vec![] }, 40)] {
        for vlans in [vec![], vec![(0x8100, 5)], vec![(0x88a8, 5), (0x8100, 6)]] {
            let ip_at = 14 + 4 * vlans.len();
            let frame = Spec { ip: ip.clone(), vlans, ..Spec::tcp(1, ACK, &[]) }.bytes();
            for len in 0..=frame.len() {
                let parsed = IpFrame::parse(&frame[..len]);
                assert_eq!(parsed.is_ok(), len >= ip_at + header_len, "{len} bytes: {parsed:?}");
            }
        }
    }
}

#[test]
fn the_longest_link_header_has_two_vlan_tags() {
    let spec = Spec { vlans: vec![(0x88a8, 5), (0x8100, 6)], ..Spec::tcp(1, ACK, &[]) };
    let frame = spec.bytes();
    let ip_len = u16::from_be_bytes([frame[24], frame[25]]);
    assert_eq!(frame.len(), MAX_LINK_LEN + usize::from(ip_len));
}

/// Of another protocol, so that no transport header is asked for.
#[test]
fn an_ipv4_packet_may_be_its_header_alone() {
    let mut frame = Spec::tcp(1, ACK, &[]).bytes();
    frame.truncate(34);
    frame[16..18].copy_from_slice(&20u16.to_be_bytes());
    frame[23] = 253; // for experiments, RFC 3692
    assert_eq!(IpFrame::parse(&frame).unwrap().packet().unwrap_err(), PassReason::Protocol);
    for (version_and_ihl, total_len) in [(0x45, 19), (0x44, 20), (0x46, 20)] {
        (frame[14], frame[17]) = (version_and_ihl, total_len);
        assert_eq!(IpFrame::parse(&frame).unwrap().packet().unwrap_err(), PassReason::Malformed);
    }
}

#[test]
fn a_syn_is_told_by_its_flags() {
    for ip in [IpSpec::V4 { option_words: 0 }, IpSpec::V6 { extensions: vec![] }] {
        for (flags, may_be) in [(SYN, true), (SYN | ACK, true), (ACK, false), (!SYN, false)] {
            let frame = Spec { ip: ip.clone(), ..Spec::tcp(1, flags, &[]) }.bytes();
            assert_eq!(IpFrame::parse(&frame).unwrap().may_be_syn(), may_be, "{flags:#04x}");
        }
        // The byte where flags would be is the payload's.
        let udp = Spec { ip, ..Spec::udp(&[SYN; 8]) }.bytes();
        assert!(!IpFrame::parse(&udp).unwrap().may_be_syn());
    }
    let with_options = Spec { ip: IpSpec::V4 { option_words: 1 }, ..Spec::tcp(1, ACK, &[]) }.bytes();
    assert!(IpFrame::parse(&with_options).unwrap().may_be_syn(), "only the packet tells");
}

#[test]
fn a_key_has_both_vlans() {
    let vlans = |vlans: &[(u16, u16)]| {
        let frame = Spec { vlans: vlans.to_vec(), ..Spec::tcp(1, ACK, &[]) }.bytes();
        IpFrame::parse(&frame).and_then(|ip_frame| ip_frame.packet()).unwrap().flow_key()
    };
    for (tags, expected, shown) in [
        (vec![], [0, 0], ""),
        (vec![(0x8100, 0xe005)], [0, 5], " vlan 5"),
        (vec![(0x88a8, 0xfffe), (0x8100, 0x0801)], [0xffe, 0x801], " vlan 4094 vlan 2049"),
    ] {
        let key = vlans(&tags);
        assert_eq!(key.vlans(), expected);
        assert_eq!(key.to_string(), format!("10.40.0.1:40000 > 10.40.0.2:5400{shown}"));
    }
}

#[test]
fn a_syn_behind_extension_headers_may_be_one() {
    for (number, may_be) in [(0, true), (43, true), (60, true), (44, false), (50, false)] {
        let ip = IpSpec::V6 { extensions: vec![(number, 0)] };
        for flags in [SYN, ACK] {
            let frame = Spec { ip: ip.clone(), ..Spec::tcp(1, flags, &[]) }.bytes();
            // Without a look at them: whether it is one, only the packet tells.
            assert_eq!(IpFrame::parse(&frame).unwrap().may_be_syn(), may_be, "{number}");
        }
    }
}

#[test]
fn options_are_read_one_by_one() {
    assert!(!is_bound(&[1, 3, 3, 7]), "NOP, window scale");
    assert!(!is_bound(&[1, 1, 1, 3, 3, 7, 0, 30]), "nothing counts behind the end");
    assert!(!is_bound(&[]));
    for (kind, name) in [(19, "MD5"), (29, "AO"), (30, "MPTCP")] {
        let mut options = [0; 40];
        options[0] = 1;
        options[1..3].copy_from_slice(&[kind, 18]);
        assert!(is_bound(&options), "{name} behind a NOP");
        options[..6].copy_from_slice(&[2, 4, 5, 180, kind, 18]);
        assert!(is_bound(&options), "{name} behind MSS");
        options[..14].copy_from_slice(&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, kind, 18]);
        assert!(is_bound(&options), "{name} behind timestamps");
    }
    assert!(is_bound(&[8, 1, 0, 0]), "no length to go on by");
    assert!(is_bound(&[1, 1, 1, 8]), "no length at all");
}

/// All words count, also if their differences would cancel each other.
#[test]
fn keys_are_equal_where_all_words_are() {
    let key = FlowKey([1, 2, 3, 4, 5]);
    for first in 0..5 {
        for second in 0..5 {
            let mut other = key;
            other.0[first] ^= 0x10;
            assert_ne!(key, other);
            if first != second {
                other.0[second] ^= 0x10;
                assert_ne!(key, other);
            }
        }
    }
    assert_eq!(key, FlowKey([1, 2, 3, 4, 5]));
}
