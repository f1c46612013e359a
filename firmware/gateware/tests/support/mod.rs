//! Helpers that the tests of the engines share: random inputs, and what the clocked model makes of
//! them.

#![allow(dead_code, reason = "each test program uses its part")]

use gradwire::codec::Params;
use gradwire_gateware::{Batch, Coding, Design, Frame, Outcome, Pauses, Simulation};
use gradwire_gateware_model::{Beat, Compressor, Decompressor, Layout, Step};

/// xorshift64*: small, and the same everywhere.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// 0 to `end - 1`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u64::from(self.next()) * end as u64) >> 32) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Any parameters, and often the default ones.
    pub(crate) fn params(&mut self) -> Params {
        if self.one_in(4) {
            return Params::DEFAULT;
        }
        let b = 1 + self.below(14) as u8;
        let least = b.saturating_sub(7);
        let k = least + self.below(usize::from(b - least) + 1) as u8;
        let x = (self.below(208) as i32 - 80) as i8;
        Params::from_exponents(b, k, x).unwrap()
    }

    /// Values of one of eight kinds. `recorded` has some of real gradients.
    pub(crate) fn values(&mut self, count: usize, params: Params, recorded: &[u8]) -> Vec<u8> {
        let kind = self.below(8);
        if kind == 0 && recorded.len() >= 4 * count + 4 {
            let at = 4 * self.below(recorded.len() / 4 - count);
            return recorded[at..at + 4 * count].to_vec();
        }
        let raw_from = (127 + i32::from(params.x())) as u32;
        let mut value = || {
            let bits = self.next();
            // An exponent from 17 below the raw class to 2 above it, so that all classes and their
            // borders come up.
            let near = (raw_from + 2).saturating_sub(self.below(20) as u32).min(255);
            match kind {
                1 => bits,
                2 => 0,
                3 => bits & 0x8000_0000 | 0x7f00_0000 | bits & 0x00ff_ffff,
                // At the borders of significands too.
                4 => bits & 0x8000_0000 | near << 23 | if bits & 1 == 0 { 0 } else { 0x007f_ffff },
                // Mostly one class, so that groups are of one length.
                5 if bits & 7 != 0 => bits & 0x807f_ffff | raw_from.saturating_sub(1) << 23,
                6 if bits & 7 != 0 => 0,
                // Subnormals, infinities and what is not a number.
                7 => bits & 0x807f_ffff | [0, 255, near][(bits % 3) as usize] << 23,
                _ => bits & 0x807f_ffff | near << 23,
            }
        };
        (0..count).flat_map(|_| value().to_le_bytes()).collect()
    }
}

/// A frame that was made up, and how it is coded.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) bytes: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) params: Params,
    pub(crate) empty_last: bool,
}

impl Case {
    pub(crate) fn frame(&self) -> Frame {
        let (bypass, values) = (self.layout.bypass as u16, self.layout.values as u16);
        let (b, k, x) = (self.params.b(), self.params.k(), self.params.x());
        let user = Coding { bypass, values, b, k, x }.user();
        Frame { port: 0, user, bytes: self.bytes.clone(), empty_last: self.empty_last }
    }

    /// Bursts of values that the layout promises and the bytes can hold.
    pub(crate) fn bursts(&self) -> usize {
        self.layout.values.min(self.bytes.len().div_ceil(2)).div_ceil(8)
    }
}

/// A header of up to 130 bytes, some of them whole beats, and a tail.
fn around(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let header = match random.below(6) {
        0 => 0,
        1 => 32 * random.below(4),
        2 => 66,
        3 => random.below(4),
        _ => random.below(131),
    };
    let tail = if random.one_in(2) { 0 } else { random.below(70) };
    (random.bytes(header), random.bytes(tail))
}

/// The number of values: often those of a frame, sometimes as many as a jumbo frame has, sometimes
/// next to none.
fn count(random: &mut Random) -> usize {
    match random.below(8) {
        0 => random.below(10),
        1 => random.below(2250),
        2 | 3 => 362,
        _ => random.below(400),
    }
}

/// A frame for the compressor; one in eight has a layout that is not its own.
pub(crate) fn to_compress(random: &mut Random, recorded: &[u8]) -> Case {
    let params = random.params();
    let (header, tail) = around(random);
    let values = count(random);
    let payload = random.values(values, params, recorded);
    let mut layout = Layout { bypass: header.len(), values };
    if random.one_in(8) {
        lie(&mut layout, random);
    }
    Case { bytes: [header, payload, tail].concat(), layout, params, empty_last: random.one_in(3) }
}

fn lie(layout: &mut Layout, random: &mut Random) {
    match random.below(7) {
        0 => layout.bypass = random.below(3000),
        1 => layout.bypass = random.below(0x1_0000),
        2 => layout.values = random.below(3000),
        3 => layout.values = random.below(0x1_0000),
        4 => layout.bypass = 0xffff - random.below(8),
        5 => layout.values = 0xffff - random.below(8),
        _ => layout.values = 0,
    }
}

/// A frame for the decompressor: what the model's compressor gave, and of two in five something
/// else.
pub(crate) fn to_decompress(random: &mut Random, recorded: &[u8]) -> Case {
    let mut case = to_compress(random, recorded);
    case.bytes = compress(&case);
    let len = case.bytes.len();
    let from = case.layout.bypass.min(len);
    match random.below(15) {
        0 => case.bytes.truncate(random.below(len + 1)),
        1 => {
            let more = random.below(80);
            case.bytes.extend(random.bytes(more));
        }
        2 if len > 0 => {
            let at = random.below(len);
            case.bytes[at] ^= 1 << random.below(8);
        }
        3 => case.bytes[from..].iter_mut().for_each(|byte| *byte = random.next() as u8),
        4 => case.bytes[from..].fill(0xff),
        5 => lie(&mut case.layout, random),
        _ => {}
    }
    case
}

/// Clocks a frame through a model until its last beat: the bytes, and whether it was refused.
fn drive(bytes: &[u8], mut clock: impl FnMut(Option<&Beat>) -> Step) -> (Vec<u8>, bool) {
    let mut chunks = bytes.chunks(32).peekable();
    let mut beat = Some(match chunks.next() {
        Some(first) => Beat::new(first, chunks.peek().is_none()),
        None => Beat::new(&[], true),
    });
    let mut out = Vec::new();
    loop {
        let step = clock(beat.as_ref());
        if step.taken {
            beat = chunks.next().map(|next| Beat::new(next, chunks.peek().is_none()));
        }
        if let Some(given) = step.beat {
            out.extend_from_slice(given.bytes());
            if given.is_last() {
                return (out, step.fault.is_some());
            }
        }
    }
}

/// The output of the model's compressor for a case.
pub(crate) fn compress(case: &Case) -> Vec<u8> {
    let mut model = Compressor::new(case.params);
    drive(&case.bytes, |beat| model.clock(beat, case.layout, true)).0
}

/// The output of the model's decompressor for a case; none if it refuses.
pub(crate) fn decompress(case: &Case) -> Option<Vec<u8>> {
    let mut model = Decompressor::new(case.params);
    let (bytes, refused) = drive(&case.bytes, |beat| model.clock(beat, case.layout, true));
    (!refused).then_some(bytes)
}

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Compressor,
    Decompressor,
}

impl Engine {
    pub(crate) const BOTH: [Self; 2] = [Self::Compressor, Self::Decompressor];

    pub(crate) fn design(self) -> Design {
        Design::new(match self {
            Self::Compressor => "gw_compressor",
            Self::Decompressor => "gw_decompressor",
        })
    }

    pub(crate) fn case(self, random: &mut Random, recorded: &[u8]) -> Case {
        match self {
            Self::Compressor => to_compress(random, recorded),
            Self::Decompressor => to_decompress(random, recorded),
        }
    }

    pub(crate) fn expected(self, case: &Case) -> Option<Vec<u8>> {
        match self {
            Self::Compressor => Some(compress(case)),
            Self::Decompressor => decompress(case),
        }
    }
}

/// Six mixes of pauses.
pub(crate) const PAUSES: [Pauses; 6] = [
    Pauses::NONE,
    Pauses { source: 64, source_longest: 2, sink: 0, sink_longest: 1 },
    Pauses { source: 0, source_longest: 1, sink: 64, sink_longest: 2 },
    Pauses { source: 100, source_longest: 3, sink: 100, sink_longest: 3 },
    Pauses { source: 8, source_longest: 90, sink: 8, sink_longest: 90 },
    Pauses { source: 220, source_longest: 9, sink: 20, sink_longest: 200 },
];

/// The difference of an outcome from the model; `Ok` has the number of frames that both refused.
pub(crate) fn compare(engine: Engine, cases: &[Case], outcome: &Outcome) -> Result<usize, String> {
    if !outcome.broken.is_empty() {
        return Err(outcome.broken.clone());
    }
    if outcome.frames.len() != cases.len() {
        return Err(format!("{} frames in, {} out", cases.len(), outcome.frames.len()));
    }
    let mut refused = 0;
    for (n, (case, got)) in cases.iter().zip(&outcome.frames).enumerate() {
        let what = || {
            let (layout, params, len) = (case.layout, case.params, case.bytes.len());
            format!("frame {n} of {len} bytes, {layout:?}, {params:?}")
        };
        let is_refused = got.user & gradwire_gateware::REFUSED != 0;
        match engine.expected(case) {
            None if is_refused => refused += 1,
            None => return Err(format!("{}: not refused", what())),
            Some(_) if is_refused => return Err(format!("{}: refused", what())),
            Some(expected) if expected != got.bytes => {
                let at = expected.iter().zip(&got.bytes).take_while(|(a, b)| a == b).count();
                let (a, b) = (expected.len(), got.bytes.len());
                return Err(format!("{}: byte {at} differs; {a} bytes expected, {b} came", what()));
            }
            Some(_) => {}
        }
    }
    Ok(refused)
}

/// Cases that chance would take long to find, for the decompressor: every truncation of some
/// frames, which end anywhere in a cell, and every bit of an absent lane's tag.
fn borders() -> Vec<Case> {
    let mut random = Random::new(5);
    let params = Params::DEFAULT;
    let whole = |header: usize, payload: Vec<u8>| {
        let layout = Layout { bypass: header, values: payload.len() / 4 };
        let bytes = [vec![0x28; header], payload].concat();
        let mut case = Case { bytes, layout, params, empty_last: false };
        case.bytes = compress(&case);
        case
    };
    let mut cases = Vec::new();
    for header in [0, 1, 31, 32, 47] {
        let raw = whole(header, [0x7f; 4 * 24].to_vec());
        let mixed = random.bytes(4 * 24);
        // Groups of two bytes, one of which ends with a cell.
        let zeros = whole(header, vec![0; 4 * 8 * 16]);
        for case in [raw, zeros, whole(header, mixed)] {
            let cut = |len| Case { bytes: case.bytes[..len].to_vec(), ..case.clone() };
            cases.extend((0..=case.bytes.len()).map(cut));
        }
    }
    for lanes in 1..8 {
        // All values are zero, so the last group is its tag vector, and the frame's last two bytes.
        let case = whole(66, vec![0; 4 * (8 + lanes)]);
        for bit in 2 * lanes..16 {
            let mut case = case.clone();
            let at = case.bytes.len() - 2 + bit / 8;
            case.bytes[at] |= 1 << (bit % 8);
            // The group is whole, so that the tag alone is wrong.
            case.bytes.extend([0; 4]);
            cases.push(case);
        }
    }
    cases
}

/// Sends border cases and then random frames through an engine until so many bursts went in, and
/// compares them: frames, and those that were refused.
pub(crate) fn verify(
    simulation: &mut Simulation,
    engine: Engine,
    seed: u64,
    bursts: usize,
    recorded: &[u8],
) -> Result<(usize, usize), String> {
    let mut random = Random::new(seed);
    let (mut done, mut frames, mut refused) = (0, 0, 0);
    if engine == Engine::Decompressor {
        for cases in borders().chunks(100) {
            let outcome = simulation.run(&Batch::of(cases.iter().map(Case::frame).collect()));
            compare(engine, cases, &outcome.map_err(|error| error.to_string())?)?;
        }
    }
    while done < bursts {
        let cases: Vec<Case> = (0..100).map(|_| engine.case(&mut random, recorded)).collect();
        let batch = Batch {
            pauses: PAUSES[random.below(PAUSES.len())],
            seed: u64::from(random.next()),
            noise: true,
            ..Batch::of(cases.iter().map(Case::frame).collect())
        };
        let outcome = simulation.run(&batch).map_err(|error| error.to_string())?;
        refused += compare(engine, &cases, &outcome)?;
        frames += cases.len();
        done += cases.iter().map(Case::bursts).sum::<usize>();
    }
    Ok((frames, refused))
}

/// The values of the recordings in the repository.
pub(crate) fn recorded() -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbench/recordings");
    let names = ["cnn_i0300_w0", "hdc256_i0040_w0", "lm_i0950_w0", "resnet_i0010_w0"];
    let read = |name: &str| std::fs::read(folder.join(format!("{name}.npy"))).unwrap();
    // The header of an array ends at a multiple of 64, and its length is in bytes 8 and 9.
    let values = |file: Vec<u8>| file[10 + usize::from(u16::from_le_bytes([file[8], file[9]]))..].to_vec();
    names.iter().flat_map(|name| values(read(name))).collect()
}

/// The tagged TCP frames of a capture in the repository that have payload, as if each payload were
/// values from its first byte on. A reader of its own: classic pcap, little-endian, Ethernet, IPv4
/// without VLAN tags.
pub(crate) fn captured(name: &str) -> Vec<Case> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbench/recordings");
    let file = std::fs::read(folder.join(format!("{name}.pcap"))).unwrap();
    let mut rest = &file[24..];
    let mut cases = Vec::new();
    while let Some((head, more)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let (frame, more) = more.split_at(len);
        rest = more;
        if frame[12..14] != [0x08, 0x00] || frame[15] & 0xfc != 0x28 || frame[23] != 6 {
            continue;
        }
        let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let tcp = 14 + usize::from(frame[14] & 15) * 4;
        let bypass = tcp + usize::from(frame[tcp + 12] >> 4) * 4;
        if bypass < end {
            let layout = Layout { bypass, values: (end - bypass) / 4 };
            cases.push(Case { bytes: frame.to_vec(), layout, params: Params::DEFAULT, empty_last: false });
        }
    }
    cases
}
