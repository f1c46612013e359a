//! The times at which an engine may forget a connection: forged SYNs, floods, silence, ends that
//! pass another way.

use gradwire::flow::{CLOSED_MS, IDLE_MS, OPENING_MS, UNUSED_MS};
use gradwire::rules::Heuristic;

use super::*;

/// More than any table here has places.
const CROWD: u16 = 100;

fn other_rules() -> Rules {
    rules(Rule { profile: Params::new(4, Split::Dense, 0).unwrap().into(), ..IN_PLACE })
}

/// An acknowledgement of the other end's SYN or values.
fn acknowledgement(from: usize) -> Segment {
    Segment { payload: vec![], ..Segment::data(from) }
}

/// The listener gets a SYN from this port with a capability, and answers. Whether the answer
/// advertises one, too.
fn listener_advertises(host: &mut Host, port: u16, answer: &Segment) -> bool {
    let options = [&ROUTED[..], &USUAL].concat();
    let _ = host.receive(&Segment { port, options, ..Segment::syn() }.bytes());
    is(Change::OptionAdded, host.send(&Segment { port, ..answer.clone() }.bytes()).0)
}

/// A listener answers each, and nobody goes on. Later, every real connection finds a place.
#[test]
fn forged_syns_do_not_fill_the_table_for_an_hour() {
    for rule in [Rule::DEFAULT, IN_PLACE] {
        let mut host = Host::new(rule);
        for port in 1000..5000 {
            let _ = listener_advertises(&mut host, port, &Segment::syn_ack());
        }
        host.now.0 += IDLE_MS / 2;
        for port in 5000..5100 {
            assert!(listener_advertises(&mut host, port, &Segment::syn_ack()), "{rule:?}: {port}");
            // It goes on, and ends.
            let at = ISN[1].wrapping_add(1);
            for segment in [
                Segment { port, ..acknowledgement(1) },
                Segment { port, seq: at, flags: "R", options: vec![], ..Segment::syn_ack() },
            ] {
                let _ = host.send(&segment.bytes());
            }
            host.now.0 += CLOSED_MS / 10;
        }
    }
}

/// Nobody but the forger knows of the connection that it begins at a listener.
#[test]
fn one_forged_syn_does_not_forbid_other_rules() {
    let mut host = Host::new(IN_PLACE);
    assert!(listener_advertises(&mut host, 40_000, &Segment::syn_ack()));
    let broken = |host: &Host, now| host.egress.would_break(&other_rules(), Millis(now));
    assert_eq!(broken(&host, 2 * UNUSED_MS - 1), 1);
    assert_eq!(broken(&host, 2 * UNUSED_MS), 0);
    // Who acknowledges something holds a connection, and may receive.
    host.now.0 = 1000;
    let _ = host.send(&acknowledgement(1).bytes());
    assert_eq!(broken(&host, 1000 + 2 * IDLE_MS - 1), 1);
    host.now.0 += 2 * IDLE_MS - 1;
    let _ = host.send(&acknowledgement(1).bytes());
    assert_eq!(broken(&host, 1000 + 4 * IDLE_MS - 2), 1);
    // Its peer lost power.
    assert_eq!(broken(&host, 1000 + 4 * IDLE_MS - 1), 0);
    // So does who sends values.
    let mut hosts = [IN_PLACE; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    assert_eq!(values(&mut hosts, &Segment::data(1)), Ok(()));
    assert_eq!(broken(&hosts[1], 2 * IDLE_MS - 1), 1);
    assert_eq!(broken(&hosts[1], 2 * IDLE_MS), 0);
}

/// The far end may take such a connection for ended, and restore by other rules.
#[test]
fn behind_a_long_silence_nothing_is_compressed_in_place() {
    for (rule, limited) in [(IN_PLACE, true), (Rule::DEFAULT, false)] {
        for (has_sent, limit) in [(false, UNUSED_MS), (true, IDLE_MS)] {
            for acknowledged in [false, true] {
                for (silence, early) in [(limit - 1, true), (limit, false)] {
                    let mut hosts = [rule; 2].map(Host::new);
                    connect(&mut hosts, &Segment::syn());
                    let mut data = Segment::data(0);
                    if has_sent {
                        assert_eq!(values(&mut hosts, &data), Ok(()));
                        data.seq = data.seq.wrapping_add(data.payload.len() as u32);
                    }
                    hosts[0].now.0 += silence;
                    if acknowledged {
                        let _ = hosts[0].send(&Segment { payload: vec![], ..data.clone() }.bytes());
                    }
                    let right = if early || !limited { Ok(()) } else { Err(PassReason::NotNegotiated) };
                    let what = format!(
                        "{rule:?}: payload before: {has_sent}, {silence} ms, acknowledged {acknowledged}"
                    );
                    assert_eq!(values(&mut hosts, &data), right, "{what}");
                }
            }
        }
    }
}

/// Every order of five: silence, values, and a reload that the end itself has nothing against.
/// Whatever arrives is within the bound.
#[test]
fn a_reload_that_no_end_refuses_breaks_no_connection() {
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(u64),
        Values(usize),
        Reload(usize),
    }
    use Step::{Reload, Values, Wait};
    let steps = [Wait(110_000), Wait(130_000), Wait(3_590_000), Values(0), Values(1), Reload(0), Reload(1)];
    let (mut compressed, mut reloaded) = (0, 0);
    for order in 0..steps.len().pow(5) {
        let order = [0, 1, 2, 3, 4].map(|place| steps[order / steps.len().pow(place) % steps.len()]);
        // Nothing else can go wrong.
        let reload = order.iter().position(|step| matches!(step, Reload(_)));
        if reload.is_none_or(|at| !order[at..].iter().any(|step| matches!(step, Values(_)))) {
            continue;
        }
        let mut hosts = [IN_PLACE; 2].map(Host::new);
        connect(&mut hosts, &Segment::syn());
        let _ = hosts[0].send(&acknowledgement(0).bytes());
        let mut sent = [0; 2];
        for step in order {
            match step {
                Wait(ms) => hosts.iter_mut().for_each(|host| host.now.0 += ms),
                Reload(at) => {
                    let host = &mut hosts[at];
                    if host.egress.would_break(&other_rules(), host.now) == 0 {
                        reloaded += 1;
                        host.egress.set_rules(other_rules());
                        host.ingress.set_rules(other_rules());
                    }
                }
                Values(from) => {
                    let mut data = Segment::data(from);
                    data.payload.truncate(400);
                    data.seq = data.seq.wrapping_add(sent[from]);
                    sent[from] += 400;
                    compressed += u32::from(values(&mut hosts, &data).is_ok());
                    let seq = ISN[1 - from].wrapping_add(1).wrapping_add(sent[1 - from]);
                    let _ = hosts[1 - from].send(&Segment { seq, ..acknowledgement(1 - from) }.bytes());
                }
            }
        }
    }
    assert!(compressed > 1000 && reloaded > 100, "{compressed} {reloaded}");
}

/// The peer may go on behind this end's FIN, however many others connect.
#[test]
fn an_end_that_restores_in_place_is_not_forgotten_for_others() {
    let mut hosts = [IN_PLACE; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    let _ = hosts[0].send(&Segment { flags: "F", ..acknowledgement(0) }.bytes());
    for port in 0..CROWD {
        hosts[0].now.0 = CLOSED_MS - 1;
        let _ = hosts[0].send(&Segment { port, tos: 0, ..Segment::syn() }.bytes());
    }
    assert_eq!(hosts[0].egress.would_break(&other_rules(), hosts[0].now), 1);
}

/// A listener that uses SYN cookies answers twice, with two numbers, and the client takes the first
/// answer. Between them, other connections begin.
#[test]
fn an_untagged_syn_ack_is_not_forgotten_for_others() {
    for heuristic in [Heuristic::Off, Heuristic::On] {
        for (advertised, silence) in [(false, 0), (true, 0), (true, OPENING_MS)] {
            // The second answer is near the first, or far from it.
            for shift in [1001, 0x3000_0001] {
                let mut hosts = [Rule { heuristic, ..Rule::DEFAULT }; 2].map(Host::new);
                cross(&mut hosts, &Segment::syn(), |wire| wire);
                let answer = Segment { tos: 0, ..Segment::syn_ack() };
                cross(&mut hosts, &answer, |wire| wire);
                hosts[1].now.0 += silence;
                for port in 0..CROWD {
                    if advertised {
                        let _ = listener_advertises(&mut hosts[1], port, &answer);
                    } else {
                        let _ = hosts[1].send(&Segment { port, ..answer.clone() }.bytes());
                    }
                }
                // The client sends again what it sent.
                let (_, wire) = Host::new(Rule::DEFAULT).send(&Segment::syn().bytes());
                let _ = hosts[1].receive(&wire);
                let second = Segment { seq: answer.seq.wrapping_add(shift), ..answer.clone() };
                let _ = hosts[1].send(&second.bytes());
                let frame = Segment::data(1).bytes();
                let (verdict, wire) = hosts[1].send(&frame);
                let what =
                    format!("{heuristic:?}, advertised {advertised}, {silence} ms, {shift:#x}: {verdict:?}");
                // Ten seconds later it may be forgotten. Then only what is looked at, or far away,
                // shows it.
                if silence == 0 {
                    assert_eq!(verdict, Verdict::Untouched(PassReason::AlignmentDoubtful), "{what}");
                } else if heuristic == Heuristic::On || shift > 1 << 20 {
                    assert_eq!(wire, frame, "{what}");
                }
            }
        }
    }
}

/// If the far end is silent, the XDP program sends the connection's end past the engine. Its ports
/// serve another one later.
#[test]
fn ports_whose_connection_ended_unseen_are_believed_again() {
    for (silence, right) in [(CLOSED_MS - 1, Err(PassReason::AlignmentDoubtful)), (CLOSED_MS, Ok(()))] {
        let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
        let _ = hosts[0].send(&Segment::syn().bytes());
        hosts[0].now.0 += silence;
        let later = 9_999;
        let syn = Segment { seq: ISN[0].wrapping_add(later), ..Segment::syn() };
        cross(&mut hosts, &syn, |wire| wire);
        cross(&mut hosts, &Segment { ack: Some(syn.seq.wrapping_add(1)), ..Segment::syn_ack() }, |wire| wire);
        let data = Segment::data(0);
        assert_eq!(values(&mut hosts, &Segment { seq: data.seq.wrapping_add(later), ..data }), right);
    }
}

/// The network doubles a SYN, however late: it begins nothing, and nothing is compressed a second
/// time.
#[test]
fn the_same_start_again_begins_nothing_however_late() {
    let mut hosts = [Rule::DEFAULT; 2].map(Host::new);
    connect(&mut hosts, &Segment::syn());
    assert_eq!(values(&mut hosts, &Segment::data(0)), Ok(()));
    hosts[0].now.0 += 3 * IDLE_MS;
    let _ = hosts[0].send(&Segment::syn().bytes());
    assert_eq!(values(&mut hosts, &Segment::data(0)), Err(PassReason::Resent));
}
