//! Named inputs of the corpus say something else as soon as a conversation draws one choice more.
//! Does each still reach what it is named for?

use std::fs;
use std::path::Path;

use gradwire::verdict::PassReason;

use super::*;
use crate::replay::source_mac;
use crate::verify::frame::type_of_service;

/// The reason against a segment; the alignment of its rule; whether its host was compressed before.
const NAMED: [(&str, PassReason, Alignment, bool); 4] = [
    ("two-starts", PassReason::AlignmentDoubtful, Alignment::Connection, false),
    ("resent-behind-a-fin", PassReason::AlignmentUnknown, Alignment::Payload, true),
    ("reload-in-the-middle", PassReason::AlignmentUnknown, Alignment::Connection, true),
    ("payload-within-a-value", PassReason::Misaligned, Alignment::Payload, false),
];

fn is_compressed(passage: &Passage) -> bool {
    matches!(passage.egress, Verdict::Changed { change: Change::Compressed, .. })
}

impl Conversation {
    /// Whether a segment goes untouched for this reason, and for no other: engines that know
    /// nothing of its connection, and take every payload for whole values, compress it.
    fn reaches(&self, reason: PassReason, alignment: Alignment, compressed_before: bool) -> bool {
        let held = self.hold();
        let frames = &held.capture.frames;
        let mut engines = Engines::new(&self.setups[0], &held.capture).unwrap();
        let passages = self.pass(&held, &mut engines);
        (0..frames.len()).any(|index| {
            let bytes = &frames[index].bytes;
            let mut setup = self.setups[held.setups[index]].clone();
            let rule = type_of_service(bytes).and_then(|tos| setup.rule(tos).copied());
            let mut before = frames.iter().zip(&passages).take(index);
            passages[index].egress == Verdict::Untouched(reason)
                && rule.is_some_and(|rule| rule.alignment == alignment)
                && (!compressed_before
                    || before.any(|(frame, passage)| {
                        is_compressed(passage) && source_mac(&frame.bytes) == source_mac(bytes)
                    }))
                && {
                    setup.rules.iter_mut().for_each(|rule| rule.alignment = Alignment::Payload);
                    is_compressed(&Engines::new(&setup, &held.capture).unwrap().send(&frames[index]))
                }
        })
    }
}

#[test]
fn named_inputs_reach_what_they_are_named_for() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/round_trip");
    for (name, reason, alignment, compressed_before) in NAMED {
        let data = fs::read(corpus.join(name)).unwrap();
        let conversation: Conversation = Unstructured::new(&data).arbitrary().unwrap();
        assert!(conversation.reaches(reason, alignment, compressed_before), "{name}: {conversation:?}");
    }
}
