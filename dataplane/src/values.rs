//! Whether bytes look like values (FORMAT.md §5.1, S9): frameworks put headers into streams that an
//! application tagged.

use crate::codec::VALUE_LEN;

/// No gradient has a magnitude of 2^64, as bits of an `f32`; every fourth word of random bytes has.
const HUGE: u32 = (127 + 64) << 23;
const INFINITE: u32 = 0xff << 23;
const SMALLEST_NORMAL: u32 = 1 << 23;
/// Implausible words that are less than this many words apart belong together: gloo's headers are
/// 48 bytes long.
const REACH: usize = 12;

/// Magnitudes from 2 on have this bit, and so all that are huge or not finite. Most gradients have
/// none of them.
#[cfg(target_arch = "x86_64")]
pub(crate) const FROM_TWO: u32 = 1 << 30;
/// The bits of a word's exponent. None is set if the word is zero or subnormal.
#[cfg(target_arch = "x86_64")]
pub(crate) const EXPONENT: u32 = INFINITE;
/// Words without their sign and less one, as a wrapping shift and subtraction make them, are less
/// if they are subnormal and not zero.
pub(crate) const SUBNORMAL_BELOW: u32 = (SMALLEST_NORMAL << 1) - 1;

/// Whether a word is an implausible value: subnormal and not zero, as small integers are, or finite
/// and huge.
const fn is_implausible(word: u32) -> bool {
    let magnitude = word & 0x7fff_ffff;
    (magnitude != 0 && magnitude < SMALLEST_NORMAL) || (magnitude >= HUGE && magnitude < INFINITE)
}

/// Whether any of `values`, little-endian `f32`s, may be implausible: one is implausible, or not
/// finite.
// One minimum and one maximum: compilers vectorise them for whoever calls it. To tell infinities
// and NaN from huge values would take another subtraction a word, and there are none in most
// frames.
#[inline(always)]
pub(crate) fn any_may_be_implausible(values: &[u8]) -> bool {
    let (words, _) = values.as_chunks::<VALUE_LEN>();
    let (mut least, mut greatest) = (u32::MAX, 0);
    for word in words {
        // Without the sign. Zero wraps, and is no minimum.
        let twice = u32::from_le_bytes(*word) << 1;
        least = least.min(twice.wrapping_sub(1));
        greatest = greatest.max(twice);
    }
    least < SUBNORMAL_BELOW || greatest >= HUGE << 1
}

/// Whether the first of `values` is implausible.
pub(crate) fn first_is_implausible(values: &[u8]) -> bool {
    values.first_chunk().is_some_and(|word| is_implausible(u32::from_le_bytes(*word)))
}

/// Whether two implausible ones of `values` stand close together. One alone may be a value.
pub(crate) fn has_header(values: &[u8]) -> bool {
    let (words, _) = values.as_chunks::<VALUE_LEN>();
    let mut clean = REACH;
    words.iter().any(|word| {
        let implausible = is_implausible(u32::from_le_bytes(*word));
        let found = implausible && clean + 1 < REACH;
        clean = if implausible { 0 } else { clean.saturating_add(1) };
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn implausible_words_are_in_no_gradient() {
        let tiny = f32::MIN_POSITIVE;
        let huge = 2f32.powi(64);
        for (value, implausible) in [
            (0.0, false),
            (-0.0, false),
            (f32::from_bits(1), true),
            (-f32::from_bits(1), true),
            (tiny.next_down(), true),
            (-tiny.next_down(), true),
            (tiny, false),
            (1.0, false),
            (huge.next_down(), false),
            (huge, true),
            (-huge, true),
            (f32::MAX, true),
            (f32::MIN, true),
            (f32::INFINITY, false),
            (f32::NEG_INFINITY, false),
            (f32::NAN, false),
            (f32::from_bits(u32::MAX), false),
        ] {
            let word = value.to_bits();
            assert_eq!(is_implausible(word), implausible, "{value:e}");
            assert_eq!(first_is_implausible(&bytes(&[word, 1])), implausible, "{value:e}");
            for place in 0..40 {
                let mut words = [1f32.to_bits(); 40];
                words[place] = word;
                assert_eq!(
                    any_may_be_implausible(&bytes(&words)),
                    implausible || !value.is_finite(),
                    "{value:e} at {place}"
                );
            }
        }
        assert!(
            !any_may_be_implausible(&[]) && !first_is_implausible(&[]) && !first_is_implausible(&[1, 0, 0])
        );
    }

    #[test]
    fn a_header_is_two_implausible_words_within_48_bytes() {
        for apart in 1..40 {
            for first in 0..40 {
                let mut words = [1f32.to_bits(); 80];
                words[first] = 48;
                assert!(!has_header(&bytes(&words)), "one at {first}");
                words[first + apart] = 7;
                assert_eq!(has_header(&bytes(&words)), apart < 12, "at {first} and {apart} behind");
            }
        }
    }
}
