//! All 2^32 values: the laws of the codec and every kernel, with a sample of the parameters or with
//! all that `exhaustive.csv` records. The gateware's model has a test of this name too, for its
//! lane blocks.
//!
//! `GRADWIRE_BOUNDS=10,11` runs everything of codec 1 for those bounds, `GRADWIRE_BIT_PLANE=-10`
//! everything of codec 2 for that one; `.ci/exhaustive` does so for all and writes the record.
//! `GRADWIRE_PART=3/8` visits that eighth of the values.
//! `GRADWIRE_KERNEL=avx512` compares that kernel alone, in rows of its own: few machines have it.

use std::env;

use gradwire::codec::Params;
use gradwire::codec::bit_plane::Bound;
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;

#[allow(dead_code, reason = "a part of it is used here")]
mod common;
#[path = "common/every_value.rs"]
mod every_value;
use common::bit_plane::BitPlaneLaws;
use common::laws::Laws;
use every_value::{BLOCK, NO_SCALE, on_every_block, on_every_value, parameters, row};

const BOUNDS: std::ops::RangeInclusive<u8> = Params::MIN_B..=Params::MAX_B;
/// Both extremes, and scales at which small and large values of neural networks lie.
const SCALES: [i8; 5] = [Params::MIN_SCALE, -24, 0, 63, i8::MAX];

#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test exhaustive -- --ignored --nocapture"]
fn laws() {
    // A value and its negative at once.
    on_every_value("laws", &SCALES, |params, block| {
        let laws = Laws::of(params);
        let values = block * (BLOCK / 2)..(block + 1) * (BLOCK / 2);
        let mut below = laws.restored(values.start.saturating_sub(1));
        for f in values {
            below = laws.hold(f, below);
        }
    });
}

/// Both extremes of codec 2's bound, and some at which values of neural networks lie.
const Y: [i8; 5] = [Bound::MIN, -24, -10, 0, Bound::MAX];

/// The exponents that were asked for, or that CI can afford.
fn asked_exponents() -> Vec<i8> {
    match env::var("GRADWIRE_BIT_PLANE").as_deref() {
        Ok("all") => Y.to_vec(),
        Ok(y) => vec![y.parse().expect("GRADWIRE_BIT_PLANE: all, or a bound's exponent")],
        Err(_) => vec![-10],
    }
}

/// Codec 2.
#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test exhaustive -- --ignored --nocapture"]
fn bit_plane_laws() {
    for y in asked_exponents() {
        let laws = BitPlaneLaws::of(Bound::new(y).unwrap());
        on_every_block(&format!("bit-plane-laws,,,{y},"), |block| {
            let values = block * (BLOCK / 2)..(block + 1) * (BLOCK / 2);
            let mut below = laws.restored(values.start.saturating_sub(1));
            for f in values {
                below = laws.hold(f, below);
            }
        });
    }
}

#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test exhaustive -- --ignored --nocapture"]
fn kernels() {
    let (name, kernels) = asked_kernels("kernels");
    on_every_value(&name, &NO_SCALE, |params, block| {
        // An odd multiplier visits every value, in an order that mixes the exponents of
        // neighbouring lanes.
        agree(&kernels, params.into(), block, |i| i.wrapping_mul(0x9e37_79b1));
    });
}

/// Codec 2. Neighbours have exponents far apart, so that sections have raw values; and then the
/// same exponent, so that sections are dense, raw or empty.
#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test exhaustive -- --ignored --nocapture"]
fn bit_plane_kernels() {
    let (name, kernels) = asked_kernels("bit-plane-kernels");
    for y in asked_exponents() {
        on_every_block(&format!("{name},,,{y},"), |block| {
            let profile = Bound::new(y).unwrap().into();
            agree(&kernels, profile, block, |i| i.wrapping_mul(0x9e37_79b1));
            agree(&kernels, profile, block, |i| i);
        });
    }
}

/// The kernel that was asked for, and its name for rows; or all of them, and `all`.
fn asked_kernels(all: &str) -> (String, Vec<Kernel>) {
    let asked = env::var("GRADWIRE_KERNEL").ok();
    let is_asked = |kernel: &Kernel| asked.as_deref().is_none_or(|asked| kernel.name() == asked);
    let kernels: Vec<Kernel> = Kernel::available().filter(is_asked).collect();
    assert!(!kernels.is_empty(), "this processor has no kernel {asked:?}");
    (asked.unwrap_or_else(|| all.to_owned()), kernels)
}

/// Compares `kernels` with the definition on the values of a block; `value` gives each its number.
fn agree(kernels: &[Kernel], profile: Profile, block: u32, value: impl Fn(u32) -> u32) {
    const VALUES: u32 = 1 << 14;
    let mut values = vec![0; 4 * VALUES as usize];
    let mut expected = vec![0; profile.max_encoded_len(values.len())];
    let mut decoded = vec![0; values.len()];
    let (mut coded, mut restored) = (expected.clone(), decoded.clone());
    for payload in 0..BLOCK / VALUES {
        let first = block * BLOCK + payload * VALUES;
        for (i, bytes) in (first..=first + (VALUES - 1)).zip(values.as_chunks_mut().0) {
            *bytes = value(i).to_le_bytes();
        }
        let len = profile.encode_payload(&values, &mut expected).unwrap();
        profile.decode_payload(&expected[..len], &mut decoded).unwrap();
        for kernel in kernels {
            let name = kernel.name();
            assert_eq!(kernel.encode(&values, &mut coded, profile), Ok(len), "{name} {profile:?} {first}");
            assert!(coded[..len] == expected[..len], "{name} {profile:?} {first}");
            let used = kernel.decode(&coded[..len], &mut restored, profile);
            assert_eq!(used, Ok(len), "{name} {profile:?} {first}");
            assert!(restored == decoded, "{name} {profile:?} {first}");
        }
    }
}

/// A list of parameters that grows leaves the record behind: run `.ci/exhaustive` again.
#[test]
fn the_record_has_every_set_of_parameters() {
    let record = include_str!("exhaustive.csv");
    let tests =
        [("laws", &SCALES[..]), ("kernels", &NO_SCALE), ("lane-blocks", &NO_SCALE), ("avx512", &NO_SCALE)];
    for (name, scales) in tests {
        for params in parameters(BOUNDS, scales) {
            let row = row(name, params);
            assert_eq!(record.lines().filter(|line| line.starts_with(&row)).count(), 1, "{row}");
        }
    }
    for (name, y) in ["bit-plane-laws", "bit-plane-kernels"].into_iter().flat_map(|name| Y.map(|y| (name, y)))
    {
        let row = format!("{name},,,{y},");
        assert_eq!(record.lines().filter(|line| line.starts_with(&row)).count(), 1, "{row}");
    }
}
