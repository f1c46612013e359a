//! Values to groups.

use gradwire::codec::{Class, LANES, Lane, MAX_GROUP_LEN, Params, VALUE_LEN};
use gradwire::rules::Rule;

use super::aligner::Parcel;
use super::blocks::compression_block;
use super::intake::{Front, Intake};
use super::pipeline::{Pipeline, params_of};
use super::{Beat, Clocks, Layout, Step};

/// The sending direction: bytes before the first value and after the last leave as they came, eight
/// values leave as a group, all as one stream of full beats.
///
/// - One burst enters per clock while the groups are 32 bytes or shorter on average; 34-byte groups
///   stall the source in one clock of 17.
/// - A burst leaves three clocks after it was taken, at the earliest.
/// - A frame that ends before its layout says: the whole values that are there are coded, the rest
///   is bypassed.
///
/// Source: FORMAT.md §4; Li et al., MICRO 2018 (doi:10.1109/MICRO.2018.00023).
#[derive(Clone, Debug)]
pub struct Compressor {
    pipeline: Pipeline,
    params: Params,
}

impl Compressor {
    /// A compressor for bare payloads: no ToS is compared.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self { pipeline: Pipeline::new(None), params }
    }

    /// A compressor for Ethernet frames: those that do not match the rule's type of service are
    /// bypassed whole, and all if the rule's codec is not codec 1: these blocks speak no other.
    #[must_use]
    pub fn for_frames(rule: &Rule) -> Self {
        Self { pipeline: Pipeline::new(Some(rule)), params: params_of(rule) }
    }

    /// One clock: `input` is offered, and `ready` says whether the sink takes a beat. `layout` is
    /// read with a frame's first beat.
    ///
    /// A beat that was not taken has to be offered again.
    pub fn clock(&mut self, input: Option<&Beat>, layout: Layout, ready: bool) -> Step {
        let params = self.params;
        self.pipeline.clock(input, layout, ready, |intake| compress(intake, params))
    }

    /// Nothing is inside; every frame that was taken has left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pipeline.is_idle()
    }

    /// The use of the clocks so far.
    #[must_use]
    pub const fn clocks(&self) -> Clocks {
        self.pipeline.clocks()
    }
}

/// The blocks between the burst buffer and the alignment unit.
fn compress(intake: &mut Intake, params: Params) -> Option<Parcel> {
    intake.clip_values();
    let (mut parcel, over) = match intake.front() {
        Front::Wait => return None,
        Front::Bypass(len) => (Parcel::copy_of(intake.bytes().get(..len)?), intake.pass(len)),
        Front::Payload(lanes) => {
            let len = lanes * VALUE_LEN;
            let (values, _) = intake.bytes().get(..len)?.as_chunks::<VALUE_LEN>();
            // A lane without a value: its block's output is forced to class zero.
            let mut coded = [Lane { class: Class::Zero, vector: 0 }; LANES];
            for (lane, value) in coded.iter_mut().zip(values) {
                *lane = compression_block(u32::from_le_bytes(*value), params);
            }
            (shifter_tree(coded), intake.take(len, lanes))
        }
    };
    parcel.end = over.then_some(Ok(()));
    Some(parcel)
}

/// Concatenates eight vectors of 0 to 32 bits, pair by pair, behind their tags.
fn shifter_tree(lanes: [Lane; LANES]) -> Parcel {
    let tags = lanes.iter().rev().fold(0u16, |tags, lane| tags << 2 | lane.class as u16);

    // Each level: the upper vector is shifted up by the length of the lower one.
    let [a, b, c, d, e, f, g, h] =
        lanes.map(|lane| (u64::from(lane.vector), 8 * lane.class.vector_len() as u32));
    let two = |low: (u64, u32), high: (u64, u32)| (u128::from(low.0 | high.0 << low.1), low.1 + high.1);
    let four = |low: (u128, u32), high: (u128, u32)| (low.0 | high.0 << low.1, (low.1 + high.1) as usize / 8);
    let (low, low_len) = four(two(a, b), two(c, d));
    let (high, high_len) = four(two(e, f), two(g, h));

    // The last level, with the tag vector in front; every length is whole bytes.
    let mut bytes = [0; MAX_GROUP_LEN];
    place(&mut bytes, 0, &tags.to_le_bytes());
    place(&mut bytes, 2, &low.to_le_bytes());
    place(&mut bytes, 2 + low_len, &high.to_le_bytes());
    Parcel::new(bytes, 2 + low_len + high_len)
}

/// Writes `part` at byte `at`; it always fits: 2, 18 and at most 34 bytes.
fn place(bytes: &mut [u8; MAX_GROUP_LEN], at: usize, part: &[u8]) {
    if let Some(room) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..part.len())) {
        room.copy_from_slice(part);
    }
}
