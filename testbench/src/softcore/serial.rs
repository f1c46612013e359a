//! The serial line of a soft core: console text and log frames in one stream.

/// The item that a byte of the line completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A byte of text.
    Text(u8),
    /// A log frame (`defmt`, rzCOBS), without the zero behind it.
    Frame(Vec<u8>),
}

/// Tells the two apart: a frame stands between the bytes 1, 0 and a 0, and text has neither of the
/// two.
#[derive(Clone, Debug, Default)]
pub struct Splitter {
    started: bool,
    frame: Option<Vec<u8>>,
}

impl Splitter {
    /// Takes the next byte of the line.
    pub fn byte(&mut self, byte: u8) -> Option<Item> {
        if let Some(frame) = &mut self.frame {
            if byte == 0 {
                return self.frame.take().map(Item::Frame);
            }
            frame.push(byte);
            return None;
        }
        match (std::mem::take(&mut self.started), byte) {
            (true, 0) => {
                self.frame = Some(Vec::new());
                None
            }
            (_, 1) => {
                self.started = true;
                None
            }
            // What a restart has cut.
            (_, 0) => None,
            (_, text) => Some(Item::Text(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_frames_come_apart() {
        let mut splitter = Splitter::default();
        let mut items =
            b"\0ok\x01\0\x7e\x01\x7e\0\x01\0\x55\0> ".iter().filter_map(|byte| splitter.byte(*byte));
        assert_eq!(items.next(), Some(Item::Text(b'o')));
        assert_eq!(items.next(), Some(Item::Text(b'k')));
        assert_eq!(items.next(), Some(Item::Frame(vec![0x7e, 1, 0x7e])));
        assert_eq!(items.next(), Some(Item::Frame(vec![0x55])));
        assert_eq!(items.next(), Some(Item::Text(b'>')));
        assert_eq!(items.next(), Some(Item::Text(b' ')));
        assert_eq!(items.next(), None);
    }
}
