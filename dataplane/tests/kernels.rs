//! Every kernel against the definition: same bytes, same errors, on every input.

use gradwire::checksum::Sum;
use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{self, DecodeError, EncodeError, LANES, Params, Split, max_encoded_len};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use proptest::prelude::*;

fn any_params() -> impl Strategy<Value = Params> {
    (1u8..=14, -80i8..=127)
        .prop_flat_map(|(b, x)| (Just(b), b.saturating_sub(7)..=b, Just(x)))
        .prop_map(|(b, k, x)| Params::from_exponents(b, k, x).unwrap())
}

fn any_profile() -> impl Strategy<Value = Profile> {
    prop_oneof![
        any_params().prop_map(Profile::from),
        (Bound::MIN..=Bound::MAX).prop_map(bit_plane),
        Just(bit_plane(-10)),
    ]
}

fn bit_plane(y: i8) -> Profile {
    Bound::new(y).unwrap().into()
}

/// Codec 1 and codec 2 with the same bound.
const BOTH: fn() -> [Profile; 2] = || [Params::DEFAULT.into(), bit_plane(-10)];

/// Bit patterns whose exponents lie around the class borders of `profile`, and anything else.
/// `wild` values in a hundred have exponents from below the lowest border to above the highest, so
/// payloads are sparse or dense, with raw values or without. In some payloads, coded values have
/// low exponents alone: kernels have short ways for them.
fn any_values(profile: Profile, len: usize) -> impl Strategy<Value = Vec<u8>> {
    let (below_raw, near) = match profile {
        Profile::SizeClass(params) => (16, 127 + i32::from(params.x())),
        Profile::BitPlane(bound) => (14, 127 + 14 + i32::from(bound.y())),
    };
    let exponents = prop_oneof![Just(below_raw), 1..=8];
    (0u32..=4, 0u32..=4, 0u32..=2, exponents).prop_flat_map(move |(coded, zero, wild, exponents)| {
        let with_exponent = move |bits: u32, exponent: i32| bits & 0x807f_ffff | (exponent.clamp(0, 255) as u32) << 23;
        let value = prop_oneof![
            1 + 10 * coded => (any::<u32>(), -below_raw..exponents - below_raw).prop_map(move |(bits, from)| with_exponent(bits, near + from)),
            10 * zero => (any::<u32>(), 0..3).prop_map(move |(bits, less)| with_exponent(bits, near - below_raw - 1 - less)),
            wild => (any::<u32>(), -1..3).prop_map(move |(bits, from)| with_exponent(bits, near + from)),
            wild => any::<u32>(),
            wild => (any::<u32>(), any::<bool>()).prop_map(|(bits, zero)| if zero { 0 } else { bits & 0x807f_ffff }),
        ];
        prop::collection::vec(value, len).prop_map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect())
    })
}

type Encoded = Result<Vec<u8>, EncodeError>;
type Decoded = Result<(usize, Vec<u8>), DecodeError>;

fn encoded(result: Result<usize, EncodeError>, groups: &[u8]) -> Encoded {
    result.map(|len| groups[..len].to_vec())
}

/// Bytes behind what a kernel may write.
const BEHIND: usize = 256;

/// With unlike fills, so that a byte that was not written shows, and one that is not the kernel's.
fn agree_on_encoding(values: &[u8], room: usize, profile: impl Into<Profile>) -> Encoded {
    let profile = profile.into();
    let mut coded = vec![0xaa; room];
    let expected = encoded(profile.encode_payload(values, &mut coded), &coded);
    for kernel in Kernel::available() {
        for fill in [0x00, 0x55] {
            let mut coded = vec![fill; room + BEHIND];
            let got = encoded(kernel.encode(values, &mut coded[..room], profile), &coded);
            assert_eq!(coded[room..], [fill; BEHIND], "{} {profile:?} room of {room}", kernel.name());
            assert_eq!(got, expected, "{} {profile:?} {} values", kernel.name(), values.len() / 4);
        }
    }
    expected
}

fn agree_on_decoding(coded: &[u8], len: usize, profile: impl Into<Profile>) -> Decoded {
    let profile = profile.into();
    let mut values = vec![0xaa; len];
    let expected = profile.decode_payload(coded, &mut values).map(|used| (used, values));
    for kernel in Kernel::available() {
        for fill in [0x00, 0x55] {
            let mut values = vec![fill; len + BEHIND];
            let used = kernel.decode(coded, &mut values[..len], profile);
            assert_eq!(values[len..], [fill; BEHIND], "{} {profile:?} {len} bytes of values", kernel.name());
            values.truncate(len);
            let got = used.map(|used| (used, values));
            assert_eq!(got, expected, "{} {profile:?} {len} bytes of values", kernel.name());
        }
    }
    expected
}

/// With this bound raw values may be below 1: no exponent tells a kernel of them early.
#[test]
fn on_raw_values_anywhere_in_a_dense_section() {
    let (coded, raw) = (3.0 * 2f32.powi(-24), 2f32.powi(-8));
    for at in 0..362 {
        let mut values = [coded; 362];
        // One; then another in the next step of a kernel's, too.
        for raw_at in [at, (at + 32) % 362] {
            values[raw_at] = raw;
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let profile = bit_plane(-24);
            agree_on_encoding(&bytes, profile.max_encoded_len(bytes.len()), profile).unwrap();
        }
    }
}

/// Sections that need the most room without raw values, and all rooms: stores are wide. With this
/// bound the largest coded value, which alone uses all planes, is below 1, as above.
#[test]
fn on_every_room_for_all_planes() {
    let profile = bit_plane(-24);
    let values = [16_383.0 * 2f32.powi(-24); 512].map(f32::to_le_bytes).concat();
    for count in [1, 31, 32, 33, 362, 511, 512] {
        let values = &values[..4 * count];
        for room in 0..profile.max_encoded_len(values.len()) + 80 {
            let _ = agree_on_encoding(values, room, profile);
        }
    }
}

/// Lengths at which kernels change from one step or section to the next, and others.
fn any_count() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..=40, Just(362), 511usize..=513, Just(1024 + 7), 0usize..800]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn on_payloads_of_any_length(
        (profile, values) in (any_profile(), any_count()).prop_flat_map(|(p, n)| (Just(p), any_values(p, n))),
        short in 0usize..80,
    ) {
        let coded = agree_on_encoding(&values, profile.max_encoded_len(values.len()), profile).unwrap();
        // Any room from the exact one up and down.
        let _ = agree_on_encoding(&values, coded.len(), profile);
        let _ = agree_on_encoding(&values, coded.len().saturating_sub(short), profile);
        let _ = agree_on_encoding(&values, coded.len() + short, profile);
        let (used, _) = agree_on_decoding(&coded, values.len(), profile).unwrap();
        prop_assert_eq!(used, coded.len());
        // Anything behind, and anything missing.
        let longer = [&coded[..], &[0xff; 80][..short]].concat();
        let _ = agree_on_decoding(&longer, values.len(), profile);
        let _ = agree_on_decoding(&coded[..coded.len().saturating_sub(short)], values.len(), profile);
        let _ = agree_on_decoding(&longer, values.len().saturating_sub(4 * short), profile);
    }

    /// Sections that no encoder makes but that look much like its own: the first bytes are the mode
    /// and the map.
    #[test]
    fn on_changed_bytes(
        (profile, values) in (any_profile(), any_count()).prop_flat_map(|(p, n)| (Just(p), any_values(p, n))),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
        mode in 0u8..8,
    ) {
        let mut coded = agree_on_encoding(&values, profile.max_encoded_len(values.len()), profile).unwrap();
        for (place, byte, early) in changes {
            if !coded.is_empty() {
                let place = place.index(if early { coded.len().min(64) } else { coded.len() });
                coded[place] = byte;
            }
        }
        let _ = agree_on_decoding(&coded, values.len(), profile);
        if let Some(first) = coded.first_mut() {
            *first = mode;
        }
        coded.resize(coded.len() + 300, 0x0f);
        let _ = agree_on_decoding(&coded, values.len(), profile);
    }

    #[test]
    fn on_checksums(bytes in prop::collection::vec(any::<u8>(), 0..2000), ones in 0usize..200) {
        let bytes = [&bytes[..], &[0xff; 200][..ones]].concat();
        for kernel in Kernel::available() {
            prop_assert_eq!(kernel.sum(&bytes).value(), Sum::of(&bytes).value(), "{}", kernel.name());
        }
    }

    #[test]
    fn on_any_bytes(
        mut coded in prop::collection::vec(any::<u8>(), 0..900), mode in 0u8..8, len in 0usize..900, profile in any_profile(),
    ) {
        let _ = agree_on_decoding(&coded, len, profile);
        let _ = agree_on_encoding(&coded, len, profile);
        if let Some(first) = coded.first_mut() {
            *first = mode;
        }
        let _ = agree_on_decoding(&coded, len / 4 * 4, profile);
    }
}

/// A gradient, in payloads of 1448 bytes, with each bound that lies among its values.
#[test]
fn on_a_recorded_gradient() {
    let file = include_bytes!("../../testbench/recordings/cnn_i0300_w0.npy");
    // The values are the last bytes of the file, behind a header that is a multiple of 64 long.
    for values in file[128..].chunks(1448).filter(|values| values.len() % 4 == 0) {
        for y in [-30, -14, -10, -8, -3] {
            let profiles =
                [bit_plane(y), Params::new(y.unsigned_abs().min(14), Split::Dense, 0).unwrap().into()];
            for profile in profiles {
                let coded =
                    agree_on_encoding(values, profile.max_encoded_len(values.len()), profile).unwrap();
                let (used, _) = agree_on_decoding(&coded, values.len(), profile).unwrap();
                assert_eq!(used, coded.len());
            }
        }
    }
}

/// Verified by the standard library, which asks the processor itself.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_kernel_that_the_processor_runs_is_there() {
    let has = |name: &str| Kernel::available().any(|kernel| kernel.name() == name);
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512bitalg")
        && is_x86_feature_detected!("gfni");
    assert_eq!((has("avx2"), has("avx512")), (avx2, avx512));
    assert!(has("portable") && has("scalar32"));
}

/// FORMAT.md §4: a tag vector and up to 32 bytes.
#[test]
fn the_shortest_and_the_longest_group() {
    let mut groups = [0; 64];
    assert_eq!(codec::encode_payload(&[0; 32], &mut groups, Params::DEFAULT), Ok(2));
    assert_eq!(codec::encode_payload(&[0xff; 32], &mut groups, Params::DEFAULT), Ok(34));
    assert_eq!((codec::MAX_GROUP_LEN, max_encoded_len(32), max_encoded_len(36)), (34, 34, 40));
}

#[test]
fn on_every_length_and_every_truncation() {
    let values: Vec<u8> =
        (0..200u32).flat_map(|i| (i.wrapping_mul(0x9e37_79b9) >> 3 | 0x3800_0000).to_le_bytes()).collect();
    for profile in BOTH() {
        for count in 0..200 {
            let coded = agree_on_encoding(&values[..4 * count], 1200, profile).unwrap();
            for len in 0..=coded.len() {
                let whole = agree_on_decoding(&coded[..len], 4 * count, profile).is_ok();
                assert_eq!(whole, len == coded.len());
            }
        }
    }
}

/// Kernels may read words if payloads lie on them.
#[test]
fn at_every_address() {
    let values: Vec<u8> =
        (0..600u32).flat_map(|i| (i.wrapping_mul(0x9e37_79b9) >> 3 | 0x3800_0000).to_le_bytes()).collect();
    for profile in BOTH() {
        let mut expected = vec![0; profile.max_encoded_len(values.len())];
        let len = profile.encode_payload(&values, &mut expected).unwrap();
        let mut decoded = vec![0; values.len()];
        profile.decode_payload(&expected[..len], &mut decoded).unwrap();
        for kernel in Kernel::available() {
            for offset in 0..8 {
                let shifted = [&[0xff; 8][..offset], &values].concat();
                let mut coded = vec![0xaa; offset + expected.len()];
                let room = &mut coded[offset..];
                assert_eq!(kernel.encode(&shifted[offset..], room, profile), Ok(len), "{}", kernel.name());
                assert_eq!(room[..len], expected[..len], "{} at {offset}", kernel.name());
                let mut restored = vec![0x55; offset + values.len()];
                assert_eq!(kernel.decode(&room[..len], &mut restored[offset..], profile), Ok(len));
                assert_eq!(restored[offset..], decoded, "{} at {offset}", kernel.name());
                for end in shifted.len() - 8..shifted.len() {
                    let bytes = &shifted[offset..end];
                    assert_eq!(
                        kernel.sum(bytes).value(),
                        Sum::of(bytes).value(),
                        "{} at {offset}",
                        kernel.name()
                    );
                }
            }
        }
    }
}

#[test]
fn on_every_tag_vector() {
    let noise: Vec<u8> = (0..64u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
    for params in [Params::DEFAULT, Params::new(14, Split::Paper, -80).unwrap()] {
        for tags in 0..=u16::MAX {
            let groups = [&tags.to_le_bytes(), &noise[..(tags % 30) as usize + 32]].concat();
            let (lanes, second) = (tags as usize % LANES, tags as usize / LANES % 2 * 32);
            let _ = agree_on_decoding(&groups, 32, params);
            let _ = agree_on_decoding(&groups, second + 4 * lanes, params);
        }
    }
}

/// With all parameters but most scales: every exponent, both signs, and the ends and the middle of
/// the significands. Lanes of one burst have exponents far apart. Quick enough for an emulator.
/// Kernels choose a way by a section's largest value: from one border of a bin to the next, each is
/// the largest once.
#[test]
fn sections_with_every_largest_value() {
    let y = -10;
    let first = (127 - 10) << 23;
    for magnitude in (first..first + (15 << 23)).step_by(1 << 17) {
        for bits in [magnitude - 1, magnitude, magnitude + 1] {
            let values = [0, bits, bits | 1 << 31, first].map(u32::to_le_bytes).concat().repeat(4);
            let sections =
                agree_on_encoding(&values, bit_plane(y).max_encoded_len(values.len()), bit_plane(y)).unwrap();
            agree_on_decoding(&sections, values.len(), bit_plane(y)).unwrap();
        }
    }
}

#[test]
fn on_every_exponent_with_all_parameters() {
    const SIGNIFICANDS: [u32; 5] = [0, 1, 0x2a_aaaa, 0x40_0000, 0x7f_ffff];
    let values: Vec<u8> = (0..256u32)
        .flat_map(|i| [0, 1].map(|sign| sign << 31 | (i * 91 % 256) << 23))
        .flat_map(|value| SIGNIFICANDS.map(|significand| value | significand))
        .flat_map(u32::to_le_bytes)
        .collect();
    for y in Bound::MIN..=Bound::MAX {
        for values in [&values[..], &values[..4 * 512]] {
            let sections =
                agree_on_encoding(values, bit_plane(y).max_encoded_len(values.len()), bit_plane(y)).unwrap();
            let (used, _) = agree_on_decoding(&sections, values.len(), bit_plane(y)).unwrap();
            assert_eq!(used, sections.len());
        }
    }
    let splits = (1u8..=14).flat_map(|b| (b.saturating_sub(7)..=b).map(move |k| (b, k)));
    for (b, k) in splits {
        for x in [-80, -31, -1, 0, 1, 64, 127] {
            let params = Params::from_exponents(b, k, x).unwrap();
            let groups = agree_on_encoding(&values, max_encoded_len(values.len()), params).unwrap();
            let (used, _) = agree_on_decoding(&groups, values.len(), params).unwrap();
            assert_eq!(used, groups.len());
        }
    }
}
