//! Finds segments that never were on a wire: a host that leaves segmentation to its card (TSO, GSO)
//! or joins what arrives (GRO) shows its capture tool segments of up to 64 KB. On the wire each was
//! several frames with headers of their own, which compression does not shrink.

use std::collections::HashMap;

use etherparse::{SlicedPacket, TcpOptionElement, TransportSlice};

use super::frame::{Flow, View};
use crate::input::Capture;

/// A payload that is longer is on no Ethernet: jumbo frames have an MTU of some 9000 bytes.
const LONGEST_PAYLOAD: usize = 9216;

/// The number of payloads of `capture` that are longer than the two ends of their connection
/// advertised on their SYNs (MSS), or than Ethernet has frames for.
#[must_use]
pub(super) fn oversized(capture: &Capture) -> u64 {
    // A host sends no more than the far end takes, nor than its own link has frames for: the
    // smaller of both MSS.
    let mut longest: HashMap<Flow, usize> = HashMap::new();
    let mut oversized = 0;
    for frame in &capture.frames {
        let Some(segment) = View::of(&frame.bytes).and_then(|view| view.segment) else { continue };
        if let Some(mss) = mss(&frame.bytes) {
            for flow in [segment.flow, segment.flow.reversed()] {
                let least = longest.entry(flow).or_insert(mss);
                *least = mss.min(*least);
            }
        }
        let most = longest.get(&segment.flow).copied().unwrap_or(LONGEST_PAYLOAD);
        oversized += u64::from(segment.payload.len() > most);
    }
    oversized
}

/// The MSS option of a SYN.
fn mss(frame: &[u8]) -> Option<usize> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { return None };
    if !tcp.syn() {
        return None;
    }
    tcp.options_iterator().find_map(|option| match option {
        Ok(TcpOptionElement::MaximumSegmentSize(mss)) => Some(usize::from(mss)),
        _ => None,
    })
}

/// The warning about so many.
#[must_use]
pub(super) fn warning(oversized: u64) -> Option<String> {
    (oversized > 0).then(|| {
        format!(
            "{oversized} segments are longer than frames on the wire, as before segmentation offload: the ratio is too high. Capture \
             with offload off: ethtool -K IFACE tso off gso off gro off"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Frame;
    use etherparse::{PacketBuilder, TcpOptionElement};

    fn frame(syn: Option<u16>, back: bool, payload: usize) -> Frame {
        let (from, to) = if back { ([10, 0, 0, 2], [10, 0, 0, 1]) } else { ([10, 0, 0, 1], [10, 0, 0, 2]) };
        let ports = if back { (2, 1) } else { (1, 2) };
        let tcp = PacketBuilder::ethernet2([0; 6], [1; 6]).ipv4(from, to, 64).tcp(ports.0, ports.1, 7, 100);
        let tcp = match syn {
            Some(mss) => tcp.syn().options(&[TcpOptionElement::MaximumSegmentSize(mss)]).unwrap(),
            None => tcp.ack(1),
        };
        let mut bytes = Vec::new();
        tcp.write(&mut bytes, &vec![0; payload]).unwrap();
        Frame { number: 1, time: std::time::Duration::ZERO, bytes }
    }

    #[test]
    fn the_smaller_mss_of_the_two_ends_counts() {
        let capture = |frames| Capture { frames, ..Capture::default() };
        let syns = || vec![frame(Some(1460), false, 0), frame(Some(8960), true, 0)];
        let mut frames = syns();
        frames.extend([frame(None, false, 1460), frame(None, true, 1460)]);
        assert_eq!(oversized(&capture(frames)), 0);
        let mut frames = syns();
        frames.extend([frame(None, false, 1461), frame(None, true, 40_000)]);
        assert_eq!(oversized(&capture(frames)), 2);
        // Without SYNs, only what no Ethernet carries.
        assert_eq!(oversized(&capture(vec![frame(None, false, 8960), frame(None, false, 20_000)])), 1);
        assert!(warning(2).unwrap().contains("too high") && warning(0).is_none());
    }
}
