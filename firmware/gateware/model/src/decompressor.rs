//! Groups to values.

use gradwire::codec::{Class, DecodeError, LANES, Lane, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN};
use gradwire::rules::Rule;

use super::aligner::Parcel;
use super::blocks::decompression_block;
use super::intake::{Front, Intake};
use super::pipeline::{Pipeline, params_of};
use super::{Beat, Clocks, Layout, Step};

/// The receiving direction: a group becomes eight values; bytes before the first group and after
/// the last leave as they came, all as one stream of full beats.
///
/// - One burst leaves per clock while the buffer holds a whole group: the source waits if groups
///   are short; 34-byte groups need 17 clocks for 16 bursts.
/// - A burst leaves three clocks after the last byte of its group was taken, at the earliest.
/// - A frame whose groups cannot be decoded ends early, its last beat with a fault; the rest of it
///   is taken and thrown away. Offsets in the fault count from the first group.
///
/// Source: FORMAT.md §4; Li et al., MICRO 2018 (doi:10.1109/MICRO.2018.00023).
#[derive(Clone, Debug)]
pub struct Decompressor {
    pipeline: Pipeline,
    params: Params,
}

impl Decompressor {
    /// A decompressor for bare groups: no ToS is compared.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self { pipeline: Pipeline::new(None), params }
    }

    /// A decompressor for Ethernet frames: those that do not match the rule's type of service are
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
        self.pipeline.clock(input, layout, ready, |intake| decompress(intake, params))
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

    /// Bytes of groups decoded since the first beat of the frame that was begun last.
    #[must_use]
    pub const fn groups_len(&self) -> usize {
        self.pipeline.intake.coded()
    }
}

/// The blocks between the burst buffer and the alignment unit.
fn decompress(intake: &mut Intake, params: Params) -> Option<Parcel> {
    let (mut parcel, over) = match intake.front() {
        Front::Wait => return None,
        Front::Bypass(len) => (Parcel::copy_of(intake.bytes().get(..len)?), intake.pass(len)),
        Front::Payload(lanes) => match decode_group(intake, lanes, params) {
            Ok((parcel, group_len)) => (parcel, intake.take(group_len, lanes)),
            Err(DecodeError::Truncated { .. }) if !intake.has_ended() => return None,
            Err(fault) => {
                intake.refuse();
                let mut parcel = Parcel::copy_of(&[]);
                parcel.end = Some(Err(fault));
                return Some(parcel);
            }
        },
    };
    parcel.end = over.then_some(Ok(()));
    Some(parcel)
}

/// Decodes the group at the front of the buffer to `lanes` values; also returns the group's length.
/// `Truncated` if the buffer does not hold the whole group.
fn decode_group(intake: &Intake, lanes: usize, params: Params) -> Result<(Parcel, usize), DecodeError> {
    let (at, bytes) = (intake.coded(), intake.bytes());
    let truncated = |need| DecodeError::Truncated { at, need, have: bytes.len() };
    let Some((tags, vectors)) = bytes.split_first_chunk::<TAGS_LEN>() else {
        return Err(truncated(TAGS_LEN));
    };
    let tags = u16::from_le_bytes(*tags);
    let (places, vectors_len) = tag_decoder(tags);
    if places.iter().skip(lanes).any(|place| place.class != Class::Zero) {
        return Err(DecodeError::AbsentLane { at, tags, lanes });
    }
    let group_len = TAGS_LEN + vectors_len;
    if bytes.len() < group_len {
        return Err(truncated(group_len));
    }

    let mut burst = [0; MAX_GROUP_LEN];
    for (value, place) in burst.as_chunks_mut::<VALUE_LEN>().0.iter_mut().zip(places) {
        let vector = select(vectors, place.at);
        *value = decompression_block(Lane { class: place.class, vector }, params).to_le_bytes();
    }
    Ok((Parcel::new(burst, lanes * VALUE_LEN), group_len))
}

/// The place of one lane's vector.
#[derive(Clone, Copy)]
struct VectorPlace {
    class: Class,
    /// Byte offset behind the tag vector, 0..=28.
    at: usize,
}

/// Tag decoder: every lane's class and place, and the length of all vectors (0..=32 bytes). In RTL
/// a prefix sum over eight lengths of three bits.
fn tag_decoder(tags: u16) -> ([VectorPlace; LANES], usize) {
    let mut places = [VectorPlace { class: Class::Zero, at: 0 }; LANES];
    let (mut tags, mut at) = (tags, 0);
    for place in &mut places {
        *place = VectorPlace { class: Class::from_tag(tags), at };
        at += place.class.vector_len();
        tags >>= 2;
    }
    (places, at)
}

/// A lane's input multiplexer: the 32 bits from byte `at` on. Bytes that belong to the next lane
/// come along; the block ignores them.
fn select(vectors: &[u8], at: usize) -> u32 {
    let bytes = vectors.get(at..).unwrap_or(&[]);
    bytes.iter().take(VALUE_LEN).rev().fold(0, |high, &low| high << 8 | u32::from(low))
}
