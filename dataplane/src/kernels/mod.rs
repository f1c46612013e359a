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

/// Values that were encoded, and what was seen of them on the way.
// Small enough to be returned in registers: what is written to memory cannot be read at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    /// The sum of the values.
    pub(crate) sum: Sum,
    /// The length of the code; `u32::MAX` if there was too little room.
    len: u32,
    /// As [`values::any_may_be_implausible`].
    pub(crate) may_be_implausible: bool,
}

impl Encoded {
    const NO_ROOM: u32 = u32::MAX;

    /// A code of `len` bytes; None if there was too little room.
    #[inline(always)]
    fn new(len: Option<usize>, sum: Sum, may_be_implausible: bool) -> Self {
        // A packet is shorter.
        let len = len.and_then(|len| u32::try_from(len).ok()).unwrap_or(Self::NO_ROOM);
        Self { sum, len, may_be_implausible }
    }

    /// The length of the code; None if there was too little room.
    #[inline(always)]
    pub(crate) fn len(self) -> Option<usize> {
        (self.len != Self::NO_ROOM).then_some(self.len as usize)
    }
}

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

    /// As [`Self::encode`], of whole values; also their sum and, if asked to `look`, whether one
    /// may be implausible.
    #[inline(always)]
    pub(crate) fn encode_and_check(
        self,
        values: &[u8],
        coded: &mut [u8],
        profile: Profile,
        look: bool,
    ) -> Encoded {
        #[cfg(target_arch = "x86_64")]
        if let (Profile::BitPlane(bound), Token::Avx512(token)) = (profile, self.0)
            && let Some(encoded) = bit_plane::avx512::encode_and_check(token, values, coded, bound)
        {
            return encoded;
        }
        let (sum, may_be_implausible) =
            if look { self.sum_and_may_be_implausible(values) } else { (self.sum(values), false) };
        Encoded::new(self.encode(values, coded, profile).ok(), sum, may_be_implausible)
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

    /// As [`Self::decode`], of whole values; also their sum.
    pub(crate) fn decode_and_sum(
        self,
        coded: &[u8],
        values: &mut [u8],
        profile: Profile,
    ) -> Result<(usize, Sum), DecodeError> {
        match (profile, self.0) {
            #[cfg(target_arch = "x86_64")]
            (Profile::BitPlane(bound), Token::Avx512(token)) => {
                bit_plane::avx512::decode_and_sum(token, coded, values, bound)
            }
            _ => self.decode(coded, values, profile).map(|len| (len, self.sum(values))),
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
    use proptest::prelude::*;
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
    fn profiles() -> impl Strategy<Value = Profile> {
        let bounds = (Bound::MIN..=Bound::MAX).prop_map(|y| Profile::BitPlane(Bound::new(y).unwrap()));
        prop_oneof![
            3 => bounds,
            3 => (-12i8..=-6).prop_map(|y| Profile::BitPlane(Bound::new(y).unwrap())),
            1 => Just(Profile::SizeClass(Params::DEFAULT)),
        ]
    }

    /// Words like a gradient's, and any others.
    fn words() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            20 => (-0.01f32..0.01).prop_map(f32::to_bits),
            10 => Just(0),
            1 => any::<u32>(),
        ];
        let any_words = proptest::collection::vec(any::<u32>(), 0..100);
        let words = prop_oneof![9 => proptest::collection::vec(word, 0..1200), 1 => any_words];
        words.prop_map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    proptest! {
        #[test]
        fn an_encoding_that_checks_is_an_encoding_and_a_check(
            values in words(), profile in profiles(), room: prop::sample::Index, enough: bool,
        ) {
            let most = profile.max_encoded_len(values.len()) + 200;
            let room = if enough { most } else { room.index(most) };
            for kernel in Kernel::available() {
                let mut coded = [vec![0; room], vec![0; room]];
                let len = kernel.encode(&values, &mut coded[0], profile).ok();
                let encoded = kernel.encode_and_check(&values, &mut coded[1], profile, true);
                prop_assert_eq!(encoded.len(), len, "{}", kernel.name());
                prop_assert_eq!(&coded[0][..len.unwrap_or(0)], &coded[1][..len.unwrap_or(0)]);
                prop_assert_eq!(encoded.sum.value(), Sum::of(&values).value(), "{}", kernel.name());
                prop_assert_eq!(encoded.may_be_implausible, values::any_may_be_implausible(&values));
            }
        }

        /// Also of what no encoder writes.
        #[test]
        fn a_decoding_that_sums_is_a_decoding_and_a_sum(
            values in words(), profile in profiles(), flips in proptest::collection::vec(any::<(u16, u8)>(), 0..4),
        ) {
            let mut coded = vec![0; profile.max_encoded_len(values.len()) + 64];
            let len = Kernel::PORTABLE.encode(&values, &mut coded, profile).unwrap();
            coded.truncate(len + 40);
            for (at, bits) in flips {
                let at = usize::from(at) % coded.len();
                coded[at] ^= bits;
            }
            for kernel in Kernel::available() {
                let mut decoded = [vec![0xaa; values.len()], vec![0x55; values.len()]];
                let len = kernel.decode(&coded, &mut decoded[0], profile);
                let summed = kernel.decode_and_sum(&coded, &mut decoded[1], profile);
                prop_assert_eq!(summed.map(|(len, _)| len), len, "{}", kernel.name());
                if let Ok((_, sum)) = summed {
                    prop_assert_eq!(&decoded[0], &decoded[1], "{}", kernel.name());
                    prop_assert_eq!(sum.value(), Sum::of(&decoded[1]).value(), "{}", kernel.name());
                }
            }
        }
    }
}
