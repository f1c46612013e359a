//! Connections from their SYNs to their first values.

use super::*;

#[test]
fn two_ends_that_restore_agree() {
    for rule in [Rule::DEFAULT, IN_PLACE, Rule { alignment: Alignment::Payload, ..IN_PLACE }] {
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

/// An application's listener is tagged, and Linux answers for it without the tag.
#[test]
fn an_untagged_answer_advertises_too() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    cross(&mut hosts, &Segment::syn(), |wire| wire);
    let answer = Segment { tos: 0, ..Segment::syn_ack() };
    let (verdict, wire) = hosts[1].send(&answer.bytes());
    assert!(is(Change::OptionAdded, verdict));
    assert_eq!(options(&wire), [&ROUTED[..], &USUAL].concat());
    let (verdict, host) = hosts[0].receive(&wire);
    assert!(is(Change::OptionStripped, verdict));
    assert_eq!(host, answer.bytes());
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()), "from {from}");
    }
}

/// The far end has no gradwire: its host sees the option and ignores it, and nothing is compressed.
#[test]
fn one_end_alone_compresses_nothing() {
    let (syn, answer) = (Segment::syn(), Segment::syn_ack());
    let mut client = Host::new(Rule::DEFAULT);
    let _ = client.send(&syn.bytes());
    assert_eq!(client.receive(&answer.bytes()).1, answer.bytes());
    assert_eq!(client.send(&Segment::data(0).bytes()).0, Verdict::Untouched(PassReason::NotNegotiated));

    let mut server = Host::new(Rule::DEFAULT);
    assert_eq!(server.receive(&syn.bytes()).1, syn.bytes());
    assert_eq!(server.send(&answer.bytes()).0, Verdict::Untouched(PassReason::TcpFlags));
    assert_eq!(server.send(&Segment::data(1).bytes()).0, Verdict::Untouched(PassReason::NotNegotiated));
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

/// Both ends connect at once (RFC 9293 §3.5, figure 8): each SYN and each answer advertises.
#[test]
fn simultaneous_open() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    let other = Segment { from: 1, seq: ISN[1], ..Segment::syn() };
    let wires = [Segment::syn(), other].map(|syn| (syn.from, hosts[syn.from].send(&syn.bytes()).1));
    for (from, wire) in wires {
        assert!(is(Change::OptionStripped, hosts[1 - from].receive(&wire).0));
    }
    let answers = [0, 1].map(|from| Segment {
        from,
        seq: ISN[from],
        ack: Some(ISN[1 - from].wrapping_add(1)),
        ..Segment::syn()
    });
    for answer in &answers {
        let (verdict, wire) = hosts[answer.from].send(&answer.bytes());
        assert!(is(Change::OptionAdded, verdict));
        assert_eq!(hosts[1 - answer.from].receive(&wire).1, answer.bytes());
    }
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()));
    }
}

/// A listener with SYN cookies answers every SYN with another number, and forgets it. Its own
/// direction is in doubt; the client's is not.
#[test]
fn syn_cookies() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    cross(&mut hosts, &Segment::syn(), |wire| wire);
    cross(&mut hosts, &Segment::syn_ack(), |wire| wire);
    let second = Segment { seq: ISN[1].wrapping_add(99_999), ..Segment::syn_ack() };
    // It leaves without an option.
    let (_, wire) = hosts[1].send(&second.bytes());
    assert_eq!(wire, second.bytes());
    assert_eq!(hosts[0].receive(&wire).1, wire);
    assert_eq!(values(&mut hosts, &Segment::data(0)), Ok(()));
    assert_eq!(values(&mut hosts, &Segment::data(1)), Err(PassReason::AlignmentDoubtful));
}

/// A tagged SYN on the ports of a live connection, from elsewhere in its stream: it does not count,
/// since its number may be a forger's.
#[test]
fn a_syn_on_a_live_connection_does_not_count() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    assert_eq!(values(&mut hosts, &Segment::data(0)), Ok(()));
    let other = Segment { seq: ISN[0].wrapping_add(99_999), ..Segment::syn() };
    assert_eq!(hosts[0].send(&other.bytes()).1, other.bytes());
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

/// A SYN's capability holds for its connection alone: another one of the same ports starts with
/// nothing.
#[test]
fn a_new_syn_erases_the_capability() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    // The peer loses its gradwire, both ends connect again; whether the old connection was used or
    // not.
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
    assert!(is(Change::OptionAdded, verdict));
    let _ = hosts[1].receive(&syn.bytes());
    assert_eq!(hosts[1].send(&answer.bytes()).0, Verdict::Untouched(PassReason::TcpFlags));
    let _ = hosts[0].receive(&answer.bytes());
    for from in [0, 1] {
        let data = Segment::data(from);
        let next = Segment { seq: data.seq.wrapping_add(again), ..data };
        assert_eq!(values(&mut hosts, &next), Err(PassReason::NotNegotiated), "from {from}");
    }
}

/// A shim that was started behind the SYNs knows of none.
#[test]
fn a_restarted_end_leaves_old_connections_alone() {
    for alignment in Alignment::ALL {
        let rule = Rule { alignment, ..Rule::DEFAULT };
        let mut hosts = [rule; 2].map(Host::new);
        connect(&mut hosts, &Segment::syn());
        hosts[0] = Host::new(rule);
        let reason = [PassReason::AlignmentUnknown, PassReason::NotNegotiated][alignment as usize];
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
        assert_eq!(values(&mut hosts, &Segment::data(0)), Err(PassReason::NotNegotiated), "{ack:#x}");
    }
}

/// The table of capabilities is bounded: who loses its place is not compressed, and nobody gets
/// another's.
#[test]
fn a_capability_that_lost_its_slot_was_not_advertised() {
    let capabilities = CapabilityTable::<[Slot; 1]>::new(3);
    let mut host = Host::new(Rule::DEFAULT);
    let syn = Segment { options: [&ROUTED[..], &USUAL].concat(), ..Segment::syn() };
    let mut out = [0; 2000];
    for segment in [syn.clone(), Segment { v6: true, ..syn }] {
        assert!(is(Change::OptionStripped, host.ingress.process(&segment.bytes(), &mut out, &capabilities)));
    }
    for (v6, advertised) in [(false, false), (true, true)] {
        let answer = Segment { v6, ..Segment::syn_ack() };
        let verdict = host.egress.process(&answer.bytes(), &mut out, NOW, &capabilities);
        assert_eq!(is(Change::OptionAdded, verdict), advertised);
        let data = Segment { v6, ..Segment::data(1) };
        let verdict = host.egress.process(&data.bytes(), &mut out, NOW, &capabilities);
        assert_eq!(is(Change::Compressed, verdict), advertised);
    }
}

/// A listener without a tag answers that it restores, so its stream is looked at from its first
/// word on, or not compressed.
#[test]
fn a_stream_that_was_agreed_on_and_lacks_its_start_is_left_alone() {
    for (tos, missed, right) in
        [(0, 400, Err(PassReason::NotValues)), (TAG, 400, Err(PassReason::NotValues)), (0, 0, Ok(()))]
    {
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        cross(&mut hosts, &Segment::syn(), |wire| wire);
        cross(&mut hosts, &Segment { tos, ..Segment::syn_ack() }, |wire| wire);
        let data = Segment::data(1);
        let first = Segment { seq: data.seq.wrapping_add(missed), ..data };
        assert_eq!(values(&mut hosts, &first), right, "{tos:#x} {missed}");
    }
}
