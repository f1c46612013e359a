//! What an engine may forget of a connection, and when: forged SYNs, floods, silence, ends that pass another way.

use gradwire::flow::{CLOSED_MS, OPENING_MS};
use gradwire::rules::Contents;

use super::*;

/// More than any table here has places.
const CROWD: u16 = 100;

/// The listener hears a SYN from this port that says that its host restores, and answers; whether that says so, too.
fn listener_tells(host: &mut Host, port: u16, answer: &Segment) -> bool {
    let options = [&ROUTED[..], &USUAL].concat();
    let _ = host.receive(&Segment { port, options, ..Segment::syn() }.bytes());
    is(Change::Told, host.send(&Segment { port, ..answer.clone() }.bytes()).0)
}

/// connections begin.
#[test]
fn an_untagged_syn_ack_is_not_forgotten_for_others() {
    for contents in [Contents::Trusted, Contents::Checked] {
        for (told, silence) in [(false, 0), (true, 0), (true, OPENING_MS)] {
            // The second answer is near the first, or far from it.
            for shift in [1001, 0x3000_0001] {
                let mut hosts = [Rule { contents, ..Rule::DEFAULT }; 2].map(Host::new);
                cross(&mut hosts, &Segment::syn(), |wire| wire);
                let answer = Segment { tos: 0, ..Segment::syn_ack() };
                cross(&mut hosts, &answer, |wire| wire);
                hosts[1].now.0 += silence;
                for port in 0..CROWD {
                    if told {
                        let _ = listener_tells(&mut hosts[1], port, &answer);
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
                let what = format!("{contents:?}, told {told}, {silence} ms, {shift:#x}: {verdict:?}");
                // Ten seconds later it may be forgotten. Then only what is looked at, or far away, shows it.
                if silence == 0 {
                    assert_eq!(verdict, Verdict::Untouched(PassReason::GridDoubtful), "{what}");
                } else if contents == Contents::Checked || shift > 1 << 20 {
                    assert_eq!(wire, frame, "{what}");
                }
            }
        }
    }
}

/// If the far end is silent, the XDP program sends the connection's end past the engine. Its ports serve another one later.
#[test]
fn ports_whose_connection_ended_unseen_are_believed_again() {
    for (silence, right) in [(CLOSED_MS - 1, Err(PassReason::GridDoubtful)), (CLOSED_MS, Ok(()))] {
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
