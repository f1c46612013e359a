//! TCP segments over IPv4, made and read byte by byte (RFC 791 section 3.1, RFC 9293 section 3.1):
//! headers without options, behind Ethernet without tags.

use gradwire::rules::{DEFAULT_MARK, ECN};
use gradwire_testbench::input::Capture;
use gradwire_testbench::verify::frame::repair_checksums;

use super::Lab;
use super::traffic::TAG;

/// The start of the header of TCP or UDP.
pub const L4_AT: usize = 34;
const TOS_AT: usize = 15;
const PROTOCOL_AT: usize = 23;
const SEQ: std::ops::Range<usize> = L4_AT + 4..L4_AT + 8;
const FLAGS_AT: usize = L4_AT + 13;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const ACK: u8 = 16;

/// A tagged segment from host A to host B.
pub fn segment(lab: &Lab, flags: u8, seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = [lab.mac("hb"), lab.mac("ha")].concat();
    frame.extend([8, 0, 0x45, TAG]);
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    // Identification, DF, TTL, protocol, checksum; addresses, ports.
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2, 0x9c, 0x40, 0x15, 0x18]);
    frame.extend(seq.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    frame.extend(payload);
    repair_checksums(&mut frame, 0);
    frame
}

/// The sequence number.
pub fn seq(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[SEQ].try_into().unwrap())
}

/// With another sequence number.
pub fn with_seq(frame: &[u8], seq: u32) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[SEQ].copy_from_slice(&seq.to_be_bytes());
    repair_checksums(&mut frame, 0);
    frame
}

/// Frames of a sender that are IPv4.
fn ipv4(capture: &Capture, source: [u8; 6]) -> impl Iterator<Item = &[u8]> {
    let frames = capture.frames.iter().map(|frame| frame.bytes.as_slice());
    frames.filter(move |frame| frame[6..12] == source && frame[12..14] == [8, 0])
}

/// Segments of a sender that have SYN.
pub fn syns(capture: &Capture, source: [u8; 6]) -> impl Iterator<Item = &[u8]> {
    ipv4(capture, source).filter(|frame| frame[PROTOCOL_AT] == 6 && frame[FLAGS_AT] & SYN != 0)
}

/// Compressed frames of a sender, each once.
pub fn compressed(capture: &Capture, source: [u8; 6]) -> Vec<Vec<u8>> {
    let marked = ipv4(capture, source).filter(|frame| frame[TOS_AT] & !ECN == DEFAULT_MARK);
    let mut frames = marked.map(<[u8]>::to_vec).collect::<Vec<_>>();
    // The wire's ends and its bridge all show it.
    frames.dedup();
    frames
}
