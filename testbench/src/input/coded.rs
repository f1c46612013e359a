//! Files of `gradwire encode -o`: bare code does not say what it was made with, so these begin with
//! that.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | [`MAGIC`] |
//! | 8..11 | codec and parameters, as in a segment header (FORMAT.md) |
//! | 11 | version of this layout, 1 |
//! | 12..20 | how many values, little-endian |
//! | 20.. | sections or groups |
//!
//! No encoder makes code that starts like [`MAGIC`], so a reader cannot take bare code for such a
//! file: codec 2 has no mode 0xff, and to codec 1 the first lane would be a subnormal that is kept
//! whole, which it never keeps.

use gradwire::profile::Profile;

use crate::error::Error;

/// The start of such a file.
pub const MAGIC: [u8; 8] = *b"\xff\xffGW\0\0\r\n";
/// Bytes before the code.
pub const HEADER_LEN: usize = 20;
const VERSION: u8 = 1;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The codec and its parameters.
    pub profile: Profile,
    /// The number of values the code stands for.
    pub values: u64,
}

impl Header {
    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..11].copy_from_slice(&self.profile.to_bytes());
        bytes[11] = VERSION;
        bytes[12..].copy_from_slice(&self.values.to_le_bytes());
        bytes
    }

    /// The header that `bytes`, the start of `file`, begin with; `None` if they are bare code.
    ///
    /// # Errors
    /// The file begins like one of these, but its header is cut short, of another version, or its
    /// parameters are none.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Option<Self>, Error> {
        if !bytes.starts_with(&MAGIC) {
            return Ok(None);
        }
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(Error::input(file, bytes.len(), "the end of the file", "a header of 20 bytes"));
        };
        if header[11] != VERSION {
            let found = format!("a file of version {}", header[11]);
            return Err(Error::input(file, 11u64, found, "version 1"));
        }
        let mut values = [0; 8];
        values.copy_from_slice(&header[12..]);
        match Profile::from_bytes([header[8], header[9], header[10]]) {
            Ok(profile) => Ok(Some(Self { profile, values: u64::from_le_bytes(values) })),
            Err(refused) => Err(Error::input(file, 8u64, refused.to_string(), "a codec and its parameters")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::codec::bit_plane::Bound;
    use gradwire::codec::{Params, Split};

    #[test]
    fn a_header_comes_back_and_damage_is_named() {
        for profile in
            [Params::new(6, Split::Paper, -3).unwrap().into(), Profile::BitPlane(Bound::new(-12).unwrap())]
        {
            let header = Header { profile, values: 1 << 40 };
            let bytes = header.to_bytes();
            assert_eq!(Header::parse("x", &bytes).unwrap(), Some(header));
            assert!(Header::parse("x", &bytes[..19]).unwrap_err().to_string().contains("byte 19"));
            for (at, says) in [(8, "x: byte 8"), (11, "a file of version")] {
                let mut bad = bytes;
                bad[at] = 9;
                assert!(Header::parse("x", &bad).unwrap_err().to_string().contains(says), "{at}");
            }
        }
        assert_eq!(Header::parse("x", &[0; 40]).unwrap(), None);
    }

    /// Whatever the values and parameters, bare code is not taken for a file.
    #[test]
    fn bare_code_never_starts_like_a_file() {
        let tags_then_lane = f32::from_le_bytes([MAGIC[2], MAGIC[3], MAGIC[4], MAGIC[5]]);
        assert!(tags_then_lane.is_subnormal());
        let sent = [&tags_then_lane.to_le_bytes()[..], &[0xff; 28]].concat();
        for x in [Params::MIN_SCALE, 0, i8::MAX] {
            let profile = Profile::from(Params::new(14, Split::Dense, x).unwrap());
            let mut code = [0; 64];
            profile.encode_payload(&sent, &mut code).unwrap();
            assert_ne!(code[..2], MAGIC[..2], "the first lane is not raw");
        }
        let section = Profile::BitPlane(Bound::new(-10).unwrap());
        assert!(section.decode_payload(&MAGIC, &mut [0; 32]).is_err(), "no mode of codec 2");
    }
}
