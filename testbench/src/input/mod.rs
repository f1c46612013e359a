//! What goes in: captures of traffic (pcap and pcapng, Ethernet only) and recorded gradients (`.npy`).
//!
//! The readers are the testbench's own. The one stable crate for both formats of captures (pcap-file 2.0) refuses the
//! frames that a snap length has cut, takes every pcapng timestamp for nanoseconds, and does not say where in a file it
//! stopped. Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.

use crate::error::Error;

mod capture;
mod fields;
mod header;
pub mod npy;
mod pcap;
mod pcapng;
pub mod recordings;

pub use capture::{Capture, Frame};
pub use header::ipv4;
pub use pcap::Writer;

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
        pcap::parse(file, bytes)
    }
}
