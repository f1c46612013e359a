//! The console on the serial line: rules, counters, flows, for whoever has a terminal.
//!
//! [`editor`] makes lines of bytes, [`command`] commands of lines, `answer` lines of commands.
//! [`Console::poll`] does a bounded piece of all that and never waits for the line.

pub mod answer;
pub mod command;
pub mod editor;

use core::fmt::Write as _;

use embedded_io::{Read, ReadReady, Write, WriteReady};
use gradwire::engine::Millis;
use gradwire::forward::Forwarder;
use gradwire::rules::Rules;
use heapless::{Deque, String, Vec};

use crate::board::Nics;
use crate::{MARK, RULES, SETS, logs, progress};
use answer::{Line, Subject};
use command::Command;
use editor::{Echo, Editor};

/// Bytes that are read in one go.
const READ: usize = 16;
/// Bytes of text that wait for the line.
const ROOM: usize = 2 * answer::LINE;
/// The prompt.
pub const PROMPT: &str = "gradwire> ";

/// A task for the rest of the firmware, or an event to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), derive(defmt::Format))]
pub enum Request {
    /// Other rules are in force.
    RulesChanged,
    /// Counters to zero, flows forgotten.
    Reset,
    /// A new start.
    Reboot,
}

/// The place of log frames in the stream to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Text,
    /// In a log frame; how many bytes of its head are not sent yet.
    Frame(usize),
}

/// The console.
#[derive(Debug)]
pub struct Console {
    editor: Editor,
    answering: Option<(Subject, usize)>,
    text: Deque<u8, ROOM>,
    sending: Sending,
    logs: bool,
}

impl Console {
    /// A console that greets, asks for a command, and passes logs on.
    #[must_use]
    pub fn new() -> Self {
        let mut console = Self {
            editor: Editor::new(),
            answering: None,
            text: Deque::new(),
            sending: Sending::Text,
            logs: true,
        };
        // The zero ends a log frame that a restart has cut.
        let _ = console.text.push_back(logs::END);
        console.say(format_args!("gradwire {}: help lists commands", env!("CARGO_PKG_VERSION")));
        console.prompt();
        console
    }

    /// Reads, answers and writes, each a bounded piece; what the command asks of others.
    pub fn poll<S, N>(&mut self, serial: &mut S, forwarder: &mut Forwarder<SETS>, nics: &N) -> Option<Request>
    where
        S: Read + ReadReady + Write + WriteReady,
        N: Nics,
    {
        self.write(serial);
        if let Some((subject, at)) = self.answering {
            if self.has_room() {
                self.answering = Some((subject, at + 1));
                match answer::line(subject, at, forwarder, nics) {
                    Line::Text(line) => self.say(format_args!("{line}")),
                    Line::Skip => {}
                    Line::End => {
                        self.answering = None;
                        self.prompt();
                    }
                }
            }
            return None;
        }
        // Input waits while there is no room for its echo.
        let mut bytes = [0; READ];
        if !self.has_room() || !matches!(serial.read_ready(), Ok(true)) {
            return None;
        }
        let len = serial.read(&mut bytes).unwrap_or(0);
        let mut request = None;
        for byte in bytes.iter().take(len) {
            // Bytes behind a command's line are type-ahead: they are lost while it is answered, as
            // the help of a terminal program may show; what a person types is not as fast.
            if self.answering.is_none() && request.is_none() {
                request = self.byte(*byte, forwarder);
            }
        }
        request
    }

    /// Whether there is something to write, or an answer under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.text.is_empty() || self.answering.is_some() || matches!(self.sending, Sending::Frame(_))
    }

    fn byte(&mut self, byte: u8, forwarder: &mut Forwarder<SETS>) -> Option<Request> {
        match self.editor.byte(byte) {
            Echo::Nothing => {}
            Echo::Character(character) => self.put(&[character]),
            Echo::Erase => self.put(b"\x08 \x08"),
            Echo::EraseAll(len) => (0..len).for_each(|_| self.put(b"\x08 \x08")),
            Echo::Bell => self.put(b"\x07"),
            Echo::Cancel => {
                self.put(b"^C\r\n");
                self.prompt();
            }
            Echo::Enter => {
                self.put(b"\r\n");
                let editor = core::mem::take(&mut self.editor);
                let request = self.command(editor.line(), forwarder);
                self.editor = editor;
                if self.answering.is_none() {
                    self.prompt();
                }
                return request;
            }
        }
        None
    }

    fn command(&mut self, line: &str, forwarder: &mut Forwarder<SETS>) -> Option<Request> {
        let command = match command::parse(line) {
            Ok(command) => command,
            Err(problem) => {
                self.say(format_args!("{problem}"));
                return None;
            }
        };
        let rules = forwarder.egress().rules();
        let mut list = Vec::<_, { gradwire::rules::MAX_RULES }>::new();
        let _ = list.extend_from_slice(rules.as_slice()); // as long as the rules' own
        let mark = rules.mark();
        match command {
            Command::Nothing => None,
            Command::Help => self.answer(Subject::Help),
            Command::Rules => self.answer(Subject::Rules),
            Command::Counters => self.answer(Subject::Counters),
            Command::Flows => self.answer(Subject::Flows),
            Command::AddRule(rule) => {
                if list.push(rule).is_err() {
                    self.say(format_args!("no room: {} rules are the most", list.len()));
                    return None;
                }
                self.set_rules(forwarder, &list, mark)
            }
            Command::RemoveRule(number) => {
                if number >= list.len() {
                    self.say(format_args!("no rule {number}: there are {}", list.len()));
                    return None;
                }
                let mut place = 0..;
                list.retain(|_| place.next() != Some(number));
                self.set_rules(forwarder, &list, mark)
            }
            Command::DefaultRules => self.set_rules(forwarder, RULES, MARK),
            Command::Mark(mark) => self.set_rules(forwarder, &list, mark),
            Command::Reset => Some(Request::Reset),
            Command::Logs(on) => {
                self.logs = on;
                None
            }
            Command::Reboot => Some(Request::Reboot),
        }
    }

    const fn answer(&mut self, subject: Subject) -> Option<Request> {
        self.answering = Some((subject, 0));
        None
    }

    fn set_rules(
        &mut self,
        forwarder: &mut Forwarder<SETS>,
        list: &[gradwire::rules::Rule],
        mark: u8,
    ) -> Option<Request> {
        match Rules::new(list, mark) {
            Ok(rules) => {
                let now = Millis(progress::read().now_ms.into());
                let broken = forwarder.egress().would_break(&rules, now);
                if broken > 0 {
                    self.say(format_args!(
                        "refused: the in-place rule of {broken} connections would change; end them first"
                    ));
                    return None;
                }
                forwarder.set_rules(rules);
                Some(Request::RulesChanged)
            }
            Err(refused) => {
                self.say(format_args!("{refused}"));
                None
            }
        }
    }

    fn prompt(&mut self) {
        self.put(PROMPT.as_bytes());
    }

    /// A line of text. What does not fit is left out.
    fn say(&mut self, text: core::fmt::Arguments<'_>) {
        let mut line = String::<{ answer::LINE }>::new();
        let _ = line.write_fmt(text);
        self.put(line.as_bytes());
        self.put(b"\r\n");
    }

    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let _ = self.text.push_back(*byte);
        }
    }

    /// Whether a line, its end and a prompt fit.
    fn has_room(&self) -> bool {
        self.text.len() + answer::LINE + 2 + PROMPT.len() < ROOM
    }

    /// Writes what the line takes: text, and whole log frames between its characters.
    fn write<S: Write + WriteReady>(&mut self, serial: &mut S) {
        // A 16550 takes 16 bytes at once; a line that is always ready has its end here too.
        for _ in 0..16 * READ {
            if !matches!(serial.write_ready(), Ok(true)) {
                return;
            }
            let Some(byte) = self.next_byte() else { return };
            let _ = serial.write(&[byte]);
        }
    }

    fn next_byte(&mut self) -> Option<u8> {
        loop {
            match self.sending {
                // Frames come with their start and end.
                Sending::Frame(head) => {
                    let Some(byte) = logs::next() else {
                        self.sending = Sending::Text;
                        continue;
                    };
                    self.sending = match head.checked_sub(1) {
                        Some(left) => Sending::Frame(left),
                        None if byte == logs::END => Sending::Text,
                        None => Sending::Frame(0),
                    };
                    if self.logs {
                        return Some(byte);
                    }
                }
                Sending::Text if logs::is_waiting() => self.sending = Sending::Frame(logs::START.len()),
                Sending::Text => return self.text.pop_front(),
            }
        }
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}
