//! The laws of codec 2 (FORMAT.md §3.5 and §3.7), verified in `f64`.

use gradwire::codec::bit_plane::{Bound, decode_value, encode_value};

const SIGN: u32 = 1 << 31;

/// The laws for one bound.
#[derive(Clone, Copy, Debug)]
pub struct BitPlaneLaws {
    bound: Bound,
    /// `2^y`, and the smallest magnitude that is raw.
    unit: f64,
    raw_from: f64,
}

impl BitPlaneLaws {
    pub fn of(bound: Bound) -> Self {
        let unit = 2f64.powi(bound.y().into());
        Self { bound, unit, raw_from: unit * 2f64.powi(14) }
    }

    /// The value restored for `f`.
    pub fn restored(self, f: u32) -> u32 {
        decode_value(encode_value(f, self.bound), self.bound)
    }

    /// Section 3.7 in `f64`, in which every `f32`, every bound and every bin is exact.
    pub fn by_arithmetic(self, f: u32) -> u32 {
        let value = f64::from(f32::from_bits(f));
        if value.abs() < self.unit {
            return 0;
        }
        if value.is_nan() || value.abs() >= self.raw_from {
            return f;
        }
        let middle = (2.0 * (value.abs() / (2.0 * self.unit)).floor() + 1.0) * self.unit;
        (middle.copysign(value) as f32).to_bits()
    }

    /// All laws that a positive value, its negative, and its predecessor's restored magnitude can
    /// show; returns its own.
    pub fn hold(self, f: u32, below: u32) -> u32 {
        let g = self.restored(f);
        assert!(g == self.by_arithmetic(f), "value: {f:#010x} -> {g:#010x}, {self:?}");
        let coded = encode_value(f, self.bound);
        assert!(encode_value(g, self.bound) == coded, "idempotence: {f:#010x} -> {g:#010x}, {self:?}");
        assert!(g >= below, "monotonicity: {f:#010x} -> {g:#010x}, {self:?}");
        let negative = self.restored(f | SIGN);
        let expected = if g == 0 { 0 } else { g | SIGN };
        assert!(negative == expected, "sign symmetry: {f:#010x} -> {negative:#010x}, {self:?}");
        // A value that is its own restored one has no other mix.
        if f != g {
            let value = f64::from(f32::from_bits(f));
            for mix in mixes(f, g) {
                let error = (value - f64::from(f32::from_bits(mix))).abs();
                assert!(error <= self.unit, "mixing: {f:#010x} -> {mix:#010x}, {self:?}");
            }
        }
        g
    }
}

/// The sixteen mixes of the bytes of `f` and `g`; `g` itself is one of them.
fn mixes(f: u32, g: u32) -> impl Iterator<Item = u32> {
    (0..16u32).map(move |from_g| {
        let mask =
            (0..4).fold(0, |mask, byte| mask | if from_g >> byte & 1 != 0 { 0xff << (8 * byte) } else { 0 });
        f & !mask | g & mask
    })
}
