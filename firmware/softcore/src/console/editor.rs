//! One line of input, edited as terminals expect.

use heapless::String;

/// Bytes of a line: a rule with all of its settings takes some 110.
pub const LINE: usize = 160;

/// The terminal's output for a byte that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// Nothing.
    Nothing,
    /// The character.
    Character(u8),
    /// The last character goes.
    Erase,
    /// So many characters go.
    EraseAll(usize),
    /// The line is full, or the character cannot be part of one.
    Bell,
    /// The line is given up.
    Cancel,
    /// The line is complete: [`Editor::line`].
    Enter,
}

/// The state of the input within an escape sequence (ECMA-48); arrow keys send them, and they are
/// swallowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    Sequence,
}

/// The line being typed.
#[derive(Debug, Default)]
pub struct Editor {
    line: String<LINE>,
    escape: Escape,
    /// The last byte was a carriage return: a line feed behind it is part of the same end of line.
    carriage_return: bool,
    /// The line was taken; the next character starts another.
    taken: bool,
}

impl Editor {
    /// An empty line.
    #[must_use]
    pub const fn new() -> Self {
        Self { line: String::new(), escape: Escape::None, carriage_return: false, taken: false }
    }

    /// The line, after [`Echo::Enter`] and until the next byte.
    #[must_use]
    pub fn line(&self) -> &str {
        self.line.as_str()
    }

    /// Takes one byte of input.
    pub fn byte(&mut self, byte: u8) -> Echo {
        if core::mem::take(&mut self.taken) {
            self.line.clear();
        }
        let after_return = core::mem::replace(&mut self.carriage_return, byte == b'\r');
        match (self.escape, byte) {
            (Escape::Begun, b'[' | b'O') => {
                self.escape = Escape::Sequence;
                return Echo::Nothing;
            }
            (Escape::Sequence, b' '..=b'?') => return Echo::Nothing,
            (Escape::Begun | Escape::Sequence, b' '..=b'~') => {
                self.escape = Escape::None;
                return Echo::Nothing;
            }
            _ => self.escape = Escape::None,
        }
        match byte {
            b'\n' if after_return => Echo::Nothing,
            b'\r' | b'\n' => {
                self.taken = true;
                Echo::Enter
            }
            // Backspace and delete: terminals differ in which they send.
            0x08 | 0x7f => self.line.pop().map_or(Echo::Bell, |_| Echo::Erase),
            // Ctrl-C, Ctrl-U.
            0x03 => {
                self.line.clear();
                Echo::Cancel
            }
            0x15 => {
                let len = self.line.len();
                self.line.clear();
                Echo::EraseAll(len)
            }
            0x1b => {
                self.escape = Escape::Begun;
                Echo::Nothing
            }
            b' '..=b'~' if self.line.push(char::from(byte)).is_ok() => Echo::Character(byte),
            _ => Echo::Bell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(bytes: &[u8]) -> (Vec<String<LINE>>, Vec<Echo>) {
        let (mut editor, mut lines) = (Editor::new(), Vec::new());
        let echoes = bytes.iter().map(|byte| {
            let echo = editor.byte(*byte);
            if echo == Echo::Enter {
                lines.push(String::try_from(editor.line()).unwrap());
            }
            echo
        });
        let echoes = echoes.collect();
        (lines, echoes)
    }

    #[test]
    fn lines_end_in_any_of_the_three_ways() {
        for text in ["one\rtwo\r", "one\ntwo\n", "one\r\ntwo\r\n"] {
            assert_eq!(typed(text.as_bytes()).0, ["one", "two"]);
        }
        assert_eq!(typed(b"\n\n").0, ["", ""]);
    }

    #[test]
    fn erased_characters_are_gone() {
        assert_eq!(typed(b"rulez\x08s\r").0, ["rules"]);
        assert_eq!(typed(b"rulez\x7fs\r").0, ["rules"]);
        assert_eq!(typed(b"junk\x15flows\r").0, ["flows"]);
        assert_eq!(typed(b"junk\x03flows\r").0, ["flows"]);
        assert_eq!(typed(b"\x08").1, [Echo::Bell]);
    }

    #[test]
    fn keys_that_are_no_characters_leave_no_trace() {
        assert_eq!(typed(b"ru\x1b[A\x1b[1;5Cles\x1bOP\r").0, ["rules"]);
        assert_eq!(typed(b"ru\x00\xff\x07les\r").0, ["rules"]);
    }

    #[test]
    fn a_full_line_takes_no_more() {
        let (lines, echoes) = typed(&[&[b'a'; LINE][..], b"b\r"].concat());
        assert_eq!(lines[0].len(), LINE);
        assert_eq!(echoes[LINE], Echo::Bell);
    }
}
