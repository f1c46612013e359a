//! Verifies the codec: its laws in `f64`, and that every implementation of it agrees with the
//! definition.

use arbitrary::Unstructured;
use gradwire::codec::bit_plane::{self, Bound};
use gradwire::codec::{
    self, Class, DecodeError, EncodeError, Params, Split, decode_lane, encode_lane, max_encoded_len,
};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::Rule;
use gradwire::sums::Summable;
use gradwire_gateware_model::{self as model, Layout};

use super::printed::printed;
use super::sums;
use crate::verify::frame::type_of_service;
use crate::verify::values::{bound, error};

/// The laws of FORMAT.md section 3.5 for one `f32`; what it decodes to.
///
/// # Panics
/// One does not hold.
pub fn laws(bits: u32, params: Params) -> u32 {
    let lane = encode_lane(bits, params);
    let got = decode_lane(lane, params);
    let bound = bound(params.into());
    assert!(error(bits, got) < bound, "bound: {bits:#010x} -> {got:#010x}, {params:?}");
    assert_eq!(encode_lane(got, params), lane, "idempotence: {bits:#010x}, {params:?}");
    let mirrored = decode_lane(encode_lane(bits ^ 1 << 31, params), params);
    let expected = if lane.class == Class::Zero { got } else { got ^ 1 << 31 };
    assert_eq!(mirrored, expected, "sign symmetry: {bits:#010x}, {params:?}");
    for mix in mixes(bits, got) {
        assert!(error(bits, mix) < bound, "mixing: {bits:#010x} -> {mix:#010x}, {params:?}");
    }
    got
}

/// Codec 2's bound that is `params`' own, or why there is none.
fn bit_plane_bound(params: Params) -> Option<Bound> {
    let y = params.x() - params.b().cast_signed();
    Bound::new(y).inspect_err(|error| drop(printed(error))).ok()
}

/// The laws for any values under codec 2; `missing` bytes of room are missing.
fn bit_plane_values(values: &[u8], missing: usize, bound: Bound) {
    let profile = Profile::BitPlane(bound);
    let limit = f64::from(bound.y()).exp2();
    let room = bit_plane::max_encoded_len(values.len()).saturating_sub(missing);
    let Ok(sections) = encode(values, room, profile) else { return };
    let (used, decoded) = decode(&sections, values.len(), profile).expect("what was encoded decodes");
    assert_eq!(used, sections.len());
    for (sent, got) in values.as_chunks::<4>().0.iter().zip(decoded.as_chunks::<4>().0) {
        let [sent, got] = [sent, got].map(|bytes| u32::from_le_bytes(*bytes));
        for mix in mixes(sent, got) {
            assert!(error(sent, mix) <= limit, "mixing: {sent:#010x} -> {mix:#010x}, {bound:?}");
        }
    }
    assert_eq!(encode(&decoded, sections.len(), profile), Ok(sections), "idempotence");
}

/// The sixteen mixes of the bytes of two values.
fn mixes(sent: u32, got: u32) -> impl Iterator<Item = u32> {
    (0..16u32).map(move |from_got| {
        let mut mix = sent.to_le_bytes();
        for (i, byte) in got.to_le_bytes().into_iter().enumerate().filter(|(i, _)| from_got >> i & 1 != 0) {
            mix[i] = byte;
        }
        u32::from_le_bytes(mix)
    })
}

/// The laws for any values, and the same groups from the definition, every kernel and the clocked
/// model.
///
/// The input of a fuzzer: parameters as `arbitrary` reads them, the room for groups that is missing
/// (a byte), values.
///
/// # Panics
/// A law does not hold, or two differ.
pub fn values(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok((params, missing)) = u.arbitrary::<(Params, u8)>() else { return };
    let values = u.take_rest();
    assert_eq!(f64::from(params.bound()), bound(params.into()));
    let named = Split::ALL.map(|split| Params::new(params.b(), split, params.x()));
    let split =
        Split::ALL.into_iter().zip(named).find(|(_, named)| *named == Ok(params)).map(|(split, _)| split);
    assert_eq!(params.split(), split);
    assert!(Split::ALL.iter().all(|split| Split::from_name(split.name()) == Some(*split)));
    for value in values.as_chunks::<4>().0 {
        for params in named.into_iter().flatten().chain([params]) {
            laws(u32::from_le_bytes(*value), params);
        }
    }
    if let Some(bound) = bit_plane_bound(params) {
        bit_plane_values(values, missing.into(), bound);
    }
    let room = max_encoded_len(values.len()).saturating_sub(missing.into());
    let groups = encode(values, room, params.into());
    if let Ok(groups) = groups {
        let (used, decoded) = decode(&groups, values.len(), params.into()).expect("what was encoded decodes");
        assert_eq!(used, groups.len());
        for (sent, got) in values.as_chunks::<4>().0.iter().zip(decoded.as_chunks::<4>().0) {
            let sent = u32::from_le_bytes(*sent);
            assert_eq!(u32::from_le_bytes(*got), decode_lane(encode_lane(sent, params), params));
        }
    }
}

/// Any bytes as groups: the definition, every kernel and the clocked model decode or refuse them
/// alike.
///
/// The input of a fuzzer: parameters as `arbitrary` reads them, the length of the values (two
/// bytes), groups.
///
/// # Panics
/// Two differ.
pub fn groups(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok((params, len)) = u.arbitrary::<(Params, u16)>() else { return };
    // A jumbo frame's payload, and lengths that are not whole values.
    let len = usize::from(len) % 9000;
    let groups = u.take_rest();
    if let Some(bound) = bit_plane_bound(params) {
        sums::block(groups, len / 4, bound.into());
        if let Ok((used, values)) = decode(groups, len, bound.into()) {
            assert!(used <= groups.len());
            bit_plane_values(&values, 0, bound);
        }
    }
    let profile = Profile::from(params);
    if let Ok(summable) = Summable::try_from(profile) {
        sums::block(groups, len / 4, summable);
    }
    if let Ok((used, values)) = decode(groups, len, profile) {
        assert_eq!(values.len(), len);
        // What no encoder makes decodes too; encoding that again is stable.
        let once = encode(&values, max_encoded_len(len), profile).expect("room for the longest");
        let (_, again) = decode(&once, len, profile).expect("what was encoded decodes");
        assert_eq!(encode(&again, max_encoded_len(len), profile), Ok(once));
        assert!(used <= max_encoded_len(len));
    }
}

/// Any bytes as a frame for the clocked model of the NIC: what is before and behind the values is
/// bypassed, values are coded as the definition says, and come back; or nothing changes, because
/// the type of service is another.
///
/// The input of a fuzzer: parameters as `arbitrary` reads them, length of the bypass, number of
/// values (a byte each), frame.
///
/// # Panics
/// The frame on the wire is another, or does not come back.
pub fn clocked(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok((params, bypass, values)) = u.arbitrary::<(Params, u8, u8)>() else { return };
    let rule = Rule { profile: params.into(), ..Rule::DEFAULT };
    let layout = Layout { bypass: bypass.into(), values: values.into() };
    let frame = u.take_rest();
    let (head, rest) = frame.split_at(layout.bypass.min(frame.len()));
    let (values, tail) = rest.split_at((4 * layout.values).min(rest.len() / 4 * 4));
    let room = frame.len() + max_encoded_len(values.len());

    let mut groups = vec![0; max_encoded_len(values.len())];
    let len = codec::encode_payload(values, &mut groups, params).expect("room for the longest");
    let coded = [head, &groups[..len], tail].concat();
    let mut wire = vec![0x55; room];
    let run = model::encode_frame(frame, layout, &mut wire, &rule).expect("room for the longest");
    wire.truncate(run.len);
    match type_of_service(frame) {
        Some(tos) if (tos ^ rule.tos) & rule.mask == 0 => assert_eq!(wire, coded),
        Some(_) => assert_eq!(wire, frame),
        // Half a header, which says enough for the comparator or not.
        None => assert!(wire == coded || wire == frame),
    }
    let refused = model::encode_frame(frame, layout, &mut vec![0; run.len.saturating_sub(1)], &rule);
    assert_eq!(refused.is_err(), run.len > 0);
    let _ = refused.inspect_err(|error| drop(printed(error)));

    // Back, if the values neither end early nor stand where the comparator looks.
    let tos = type_of_service(frame);
    let mut out = vec![0xaa; frame.len()];
    let back = model::decode_frame(&wire, layout, &mut out, &rule);
    let whole = values.len() == 4 * layout.values && tos.is_some() && tos == type_of_service(&wire);
    if wire == coded && wire != frame && whole {
        let mut decoded = vec![0; values.len()];
        let used = codec::decode_payload(&groups[..len], &mut decoded, params);
        assert_eq!(used, Ok(len));
        assert_eq!(back.map(|run| run.len), Ok(frame.len()));
        assert_eq!(out, [head, &decoded, tail].concat());
    }
    // Any frame may arrive.
    match model::decode_frame(frame, layout, &mut vec![0; room], &rule) {
        Ok(run) => assert!(run.len <= room),
        Err(error) => drop(printed(&error)),
    }
}

/// A seed for the fuzzer of [`clocked`]: a frame whose payload starts at `payload_at`.
#[must_use]
pub fn clocked_seed(frame: &[u8], payload_at: usize) -> Vec<u8> {
    let values = (frame.len() - payload_at) / 4;
    [&DEFAULT_PARAMS[..], &[payload_at as u8, values.min(255) as u8], frame].concat()
}

/// A seed for the fuzzer of [`groups`]: what `values` encode to, with default parameters.
#[must_use]
pub fn groups_seed(values: &[u8]) -> Vec<u8> {
    let groups = encode(values, max_encoded_len(values.len()), Profile::DEFAULT).expect("whole values");
    [&DEFAULT_PARAMS[..], &(values.len() as u16).to_le_bytes(), &groups].concat()
}

/// A seed for the fuzzer of [`groups`]: sections of codec 2 that stand for `count` values, with the
/// default bound.
#[must_use]
pub fn sections_seed(count: usize, sections: &[u8]) -> Vec<u8> {
    [&DEFAULT_PARAMS[..], &(4 * count as u16).to_le_bytes(), sections].concat()
}

/// A seed for the fuzzer of [`values`]: these, with default parameters and all the room they need.
#[must_use]
pub fn values_seed(values: &[u8]) -> Vec<u8> {
    [&DEFAULT_PARAMS[..], &[0], values].concat()
}

/// [`Params::DEFAULT`] as `arbitrary` reads it: offsets from the start of each range.
const DEFAULT_PARAMS: [u8; 3] = [Params::DEFAULT.b() - 1, 0, Params::MIN_SCALE.unsigned_abs()];

/// The code that all implementations make of `values`; unlike fills, so that a byte that was not
/// written shows.
fn encode(values: &[u8], room: usize, profile: Profile) -> Result<Vec<u8>, EncodeError> {
    let mut out = vec![0xaa; room];
    let expected = profile.encode_payload(values, &mut out).map(|len| out[..len].to_vec());
    if let Profile::SizeClass(params) = profile {
        let mut out = vec![0x55; room];
        let clocked = model::encode_payload(values, &mut out, params).map(|run| out[..run.len].to_vec());
        assert_eq!(clocked, expected, "clocked, {params:?}");
    }
    for kernel in Kernel::available() {
        let mut out = vec![0x55; room];
        let got = kernel.encode(values, &mut out, profile).map(|len| out[..len].to_vec());
        assert_eq!(got, expected, "{}, {profile:?}", kernel.name());
    }
    expected.inspect_err(|error| drop(printed(error)))
}

/// The values that all implementations make of `coded`, in `len` bytes; unlike fills.
fn decode(coded: &[u8], len: usize, profile: Profile) -> Result<(usize, Vec<u8>), DecodeError> {
    let mut out = vec![0xaa; len];
    let expected = profile.decode_payload(coded, &mut out).map(|used| (used, out));
    if len.is_multiple_of(4) {
        assert_eq!(profile.encoded_len(coded, len / 4), expected.as_ref().ok().map(|(used, _)| *used));
    }
    if let Profile::SizeClass(params) = profile {
        let mut out = vec![0x55; len];
        let clocked = model::decode_payload(coded, &mut out, params).map(|run| (run.len, out));
        assert_eq!(clocked, expected, "clocked, {params:?}");
    }
    for kernel in Kernel::available() {
        let mut out = vec![0x55; len];
        let got = kernel.decode(coded, &mut out, profile).map(|used| (used, out));
        assert_eq!(got, expected, "{}, {profile:?}", kernel.name());
    }
    expected.inspect_err(|error| drop(printed(error)))
}
