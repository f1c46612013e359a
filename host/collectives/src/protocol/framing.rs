//! Bytes of a connection as control frames, headers and messages, whatever pieces they arrive in.
//!
//! The body of a message has a buffer of its own length, so that bytes are read to where they stay.
//! It is allocated only when the header has been [allowed](Framer::allow).

use std::fmt;

use crate::header::{CONTROL_HEAD, Control, HEADER_LEN, Header, Purpose};
use crate::spread::{SPREAD, gather};

pub(super) struct Framer {
    purpose: Purpose,
    state: State,
}

#[expect(
    clippy::large_enum_variant,
    reason = "one for each connection; in a box it would be allocated for each message"
)]
enum State {
    Head { bytes: [u8; SPREAD * HEADER_LEN], at: usize },
    Control { kind: u8, bytes: Vec<u8>, at: usize },
    Message { header: Header, bytes: Vec<u8>, at: usize },
}

const NEW: State = State::Head { bytes: [0; SPREAD * HEADER_LEN], at: 0 };

/// Something that is whole.
pub(super) enum Arrived {
    Control(Control),
    /// The header of a message, whose body has to be allowed.
    Header(Header),
    Message(Header, Vec<u8>),
}

/// Bytes that no rank of this version sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Malformed {
    LongFrame,
    Frame,
    Header,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LongFrame => "a control frame that is too long",
            Self::Frame => "an unknown control frame: do all run the same version?",
            Self::Header => "something that is no message: do all run the same version?",
        })
    }
}

impl Framer {
    pub(super) fn new(purpose: Purpose) -> Self {
        Self { purpose, state: NEW }
    }

    /// The place for the next bytes. It is never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        match &mut self.state {
            State::Head { bytes, at } => &mut bytes[*at..self.purpose.head_len()],
            State::Message { bytes, at, .. } | State::Control { bytes, at, .. } => &mut bytes[*at..],
        }
    }

    /// So many bytes were put into the [`room`](Self::room). After a header, no more may come until
    /// it is allowed or was for nobody.
    pub(super) fn fill(&mut self, len: usize) -> Result<Option<Arrived>, Malformed> {
        match &mut self.state {
            State::Head { at, .. } | State::Message { at, .. } | State::Control { at, .. } => *at += len,
        }
        if let State::Head { bytes, at: CONTROL_HEAD } = &self.state
            && self.purpose == Purpose::Control
        {
            let head = bytes.first_chunk().expect("longer");
            let (kind, len) = (head[0], Control::body_len(head));
            self.state = NEW;
            let bytes = vec![0; len.ok_or(Malformed::LongFrame)?];
            self.state = State::Control { kind, bytes, at: 0 };
        }
        match &mut self.state {
            State::Head { bytes, at } if *at == self.purpose.head_len() => {
                let gathered = (self.purpose == Purpose::Tagged).then(|| gather(bytes));
                let head = gathered.as_deref().unwrap_or(bytes).first_chunk().expect("as long");
                let header = Header::parse(head);
                self.state = NEW;
                header.map(|header| Some(Arrived::Header(header))).ok_or(Malformed::Header)
            }
            State::Control { kind, bytes, at } if *at == bytes.len() => {
                let frame = Control::parse(*kind, bytes);
                self.state = NEW;
                frame.map(|frame| Some(Arrived::Control(frame))).ok_or(Malformed::Frame)
            }
            State::Message { bytes, at, .. } if *at == bytes.len() => {
                let State::Message { header, bytes, .. } = std::mem::replace(&mut self.state, NEW) else {
                    unreachable!("just matched")
                };
                Ok(Some(Arrived::Message(header, bytes)))
            }
            State::Head { .. } | State::Control { .. } | State::Message { .. } => Ok(None),
        }
    }

    /// Lets the body of a message come. One without a body is whole already.
    pub(super) fn allow(&mut self, header: Header) -> Option<(Header, Vec<u8>)> {
        if header.len == 0 {
            return Some((header, Vec::new()));
        }
        let bytes = vec![0; header.len as usize];
        self.state = State::Message { header, bytes, at: 0 };
        None
    }
}

impl Purpose {
    /// Bytes before a message or a frame.
    const fn head_len(self) -> usize {
        match self {
            Self::Control => CONTROL_HEAD,
            Self::Data => HEADER_LEN,
            Self::Tagged => SPREAD * HEADER_LEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Format;
    use crate::header::{Kind, PlanName};
    use crate::spread::spread;

    fn header(len: u32) -> Header {
        Header { kind: Kind::Message(Format::Coded), len, plan: PlanName::new("ring q8"), ..Header::bye(7) }
    }

    /// Frames of bytes that come in pieces of these lengths, in turn.
    fn frames(purpose: Purpose, mut bytes: &[u8], pieces: &[usize]) -> Vec<String> {
        let mut framer = Framer::new(purpose);
        let mut found = Vec::new();
        for piece in pieces.iter().cycle() {
            let room = framer.room();
            let len = room.len().min(bytes.len()).min(*piece);
            if len == 0 {
                break;
            }
            room[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            match framer.fill(len) {
                Ok(None) => {}
                Ok(Some(Arrived::Control(frame))) => found.push(format!("{frame:?}")),
                Ok(Some(Arrived::Header(header))) => match framer.allow(header) {
                    Some((header, body)) => found.push(format!("{} {body:?}", header.sequence)),
                    None => found.push("header".to_owned()),
                },
                Ok(Some(Arrived::Message(header, body))) => {
                    found.push(format!("{} {body:?}", header.sequence));
                }
                Err(malformed) => {
                    found.push(malformed.to_string());
                    break;
                }
            }
        }
        found
    }

    #[test]
    fn any_pieces_make_the_same_frames() {
        let control = [Control::Ping.to_bytes(), Control::Pong { sequence: 3 }.to_bytes()].concat();
        let message = |len: u8| [header(len.into()).to_bytes().to_vec(), (0..len).collect()].concat();
        let data = [message(3), message(0), message(1)].concat();
        let spread_header = |len: u8| [spread(&header(len.into()).to_bytes()), (0..len).collect()].concat();
        let tagged = [spread_header(4), spread_header(0)].concat();
        for pieces in [&[1][..], &[2, 3], &[7], &[1, 400], &[5000]] {
            let ping_and_pong = ["Ping", "Pong { sequence: 3 }"];
            assert_eq!(frames(Purpose::Control, &control, pieces), ping_and_pong, "{pieces:?}");
            let three = ["header", "7 [0, 1, 2]", "7 []", "header", "7 [0]"];
            assert_eq!(frames(Purpose::Data, &data, pieces), three, "{pieces:?}");
            assert_eq!(frames(Purpose::Tagged, &tagged, pieces), ["header", "7 [0, 1, 2, 3]", "7 []"]);
        }
    }

    #[test]
    fn other_bytes_are_refused_before_anything_is_allocated_for_them() {
        let long = [1, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(frames(Purpose::Control, &long, &[3]), [Malformed::LongFrame.to_string()]);
        assert_eq!(
            frames(Purpose::Control, &[99, 0, 0, 0, 0, 0, 0, 0], &[9]),
            [Malformed::Frame.to_string()]
        );
        assert_eq!(frames(Purpose::Data, &[b'x'; HEADER_LEN], &[50]), [Malformed::Header.to_string()]);
    }
}
