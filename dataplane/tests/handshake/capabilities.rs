//! SYNs on their way: who adds the option, who takes it out, and what boxes do to it.

use std::ops::Range;

use gradwire::flow::{OPENING_MS, UNUSED_MS, WAYS};

use super::*;
use crate::common::{ACK, IpSpec, SYN, Spec, TransportSpec};

#[test]
fn a_syn_advertises_what_its_host_restores() {
    let syn = Segment::syn();
    for (rule, option) in [
        (Rule::DEFAULT, ROUTED),
        (IN_PLACE, [1, 1, 253, 10, 0x67, 0x77, 0x13, 0x03, 1, 0xa3, 0, 0]),
        (
            Rule { alignment: Alignment::Payload, ..IN_PLACE },
            [1, 1, 253, 10, 0x67, 0x77, 0x13, 0x03, 1, 0xa3, 0, 1],
        ),
    ] {
        let (verdict, wire) = Host::new(rule).send(&syn.bytes());
        assert!(is(Change::OptionAdded, verdict));
        assert_eq!(wire.len(), syn.bytes().len() + 12);
        assert_eq!(options(&wire), [&option[..], &USUAL].concat());
    }
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
            assert_eq!(is(Change::OptionAdded, verdict), transmission <= 2, "{transmission} {answered}");
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
        assert!(is(Change::OptionAdded, verdict), "{answered}");
    }
}

/// The first two SYNs were lost or arrived, the third arrives last: what was advertised holds.
#[test]
fn a_retransmission_without_the_option_takes_nothing_back() {
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

/// Damage that boxes and liars do to the option: the SYN arrives as it is, and nobody is believed.
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
        assert_untouched(&mut hosts, [PassReason::NotNegotiated; 2]);
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
fn a_damaged_syn_advertises_nothing() {
    let mut sender = Host::new(Rule::DEFAULT);
    let (_, wire) = sender.send(&Segment::syn().bytes());
    for at in 14..wire.len() {
        let mut host = Host::new(Rule::DEFAULT);
        let mut damaged = wire.clone();
        damaged[at] ^= 0x04;
        assert!(host_accepts(&damaged).is_none() || at == 14, "{at}");
        let mut out = vec![0; 2000];
        let verdict = host.ingress.process(&damaged, &mut out, &host.capabilities);
        assert!(!matches!(verdict, Verdict::Changed { .. }), "{at}: {verdict:?}");
        let _ = host.send(&Segment::syn_ack().bytes());
        assert_eq!(
            host.send(&Segment::data(1).bytes()).0,
            Verdict::Untouched(PassReason::NotNegotiated),
            "{at}"
        );
    }
}

/// NOPs take the place of an option that a box has moved, so that nothing else moves.
#[test]
fn a_moved_option_is_recorded_and_blanked() {
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
    for (what, frame, advertised) in [
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
        ("a capability option of its own", with(&ROUTED), false),
        ("a broken capability of its own", with(&[1, 1, 253, 4, 0x67, 0x77, 1, 1]), false),
        ("no tag", Segment { tos: 0, ..Segment::syn() }.bytes(), false),
    ] {
        let mut host = Host::new(Rule::DEFAULT);
        let (verdict, wire) = host.send(&frame);
        assert_eq!(is(Change::OptionAdded, verdict), advertised, "{what}: {verdict:?}");
        assert!(advertised || wire == frame, "{what}");
        // Even if the far end answered a capability that was not advertised.
        let answer = Segment { options: [&ROUTED[..], &USUAL].concat(), ..Segment::syn_ack() };
        let _ = host.receive(&answer.bytes());
        assert_eq!(
            values(&mut [host, Host::new(Rule::DEFAULT)], &Segment::data(0)).is_ok(),
            advertised,
            "{what}"
        );
    }
}

/// Both zeros of ones' complement are right where no sum but zero is possible, and no sender
/// computes 0xffff. The far end, which computes the sum anew, could not give it back.
#[test]
fn a_checksum_that_could_not_be_given_back_stays() {
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let frame = Segment::syn().bytes();
    // Its identification, or its port, takes up all that the sum lacks.
    for (checksum_at, free_at) in [(24, 18), (50, 34)] {
        let mut crafted = frame.clone();
        let free = u32::from(word(&crafted, free_at)) + u32::from(word(&crafted, checksum_at));
        let free = (free & 0xffff) + (free >> 16);
        crafted[free_at..free_at + 2].copy_from_slice(&(free as u16).to_be_bytes());
        for (zero, advertised) in [(0u16, true), (0xffff, false)] {
            crafted[checksum_at..checksum_at + 2].copy_from_slice(&zero.to_be_bytes());
            let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
            let (verdict, wire) = hosts[0].send(&crafted);
            assert_eq!(
                is(Change::OptionAdded, verdict),
                advertised,
                "{zero:#x} at {checksum_at}: {verdict:?}"
            );
            assert_eq!(hosts[1].receive(&wire).1, crafted);
        }
    }
}

/// A host that advertised in-place framing has to restore what comes: its connection keeps its
/// place for longer than one whose far end may forget.
#[test]
fn a_connection_that_restores_in_place_keeps_its_place() {
    for (rule, until) in [(Rule::DEFAULT, OPENING_MS), (IN_PLACE, 2 * UNUSED_MS)] {
        let mut host = Egress::<1>::new(rules(rule), Kernel::detect(), MTU, 1);
        let capabilities = CapabilityTable::<[Slot; 64]>::new(9);
        let mut advertises = |port: u8, now: u64| {
            let mut frame = Segment::syn().bytes();
            // The window gives what the port takes: the checksum stays right.
            frame[35] += port;
            frame[48..50].copy_from_slice(&(8192 - u16::from(port)).to_be_bytes());
            let verdict = host.process(&frame, &mut [0; 2048], Millis(now), &capabilities);
            is(Change::OptionAdded, verdict)
        };
        for port in 0..WAYS as u8 {
            assert!(advertises(port, 0));
        }
        assert!(!advertises(50, until - 1), "{rule:?}");
        assert!(advertises(50, until), "{rule:?}");
    }
}

/// Of connections that share a set, the newest have their capabilities. Which ones share a set
/// depends on the whole seed.
#[test]
fn which_capabilities_share_a_set_depends_on_the_seed() {
    const CLIENTS: Range<u8> = 10..20;
    let ask = Segment { options: [&ROUTED[..], &USUAL].concat(), ..Segment::syn() };
    // Identification and window give what the address of the end that connects takes: both
    // checksums stay right.
    let of = |segment: &Segment, address_at: usize, client: u8| {
        let mut frame = segment.bytes();
        frame[address_at] += client;
        frame[18..20].copy_from_slice(&(!u16::from(client)).to_be_bytes());
        frame[48..50].copy_from_slice(&(8192 - u16::from(client)).to_be_bytes());
        frame
    };
    // How many of ten connections have their capabilities, in two sets of four.
    let kept = |capabilities: &CapabilityTable| {
        let mut host = Host::new(Rule::DEFAULT);
        for client in CLIENTS {
            let verdict = host.ingress.process(&of(&ask, 29, client), &mut [0; 2048], capabilities);
            assert!(is(Change::OptionStripped, verdict));
        }
        let mut advertises = |client: u8| {
            let frame = of(&Segment::syn_ack(), 33, client);
            is(Change::OptionAdded, host.egress.process(&frame, &mut [0; 2048], NOW, capabilities))
        };
        CLIENTS.filter(|client| advertises(*client)).count()
    };
    for half in [0, 32] {
        let seeds = (0..16).map(|seed| seed << half);
        let first: Vec<usize> =
            seeds.clone().map(|seed| kept(&CapabilityTable::<[Slot; 8]>::new(seed))).collect();
        assert!(first.contains(&8) && first.contains(&7), "{first:?}");
        let capabilities = CapabilityTable::<[Slot; 8]>::new(u64::MAX);
        let anew = seeds.map(|seed| {
            (&capabilities as &CapabilityTable).clear(seed);
            kept(&capabilities)
        });
        assert_eq!(anew.collect::<Vec<_>>(), first);
    }
}

/// Only a SYN that begins a connection advertises: any other segment with the option stays as it
/// is.
#[test]
fn an_offer_elsewhere_than_on_a_syn_is_left_alone() {
    for flags in ["", "F", "R", "SF", "SR"] {
        let options = [&ROUTED[..], &USUAL].concat();
        let frame = Segment { flags, ack: Some(1), options, tos: 0, ..Segment::syn() }.bytes();
        let (verdict, host) = Host::new(Rule::DEFAULT).receive(&frame);
        assert!(!is(Change::OptionStripped, verdict) && host == frame, "{flags:?}: {verdict:?}");
    }
    // Where flags are not at their usual place, every segment is looked at.
    for ip in [IpSpec::V4 { option_words: 1 }, IpSpec::V6 { extensions: vec![(60, 0)] }] {
        for (flags, advertised) in [(ACK, false), (SYN | ACK, true)] {
            let options = [&ROUTED[..], &USUAL].concat();
            let transport = TransportSpec::Tcp { seq: 1, flags, options };
            let frame = Spec { ip: ip.clone(), tos: 0, transport, ..Spec::tcp(1, flags, &[]) }.bytes();
            let (verdict, host) = Host::new(Rule::DEFAULT).receive(&frame);
            assert_eq!(
                (is(Change::OptionStripped, verdict), host != frame),
                (advertised, advertised),
                "{ip:?}: {verdict:?}"
            );
        }
    }
}

/// Without room in `out` the SYN leaves as it is: nobody was asked, and no answer counts.
#[test]
fn a_syn_without_room_in_the_buffer_asks_nobody() {
    let frame = Segment::syn().bytes();
    for room in [0, frame.len(), frame.len() + 11] {
        let mut host = Host::new(Rule::DEFAULT);
        let verdict = host.egress.process(&frame, &mut vec![0; room], NOW, &host.capabilities);
        assert_eq!(verdict, Verdict::Untouched(PassReason::TcpFlags));
        let (_, answer) = Host::new(Rule::DEFAULT).send(&Segment::syn_ack().bytes());
        let _ = host.receive(&answer);
        assert_eq!(host.send(&Segment::data(0).bytes()).0, Verdict::Untouched(PassReason::NotNegotiated));
    }
    // At ingress the host gets the option, which it ignores.
    let (_, wire) = Host::new(Rule::DEFAULT).send(&frame);
    let mut host = Host::new(Rule::DEFAULT);
    let verdict = host.ingress.process(&wire, &mut vec![0; frame.len() - 1], &host.capabilities);
    assert_eq!(verdict, Verdict::Untouched(PassReason::NotCompressed));
}

/// A SYN that its sender left to offload arrives whole: the option would make a partial checksum
/// wrong.
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
    assert!(is(Change::OptionAdded, verdict));
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
        assert!(is(Change::OptionAdded, verdict));
        assert_eq!(wire.len(), bare.len() + 12);
        assert_eq!(options(&wire), ROUTED);
        assert_eq!(hosts[1].receive(&wire).1, bare);
    }
}
