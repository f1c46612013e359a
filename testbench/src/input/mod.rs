//! Input files: captures of traffic (pcap and pcapng, Ethernet only) and recorded gradients
//! (`.npy`).
//!
//! The readers are the testbench's own. The one stable crate for both formats of captures
//! (pcap-file 2.0) refuses the frames that a snap length has cut, takes every pcapng timestamp for
//! nanoseconds, and does not say where in a file it stopped. Formats: draft-ietf-opsawg-pcap and
//! draft-ietf-opsawg-pcapng.

use crate::error::Error;

mod capture;
pub mod coded;
mod fields;
mod header;
pub mod known;
pub mod npy;
mod pcap;
mod pcapng;
pub mod recordings;

use fields::END;

pub use capture::{Capture, Frame};
pub use header::ipv4;
pub use pcap::Writer;

impl Capture {
    /// Reads `bytes`, the content of `file`, in either format. A file may end within a frame that
    /// is not its first.
    ///
    /// # Errors
    /// Neither of the formats, a link type other than Ethernet, a length that cannot be.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let mut capture = Self::default();
        let is_pcapng = bytes.starts_with(&pcapng::SECTION_HEADER.to_le_bytes());
        let format = if is_pcapng { pcapng::parse } else { pcap::parse };
        match format(file, bytes, &mut capture) {
            // The tool that wrote it was stopped, or the disk was full.
            Err(Error::Input { found, offset, .. }) if found == END && !capture.frames.is_empty() => {
                capture.torn = Some(offset);
            }
            read => read?,
        }
        Ok(capture)
    }
}
