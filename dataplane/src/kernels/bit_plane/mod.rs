//! Fast versions of [`crate::codec::bit_plane`], which defines what each must do on every input.

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod entries;

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "SIMD loads and stores, and calls that a token proves")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "SIMD loads and stores, and calls that a token proves")]
pub(super) mod avx512;
mod loops;
#[cfg(all(target_arch = "aarch64", target_endian = "little", target_feature = "neon"))]
#[expect(unsafe_code, reason = "SIMD loads and stores, and calls that a token proves")]
pub(super) mod neon;
pub(super) mod portable;
#[expect(unsafe_code, reason = "whole words of payloads that lie on them")]
pub(super) mod scalar32;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little", target_feature = "neon")
))]
mod tables;

#[cfg(target_arch = "x86_64")]
use core::mem::MaybeUninit;

use crate::codec::bit_plane::SECTION_VALUES;
use crate::codec::{DecodeError, EncodeError, VALUE_LEN};

const SECTION_LEN: usize = SECTION_VALUES * VALUE_LEN;
/// Bytes of the longest map, and groups of a section.
const MAX_OCTETS: usize = SECTION_VALUES / 8;
/// The code of a group with raw items; smaller codes are numbers of planes.
const RAW_GROUP: u8 = 15;
/// The most planes of a group.
const MAX_WIDTH: u8 = 14;

/// The room that a section without raw values needs for each group: sign, half a code, 14 planes.
/// Raw ones need two more, and the values.
const GROUP_ROOM: usize = 18;
/// Mode and the longest map, and what stores reach beyond the section's end.
const MORE_ROOM: usize = 1 + 8 + MAX_OCTETS + 64;

/// The first byte of a section.
mod mode {
    pub(super) const EMPTY: u8 = 0;
    pub(super) const TWO_LEVEL: u8 = 1;
    pub(super) const FLAT: u8 = 2;
    pub(super) const DENSE: u8 = 3;
}

/// Room for registers that are written one behind the other, often over the end of the one before.
/// Not initialised: clearing it would take a tenth of the time of a payload.
#[cfg(target_arch = "x86_64")]
#[repr(align(64))]
struct Buffer<const N: usize>(MaybeUninit<[u8; N]>);

#[cfg(target_arch = "x86_64")]
impl<const N: usize> Buffer<N> {
    const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
}

/// Encodes `values`, section by section, with `section`, which writes one to the start of the room
/// that is left. That may overwrite what is behind the section.
#[inline(always)]
fn encode_with(
    values: &[u8],
    out: &mut [u8],
    mut section: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> Result<usize, EncodeError> {
    let have = out.len();
    let mut at = 0;
    for values in values.chunks(SECTION_LEN) {
        let room = out.get_mut(at..).unwrap_or(&mut []);
        match section(values, room) {
            Some(len) if len <= room.len() => at += len,
            _ => return Err(EncodeError::NoRoom { have }),
        }
    }
    Ok(at)
}

/// Fills `values`, section by section, with `section`, which decodes the one at the start of what
/// is left.
#[inline(always)]
fn decode_with(
    sections: &[u8],
    values: &mut [u8],
    mut section: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> Result<usize, DecodeError> {
    let mut at = 0;
    for values in values.chunks_mut(SECTION_LEN) {
        let rest = sections.get(at..).unwrap_or(&[]);
        at += section(rest, values).ok_or(DecodeError::Section { at })?;
    }
    Ok(at)
}
