//! The laws of the codec (FORMAT.md §3.5), verified in `f64` and on bits.

use gradwire::codec::{Class, Params, decode_lane, encode_lane};

const SIGN: u32 = 1 << 31;

/// The laws for one set of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Laws {
    params: Params,
    /// `2^(x-b)`.
    bound: f64,
}

impl Laws {
    pub fn of(params: Params) -> Self {
        Self { params, bound: 2f64.powi(i32::from(params.x()) - i32::from(params.b())) }
    }

    /// The value restored for `f`.
    pub fn restored(self, f: u32) -> u32 {
        decode_lane(encode_lane(f, self.params), self.params)
    }

    /// Sections 3.2 to 3.4 in `f64`, in which every `f32`, every bound and every vector's weight is
    /// exact.
    pub fn by_arithmetic(self, f: u32) -> u32 {
        let value = f64::from(f32::from_bits(f));
        let (k, x) = (i32::from(self.params.k()), i32::from(self.params.x()));
        if value.abs() < self.bound {
            return 0;
        }
        if value.is_nan() || value.abs() >= power(x) {
            return f;
        }
        let n = if value.abs() < power(x - k) { k + 7 } else { 15 };
        let q = (value.abs() * power(n - x)).floor();
        ((q * power(x - n)).copysign(value) as f32).to_bits()
    }

    /// `|f - g| < 2^(x-b)` in `f64`, where every `f32` and every difference that matters is exact.
    pub fn within(self, f: u32, g: u32) -> bool {
        let (f_value, g_value) = (f64::from(f32::from_bits(f)), f64::from(f32::from_bits(g)));
        f == g || (f_value - g_value).abs() < self.bound
    }

    /// All laws that a positive value, its negative, and its predecessor's restored magnitude can
    /// show; returns its own.
    pub fn hold(self, f: u32, below: u32) -> u32 {
        let Self { params, .. } = self;
        let lane = encode_lane(f, params);
        let g = decode_lane(lane, params);
        assert!(self.within(f, g), "bound: {f:#010x} -> {g:#010x}, {params:?}");
        assert!(encode_lane(g, params) == lane, "idempotence: {f:#010x} -> {g:#010x}, {params:?}");
        assert!(g >= below, "monotonicity: {f:#010x} -> {g:#010x}, {params:?}");
        // Any mix of bits, and so of bytes, then lies between g and f in magnitude.
        assert!(g & !f == 0, "mixing: {f:#010x} -> {g:#010x}, {params:?}");
        let negative = self.restored(f | SIGN);
        let expected = if lane.class == Class::Zero { 0 } else { g | SIGN };
        assert!(negative == expected, "sign symmetry: {f:#010x} -> {negative:#010x}, {params:?}");
        g
    }
}

/// `2^exponent`: `powi` would take most of the time of tests that visit every value.
pub fn power(exponent: i32) -> f64 {
    f64::from_bits(u64::try_from(1023 + exponent).unwrap() << 52)
}
