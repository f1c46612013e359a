//! Requirements of rules on both ends.

use super::*;

/// In-place frames carry no codec: the type of service says which rule restores them, so both ends
/// have to name it.
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
        Rule { alignment: Alignment::Payload, ..IN_PLACE },
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

/// Both ends are configured: no SYN changes, and values are compressed unasked.
#[test]
fn without_a_handshake_no_syn_changes() {
    let mut hosts = [Rule::STATIC; 2].map(Host::new);
    let (syn, answer) = (Segment::syn(), Segment::syn_ack());
    for segment in [&syn, &answer] {
        let (verdict, wire) = hosts[segment.from].send(&segment.bytes());
        assert_eq!((verdict, &wire), (Verdict::Untouched(PassReason::TcpFlags), &segment.bytes()));
        let with_option = Segment { options: [&ROUTED[..], &USUAL].concat(), ..segment.clone() }.bytes();
        let (verdict, host) = hosts[1 - segment.from].receive(&with_option);
        assert_eq!((verdict, &host), (Verdict::Untouched(PassReason::NotCompressed), &with_option));
    }
    for from in [0, 1] {
        assert_eq!(values(&mut hosts, &Segment::data(from)), Ok(()));
    }
    // An end that is configured advertises nothing to one that asks, and restores what it gets.
    let mut hosts = [Rule::DEFAULT, Rule::STATIC].map(Host::new);
    cross(&mut hosts, &syn, |wire| wire);
    cross(&mut hosts, &answer, |wire| wire);
    assert_eq!(values(&mut hosts, &Segment::data(0)), Err(PassReason::NotNegotiated));
    assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
}

/// A capability is only as good as what it names.
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
        assert!(agreed || result == Err(PassReason::NotNegotiated));
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

/// While other rules are checked, no connection begins that they would break: its SYN, or its
/// SYN-ACK, advertises nothing.
#[test]
fn while_rules_are_checked_no_connection_begins_that_they_would_break() {
    let profile = Params::new(9, Split::Dense, 0).unwrap().into();
    let newer = rules(Rule { profile, ..IN_PLACE });
    for checking in [0, 1] {
        let mut hosts = [IN_PLACE; 2].map(Host::new);
        hosts[checking].egress.set_quiet_in_place(true);
        connect(&mut hosts, &Segment::syn());
        assert_eq!(hosts[checking].egress.would_break(&newer, NOW), 0);
        let far = Segment::data(1 - checking);
        assert_eq!(values(&mut hosts, &far), Err(PassReason::NotNegotiated));
    }
    // Routed frames carry their parameters, so it advertises those as ever; and in-place ones when
    // the check is over.
    for (rule, quiet) in [(Rule::DEFAULT, true), (IN_PLACE, false)] {
        let mut hosts = [rule; 2].map(Host::new);
        hosts[0].egress.set_quiet_in_place(true);
        hosts[0].egress.set_quiet_in_place(quiet);
        connect(&mut hosts, &Segment::syn());
        assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
    }
}
