//! Damaged and unusual traffic: whatever the frames hold, every check on their replay still holds.
//! In doubt the engines forward untouched, and the verifier has to agree.

mod support;

use gradwire::rules::{Alignment, Framing, Rule};
use gradwire_testbench::input::{Capture, Frame};
use gradwire_testbench::verify::frame::repair_checksums;
use proptest::prelude::*;
use support::{capture, recordings, replayed_with};

/// Frames enough for several connections and some hundred segments.
const FRAMES: usize = 400;

/// Bytes left as they are. Addresses of cards: the verifier does not follow a connection from one
/// card to another. Sequence numbers: a sender that jumps about in its own stream can be seen
/// otherwise than the engine sees it.
const SPARED: [std::ops::Range<usize>; 2] = [0..12, 38..42];

/// The place of the flags, and two of them.
const TCP_FLAGS: usize = 47;
const FIN_RST: u8 = 0x05;

fn sample() -> Capture {
    let mut capture = capture(&recordings().join("ring4_mtu1450.pcap"));
    // The first tagged SYN and what follows it.
    let start = capture.frames.iter().position(|frame| frame.bytes[15] == 0x28).unwrap();
    capture.frames.drain(..start);
    capture.frames.truncate(FRAMES);
    capture
}

fn holds(capture: &Capture, framing: Framing) {
    let report = replayed_with(capture, Rule { framing, ..Rule::STATIC });
    assert!(report.ok, "{framing:?}: {:?}", report.failures);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_frames_hold(
        damage in prop::collection::vec((0..FRAMES, any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..200),
    ) {
        let mut capture = sample();
        for (frame, at, byte, right_again) in damage {
            let Some(frame) = capture.frames.get_mut(frame) else { continue };
            // Mostly headers: payload bytes are values, and any value is fine.
            let at = at.index(frame.bytes.len().min(90));
            if SPARED.iter().any(|spared| spared.contains(&at)) {
                continue;
            }
            // A host that ends a connection, starts another and goes on with the first is none that
            // an engine can understand (SECURITY.md, hosts that share one egress).
            frame.bytes[at] = if at == TCP_FLAGS && right_again { byte & !FIN_RST } else { byte };
            if right_again {
                repair_checksums(&mut frame.bytes, 0);
            }
        }
        for framing in [Framing::InPlace, Framing::Routed] {
            holds(&capture, framing);
        }
    }

    /// Any order, with frames lost and doubled: some connections then have no SYN, or a late one.
    #[test]
    fn shuffled_frames_hold(picks in prop::collection::vec(0..FRAMES, 1..600)) {
        let all = sample();
        let frames = picks.iter().filter_map(|pick| all.frames.get(*pick).cloned()).collect();
        let capture = Capture { frames, ..Capture::default() };
        for framing in [Framing::InPlace, Framing::Routed] {
            holds(&capture, framing);
        }
    }

    #[test]
    fn random_bytes_hold(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..40)) {
        let frame = |(number, bytes)| Frame { number, time: std::time::Duration::ZERO, bytes };
        let frames = (1..).zip(frames).map(frame).collect();
        holds(&Capture { frames, ..Capture::default() }, Framing::Routed);
    }
}

/// A capture that starts in the middle of its connections: nothing may be compressed, unless the
/// rule says that every payload starts with a value.
#[test]
fn a_late_capture_passes_untouched() {
    let mut late = sample();
    late.frames.retain(|frame| frame.bytes[23] == 6 && frame.bytes[47] & 2 == 0);
    let report = replayed_with(&late, Rule::STATIC);
    assert!(report.ok && report.compressed == 0, "{:?}", report.failures);
    assert!(report.untouched["alignment-unknown"] > 0);
    let payload = replayed_with(&late, Rule { alignment: Alignment::Payload, ..Rule::STATIC });
    assert!(payload.compressed > 0);
}
