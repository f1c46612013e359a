//! TCP streams of which an engine cannot know, or must not forget, where values start and what was
//! sent before. The engines are real, and the verifier knows each stream from its sender's side.

use std::ops::Range;
use std::time::Duration;

use etherparse::{IpHeaders, IpNumber, PacketBuilder, TcpHeader};
use gradwire::rules::{Alignment, Heuristic, Rule};
use gradwire::verdict::PassReason;
use gradwire_testbench::input::{Capture, Frame, ipv4};
use gradwire_testbench::replay::{Engines, Passage, Setup};
use gradwire_testbench::verify::{Findings, verify_reloaded};

/// Sequence number of the stream's first byte.
const ORIGIN: u32 = 1001;
/// Of another SYN: with each alignment, and so near before `ORIGIN` that the distance alone raises
/// no doubt.
const OTHER_ORIGINS: Range<u32> = ORIGIN - 400..ORIGIN - 396;
/// The far end's next sequence number.
const FAR: u32 = 7001;
/// Bytes of values in a segment.
const LEN: u32 = 1024;
const TOS: u8 = 0x28;

/// Frames of one connection, one a millisecond.
#[derive(Default)]
struct Talk(Capture);

impl Talk {
    fn push(&mut self, tos: u8, far: bool, change: impl FnOnce(&mut TcpHeader), payload: &[u8]) {
        let [near, other] = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let (source, destination) = if far { (other, near) } else { (near, other) };
        let (from, to) = if far { (5400, 40_000) } else { (40_000, 5400) };
        let ip = ipv4(tos, IpNumber::TCP, source, destination);
        let mut tcp = TcpHeader::new(from, to, 0, 8192);
        change(&mut tcp);
        let macs = [[2, 0, 0, 0, 0, source[3]], [2, 0, 0, 0, 0, destination[3]]];
        let packet = PacketBuilder::ethernet2(macs[0], macs[1]).ip(IpHeaders::Ipv4(ip, Default::default()));
        let mut bytes = Vec::new();
        packet.tcp_header(tcp).write(&mut bytes, payload).unwrap();
        let number = self.0.frames.len() as u64 + 1;
        self.0.frames.push(Frame { number, time: Duration::from_millis(number), bytes });
    }

    /// A SYN of the near end whose stream would start at `origin`; an answer acknowledges the far
    /// end's.
    fn syn(&mut self, tos: u8, origin: u32, answers: bool) -> &mut Self {
        let header = |tcp: &mut TcpHeader| {
            (tcp.sequence_number, tcp.syn) = (origin.wrapping_sub(1), true);
            (tcp.ack, tcp.acknowledgment_number) = (answers, FAR);
        };
        self.push(tos, false, header, &[]);
        self
    }

    /// The far end accepts the SYN whose stream starts at `origin`.
    fn accepts(&mut self, origin: u32, syn: bool) -> &mut Self {
        let header = |tcp: &mut TcpHeader| {
            (tcp.sequence_number, tcp.syn) = (FAR.wrapping_sub(u32::from(syn)), syn);
            (tcp.ack, tcp.acknowledgment_number) = (true, origin);
        };
        self.push(TOS, true, header, &[]);
        self
    }

    /// Bytes of the stream from position `at` on.
    fn data(&mut self, tos: u8, at: u32, fin: bool) -> &mut Self {
        let header = |tcp: &mut TcpHeader| {
            (tcp.sequence_number, tcp.fin) = (ORIGIN.wrapping_add(at), fin);
            (tcp.ack, tcp.acknowledgment_number) = (true, FAR);
        };
        let payload: Vec<u8> = (at..at + LEN).map(byte).collect();
        self.push(tos, false, header, &payload);
        self
    }
}

/// The stream's byte at a position: values of every magnitude below 1/2, so with another alignment
/// most are far off.
fn byte(at: u32) -> u8 {
    let value = ((at / 4) as f32 * 0.7).sin() * 0.5;
    value.to_le_bytes()[at as usize % 4]
}

/// The payload heuristic is off: values cut by a wrong alignment do not look like values, and a
/// check of them would leave alone what an engine without these fixes compresses.
fn rule(alignment: Alignment) -> Rule {
    Rule { alignment, heuristic: Heuristic::Off, ..Rule::STATIC }
}

/// Engines with `setups` in force from these frames on; they do not see the first `unseen` frames.
fn held(capture: &Capture, setups: &[(usize, Setup)], unseen: usize) -> Findings {
    let mut engines = Engines::new(&setups[0].1, capture).unwrap();
    let setup_of = |index| &setups.iter().rev().find(|(from, _)| *from <= index).unwrap().1;
    let mut passages = Vec::new();
    for (index, frame) in capture.frames.iter().enumerate() {
        if setups.iter().any(|(from, _)| *from == index) {
            engines.reload(setup_of(index)).unwrap();
        }
        passages.push(if index < unseen { Passage::unseen() } else { engines.send(frame) });
    }
    verify_reloaded(setup_of, capture, &passages)
}

/// Verifies what may be compressed of this: all checks hold, and so many segments were compressed.
fn holds(capture: &Capture, setups: &[(usize, Setup)], unseen: usize, compressed: u64) {
    let report = held(capture, setups, unseen);
    assert!(report.ok, "{:?}", report.failures);
    assert_eq!(report.compressed, compressed, "{:?}", report.untouched);
}

/// Nothing may be compressed of this: it is not certain where values start.
fn in_doubt(capture: &Capture) {
    let report = held(capture, &[(0, Setup::new(rule(Alignment::Connection)))], 0);
    assert!(report.ok, "{:?}", report.failures);
    assert_eq!(report.compressed, 0);
    assert_eq!(
        report.untouched.get(PassReason::AlignmentDoubtful.name()),
        Some(&2),
        "{:?}",
        report.untouched
    );
}

/// A stream's last segment has payload and FIN. A peer without gradwire refuses it, and so TCP
/// sends it again, and again, with all that went before: it is compressed once.
#[test]
fn bytes_sent_again_behind_a_fin_are_compressed_once() {
    for alignment in Alignment::ALL {
        let mut talk = Talk::default();
        talk.syn(TOS, ORIGIN, false).accepts(ORIGIN, true);
        talk.data(TOS, 0, false).data(TOS, LEN, false).data(TOS, 2 * LEN, true);
        for _ in 0..2 {
            talk.data(TOS, 2 * LEN, true).data(TOS, 0, false).data(TOS, LEN, false);
        }
        holds(&talk.0, &[(0, Setup::new(rule(alignment)))], 0, 3);
    }
}

/// The same without the SYN, as an engine sees it that was started in the connection's middle.
#[test]
fn bytes_sent_again_behind_a_fin_are_compressed_once_without_a_start() {
    let mut talk = Talk::default();
    talk.data(TOS, 0, false).data(TOS, LEN, true);
    talk.data(TOS, LEN, true).data(TOS, 0, false).data(TOS, LEN, true);
    holds(&talk.0, &[(0, Setup::new(rule(Alignment::Payload)))], 0, 2);
}

/// A listener with SYN cookies answers each SYN with another number, and the client may acknowledge
/// the first.
#[test]
fn a_listeners_second_answer_does_not_move_the_alignment() {
    for other in OTHER_ORIGINS {
        let mut talk = Talk::default();
        talk.syn(TOS, ORIGIN, true).syn(TOS, other, true).accepts(ORIGIN, false);
        talk.data(TOS, 0, false).data(TOS, LEN, false);
        in_doubt(&talk.0);
    }
}

/// Somebody behind the same engine sends a SYN in the host's name, before the connection has sent
/// anything.
#[test]
fn a_forged_syn_does_not_move_the_alignment() {
    for other in OTHER_ORIGINS {
        for starts in [[other, ORIGIN], [ORIGIN, other]] {
            let mut talk = Talk::default();
            talk.syn(TOS, starts[0], false).syn(TOS, starts[1], false);
            talk.accepts(ORIGIN, true).data(TOS, 0, false).data(TOS, LEN, false);
            in_doubt(&talk.0);
        }
    }
}

/// A flow that was opened by payload alone, under `alignment = "payload"`, has no start: a rule
/// that needs one finds none, be it after a reload or because the application changes its type of
/// service.
#[test]
fn a_flow_without_a_start_has_no_alignment_under_another_rule() {
    let [connection, payload] = Alignment::ALL.map(|alignment| Setup::new(rule(alignment)));
    let mut talk = Talk::default();
    talk.syn(TOS, ORIGIN, false).accepts(ORIGIN, true);
    talk.data(TOS, 0, false).data(TOS, LEN, false).data(TOS, 2 * LEN, false);
    // The engines are started in the connection's middle, and their rules are reloaded.
    holds(&talk.0, &[(0, payload), (4, connection)], 2, 2);

    const OTHER_TOS: u8 = 0x48;
    let mut both = Setup::new(rule(Alignment::Payload));
    both.rules.push(Rule { tos: OTHER_TOS, ..rule(Alignment::Connection) });
    let mut talk = Talk::default();
    talk.syn(TOS, ORIGIN, false).accepts(ORIGIN, true);
    talk.data(TOS, 0, false).data(OTHER_TOS, LEN, false).data(OTHER_TOS, 2 * LEN, false);
    holds(&talk.0, &[(0, both)], 2, 1);
}

/// `alignment = "payload"` is the sender's word that it never cuts a value. If the start is known,
/// it can be checked.
#[test]
fn a_payload_that_starts_within_a_value_goes_untouched() {
    let mut talk = Talk::default();
    talk.syn(TOS, ORIGIN, false).accepts(ORIGIN, true);
    talk.data(TOS, 0, false).data(TOS, LEN + 2, false);
    holds(&talk.0, &[(0, Setup::new(rule(Alignment::Payload)))], 0, 1);
    // Without the start, by the first payload.
    holds(&talk.0, &[(0, Setup::new(rule(Alignment::Payload)))], 2, 1);
}
