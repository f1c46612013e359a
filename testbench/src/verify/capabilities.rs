//! Verifies the handshake (FORMAT.md section 5.5), by bytes: what a SYN advertises on the wire,
//! that no host sees it, and that nothing is compressed towards an end that advertised nothing.

use std::collections::BTreeSet;

use super::frame::{Checksum, Flow, Segment, Tcp, Transport, View};

/// A capability option starts so: NOP, NOP, kind, length, ExID; twelve bytes in all.
const START: [u8; 6] = [1, 1, 253, 10, 0x67, 0x77];
const LEN: usize = 12;

/// Directions whose far end advertised on a SYN that it restores.
#[derive(Debug, Default)]
pub(crate) struct Advertisers(BTreeSet<Flow>);

impl Advertisers {
    /// A SYN of this flow left with a capability option.
    pub(crate) fn insert(&mut self, flow: Flow) {
        self.0.insert(flow.reversed());
    }

    /// Whether the far end of this flow has advertised that it restores.
    pub(crate) fn to(&self, flow: Flow) -> bool {
        self.0.contains(&flow)
    }
}

/// A SYN, apart from what depends on its length.
#[derive(Debug, PartialEq, Eq)]
struct Syn {
    /// Up to the options, but for lengths and checksums.
    headers: Vec<u8>,
    options: Vec<u8>,
    data: Vec<u8>,
}

impl Syn {
    /// The SYN in a frame whose checksums are right, or left to a card if `sent` from a host.
    fn of(frame: &[u8], sent: bool) -> Option<Self> {
        let View { ip_checksum_ok: true, segment: Some(segment), .. } = View::of(frame)? else { return None };
        let Segment { transport: Transport::Tcp(tcp), payload, checksum_at, checksum, .. } = segment else {
            return None;
        };
        let right = match checksum {
            Checksum::Valid | Checksum::NotVerified => true,
            Checksum::LeftToCard => sent,
            Checksum::Absent | Checksum::Wrong => false,
        };
        if !right || !matches!(tcp, Tcp { syn: true, fin: false, rst: false, binds: false, .. }) {
            return None;
        }
        let tcp_at = checksum_at.start - 16;
        let mut headers = frame[..tcp_at + 20].to_vec();
        let tags = headers[12..].chunks(4).take_while(|tag| matches!(tag[..2], [0x81, 0] | [0x88, 0xa8]));
        let ip_at = 14 + 4 * tags.count();
        if headers[ip_at] >> 4 == 4 {
            headers[ip_at + 2..ip_at + 4].fill(0); // length
            headers[ip_at + 10..ip_at + 12].fill(0); // checksum
        } else {
            headers[ip_at + 4..ip_at + 6].fill(0); // length
        }
        headers[tcp_at + 12] &= 0x0f; // data offset
        headers[checksum_at].fill(0);
        let options = frame[tcp_at + 20..payload.start].to_vec();
        Some(Self { headers, options, data: frame[payload].to_vec() })
    }

    /// The place of the capability option.
    fn capability(&self) -> Option<usize> {
        self.options.windows(4).position(|four| four[0] == 253 && four[2..] == START[4..])
    }
}

/// Checks that `wire` is the SYN `sent`, longer by a capability option and in nothing else.
///
/// # Errors
/// What is wrong.
pub fn added(sent: &[u8], wire: &[u8]) -> Result<(), String> {
    let mut expected =
        Syn::of(sent, true).ok_or("a capability option, though it is no SYN that may carry one")?;
    let got = Syn::of(wire, false).ok_or("a capability option, and a host would not accept the SYN")?;
    if expected.capability().is_some() {
        return Err("a capability option in a SYN that has one".into());
    }
    let capability = got.options.get(..LEN).unwrap_or(&[]);
    if !capability.starts_with(&START) || capability[6] >> 4 != 1 {
        return Err("changed, but not by a capability option in front of its options".into());
    }
    expected.options.splice(..0, capability.iter().copied());
    if got == expected { Ok(()) } else { Err("changed by more than a capability option".into()) }
}

/// Checks that the SYN `delivered` is the SYN `sent`, whatever it was on the wire.
///
/// # Errors
/// What is wrong.
pub fn arrived(sent: &[u8], delivered: &[u8]) -> Result<(), String> {
    let [before, after] = [(sent, true), (delivered, false)].map(|(frame, sent)| Syn::of(frame, sent));
    match (before, after) {
        (Some(before), Some(after)) if before == after => Ok(()),
        _ => Err("a SYN that does not arrive as it was sent".into()),
    }
}

/// Checks what ingress made of a SYN: the same without its one capability option, whole and right.
///
/// # Errors
/// What is wrong.
pub fn stripped(wire: &[u8], out: &[u8]) -> Result<(), String> {
    // What crosses a host's own bridge may be left to a card, too.
    let mut expected =
        Syn::of(wire, true).ok_or("believed, though it is no SYN that may carry a capability option")?;
    let got = Syn::of(out, false).ok_or("a SYN that no host accepts")?;
    let at = expected.capability().ok_or("changed, though it had no capability option")?;
    if at == 2 && expected.options.starts_with(&START) {
        expected.options.drain(..LEN);
    } else {
        expected.options[at..at + LEN - 2].fill(1);
    }
    if got == expected { Ok(()) } else { Err("changed by more than a capability option".into()) }
}
