//! Fast sums. [`crate::sums`] and [`crate::codec::bit_plane::sums`] define what each function must
//! do on every input.
//!
//! With codec 2, the kernels for x86-64 and for small cores make units and sums of a section's
//! words in place of values, and words of sums; with codec 1, those for x86-64 take values to units
//! and back within their loops, and that for small cores adds vectors straight to sums, and makes
//! vectors of sums. All else goes by way of values, so the codec's kernels do the work, and what is
//! left are loops that compilers vectorise: a section of sums none of which is raw is, byte for
//! byte, codec 2's section of the numbers `±(2|q| - 1)` at `y = 0`.

use super::numbers::bytes_of_mut;
use super::units::{SIMPLE_BELOW, Unsummable, WHOLE_BITS, add, to_units};
#[cfg(target_arch = "x86_64")]
use super::x86::avx2::Avx2;
use super::{Adder, Kernel, Token, bit_plane, scalar32};
use crate::codec::VALUE_LEN;
use crate::codec::bit_plane::Bound;
use crate::codec::bit_plane::sums::{self, MAX_CODED};
use crate::profile::Profile;
use crate::sums::{BLOCK_LEN, BLOCK_VALUES, NOT_A_NUMBER, OVER, Summable, Unit, marked, sum_of, value_of};

/// The most units of a value that is not raw.
const MOST_CODED: i32 = i16::MAX as i32;

impl Kernel {
    /// As [`Summable::decode_units`]; None also if there are no values.
    #[must_use]
    pub fn decode_units(
        self,
        coded: &[u8],
        units: &mut [i32],
        profile: impl Into<Summable>,
        limit: i32,
    ) -> Option<usize> {
        let profile = profile.into();
        let fast = match (profile.profile(), self.0) {
            _ if !is_block(units.len()) => return None,
            _ if limit < MOST_CODED => None,
            (Profile::SizeClass(_), _) => None,
            (Profile::BitPlane(_), Token::Scalar32) => bit_plane::scalar32::decode_units(coded, units),
            #[cfg(target_arch = "x86_64")]
            (Profile::BitPlane(_), Token::Avx512(token)) => {
                bit_plane::avx512::decode_units(token, coded, units)
            }
            #[cfg(target_arch = "x86_64")]
            (Profile::BitPlane(_), Token::Avx2(token)) => bit_plane::avx2::decode_units(token, coded, units),
            (Profile::BitPlane(_), _) => None,
        };
        // Codec 2 with raw values, or no code.
        let unit = profile.unit();
        fast.or_else(|| self.decode_as_units(coded, units, profile, limit, |bits| marked(bits, unit, limit)))
    }

    /// An adder of codes straight to sums, if that is faster with this kernel than by way of units.
    #[must_use]
    pub fn adder(self, profile: impl Into<Summable>, limit: i32) -> Option<Adder> {
        let profile = profile.into();
        match (profile.profile(), self.0) {
            (Profile::SizeClass(params), Token::Scalar32) if limit >= MOST_CODED => {
                Some(Adder::new(params, profile.unit(), limit))
            }
            _ => None,
        }
    }

    /// As [`Summable::decode_result`]; None also if there are no sums.
    #[must_use]
    pub fn decode_result(
        self,
        coded: &[u8],
        sums: &mut [i32],
        profile: impl Into<Summable>,
    ) -> Option<usize> {
        let profile = profile.into();
        match profile.profile() {
            _ if !is_block(sums.len()) => None,
            Profile::SizeClass(_) => {
                let unit = profile.unit();
                self.decode_as_units(coded, sums, profile, i32::MAX, |bits| sum_of(bits, unit))
            }
            Profile::BitPlane(_) => self.decode_sums(coded, sums),
        }
    }

    /// Decodes to values, and takes each to units: as `marked` does if one may be larger than
    /// `limit`, or too large for the fast way.
    #[inline(never)]
    fn decode_as_units(
        self,
        coded: &[u8],
        units: &mut [i32],
        profile: Summable,
        limit: i32,
        marked: impl Fn(u32) -> i32,
    ) -> Option<usize> {
        if limit >= 1 << WHOLE_BITS
            && let Some(len) = self.decode_simple(coded, units, profile)
        {
            return Some(len);
        }
        // Values first stand where their units are to be: room for them apart costs a fifth of the
        // time, most of it to zero it.
        let len = self.decode(coded, bytes_of_mut(units), profile.profile()).ok()?;
        for units in units {
            *units = marked(u32::from_le(units.cast_unsigned()));
        }
        Some(len)
    }

    /// Decodes to units, if all values are below 2^22 of them; else what is in `units` is of no
    /// use.
    #[inline]
    fn decode_simple(self, coded: &[u8], units: &mut [i32], profile: Summable) -> Option<usize> {
        let unit = profile.unit();
        match (profile.profile(), self.0) {
            (_, Token::Scalar32) => None,
            #[cfg(target_arch = "x86_64")]
            (Profile::SizeClass(params), Token::Avx512(token)) => {
                token.decode_units(coded, units, params, unit)
            }
            #[cfg(target_arch = "x86_64")]
            (Profile::SizeClass(params), Token::Avx2(token)) => {
                token.decode_units(coded, units, params, unit)
            }
            (profile, _) => {
                let len = self.decode(coded, bytes_of_mut(units), profile).ok()?;
                (self.to_units(units, unit) < SIMPLE_BELOW).then_some(len)
            }
        }
    }

    /// As [`to_units`].
    fn to_units(self, values: &mut [i32], unit: Unit) -> u32 {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => token.to_units(values, unit),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => token.to_units(values, unit),
            _ => to_units(values, unit),
        }
    }

    /// Adds a block of units, as [`Self::decode_units`] or [`Self::decode_sums`] leaves them, to
    /// sums. Sums wrap; callers that keep to [`crate::sums::limit`] never see that.
    pub fn add(self, units: &[i32; BLOCK_VALUES], sums: &mut [i32; BLOCK_VALUES]) -> Unsummable {
        let least = match self.0 {
            Token::Scalar32 => bit_plane::scalar32::add(units, sums),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => token.add(units, sums),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => token.add(units, sums),
            _ => add(units, sums),
        };
        if least > OVER { Unsummable::default() } else { take_back(units, sums) }
    }

    /// As [`Summable::encode_result`]. Behind the code, `out` may be overwritten.
    #[must_use]
    pub fn encode_result(self, sums: &[i32], out: &mut [u8], profile: impl Into<Summable>) -> Option<usize> {
        let profile = profile.into();
        let unit = profile.unit();
        let params = match profile.profile() {
            _ if sums.len() > BLOCK_VALUES => return None,
            Profile::BitPlane(_) => return self.encode_sums(sums, out),
            Profile::SizeClass(params) => params,
        };
        let fast = match self.0 {
            Token::Scalar32 => scalar32::encode_result(sums, out, params, unit),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => token.encode_result(sums, out, params, unit),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => token.encode_result(sums, out, params, unit),
            _ => None,
        };
        // Too little room for what a kernel writes behind the groups, or no other way.
        fast.or_else(|| {
            let mut room = [0; BLOCK_LEN];
            let values = room.get_mut(..sums.len() * VALUE_LEN)?;
            for (value, sum) in values.as_chunks_mut().0.iter_mut().zip(sums) {
                *value = value_of(*sum, unit).to_le_bytes();
            }
            self.encode_size_class(values, out, params).ok()
        })
    }

    /// As [`sums::encode`], of at most [`BLOCK_VALUES`] sums; None if there are more. Behind the
    /// section, `out` may be overwritten.
    #[must_use]
    pub fn encode_sums(self, sums: &[i32], out: &mut [u8]) -> Option<usize> {
        let fast = match self.0 {
            _ if sums.len() > BLOCK_VALUES => return None,
            Token::Scalar32 => bit_plane::scalar32::encode_sums(sums, out),
            // Blocks are short: AVX-512 was no faster, and took more code.
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(_) => {
                Avx2::detect().and_then(|token| bit_plane::avx2::encode_sums(token, sums, out))
            }
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => bit_plane::avx2::encode_sums(token, sums, out),
            _ => self.encode_as_values(sums, out),
        };
        // With raw sums by a kernel that has no way for them, or too long.
        fast.or_else(|| sums::encode(sums, out))
    }

    fn encode_as_values(self, sums: &[i32], out: &mut [u8]) -> Option<usize> {
        let largest = sums.iter().fold(0, |all, sum| sum.unsigned_abs().max(all));
        if largest > MAX_CODED {
            return None;
        }
        let mut room = [0; BLOCK_LEN];
        let values = room.get_mut(..sums.len() * VALUE_LEN)?;
        for (value, sum) in values.as_chunks_mut().0.iter_mut().zip(sums) {
            *value = ((2 * sum - sum.signum()) as f32).to_bits().to_le_bytes();
        }
        self.encode_bit_plane(values, out, Bound::ONE).ok()
    }

    /// As [`sums::decode`], of at most [`BLOCK_VALUES`] sums; None if there are more, or none.
    #[must_use]
    pub fn decode_sums(self, section: &[u8], sums: &mut [i32]) -> Option<usize> {
        match self.0 {
            _ if !is_block(sums.len()) => None,
            Token::Scalar32 => bit_plane::scalar32::decode_sums(section, sums),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => bit_plane::avx512::decode_sums(token, section, sums),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => bit_plane::avx2::decode_sums(token, section, sums),
            _ if sums::may_have_raw(section, sums.len()) => sums::decode(section, sums),
            _ => self.decode_as_values(section, sums),
        }
    }

    fn decode_as_values(self, section: &[u8], sums: &mut [i32]) -> Option<usize> {
        let mut room = [0; BLOCK_LEN];
        let values = room.get_mut(..sums.len() * VALUE_LEN)?;
        let len = self.decode_bit_plane(section, values, Bound::ONE).ok()?;
        for (value, sum) in values.as_chunks().0.iter().zip(sums) {
            // An odd number below 2^15, or zero: the middle of a bin becomes its outer border,
            // halved.
            let odd = f32::from_bits(u32::from_le_bytes(*value)) as i32;
            *sum = (odd + odd.signum()) / 2;
        }
        Some(len)
    }
}

/// Whether a section may stand for so many values. No block is empty: a decoder that said yes to
/// one would take no bytes of it.
const fn is_block(values: usize) -> bool {
    0 < values && values <= BLOCK_VALUES
}

/// Subtracts again what was no number of units.
#[cold]
fn take_back(units: &[i32; BLOCK_VALUES], sums: &mut [i32; BLOCK_VALUES]) -> Unsummable {
    let mut unsummable = Unsummable::default();
    for (place, (units, sum)) in units.iter().zip(sums).enumerate() {
        match *units {
            NOT_A_NUMBER => unsummable.not_numbers |= 1 << (place & 127),
            OVER => unsummable.over = true,
            _ => continue,
        }
        *sum = sum.wrapping_sub(*units);
    }
    unsummable
}
