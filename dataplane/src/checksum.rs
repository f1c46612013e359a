//! The Internet checksum (RFC 1071), and its incremental update (RFC 1624).

use core::ops::Add;

/// A ones' complement sum of 16-bit big-endian words.
///
/// It is kept as the sum of 32-bit little-endian words, and folded when somebody asks for its
/// value: parts of a packet cost an addition each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of `bytes`; an odd last byte counts as the high half of a word. For headers:
    /// [`crate::kernels::Kernel::sum`] is made for payloads.
    #[inline]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_words(bytes.as_chunks().0) + Self(Self::part_of_le_word(bytes))
    }

    /// The sum of headers, which are whole words.
    // Without a loop for the least of IPv4 and TCP.
    #[inline]
    #[must_use]
    pub fn of_words(words: &[[u8; 4]]) -> Self {
        let sum = |words: &[[u8; 4]]| words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
        match words.split_first_chunk::<5>() {
            Some((least, more)) => Self(sum(least)) + Self(sum(more)),
            None => Self(sum(words)),
        }
    }

    /// The bytes of `bytes` behind its last whole word of four bytes.
    // The usual case has no branch and copies nothing: groups end anywhere.
    #[inline]
    pub(crate) fn part_of_le_word(bytes: &[u8]) -> u64 {
        let word = match *bytes {
            [.., a, b, c, d] => {
                return u64::from(u32::from_le_bytes([a, b, c, d])) >> (32 - 8 * (bytes.len() % 4));
            }
            [a, b, c] => [a, b, c, 0],
            [a, b] => [a, b, 0, 0],
            [a] => [a, 0, 0, 0],
            [] => [0; 4],
        };
        u32::from_le_bytes(word).into()
    }

    /// A sum of little-endian 32-bit words.
    ///
    /// RFC 1071 §2: the sum does not care for byte order as long as the result is swapped alike,
    /// and wider words may be added as long as their carries are.
    #[inline]
    pub(crate) const fn from_le_words(sum: u64) -> Self {
        Self(sum)
    }

    /// The sum of one word.
    #[must_use]
    pub const fn word(word: u16) -> Self {
        Self(word.swap_bytes() as u64)
    }

    /// What has to be added to take a word away again: its complement.
    #[must_use]
    pub const fn without(word: u16) -> Self {
        Self::word(!word)
    }

    /// The sum of the same bytes between two others. Behind an odd number of bytes, high and low
    /// halves of words change places (RFC 1071 §2).
    #[inline(always)]
    #[must_use]
    pub(crate) fn between(self, head: &[u8], tail: &[u8]) -> Self {
        // Nearly always.
        if head.is_empty() && tail.is_empty() {
            return self;
        }
        let behind = self + Self::of(tail);
        let behind = if head.len().is_multiple_of(2) { behind } else { Self(behind.value().into()) };
        Self::of(head) + behind
    }

    /// The folded sum: 0 and 0xffff both stand for zero.
    #[must_use]
    pub const fn value(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
        // At most 0x1fffe, so this is the last carry.
        let sum = (sum & 0xffff) + (sum >> 16);
        (sum as u16).swap_bytes()
    }

    /// The checksum field that makes the whole sum to zero: the complement.
    #[must_use]
    pub const fn field(self) -> u16 {
        !self.value()
    }

    /// Whether this is ones' complement zero: what a packet with a right checksum sums to.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0.is_multiple_of(u16::MAX as u64) // 2^16 is one more than it
    }

    /// Whether both are the same number; the two zeros are.
    #[must_use]
    pub const fn equals(self, other: Self) -> bool {
        self.value() == other.value() || (self.is_zero() && other.is_zero())
    }
}

impl Add for Sum {
    type Output = Self;

    // 64 bits have room for the carries of 2^32 words.
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// The checksum field `field` after two of the words that it covers changed (RFC 1624, equation 3).
#[cfg_attr(target_arch = "x86_64", inline(always))] // a soft core's image is smaller with a call
#[must_use]
pub(crate) fn update(field: [u8; 2], old: [u8; 4], new: [u8; 4]) -> [u8; 2] {
    let gone = u64::from(!u16::from_le_bytes(field)) + u64::from(!u32::from_le_bytes(old));
    Sum(gone + u64::from(u32::from_le_bytes(new))).field().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 §1, word by word in wide integers.
    fn verify(bytes: &[u8]) -> u64 {
        bytes.chunks(2).map(|w| u64::from(w[0]) << 8 | w.get(1).map_or(0, |b| u64::from(*b))).sum::<u64>()
            % 65535
    }

    #[test]
    fn example_of_rfc_1071() {
        assert_eq!(Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).value(), 0xddf2);
    }

    #[test]
    fn the_two_zeros_are_equal_and_nothing_else() {
        for (a, b, equal) in
            [(0, 0xffff, true), (0, 1, false), (0xffff, 1, false), (1, 1, true), (1, 2, false)]
        {
            let [a, b] = [a, b].map(Sum::word);
            assert_eq!((a.equals(b), b.equals(a)), (equal, equal), "{a:?} {b:?}");
        }
    }

    #[test]
    fn example_of_rfc_1624() {
        assert_eq!(update([0xdd, 0x2f], [0x55, 0x55, 0x45, 0], [0x32, 0x85, 0x45, 0]), [0, 0]);
    }

    /// Around every carry of the folds.
    #[test]
    fn a_wide_sum_folds_to_the_same_remainder() {
        let near = |bits: u64| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)];
        for high in [0, 1, 0xffff, 0x1_0000, 0xffff_fffe, 0xffff_ffff] {
            for low in [0, 0x1_0000, 0xffff_0000, 0xffff_ffff, 0x1234_5678] {
                for sum in near(high << 32 | low) {
                    let folded = Sum::from_le_words(sum).value().swap_bytes();
                    assert_eq!(u64::from(folded) % 65535, sum % 65535, "{sum:#x}");
                    assert_eq!(folded == 0, sum == 0, "{sum:#x}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn sum_is_the_sum_modulo_65535(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            prop_assert_eq!(u64::from(Sum::of(&bytes).value()) % 65535, verify(&bytes));
        }

        #[test]
        fn the_sum_of_parts_is_that_of_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            head: prop::sample::Index, values: prop::sample::Index,
        ) {
            let (head, rest) = bytes.split_at(head.index(bytes.len() + 1));
            let (values, tail) = rest.split_at(4 * values.index(rest.len() / 4 + 1));
            let sum = Sum::of(values).between(head, tail);
            prop_assert_eq!(u64::from(sum.value()) % 65535, verify(&bytes));
        }

        #[test]
        fn update_is_the_sum_of_the_changed_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 4..64), at: prop::sample::Index, new: [u8; 4],
        ) {
            bytes.truncate(bytes.len() & !1);
            let at = at.index(bytes.len() / 2 - 1) * 2;
            let field = Sum::of(&bytes).field().to_be_bytes();
            let old = bytes[at..at + 4].try_into().unwrap();
            bytes[at..at + 4].copy_from_slice(&new);
            let field = u16::from_be_bytes(update(field, old, new));
            prop_assert_eq!((verify(&bytes) + u64::from(field)) % 65535, 0);
        }
    }
}
