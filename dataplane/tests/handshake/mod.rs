//! The handshake (FORMAT.md §5.5): two hosts agree on their SYNs, or nothing is compressed.
//! `etherparse` writes and reads the frames.

mod capabilities;
mod connections;
mod forgotten;
mod rules;

use etherparse::{
    IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, SingleVlanHeader, SlicedPacket, TcpHeader,
    TransportSlice, VlanHeader,
};
use gradwire::engine::{CapabilityTable, Egress, Ingress, Millis};
use gradwire::flow::capabilities::Slot;
use gradwire::kernels::Kernel;
use gradwire::rules::{Alignment, DEFAULT_MARK, Framing, Handshake, Rule, Rules, RulesError};
use gradwire::verdict::{Change, PassReason, Verdict};
use gradwire::wire::frame::MAX_LINK_LEN;
use gradwire::{Params, Split};
use proptest::prelude::*;

use crate::common::engines::rules;
use crate::common::{gradient, host_accepts, le_bytes};

const MTU: u16 = 1500;
const NOW: Millis = Millis(0);
const TAG: u8 = 0x28;
const IN_PLACE: Rule = Rule { framing: Framing::InPlace, ..Rule::DEFAULT };
/// Sequence numbers of the SYNs of both ends. Values start behind them, so that every payload is
/// aligned.
const ISN: [u32; 2] = [0xffff_fffe, 70_000];
/// The options of a usual SYN: MSS, SACK permitted, timestamps, NOP, window scale.
const USUAL: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 0, 1, 2, 3, 0, 0, 0, 0, 1, 3, 3, 7];
/// RFC 8684 section 3.1.
const MPTCP_CAPABLE: [u8; 4] = [30, 4, 1, 0x81];
/// The option of a host with [`Rule::DEFAULT`], by FORMAT.md.
const ROUTED: [u8; 12] = [1, 1, 253, 10, 0x67, 0x77, 0x11, 0x03, 0, 0, 0, 0];

/// A segment from one of two ends, in the terms of its headers.
#[derive(Clone, Debug)]
struct Segment {
    /// 0: the one that connects.
    from: usize,
    /// That of the end that connects.
    port: u16,
    v6: bool,
    vlan: bool,
    tos: u8,
    seq: u32,
    ack: Option<u32>,
    flags: &'static str,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Segment {
    /// The first SYN of the end that connects.
    fn syn() -> Self {
        Self {
            from: 0,
            port: 40_000,
            v6: false,
            vlan: false,
            tos: TAG,
            seq: ISN[0],
            ack: None,
            flags: "S",
            options: USUAL.to_vec(),
            payload: vec![],
        }
    }

    /// The other end's answer.
    fn syn_ack() -> Self {
        Self { from: 1, seq: ISN[1], ack: Some(ISN[0].wrapping_add(1)), ..Self::syn() }
    }

    /// The first values of an end.
    fn data(from: usize) -> Self {
        let seq = ISN[from].wrapping_add(1);
        let ack = Some(ISN[1 - from].wrapping_add(1));
        Self { from, seq, ack, flags: "", options: vec![], payload: le_bytes(&gradient(300)), ..Self::syn() }
    }

    fn bytes(&self) -> Vec<u8> {
        let (near, far) = (self.from as u8 + 1, 2 - self.from as u8);
        let ports = if self.from == 0 { (self.port, 5400) } else { (5400, self.port) };
        let ip = if self.v6 {
            let ip = Ipv6Header {
                traffic_class: self.tos,
                next_header: IpNumber::TCP,
                hop_limit: 64,
                source: [near; 16],
                destination: [far; 16],
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(ip, Default::default())
        } else {
            let mut ip = Ipv4Header::new(0, 64, IpNumber::TCP, [10, 0, 0, near], [10, 0, 0, far]).unwrap();
            ip.dscp = (self.tos >> 2).try_into().unwrap();
            ip.ecn = (self.tos & 3).try_into().unwrap();
            IpHeaders::Ipv4(ip, Default::default())
        };
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, near], [2, 0, 0, 0, 0, far]);
        let builder = if self.vlan {
            let tag = SingleVlanHeader { vlan_id: 5u16.try_into().unwrap(), ..SingleVlanHeader::default() };
            link.vlan(VlanHeader::Single(tag)).ip(ip)
        } else {
            link.ip(ip)
        };
        let mut tcp = TcpHeader::new(ports.0, ports.1, self.seq, 8192);
        tcp.syn = self.flags.contains('S');
        tcp.fin = self.flags.contains('F');
        tcp.rst = self.flags.contains('R');
        (tcp.ack, tcp.acknowledgment_number) = (self.ack.is_some(), self.ack.unwrap_or(0));
        tcp.set_options_raw(&self.options).unwrap();
        let mut frame = vec![];
        builder.tcp_header(tcp).write(&mut frame, &self.payload).unwrap();
        frame
    }
}

/// The TCP options of a frame that a host accepts.
fn options(frame: &[u8]) -> Vec<u8> {
    assert!(host_accepts(frame).is_some(), "{frame:02x?}");
    match SlicedPacket::from_ethernet(frame).unwrap().transport {
        Some(TransportSlice::Tcp(tcp)) => tcp.options().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// A host behind its engines.
struct Host {
    egress: Egress<2>,
    ingress: Ingress,
    capabilities: CapabilityTable<[Slot; 64]>,
    now: Millis,
}

impl Host {
    fn new(rule: Rule) -> Self {
        Self {
            egress: Egress::new(rules(rule), Kernel::detect(), MTU, 1),
            ingress: Ingress::new(rules(rule), Kernel::detect(), MTU),
            capabilities: CapabilityTable::new(9),
            now: NOW,
        }
    }

    /// The frame that leaves, over exactly the room that the engine asks for.
    fn send(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let syn = SlicedPacket::from_ethernet(frame)
            .is_ok_and(|packet| matches!(packet.transport, Some(TransportSlice::Tcp(tcp)) if tcp.syn()));
        let mut out = vec![0xaa; frame.len() + if syn { 12 } else { 0 }];
        let verdict = self.egress.process(frame, &mut out, self.now, &self.capabilities);
        (verdict, sent(verdict, frame, out))
    }

    /// The frame that arrives at the host.
    fn receive(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let mut out = vec![0x55; usize::from(MTU) + MAX_LINK_LEN];
        let verdict = self.ingress.process(frame, &mut out, &self.capabilities);
        (verdict, sent(verdict, frame, out))
    }
}

fn sent(verdict: Verdict, frame: &[u8], mut out: Vec<u8>) -> Vec<u8> {
    match verdict {
        Verdict::Untouched(_) => frame.to_vec(),
        Verdict::Dropped(reason) => panic!("{reason}"),
        Verdict::Changed { len, .. } => {
            out.truncate(len);
            out
        }
    }
}

fn is(change: Change, verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Changed { change: got, .. } if got == change)
}

/// A SYN crosses from one host to the other; what is on the wire between them goes through `path`.
fn cross(hosts: &mut [Host; 2], segment: &Segment, path: impl Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let (_, wire) = hosts[segment.from].send(&segment.bytes());
    hosts[1 - segment.from].receive(&path(wire)).1
}

/// Both SYNs cross, and hosts see what the others sent.
fn connect(hosts: &mut [Host; 2], like: &Segment) {
    let changes = |syn: Segment| Segment { v6: like.v6, vlan: like.vlan, tos: like.tos, ..syn };
    for segment in [changes(Segment::syn()), changes(Segment::syn_ack())] {
        assert_eq!(cross(hosts, &segment, |wire| wire), segment.bytes());
    }
}

/// The result for an end's first values. If they leave compressed, they arrive within the bound.
fn values(hosts: &mut [Host; 2], segment: &Segment) -> Result<(), PassReason> {
    let frame = segment.bytes();
    let (verdict, wire) = hosts[segment.from].send(&frame);
    match verdict {
        Verdict::Untouched(reason) => Err(reason),
        verdict => {
            assert!(is(Change::Compressed, verdict) && wire.len() < frame.len());
            let (verdict, host) = hosts[1 - segment.from].receive(&wire);
            assert!(is(Change::Restored, verdict));
            let payload = host_accepts(&host).unwrap();
            assert_eq!(payload.len(), segment.payload.len());
            for (sent, got) in segment.payload.as_chunks().0.iter().zip(payload.as_chunks().0) {
                let [sent, got] = [sent, got].map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
                assert!((sent - got).abs() < 1.0 / 1024.0);
            }
            Ok(())
        }
    }
}

/// Neither direction is compressed; each for its reason.
fn assert_untouched(hosts: &mut [Host; 2], reasons: [PassReason; 2]) {
    for (from, reason) in reasons.into_iter().enumerate() {
        assert_eq!(values(hosts, &Segment::data(from)), Err(reason), "from {from}");
    }
}

prop_compose! {
    /// A well-formed list of options, none of which binds the payload.
    fn option_list()(list in prop::collection::vec(
        prop_oneof![
            Just(vec![1]),
            Just(vec![4, 2]),
            (prop::sample::select(vec![2u8, 3, 5, 8, 34, 77, 253, 254]), prop::collection::vec(any::<u8>(), 0..12))
                .prop_map(|(kind, data)| [&[kind, data.len() as u8 + 2][..], &data].concat()),
        ], 0..6,
    ))(list in Just(list), keep in 0..=40usize) -> Vec<u8> {
        let mut options = vec![];
        for option in list {
            if options.len() + option.len() <= keep {
                options.extend(option);
            }
        }
        let padding = options.len().next_multiple_of(4) - options.len();
        options.extend([1].repeat(padding));
        options
    }
}

proptest! {
    /// Whatever SYN egress changes: a host on the wire accepts it, and ingress restores it byte for
    /// byte.
    #[test]
    fn ingress_takes_out_the_option_that_egress_adds(
        options_sent in option_list(), answers: bool, v6: bool, vlan: bool, ecn in 0u8..4, in_place: bool,
        seq: u32, ack: u32, len in 0usize..1450,
    ) {
        let rule = if in_place { IN_PLACE } else { Rule::DEFAULT };
        let mut hosts = [rule; 2].map(Host::new);
        let segment = Segment {
            v6, vlan, tos: TAG | ecn, seq, ack: answers.then_some(ack), options: options_sent,
            payload: vec![0x5a; len], ..Segment::syn()
        };
        if answers {
            let asked = Segment { from: 1, seq: ack.wrapping_sub(1), v6, vlan, options: ROUTED.to_vec(), ..Segment::syn() };
            prop_assert!(is(Change::OptionStripped, hosts[0].receive(&asked.bytes()).0));
        }
        let frame = segment.bytes();
        let (verdict, wire) = hosts[0].send(&frame);
        if is(Change::OptionAdded, verdict) {
            prop_assert_eq!(wire.len(), frame.len() + 12);
            prop_assert_eq!(&options(&wire)[12..], &segment.options[..]);
            let (verdict, host) = hosts[1].receive(&wire);
            prop_assert!(is(Change::OptionStripped, verdict));
            prop_assert_eq!(host, frame);
        } else {
            prop_assert_eq!(&wire, &frame);
            let ip_len = frame.len() - if vlan { 18 } else { 14 };
            prop_assert!(segment.options.len() > 28 || ip_len + 12 > usize::from(MTU)
                || segment.options.windows(2).any(|two| two == [0x67, 0x77]) , "{segment:?}");
        }
    }

    /// Any bytes as the options of a SYN from the wire: what reaches the host is acceptable and no
    /// longer, and has no capability that the engine believed.
    #[test]
    fn any_options_from_the_wire(bytes in prop::collection::vec(any::<u8>(), 0..=40), start in 0usize..40, v6: bool) {
        let mut list = bytes;
        list.truncate(list.len() / 4 * 4);
        if list.len() >= 12 && start + 10 <= list.len() {
            list[start..start + 10].copy_from_slice(&ROUTED[2..]);
        }
        let frame = Segment { v6, options: list.clone(), ..Segment::syn() }.bytes();
        let mut host = Host::new(Rule::DEFAULT);
        let (verdict, got) = host.receive(&frame);
        match verdict {
            Verdict::Changed { change: Change::OptionStripped, .. } => {
                let left = options(&got);
                prop_assert!(left.len() == list.len() || left == list[12..]);
                prop_assert!(left.windows(4).all(|four| four != [253, 10, 0x67, 0x77]));
            }
            verdict => {
                prop_assert_eq!(verdict, Verdict::Untouched(PassReason::NotCompressed));
                prop_assert_eq!(got, frame);
            }
        }
    }
}
