//! Instructions, counted by the processor: exact under QEMU's `-icount shift=0`, whatever the
//! machine.
//!
//! A line `count NAME INSTRUCTIONS UNITS`: so many instructions for so many values, or frames.

use core::hint::black_box;

use gradwire::aggregate::{Peer, Settings};
use gradwire::codec::Params;
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::{Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::kernels::{Kernel, Unsummable};
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, Framing, Heuristic, Rule, Rules};
use gradwire::sums::{BLOCK_LEN, BLOCK_VALUES, Summable, limit, value_of};
use gradwire::verdict::Verdict;
use gradwire::wire::chunk::{Blocks, Body, Head, Limits, NO_COOKIE, PORT, Packet, Part, TOS};
use riscv::register::minstret;
use softcore::aggregation::{IP, LIMITS, MAC, SoftAggregator, settings};

use crate::golden::{set_lengths_and_checksums, sum};
use crate::say;

/// Gradients of an MLP, as a file of `numpy` holds them.
static RECORDING: &[u8] = include_bytes!("../../../../testbench/recordings/hdc256_i0040_w0.npy");

/// Bytes of values in a usual TCP segment, with timestamps.
const PAYLOAD: usize = 1448;
/// Ethernet, IPv4, TCP with timestamps.
const HEADERS: usize = 14 + 20 + 32;
const FRAME: usize = HEADERS + PAYLOAD;

/// The place of a frame in memory: its IP header on a word, as in the firmware's buffers.
#[repr(C, align(4))]
struct Aligned([u8; FRAME + 8]);

/// The recorded values, a payload at a time.
fn recorded() -> impl Iterator<Item = &'static [u8; PAYLOAD]> {
    // Version 1 of the format: magic number, version, length of the header, header.
    let header = 10 + usize::from(u16::from_le_bytes([RECORDING[8], RECORDING[9]]));
    RECORDING[header..].as_chunks::<PAYLOAD>().0.iter()
}

fn counted<T>(f: impl FnOnce() -> T) -> (u64, T) {
    let before = minstret::read64();
    let result = f();
    (minstret::read64() - before, result)
}

/// Encoding and decoding of payloads at all distances from a word, with both codecs and the same
/// bound.
pub(crate) fn payloads() {
    let bit_plane = Bound::new(-10).unwrap();
    for (of, profile) in [("value", Profile::from(Params::DEFAULT)), ("bit-plane-value", bit_plane.into())] {
        for kernel in [Kernel::SCALAR32, Kernel::PORTABLE] {
            for offset in 0..4 {
                let mut values = Aligned([0; FRAME + 8]);
                let mut coded = [0; PAYLOAD + 2 * PAYLOAD.div_ceil(32)];
                let (mut encode, mut decode, mut units) = (0, 0, 0);
                for payload in recorded() {
                    let values = &mut values.0[offset..][..PAYLOAD];
                    values.copy_from_slice(payload);
                    let (count, len) = counted(|| kernel.encode(values, &mut coded, profile));
                    encode += count;
                    let coded = &coded[..len.unwrap()];
                    let (count, used) = counted(|| kernel.decode(coded, values, profile));
                    decode += count;
                    assert_eq!(used, Ok(coded.len()));
                    units += PAYLOAD as u64 / 4;
                }
                let name = kernel.name();
                say(format_args!("count {name},encode,{of},{offset} {encode} {units}"));
                say(format_args!("count {name},decode,{of},{offset} {decode} {units}"));
            }
        }
    }
}

/// An aggregator's work on blocks, checksums included: adds them to sums, and encodes the results
/// of four. And the whole aggregator's work for a chunk.
pub(crate) fn sums() {
    let classes = Profile::from(Params::DEFAULT).try_into().unwrap();
    let bit_plane = Bound::new(-10).unwrap().into();
    for (of, profile) in [("block", classes), ("bit-plane-block", bit_plane)] {
        blocks_of(of, profile);
    }
    for (of, profile) in [("chunk", classes), ("bit-plane-chunk", bit_plane)] {
        chunks_of(of, "copies", profile, settings(1));
        chunks_of(of, "group", profile, Settings { group: Some([239, 255, 0, 9]), ..settings(1) });
    }
}

/// The recorded values, a block at a time.
fn recorded_blocks() -> &'static [[u8; BLOCK_LEN]] {
    let header = 10 + usize::from(u16::from_le_bytes([RECORDING[8], RECORDING[9]]));
    RECORDING[header..].as_chunks().0
}

fn blocks_of(of: &str, profile: Summable) {
    let kernel = Kernel::detect();
    let blocks = recorded_blocks();
    let (mut add, mut encode, mut added, mut encoded) = (0, 0, 0, 0);
    for four in blocks.as_chunks::<4>().0 {
        let mut sums = [0; BLOCK_VALUES];
        // On a word, as in a packet.
        let mut aligned = Aligned([0; FRAME + 8]);
        let code = &mut aligned.0;
        for block in four {
            let mut values = Aligned([0; FRAME + 8]);
            values.0[..BLOCK_LEN].copy_from_slice(block);
            let len = kernel.encode(&values.0[..BLOCK_LEN], code, profile.profile()).unwrap();
            let code = &code[..len];
            let mut units = [0; BLOCK_VALUES];
            let (count, is_added) = counted(|| {
                let _ = black_box(kernel.sum(code));
                if let Some(adder) = kernel.adder(profile, limit(4)) {
                    let codes = adder.codes(code, BLOCK_VALUES);
                    return codes.is_some_and(|mut codes| codes.add(&mut sums) == Unsummable::default());
                }
                let used = kernel.decode_units(code, &mut units, profile, limit(4));
                used == Some(len) && kernel.add(&units, &mut sums) == Unsummable::default()
            });
            assert!(is_added);
            (add, added) = (add + count, added + BLOCK_VALUES as u64);
        }
        let (count, len) = counted(|| {
            let len = kernel.encode_result(&sums, code, profile)?;
            let _ = black_box(kernel.sum(code.get(..len)?));
            Some(len)
        });
        let mut again = [0; BLOCK_VALUES];
        assert_eq!(kernel.decode_result(&code[..len.unwrap()], &mut again, profile), len);
        let is_restored = |(sum, again)| profile.restored(sum) == value_of(again, profile.unit());
        assert!(sums.into_iter().zip(again).all(is_restored));
        (encode, encoded) = (encode + count, encoded + BLOCK_VALUES as u64);
    }
    let name = kernel.name();
    say(format_args!("count {name},add,{of},0 {add} {added}"));
    say(format_args!("count {name},sums,{of},0 {encode} {encoded}"));
}

/// Frames of four workers in, and the result out: a copy for each, or one for their group. A frame
/// has a whole chunk.
fn chunks_of(of: &str, how: &str, profile: Summable, settings: Settings<Peer>) {
    const BLOCKS: usize = LIMITS.blocks as usize;
    let kernel = Kernel::SCALAR32;
    let mut aggregator = SoftAggregator::new(MAC, IP, settings);
    let head = |seq| Head { job: 1, epoch: 1, seq };
    let mut frame = Aligned([0; FRAME + 8]);
    let mut out = Aligned([0; FRAME + 8]);
    for child in 0..4 {
        let mut cookie = NO_COOKIE;
        for _ in 0..2 {
            let limits = Limits::MOST;
            let body =
                Body::Hello { child, children: 4, total: 4, is_aggregator: false, limits, key: 1, cookie };
            let frame = make_datagram(&mut frame.0[2..], child, Packet { head: head(0), body });
            aggregator.process(frame, Millis(0));
            assert!(aggregator.emit(&mut out.0[2..]).is_some());
            cookie.copy_from_slice(&out.0[2 + 42 + 14..][..6]);
        }
    }
    let (mut instructions, mut values) = (0, 0);
    let parts = recorded_blocks().as_chunks::<BLOCKS>().0;
    for (seq, four) in (0..).zip(parts.as_chunks::<4>().0) {
        for (child, blocks) in (0..).zip(four) {
            let mut sections = [0; BLOCKS * 1024];
            let mut len = 0;
            for block in blocks {
                let mut values = Aligned([0; FRAME + 8]);
                values.0[..BLOCK_LEN].copy_from_slice(block);
                len +=
                    kernel.encode(&values.0[..BLOCK_LEN], &mut sections[len..], profile.profile()).unwrap();
            }
            let blocks = Blocks::new(BLOCKS * BLOCK_VALUES, 0, BLOCKS).unwrap();
            let part = Part { blocks, peak: 0, profile, sections: &sections[..len] };
            let packet = Packet { head: head(seq), body: Body::Contribute { child, part } };
            let frame = make_datagram(&mut frame.0[2..], child, packet);
            let (count, sent) = counted(|| {
                aggregator.process(frame, Millis(0));
                let mut sent = 0;
                while aggregator.emit(&mut out.0[2..]).is_some() {
                    sent += 1;
                }
                sent
            });
            // The last one completes the chunk.
            let results = if settings.group.is_some() { 1 } else { 4 };
            assert_eq!(sent, if child == 3 { results } else { 0 });
            (instructions, values) = (instructions + count, values + (BLOCKS * BLOCK_VALUES) as u64);
        }
    }
    say(format_args!("count {},aggregator,{of},{how} {instructions} {values}", kernel.name()));
}

/// A packet from a worker's frame to the aggregator, as long as it is.
fn make_datagram<'a>(frame: &'a mut [u8], child: u8, packet: Packet<'_>) -> &'a [u8] {
    let len = packet.write(&mut frame[42..]).unwrap();
    let frame = &mut frame[..42 + len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 1, child, 8, 0]);
    let [l0, l1] = (8 + len as u16).to_be_bytes();
    let [t0, t1] = (28 + len as u16).to_be_bytes();
    let header = [0x45, TOS, t0, t1, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 100 + child, 10, 0, 0, 9];
    frame[14..34].copy_from_slice(&header);
    let field = !sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&field.to_be_bytes());
    let [p0, p1] = PORT.to_be_bytes();
    frame[34..42].copy_from_slice(&[0x0f, 0xa0, p0, p1, l0, l1, 0, 0]);
    let pseudo = u32::from(sum(&frame[26..34], 0)) + 17 + 8 + len as u32;
    let field = !sum(&frame[34..], pseudo);
    frame[40..42].copy_from_slice(&field.to_be_bytes());
    frame
}

/// Whole frames, from parsing to checksums, with the firmware's kernel.
pub(crate) fn frames() {
    for (name, tos, framing) in [
        ("routed", 0x28, Framing::Routed),
        ("in-place", 0x28, Framing::InPlace),
        ("untagged", 0, Framing::Routed),
    ] {
        let kernel = Kernel::detect();
        let rules =
            Rules::new(&[Rule { framing, heuristic: Heuristic::Off, ..Rule::STATIC }], DEFAULT_MARK).unwrap();
        let mut egress = Egress::<2>::new(rules.clone(), kernel, 1500, 1);
        let mut ingress = Ingress::new(rules, kernel, 1500);
        // Two bytes before the frame, so that its IP header lies on a word.
        let (mut host, mut wire, mut out) =
            (Aligned([0; FRAME + 8]), Aligned([0; FRAME + 8]), Aligned([0; FRAME + 8]));
        let frame = &mut host.0[2..2 + FRAME];
        make_headers(frame, tos);
        let (mut seq, mut sent, mut received, mut units) = (1000u32, 0, 0, 0);
        write_segment(frame, seq.wrapping_sub(1), 2, &[]);
        let _ = egress.process(&frame[..HEADERS], &mut wire.0[2..], Millis(0), &NO_CAPABILITIES);
        for payload in recorded() {
            write_segment(frame, seq, 0x10, payload);
            seq = seq.wrapping_add(PAYLOAD as u32);
            let (count, verdict) =
                counted(|| egress.process(frame, &mut wire.0[2..], Millis(0), &NO_CAPABILITIES));
            sent += count;
            let on_wire = match verdict {
                Verdict::Changed { len, .. } => &wire.0[2..2 + len],
                _ => &*frame,
            };
            let (count, verdict) = counted(|| ingress.process(on_wire, &mut out.0[2..], &NO_CAPABILITIES));
            received += count;
            assert_eq!(matches!(verdict, Verdict::Changed { .. }), tos != 0, "{name}");
            units += 1;
        }
        say(format_args!("count {},egress,frame,{name} {sent} {units}", kernel.name()));
        say(format_args!("count {},ingress,frame,{name} {received} {units}", kernel.name()));
    }
}

fn make_headers(frame: &mut [u8], tos: u8) {
    frame[12] = 0x08;
    let ip = &mut frame[14..];
    ip[..2].copy_from_slice(&[0x45, tos]);
    ip[8..20].copy_from_slice(&[64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let tcp = &mut frame[34..];
    tcp[..4].copy_from_slice(&[0x9c, 0x40, 0x15, 0x18]);
    // 32 bytes long; timestamps behind two no-operations (RFC 7323).
    tcp[12] = 0x80;
    tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
}

/// Sequence number, flags, payload, and what follows from them. Without a payload the segment ends
/// at the headers.
fn write_segment(frame: &mut [u8], seq: u32, flags: u8, payload: &[u8]) {
    frame[38..42].copy_from_slice(&seq.to_be_bytes());
    frame[47] = flags;
    frame[HEADERS..HEADERS + payload.len()].copy_from_slice(payload);
    set_lengths_and_checksums(&mut frame[..HEADERS + payload.len()], 14, 34);
}
