//! Fast versions of the payload functions of [`crate::codec`], which define what each of them must
//! do on every input: same bytes, same errors.
//!
//! A [`Kernel`] is a proof that the processor can run it: only detection makes one. Engines are
//! built with one and call it without further checks.
//!
//! `docs/kernels.md` has what bounds each kernel, in cycles, and what was tried and dropped.

#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little", target_feature = "neon")
))]
mod ahead;
mod bit_plane;
mod loops;
// On big-endian targets the bytes of a lane stand the other way round; those for soft floats may
// not use NEON.
#[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
#[expect(unsafe_code, reason = "SIMD loads and stores, and calls that a token proves")]
mod neon;
#[expect(unsafe_code, reason = "numbers seen as bytes")]
mod numbers;
mod portable;
#[expect(unsafe_code, reason = "whole words of payloads that lie on them")]
mod scalar32;
mod sums;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little", target_feature = "neon")
))]
mod tables;
mod units;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "SIMD loads and stores, and calls that a token proves")]
mod x86;

use crate::checksum::Sum;
use crate::codec::bit_plane::Bound;
use crate::codec::{DecodeError, EncodeError, Params, VALUE_LEN};
use crate::profile::Profile;
use crate::values;
#[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
use neon::Neon;
pub use scalar32::{Adder, Codes};
pub use units::Unsummable;
#[cfg(target_arch = "x86_64")]
use x86::{avx2::Avx2, avx512::Avx512};

/// One implementation of each codec's payload functions.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(Token);

#[derive(Clone, Copy, Debug)]
enum Token {
    Portable,
    Scalar32,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
    Neon(Neon),
}

impl Kernel {
    /// The one that every processor runs.
    pub const PORTABLE: Self = Self(Token::Portable);
    /// The one for small 32-bit processors; every processor runs it.
    pub const SCALAR32: Self = Self(Token::Scalar32);

    /// Those that this processor runs, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let simd = cfg_select! {
            target_arch = "x86_64" => {
                [Avx512::detect().map(Token::Avx512), Avx2::detect().map(Token::Avx2)]
            }
            all(target_arch = "aarch64", target_endian = "little", target_feature = "neon") => {
                [Some(Token::Neon(Neon::detect()))]
            }
            _ => { [None::<Token>; 0] }
        };
        let scalar = cfg_select! {
            target_pointer_width = "32" => { [Self::SCALAR32, Self::PORTABLE] }
            _ => { [Self::PORTABLE, Self::SCALAR32] }
        };
        simd.into_iter().flatten().map(Self).chain(scalar)
    }

    /// The fastest that this processor runs.
    #[must_use]
    pub fn detect() -> Self {
        Self::available().next().unwrap_or(Self::PORTABLE)
    }

    /// Its name on command lines and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Token::Portable => "portable",
            Token::Scalar32 => "scalar32",
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(_) => "avx512",
            #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
            Token::Neon(_) => "neon",
        }
    }

    /// As [`Sum::of`].
    #[must_use]
    pub fn sum(self, bytes: &[u8]) -> Sum {
        match self.0 {
            Token::Portable => portable::sum(bytes),
            Token::Scalar32 => scalar32::sum(bytes),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(kernel) => kernel.sum(bytes),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(kernel) => kernel.sum(bytes),
            #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
            Token::Neon(kernel) => kernel.sum(bytes),
        }
    }

    /// As [`values::any_may_be_implausible`].
    pub(crate) fn any_may_be_implausible(self, values: &[u8]) -> bool {
        match self.0 {
            Token::Portable | Token::Scalar32 => values::any_may_be_implausible(values),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(kernel) => kernel.any_may_be_implausible(values),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(kernel) => kernel.any_may_be_implausible(values),
            #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
            Token::Neon(_) => values::any_may_be_implausible(values),
        }
    }

    /// [`Self::sum`] and [`Self::any_may_be_implausible`], of the same bytes.
    pub(crate) fn sum_and_may_be_implausible(self, values: &[u8]) -> (Sum, bool) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(kernel) => kernel.sum_and_may_be_implausible(values),
            _ => (self.sum(values), self.any_may_be_implausible(values)),
        }
    }

    /// Encodes `values`, little-endian `f32`s at any alignment, to the start of `coded`; the length
    /// of their code. As [`crate::codec::encode_payload`] and
    /// [`crate::codec::bit_plane::encode_payload`]. Behind that length, `coded` may be overwritten.
    ///
    /// # Errors
    /// `values` is not a multiple of 4 long, or the code does not fit; `coded` then holds nothing
    /// of use.
    pub fn encode(
        self,
        values: &[u8],
        coded: &mut [u8],
        profile: impl Into<Profile>,
    ) -> Result<usize, EncodeError> {
        if !values.len().is_multiple_of(VALUE_LEN) {
            return Err(EncodeError::Unaligned { len: values.len() });
        }
        match profile.into() {
            Profile::SizeClass(params) => self.encode_size_class(values, coded, params),
            Profile::BitPlane(bound) => self.encode_bit_plane(values, coded, bound),
        }
    }

    fn encode_size_class(
        self,
        values: &[u8],
        groups: &mut [u8],
        params: Params,
    ) -> Result<usize, EncodeError> {
        match self.0 {
            Token::Portable => portable::encode(values, groups, params),
            Token::Scalar32 => scalar32::encode(values, groups, params),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(kernel) => kernel.encode(values, groups, params),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(kernel) => kernel.encode(values, groups, params),
            #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
            Token::Neon(kernel) => kernel.encode(values, groups, params),
        }
    }

    fn encode_bit_plane(
        self,
        values: &[u8],
        sections: &mut [u8],
        bound: Bound,
    ) -> Result<usize, EncodeError> {
        match self.0 {
            Token::Portable => bit_plane::portable::encode(values, sections, bound),
            Token::Scalar32 => bit_plane::scalar32::encode(values, sections, bound),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => bit_plane::avx2::encode(token, values, sections, bound),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => bit_plane::avx512::encode(token, values, sections, bound),
            #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
            Token::Neon(token) => bit_plane::neon::encode(token, values, sections, bound),
        }
    }

    /// Fills `values` from their code at the start of `coded`; the code's length. As
    /// [`crate::codec::decode_payload`] and [`crate::codec::bit_plane::decode_payload`].
    ///
    /// # Errors
    /// `values` is not a multiple of 4 long, or `coded` does not start with a code of as many
    /// values; `values` then holds nothing of use.
    pub fn decode(
        self,
        coded: &[u8],
        values: &mut [u8],
        profile: impl Into<Profile>,
    ) -> Result<usize, DecodeError> {
        if !values.len().is_multiple_of(VALUE_LEN) {
            return Err(DecodeError::Unaligned { len: values.len() });
        }
        match profile.into() {
            Profile::SizeClass(params) => self.decode_size_class(coded, values, params),
            Profile::BitPlane(bound) => self.decode_bit_plane(coded, values, bound),
        }
    }

    fn decode_size_class(
        self,
        groups: &[u8],
        values: &mut [u8],
        params: Params,
    ) -> Result<usize, DecodeError> {
        match self.0 {
            Token::Portable => portable::decode(groups, values, params),
            Token::Scalar32 => scalar32::decode(groups, values, params),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(kernel) => kernel.decode(groups, values, params),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(kernel) => kernel.decode(groups, values, params),
            #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
            Token::Neon(kernel) => kernel.decode(groups, values, params),
        }
    }

    fn decode_bit_plane(
        self,
        sections: &[u8],
        values: &mut [u8],
        bound: Bound,
    ) -> Result<usize, DecodeError> {
        match self.0 {
            Token::Portable => bit_plane::portable::decode(sections, values, bound),
            Token::Scalar32 => bit_plane::scalar32::decode(sections, values, bound),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => bit_plane::avx2::decode(token, sections, values, bound),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => bit_plane::avx512::decode(token, sections, values, bound),
            #[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
            Token::Neon(token) => bit_plane::neon::decode(token, sections, values, bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{encode_payload, max_encoded_len};
    use std::vec;
    use std::vec::Vec;

    /// Or the tests of all available kernels would pass without the one that they are for.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    #[test]
    fn every_aarch64_has_neon() {
        assert_eq!(Kernel::detect().name(), "neon");
    }

    #[test]
    fn an_implausible_word_is_found_wherever_it_stands() {
        // Implausible, infinite or NaN, and then what is neither, on both sides of each border.
        let implausible = [1u32, 0x8000_0001, 0x7f_ffff, 0x5f80_0000, 0xff7f_ffff, 0x7f80_0000, 0xffff_ffff];
        let even = [0, 0x8000_0000, 0x80_0000, 0x3fff_ffff, 0x4000_0000, 0xc000_0000, 0x5f7f_ffff];
        for len in 0..100 {
            let mut values = [1f32.to_bits(); 100].map(u32::to_le_bytes);
            for kernel in Kernel::available() {
                assert!(
                    !kernel.any_may_be_implausible(values[..len].as_flattened()),
                    "{} {len}",
                    kernel.name()
                );
                for place in 0..len {
                    for (word, is_implausible) in
                        implausible.map(|word| (word, true)).into_iter().chain(even.map(|word| (word, false)))
                    {
                        values[place] = word.to_le_bytes();
                        let bytes = values[..len].as_flattened();
                        let found = kernel.any_may_be_implausible(bytes);
                        assert_eq!(found, is_implausible, "{} {len} {place} {word:#x}", kernel.name());
                        let (sum, found) = kernel.sum_and_may_be_implausible(bytes);
                        assert_eq!(found, is_implausible, "{} {len} {place} {word:#x}", kernel.name());
                        assert_eq!(sum.value(), Sum::of(bytes).value(), "{} {len}", kernel.name());
                    }
                    values[place] = 1f32.to_le_bytes();
                }
            }
        }
    }

    /// The first, second and last value of every exponent and sign: random mantissas hardly ever
    /// lie on a border.
    #[test]
    fn classes_begin_and_end_where_they_should() {
        let bits = (0..512u32).flat_map(|top| [0, 1, 0x7f_ffff].map(|mantissa| top << 23 | mantissa));
        let values: Vec<u8> = bits.flat_map(u32::to_le_bytes).collect();
        let mut expected = vec![0; max_encoded_len(values.len())];
        let mut groups = expected.clone();
        for b in Params::MIN_B..=Params::MAX_B {
            for k in b.saturating_sub(7)..=b {
                for x in [Params::MIN_SCALE, -1, 0, i8::MAX] {
                    let params = Params::from_exponents(b, k, x).unwrap();
                    let len = encode_payload(&values, &mut expected, params).unwrap();
                    for kernel in Kernel::available() {
                        assert_eq!(kernel.encode(&values, &mut groups, params), Ok(len), "{}", kernel.name());
                        assert_eq!(groups[..len], expected[..len], "{} {params:?}", kernel.name());
                    }
                }
            }
        }
    }
}
