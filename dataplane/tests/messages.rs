//! Texts for people: names, and errors that say what was found and what was expected.

use gradwire::codec::{DecodeError, EncodeError, ParamsError, Split};
use gradwire::profile::ProfileError;
use gradwire::rules::{Alignment, Framing, RulesError};
use gradwire::wire::chunk::{ChunkError, Limits};
use gradwire::wire::segment_header::SegmentError;

#[test]
fn errors_say_what_was_found_and_what_would_be_right() {
    let messages = [
        (ParamsError::Bound { got: 15 }.to_string(), "bound exponent 15, expected 1 to 14"),
        (
            ParamsError::ByteOffset { got: 1, b: 10 }.to_string(),
            "byte offset 1 with bound exponent 10, expected 3 to 10",
        ),
        (ParamsError::Scale { got: -81 }.to_string(), "scale exponent -81, expected -80 to 127"),
        (EncodeError::Unaligned { len: 5 }.to_string(), "5 bytes of values, expected a multiple of 4"),
        (EncodeError::NoRoom { have: 9 }.to_string(), "the groups do not fit into 9 bytes"),
        (
            DecodeError::Unaligned { len: 5 }.to_string(),
            "room for 5 bytes of values, expected a multiple of 4",
        ),
        (
            DecodeError::Truncated { at: 2, need: 34, have: 33 }.to_string(),
            "group at byte 2: expected 34 bytes, found 33",
        ),
        (
            DecodeError::AbsentLane { at: 2, tags: 0x40, lanes: 3 }.to_string(),
            "group at byte 2: tag vector 0x0040, expected tag 0 in every lane from 3 on",
        ),
        (
            SegmentError::Truncated { need: 8, have: 7 }.to_string(),
            "segment header: expected 8 bytes, found 7",
        ),
        (SegmentError::Version { got: 2 }.to_string(), "segment version 2, expected 1"),
        (SegmentError::Profile(ProfileError::Codec { got: 3 }).to_string(), "codec 3, expected 1 or 2"),
        (SegmentError::Reserved { got: 2 }.to_string(), "ToS and flags 0x02, expected bit 1 to be 0"),
        (
            SegmentError::Profile(ProfileError::Params(ParamsError::Bound { got: 0 })).to_string(),
            "bound exponent 0, expected 1 to 14",
        ),
        (
            SegmentError::NoValue { raw_len: 3, head_len: 2 }.to_string(),
            "payload of 3 bytes, expected at least 2 and 4",
        ),
        (ChunkError::Truncated { have: 19 }.to_string(), "header: expected 20 bytes, found 19"),
        (ChunkError::Version { got: 2 }.to_string(), "version 2, expected 1"),
        (ChunkError::Kind { got: 11 }.to_string(), "kind 11, expected 1 to 10"),
        (ChunkError::Child { got: 64 }.to_string(), "child 64, which its kind cannot have"),
        (ChunkError::Blocks { values: 4, first: 0, count: 2 }.to_string(), "2 blocks from 0 on of 4 values"),
        (ChunkError::Peak { got: 255 }.to_string(), "peak 255, expected at most 254"),
        (
            ChunkError::Limits { got: Limits { blocks: 17, window: 3, mtu: 776 } }.to_string(),
            "17 blocks, a window of 3, an MTU of 776",
        ),
        (ChunkError::Length { need: 8, have: 7 }.to_string(), "body: expected 8 bytes, found 7"),
        (ChunkError::Field { byte: 13 }.to_string(), "byte 13 has a value that its kind does not allow"),
        (RulesError::TooMany { got: 17 }.to_string(), "17 rules, expected at most 16"),
        (RulesError::TosOutsideMask { index: 1 }.to_string(), "rule 1: tos has bits outside its mask"),
        (RulesError::MatchesMark { index: 1, mark: 0x30 }.to_string(), "rule 1: matches the mark 0x30"),
        (RulesError::Hidden { index: 1 }.to_string(), "rule 1: earlier rules match all of it"),
        (
            RulesError::UdpOffset { index: 1 }.to_string(),
            "rule 1: an offset for UDP, which needs handshake off",
        ),
    ];
    for (message, expected) in messages {
        assert_eq!(message, expected);
    }
}

#[test]
fn names_are_those_of_options_and_files() {
    assert_eq!(Framing::ALL.map(Framing::name), ["in-place", "routed"]);
    assert_eq!(Alignment::ALL.map(Alignment::name), ["connection", "payload"]);
    assert_eq!(Split::ALL.map(Split::name), ["dense", "paper"]);
    assert!(Framing::ALL.iter().all(|framing| Framing::from_name(framing.name()) == Some(*framing)));
    assert!(
        Alignment::ALL.iter().all(|alignment| Alignment::from_name(alignment.name()) == Some(*alignment))
    );
    assert!(Split::ALL.iter().all(|split| Split::from_name(split.name()) == Some(*split)));
    assert_eq!(
        (Framing::from_name("Routed"), Alignment::from_name(""), Split::from_name("half")),
        (None, None, None)
    );
}
