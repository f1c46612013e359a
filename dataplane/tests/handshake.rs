//! The handshake (FORMAT.md §5.5): two hosts agree on their SYNs, or nothing is compressed. `etherparse` writes and reads
//! the frames.

mod common;

use common::engines::rules;
use common::{gradient, host_accepts, le_bytes};
use etherparse::{
    IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, SingleVlanHeader, SlicedPacket, TcpHeader,
    TransportSlice, VlanHeader,
};
use gradwire::engine::{Egress, Ingress, Millis, Offers};
use gradwire::flow::offers::Slot;
use gradwire::kernels::Kernel;
use gradwire::rules::{DEFAULT_MARK, Framing, Grid, Handshake, Rule, Rules, RulesError};
use gradwire::verdict::{Change, PassReason, Verdict};
use gradwire::wire::frame::MAX_LINK_LEN;
use gradwire::{Params, Split};
use proptest::prelude::*;

const MTU: u16 = 1500;
const NOW: Millis = Millis(0);
const TAG: u8 = 0x28;
const IN_PLACE: Rule = Rule { framing: Framing::InPlace, ..Rule::DEFAULT };
/// Sequence numbers of the SYNs of both ends. Values start behind them, so that every payload is on the grid.
const ISN: [u32; 2] = [0xffff_fffe, 70_000];
/// What a usual SYN has: MSS, SACK permitted, timestamps, NOP, window scale.
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
        let ports = if self.from == 0 { (40_000, 5400) } else { (5400, 40_000) };
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
    offers: Offers<[Slot; 64]>,
}

impl Host {
    fn new(rule: Rule) -> Self {
        Self {
            egress: Egress::new(rules(rule), Kernel::detect(), MTU, 1),
            ingress: Ingress::new(rules(rule), Kernel::detect(), MTU),
            offers: Offers::new(9),
        }
    }

    /// What leaves, over exactly the room that the engine asks for.
    fn send(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let syn = SlicedPacket::from_ethernet(frame)
            .is_ok_and(|packet| matches!(packet.transport, Some(TransportSlice::Tcp(tcp)) if tcp.syn()));
        let mut out = vec![0xaa; frame.len() + if syn { 12 } else { 0 }];
        let verdict = self.egress.process(frame, &mut out, NOW, &self.offers);
        (verdict, sent(verdict, frame, out))
    }

    /// What arrives at the host.
    fn receive(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let mut out = vec![0x55; usize::from(MTU) + MAX_LINK_LEN];
        let verdict = self.ingress.process(frame, &mut out, &self.offers);
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

/// What becomes of an end's first values. If they leave compressed, they arrive within the bound.
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

#[test]
fn two_ends_that_restore_agree() {
    for rule in [Rule::DEFAULT, IN_PLACE, Rule { grid: Grid::Payload, ..IN_PLACE }] {
        for (v6, vlan, ecn) in [(false, false, 0), (true, false, 0), (false, true, 2), (true, true, 3)] {
            let mut hosts = [rule; 2].map(Host::new);
            let like = Segment { v6, vlan, tos: TAG | ecn, ..Segment::syn() };
            connect(&mut hosts, &like);
            for from in [0, 1] {
                let data = Segment { v6, vlan, tos: TAG | ecn, ..Segment::data(from) };
                assert_eq!(values(&mut hosts, &data), Ok(()), "{rule:?} v6 {v6} vlan {vlan} from {from}");
            }
        }
    }
}

#[test]
fn a_syn_says_what_its_host_restores() {
    let syn = Segment::syn();
    for (rule, option) in [
        (Rule::DEFAULT, ROUTED),
        (IN_PLACE, [1, 1, 253, 10, 0x67, 0x77, 0x13, 0x03, 1, 0xa3, 0, 0]),
        (Rule { grid: Grid::Payload, ..IN_PLACE }, [1, 1, 253, 10, 0x67, 0x77, 0x13, 0x03, 1, 0xa3, 0, 1]),
    ] {
        let (verdict, wire) = Host::new(rule).send(&syn.bytes());
        assert!(is(Change::Told, verdict));
        assert_eq!(wire.len(), syn.bytes().len() + 12);
        assert_eq!(options(&wire), [&option[..], &USUAL].concat());
    }
}

/// An application's listener is tagged, and Linux answers for it without the tag.
#[test]
fn an_untagged_answer_tells_too() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    cross(&mut hosts, &Segment::syn(), |wire| wire);
    let answer = Segment { tos: 0, ..Segment::syn_ack() };
    let (verdict, wire) = hosts[1].send(&answer.bytes());
    assert!(is(Change::Told, verdict));
    assert_eq!(options(&wire), [&ROUTED[..], &USUAL].concat());
    let (verdict, host) = hosts[0].receive(&wire);
    assert!(is(Change::Heard, verdict));
    assert_eq!(host, answer.bytes());
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()), "from {from}");
    }
}

/// In-place frames carry no codec: the type of service says which rule restores them, so both ends have to name it.
#[test]
fn in_place_framing_needs_the_type_of_service_in_both_directions() {
    let mut hosts = [IN_PLACE; 2].map(Host::new);
    cross(&mut hosts, &Segment::syn(), |wire| wire);
    cross(&mut hosts, &Segment { tos: 0, ..Segment::syn_ack() }, |wire| wire);
    assert_eq!(values(&mut hosts, &Segment::data(0)), Err(PassReason::ParametersDiffer));
    // The same rule serves both, but perhaps not at the far end.
    let wide = Rule { mask: 0xf0, tos: 0x20, ..IN_PLACE };
    let mut hosts = [wide; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    let other = Segment { tos: 0x24, ..Segment::data(0) };
    assert_eq!(values(&mut hosts, &other), Err(PassReason::ParametersDiffer));
    assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
}

#[test]
fn in_place_parameters_that_differ_leave_the_connection_alone() {
    let other = |b| Params::new(b, Split::Dense, 0).unwrap().into();
    for (at, theirs) in [
        Rule { profile: other(12), ..IN_PLACE },
        Rule { grid: Grid::Payload, ..IN_PLACE },
        Rule { profile: Params::new(10, Split::Paper, 0).unwrap().into(), ..IN_PLACE },
    ]
    .into_iter()
    .enumerate()
    {
        let mut hosts = [IN_PLACE, theirs].map(Host::new);
        connect(&mut hosts, &Segment::syn());
        assert_untouched(&mut hosts, [PassReason::ParametersDiffer; 2]);
        assert_eq!(hosts[0].egress.counters().passed(PassReason::ParametersDiffer), 1, "{at}");
    }
    // Routed frames name their codec, so the end that sends them needs no more than that.
    let mut hosts = [IN_PLACE, Rule { profile: other(12), ..Rule::DEFAULT }].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    assert_eq!(values(&mut hosts, &Segment::data(0)), Err(PassReason::ParametersDiffer));
    assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
}

/// The far end has no gradwire: its host sees the option and ignores it, and nothing is compressed.
#[test]
fn one_end_alone_compresses_nothing() {
    let (syn, answer) = (Segment::syn(), Segment::syn_ack());
    let mut client = Host::new(Rule::DEFAULT);
    let _ = client.send(&syn.bytes());
    assert_eq!(client.receive(&answer.bytes()).1, answer.bytes());
    assert_eq!(client.send(&Segment::data(0).bytes()).0, Verdict::Untouched(PassReason::NotAgreed));

    let mut server = Host::new(Rule::DEFAULT);
    assert_eq!(server.receive(&syn.bytes()).1, syn.bytes());
    assert_eq!(server.send(&answer.bytes()).0, Verdict::Untouched(PassReason::TcpFlags));
    assert_eq!(server.send(&Segment::data(1).bytes()).0, Verdict::Untouched(PassReason::NotAgreed));
}

#[test]
fn a_third_transmission_goes_without() {
    for answered in [false, true] {
        let mut host = Host::new(Rule::DEFAULT);
        if answered {
            let (_, wire) = Host::new(Rule::DEFAULT).send(&Segment::syn().bytes());
            let _ = host.receive(&wire);
        }
        let segment = if answered { Segment::syn_ack() } else { Segment::syn() };
        for transmission in 1..=5 {
            let (verdict, wire) = host.send(&segment.bytes());
            assert_eq!(is(Change::Told, verdict), transmission <= 2, "{transmission} {answered}");
            if transmission > 2 {
                assert_eq!(wire, segment.bytes());
            }
        }
        // Another connection of the same ports begins anew, behind the end of this one.
        let at = segment.seq.wrapping_add(1);
        let end = Segment { flags: "R", seq: at, options: vec![], ..segment.clone() };
        let _ = host.send(&end.bytes());
        let next = Segment { seq: at.wrapping_add(70_000), ..segment };
        let (verdict, _) = host.send(&next.bytes());
        assert!(is(Change::Told, verdict), "{answered}");
    }
}

/// The first two SYNs were lost or heard, the third is what arrives last: what was said holds.
#[test]
fn a_retransmission_without_an_offer_takes_nothing_back() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    for _ in 0..3 {
        cross(&mut hosts, &Segment::syn(), |wire| wire);
    }
    for _ in 0..3 {
        cross(&mut hosts, &Segment::syn_ack(), |wire| wire);
    }
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()));
    }
}

/// What boxes and liars do to the option: the SYN arrives as it is, and nobody is believed.
#[test]
fn an_option_that_is_not_right_is_left_alone() {
    type Edit = fn(&mut Vec<u8>);
    let edits: [(&str, Edit); 8] = [
        ("stripped", |options| options[..12].fill(1)),
        ("another experiment", |options| options[5] = 0x78),
        ("another kind", |options| options[2] = 254),
        ("version 2", |options| options[6] = 0x21),
        ("version 0", |options| options[6] = 0x01),
        ("longer", |options| (options[3], options[12], options[13]) = (12, 1, 1)),
        ("shorter", |options| (options[3], options[10], options[11]) = (8, 1, 1)),
        ("of no length", |options| options[3] = 0),
    ];
    for (what, edit) in edits {
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        let mut options = [&ROUTED[..], &USUAL].concat();
        edit(&mut options);
        let changed = Segment { options, ..Segment::syn() }.bytes();
        let host = cross(&mut hosts, &Segment::syn(), |_| changed.clone());
        assert_eq!(host, changed, "{what}");
        cross(&mut hosts, &Segment::syn_ack(), |wire| wire);
        assert_untouched(&mut hosts, [PassReason::NotAgreed; 2]);
    }
    for (what, options) in [
        ("repeated", [&ROUTED[..], &ROUTED[2..], &[1, 1]].concat()),
        ("two that differ", [&ROUTED[..], &[253, 10, 0x67, 0x77, 0x12, 1, 0, 0, 0, 0, 1, 1]].concat()),
        ("cut by the header's end", [&USUAL[..], &ROUTED[2..10]].concat()),
        ("behind the end of the list", [&[0, 0][..], &ROUTED[2..]].concat()),
        ("beside MPTCP", [&ROUTED[..], &MPTCP_CAPABLE].concat()),
        ("beside what cannot be understood", [&ROUTED[..], &[77, 1, 0, 0]].concat()),
    ] {
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        let changed = Segment { options, ..Segment::syn() }.bytes();
        let host = cross(&mut hosts, &Segment::syn(), |_| changed.clone());
        assert_eq!(host, changed, "{what}");
        let (verdict, _) = hosts[1].send(&Segment::syn_ack().bytes());
        assert_eq!(verdict, Verdict::Untouched(PassReason::TcpFlags), "{what}");
    }
}

/// A checksum that does not fit: the host discards the SYN, so nothing is taken from it.
#[test]
fn a_damaged_syn_says_nothing() {
    let mut sender = Host::new(Rule::DEFAULT);
    let (_, wire) = sender.send(&Segment::syn().bytes());
    for at in 14..wire.len() {
        let mut host = Host::new(Rule::DEFAULT);
        let mut damaged = wire.clone();
        damaged[at] ^= 0x04;
        assert!(host_accepts(&damaged).is_none() || at == 14, "{at}");
        let mut out = vec![0; 2000];
        let verdict = host.ingress.process(&damaged, &mut out, &host.offers);
        assert!(!matches!(verdict, Verdict::Changed { .. }), "{at}: {verdict:?}");
        let _ = host.send(&Segment::syn_ack().bytes());
        assert_eq!(host.send(&Segment::data(1).bytes()).0, Verdict::Untouched(PassReason::NotAgreed), "{at}");
    }
}

/// NOPs take the place of an option that a box has moved, so that nothing else moves.
#[test]
fn a_moved_option_is_heard_and_blanked() {
    let moved = [
        [&USUAL[..], &ROUTED].concat(),
        [&ROUTED[2..], &USUAL[..], &[0, 0]].concat(),
        [&[1, 1, 1, 1][..], &ROUTED[2..], &[1, 1], &USUAL].concat(),
        [&[2, 4, 5, 100][..], &ROUTED[2..], &USUAL[4..], &[1, 1]].concat(),
    ];
    for options_on_wire in moved {
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        let changed = Segment { options: options_on_wire.clone(), ..Segment::syn() };
        let host = cross(&mut hosts, &Segment::syn(), |_| changed.bytes());
        let at = options_on_wire.windows(10).position(|ten| ten == &ROUTED[2..]).unwrap();
        let mut blanked = options_on_wire.clone();
        blanked[at..at + 10].fill(1);
        assert_eq!(options(&host), blanked);
        assert_eq!(host, Segment { options: blanked, ..Segment::syn() }.bytes());
        cross(&mut hosts, &Segment::syn_ack(), |wire| wire);
        for from in [0, 1] {
            assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()));
        }
    }
}

/// SYNs that never get longer: they leave as they came, and nobody compresses.
#[test]
fn syns_that_have_no_room_or_bind_the_payload_leave_as_they_came() {
    let with = |options: &[u8]| Segment { options: options.to_vec(), ..Segment::syn() }.bytes();
    let long = |len: usize| Segment { payload: vec![7; len], ..Segment::syn() }.bytes();
    let mut damaged = Segment::syn().bytes();
    damaged[40] ^= 1;
    let mut trailing = long(100);
    trailing.extend([0; 4]);
    let md5 = [&[19, 18][..], &[7; 16], &[1, 1]].concat();
    let room = [&USUAL[..], &[1; 8]].concat();
    let full = [&USUAL[..], &[1; 12]].concat();
    let mtu_at_most = usize::from(MTU) - 20 - 20 - USUAL.len() - 12;
    for (what, frame, told) in [
        ("MD5", with(&md5), false),
        ("TCP-AO", with(&[29, 4, 0, 0]), false),
        ("MPTCP", with(&MPTCP_CAPABLE), false),
        ("not to be understood", with(&[77, 1, 0, 0]), false),
        ("28 bytes of options", with(&room), true),
        ("32 bytes of options", with(&full), false),
        ("as long as the MTU has room for", long(mtu_at_most), true),
        ("a byte longer", long(mtu_at_most + 1), false),
        ("a wrong checksum", damaged, false),
        ("bytes behind the packet", trailing, false),
        ("a SYN with a FIN", Segment { flags: "SF", ..Segment::syn() }.bytes(), false),
        ("a SYN with a RST", Segment { flags: "SR", ..Segment::syn() }.bytes(), false),
        ("an offer of its own", with(&ROUTED), false),
        ("a broken offer of its own", with(&[1, 1, 253, 4, 0x67, 0x77, 1, 1]), false),
        ("no tag", Segment { tos: 0, ..Segment::syn() }.bytes(), false),
    ] {
        let mut host = Host::new(Rule::DEFAULT);
        let (verdict, wire) = host.send(&frame);
        assert_eq!(is(Change::Told, verdict), told, "{what}: {verdict:?}");
        assert!(told || wire == frame, "{what}");
        // Even if the far end answered an offer that was not made.
        let answer = Segment { options: [&ROUTED[..], &USUAL].concat(), ..Segment::syn_ack() };
        let _ = host.receive(&answer.bytes());
        assert_eq!(values(&mut [host, Host::new(Rule::DEFAULT)], &Segment::data(0)).is_ok(), told, "{what}");
    }
}

/// Without room in `out` the SYN leaves as it is: nobody was asked, and no answer counts.
#[test]
fn a_syn_without_room_in_the_buffer_asks_nobody() {
    let frame = Segment::syn().bytes();
    for room in [0, frame.len(), frame.len() + 11] {
        let mut host = Host::new(Rule::DEFAULT);
        let verdict = host.egress.process(&frame, &mut vec![0; room], NOW, &host.offers);
        assert_eq!(verdict, Verdict::Untouched(PassReason::TcpFlags));
        let (_, answer) = Host::new(Rule::DEFAULT).send(&Segment::syn_ack().bytes());
        let _ = host.receive(&answer);
        assert_eq!(host.send(&Segment::data(0).bytes()).0, Verdict::Untouched(PassReason::NotAgreed));
    }
    // At ingress the host gets the option, which it ignores.
    let (_, wire) = Host::new(Rule::DEFAULT).send(&frame);
    let mut host = Host::new(Rule::DEFAULT);
    let verdict = host.ingress.process(&wire, &mut vec![0; frame.len() - 1], &host.offers);
    assert_eq!(verdict, Verdict::Untouched(PassReason::NotCompressed));
}

/// Both ends are configured: no SYN changes, and values are compressed unasked.
#[test]
fn without_a_handshake_no_syn_changes() {
    let mut hosts = [Rule::STATIC; 2].map(Host::new);
    let (syn, answer) = (Segment::syn(), Segment::syn_ack());
    for segment in [&syn, &answer] {
        let (verdict, wire) = hosts[segment.from].send(&segment.bytes());
        assert_eq!((verdict, &wire), (Verdict::Untouched(PassReason::TcpFlags), &segment.bytes()));
        let offered = Segment { options: [&ROUTED[..], &USUAL].concat(), ..segment.clone() }.bytes();
        let (verdict, host) = hosts[1 - segment.from].receive(&offered);
        assert_eq!((verdict, &host), (Verdict::Untouched(PassReason::NotCompressed), &offered));
    }
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()));
    }
    // An end that is configured says nothing to one that asks, and restores what it gets.
    let mut hosts = [Rule::DEFAULT, Rule::STATIC].map(Host::new);
    cross(&mut hosts, &syn, |wire| wire);
    cross(&mut hosts, &answer, |wire| wire);
    assert_eq!(values(&mut hosts, &Segment::data(0)), Err(PassReason::NotAgreed));
    assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
}

#[test]
fn a_connection_tagged_after_its_syn_is_left_alone() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    for segment in [Segment::syn(), Segment::syn_ack()] {
        let untagged = Segment { tos: 0, ..segment };
        assert_eq!(cross(&mut hosts, &untagged, |wire| wire), untagged.bytes());
    }
    assert_untouched(&mut hosts, [PassReason::TaggedLate; 2]);
    // Without a handshake it is compressed from its tag on.
    let mut hosts = [Rule::STATIC; 2].map(Host::new);
    for segment in [Segment::syn(), Segment::syn_ack()] {
        cross(&mut hosts, &Segment { tos: 0, ..segment }, |wire| wire);
    }
    assert_eq!(values(&mut hosts, &Segment::data(0)), Ok(()));
}

/// Both ends connect at once (RFC 9293 §3.5, figure 8): each SYN tells, and each answer.
#[test]
fn simultaneous_open() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    let other = Segment { from: 1, seq: ISN[1], ..Segment::syn() };
    let wires = [Segment::syn(), other].map(|syn| (syn.from, hosts[syn.from].send(&syn.bytes()).1));
    for (from, wire) in wires {
        assert!(is(Change::Heard, hosts[1 - from].receive(&wire).0));
    }
    let answers = [0, 1].map(|from| Segment {
        from,
        seq: ISN[from],
        ack: Some(ISN[1 - from].wrapping_add(1)),
        ..Segment::syn()
    });
    for answer in &answers {
        let (verdict, wire) = hosts[answer.from].send(&answer.bytes());
        assert!(is(Change::Told, verdict));
        assert_eq!(hosts[1 - answer.from].receive(&wire).1, answer.bytes());
    }
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()));
    }
}

/// A listener with SYN cookies answers every SYN with another number, and forgets it. Its own direction is in doubt; the
/// client's is not.
#[test]
fn syn_cookies() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    cross(&mut hosts, &Segment::syn(), |wire| wire);
    cross(&mut hosts, &Segment::syn_ack(), |wire| wire);
    let second = Segment { seq: ISN[1].wrapping_add(99_999), ..Segment::syn_ack() };
    assert_eq!(cross(&mut hosts, &second, |wire| wire), second.bytes());
    assert_eq!(values(&mut hosts, &Segment::data(0)), Ok(()));
    assert_eq!(values(&mut hosts, &Segment::data(1)), Err(PassReason::GridDoubtful));
}

/// TCP Fast Open (RFC 7413): the SYN carries data, which leaves as it is, and arrives so.
#[test]
fn a_syn_with_data() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    let cookie = [&USUAL[..], &[34, 6, 1, 2, 3, 4, 1, 1]].concat();
    let early = le_bytes(&gradient(100));
    let syn = Segment { options: cookie, payload: early.clone(), ..Segment::syn() };
    assert_eq!(cross(&mut hosts, &syn, |wire| wire), syn.bytes());
    let answer = Segment { ack: Some(ISN[0].wrapping_add(401)), ..Segment::syn_ack() };
    // The answer acknowledges the data too.
    cross(&mut hosts, &answer, |wire| wire);
    let next = Segment { seq: ISN[0].wrapping_add(401), ..Segment::data(0) };
    assert_eq!(values(&mut hosts, &next), Ok(()));
    assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
}

/// What a SYN said holds for its connection alone: another one of the same ports starts with nothing.
#[test]
fn a_new_syn_erases_what_was_said() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    // The peer loses its gradwire, both ends connect again; whether the old connection was used or not.
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()));
    }
    for from in [0, 1] {
        let data = Segment::data(from);
        let seq = data.seq.wrapping_add(data.payload.len() as u32);
        let _ = hosts[from].send(&Segment { seq, flags: "R", payload: vec![], ..data }.bytes());
    }
    let again = 1_000_000;
    let syn = Segment { seq: ISN[0].wrapping_add(again), ..Segment::syn() };
    let answer =
        Segment { seq: ISN[1].wrapping_add(again), ack: Some(syn.seq.wrapping_add(1)), ..Segment::syn_ack() };
    let (verdict, _) = hosts[0].send(&syn.bytes());
    assert!(is(Change::Told, verdict));
    let _ = hosts[1].receive(&syn.bytes());
    assert_eq!(hosts[1].send(&answer.bytes()).0, Verdict::Untouched(PassReason::TcpFlags));
    let _ = hosts[0].receive(&answer.bytes());
    for from in [0, 1] {
        let data = Segment::data(from);
        let next = Segment { seq: data.seq.wrapping_add(again), ..data };
        assert_eq!(values(&mut hosts, &next), Err(PassReason::NotAgreed), "from {from}");
    }
}

/// A shim that was started behind the SYNs knows of none.
#[test]
fn a_restarted_end_leaves_old_connections_alone() {
    for grid in Grid::ALL {
        let rule = Rule { grid, ..Rule::DEFAULT };
        let mut hosts = [rule; 2].map(Host::new);
        connect(&mut hosts, &Segment::syn());
        hosts[0] = Host::new(rule);
        let reason = [PassReason::GridUnknown, PassReason::NotAgreed][grid as usize];
        assert_eq!(values(&mut hosts, &Segment::data(0)), Err(reason));
        assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
    }
}

/// An answer that acknowledges another SYN, and one to nobody's question, say nothing.
#[test]
fn an_answer_counts_only_for_the_syn_that_asked() {
    for ack in [ISN[0], ISN[0].wrapping_add(2), 0, 5] {
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        cross(&mut hosts, &Segment::syn(), |wire| wire);
        let stray = Segment { ack: Some(ack), options: [&ROUTED[..], &USUAL].concat(), ..Segment::syn_ack() };
        let _ = hosts[0].receive(&stray.bytes());
        assert_eq!(values(&mut hosts, &Segment::data(0)), Err(PassReason::NotAgreed), "{ack:#x}");
    }
}

/// An offer is only as good as what it names.
#[test]
fn a_far_end_that_restores_something_else_gets_nothing() {
    for (framings, codecs, agreed) in [
        (0x11, 0x01, true),
        (0x1d, 0xff, true),
        (0x11, 0x00, false),
        (0x11, 0xfe, false),
        (0x10, 0x01, false),
        (0x12, 0x01, false),
    ] {
        let mut option = ROUTED;
        (option[6], option[7]) = (framings, codecs);
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        cross(&mut hosts, &Segment::syn(), |wire| wire);
        let answer = Segment { options: option.to_vec(), ..Segment::syn_ack() };
        let host = hosts[0].receive(&answer.bytes()).1;
        assert_eq!(options(&host), []);
        let result = values(&mut hosts, &Segment::data(0));
        assert_eq!(result.is_ok(), agreed, "{framings:#x} {codecs:#x}");
        assert!(agreed || result == Err(PassReason::NotAgreed));
    }
}

/// The table of offers is bounded: who loses its place is not compressed, and nobody gets another's.
#[test]
fn an_offer_that_lost_its_place_was_not_made() {
    let offers = Offers::<[Slot; 1]>::new(3);
    let mut host = Host::new(Rule::DEFAULT);
    let syn = Segment { options: [&ROUTED[..], &USUAL].concat(), ..Segment::syn() };
    let mut out = [0; 2000];
    for segment in [syn.clone(), Segment { v6: true, ..syn }] {
        assert!(is(Change::Heard, host.ingress.process(&segment.bytes(), &mut out, &offers)));
    }
    for (v6, heard) in [(false, false), (true, true)] {
        let answer = Segment { v6, ..Segment::syn_ack() };
        let verdict = host.egress.process(&answer.bytes(), &mut out, NOW, &offers);
        assert_eq!(is(Change::Told, verdict), heard);
        let data = Segment { v6, ..Segment::data(1) };
        let verdict = host.egress.process(&data.bytes(), &mut out, NOW, &offers);
        assert_eq!(is(Change::Compressed, verdict), heard);
    }
}

/// A SYN that its sender left to offload arrives whole: the option would make a partial checksum wrong.
#[test]
fn a_checksum_left_to_offload_is_completed() {
    let whole = Segment::syn().bytes();
    let mut partial = whole.clone();
    // The pseudo-header's sum: addresses, protocol, length.
    let words = partial[26..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>() + 6 + (partial.len() - 34) as u32;
    let field = (sum & 0xffff) + (sum >> 16);
    partial[50..52].copy_from_slice(&(field as u16).to_be_bytes());
    assert!(host_accepts(&partial).is_none());
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    let (verdict, wire) = hosts[0].send(&partial);
    assert!(is(Change::Told, verdict));
    assert_eq!(options(&wire), [&ROUTED[..], &USUAL].concat());
    assert_eq!(hosts[1].receive(&wire).1, whole);
}

/// A MAC pads what is shorter than 60 bytes. The padding stays away, and the next MAC pads again.
#[test]
fn padding_behind_a_syn_stays_away() {
    for vlan in [false, true] {
        let bare = Segment { options: vec![], vlan, ..Segment::syn() }.bytes();
        let mut padded = bare.clone();
        padded.resize(60, 0);
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        let (verdict, wire) = hosts[0].send(&padded);
        assert!(is(Change::Told, verdict));
        assert_eq!(wire.len(), bare.len() + 12);
        assert_eq!(options(&wire), ROUTED);
        assert_eq!(hosts[1].receive(&wire).1, bare);
    }
}

/// UDP has no handshake, so where its values start means nothing to a rule that requires one.
#[test]
fn an_offset_for_udp_needs_a_rule_that_compresses_udp() {
    for handshake in Handshake::ALL {
        let rule = Rule { handshake, udp_offset: 8, ..Rule::DEFAULT };
        let refused = Rules::new(&[Rule { tos: 0x50, ..Rule::DEFAULT }, rule], DEFAULT_MARK).err();
        let expected = RulesError::UdpOffset { index: 1 };
        assert_eq!(refused, (handshake == Handshake::Required).then_some(expected));
    }
}

#[test]
fn rules_that_would_break_a_connection_are_known() {
    let profile = Params::new(9, Split::Dense, 0).unwrap().into();
    let newer = rules(Rule { profile, ..IN_PLACE });
    let same = rules(Rule { handshake: Handshake::Off, ..IN_PLACE });
    let mut hosts = [IN_PLACE; 2].map(Host::new);
    assert_eq!(hosts[1].egress.would_break(&newer, NOW), 0);
    connect(&mut hosts, &Segment::syn());
    for host in &hosts {
        // Also that of an end that has sent nothing: it may restore for hours.
        assert_eq!(host.egress.would_break(&newer, NOW), 1);
        assert_eq!(host.egress.would_break(&rules(Rule::DEFAULT), NOW), 1);
        assert_eq!(host.egress.would_break(&rules(Rule { tos: 0x50, ..IN_PLACE }), NOW), 1);
        assert_eq!(host.egress.would_break(&same, NOW), 0);
    }
    // The peer may send for a while behind this end's FIN.
    let fin = Segment { flags: "F", payload: vec![], ..Segment::data(0) };
    let _ = hosts[0].send(&fin.bytes());
    assert_eq!(hosts[0].egress.would_break(&newer, NOW), 1);
    assert_eq!(hosts[0].egress.would_break(&newer, Millis(240_000)), 0);
    // Routed frames carry their parameters.
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    assert_eq!(hosts[0].egress.would_break(&newer, NOW), 0);
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
    /// Whatever SYN egress changes: a host on the wire accepts it, and ingress restores it byte for byte.
    #[test]
    fn what_egress_adds_ingress_takes_out(
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
            prop_assert!(is(Change::Heard, hosts[0].receive(&asked.bytes()).0));
        }
        let frame = segment.bytes();
        let (verdict, wire) = hosts[0].send(&frame);
        if is(Change::Told, verdict) {
            prop_assert_eq!(wire.len(), frame.len() + 12);
            prop_assert_eq!(&options(&wire)[12..], &segment.options[..]);
            let (verdict, host) = hosts[1].receive(&wire);
            prop_assert!(is(Change::Heard, verdict));
            prop_assert_eq!(host, frame);
        } else {
            prop_assert_eq!(&wire, &frame);
            let ip_len = frame.len() - if vlan { 18 } else { 14 };
            prop_assert!(segment.options.len() > 28 || ip_len + 12 > usize::from(MTU)
                || segment.options.windows(2).any(|two| two == [0x67, 0x77]) , "{segment:?}");
        }
    }

    /// Any bytes as the options of a SYN from the wire: what reaches the host is acceptable and no longer, and has no
    /// offer that the engine believed.
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
            Verdict::Changed { change: Change::Heard, .. } => {
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
