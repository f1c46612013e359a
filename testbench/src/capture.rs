//! Reads captures (pcap and pcapng) and writes pcap. Ethernet only.
//!
//! A reader of its own: the one stable crate for both formats (pcap-file 2.0) refuses the frames that a
//! snap length has cut, takes every pcapng timestamp for nanoseconds, and does not say where in a file it
//! stopped. Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.

use std::io::{self, Write};
use std::time::Duration;

use crate::error::Error;
use crate::pcapng;

/// LINKTYPE_ETHERNET in both formats.
pub(crate) const ETHERNET: u32 = 1;
pub(crate) const ETHERNET_WANTED: &str = "1 (Ethernet): capture on an Ethernet interface, not on `any`";
/// No capture has frames as long as this; a longer one is a length field gone wrong.
pub(crate) const MAX_FRAME_LEN: u32 = 1 << 24;

const GLOBAL_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// One captured frame: Ethernet II, without FCS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its place in the file, from 1, as capture tools count.
    pub number: u64,
    /// When it was captured, since 1970.
    pub time: Duration,
    /// Its bytes, all of them.
    pub bytes: Vec<u8>,
}

/// The frames of a capture that are whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// In the order of the file.
    pub frames: Vec<Frame>,
    /// Frames that a snap length has cut; they are left out, since no check could be made on them.
    pub cut: u64,
}

impl Capture {
    /// Reads `bytes`, the content of `file`, in either format.
    ///
    /// # Errors
    /// Neither of the formats, a link type other than Ethernet, a file that ends within a record, a length
    /// that cannot be.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        if bytes.starts_with(&pcapng::SECTION_HEADER.to_le_bytes()) {
            return pcapng::parse(file, bytes);
        }
        let reader = Fields { file, bytes, big_endian: false };
        let (reader, nanoseconds) = match reader.u32(0, "the magic number of a capture")? {
            MICROSECONDS => (reader, false),
            NANOSECONDS => (reader, true),
            magic if magic.swap_bytes() == MICROSECONDS => (Fields { big_endian: true, ..reader }, false),
            magic if magic.swap_bytes() == NANOSECONDS => (Fields { big_endian: true, ..reader }, true),
            _ => {
                let found = format!("{:02x?}", &bytes[..4]);
                let expected =
                    "a capture: pcap (a1b2c3d4 or a1b23c4d in either byte order) or pcapng (0a0d0d0a)";
                return Err(Error::input(file, 0usize, found, expected));
            }
        };
        // The upper bits say whether frames end with an FCS (draft-ietf-opsawg-pcap, section 4).
        let link = reader.u32(20, "the link type")?;
        if link & 0xffff != ETHERNET {
            return Err(Error::input(file, 20usize, format!("link type {}", link & 0xffff), ETHERNET_WANTED));
        }
        let fcs_len = if link & 0x0400_0000 != 0 { 2 * (link >> 28) as usize } else { 0 };

        let mut capture = Self::default();
        let mut at = GLOBAL_HEADER_LEN;
        while at < bytes.len() {
            let seconds = reader.u32(at, "a record header")?;
            let fraction = reader.u32(at + 4, "a record header")?;
            let captured_len = reader.u32(at + 8, "a record header")?;
            let frame_len = reader.u32(at + 12, "a record header")?;
            let data = reader.frame(at + RECORD_HEADER_LEN, at + 8, captured_len)?;
            let nanos = if nanoseconds { fraction } else { fraction.saturating_mul(1000) };
            let time = Duration::from_secs(seconds.into()).saturating_add(Duration::from_nanos(nanos.into()));
            capture.push(time, data, frame_len, fcs_len);
            at += RECORD_HEADER_LEN + data.len();
        }
        Ok(capture)
    }

    /// Adds a frame, or counts it where fewer bytes were captured than it had.
    pub(crate) fn push(&mut self, time: Duration, data: &[u8], frame_len: u32, fcs_len: usize) {
        if data.len() < frame_len as usize {
            self.cut += 1;
            return;
        }
        let number = self.frames.len() as u64 + self.cut + 1;
        let bytes = data[..data.len().saturating_sub(fcs_len)].to_vec();
        self.frames.push(Frame { number, time, bytes });
    }
}

/// Fields of a file, with errors that say where it ended.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) file: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) big_endian: bool,
}

impl<'a> Fields<'a> {
    /// The number at `at`, which is part of `what`.
    pub(crate) fn u32(&self, at: usize, what: &str) -> Result<u32, Error> {
        let bytes = *self.slice(at, 4, what)?.first_chunk().unwrap_or(&[0; 4]);
        Ok(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// The number at `at`, which is part of `what`.
    pub(crate) fn u16(&self, at: usize, what: &str) -> Result<u16, Error> {
        let bytes = *self.slice(at, 2, what)?.first_chunk().unwrap_or(&[0; 2]);
        Ok(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// `len` bytes at `at`, which are part of `what`.
    pub(crate) fn slice(&self, at: usize, len: usize, what: &str) -> Result<&'a [u8], Error> {
        let bytes = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        bytes.ok_or_else(|| {
            let expected = format!("{what} that reaches byte {}", at.saturating_add(len));
            Error::input(self.file, self.bytes.len(), "the end of the file", expected)
        })
    }

    /// `len` bytes of a frame at `at`; the length itself stands at `len_at`.
    pub(crate) fn frame(&self, at: usize, len_at: usize, len: u32) -> Result<&'a [u8], Error> {
        if len > MAX_FRAME_LEN {
            let expected = format!("at most {MAX_FRAME_LEN}");
            return Err(Error::input(self.file, len_at, format!("a frame of {len} bytes"), expected));
        }
        self.slice(at, len as usize, "a frame")
    }
}

/// Writes a capture in the pcap format, with nanoseconds.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the global header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        let words = [NANOSECONDS, 4 << 16 | 2, 0, 0, MAX_FRAME_LEN, ETHERNET];
        for word in words {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { out })
    }

    /// Appends a frame. Seconds wrap in 2106, as the format has it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn frame(&mut self, time: Duration, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u32;
        for word in [time.as_secs() as u32, time.subsec_nanos(), len, len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(bytes)
    }

    /// Flushes what is written so far.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
