//! The clocked model as the NIC uses it: frames back to back, late beats, stalled sinks; and the
//! clocks.

use std::iter::repeat_n;

use gradwire::codec::{self, BURST_LEN, DecodeError, EncodeError, LANES, Params, Split};
use gradwire::rules::Rule;
use gradwire_gateware_model::{
    Beat, Clocks, Compressor, Decompressor, FrameError, Layout, Step, decode_frame, decode_payload,
    encode_frame, encode_payload,
};
use proptest::prelude::*;

mod clocked_inputs;
use clocked_inputs::{define_decode, define_encode, noise, params, payload};

/// 0x28 with an ECN bit, which the default rule's mask ignores.
const TOS: u8 = 0x2a;

/// An Ethernet and IPv4 header with this type of service behind `vlans` VLAN tags, cut or filled up
/// to `len`.
fn header(tos: u8, vlans: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    for tag in 0..vlans {
        bytes.extend(if tag == 0 && vlans == 2 { [0x88, 0xa8, 0, 1] } else { [0x81, 0, 0, 2] });
    }
    bytes.extend([0x08, 0x00, 0x45, tos]);
    bytes.resize(len, 0x77);
    bytes
}

/// The compressor's output for a frame, by the definition.
fn define_frame(frame: &[u8], layout: Layout, params: Params) -> Vec<u8> {
    let (bypassed, rest) = frame.split_at(layout.bypass.min(frame.len()));
    let len = (4 * layout.values).min(rest.len() / 4 * 4);
    [bypassed, &define_encode(&rest[..len], params), &rest[len..]].concat()
}

#[test]
fn errors_say_what_was_found_and_what_would_be_right() {
    let refused = FrameError::Groups(DecodeError::Unaligned { len: 5 });
    assert_eq!(refused.to_string(), "room for 5 bytes of values, expected a multiple of 4");
    assert_eq!(FrameError::NoRoom { have: 9 }.to_string(), "the frame does not fit into 9 bytes");
}

#[test]
fn headers_are_bypassed_whatever_their_length() {
    let params = Params::new(10, Split::Paper, 0).unwrap();
    let rule = Rule { profile: params.into(), ..Rule::DEFAULT };
    let mut next = noise(5);
    for bypass in 0..=80 {
        for (count, tail) in [(0, 0), (1, 0), (7, 3), (8, 0), (9, 1), (40, 2), (99, 40)] {
            let mut frame = header(TOS, bypass % 3, bypass);
            let mut value = || next() & 0x807f_ffff | (115 + next() % 14) << 23;
            frame.extend((0..count).flat_map(|_| value().to_le_bytes()));
            frame.extend((0..tail).map(|i| i as u8));
            let layout = Layout { bypass, values: count };
            let coded = define_frame(&frame, layout, params);
            let (head, tail) = (&frame[..bypass], &frame[frame.len() - tail..]);
            assert!(coded.starts_with(head) && coded.ends_with(tail));

            let mut compressor = Compressor::new(params);
            let sent = send(&[(layout, frame.clone())], Manners::PROMPT, |beat, layout, ready| {
                compressor.clock(beat, layout, ready)
            });
            assert_eq!(sent, [(coded.clone(), None)], "{bypass} {count}");
            if bypass < 16 + bypass % 3 * 4 {
                continue; // The comparator would take values for a type of service.
            }
            let mut wire = vec![0; coded.len()];
            assert_eq!(encode_frame(&frame, layout, &mut wire, &rule).map(|run| run.len), Ok(coded.len()));
            assert_eq!(wire, coded);
            let have = coded.len() - 1;
            let refused = encode_frame(&frame, layout, &mut wire[..have], &rule);
            assert_eq!(refused, Err(EncodeError::NoRoom { have }));

            let (_, values) = define_decode(&coded[bypass..], 4 * count, params).unwrap();
            let mut out = vec![0; frame.len()];
            let run = decode_frame(&coded, layout, &mut out, &rule).unwrap();
            assert_eq!((run.len, &out), (frame.len(), &[head, &values, tail].concat()));
            let have = frame.len() - 1;
            let refused = decode_frame(&coded, layout, &mut out[..have], &rule);
            assert_eq!(refused, Err(FrameError::NoRoom { have }));
        }
    }
}

#[test]
fn the_type_of_service_is_compared_on_the_first_burst() {
    let rule = Rule::DEFAULT;
    for vlans in 0..=3 {
        for tos in 0..=u8::MAX {
            let layout = Layout { bypass: 54 + 4 * vlans, values: 64 };
            let frame = [header(tos, vlans, layout.bypass), vec![0; 256]].concat();
            let mut out = vec![0; frame.len()];
            let len = encode_frame(&frame, layout, &mut out, &rule).unwrap().len;
            if tos & 0xfc == 0x28 && vlans <= 2 {
                assert_eq!(len, layout.bypass + 16);
            } else {
                assert_eq!(out, frame, "{tos:#04x} {vlans}");
            }
        }
    }
    // IPv6: the traffic class stands across two bytes.
    let mut frame = vec![0u8; 74 + 256];
    frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x62, 0x80]);
    let layout = Layout { bypass: 74, values: 64 };
    let mut out = vec![0; frame.len()];
    assert_eq!(encode_frame(&frame, layout, &mut out, &rule).map(|run| run.len), Ok(74 + 16));
    frame[15] = 0x40;
    assert_eq!(encode_frame(&frame, layout, &mut out, &rule).map(|run| run.len), Ok(frame.len()));
}

/// The manners of a test towards the pipeline.
#[derive(Clone, Copy, Debug)]
struct Manners {
    seed: u64,
    /// Out of 256: how often the source has a beat, and how often the sink is ready.
    source: u32,
    sink: u32,
    /// Beats within a frame may be short or empty, and a frame's end may come alone.
    ragged: bool,
}

impl Manners {
    /// A beat in every clock, taken in every clock.
    const PROMPT: Self = Self { seed: 0, source: 256, sink: 256, ragged: false };
}

fn manners() -> impl Strategy<Value = Manners> {
    let chances = prop::sample::select(vec![(256, 256), (30, 256), (256, 30), (128, 128)]);
    (any::<u64>(), chances, any::<bool>()).prop_map(|(seed, (source, sink), ragged)| Manners {
        seed,
        source,
        sink,
        ragged,
    })
}

/// Sends frames back to back through one direction; returns them with their faults.
fn send(
    frames: &[(Layout, Vec<u8>)],
    manners: Manners,
    mut clock: impl FnMut(Option<&Beat>, Layout, bool) -> Step,
) -> Vec<(Vec<u8>, Option<DecodeError>)> {
    let mut next = noise(manners.seed);
    let mut beats = Vec::new();
    for (layout, frame) in frames {
        let mut rest = &frame[..];
        let mut last = false;
        while !last {
            let len = if manners.ragged { next() as usize % (BURST_LEN + 1) } else { BURST_LEN };
            let (bytes, after) = rest.split_at(len.min(rest.len()));
            last = after.is_empty() && (!manners.ragged || next().is_multiple_of(2));
            beats.push((*layout, Beat::new(bytes, last)));
            rest = after;
        }
    }
    let (mut done, mut bytes, mut at, mut offered) = (Vec::new(), Vec::new(), 0, false);
    for _ in 0..100_000 {
        if done.len() == frames.len() && at == beats.len() {
            return done;
        }
        offered = offered || next() % 256 < manners.source;
        let (layout, beat) = match beats.get(at).filter(|_| offered) {
            Some((layout, beat)) => (*layout, Some(beat)),
            // Between beats the layout's wires carry anything.
            None => (Layout { bypass: next() as usize, values: next() as usize }, None),
        };
        let ready = next() % 256 < manners.sink;
        let step = clock(beat, layout, ready);
        assert!(step.beat.is_none() || ready, "given to a sink that was not ready");
        if step.taken {
            (at, offered) = (at + 1, false);
        }
        let Some(beat) = step.beat else { continue };
        assert!(beat.is_last() || beat.bytes().len() == BURST_LEN, "a short beat within a frame");
        assert!(beat.is_last() || step.fault.is_none(), "a fault within a frame");
        bytes.extend_from_slice(beat.bytes());
        if beat.is_last() {
            done.push((std::mem::take(&mut bytes), step.fault));
        }
    }
    panic!("{} of {} frames out, {at} of {} beats in", done.len(), frames.len(), beats.len());
}

/// Frames with and without the rule's type of service, the shortest headers cut within it; some
/// layouts promise more than the frame holds.
fn frames() -> impl Strategy<Value = Vec<(Layout, Vec<u8>)>> {
    let frame = (payload(70), 13usize..80, 0usize..40, 0usize..4, any::<bool>()).prop_map(
        |((_, values), bypass, tail, promise, tagged)| {
            let mut frame = header(if tagged { TOS } else { 0 }, 0, bypass);
            let layout = Layout {
                bypass: bypass + if promise == 2 { 100 } else { 0 },
                values: values.len() / 4 + if promise == 3 { 9 } else { 0 },
            };
            frame.extend(values);
            frame.extend((0..tail).map(|i| i as u8));
            (layout, frame)
        },
    );
    prop::collection::vec(frame, 1..5)
}

#[test]
fn beats_that_were_taken_and_have_not_left_are_inside() {
    let layout = Layout { bypass: 0, values: 16 };
    let [first, last] = [Beat::new(&[0xff; 32], false), Beat::new(&[0xff; 32], true)];
    let mut compressor = Compressor::new(Params::DEFAULT);
    assert!(compressor.is_idle());
    assert!(compressor.clock(Some(&first), layout, true).taken);
    assert!(!compressor.is_idle());
    assert!(compressor.clock(Some(&last), layout, true).taken);
    while !compressor.is_idle() {
        let _ = compressor.clock(None, layout, true);
    }
    let mut decompressor = Decompressor::new(Params::DEFAULT);
    assert!(decompressor.is_idle());
    assert!(decompressor.clock(Some(&first), layout, true).taken);
    assert!(!decompressor.is_idle());
}

proptest! {
    #![proptest_config(clocked_inputs::config())]

    #[test]
    fn late_beats_and_stalls_change_no_byte(
        params in params(),
        frames in frames(),
        out in manners(),
        back in manners(),
        filtered: bool,
    ) {
        let rule = Rule { profile: params.into(), ..Rule::DEFAULT };
        let (mut compressor, mut decompressor) = if filtered {
            (Compressor::for_frames(&rule), Decompressor::for_frames(&rule))
        } else {
            (Compressor::new(params), Decompressor::new(params))
        };
        // What the comparator makes of a layout.
        let seen = |layout: Layout, frame: &[u8]| {
            let tagged =
                matches!(frame.get(12..16), Some([0x08, 0x00, _, tos]) if tos & 0xfc == TOS & 0xfc);
            if filtered && !tagged { Layout { bypass: 0, values: 0 } } else { layout }
        };

        let wire = send(&frames, out, |beat, layout, ready| compressor.clock(beat, layout, ready));
        prop_assert!(compressor.is_idle());
        let mut coded = Vec::new();
        for ((layout, frame), (bytes, fault)) in frames.iter().zip(wire) {
            prop_assert_eq!(&bytes, &define_frame(frame, seen(*layout, frame), params));
            prop_assert_eq!(fault, None);
            coded.push((*layout, bytes));
        }

        // One frame is cut: the fault is its own, and the frames behind it are whole.
        let cut = back.seed as usize % coded.len();
        let keep = (back.seed >> 32) as usize % (coded[cut].1.len() + 1);
        coded[cut].1.truncate(keep);
        let restored = send(&coded, back, |beat, layout, ready| decompressor.clock(beat, layout, ready));
        prop_assert!(decompressor.is_idle());
        for ((layout, frame), (bytes, fault)) in coded.iter().zip(restored) {
            let layout = seen(*layout, frame);
            let (head, groups) = frame.split_at(layout.bypass.min(frame.len()));
            match define_decode(groups, 4 * layout.values, params) {
                Ok((len, values)) => {
                    prop_assert_eq!(bytes, [head, &values, &groups[len..]].concat());
                    prop_assert_eq!(fault, None);
                }
                Err(error) => prop_assert_eq!(fault, Some(error)),
            }
        }
    }
}

/// Clocks to encode these values, and to decode them again.
fn clocks(values: impl Iterator<Item = f32>) -> (Clocks, Clocks) {
    let mut values: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let mut groups = vec![0; codec::max_encoded_len(values.len())];
    let encoded = encode_payload(&values, &mut groups, Params::DEFAULT).unwrap();
    let decoded = decode_payload(&groups[..encoded.len], &mut values, Params::DEFAULT).unwrap();
    (encoded.clocks, decoded.clocks)
}

#[test]
fn zeros_take_one_clock_a_burst() {
    for bursts in [1, 2, 16, 45, 1000, 4096u64] {
        let (encode, decode) = clocks(repeat_n(0.0, bursts as usize * LANES));
        assert_eq!((encode.total, encode.stalls), (bursts + 3, 0));
        assert_eq!((encode.beats_in, encode.beats_out), (bursts, bursts.div_ceil(16)));
        assert_eq!(decode.total, bursts + 3);
        assert_eq!((decode.beats_in, decode.beats_out), (bursts.div_ceil(16), bursts));
    }
}

#[test]
fn raw_values_take_34_clocks_for_32_bursts() {
    for bursts in [16, 160, 1600, 16_000u64] {
        let (encode, decode) = clocks(repeat_n(1.5, bursts as usize * LANES));
        let beats = bursts * 34 / 32;
        assert_eq!((encode.beats_in, encode.beats_out), (bursts, beats));
        assert_eq!(encode.total, beats + 3);
        assert_eq!((decode.beats_in, decode.beats_out), (beats, bursts));
        assert_eq!((decode.total, decode.stalls), (beats + 3, 0));
    }
}

#[test]
fn a_payload_of_1448_bytes_takes_49_to_53_clocks() {
    // All zero, byte, half and raw: 46 bursts, and beats on the wire.
    for (value, wire_beats, total) in [(0.0, 3, 49), (0.004, 15, 49), (0.3, 26, 49), (1.5, 49, 52)] {
        let (encode, decode) = clocks(repeat_n(value, 362));
        assert_eq!((encode.beats_in, encode.beats_out, encode.total), (46, wire_beats, total));
        assert_eq!((decode.beats_in, decode.beats_out, decode.total), (wire_beats, 46, total));
    }
    let mut next = noise(6);
    for raw_of_8 in (0..=8).cycle().take(3000) {
        // Runs of raw values among others, so that the pipeline fills and runs dry.
        let mut raw = false;
        let (encode, decode) = clocks(repeat_n((), 362).map(|()| {
            if next().is_multiple_of(16) {
                raw = next() % 8 < raw_of_8;
            }
            if raw { 1.5 } else { [0.0, 0.004, 0.3][next() as usize % 3] }
        }));
        assert!((49..=53).contains(&encode.total) && (49..=53).contains(&decode.total));
    }
}

#[test]
fn frames_back_to_back_take_49_clocks_each() {
    // 66 bytes of Ethernet, IPv4 and TCP headers: 48 beats; two bursts and two bytes bypassed, 46
    // bursts coded.
    let layout = Layout { bypass: 66, values: 362 };
    let frame = [header(TOS, 0, 66), vec![0; 1448]].concat();
    let wire = define_frame(&frame, layout, Params::DEFAULT);
    let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
    for count in [1, 2, 100] {
        let mut compressor = Compressor::for_frames(&Rule::DEFAULT);
        let mut decompressor = Decompressor::for_frames(&Rule::DEFAULT);
        let frames = vec![(layout, frame.clone()); count];
        send(&frames, Manners::PROMPT, |beat, layout, ready| compressor.clock(beat, layout, ready));
        let wires = vec![(layout, wire.clone()); count];
        send(&wires, Manners::PROMPT, |beat, layout, ready| decompressor.clock(beat, layout, ready));
        encoded.push(compressor.clocks().total);
        decoded.push(decompressor.clocks().total);
    }
    assert_eq!(encoded, [52, 101, 4903]);
    assert_eq!(decoded, [52, 101, 4903]);
}

#[test]
fn a_beat_leaves_three_clocks_after_it_came() {
    let layout = Layout { bypass: 0, values: 8 };
    let mut compressor = Compressor::new(Params::DEFAULT);
    for _ in 0..5 {
        let _ = compressor.clock(None, layout, true);
    }
    assert_eq!(compressor.clocks(), Clocks { total: 5, ..Clocks::default() });
    let step = compressor.clock(Some(&Beat::new(&[0; 32], true)), layout, false);
    assert!(step.taken && step.beat.is_none());
    for _ in 0..9 {
        assert_eq!(compressor.clock(None, layout, false).beat, None);
    }
    // Two clocks on the way, seven in which it waited.
    let held = Clocks { total: 15, busy: 10, beats_in: 1, waits: 7, ..Clocks::default() };
    assert_eq!(compressor.clocks(), held);
    assert_eq!(compressor.clock(None, layout, true).beat, Some(Beat::new(&[0, 0], true)));
    assert!(compressor.is_idle());
}
