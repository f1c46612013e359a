//! Payload that does not look like values goes untouched (FORMAT.md §5.1, S9), and so does what its
//! connection sends after it.

use gradwire::engine::{Egress, Millis, NO_CAPABILITIES};
use gradwire::kernels::Kernel;
use gradwire::rules::{Alignment, Heuristic, Rule};
use gradwire::verdict::{Change, PassReason, Verdict};

use crate::common::engines::rules;
use crate::common::{ACK, SYN, Spec, TransportSpec, gradient, le_bytes};

const ORIGIN: u32 = 1000;
const LEN: usize = 400;

/// A host whose stream of values starts at [`ORIGIN`].
struct Host {
    engine: Egress<1>,
    sent: u32,
}

impl Host {
    fn new(rule: Rule, kernel: Kernel) -> Self {
        let mut host = Self { engine: Egress::new(rules(rule), kernel, 1500, 1), sent: 0 };
        host.connect(ORIGIN);
        host
    }

    fn connect(&mut self, origin: u32) {
        self.sent = origin;
        let verdict = self.process(&Spec::tcp(0, 0, &[]).syn(origin).bytes());
        assert_eq!(verdict, Verdict::Untouched(PassReason::TcpFlags));
    }

    fn process(&mut self, frame: &[u8]) -> Verdict {
        self.engine.process(frame, &mut vec![0; frame.len()], Millis(0), &NO_CAPABILITIES)
    }

    /// The next segment of the stream; whether it was compressed, or went untouched since it is not
    /// values.
    fn sends(&mut self, payload: &[u8]) -> bool {
        let frame = Spec::tcp(self.sent, ACK, payload).bytes();
        self.sent += payload.len() as u32;
        was_compressed(self.process(&frame))
    }
}

fn was_compressed(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Changed { change: Change::Compressed, .. } => true,
        Verdict::Untouched(PassReason::NotValues) => false,
        other => panic!("{other:?}"),
    }
}

/// Values with these words among them.
fn payload(words: &[(usize, u32)]) -> Vec<u8> {
    let mut bytes = le_bytes(&gradient(LEN / 4));
    for (place, word) in words {
        bytes[4 * place..4 * place + 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The header that gloo puts before a message: numbers of 64 bits, most of them small.
const HEADER: [(usize, u32); 12] =
    [(0, 48), (1, 0), (2, 1), (3, 0), (4, 7), (5, 0), (6, 0), (7, 0), (8, 1600), (9, 0), (10, 0), (11, 0)];

fn at(place: usize, words: &[(usize, u32)]) -> Vec<(usize, u32)> {
    words.iter().map(|(at, word)| (place + at, *word)).collect()
}

#[test]
fn a_header_ends_compression_for_its_connection() {
    for kernel in Kernel::available() {
        for place in 0..LEN / 4 - HEADER.len() {
            let mut host = Host::new(Rule::STATIC, kernel);
            assert!(host.sends(&payload(&[])));
            assert!(!host.sends(&payload(&at(place, &HEADER))), "{} at {place}", kernel.name());
            assert!(!host.sends(&payload(&[])), "where one header was, there are others");
            assert_eq!(host.engine.counters().passed(PassReason::NotValues), 2);
        }
    }
}

#[test]
fn a_new_connection_is_looked_at_anew() {
    let mut host = Host::new(Rule::STATIC, Kernel::detect());
    assert!(!host.sends(&payload(&HEADER)));
    let fin = Spec::tcp(host.sent, ACK | 1, &payload(&[])).bytes();
    assert!(!was_compressed(host.process(&fin)));
    host.connect(ORIGIN + 100_000);
    assert!(host.sends(&payload(&[])));
}

#[test]
fn one_implausible_word_counts_at_the_start_of_a_stream_only() {
    for kernel in Kernel::available() {
        for implausible in [1, 48, 0x7f_ffff, 0x8000_0001, 0x5f80_0000, 0xff7f_ffff] {
            let mut host = Host::new(Rule::STATIC, kernel);
            assert!(!host.sends(&payload(&[(0, implausible)])), "{implausible:#x}");
            for place in 0..LEN / 4 {
                let mut host = Host::new(Rule::STATIC, kernel);
                assert!(host.sends(&payload(&[(0, 0)])));
                assert!(
                    host.sends(&payload(&[(place, implausible)])),
                    "{} {implausible:#x} at {place}",
                    kernel.name()
                );
            }
        }
    }
}

#[test]
fn zeros_and_what_is_not_finite_are_values() {
    for word in [0, 0x8000_0000, f32::INFINITY.to_bits(), f32::NEG_INFINITY.to_bits(), f32::NAN.to_bits()] {
        let words: Vec<_> = (0..40).map(|place| (place, word)).collect();
        assert!(Host::new(Rule::STATIC, Kernel::detect()).sends(&payload(&words)), "{word:#x}");
    }
}

/// The check takes values where the alignment has them: shifted by a byte, values are random words.
#[test]
fn misaligned_values_are_values() {
    let values = [payload(&[]), payload(&[])].concat();
    for cut in 1..4 {
        let mut host = Host::new(Rule::STATIC, Kernel::detect());
        assert!(host.sends(&values[..LEN + cut]));
        assert!(host.sends(&values[LEN + cut..]));
    }
    let mut shifted = Host::new(Rule { alignment: Alignment::Payload, ..Rule::STATIC }, Kernel::detect());
    assert!(!shifted.sends(&values[1..LEN + 1]));
}

#[test]
fn datagrams_are_verified_one_by_one_behind_their_offset() {
    let rule = Rule { udp_offset: 48, ..Rule::STATIC };
    let mut host = Host::new(rule, Kernel::detect());
    let header = Spec::udp(&payload(&HEADER)).bytes();
    assert!(was_compressed(host.process(&header)));
    let inside = Spec::udp(&payload(&at(12, &HEADER))).bytes();
    assert!(!was_compressed(host.process(&inside)));
    assert!(was_compressed(host.process(&header)));
}

#[test]
fn a_rule_may_trust_what_is_tagged() {
    let rule = Rule { heuristic: Heuristic::Off, ..Rule::STATIC };
    let mut host = Host::new(rule, Kernel::detect());
    assert!(host.sends(&payload(&HEADER)));
    let datagram = Spec::udp(&payload(&HEADER)).bytes();
    assert!(was_compressed(host.process(&datagram)));
}

/// A length before each message is one implausible word in many: it shows where the stream starts,
/// whichever way the start goes.
#[test]
fn a_length_word_at_the_start_of_the_stream_is_not_missed() {
    const URGENT: u8 = 0x20;
    const MD5: [u8; 20] = [19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1];
    let message = payload(&[(0, 1200)]);
    let syn_with = |len: usize| {
        let transport = TransportSpec::Tcp { seq: ORIGIN - 1, flags: SYN, options: vec![] };
        Spec { transport, ..Spec::tcp(0, 0, &message[..len]) }.bytes()
    };
    for kernel in Kernel::available() {
        for way in [
            "usual",
            "Fast Open",
            "half a word in the SYN",
            "a word in the SYN",
            "missed",
            "urgent",
            "MD5",
            "half a word",
            "untagged",
        ] {
            let mut host = Host::new(Rule::STATIC, kernel);
            host.engine.reset(1);
            let syn_len = match way {
                "Fast Open" => LEN,
                "half a word in the SYN" => 2,
                "a word in the SYN" => 4,
                _ => 0,
            };
            let _ = host.process(&syn_with(syn_len));
            host.sent += syn_len as u32;
            let rest = &message[syn_len..];
            let at = host.sent;
            match way {
                "usual" => assert!(!host.sends(rest)),
                "missed" => host.sent += LEN as u32,
                "urgent" | "MD5" | "untagged" => {
                    let flags = if way == "urgent" { ACK | URGENT } else { ACK };
                    let options = if way == "MD5" { MD5.to_vec() } else { vec![] };
                    let transport = TransportSpec::Tcp { seq: at, flags, options };
                    let tos = if way == "untagged" { 0 } else { 0x28 };
                    let verdict = host.process(&Spec { transport, tos, ..Spec::tcp(0, 0, rest) }.bytes());
                    assert!(matches!(verdict, Verdict::Untouched(_)), "{verdict:?}");
                    host.sent += LEN as u32;
                }
                "half a word" => {
                    let verdict = host.process(&Spec::tcp(at, ACK, &rest[..2]).bytes());
                    assert_eq!(verdict, Verdict::Untouched(PassReason::NoValue));
                    host.sent += 2;
                    assert!(!host.sends(&rest[2..]));
                }
                _ => host.sent = ORIGIN + LEN as u32,
            }
            for _ in 0..3 {
                assert!(!host.sends(&message), "{}: {way}", kernel.name());
            }
        }
    }
}

/// Values in the SYN are no reason to doubt the rest, whether the server takes them or not.
#[test]
fn values_in_the_syn_are_values() {
    for taken in [0, 100, LEN] {
        let mut host = Host::new(Rule::STATIC, Kernel::detect());
        host.engine.reset(1);
        let transport = TransportSpec::Tcp { seq: ORIGIN - 1, flags: SYN, options: vec![] };
        let syn = Spec { transport, ..Spec::tcp(0, 0, &payload(&[])) };
        for _ in 0..2 {
            let _ = host.process(&syn.bytes());
        }
        host.sent = ORIGIN + taken as u32;
        assert!(host.sends(&payload(&[])), "{taken}");
        assert!(host.sends(&payload(&[(0, 48)])), "one implausible word in the middle");
    }
}

/// A single value is a start, if one that is not worth compressing.
#[test]
fn a_stream_may_start_with_a_single_value() {
    for (first, compressed) in [(0x3f80_0000u32, true), (1200, false)] {
        let mut host = Host::new(Rule::STATIC, Kernel::detect());
        let verdict = host.process(&Spec::tcp(ORIGIN, ACK, &first.to_le_bytes()).bytes());
        assert!(matches!(verdict, Verdict::Untouched(_)), "{verdict:?}");
        host.sent += 4;
        assert_eq!(host.sends(&payload(&[])), compressed);
    }
}

/// The bytes before its tag are the application's own: its values start at its first tagged
/// segment, and so do its messages.
#[test]
fn a_stream_that_is_tagged_late_starts_there() {
    for (first, compressed) in [(0x3f80_0000, true), (1200, false)] {
        let mut host = Host::new(Rule::STATIC, Kernel::detect());
        host.engine.reset(1);
        let transport = TransportSpec::Tcp { seq: ORIGIN - 1, flags: SYN, options: vec![] };
        let _ = host.process(&Spec { transport, tos: 0, ..Spec::tcp(0, 0, &payload(&HEADER)) }.bytes());
        host.sent = ORIGIN + 4000;
        assert_eq!(host.sends(&payload(&[(0, first)])), compressed);
        assert_eq!(host.sends(&payload(&[(0, first)])), compressed);
    }
}
