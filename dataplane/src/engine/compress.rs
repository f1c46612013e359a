//! A payload of the host: checked, encoded, and written behind its new headers.

use crate::checksum::Sum;
use crate::codec::VALUE_LEN;
use crate::kernels::{Encoded, Kernel};
use crate::rules::{ECN, Framing, Heuristic, Rule};
use crate::values;
use crate::verdict::PassReason;
use crate::wire::frame::{Extent, MIN_FRAME_LEN, Packet, Transport};
use crate::wire::rewrite::{Headers, L4Checksum, change_headers, copy_headers, write_at};
use crate::wire::segment_header::{CHECKSUM_CONSTANT, HEADER_LEN, SegmentHeader};

/// The places of a frame's values, and in the compressed frame of their groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) values_at: usize,
    pub(super) values_len: usize,
    pub(super) groups_at: usize,
    pub(super) groups_len: usize,
}

/// The payload of a segment that its flow expects, encoded in the pass that checks it.
#[derive(Clone, Copy)]
pub(super) struct EncodedAhead {
    pub(super) head_len: usize,
    payload_sum: Sum,
    encoded: Encoded,
}

impl EncodedAhead {
    /// Headers and groups, in `out`. None if the packet cannot be compressed.
    // Always inlined, as `Checked::new`.
    #[inline(always)]
    pub(super) fn new(
        kernel: Kernel,
        packet: &Packet<'_>,
        rule: &Rule,
        head_len: usize,
        out: &mut [u8],
    ) -> Option<Self> {
        #[cfg(test)]
        if !tests::ENCODES_AHEAD.get() {
            return None;
        }
        // On other processors no kernel does both in one pass, and a soft core's image is smaller.
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        if packet.extent() != Extent::Exact || out.len() < packet.frame().len() {
            return None;
        }
        let (head, values, tail) = split(packet.payload(), head_len)?;
        let room = room_for_groups(packet, rule.framing, head_len, out)?;
        let look = rule.heuristic == Heuristic::On;
        let encoded = kernel.encode_and_check(values, room, rule.profile, look);
        let payload_sum = encoded.sum.between(head, tail);
        Some(Self { head_len, payload_sum, encoded })
    }
}

/// A packet of the host whose checksums are right.
pub(super) struct Checked<'p, 'a> {
    packet: &'p Packet<'a>,
    header_sum: Sum,
    /// Whether a value of the payload may be implausible, if that was looked for.
    may_be_implausible: Option<bool>,
    ahead: Option<EncodedAhead>,
}

impl<'p, 'a> Checked<'p, 'a> {
    // The payload is read once for its sum and for the heuristic. Always inlined: handed over in
    // memory, what was just written would be read before it can be.
    #[inline(always)]
    pub(super) fn new(
        packet: &'p Packet<'a>,
        rule: &Rule,
        kernel: Kernel,
        ahead: Option<EncodedAhead>,
    ) -> Result<Self, PassReason> {
        let mut may_be_implausible = None;
        let header_sum = packet.verify_with(|payload| match (ahead, rule.heuristic) {
            (Some(ahead), _) => ahead.payload_sum,
            (None, Heuristic::Off) => kernel.sum(payload),
            (None, Heuristic::On) => {
                let (sum, found) = kernel.sum_and_may_be_implausible(payload);
                may_be_implausible = Some(found);
                sum
            }
        })?;
        Ok(Self { packet, header_sum, may_be_implausible, ahead })
    }

    /// Whether the payload behind its first `head_len` bytes looks like values, as
    /// [`looks_like_f32`] says.
    #[inline(always)] // as `new`
    pub(super) fn looks_like_f32(&self, head_len: usize, starts: bool, kernel: Kernel) -> bool {
        let plausible = self.ahead.is_some_and(|ahead| !ahead.encoded.may_be_implausible);
        plausible || self.others_look_like_f32(head_len, starts, kernel)
    }

    /// [`Self::looks_like_f32`] of a payload that may have implausible values.
    #[cold] // or all payloads pay for what it needs to know
    fn others_look_like_f32(&self, head_len: usize, starts: bool, kernel: Kernel) -> bool {
        let values = self.packet.payload().get(head_len..).unwrap_or(&[]);
        let known = match self.ahead {
            Some(ahead) => Some(ahead.encoded.may_be_implausible),
            None => self.may_be_implausible.filter(|_| head_len == 0),
        };
        looks_like_f32(values, starts, known, kernel)
    }
}

/// Whether `values` look like values. If they `start` the stream, one implausible word is enough:
/// frameworks begin with a header, or with a length. `may_be_implausible` is whether one is,
/// perhaps, if that is known.
pub(super) fn looks_like_f32(
    values: &[u8],
    start: bool,
    may_be_implausible: Option<bool>,
    kernel: Kernel,
) -> bool {
    !may_be_implausible.unwrap_or_else(|| kernel.any_may_be_implausible(values))
        || !(start && values::first_is_implausible(values) || values::has_header(values))
}

/// Writes the compressed frame to `out`: headers, in routed framing the segment header, `head_len`
/// raw bytes, the groups, up to 3 raw bytes. The new frame's length; `places` is as it was if there
/// is an error.
// `places` goes to where it stays: returned, it would be copied from the stack right after it was
// written there.
#[inline(always)]
pub(super) fn compress(
    kernel: Kernel,
    &Checked { packet, header_sum, ahead, .. }: &Checked<'_, '_>,
    rule: &Rule,
    mark: u8,
    head_len: usize,
    out: &mut [u8],
    places: &mut Places,
) -> Result<usize, PassReason> {
    // A padded segment counts as sent like any other; only now is it distinguished.
    if packet.extent() == Extent::Trailing {
        return Err(PassReason::Trailer);
    }
    let payload = packet.payload();
    let (head, values, tail) = split(payload, head_len).ok_or(PassReason::NoValue)?;
    let frame_len = packet.frame().len();
    if out.len() < frame_len {
        return Err(PassReason::NoRoom);
    }
    // If the groups do not even fit into the old frame's room, they are not shorter.
    let groups_len = match ahead {
        Some(ahead) => ahead.encoded.len(),
        None => room_for_groups(packet, rule.framing, head_len, out)
            .and_then(|room| kernel.encode(values, room, rule.profile).ok()),
    };
    let groups_len = groups_len.ok_or(PassReason::NotShorter)?;
    let head_at = head_at(packet, rule.framing);
    let groups_at = head_at + head_len;
    let tail_at = groups_at + groups_len;
    let len = tail_at + tail.len();
    // Without VLAN tags: a switch on the way may take them off or put others on, and pads anew.
    // In-place framing tells compressed frames by their length alone.
    let padded_len = |len: usize| len.saturating_sub(packet.tags_len()).max(MIN_FRAME_LEN);
    if padded_len(len) >= padded_len(frame_len) {
        return Err(PassReason::NotShorter);
    }
    write_at(out, head_at, head).ok_or(PassReason::NoRoom)?;
    write_at(out, tail_at, tail).ok_or(PassReason::NoRoom)?;
    match rule.framing {
        Framing::InPlace => Some(()),
        Framing::Routed => {
            let segment = SegmentHeader {
                tos: packet.tos() & !ECN,
                no_checksum: matches!(packet.transport(), Transport::Udp { checksum: 0 }),
                head_len: head_len as u8,      // at most 255: a rule's u8, or 3
                raw_len: payload.len() as u16, // bounded by an IP length field
                profile: rule.profile,
            };
            let segment = segment.to_bytes();
            // Before the segment header is written: a wide load waits for narrow stores.
            let payload_sum = Sum::of(&segment) + kernel.sum(out.get(head_at..len).unwrap_or(&[]));
            write_at(out, packet.payload_at(), &segment).ok_or(PassReason::NoRoom)?;
            let headers = Headers {
                tos: mark | (packet.tos() & ECN),
                payload_len: len - packet.payload_at(),
                checksum: L4Checksum::Computed { header_sum, payload_sum, plus: CHECKSUM_CONSTANT },
            };
            change_headers(packet, headers, out)
        }
    }
    .ok_or(PassReason::NoRoom)?;
    let values_at = packet.payload_at() + head_len;
    *places = Places { values_at, values_len: values.len(), groups_at, groups_len };
    Ok(len)
}

/// A payload's first `head_len` bytes, the whole values behind, and what is left. None if there is
/// no value.
#[inline]
fn split(payload: &[u8], head_len: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let (head, rest) = payload.split_at_checked(head_len)?;
    let (values, tail) = rest.split_at(rest.len() - rest.len() % VALUE_LEN);
    (!values.is_empty()).then_some((head, values, tail))
}

/// The place of the head in the compressed frame.
const fn head_at(packet: &Packet<'_>, framing: Framing) -> usize {
    match framing {
        Framing::InPlace => packet.payload_at(),
        Framing::Routed => packet.payload_at() + HEADER_LEN,
    }
}

/// Copies the headers to `out`; the room behind the head's, where groups are to be.
// In this order: more than the headers may be copied.
#[inline(always)]
fn room_for_groups<'o>(
    packet: &Packet<'_>,
    framing: Framing,
    head_len: usize,
    out: &'o mut [u8],
) -> Option<&'o mut [u8]> {
    copy_headers(packet, out)?;
    out.get_mut(head_at(packet, framing) + head_len..)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::format;
    use std::vec;
    use std::vec::Vec;

    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use crate::codec::bit_plane::Bound;
    use crate::engine::{Egress, Millis, NO_CAPABILITIES};
    use crate::kernels::Kernel;
    use crate::rules::{Alignment, DEFAULT_MARK, Framing, Heuristic, Rule, Rules};
    use crate::verdict::Verdict;
    #[cfg(target_arch = "x86_64")]
    use crate::verdict::{Change, PassReason};

    std::thread_local! {
        /// Whether expected segments are encoded before they are checked: the tests compare both.
        pub(super) static ENCODES_AHEAD: Cell<bool> = const { Cell::new(true) };
    }

    /// A segment, relative to what the stream sends next.
    #[derive(Clone, Debug)]
    struct Segment {
        ahead: i32,
        payload: Vec<u8>,
        urgent: bool,
        option: bool,
        flips: Option<prop::sample::Index>,
        trailer: usize,
        room_less: usize,
        after_ms: u64,
    }

    fn payloads() -> impl Strategy<Value = Vec<u8>> {
        let gradient = (-0.01f32..0.01).prop_map(f32::to_bits);
        let value = prop_oneof![
            90 => gradient,
            5 => Just(0u32),
            2 => any::<f32>().prop_map(f32::to_bits),
            1 => 1u32..2000, // a length, or a subnormal
            1 => any::<u32>(),
        ];
        (proptest::collection::vec(value, 0..400), 0..4usize).prop_map(|(values, tail)| {
            let mut bytes: Vec<u8> = values.into_iter().flat_map(u32::to_le_bytes).collect();
            bytes.resize(bytes.len() + tail, 7);
            bytes
        })
    }

    fn segments() -> impl Strategy<Value = Segment> {
        let rare = |odds| prop::bool::weighted(odds);
        (
            prop_oneof![12 => Just(0), 1 => -3000..3000i32],
            payloads(),
            rare(0.03),
            rare(0.03),
            proptest::option::weighted(0.05, any::<prop::sample::Index>()),
            prop_oneof![20 => Just(0), 1 => 1..9usize],
            prop_oneof![20 => Just(0), 1 => 1..60usize],
            prop_oneof![9 => 0..5u64, 1 => 0..10_000u64],
        )
            .prop_map(|(ahead, payload, urgent, option, flips, trailer, room_less, after_ms)| {
                Segment { ahead, payload, urgent, option, flips, trailer, room_less, after_ms }
            })
    }

    fn tcp(seq: u32, syn: bool, urgent: bool, option: bool, payload: &[u8]) -> Vec<u8> {
        let mut ip = etherparse::Ipv4Header {
            protocol: etherparse::IpNumber::TCP,
            source: [10, 0, 0, 1],
            destination: [10, 0, 0, 2],
            time_to_live: 64,
            ..Default::default()
        };
        let tos = Rule::DEFAULT.tos;
        (ip.dscp, ip.ecn) = ((tos >> 2).try_into().unwrap(), (tos & 3).try_into().unwrap());
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
            .tcp(40_000, 5400, seq, 500);
        let builder = if syn { builder.syn() } else { builder.ack(1) };
        let builder = if urgent { builder.urg(1) } else { builder };
        // MD5 signatures (RFC 2385) bind the payload.
        let options: &[u8] =
            if option { &[19, 18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 0] } else { &[] };
        let builder = builder.options_raw(options).unwrap();
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    /// A connection whose SYN, with number 0, was sent.
    #[cfg(target_arch = "x86_64")]
    struct Connection {
        engine: Egress<2>,
        /// The next sequence number.
        next: u32,
    }

    #[cfg(target_arch = "x86_64")]
    impl Connection {
        fn new() -> Self {
            let rules = Rules::new(&[Rule::STATIC], DEFAULT_MARK).unwrap();
            let mut new = Self { engine: Egress::new(rules, Kernel::detect(), 1500, 1), next: 1 };
            let _ = new.send(&tcp(0, true, false, false, &[]));
            new
        }

        /// The verdict, and whether anything was written.
        fn send(&mut self, frame: &[u8]) -> (Verdict, bool) {
            let mut out = vec![0xaa; frame.len()];
            let verdict = self.engine.process(frame, &mut out, Millis(0), &NO_CAPABILITIES);
            (verdict, out.iter().any(|byte| *byte != 0xaa))
        }

        /// The next segment.
        fn segment(&mut self, payload: &[u8]) -> Vec<u8> {
            let frame = tcp(self.next, false, false, false, payload);
            self.next += payload.len() as u32;
            frame
        }

        /// Whether the next segment is encoded before it is found to be corrupt.
        fn encodes_ahead(&mut self) -> bool {
            let mut frame = tcp(self.next, false, false, false, &values());
            *frame.last_mut().unwrap() ^= 1;
            let (verdict, written) = self.send(&frame);
            assert_eq!(verdict, Verdict::Untouched(PassReason::L4Checksum));
            written
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn values() -> Vec<u8> {
        (1..=362u16).flat_map(|i| (f32::from(i) * 1e-5).to_le_bytes()).collect()
    }

    /// Or the property below would compare a path with itself; and what is not likely to be
    /// compressed is not to cost an encoding.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_the_flow_expects_is_encoded_ahead_and_nothing_else() {
        let mut connection = Connection::new();
        assert!(!connection.encodes_ahead(), "nothing was sent yet");
        let incompressible = connection.segment(&[1e6f32.to_le_bytes(), 3e6f32.to_le_bytes()].concat());
        assert_eq!(connection.send(&incompressible).0, Verdict::Untouched(PassReason::NotShorter));
        assert!(!connection.encodes_ahead(), "nothing was compressed yet");
        let first = connection.segment(&values());
        assert!(matches!(connection.send(&first).0, Verdict::Changed { change: Change::Compressed, .. }));
        assert!(connection.encodes_ahead());
        assert_eq!(connection.send(&first), (Verdict::Untouched(PassReason::Resent), false));
        assert!(connection.encodes_ahead());
        let _ = connection.send(&tcp(0x8000_0000, true, false, false, &[]));
        assert!(!connection.encodes_ahead(), "another SYN: where values start is in doubt");

        let mut mixed = Connection::new();
        let text = mixed.segment(&[1, 0, 0, 0].repeat(300));
        assert_eq!(mixed.send(&text).0, Verdict::Untouched(PassReason::NotValues));
        assert!(!mixed.encodes_ahead(), "its values are none");

        let mut distrusted = Connection::new();
        let segments: Vec<_> = (0..12).map(|_| distrusted.segment(&values())).collect();
        for segment in segments.iter().chain(&segments) {
            let _ = distrusted.send(segment);
        }
        assert!(!distrusted.encodes_ahead(), "all of it was sent again");
    }

    /// A frame of a stream, the room for its replacement, and when it leaves.
    struct Sent {
        frame: Vec<u8>,
        room: usize,
        now: Millis,
    }

    /// A connection's SYN and segments.
    fn stream(isn: u32, segments: &[Segment], mtu_sized: bool) -> Vec<Sent> {
        let (mut next, mut now) = (isn.wrapping_add(1), Millis(0));
        let syn = tcp(isn, true, false, false, &[]);
        let mut sent = vec![Sent { room: syn.len(), frame: syn, now }];
        for segment in segments {
            let mut payload = segment.payload.clone();
            if mtu_sized {
                payload.resize(1448, 0);
            }
            let seq = next.wrapping_add_signed(segment.ahead);
            let mut frame = tcp(seq, false, segment.urgent, segment.option, &payload);
            if let Some(place) = &segment.flips {
                let at = place.index(frame.len());
                frame[at] ^= 0x40;
            }
            frame.resize(frame.len() + segment.trailer, 0);
            if segment.ahead == 0 {
                next = next.wrapping_add(payload.len() as u32);
            }
            now.0 += segment.after_ms;
            sent.push(Sent { room: frame.len().saturating_sub(segment.room_less), frame, now });
        }
        sent
    }

    proptest! {
        #[test]
        fn encoding_ahead_changes_no_verdict_no_byte_and_no_state(
            segments in proptest::collection::vec(segments(), 1..16),
            isn: u32, mtu_sized: bool, in_place: bool, alignment: bool, heuristic: bool, bit_plane: bool,
        ) {
            let rule = Rule {
                framing: if in_place { Framing::InPlace } else { Framing::Routed },
                alignment: if alignment { Alignment::Connection } else { Alignment::Payload },
                heuristic: if heuristic { Heuristic::On } else { Heuristic::Off },
                profile: if bit_plane { Bound::new(-10).unwrap().into() } else { Rule::STATIC.profile },
                ..Rule::STATIC
            };
            let rules = Rules::new(&[rule], DEFAULT_MARK).unwrap();
            let frames = stream(isn, &segments, mtu_sized);
            for kernel in Kernel::available() {
                let mut engines =
                    [true, false].map(|ahead| (ahead, Egress::<2>::new(rules.clone(), kernel, 9000, 1)));
                for Sent { frame, room, now } in &frames {
                    let [with, without] = engines.each_mut().map(|(ahead, engine)| {
                        ENCODES_AHEAD.set(*ahead);
                        let mut out = vec![0xaa; *room];
                        let verdict = engine.process(frame, &mut out, *now, &NO_CAPABILITIES);
                        let sent = match verdict {
                            Verdict::Changed { len, .. } => out[..len].to_vec(),
                            _ => vec![],
                        };
                        (verdict, sent)
                    });
                    ENCODES_AHEAD.set(true);
                    prop_assert_eq!(with, without, "{}", kernel.name());
                }
                let [with, without] = engines.map(|(_, engine)| format!("{engine:?}"));
                prop_assert_eq!(with, without, "{}", kernel.name());
            }
        }
    }
}
