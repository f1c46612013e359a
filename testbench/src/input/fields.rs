//! Fields of a capture file, and what both formats have in common.

use crate::error::Error;

/// LINKTYPE_ETHERNET in both formats.
pub(super) const ETHERNET: u32 = 1;
pub(super) const ETHERNET_WANTED: &str = "1 (Ethernet): capture on an Ethernet interface, not on `any`";
/// The name of the place where a file ends too early.
pub(super) const END: &str = "the end of the file";
/// No capture has frames as long as this; a longer one is a length field gone wrong.
pub(super) const MAX_FRAME_LEN: u32 = 1 << 24;

/// Fields of a file, with errors that say where it ended.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) file: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) big_endian: bool,
}

impl<'a> Fields<'a> {
    /// The number at `at`, which is part of `what`.
    pub(super) fn u32(&self, at: usize, what: &str) -> Result<u32, Error> {
        let bytes = *self.slice(at, 4, what)?.first_chunk().unwrap_or(&[0; 4]);
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// The number at `at`, which is part of `what`.
    pub(super) fn u16(&self, at: usize, what: &str) -> Result<u16, Error> {
        let bytes = *self.slice(at, 2, what)?.first_chunk().unwrap_or(&[0; 2]);
        Ok(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// `len` bytes at `at`, which are part of `what`.
    pub(super) fn slice(&self, at: usize, len: usize, what: &str) -> Result<&'a [u8], Error> {
        let bytes = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        bytes.ok_or_else(|| {
            let expected = format!("{what} that reaches byte {}", at.saturating_add(len));
            Error::input(self.file, self.bytes.len(), END, expected)
        })
    }

    /// `len` bytes of a frame at `at`; the length itself stands at `len_at`.
    pub(super) fn frame(&self, at: usize, len_at: usize, len: u32) -> Result<&'a [u8], Error> {
        if len > MAX_FRAME_LEN {
            let expected = format!("at most {MAX_FRAME_LEN}");
            return Err(Error::input(self.file, len_at, format!("a frame of {len} bytes"), expected));
        }
        self.slice(at, len as usize, "a frame")
    }
}
