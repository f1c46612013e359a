//! Reads the pcapng blocks that carry frames; every other block is skipped
//! (draft-ietf-opsawg-pcapng).

use std::time::Duration;

use super::capture::Capture;
use super::fields::{END, ETHERNET, ETHERNET_WANTED, Fields};
use crate::error::Error;

/// Block type of a section header; a palindrome, so the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;

/// The interface of a section.
struct Interface {
    /// The start of its block.
    at: usize,
    link: u16,
    snap_len: u32,
    ticks_per_second: u64,
    offset_seconds: i64,
}

impl Interface {
    fn time(&self, ticks: u64) -> Duration {
        let whole =
            Duration::from_secs((ticks / self.ticks_per_second).saturating_add_signed(self.offset_seconds));
        let rest =
            u128::from(ticks % self.ticks_per_second) * 1_000_000_000 / u128::from(self.ticks_per_second);
        // Below one second, so it fits.
        whole.saturating_add(Duration::from_nanos(rest as u64))
    }
}

/// Adds the frames in `bytes`, the content of `file`, which start with a section header block, to
/// `capture`.
pub(super) fn parse(file: &str, bytes: &[u8], capture: &mut Capture) -> Result<(), Error> {
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut reader = Fields { file, bytes, big_endian: false };
    let mut at = 0;
    while at < bytes.len() {
        let kind = reader.u32(at, "a block header")?;
        if kind == SECTION_HEADER {
            interfaces.clear();
            reader.big_endian = match reader.u32(at + 8, "a section header block")? {
                BYTE_ORDER => reader.big_endian,
                magic if magic.swap_bytes() == BYTE_ORDER => !reader.big_endian,
                magic => {
                    let found = format!("byte-order magic {magic:#010x}");
                    return Err(Error::input(file, at + 8, found, "1a2b3c4d in either byte order"));
                }
            };
        }
        let len = reader.u32(at + 4, "a block header")? as usize;
        if len < 12 || !len.is_multiple_of(4) {
            let expected = "a multiple of 4 from 12 up";
            return Err(Error::input(file, at + 4, format!("a block of {len} bytes"), expected));
        }
        let block = reader.slice(at, len, "a block")?;
        let block = Fields { bytes: block, ..reader };
        match kind {
            INTERFACE_DESCRIPTION => interfaces.push(interface(block, at)?),
            ENHANCED_PACKET => {
                let field = |offset| block.u32(offset, "an enhanced packet block").map_err(|e| moved(e, at));
                let (id, high, low) = (field(8)?, field(12)?, field(16)?);
                let (captured_len, frame_len) = (field(20)?, field(24)?);
                let interface = ethernet(file, &interfaces, id as usize, at + 8)?;
                let time = interface.time(u64::from(high) << 32 | u64::from(low));
                let data = block.frame(28, 20, captured_len).map_err(|e| moved(e, at))?;
                capture.push(time, data, frame_len, 0);
            }
            SIMPLE_PACKET => {
                // It has no time and no captured length: the snap length of interface 0 decides.
                let interface = ethernet(file, &interfaces, 0, at)?;
                let frame_len = block.u32(8, "a simple packet block").map_err(|e| moved(e, at))?;
                let limit = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
                let data = block.frame(12, 8, frame_len.min(limit)).map_err(|e| moved(e, at))?;
                let time = capture.frames.last().map_or(Duration::ZERO, |frame| frame.time);
                capture.push(time, data, frame_len, 0);
            }
            _ => {}
        }
        at += len;
    }
    Ok(())
}

/// The interface that a packet block names, if its link type is Ethernet.
fn ethernet<'i>(file: &str, all: &'i [Interface], id: usize, at: usize) -> Result<&'i Interface, Error> {
    let Some(interface) = all.get(id) else {
        let expected = format!("one of the section's {} interfaces", all.len());
        return Err(Error::input(file, at, format!("interface {id}"), expected));
    };
    if u32::from(interface.link) != ETHERNET {
        let found = format!("link type {}", interface.link);
        return Err(Error::input(file, interface.at + 8, found, ETHERNET_WANTED));
    }
    Ok(interface)
}

/// Reads an interface description block that starts at `at` of the file.
fn interface(block: Fields<'_>, at: usize) -> Result<Interface, Error> {
    const WHAT: &str = "an interface description block";
    let mut interface = Interface {
        at,
        link: block.u16(8, WHAT).map_err(|e| moved(e, at))?,
        snap_len: block.u32(12, WHAT).map_err(|e| moved(e, at))?,
        ticks_per_second: 1_000_000,
        offset_seconds: 0,
    };
    let mut option = 16;
    // The last four bytes of a block repeat its length.
    while option + 4 <= block.bytes.len() - 4 {
        let code = block.u16(option, WHAT).map_err(|e| moved(e, at))?;
        let len = usize::from(block.u16(option + 2, WHAT).map_err(|e| moved(e, at))?);
        let value = block.slice(option + 4, len, "an option").map_err(|e| moved(e, at))?;
        match (code, value) {
            (0, _) => break,
            (OPTION_TSRESOL, &[resolution]) => {
                let ticks = match resolution {
                    0..=127 => 10u64.checked_pow(resolution.into()),
                    _ => 1u64.checked_shl(u32::from(resolution & 0x7f)),
                };
                interface.ticks_per_second = ticks.ok_or_else(|| {
                    let expected = "a time unit of at least 10^-19 or 2^-63 seconds";
                    Error::input(block.file, at + option + 4, format!("if_tsresol {resolution}"), expected)
                })?;
            }
            (OPTION_TSOFFSET, &[a, b, c, d, e, f, g, h]) => {
                let bytes = [a, b, c, d, e, f, g, h];
                interface.offset_seconds =
                    if block.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
            }
            _ => {}
        }
        option += 4 + len.next_multiple_of(4);
    }
    Ok(interface)
}

/// An error within a block that starts at `at`, with its offset counted from the start of the file.
fn moved(error: Error, at: usize) -> Error {
    match error {
        Error::Input { file, offset, found, expected } => {
            let found = if found == END { "the end of the block".into() } else { found };
            Error::Input { file, offset: offset + at as u64, found, expected }
        }
        other => other,
    }
}
